"""What the tables say: the catalogue, a session, a page of turns, and the journal folded into what it changes.

Everything here is given a connection inside a transaction, so one answer never mixes two moments. Reading a
session or a page of its turns answers `JOURNALED` when actions wait to be applied to it: whoever may write then
calls `fold` first. Folding writes back what the actions came to, the turns that they completed included, so that
it is done once and so that a page never depends on where a fold began.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from ahpd import Opened, StoredChat, StoredSession

from ahpd_store_sqlite.rows import bare, chat_number, decode, encode, put_turns, read_row, turn_number

Json: TypeAlias = dict[str, Any]
Reducers: TypeAlias = Mapping[str, Callable[[Json, Json], Json]]
Page: TypeAlias = tuple[Sequence[Mapping[str, Any]], str | None]
TurnRow: TypeAlias = tuple[int, str, bytes]


class Journaled:
    """Says that a journal must be folded before this can be read."""


JOURNALED: Final = Journaled()

_ROWS = "SELECT uri, id, parent, busy, aliases, summary, record FROM session ORDER BY n"
_WAITS = "SELECT 1 FROM action WHERE channel = ?1 OR channel IN (SELECT uri FROM chat WHERE session = ?1) LIMIT 1"
_PAGE = "SELECT id, body FROM turn WHERE chat = ? AND n < ? ORDER BY n DESC LIMIT ?"
_END = 2**63 - 1
_OUT_OF_DATE = "UPDATE session SET busy = 1 WHERE uri = (SELECT session FROM chat WHERE n = ?)"
_CHANGED = """
SELECT uri FROM session WHERE EXISTS (SELECT 1 FROM action WHERE channel = session.uri)
UNION SELECT session FROM chat WHERE EXISTS (SELECT 1 FROM action WHERE channel = chat.uri)
"""


def catalogue(connection: sqlite3.Connection) -> Opened:
    """Every session's row, oldest first, and what else a host starts with."""
    rows = [read_row(found) for found in connection.execute(_ROWS)]
    known = {row.uri for row in rows}
    seq = connection.execute("SELECT value FROM meta WHERE key = 'seq'").fetchone()
    highest = connection.execute("SELECT max(seq) FROM action").fetchone()[0]
    changed = known.intersection(uri for (uri,) in connection.execute(_CHANGED))
    return Opened(rows, max(seq[0] if seq else 0, highest or 0), frozenset(changed))


def records(connection: sqlite3.Connection) -> Mapping[str, Mapping[str, Any]]:
    found = connection.execute("SELECT uri, record FROM chat WHERE record IS NOT NULL")
    return {uri: decode(record) for uri, record in found}


def load(connection: sqlite3.Connection, uri: str, tail: int) -> StoredSession | Journaled | None:
    """A session with the newest `tail` turns of each chat."""
    found = connection.execute("SELECT state, record FROM session WHERE uri = ?", (uri,)).fetchone()
    if found is None:
        return None
    if connection.execute(_WAITS, (uri,)).fetchone():
        return JOURNALED
    chats = connection.execute("SELECT n, uri, state, record FROM chat WHERE session = ? ORDER BY n", (uri,))
    state, record = found
    return StoredSession(uri, decode(state), tuple(_chat(connection, row, tail) for row in chats), decode(record))


def _chat(connection: sqlite3.Connection, row: Sequence[Any], tail: int) -> StoredChat:
    number, uri, state, record = row
    turns, cursor = _page(connection, number, None, tail)
    held = {**decode(state), "turns": turns}
    if cursor is not None:
        held["turnsNextCursor"] = cursor
    return StoredChat(uri, held, {} if record is None else decode(record))


def page(connection: sqlite3.Connection, uri: str, before: str | None, limit: int) -> Page | Journaled:
    """Raises `KeyError` for a chat, or an id in it, that there is not."""
    if connection.execute("SELECT 1 FROM action WHERE channel = ? LIMIT 1", (uri,)).fetchone():
        return JOURNALED
    chat = chat_number(connection, uri)
    if chat is None:
        raise KeyError(uri)
    number = None if before is None else turn_number(connection, chat, before)
    if before is not None and number is None:
        raise KeyError(before)
    return _page(connection, chat, number, limit)


