"""What each operation does to the tables. Knows no thread, no file and no transaction.

An operation is encoded on the way in, by whoever queues it: what cannot be written is refused there and then, and
what has been queued no longer changes. Doing the same operations twice, in order, is the same as doing them once;
that is what makes it safe to try a failed transaction again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec
from ahpd import (
    Append,
    CutTurns,
    DropChat,
    DropSession,
    PutChat,
    PutRecord,
    PutSession,
    PutSummary,
    SessionRow,
    StoreOp,
)

Row: TypeAlias = tuple[Any, ...]
Apply: TypeAlias = Callable[[sqlite3.Connection, Row], None]
Prepared: TypeAlias = tuple[Apply | None, Row]
"""What to do, with which values. `None` is the common case, an action to append: runs of those go in together."""

encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder().decode

_APPEND = "INSERT OR REPLACE INTO action (channel, seq, body) VALUES (?, ?, ?)"
_PUT_SESSION = """
INSERT INTO session (uri, id, parent, busy, aliases, summary, record, state) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (uri) DO UPDATE SET id = excluded.id, parent = excluded.parent, busy = excluded.busy,
aliases = excluded.aliases, summary = excluded.summary, record = excluded.record, state = excluded.state
"""
_PUT_SUMMARY = "UPDATE session SET id = ?2, parent = ?3, busy = ?4, aliases = ?5, summary = ?6 WHERE uri = ?1"
_PUT_CHAT = """
INSERT INTO chat (uri, session, record, state) VALUES (?, ?, ?, ?)
ON CONFLICT (uri) DO UPDATE SET session = excluded.session, record = excluded.record, state = excluded.state
"""
_PUT_TURN = """
INSERT INTO turn (chat, id, body) VALUES (?, ?, ?) ON CONFLICT (chat, id) DO UPDATE SET body = excluded.body
"""
_RESERVE = "INSERT INTO meta VALUES ('seq', ?) ON CONFLICT (key) DO UPDATE SET value = max(value, excluded.value)"


def apply_all(connection: sqlite3.Connection, operations: Iterable[Prepared]) -> None:
    """Do operations in order, inside the caller's transaction."""
    appends: list[Row] = []
    for apply, values in operations:
        if apply is None:
            appends.append(values)
            continue
        if appends:
            connection.executemany(_APPEND, appends)
            appends = []
        apply(connection, values)
    if appends:
        connection.executemany(_APPEND, appends)


def prepare(operation: StoreOp) -> Prepared:
    """Encode an operation. Raises `TypeError` and the like for values that are not JSON."""
    if isinstance(operation, Append):
        return None, (operation.channel, operation.seq, encode(operation.action))
    return _PREPARE[type(operation)](operation)


def reservation(seq: int) -> Prepared:
    return _execute(_RESERVE), (seq,)


def _execute(*statements: str) -> Apply:
    def apply(connection: sqlite3.Connection, values: Row) -> None:
        for statement in statements:
            connection.execute(statement, values)

    return apply


def _row(row: SessionRow) -> Row:
    return row.uri, row.id, row.parent, row.busy, encode(row.aliases), encode(row.summary)


def _put_session(connection: sqlite3.Connection, values: Row) -> None:
    connection.execute(_PUT_SESSION, values)
    connection.execute("DELETE FROM action WHERE channel = ?", values[:1])


def put_turns(connection: sqlite3.Connection, chat: int, turns: Iterable[tuple[str, bytes]]) -> None:
    """Append turns (id, JSON) to a chat; one whose id it has already is replaced where it is."""
    connection.executemany(_PUT_TURN, ((chat, turn_id, body) for turn_id, body in turns))


def bare(state: Mapping[str, Any]) -> dict[str, Any]:
    """A chat's state without what its rows say: its completed turns, and whether there are more."""
    return {key: value for key, value in state.items() if key not in ("turns", "turnsNextCursor")}


