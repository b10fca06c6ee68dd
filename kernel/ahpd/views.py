"""What plugins are shown of a running host: frozen views, and the verbs they may ask for.

A plugin never holds the kernel. It is handed a `HostApi`, whose every verb takes the acting principal first
and asks its grants, so that a tool reaches nothing its person could not reach from a client.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
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

    async def chat_state(self, principal: Principal, chat: str) -> Mapping[str, Any] | None:
        """A chat's state as a client would see it, its session woken when it sleeps (its agent is not started).
        `None` when there is no such chat."""
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
        kind: Literal["user", "agent", "systemNotification"] | None = None,
        meta: Mapping[str, Any] | None = None,
        message_id: str | None = None,
    ) -> Sent:
        """Start a turn when the chat is free, else queue behind it, or hand it to the running turn.

        `kind` is the message's origin: `agent` when a `sender` is given, else `user`. `meta` goes into the
        message's `_meta`. A session that sleeps is woken. Raises `SessionNotFound` for a chat there is not, and
        an `AhpdError` with the reason when the chat takes no message (archived, or its agent is not enabled).

        `message_id` is the id it is known by, in the queue and as a turn. A chat that has a turn or a queued
        message of that id is not sent it again: what became of it is answered. Nothing waits between the change
        of state and the return, so that a `keep` right behind it reaches the disk together with the message.
        """
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

    async def dispose_chat(self, principal: Principal, chat: str) -> None: ...

    async def rename_chat(self, principal: Principal, chat: str, title: str) -> None: ...

    async def archive(self, principal: Principal, target: str, archived: bool) -> None:
        """A chat, or a whole session when `target` is a session or its default chat."""
        ...

    async def delete_session(self, principal: Principal, session: str) -> None: ...

    # -- for plugins that keep something, or act later --------------------------------------------------

    def principal(self, reference: str | None) -> Principal:
        """Whoever a kept reference such as `user:ana` stands for now; nobody, who may only read, when that
        person has not signed in since this process started."""
        ...

    def session_meta(self, session: str) -> Mapping[str, Any]:
        """A session's `_meta`. Raises `SessionNotFound`."""
        ...

    async def set_session_meta(self, session: str, key: str, value: Any | None) -> None:
        """Set one key of a session's `_meta`, or remove it with `None`: kept first, then told to everybody who
        watches the session or the list. Says nothing when nothing changed."""
        ...

    async def kept(self, chat: str, key: str) -> Any | None:
        """What was kept under `key` on the chat's record."""
        ...

    async def keep(self, chat: str, key: str, value: Any | None) -> None:
        """Keep a JSON value on the chat's record, or drop it with `None`; on disk when this returns. Clients do
        not see it, and it goes with the chat."""
        ...

    async def all_kept(self, key: str) -> Mapping[str, Any]:
        """Every chat of the host, sleeping ones included, that has something under `key`: chat URI to value."""
        ...

    def after_turn(self, chat: str, key: str, act: Callable[[], Awaitable[None]]) -> None:
        """Run `act` once when the chat's running turn has ended, however it ended, before anything queued begins.
        A later call with the same key replaces an earlier one. An `AhpdError` it raises is logged."""
        ...

    async def set_workspace(self, principal: Principal, session: str, directory: str) -> None:
        """Make a URI the session's first working directory; its agent is opened again there, with the history.
        Raises `TurnInProgress` while a turn runs in it."""
        ...

    async def move_chat(
        self, principal: Principal, chat: str, *, into: str | None, after: str | None = None, first: bool = False
    ) -> str:
        """Put a chat elsewhere: into a session (behind `after`, at the end, or `first`), or, with `into` `None`,
        into a session of its own. The session it is in now.

        Raises `InvalidParams`, `TurnInProgress` or `SessionNotFound`."""
        ...
