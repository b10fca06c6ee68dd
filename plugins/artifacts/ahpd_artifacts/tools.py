"""The three artifact tools, in the order they are offered.

They act on the calling session's own record, so they ask for no grant. Only `add` must always be in sight: its
instruction names the other two, which a harness may keep behind tool search.
"""

from __future__ import annotations

from collections.abc import Sequence

from ahpd import Tool

from ahpd_artifacts import wording
from ahpd_artifacts.record import Records


def tools(records: Records) -> Sequence[Tool]:
    return (
        Tool(
            "add_artifact_or_reference",
            records.add,
            wording.ADD,
            wording.ADD_INPUT,
            ("items",),
            title="Add Artifact or Reference",
            defer=False,
            annotations={"readOnlyHint": False},
            instruction=wording.INSTRUCTION,
            compact=wording.ADD_COMPACT,
            for_session=wording.add_here,
            checks_input=True,
        ),
        Tool(
            "remove_artifact_or_reference",
            records.remove,
            wording.REMOVE,
            wording.REMOVE_INPUT,
            ("id",),
            title="Remove Artifact or Reference",
            defer=True,
            annotations={"readOnlyHint": False, "destructiveHint": True},
            checks_input=True,
        ),
        Tool(
            "list_artifacts_and_references",
            records.list,
            wording.LIST,
            title="List Artifacts and References",
            defer=True,
            annotations={"readOnlyHint": True},
            checks_input=True,
        ),
    )