def chat_number(connection: sqlite3.Connection, uri: str) -> int | None:
    found = connection.execute("SELECT n FROM chat WHERE uri = ?", (uri,)).fetchone()
    return None if found is None else int(found[0])


def turn_number(connection: sqlite3.Connection, chat: int, turn: str) -> int | None:
    found = connection.execute("SELECT n FROM turn WHERE chat = ? AND id = ?", (chat, turn)).fetchone()
    return None if found is None else int(found[0])


def _put_chat(connection: sqlite3.Connection, values: Row) -> None:
    uri, session, record, state, turns, replace, running = values
    connection.execute(_PUT_CHAT, (uri, session, record, state))
    chat = chat_number(connection, uri)
    assert chat is not None
    if replace:
        connection.execute("DELETE FROM turn WHERE chat = ?", (chat,))
    put_turns(connection, chat, turns)
    if running is not None:
        # A failed turn that was taken up again is no longer a completed one.
        connection.execute("DELETE FROM turn WHERE chat = ? AND id = ?", (chat, running))
    connection.execute("DELETE FROM action WHERE channel = ?", (uri,))


def _cut_turns(connection: sqlite3.Connection, values: Row) -> None:
    uri, last = values
    chat = chat_number(connection, uri)
    if chat is None:
        return
    if last is None:
        connection.execute("DELETE FROM turn WHERE chat = ?", (chat,))
    elif (number := turn_number(connection, chat, last)) is not None:
        connection.execute("DELETE FROM turn WHERE chat = ? AND n > ?", (chat, number))


def _running(state: Mapping[str, Any]) -> str | None:
    turn = state.get("activeTurn")
    turn_id = turn.get("id") if isinstance(turn, Mapping) else None
    return turn_id if isinstance(turn_id, str) else None


def _prepare_chat(put: PutChat) -> Prepared:
    turns = [(turn["id"], encode(turn)) for turn in put.turns]
    record, state = encode(put.record) if put.record else None, encode(bare(put.state))
    return _put_chat, (put.uri, put.session, record, state, turns, put.replace, _running(put.state))


_DROP_CHAT = _execute(
    "DELETE FROM turn WHERE chat = (SELECT n FROM chat WHERE uri = ?)",
    "DELETE FROM action WHERE channel = ?",
    "DELETE FROM chat WHERE uri = ?",
)
_DROP_SESSION = _execute(
    "DELETE FROM turn WHERE chat IN (SELECT n FROM chat WHERE session = ?)",
    "DELETE FROM action WHERE channel IN (SELECT uri FROM chat WHERE session = ?)",
    "DELETE FROM action WHERE channel = ?",
    "DELETE FROM chat WHERE session = ?",
    "DELETE FROM session WHERE uri = ?",
)
_SUMMARY, _RECORD = _execute(_PUT_SUMMARY), _execute("UPDATE chat SET record = ? WHERE uri = ?")
_PREPARE: Mapping[type, Callable[[Any], Prepared]] = {
    PutSession: lambda put: (_put_session, (*_row(put.row), encode(put.record), encode(put.state))),
    PutChat: _prepare_chat,
    PutSummary: lambda put: (_SUMMARY, _row(put.row)),
    PutRecord: lambda put: (_RECORD, (encode(put.record) if put.record else None, put.chat)),
    CutTurns: lambda cut: (_cut_turns, (cut.chat, cut.last)),
    DropChat: lambda drop: (_DROP_CHAT, (drop.uri,)),
    DropSession: lambda drop: (_DROP_SESSION, (drop.uri,)),
}


def read_row(found: Sequence[Any]) -> SessionRow:
    """A `SessionRow` from the columns of `_row`, and the record."""
    uri, session_id, parent, busy, aliases, summary, record = found
    return SessionRow(uri, session_id, tuple(decode(aliases)), parent, decode(summary), bool(busy), decode(record))
