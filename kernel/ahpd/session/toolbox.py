"""The tools of one chat, bound: what `Start.tools` gives an agent.

The list is read from the session each time, so that switching a plugin on or off reaches running agents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ahpd.access import Principal
from ahpd.agents import BoundTool
from ahpd.session.live import LiveChat, LiveSession
from ahpd.session.presence import Presence
from ahpd.tooling.invoke import Invoker
from ahpd.tools import Offer, OfferedTool, ToolCall, ToolResult
from ahpd.views import HostApi, SessionView

HARNESS_PREFIX = "mcp__ahp__"
"""What harnesses put before the names of the server the host's tools are shown in."""


class Toolboxes:
    """Makes toolboxes. `unattended` is whose grants a call has when no turn is running."""

    def __init__(
        self,
        invoker: Invoker,
        host: Callable[[], HostApi],
        view: Callable[[LiveSession], SessionView],
        offer: Callable[[LiveSession], Offer],
        unattended: Callable[[], Principal],
        presence: Presence,
        client_timeout_ms: int,
    ) -> None:
        self.invoker, self.host, self.view, self.offer = invoker, host, view, offer
        self.unattended, self.presence = unattended, presence
        self.client_timeout_ms = client_timeout_ms

    def of(self, chat: LiveChat) -> ChatToolbox:
        return ChatToolbox(self, chat)


class ChatToolbox:
    """Implements `ahpd.agents.Toolbox`."""

    def __init__(self, source: Toolboxes, chat: LiveChat) -> None:
        self._source = source
        self._chat = chat

    def offered(self) -> Sequence[BoundTool]:
        """What present clients bring comes first, the host's own after it."""
        return [*self._clients(), *(self._bind(offered) for offered in self._chat.session.offered)]

    def find(self, name: str) -> BoundTool | None:
        bare = name.removeprefix(HARNESS_PREFIX)
        for offered in self._chat.session.offered:
            if bare == offered.name or bare in offered.tool.legacy_names:
                return self._bind(offered)
        return next((bound for bound in self._clients() if bound.name == bare), None)

    def _clients(self) -> Iterator[BoundTool]:
        for client_id, name, tool in self._source.presence.tools(self._chat.session):
            yield self._bind_client(client_id, name, tool)

    def _bind_client(self, client_id: str, name: str, tool: Mapping[str, Any]) -> BoundTool:
        async def call(arguments: Mapping[str, Any], call_id: str) -> ToolResult:
            turn = self._chat.turn
            if turn is None:
                return ToolResult("A client's tool runs inside a turn only.", is_error=True)
            return await turn.run_at_client(call_id, client_id, self._source.client_timeout_ms)

        contributor = {"kind": "client", "clientId": client_id}
        offered = {**tool, "name": name}
        return BoundTool(name, offered, call, contributor=contributor, reported=str(tool["name"]))

    def _bind(self, offered: OfferedTool) -> BoundTool:
        async def call(arguments: Mapping[str, Any], call_id: str) -> ToolResult:
            return await self._invoke(offered, arguments, call_id)

        effects = offered.tool.effects
        return BoundTool(
            offered.name,
            offered.definition,
            call,
            offered.instruction,
            offered.tool.defer,
            None if effects is None else effects.as_json(),
        )

    async def _invoke(self, offered: OfferedTool, arguments: Mapping[str, Any], call_id: str) -> ToolResult:
        source, chat = self._source, self._chat
        turn = chat.turn
        call = ToolCall(
            tool=offered.name,
            arguments=arguments,
            principal=source.unattended() if turn is None else turn.principal,
            host=source.host(),
            session=source.view(chat.session),
            chat=chat.uri,
            turn=None if turn is None else turn.id,
            id=call_id,
            offer=source.offer(chat.session),
        )
        return await source.invoker.invoke(offered, call)
