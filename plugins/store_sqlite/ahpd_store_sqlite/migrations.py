"""How the tables came to be: numbered steps under `PRAGMA user_version`, each whole or not at all.

Step number n takes a file from version n to n + 1. A step that has been released is never edited. Knows nothing of
what the rows mean.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import TypeAlias

Migration: TypeAlias = Callable[[sqlite3.Connection], None]
APPLICATION = 0x61687064
"""`PRAGMA application_id` of our files: "ahpd"."""

_FIRST = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL);
CREATE TABLE session (
    n INTEGER PRIMARY KEY, uri TEXT NOT NULL UNIQUE, id TEXT NOT NULL, parent TEXT, busy INTEGER NOT NULL,
    aliases BLOB NOT NULL, summary BLOB NOT NULL, record BLOB NOT NULL, state BLOB NOT NULL
);
CREATE TABLE chat (
    n INTEGER PRIMARY KEY, uri TEXT NOT NULL UNIQUE, session TEXT NOT NULL, record BLOB, state BLOB NOT NULL
);
CREATE INDEX chat_session ON chat (session);
CREATE INDEX chat_record ON chat (n) WHERE record IS NOT NULL;
CREATE TABLE turn (n INTEGER PRIMARY KEY, chat INTEGER NOT NULL, id TEXT NOT NULL, body BLOB NOT NULL);
CREATE UNIQUE INDEX turn_id ON turn (chat, id);
CREATE INDEX turn_order ON turn (chat);
CREATE TABLE action (
    channel TEXT NOT NULL, seq INTEGER NOT NULL, body BLOB NOT NULL, PRIMARY KEY (channel, seq)
) WITHOUT ROWID;
"""


def _first(connection: sqlite3.Connection) -> None:
    """`turn.n` orders the turns of a chat; `chat` in it is `chat.n`. A chat without a record has NULL there."""
    # Not executescript(), which would commit the transaction it is called in.
    for statement in filter(str.strip, _FIRST.split(";")):
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION}")


MIGRATIONS: Sequence[Migration] = (_first,)


def version_of(connection: sqlite3.Connection) -> int:
    """0 for an empty file."""
    found: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return found


def migrate(connection: sqlite3.Connection, migrations: Sequence[Migration]) -> None:
    """Bring a file up to the newest version. A crash leaves it at a version, never between two."""
    for number in range(version_of(connection), len(migrations)):
        connection.execute("BEGIN IMMEDIATE")
        try:
            migrations[number](connection)
            connection.execute(f"PRAGMA user_version = {number + 1}")
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
