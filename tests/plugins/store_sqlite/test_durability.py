"""What is acknowledged is on disk; what is not is whole or absent; and a disk that refuses loses nothing."""

from __future__ import annotations

import os
import resource
import sqlite3
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trio
from ahpd import AhpdError, Append
from ahpd_store_sqlite.store import SqliteStore
from trio.testing import MockClock

if TYPE_CHECKING:
    from .conftest import Make, Open

Copy = Callable[[Path, Path], Path]


class Disk:
    """A failpoint that refuses where it is told to, as often as it is told to."""

    def __init__(self) -> None:
        self.refusing: dict[str, int] = {}
        self.reached: list[str] = []

    def __call__(self, place: str) -> None:
        self.reached.append(place)
        if self.refusing.get(place, 0):
            self.refusing[place] -= 1
            raise sqlite3.OperationalError("database or disk is full")


@pytest.mark.parametrize(("place", "there"), [("before-commit", False), ("after-commit", True)])
async def test_a_crash_around_a_commit_leaves_all_of_it_or_nothing(
    open_store: Open, make: Make, tmp_path: Path, copy_as_crashed: Copy, place: str, there: bool
) -> None:
    copies: list[Path] = []

    def crash(reached: str) -> None:
        if reached == place:
            copies.append(copy_as_crashed(tmp_path / "data" / "ahpd.db", tmp_path / "crashed"))

    store, _ = await open_store(failpoint=crash)
    store.write(make.put_session())
    store.write(make.put_chat("t1", "t2"))
    await store.commit()
    after, opened = await open_store(copies[0], tail=9)
    assert len(opened.rows) == int(there)
    stored = await after.load(make.session)
    assert (stored is not None) == there
    if stored is not None:
        assert len(stored.chats[0].state["turns"]) == 2


async def test_a_crash_before_anything_is_written_leaves_a_file_that_opens(
    open_store: Open, tmp_path: Path, copy_as_crashed: Copy
) -> None:
    store, _ = await open_store()
    again, opened = await open_store(copy_as_crashed(store.path, tmp_path / "crashed"))
    assert (list(opened.rows), opened.seq) == ([], 0)
    assert again.durable


async def test_sessions_with_waiting_actions_are_named_at_opening(open_store: Open, make: Make) -> None:
    store, _ = await open_store()
    for uri in ("echo:/quiet", "echo:/own", "echo:/chat"):
        store.write(make.put_session(uri))
    store.write(make.put_chat(uri="chat:1", session="echo:/chat"))
    store.write(make.title(41, "x", "echo:/own"))
    store.write(make.turn_actions("t", 42, "chat:1")[0])
    store.write(make.title(43, "x", "echo:/gone"))
    await store.close()
    _, opened = await open_store()
    assert opened.changed == {"echo:/own", "echo:/chat"}
    assert opened.seq >= 43


async def test_a_reservation_outlives_a_crash_and_never_goes_back(
    open_store: Open, make: Make, tmp_path: Path, copy_as_crashed: Copy
) -> None:
    store, _ = await open_store()
    store.write(make.put_session())
    await store.reserve(1_000)
    await store.reserve(10)
    assert store.pending, "a reservation takes along what others have queued"
    _, opened = await open_store(copy_as_crashed(store.path, tmp_path / "crashed"))
    assert (opened.seq, list(opened.rows)) == (1_000, [])


async def test_committers_share_transactions_and_all_is_there(
    open_store: Open, make: Make, tmp_path: Path
) -> None:
    disk = Disk()
    store, _ = await open_store(failpoint=disk)
    store.write(make.put_session())

    async def committer(name: int) -> None:
        for number in range(20):
            store.write(Append(f"channel:{name}", number, {"n": number}))
            await store.commit()

    async with trio.open_nursery() as nursery:
        for name in range(16):
            nursery.start_soon(committer, name)
    assert not store.pending
    assert disk.reached.count("after-commit") < 16 * 20 / 2
    await store.close()
    rows = sqlite3.connect(store.path).execute("SELECT count(*) FROM action").fetchone()
    assert rows == (320,)


async def test_whoever_stops_waiting_has_still_written(open_store: Open, make: Make) -> None:
    store, _ = await open_store()
    store.write(make.put_session())
    with trio.CancelScope() as scope:
        scope.cancel()
        await store.commit()
    assert scope.cancelled_caught
    assert await store.load(make.session) is not None


async def test_what_is_no_json_is_refused_to_whoever_writes_it(open_store: Open, make: Make) -> None:
    store, _ = await open_store()
    with pytest.raises(TypeError):
        store.write(make.put_session(oops=object()))
    assert not store.pending


# -- a disk that refuses ---------------------------------------------------------------------------


async def test_a_failed_transaction_is_tried_again_after_a_while(open_store: Open, make: Make) -> None:
    disk, waits = Disk(), list[float]()
    store, _ = await open_store(failpoint=disk, pauses=(0.1, 0.5), pause=waits.append)
    disk.refusing["before-commit"] = 2
    store.write(make.put_session())
    await store.commit()
    assert waits == [0.1, 0.5]
    assert await store.load(make.session) is not None


async def test_a_full_disk_is_told_and_everything_is_kept_in_order(open_store: Open, make: Make) -> None:
    disk = Disk()
    store, _ = await open_store(failpoint=disk)
    store.write(make.put_session())
    await store.commit()
    disk.refusing["before-commit"] = 3
    store.write(make.title(1, "Two"))
    with pytest.raises(AhpdError, match=r"ahpd\.db cannot be written: database or disk is full"):
        await store.commit()
    assert store.pending
    store.write(make.title(2, "Three"))
    with pytest.raises(AhpdError):
        await store.commit()
    with pytest.raises(AhpdError):
        await store.load(make.session)
    await store.commit()
    assert not store.pending
    stored = await store.load(make.session)
    assert stored is not None
    assert stored.state["title"] == "Three"


