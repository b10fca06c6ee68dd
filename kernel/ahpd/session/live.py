"""The live records of sessions and chats: what is remembered beside the state clients see.

Plain data with no verbs of their own; who may change what is in `sessions`, `chats` and `turns`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Protocol

import trio

from ahpd.access import Principal
from ahpd.agents import Agent, AgentSession
from ahpd.processes import Children
from ahpd.protocol.times import write_time
from ahpd.session.names import ChatSpelling, SessionSpelling, Spellings
from ahpd.tools import OfferedTool, ToolResult


def now() -> str:
    """The wall clock as the protocol writes it."""
    return write_time(datetime.now(UTC))


class Running(Protocol):
    """The running turn of a chat, as far as its record needs to know it."""

    @property
    def id(self) -> str: ...

    @property
    def principal(self) -> Principal: ...

    def answered(self, waiting_id: str, value: Any) -> bool:
        """Hand an answer to whoever waits for it inside the turn; false when nobody does."""
        ...

    async def run_at_client(self, call_id: str, client_id: str, timeout_ms: int) -> ToolResult:
        """Wait until a client has run a call of this turn; 0 waits for ever."""
        ...

    def client_gone(self, client_id: str) -> None:
        """Fail every call that a client was running."""
        ...

    def client_finished(self, call_id: str, told: Any) -> None:
        """A client has reported the result of a call it ran."""
        ...

    def stop(self) -> None:
        """The turn has ended in state: let its agent go, say nothing more."""
        ...


class Background(Protocol):
    """Work of a chat's agent beside its turns, as far as the chat's record needs to know it."""

    @property
    def goes_on(self) -> bool: ...

    def close(self) -> None: ...


@dataclass(slots=True)
class QueuedMessage:
    """What the host keeps of a queued message beside the protocol's `{id, message}`."""

    principal: Principal
    by: str | None
    """Who may replace or cancel it: the chat that sent it, or the person at a door."""
    revision: int = 1


@dataclass(slots=True, eq=False)
class LiveChat:
    """One conversation. `turn` is the one running now; `agent` is opened at its first turn."""

    uri: str
    session: LiveSession
    agent: AgentSession | None = None
    opening: trio.Lock = field(default_factory=trio.Lock)
    stale: bool = False
    """True when a setting has changed that an agent reads when it is opened only."""
    prompting: trio.Lock = field(default_factory=trio.Lock)
    """Held while the agent runs a turn: one that is still letting go of a cancelled turn is not asked again."""
    turn: Running | None = None
    queue: dict[str, QueuedMessage] = field(default_factory=dict)
    turn_ids: set[str] = field(default_factory=set)
    older_turns: set[str] = field(default_factory=set)
    """Completed turns that were seen in the store and are not in memory."""
    background: Background | None = None
    """What the open agent has left running beside its turns."""
    kept: dict[str, Any] = field(default_factory=dict)
    """What plugins keep on this chat, by key; plain JSON."""
    after_turn: dict[str, Callable[[], Awaitable[None]]] = field(default_factory=dict)
    """What happens once the running turn has ended, by key."""
    settling: bool = False
    """True while that happens: nothing new may begin."""
    _spellings: Spellings[ChatSpelling] = field(default_factory=Spellings)

    def spelling(self, alias: str, session: SessionSpelling | None) -> ChatSpelling | SessionSpelling | None:
        """The one shared spelling for a name of this chat, where `session` is how that name spells the session."""
        if alias == (self.uri if session is None else session.out(self.uri)):
            return session
        return self._spellings.of(alias, lambda: ChatSpelling(self.uri, alias, session))


@dataclass(slots=True, eq=False)
class LiveSession:
    """One agent in one place, with its chats. `uri` is the held name."""

    uri: str
    id: str
    provider: str
    agent: Agent | None
    """`None` when no enabled plugin provides it: the session can be read, not used."""
    created_at: str
    values: dict[str, Any]
    """The session settings in force; `settings` is the same, to be read only."""
    owner: str | None = None
    strategy: str = "activeAgent"
    parent: str | None = None
    aliases: tuple[str, ...] = ()
    chats: dict[str, LiveChat] = field(default_factory=dict)
    offered: tuple[OfferedTool, ...] = ()
    _spellings: Spellings[SessionSpelling] = field(default_factory=Spellings)
    children: Children = field(default_factory=Children)
    nursery: trio.Nursery | None = None
    closing: trio.Event = field(default_factory=trio.Event)
    closed: trio.Event = field(default_factory=trio.Event)
    idle_since: float | None = None
    """When it was first seen with no turn and nobody watching; `None` while it is in use."""
    settings: MappingProxyType[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        self.settings = MappingProxyType(self.values)

    def has_turn(self, turn_id: str) -> bool:
        """Whether one of its chats has, or had, a turn of that id: a fork has turns in common with its source."""
        return any(turn_id in chat.turn_ids for chat in self.chats.values())

    def spelling(self, alias: str) -> SessionSpelling | None:
        """The one shared spelling for an alias; `None` for the held name itself."""
        if alias == self.uri:
            return None
        return self._spellings.of(alias, lambda: SessionSpelling(self.uri, alias))
