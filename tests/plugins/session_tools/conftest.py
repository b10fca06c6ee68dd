"""A host that only remembers what it was asked, and a way to call a session tool in it.

The fake keeps the two rules of the real one that a tool leans on: the catalogue is cut to what a person may
read, and a verb raises in words.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import pytest
from ahpd import HostApi, Lineage, NotFound, Principal, Sender, Sent, SessionView, Tool, ToolCall, ToolResult
from ahpd_session_tools.tools import TOOLS

ANA = Principal("user:ana", "ana", frozenset({"session:read", "session:write"}))

AGENTS: list[dict[str, Any]] = [
    {
        "provider": "echo",
        "displayName": "Echo",
        "models": [{"id": "echo-1", "name": "Echo One"}, {"id": "echo-2", "name": "Echo Two"}],
        "settings": {
            "voice": {"type": "string", "title": "Voice", "enum": ["plain", "shouty"]},
            "speed": {"type": "number", "title": "Speed"},
            "loud": {"type": "boolean", "title": "Loud"},
        },
    },
    {
        "provider": "robin",
        "displayName": "Robin",
        "models": [
            {"id": "r-small", "name": "Swift"},
            {"id": "r-large", "name": "Swift"},
            {"id": "r-only", "name": "Only Robin"},
        ],
        "settings": {"mood": {"type": "string", "title": "Mood"}},
    },
]


@dataclass
class FakeLineage:
    """An `ahpd.Lineage` of one tree: everything is spent together."""

    depths: dict[str, int] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)

    def depth(self, session: str) -> int:
        return self.depths.get(session, 0)

    def spent(self, session: str, what: str) -> int:
        return self.counts[what]

    def charge(self, session: str, what: str) -> None:
        self.counts[what] += 1

    def refund(self, session: str, what: str) -> None:
        self.counts[what] -= 1


@dataclass
class FakeHost:
    """An `ahpd.HostApi`. `asked` is every verb it was asked for, in order, as (name, what came with it)."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    views: dict[str, SessionView] = field(default_factory=dict)
    chats: dict[str, dict[str, Any]] = field(default_factory=dict)
    known_agents: list[dict[str, Any]] = field(default_factory=lambda: list(AGENTS))
    trees: FakeLineage = field(default_factory=FakeLineage)
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    sent: Sent = field(default_factory=lambda: Sent("m1", 1, "sent"))
    raises: Exception | None = None
    """What every verb that changes something raises."""
    failing: dict[str, Exception] = field(default_factory=dict)
    """What single verbs raise, by name."""
    refuses_state: Exception | None = None
    metas: dict[str, dict[str, Any]] = field(default_factory=dict)
    present: dict[str, Any] = field(default_factory=dict)
    """The daemon's keys."""
    people: dict[str, Principal] = field(default_factory=dict)
    waiting: dict[tuple[str, str], Callable[[], Awaitable[None]]] = field(default_factory=dict)
    """What is to be done after a turn, by chat and key."""

    @property
    def lineage(self) -> Lineage:
        return self.trees

    @property
    def settings(self) -> Mapping[str, Any]:
        return self.present

    def agents(self, principal: Principal) -> Sequence[Mapping[str, Any]]:
        return self.known_agents

    def sessions(self, principal: Principal) -> Sequence[Mapping[str, Any]]:
        return self.rows if "session:read" in principal.grants else []

    def session(self, uri: str) -> SessionView | None:
        return self.views.get(uri)

    async def chat_state(self, principal: Principal, chat: str) -> Mapping[str, Any] | None:
        if self.refuses_state is not None:
            raise self.refuses_state
        return self.chats.get(chat)

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
        self._note(
            "create_session",
            provider=provider,
            working_directories=list(working_directories),
            config=config,
            title=title,
            parent=parent,
            owner=owner,
        )
        chat = f"ahp-chat://default/{provider}"
        return SessionView(f"{provider}:/new", "new", provider, title or "", (), chat, (chat,))

    async def create_chat(
        self, principal: Principal, session: str, *, title: str | None = None, model: str | None = None
    ) -> str:
        self._note("create_chat", session=session, title=title, model=model)
        return "ahp-chat://c 2/x"

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
        more = {} if kind is None else {"kind": kind, "meta": meta, "principal": principal.id}
        self._note("send", chat=chat, text=text, steer=steer, sender=sender, model=model, **more)
        return self.sent

    async def replace_queued(
        self, principal: Principal, chat: str, message: str, text: str, *, expected: int, by: str
    ) -> Sent:
        self._note("replace", chat=chat, message=message, text=text, expected=expected, by=by)
        return Sent(message, expected + 1, "replaced")

    async def cancel_queued(
        self, principal: Principal, chat: str, message: str, *, expected: int, by: str
    ) -> Sent:
        self._note("cancel", chat=chat, message=message, expected=expected, by=by)
        return Sent(message, expected, "cancelled")

    async def dispose_chat(self, principal: Principal, chat: str) -> None:
        self._note("dispose_chat", chat=chat)

    async def rename_chat(self, principal: Principal, chat: str, title: str) -> None:
        self._note("rename", chat=chat, title=title)

    async def archive(self, principal: Principal, target: str, archived: bool) -> None:
        self._note("archive", target=target, archived=archived)

    async def delete_session(self, principal: Principal, session: str) -> None:
        self._note("delete_session", session=session, principal=principal.id)
        self.rows = [row for row in self.rows if row["resource"] != session]

    def principal(self, reference: str | None) -> Principal:
        return self.people.get(reference or "", Principal(None, "this turn", frozenset({"session:read"})))

    def session_meta(self, session: str) -> Mapping[str, Any]:
        if session not in self.views and session not in self.metas:
            raise NotFound(f"No session at {session}")
        return self.metas.get(session, {})

    async def set_session_meta(self, session: str, key: str, value: Any | None) -> None:
        self._note("set_session_meta", session=session)
        self.metas.setdefault(session, {})[key] = value

    async def kept(self, chat: str, key: str) -> Any | None: ...

    async def keep(self, chat: str, key: str, value: Any | None) -> None: ...

    async def all_kept(self, key: str) -> Mapping[str, Any]:
        return {}

    def after_turn(self, chat: str, key: str, act: Callable[[], Awaitable[None]]) -> None:
        self.waiting[chat, key] = act

    async def end_turn(self, chat: str) -> None:
        """Do what waits for the chat's turn to end."""
        for at in [at for at in self.waiting if at[0] == chat]:
            await self.waiting.pop(at)()

    async def set_workspace(self, principal: Principal, session: str, directory: str) -> None:
        self._note("set_workspace", session=session, directory=directory, principal=principal.id)

    async def move_chat(
        self, principal: Principal, chat: str, *, into: str | None, after: str | None = None, first: bool = False
    ) -> str:
        self._note("move_chat", chat=chat, into=into, after=after, first=first)
        return into or "echo:/moved"

    def _note(self, verb: str, **given: Any) -> None:
        refusal = self.failing.get(verb, self.raises)
        if refusal is not None:
            raise refusal
        self.asked.append((verb, given))

    def did(self, verb: str) -> list[dict[str, Any]]:
        """What came with each time the verb was asked for."""
        return [given for name, given in self.asked if name == verb]

    def add(self, uri: str, **more: Any) -> dict[str, Any]:
        """A session that runs: its row and its view, with a default chat and one more for each of `extra`."""
        provider, _, path = uri.partition(":/")
        default = f"ahp-chat://default/{path}"
        chats = [default, *(f"ahp-chat://{extra}/{path}" for extra in more.pop("extra", ()))]
        row = {
            "resource": uri,
            "provider": provider,
            "title": f"About {path}",
            "status": 1 | 32,
            "createdAt": "2026-01-01T00:00:00.000Z",
            "modifiedAt": "2026-01-02T00:00:00.000Z",
            "chats": [{"resource": chat, "title": f"Chat {chat[11:13]}"} for chat in chats],
            "defaultChat": default,
            **more,
        }
        self.rows.append(row)
        directories = tuple(row.get("workingDirectories", ()))
        self.views[uri] = SessionView(uri, path, provider, row["title"], directories, default, tuple(chats))
        return row


