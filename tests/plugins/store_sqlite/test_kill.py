"""A process that is killed while it writes: all it said was kept is there, in order, and no half of anything."""

from __future__ import annotations

import random
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trio
from ahpd import Opened
from ahpd_store_sqlite.store import SqliteStore

if TYPE_CHECKING:
    from .conftest import Make

Copy = Callable[[Path, Path], Path]
Integrity = Callable[[Path], str]
CHATS = 8


def run_and_kill(path: Path, first: list[int], after: int) -> list[int]:
    """Let the child write until it has acknowledged `after` operations, kill it, and read what it had said: the
    highest acknowledged number of each chat."""
    command = [sys.executable, str(Path(__file__).with_name("kill_child.py")), str(path), *map(str, first)]
    said = [number - 1 for number in first]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        for count, line in enumerate(child.stdout):
            if count == after:
                child.send_signal(signal.SIGKILL)
            if line.endswith(b"\n"):
                chat, number = map(int, line.split())
                assert number == said[chat] + 1
                said[chat] = number
        assert child.wait(5) == -signal.SIGKILL
    return said


def kept(path: Path) -> list[int]:
    """The highest number of each chat on disk, after seeing that no lower one is missing."""
    connection = sqlite3.connect(path)
    highest = []
    for chat in range(CHATS):
        query = "SELECT turn.id FROM turn JOIN chat ON chat.n = turn.chat WHERE uri = ? ORDER BY turn.n"
        turns = [int(turn) for (turn,) in connection.execute(query, (f"chat:{chat}",))]
        assert turns == [10 * (at + 1) for at in range(len(turns))]
        last = turns[-1] if turns else 0
        query = "SELECT seq FROM action WHERE channel = ? ORDER BY seq"
        actions = [seq for (seq,) in connection.execute(query, (f"chat:{chat}",))]
        # The first nine come before their chat is put, and are taken away when it is.
        assert actions == list(range(last + 1, last + 1 + len(actions)))
        highest.append(last + len(actions))
    connection.close()
    return highest


async def opened(path: Path, make: Make) -> Opened:
    store = SqliteStore(path)
    found = await store.open(make.reducers)
    stored = await store.load("echo:/one")
    assert stored is not None
    await store.close()
    return found


def rounds(number: int, path: Path, make: Make, integrity: Integrity, copy: Copy) -> None:
    first = [1] * CHATS
    for at in range(number):
        said = run_and_kill(path, first, random.randint(1, 800))
        # Looked at in a copy: the store is to find what the kill left.
        left = copy(path, path.parent.with_name(str(at)))
        on_disk = kept(left)
        assert integrity(left) == "ok"
        assert all(disk >= acknowledged for disk, acknowledged in zip(on_disk, said, strict=True))
        assert trio.run(opened, path, make).seq >= max(said)
        # Reading folded what was journaled: numbers go on at the next turn.
        first = [number - number % 10 + 10 for number in on_disk]


def test_killed_at_random_moments(path: Path, make: Make, integrity: Integrity, copy_as_crashed: Copy) -> None:
    rounds(3, path, make, integrity, copy_as_crashed)


@pytest.mark.nightly
def test_killed_often(path: Path, make: Make, integrity: Integrity, copy_as_crashed: Copy) -> None:
    rounds(30, path, make, integrity, copy_as_crashed)