async def test_a_reservation_that_cannot_be_written_is_told(open_store: Open) -> None:
    disk = Disk()
    store, _ = await open_store(failpoint=disk)
    disk.refusing["before-commit"] = 1
    with pytest.raises(AhpdError):
        await store.reserve(5)
    await store.reserve(6)


async def test_a_transaction_done_twice_is_done_once(open_store: Open, make: Make) -> None:
    disk = Disk()
    store, _ = await open_store(failpoint=disk, pauses=(0,))
    disk.refusing["after-commit"] = 1
    store.write(make.put_session())
    store.write(make.put_chat("a", "b"))
    for action in make.turn_actions("c", 1):
        store.write(action)
    await store.commit()
    page, _ = await store.turns(make.chat, None, 9)
    assert [turn["id"] for turn in page] == ["a", "b", "c"]


async def test_a_fold_that_fails_costs_only_its_reader(open_store: Open, make: Make) -> None:
    disk = Disk()
    store, _ = await open_store(failpoint=disk)
    store.write(make.put_session())
    store.write(make.title(1, "Two"))
    await store.commit()
    disk.refusing["before-fold"] = 1
    with pytest.raises(AhpdError, match="echo:/one cannot be read"):
        await store.load(make.session)
    assert not store.pending
    stored = await store.load(make.session)
    assert stored is not None
    assert stored.state["title"] == "Two"


async def test_a_disk_that_is_really_full(open_store: Open, make: Make, integrity: Callable[[Path], str]) -> None:
    store, _ = await open_store()
    store.write(make.put_session())
    await store.commit()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, hard))
    try:
        for seq in range(1, 41):
            store.write(make.title(seq, "x" * 50_000 + str(seq)))
        with pytest.raises(AhpdError, match="cannot be written"):
            await store.commit()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    await store.commit()
    stored = await store.load(make.session)
    assert stored is not None
    assert stored.state["title"].endswith("x40")
    await store.close()
    assert integrity(store.path) == "ok"


async def test_one_broken_row_costs_only_its_session(open_store: Open, make: Make) -> None:
    store, _ = await open_store()
    for uri in ("echo:/good", "echo:/bad"):
        store.write(make.put_session(uri))
    store.write(make.put_chat("t", uri="chat:bad", session="echo:/bad"))
    await store.close()
    connection = sqlite3.connect(store.path)
    connection.execute("UPDATE turn SET body = x'7b227b'")
    connection.commit()
    connection.close()
    await store.open(make.reducers)
    with pytest.raises(AhpdError, match=r"echo:/bad cannot be read; the host's log says why$"):
        await store.load("echo:/bad")
    assert await store.load("echo:/good") is not None


# -- closing ---------------------------------------------------------------------------------------


async def test_closing_commits_and_leaves_one_file(
    open_store: Open, make: Make, listing: Callable[[Path], Mapping[str, bytes]]
) -> None:
    store, _ = await open_store()
    store.write(make.put_session())
    with trio.CancelScope() as scope:
        scope.cancel()
        await store.close()
    assert set(listing(store.path.parent)) == {"ahpd.db"}
    _, opened = await open_store()
    assert len(opened.rows) == 1
    await store.close()  # once more does nothing


async def test_closing_says_what_could_not_be_written(open_store: Open, make: Make) -> None:
    disk = Disk()
    store, _ = await open_store(failpoint=disk)
    disk.refusing["before-commit"] = 99
    store.write(make.put_session())
    with pytest.raises(AhpdError, match="cannot be written"):
        await store.close()
    _, opened = await open_store()
    assert list(opened.rows) == []


async def test_a_closed_store_refuses(open_store: Open, make: Make) -> None:
    store, _ = await open_store()
    await store.close()
    store.write(make.put_session())
    with pytest.raises(AhpdError, match="is not open"):
        await store.commit()
    with pytest.raises(AhpdError, match="is not open"):
        await store.load(make.session)


async def test_a_disk_that_never_answers_does_not_stop_the_end(
    path: Path, make: Make, autojump_clock: MockClock
) -> None:
    answers = threading.Event()

    def hang(place: str) -> None:
        if place == "before-commit":
            answers.wait()

    store = SqliteStore(path, failpoint=hang)
    await store.open(make.reducers)
    store.write(make.put_session())
    try:
        with pytest.raises(AhpdError, match="no answer from the disk"):
            await store.close()
    finally:
        answers.set()


async def test_no_thread_and_no_file_is_left_open(open_store: Open, make: Make, path: Path) -> None:
    others = set(threading.enumerate())

    def ours() -> tuple[int, int]:
        threads = {thread for thread in threading.enumerate() if thread.name == "ahpd-store-sqlite"}
        links = [os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")]
        return len(threads - others), len([link for link in links if link.startswith(str(path))])

    store, _ = await open_store()
    store.write(make.put_session())
    await store.load(make.session)
    assert ours() > (0, 0)
    await store.close()
    assert ours() == (0, 0)


def test_an_action_is_encoded_when_it_is_queued(make: Make, path: Path) -> None:
    store = SqliteStore(path)
    action: dict[str, Any] = {"type": "session/titleChanged", "title": "then"}
    store.write(make.put_session())
    store.write(Append(make.session, 1, action))
    action["title"] = "later"

    async def read() -> Any:
        await store.open(make.reducers)
        stored = await store.load(make.session)
        await store.close()
        return stored

    assert trio.run(read).state["title"] == "then"
