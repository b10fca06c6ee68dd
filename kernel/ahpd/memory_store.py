"""A store for a host that has no other: sessions that sleep can be woken, and nothing outlives the process.

Knows no reducer of its own: actions are applied with the ones it is opened with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import trio

from ahpd.ports import (
    Append,
    CutTurns,
    DropChat,
    DropSession,
    Opened,
    PutChat,
    PutRecord,
    PutSession,
    PutSummary,
    Reducer,
    SessionRow,
    StoredChat,
    StoredSession,
    StoreOp,
)

TAIL = 50
"""Completed turns of a chat that `load` answers."""
_ROWS = ("turns", "turnsNextCursor")
Turns = Sequence[Mapping[str, Any]]


@dataclass(slots=True)
class _Session:
    row: SessionRow
    state: dict[str, Any]
    record: Mapping[str, Any]


@dataclass(slots=True)
class _Chat:
    """`state` holds all its completed turns."""

    session: str
    state: dict[str, Any]
    record: Mapping[str, Any]


class MemoryStore:
    """Implements `ahpd.ports.SessionStore`."""

    def __init__(self, *, tail: int = TAIL) -> None:
        self._tail = tail
        self._sessions: dict[str, _Session] = {}
        self._chats: dict[str, _Chat] = {}
        self._seq = 0
        self._reducers: Mapping[str, Reducer] = {}

    @property
    def durable(self) -> bool:
        return False

    @property
    def pending(self) -> bool:
        return False

    async def open(self, reducers: Mapping[str, Reducer]) -> Opened:
        await trio.lowlevel.checkpoint()
        self._reducers = reducers
        rows = [replace(session.row, record=session.record) for session in self._sessions.values()]
        return Opened(rows, self._seq)

    def write(self, op: StoreOp) -> None:
        _APPLY[type(op)](self, op)

    async def commit(self) -> None:
        await trio.lowlevel.checkpoint()

    async def reserve(self, seq: int) -> None:
        await trio.lowlevel.checkpoint()
        self._seq = max(self._seq, seq)

    async def load(self, uri: str) -> StoredSession | None:
        await trio.lowlevel.checkpoint()
        held = self._sessions.get(uri)
        if held is None:
            return None
        chats = [self._tailed(name, chat) for name, chat in self._chats.items() if chat.session == uri]
        return StoredSession(uri, held.state, tuple(chats), held.record)

    def _tailed(self, uri: str, chat: _Chat) -> StoredChat:
        turns, cursor = _page(chat.state["turns"], self._tail)
        state = {**chat.state, "turns": turns}
        if cursor is not None:
            state["turnsNextCursor"] = cursor
        return StoredChat(uri, state, chat.record)

    async def records(self) -> Mapping[str, Mapping[str, Any]]:
        await trio.lowlevel.checkpoint()
        return {uri: chat.record for uri, chat in self._chats.items() if chat.record}

    async def turns(self, chat: str, before: str | None, limit: int) -> tuple[Turns, str | None]:
        await trio.lowlevel.checkpoint()
        turns = self._chats[chat].state["turns"]
        if before is not None:
            turns = turns[: _ids(turns)[before]]
        return _page(turns, max(1, limit))

    async def close(self) -> None:
        await trio.lowlevel.checkpoint()

    # -- operations -------------------------------------------------------------------------------------

    def _put_session(self, op: PutSession) -> None:
        self._sessions[op.row.uri] = _Session(op.row, dict(op.state), op.record)

    def _put_summary(self, op: PutSummary) -> None:
        if (held := self._sessions.get(op.row.uri)) is not None:
            held.row = op.row

    def _put_chat(self, op: PutChat) -> None:
        held = self._chats.get(op.uri)
        before = {} if op.replace or held is None else {turn["id"]: turn for turn in held.state["turns"]}
        # A turn whose id is there already is replaced in its place.
        after = before | {turn["id"]: turn for turn in op.turns}
        running = op.state.get("activeTurn") or {}
        after.pop(running.get("id"), None)
        state = {**_without_rows(op.state), "turns": list(after.values())}
        if held is None:
            self._chats[op.uri] = _Chat(op.session, state, op.record)
        else:
            held.session, held.state, held.record = op.session, state, op.record

    def _put_record(self, op: PutRecord) -> None:
        if (held := self._chats.get(op.chat)) is not None:
            held.record = op.record

    def _cut_turns(self, op: CutTurns) -> None:
        held = self._chats.get(op.chat)
        if held is None:
            return
        turns = held.state["turns"]
        end = 0 if op.last is None else _ids(turns).get(op.last, len(turns)) + 1
        held.state = {**held.state, "turns": turns[:end]}

    def _append(self, op: Append) -> None:
        action = dict(op.action)
        if (session := self._sessions.get(op.channel)) is not None:
            session.state = self._reducers["session"](session.state, action)
        elif (chat := self._chats.get(op.channel)) is not None and action.get("type") != "chat/turnsLoaded":
            state = self._reducers["chat"](chat.state, action)
            chat.state = {**_without_rows(state), "turns": state.get("turns") or []}

    def _drop_chat(self, op: DropChat) -> None:
        self._chats.pop(op.uri, None)

    def _drop_session(self, op: DropSession) -> None:
        self._sessions.pop(op.uri, None)
        self._chats = {uri: chat for uri, chat in self._chats.items() if chat.session != op.uri}


_APPLY: Mapping[type, Callable[[MemoryStore, Any], None]] = {
    PutSession: MemoryStore._put_session,
    PutChat: MemoryStore._put_chat,
    PutSummary: MemoryStore._put_summary,
    PutRecord: MemoryStore._put_record,
    CutTurns: MemoryStore._cut_turns,
    Append: MemoryStore._append,
    DropChat: MemoryStore._drop_chat,
    DropSession: MemoryStore._drop_session,
}


def _without_rows(state: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in state.items() if key not in _ROWS}


def _ids(turns: Turns) -> dict[str, int]:
    """Where each turn stands."""
    return {turn["id"]: at for at, turn in enumerate(turns)}


def _page(turns: Turns, limit: int) -> tuple[Turns, str | None]:
    """The last `limit` turns, and the cursor for the ones before them."""
    kept = list(turns[-limit:])
    return kept, kept[0]["id"] if len(turns) > limit else None
