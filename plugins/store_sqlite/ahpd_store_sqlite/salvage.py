"""Copies what can still be read of a damaged database into a new one. Best effort; a row is copied whole or not.

Rows are read upwards until a page cannot be, then downwards, and what lies between the two is asked for row by
row. A row whose JSON is broken is left out: what the new file holds can be read.
"""

from __future__ import annotations

import shutil
import sqlite3
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
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
MISSES = 1_000
"""Rows in a row that are asked for in vain before a table is given up: several times what a page holds."""
HEADER = (
    (0, b"SQLite format 3\0" + bytes([0x10, 0, 2, 2, 0, 64, 32, 32])),  # pages of 4096 bytes, with a log
    (28, bytes(4)),  # how many pages there are: as many as the file has
    (44, bytes([0, 0, 0, 4, 0, 0, 0, 0])),
    (56, bytes([0, 0, 0, 1])),  # UTF-8
)
"""What every file of ours says about itself, as (place, bytes). It is on the page nothing can be read without."""


@dataclass(slots=True)
class _Copy:
    source: sqlite3.Connection
    table: str
    columns: Sequence[str]
    broken: bool = False

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
        number = up[-1][0] + 1 if up else 1
        last, misses = down[-1][0] if down else sys.maxsize, 0
        while number < last and misses < MISSES:
            found = self._until_broken(f"WHERE n = {number}")
            misses = 0 if found else misses + 1
            number += 1
            yield from found

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


def mended_copy(path: Path, copy: Path) -> None:
    """A copy of a damaged file, and of its log, whose header is as it was once written."""
    shutil.copyfile(path, copy)
    if (log := Path(f"{path}-wal")).exists():
        shutil.copyfile(log, f"{copy}-wal")
    with copy.open("r+b") as file:
        for place, content in HEADER:
            file.seek(place)
            file.write(content)


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
