"""What plugins are shown of a running host: frozen views, and the verbs they may ask for.

A plugin never holds the kernel. It is handed a `HostApi`, whose every verb takes the acting principal first
and asks its grants, so that a tool reaches nothing its person could not reach from a client.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from ahpd.access import Principal


@dataclass(frozen=True, slots=True)
class SessionView:
    """A session as it was when asked for. `uri` is the held name, `<provider>:/<id>`; times ISO 8601 UTC."""

    uri: str
    id: str
    provider: str
    title: str
    working_directories: tuple[str, ...]
    default_chat: str
    chats: tuple[str, ...]
    owner: str | None = None
    parent: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    strategy: str = "activeAgent"
    live: bool = True
    """False for a row that is only listed: no agent of this host runs it."""


@dataclass(frozen=True, slots=True)
class Sent:
    """What became of a message: the id it is known by, its revision, and the way it went."""

    id: str
    revision: int
    state: Literal["sent", "queued", "steered", "replaced", "cancelled"]


@dataclass(frozen=True, slots=True)
class Sender:
    """Where a message comes from when a tool sends it: the calling session, chat and turn."""

    session: str
    chat: str
    turn: str | None = None


class Lineage(Protocol):
    """Who started whom, and what each tree of sessions has spent."""

    def depth(self, session: str) -> int:
        """How many create links sit above the session; 0 for one nothing started."""
        ...

    def spent(self, session: str, what: str) -> int:
        """How much of `what` the session's whole tree has spent since the host started."""
        ...

    def charge(self, session: str, what: str) -> None: ...

    def refund(self, session: str, what: str) -> None: ...


class HostApi(Protocol):
    """The verbs of a running host. Each raises an `AhpdError` whose text is fit for a person."""

    @property
    def lineage(self) -> Lineage: ...

    @property
    def settings(self) -> Mapping[str, Any]:
        """The daemon's declared keys and their present values."""
        ...

    def agents(self, principal: Principal) -> Sequence[Mapping[str, Any]]:
        """`AgentInfo` of each agent the principal may start, with its session settings under `settings`."""
        ...

    def sessions(self, principal: Principal) -> Sequence[Mapping[str, Any]]:
        """The catalogue this principal may read: `SessionSummary`s, newest first. Empty without the grant."""
        ...

    def session(self, uri: str) -> SessionView | None: ...

    def chat_state(self, principal: Principal, chat: str) -> Mapping[str, Any] | None:
        """A chat's state as a client would see it; `None` when the chat is not live."""
        ...

    async def create_session(
        self,
        principal: Principal,
        *,
        provider: str,
        working_directories: Sequence[str] = (),
        config: Mapping[str, Any] | None = None,
        title: str | None = None,
        parent: str | None = None,
        owner: str | None = None,
    ) -> SessionView:
        """A new session, owned by `owner`, or by the principal when that is left out.

        `working_directories` are URIs, none for the host's default; `parent` is who started it in `lineage`.
        """
        ...

    async def create_chat(
        self, principal: Principal, session: str, *, title: str | None = None, model: str | None = None
    ) -> str:
        """A new chat's URI."""
        ...

    async def send(
        self,
        principal: Principal,
        chat: str,
        text: str,
        *,
        steer: bool = False,
        sender: Sender | None = None,
        model: str | None = None,
    ) -> Sent:
        """Start a turn when the chat is free, else queue behind it, or hand it to the running turn."""
        ...

    async def replace_queued(
        self, principal: Principal, chat: str, message: str, text: str, *, expected: int, by: str
    ) -> Sent:
        """Replace a queued message that `by` sent, still pending at revision `expected`.

        `by` is the URI of the chat that sent it (`Sender.chat`), or the id of the person where no chat did.
        Raises `NotFound` when there is no such message of theirs in the queue any more, and `Conflict` with
        `data["revision"]`, the one it is at now, when that is not `expected`.
        """
        ...

    async def cancel_queued(
        self, principal: Principal, chat: str, message: str, *, expected: int, by: str
    ) -> Sent:
        """Take it off the queue. Who may, and what is raised, as `replace_queued`."""
        ...

    async def rename_chat(self, principal: Principal, chat: str, title: str) -> None: ...

    async def archive(self, principal: Principal, target: str, archived: bool) -> None:
        """A chat, or a whole session when `target` is a session or its default chat."""
        ...

    async def delete_session(self, principal: Principal, session: str) -> None: ...
