"""Copies what can still be read of a damaged database into a new one. Best effort; a row is copied whole or not.

Rows are read upwards until a page cannot be, then downwards, and what lies between the two is asked for row by
row. A row whose JSON is broken is left out: what the new file holds can be read.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ahpd_store_sqlite.rows import decode

Row: TypeAlias = tuple[Any, ...]
_TABLES = {
    "session": ("n", "uri", "id", "parent", "busy", "aliases", "summary", "record", "state"),
    "chat": ("n", "uri", "session", "record", "state"),
    "turn": ("n", "chat", "id", "body"),
    "action": ("channel", "seq", "body"),
}
_JSON = frozenset({"aliases", "summary", "record", "state", "body"})
PROBES = 50_000
"""Rows asked for one by one behind a page that cannot be read."""


@dataclass(slots=True)
class _Copy:
    source: sqlite3.Connection
    table: str
    columns: Sequence[str]
    broken: bool = False
    good: list[Row] = field(default_factory=list)

    def rows(self) -> list[Row]:
        """Every row that can be read; `broken` says whether there may be others."""
        key = "n" if self.columns[0] == "n" else ", ".join(self.columns[:2])
        up = self._until_broken(f"ORDER BY {key}")
        if not self.broken:
            return self._good(up)
        backwards = ", ".join(f"{column} DESC" for column in key.split(", "))
        down = self._until_broken(f"ORDER BY {backwards}")
        between = self._between(up, down) if key == "n" else []
        # By key: the two directions may have met.
        width = 1 if key == "n" else 2
        found = {row[:width]: row for row in (*up, *between, *down)}
        return self._good([found[place] for place in sorted(found)])

    def _until_broken(self, order: str) -> list[Row]:
        rows: list[Row] = []
        try:
            for row in self.source.execute(f"SELECT {', '.join(self.columns)} FROM {self.table} {order}"):  # noqa: S608
                rows.append(row)
        except sqlite3.Error:
            self.broken = True
        return rows

    def _between(self, up: list[Row], down: list[Row]) -> Iterator[Row]:
        first = up[-1][0] + 1 if up else 1
        last = min(down[-1][0] if down else first + PROBES, first + PROBES)
        for number in range(first, last):
            yield from self._until_broken(f"WHERE n = {number}")

    def _good(self, rows: list[Row]) -> list[Row]:
        good = [row for row in rows if self._is_json(row)]
        self.broken |= len(good) < len(rows)
        return good

    def _is_json(self, row: Row) -> bool:
        try:
            for column, value in zip(self.columns, row, strict=True):
                if column in _JSON and value is not None:
                    decode(value)
        except (ValueError, TypeError):
            return False
        return True


def salvage(source: sqlite3.Connection, target: sqlite3.Connection) -> tuple[int, bool]:
    """How many sessions were copied, and whether something is missing, as far as can be told.

    `source` is only read. `target` has its tables, all empty.
    """
    # Without this SQLite refuses a file that is shorter than it says, whole.
    source.execute("PRAGMA writable_schema = ON")
    lost = False
    target.execute("BEGIN")
    for table, columns in _TABLES.items():
        copy = _Copy(source, table, columns)
        rows = copy.rows()
        lost |= copy.broken
        places = ", ".join("?" * len(columns))
        insert = f"INSERT OR IGNORE INTO {table} ({', '.join(columns)}) VALUES ({places})"  # noqa: S608
        for row in rows:
            try:
                target.execute(insert, row)
            except sqlite3.Error:  # a value that is not of its column's kind
                lost = True
    # What belongs to a row that is lost could never be reached, or would come back under another of that name.
    target.execute("DELETE FROM chat WHERE session NOT IN (SELECT uri FROM session)")
    target.execute("DELETE FROM turn WHERE chat NOT IN (SELECT n FROM chat)")
    target.execute("INSERT INTO meta VALUES ('seq', ?)", (_reserved(source),))
    target.execute("COMMIT")
    sessions = target.execute("SELECT count(*) FROM session").fetchone()[0]
    return sessions, lost


def _reserved(source: sqlite3.Connection) -> int:
    try:
        found = source.execute("SELECT value FROM meta WHERE key = 'seq'").fetchone()
        return int(found[0]) if found else 0
    except (sqlite3.Error, ValueError, TypeError):
        # Numbers never go back. No host counts one action a millisecond since 1970, and a client can hold this.
        return int(time.time() * 1000)
