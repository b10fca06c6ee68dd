"""Moving the calling session: `set_workspace`, which acts when the turn that called it has ended.

Moving means opening the agent again in the new place, which would end the turn that asks for it. So the call only
says where to; once the turn is over the session moves, and a turn nobody sees goes on with the task, or tells the
agent why it could not be moved. A turn that was cancelled moves nothing: whoever cancelled it wanted it to stop.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import trio
from ahpd import AhpdError, PermissionDenied, ToolCall, ToolError

from ahpd_session_tools import placement, places, wording, worktrees
from ahpd_session_tools.inputs import Inputs
from ahpd_session_tools.starting import callers_model

KEY = "session-tools.workspace"
"""One pending move for each chat: a later call replaces an earlier one."""

HIDDEN: Mapping[str, Any] = {"vscode.chat.requestHiddenFromTranscript": True}
CONTINUES: Mapping[str, Any] = {
    **HIDDEN,
    "vscode.chat.systemInitiatedLabel": "Continue in Requested Workspace",
    "vscode.chat.workspaceContinuation": True,
}
REPORTS: Mapping[str, Any] = {**HIDDEN, "vscode.chat.systemInitiatedLabel": "Report Failed Workspace Change"}


async def set_workspace(call: ToolCall) -> str:
    """Ask for the calling session to be moved when this turn ends."""
    if call.session is None or call.chat is None or call.turn is None:
        raise ToolError("set_workspace must run from an active chat turn.")
    inputs = Inputs(call)
    path = places.folder(inputs.text("workspaceFolder"))
    if path is None:
        raise inputs.refusal("workspaceFolder must be an absolute local path or file URI.")
    isolation = inputs.flag("isolation", default=None)
    move = _Move(call, call.session.uri, call.chat, call.turn, path, isolation, await callers_model(call))
    call.host.after_turn(call.chat, KEY, move.act)
    return (wording.WILL_ISOLATE if isolation else wording.WILL_MOVE).format(uri=move.uri)


@dataclass(frozen=True, slots=True)
class _Move:
    """A move that waits for its turn to end. It acts as the person of that turn."""

    call: ToolCall
    session: str
    chat: str
    turn: str
    path: str
    isolation: bool
    model: str | None

    @property
    def uri(self) -> str:
        return places.uri(self.path)

    async def act(self) -> None:
        if await self._was_cancelled():
            return
        try:
            directory = await self._moved()
        except AhpdError as error:
            await self._say(wording.MOVE_FAILED.format(uri=self.uri, why=error.sentence), REPORTS)
        else:
            await self._say(wording.MOVED.format(uri=directory), CONTINUES)

    async def _moved(self) -> str:
        """Move the session; where it works now. Nothing is left behind when that fails."""
        host, principal = self.call.host, self.call.principal
        if not await trio.Path(self.path).is_dir():
            raise ToolError(f"{self.path} is not a folder on this host.")
        if not self.isolation:
            await host.set_workspace(principal, self.session, self.uri)
            return self.uri
        view = host.session(self.session)
        async with AsyncExitStack() as undo:
            tree, directory = await placement.make(self.call, self.uri, view.title if view else "")
            undo.push_async_callback(worktrees.discard, tree)
            await host.set_workspace(principal, self.session, directory)
            undo.pop_all()
        trees = [*placement.made_for(self.call, self.session), tree]
        await host.set_session_meta(self.session, worktrees.META, worktrees.record(trees))
        return directory

    async def _say(self, text: str, meta: Mapping[str, Any]) -> None:
        host, principal = self.call.host, self.call.principal
        await host.send(principal, self.chat, text, model=self.model, kind="systemNotification", meta=meta)

    async def _was_cancelled(self) -> bool:
        try:
            state = await self.call.host.chat_state(self.call.principal, self.chat) or {}
        except PermissionDenied:
            return False
        turns = {turn.get("id"): turn for turn in state.get("turns") or ()}
        return bool((turns.get(self.turn) or {}).get("state") == "cancelled")