@dataclass
class Caller:
    """Calls the tools as one person, in the session `echo:/here` until `leave` makes it a door."""

    host: FakeHost
    principal: Principal = ANA
    session: SessionView | None = None
    chat: str | None = None
    turn: str | None = "t1"

    def leave(self) -> None:
        self.session = self.chat = self.turn = None

    def call(self, name: str, **arguments: Any) -> ToolCall:
        host: HostApi = self.host
        return ToolCall(name, arguments, self.principal, host, self.session, self.chat, self.turn)

    async def result(self, name: str, **arguments: Any) -> ToolResult:
        answer = await tool(name).run(self.call(name, **arguments))
        return ToolResult(answer) if isinstance(answer, str) else answer

    async def text(self, name: str, **arguments: Any) -> str:
        return (await self.result(name, **arguments)).text

    async def json(self, name: str, **arguments: Any) -> Any:
        return json.loads(await self.text(name, **arguments))

    async def listed(self, **arguments: Any) -> list[str]:
        """The names of the rows that `list_sessions` answers."""
        return [row["session"] for row in (await self.json("list_sessions", **arguments))["sessions"]]


def tool(name: str) -> Tool:
    return next(one for one in TOOLS if one.name == name)


@pytest.fixture
def host() -> FakeHost:
    return FakeHost()


@pytest.fixture
def caller(host: FakeHost) -> Caller:
    host.add("echo:/here", workingDirectories=["file:///home/ana"], extra=["side"])
    view = replace(host.views["echo:/here"], owner="user:ana", settings={"voice": "shouty", "hostOnly": True})
    host.views["echo:/here"] = view
    return Caller(host, session=view, chat=view.default_chat)
