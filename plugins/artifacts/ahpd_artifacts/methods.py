"""The command by which a window takes an entry off the record of a session it shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec
from ahpd import Method, MethodCall, NotFound

from ahpd_artifacts.record import Records

REMOVE = "vscode/removeSessionArtifact"
Filled = Annotated[str, msgspec.Meta(min_length=1)]


class RemoveArtifact(msgspec.Struct, frozen=True, rename="camel"):
    """`session` by any of its URIs."""

    session: Filled
    artifact_id: Filled


def methods(records: Records) -> Sequence[Method]:
    async def remove(call: MethodCall) -> None:
        """Take the entry off. Raises `NotFound` when it is not, or no longer, on the record, and what the host
        raises for a session there is not."""
        params: RemoveArtifact = call.params
        view = call.host.session(params.session)
        session = params.session if view is None else view.uri
        if await records.take(call.host, session, params.artifact_id) is None:
            raise NotFound(f"No artifact or reference with id {params.artifact_id}.")

    said = {"vscode.removeSessionArtifact": True}
    return (Method(REMOVE, "session:artifacts", RemoveArtifact, remove, capabilities=said),)
