"""Any life of a host, and what a store says of it: the same as the host itself knows, before and after a crash.

The host here is the model. It keeps every channel whole in memory and reduces what it dispatches, as a real one
does, and tells the store: actions as they happen, whole states now and then. A crash is a copy of the files.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest
import trio
from ahpd import (
    Append,
    CutTurns,
    DropChat,
    DropSession,
    Opened,
    PutChat,
    PutRecord,
    PutSession,
    PutSummary,
    SessionRow,
    SessionStore,
)
from ahpd.memory_store import MemoryStore
from ahpd_store_sqlite.store import SqliteStore
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

if TYPE_CHECKING:
    from .conftest import Make

Json: TypeAlias = dict[str, Any]
TAIL = 3


@dataclass(slots=True)
class Chat:
    session: str
    state: Json
    record: Json = field(default_factory=dict)
    unput: list[str] = field(default_factory=list)
    """Turns completed since the chat was last put."""


@dataclass(slots=True)
class Known:
    """All a store should say."""

    rows: dict[str, SessionRow] = field(default_factory=dict)
    sessions: dict[str, Json] = field(default_factory=dict)
    chats: dict[str, tuple[str, Json, Json]] = field(default_factory=dict)
    seq: int = 0


class Host:
    """Does one thing after another, by name, each with two small numbers to choose by."""

    def __init__(self, make: Make, store: SessionStore) -> None:
        self.make, self.store = make, store
        self.rows: dict[str, SessionRow] = {}
        self.records: dict[str, Json] = {}
        self.sessions: dict[str, Json] = {}
        self.chats: dict[str, Chat] = {}
        self.seq = self.reserved = self.turns = 0
        self.committed = Known()

    def known(self) -> Known:
        chats = {uri: (chat.session, chat.state, chat.record) for uri, chat in self.chats.items()}
        rows = {uri: replace(row, record=self.records[uri]) for uri, row in self.rows.items()}
        return Known(rows, dict(self.sessions), chats, self.reserved)

    def on_disk(self) -> None:
        self.committed = self.known()

    def pick(self, number: int) -> tuple[str, Chat] | None:
        return list(self.chats.items())[number % len(self.chats)] if self.chats else None

    # -- sessions ---------------------------------------------------------------------------------------

    async def session(self, a: int, b: int) -> None:
        uri = f"echo:/{a}"
        self.rows[uri], self.records[uri] = self.make.row(uri, title=f"title {b}", busy=bool(b % 2)), {"b": b}
        self.sessions[uri] = {"title": f"title {b}", "status": 1, "chats": []}
        self.store.write(PutSession(self.rows[uri], self.sessions[uri], self.records[uri]))

    async def summary(self, a: int, b: int) -> None:
        uri = f"echo:/{a}"
        row = self.make.row(uri, title=f"summary {b}")
        self.store.write(PutSummary(row))
        if uri in self.rows:
            self.rows[uri] = row

    async def title(self, a: int, b: int) -> None:
        uri = f"echo:/{a}"
        if uri in self.sessions:
            self.seq += 1
            action = {"type": "session/titleChanged", "title": f"renamed {b}"}
            self.sessions[uri] = self.make.reducers["session"](self.sessions[uri], action)
            self.store.write(Append(uri, self.seq, action))

    async def drop_session(self, a: int, b: int) -> None:
        uri = f"echo:/{a}"
        self.store.write(DropSession(uri))
        self.rows.pop(uri, None)
        self.sessions.pop(uri, None)
        self.chats = {name: chat for name, chat in self.chats.items() if chat.session != uri}

    # -- chats ------------------------------------------------------------------------------------------

    async def chat(self, a: int, b: int) -> None:
        uri = f"chat:{a}"
        if f"echo:/{b}" in self.sessions and uri not in self.chats:
            self.chats[uri] = Chat(f"echo:/{b}", {"title": f"chat {b}", "status": 1, "turns": []}, {"b": b})
            self.put(uri)

    def put(self, uri: str, replace: bool = False) -> None:
        chat = self.chats[uri]
        state = {key: value for key, value in chat.state.items() if key != "turns"}
        all_turns = chat.state["turns"]
        turns = all_turns if replace else [turn for turn in all_turns if turn["id"] in chat.unput]
        chat.unput = []
        self.store.write(PutChat(chat.session, uri, state, chat.record, turns, replace))

    async def put_chat(self, a: int, b: int) -> None:
        if (picked := self.pick(a)) is not None:
            self.put(picked[0], replace=b == 0)

    async def record(self, a: int, b: int) -> None:
        record = {"record": b} if b else {}
        self.store.write(PutRecord(f"chat:{a}", record))
        if f"chat:{a}" in self.chats:
            self.chats[f"chat:{a}"].record = record

    async def drop_chat(self, a: int, b: int) -> None:
        self.store.write(DropChat(f"chat:{a}"))
        self.chats.pop(f"chat:{a}", None)

    # -- turns ------------------------------------------------------------------------------------------

    def act(self, number: int, **action: Any) -> str | None:
        picked = self.pick(number)
        if picked is None:
            return None
        uri, chat = picked
        self.seq += 1
        before = len(chat.state["turns"])
        chat.state = self.make.reducers["chat"](chat.state, action)
        if len(chat.state["turns"]) > before:
            chat.unput.append(chat.state["turns"][-1]["id"])
        self.store.write(Append(uri, self.seq, action))
        return uri

    def running(self, number: int) -> str:
        picked = self.pick(number)
        turn = picked[1].state.get("activeTurn") if picked else None
        return turn["id"] if turn else "none"

    async def turn(self, a: int, b: int) -> None:
        for step in (self.begin, self.say, self.complete if b else self.fail):
            await step(a, b)

    async def begin(self, a: int, b: int) -> None:
        if self.running(a) == "none":
            self.turns += 1
            message = {"text": f"question {b}"}
            started = "2026-01-01T00:00:00.000Z"
            self.act(a, type="chat/turnStarted", turnId=f"t{self.turns}", startedAt=started, message=message)

    async def say(self, a: int, b: int) -> None:
        part = {"kind": "markdown", "id": f"p{self.seq}", "content": "x" * b}
        self.act(a, type="chat/responsePart", turnId=self.running(a), part=part)

    async def complete(self, a: int, b: int) -> None:
        uri = self.act(a, type="chat/turnComplete", turnId=self.running(a), duration=b)
        if uri is not None and b % 2:
            self.put(uri)

    async def fail(self, a: int, b: int) -> None:
        part = {"kind": "error", "resumable": True, "error": {"message": "no"}}
        self.act(a, type="chat/error", turnId=self.running(a), duration=b, part=part)

    async def resume(self, a: int, b: int) -> None:
        picked = self.pick(a)
        if picked and picked[1].state["turns"]:
            self.act(a, type="chat/turnResume", turnId=picked[1].state["turns"][-1]["id"])

    async def cut(self, a: int, b: int) -> None:
        """As a host does it, or, after a crash in the middle, with nothing but the action."""
        picked = self.pick(a)
        if picked is None:
            return
        turns = picked[1].state["turns"]
        last = turns[max(0, len(turns) - 1 - b)]["id"] if turns and b < 4 else None
        uri = self.act(a, type="chat/truncated", **({} if last is None else {"turnId": last}))
        assert uri is not None
        if b % 2:
            self.store.write(CutTurns(uri, last))
            self.put(uri)
        else:
            await self.check_session(self.store, self.known(), picked[1].session)
            self.on_disk()

    # -- the store --------------------------------------------------------------------------------------

    async def commit(self, a: int, b: int) -> None:
        await self.store.commit()
        self.on_disk()

    async def reserve(self, a: int, b: int) -> None:
        self.reserved = max(self.reserved, self.seq + 10 * a)
        await self.store.reserve(self.reserved)
        self.committed.seq = self.reserved

    async def look(self, a: int, b: int) -> None:
        await self.check(self.store, self.known())
        self.on_disk()

    async def page(self, a: int, b: int) -> None:
        if (picked := self.pick(a)) is not None:
            await self.check_pages(self.store, picked[0], picked[1].state["turns"], b + 1)
            self.on_disk()

    # -- checking ---------------------------------------------------------------------------------------

    async def check(self, store: SessionStore, known: Known) -> None:
        for uri in {"echo:/0", "echo:/5", *known.sessions}:
            await self.check_session(store, known, uri)
        kept = {uri: record for uri, (_, _, record) in known.chats.items() if record}
        assert await store.records() == kept
        for uri, (_, state, _) in known.chats.items():
            await self.check_pages(store, uri, state["turns"], 2)

    async def check_session(self, store: SessionStore, known: Known, uri: str) -> None:
        stored = await store.load(uri)
        if uri not in known.sessions:
            assert stored is None
            return
        assert stored is not None
        assert stored.state == known.sessions[uri]
        wanted = [(name, tailed(state), record) for name, (of, state, record) in known.chats.items() if of == uri]
        assert [(chat.uri, chat.state, chat.record) for chat in stored.chats] == wanted

    async def check_pages(self, store: SessionStore, uri: str, turns: list[Json], limit: int) -> None:
        found: list[Mapping[str, Any]] = []
        cursor: str | None = None
        while True:
            page, cursor = await store.turns(uri, cursor, limit)
            assert len(page) <= limit
            found = [*page, *found]
            if cursor is None:
                break
        assert found == turns


def tailed(state: Json) -> Json:
    turns = state["turns"]
    more = {"turnsNextCursor": turns[-TAIL]["id"]} if len(turns) > TAIL else {}
    return {**state, "turns": turns[-TAIL:], **more}


def check_opened(opened: Opened, known: Known) -> None:
    for row in opened.rows:
        wanted = known.rows[row.uri]
        # A row may say busy of a session whose journal was folded and which was not put since.
        assert row == replace(wanted, busy=row.busy)
        assert row.busy >= wanted.busy
    assert len(opened.rows) == len(known.rows)
    assert opened.seq >= known.seq


COMMON = {
    name: getattr(Host, name)
    for name in (
        *("session", "summary", "title", "drop_session", "chat", "put_chat", "record", "drop_chat"),
        *("turn", "begin", "say", "complete", "fail", "resume", "cut", "commit", "reserve", "look", "page"),
    )
}
LIVELY = ("turn",) * 12 + ("fail", "resume", "complete", "cut", "chat") * 2
"""Drawn more often: it takes several of these in a row to make turns that can be lost."""
SMALL = st.integers(0, 5)


def lives(*more: str) -> st.SearchStrategy[list[tuple[str, int, int]]]:
    names = st.sampled_from([*LIVELY, *more, *COMMON])
    begun = [("session", 0, 0), ("session", 1, 0), ("chat", 0, 0)]
    chat = st.sampled_from([0, 0, 0, 1, 2, 5])
    return st.lists(st.tuples(names, chat, SMALL), min_size=12, max_size=50).map(lambda life: begun + life)


def life(make: Make, steps: list[tuple[str, int, int]], run: Callable[[Path], Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        trio.run(run, Path(folder))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=lives())
def test_in_memory(make: Make, steps: list[tuple[str, int, int]]) -> None:
    async def run(folder: Path) -> None:
        store = MemoryStore(tail=TAIL)
        await store.open(make.reducers)
        host = Host(make, store)
        for name, a, b in steps:
            await COMMON[name](host, a, b)
        await host.check(store, host.known())

    life(make, steps, run)


async def in_a_file(make: Make, copy: Callable[[Path, Path], Path], steps: list[Any], folder: Path) -> None:
    store = SqliteStore(folder / "ahpd.db", tail=TAIL, pauses=())
    await store.open(make.reducers)
    host = Host(make, store)
    for number, (name, a, b) in enumerate(steps):
        if name == "restart":
            await store.close()
            host.on_disk()
            check_opened(await store.open(make.reducers), host.known())
        elif name == "crash":
            copied = copy(store.path, folder / str(number))
            other = SqliteStore(copied, tail=TAIL, pauses=())
            check_opened(await other.open(make.reducers), host.committed)
            await host.check(other, host.committed)
            await other.close()
        else:
            await COMMON[name](host, a, b)
    await host.check(store, host.known())
    await store.close()


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=lives("restart", "crash", "crash"))
def test_in_a_file(make: Make, copy_as_crashed: Any, steps: list[tuple[str, int, int]]) -> None:
    life(make, steps, lambda folder: in_a_file(make, copy_as_crashed, steps, folder))


@pytest.mark.nightly
@settings(max_examples=1_000, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=lives("restart", "crash", "crash"))
def test_in_a_file_for_long(make: Make, copy_as_crashed: Any, steps: list[tuple[str, int, int]]) -> None:
    life(make, steps, lambda folder: in_a_file(make, copy_as_crashed, steps, folder))