def _page(connection: sqlite3.Connection, chat: int, before: int | None, limit: int) -> Page:
    before = _END if before is None else before
    # One more than is wanted, to know whether there is one.
    found = connection.execute(_PAGE, (chat, before, limit + 1)).fetchall()
    kept = found[:limit]
    cursor = kept[-1][0] if len(found) > limit else None
    return [decode(body) for _, body in reversed(kept)], cursor


# -- folding ---------------------------------------------------------------------------------------


def fold_session(connection: sqlite3.Connection, uri: str, reducers: Reducers) -> None:
    """Apply every waiting action of a session and of its chats."""
    actions = _waiting(connection, uri)
    found = connection.execute("SELECT state FROM session WHERE uri = ?", (uri,)).fetchone()
    if actions and found is not None:
        state = decode(found[0])
        for action in actions:
            state = reducers["session"](state, action)
        # Its row says what the state was before: busy, until the host puts it again, has it looked at.
        connection.execute("UPDATE session SET state = ?, busy = 1 WHERE uri = ?", (encode(state), uri))
        connection.execute("DELETE FROM action WHERE channel = ?", (uri,))
    for (chat,) in connection.execute("SELECT uri FROM chat WHERE session = ?", (uri,)).fetchall():
        fold_chat(connection, chat, reducers)


def fold_chat(connection: sqlite3.Connection, uri: str, reducers: Reducers) -> None:
    """Apply every waiting action of a chat: its state, and the turns they completed, reopened or took away."""
    actions = _waiting(connection, uri)
    found = connection.execute("SELECT n, state FROM chat WHERE uri = ?", (uri,)).fetchone()
    if found is not None and actions:
        number, body = found
        held, older = _held(connection, number, actions)
        before = [decode(turn) for _, _, turn in held]
        state = {**decode(body), "turns": before}
        if older:
            state["turnsNextCursor"] = held[0][1]
        for action in actions:
            state = reducers["chat"](state, action)
        _keep_turns(connection, number, [n for n, _, _ in held], before, state)
        connection.execute("UPDATE chat SET state = ? WHERE n = ?", (encode(bare(state)), number))
        connection.execute(_OUT_OF_DATE, (number,))
    connection.execute("DELETE FROM action WHERE channel = ?", (uri,))


def _waiting(connection: sqlite3.Connection, channel: str) -> list[Json]:
    bodies = connection.execute("SELECT body FROM action WHERE channel = ? ORDER BY seq", (channel,))
    actions = [decode(body) for (body,) in bodies]
    # Which turns are held where is this store's own business; a page that was shown to somebody changes nothing.
    return [action for action in actions if action.get("type") != "chat/turnsLoaded"]


def _held(connection: sqlite3.Connection, chat: int, actions: list[Json]) -> tuple[list[TurnRow], bool]:
    """The turns that a fold needs, as (n, id, JSON), and whether there are older ones: the last, which may be
    reopened, and everything from the oldest that an action names, which may be cut after."""
    named = {turn for action in actions if isinstance(turn := action.get("turnId"), str)}
    numbers = [n for turn in named if (n := turn_number(connection, chat, turn)) is not None]
    last = connection.execute("SELECT max(n) FROM turn WHERE chat = ?", (chat,)).fetchone()[0]
    if last is None:
        return [], False
    first = min([last, *numbers])
    held = connection.execute("SELECT n, id, body FROM turn WHERE chat = ? AND n >= ? ORDER BY n", (chat, first))
    older = connection.execute("SELECT 1 FROM turn WHERE chat = ? AND n < ? LIMIT 1", (chat, first)).fetchone()
    return held.fetchall(), older is not None


def _keep_turns(
    connection: sqlite3.Connection, chat: int, rows: Sequence[int], before: Sequence[Json], state: Json
) -> None:
    """Make a chat's rows say what its folded state says. `rows` are the numbers of the turns in `before`."""
    after: list[Json] = state.get("turns") or []
    same = 0
    while same < min(len(before), len(after)) and after[same] is before[same]:
        same += 1
    if same < len(rows):
        connection.execute("DELETE FROM turn WHERE chat = ? AND n >= ?", (chat, rows[same]))
    if rows and not state.get("turnsNextCursor"):
        connection.execute("DELETE FROM turn WHERE chat = ? AND n < ?", (chat, rows[0]))
    put_turns(connection, chat, ((turn["id"], encode(turn)) for turn in after[same:]))
