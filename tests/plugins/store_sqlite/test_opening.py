"""Opening: what is refused and left alone, what is moved aside, what is carried over."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trio
from ahpd import Log, PluginConfig, StartError
from ahpd_store_sqlite import ahpd_config_keys, ahpd_session_store
from ahpd_store_sqlite.migrations import APPLICATION, MIGRATIONS
from ahpd_store_sqlite.store import SqliteStore

if TYPE_CHECKING:
    from .conftest import Make, Open

Listing = Callable[[Path], Mapping[str, bytes]]


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is said to whoever runs the daemon."""
    said: list[str] = []
    monkeypatch.setattr(Log, "warning", lambda self, event, **fields: said.append(event))
    return said


async def fill(store: SqliteStore, make: Make, sessions: int = 40) -> None:
    for number in range(sessions):
        uri = f"echo:/{number}"
        store.write(make.put_session(uri, padding="x" * 1000))
        turns = [f"{number}-{turn}" for turn in range(5)]
        store.write(make.put_chat(*turns, uri=f"chat:{number}", session=uri))
    await store.commit()


def as_file(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def run_sql(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


# -- where and how ---------------------------------------------------------------------------------


def test_it_is_in_the_data_folder_unless_said_otherwise() -> None:
    inside = ahpd_session_store(PluginConfig("store-sqlite", data_folder="/data"))
    elsewhere = ahpd_session_store(PluginConfig("store-sqlite", {"path": "/else/my.db"}, data_folder="/data"))
    assert isinstance(inside, SqliteStore)
    assert isinstance(elsewhere, SqliteStore)
    assert (inside.path, elsewhere.path) == (Path("/data/ahpd.db"), Path("/else/my.db"))
    assert [key.name for key in ahpd_config_keys()] == ["path"]


async def test_only_its_owner_may_read_it(open_store: Open, make: Make, path: Path) -> None:
    before = os.umask(0o022)
    try:
        store, _ = await open_store()
        store.write(make.put_session())
        await store.commit()
        modes = {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()}
    finally:
        os.umask(before)
    assert set(modes) == {"ahpd.db", "ahpd.db-wal", "ahpd.db-shm", "ahpd.db.lock"}
    assert set(modes.values()) == {0o600}
    assert path.parent.stat().st_mode & 0o777 == 0o700


async def test_a_second_user_is_refused_in_words(open_store: Open, make: Make, path: Path, tmp_path: Path) -> None:
    store, _ = await open_store()
    link = tmp_path / "link.db"
    link.symlink_to(path)
    for name in (path, link):
        with pytest.raises(StartError, match=rf"{path} is in use by another ahpd \(process {os.getpid()}\)"):
            await open_store(name)
    code = (
        "import pathlib, sys, trio; from ahpd import StartError; from ahpd_store_sqlite.store import SqliteStore\n"
        "try: trio.run(SqliteStore(pathlib.Path(sys.argv[1])).open, {})\n"
        "except StartError as error: sys.exit(str(error))"
    )
    other = await trio.to_thread.run_sync(
        lambda: subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, timeout=20)
    )
    assert "is in use by another ahpd" in other.stderr
    await store.close()
    await open_store()


async def test_a_lock_left_by_a_killed_process_does_not_count(open_store: Open, path: Path) -> None:
    as_file(path.with_name("ahpd.db.lock"), b"1")
    await open_store()


async def test_a_writer_of_another_program_is_told_of(
    open_store: Open, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ahpd_store_sqlite.opening._BUSY_SECONDS", 0)
    store, _ = await open_store()
    await store.close()
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StartError, match="cannot be opened: database is locked"):
        await open_store()
    other.close()
    await open_store()


# -- refused and left alone ------------------------------------------------------------------------


async def refused(open_store: Open, path: Path, listing: Listing, words: str, **options: Any) -> None:
    before = listing(path.parent)
    with pytest.raises(StartError, match=words) as raised:
        await open_store(path, **options)
    assert str(path) in str(raised.value)
    assert listing(path.parent) == before


async def test_a_newer_schema(open_store: Open, make: Make, path: Path, listing: Listing) -> None:
    store, _ = await open_store()
    await fill(store, make, 3)
    await store.close()
    run_sql(path, "PRAGMA user_version = 7")
    await refused(open_store, path, listing, r"written by a newer ahpd \(schema 7, this one knows 1\)")


async def test_a_newer_schema_with_a_log(open_store: Open, make: Make, path: Path, copy_as_crashed: Any) -> None:
    def newer(connection: sqlite3.Connection) -> None:
        connection.execute("ALTER TABLE session ADD COLUMN more")

    store, _ = await open_store(migrations=[*MIGRATIONS, newer])
    await fill(store, make, 3)
    crashed = copy_as_crashed(path, path.parent.with_name("crashed"))
    before = {file.name: file.read_bytes() for file in crashed.parent.iterdir()}
    with pytest.raises(StartError, match="schema 2, this one knows 1"):
        await open_store(crashed)
    # Whoever reads a log makes an index of it; that is no part of what is kept.
    assert {
        file.name: file.read_bytes() for file in crashed.parent.iterdir() if file.suffix != ".db-shm"
    } == before


async def test_the_database_of_another_program(open_store: Open, path: Path, listing: Listing) -> None:
    path.parent.mkdir()
    run_sql(path, "CREATE TABLE bookmark (url)")
    await refused(open_store, path, listing, "is not a database of ahpd")


async def test_a_folder_in_its_place(open_store: Open, path: Path) -> None:
    path.mkdir(parents=True)
    with pytest.raises(StartError, match=r"ahpd\.db, where sessions are kept, cannot be used: Is a directory"):
        await open_store()


async def test_a_file_in_place_of_its_folder(open_store: Open, path: Path) -> None:
    path.parent.write_text("no folder")
    with pytest.raises(StartError, match="cannot be used"):
        await open_store()
    assert path.parent.read_text() == "no folder"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read and write everything")
async def test_no_permission(open_store: Open, make: Make, path: Path) -> None:
    store, _ = await open_store()
    await store.close()
    path.chmod(0)
    with pytest.raises(StartError, match="Permission denied"):
        await open_store()
    path.chmod(0o600)
    path.parent.chmod(0o500)
    with pytest.raises(StartError, match="Permission denied"):
        await open_store()
    path.parent.chmod(0o700)


# -- migrations ------------------------------------------------------------------------------------


def add_column(connection: sqlite3.Connection) -> None:
    connection.execute("ALTER TABLE session ADD COLUMN colour TEXT DEFAULT 'blue'")


async def test_an_older_file_is_migrated_with_a_backup_made_first(
    open_store: Open, make: Make, path: Path
) -> None:
    store, _ = await open_store()
    await fill(store, make, 3)
    await store.close()
    newer, opened = await open_store(migrations=[*MIGRATIONS, add_column])
    assert len(opened.rows) == 3
    assert await newer.load("echo:/1") is not None
    (backup,) = path.parent.glob("ahpd.db.backup-v1-*")
    assert backup.stat().st_mode & 0o777 == 0o600
    old, opened = await open_store(backup)
    assert len(opened.rows) == 3
    assert await old.load("echo:/1") is not None
    assert not list(path.parent.glob("*.tmp*"))


async def test_a_migration_that_fails_leaves_the_old_version(open_store: Open, make: Make, path: Path) -> None:
    store, _ = await open_store()
    await fill(store, make, 3)
    await store.close()

    def half(connection: sqlite3.Connection) -> None:
        add_column(connection)
        raise sqlite3.OperationalError("database or disk is full")

    with pytest.raises(StartError, match="cannot be opened: database or disk is full"):
        await open_store(migrations=[*MIGRATIONS, half])
    _, opened = await open_store()
    assert len(opened.rows) == 3


# -- damaged files ---------------------------------------------------------------------------------


def bad_files(path: Path) -> Sequence[Path]:
    return sorted(file for file in path.parent.glob("ahpd.db.bad-*") if not file.name.endswith(("-wal", "-shm")))


@pytest.mark.parametrize("content", [b"no database at all " * 100, b"SQLite format 3\0" + b"\xff" * 5000])
async def test_what_is_no_database_is_kept_aside(
    open_store: Open, path: Path, notes: list[str], content: bytes
) -> None:
    as_file(path, content)
    _, opened = await open_store()
    (bad,) = bad_files(path)
    assert bad.read_bytes() == content
    assert list(opened.rows) == []
    (note,) = notes
    assert str(path) in note
    assert str(bad) in note


@pytest.mark.parametrize("sixteenth", range(16))
async def test_a_file_that_was_cut(
    open_store: Open, make: Make, path: Path, notes: list[str], sixteenth: int
) -> None:
    store, _ = await open_store()
    await fill(store, make)
    await store.reserve(5_000)
    await store.close()
    whole = path.read_bytes()
    os.truncate(path, len(whole) * sixteenth // 16)
    cut = path.read_bytes()
    store, opened = await open_store()
    if sixteenth == 0:
        # Nothing is a database, too, and a new one at that.
        assert (list(opened.rows), notes) == ([], [])
        return
    (bad,) = bad_files(path)
    assert bad.read_bytes() == cut
    assert len(notes) == 1
    if sixteenth > 2:
        assert opened.seq >= 5_000
    if sixteenth >= 12:
        assert len(opened.rows) > 10
    for row in opened.rows:
        stored = await store.load(row.uri)
        assert stored is not None
    assert {file.name for file in path.parent.iterdir()} == {
        *("ahpd.db", "ahpd.db-wal", "ahpd.db-shm", "ahpd.db.lock", bad.name)
    }


@pytest.mark.parametrize("seed", range(24))
async def test_one_flipped_bit(open_store: Open, make: Make, path: Path, seed: int) -> None:
    """Refused in words, or put aside whole, or read on with; but for the first, the others stay readable."""
    store, _ = await open_store()
    await fill(store, make)
    await store.close()
    content = bytearray(path.read_bytes())
    # Every third in the header, the rest all over the file.
    place = (seed * 4 + 1) % 100 if seed % 3 == 0 else seed * 7919 * 31 % len(content)
    content[place] ^= 1 << seed % 8
    path.write_bytes(content)
    try:
        store, opened = await open_store()
    except StartError as error:
        assert str(path) in str(error)  # noqa: PT017
        assert path.read_bytes() == content
        return
    if found := bad_files(path):
        assert found[0].read_bytes() == content
    assert len(opened.rows) >= 35
    readable = 0
    for row in opened.rows:
        with trio.fail_after(5):
            try:
                readable += await store.load(row.uri) is not None
            except Exception as error:
                assert row.uri in str(error)  # noqa: PT017
    assert readable >= len(opened.rows) - 2


async def test_a_damaged_page_costs_what_is_on_it(
    open_store: Open, make: Make, path: Path, notes: list[str]
) -> None:
    store, _ = await open_store()
    await fill(store, make)
    await store.close()
    connection = sqlite3.connect(path)
    (page,) = (
        connection.execute(
            "SELECT pageno FROM dbstat WHERE name = 'session' AND pagetype = 'leaf' LIMIT 1 OFFSET 3"
        ).fetchone()
        if _has_dbstat(connection)
        else (None,)
    )
    connection.close()
    if page is None:
        pytest.skip("this SQLite cannot tell which page is whose")
    with path.open("r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(b"\xff" * 4096)
    store, opened = await open_store()
    assert 30 <= len(opened.rows) < 40
    assert "not everything" in notes[0]
    for row in opened.rows:
        stored = await store.load(row.uri)
        assert stored is not None
        assert len(stored.chats[0].state["turns"]) == 5


def _has_dbstat(connection: sqlite3.Connection) -> bool:
    return bool(connection.execute("SELECT sqlite_compileoption_used('ENABLE_DBSTAT_VTAB')").fetchone()[0])


async def test_tables_that_are_not_as_they_were_made(open_store: Open, make: Make, path: Path) -> None:
    store, _ = await open_store()
    await fill(store, make, 5)
    await store.close()
    run_sql(path, "ALTER TABLE action RENAME TO auction")
    _, opened = await open_store()
    assert (len(bad_files(path)), len(opened.rows)) == (1, 5)


async def test_a_header_that_forgot_whose_it_is(open_store: Open, make: Make, path: Path) -> None:
    for at, statement in enumerate((f"PRAGMA application_id = {APPLICATION ^ 1}", "PRAGMA user_version = 0")):
        store, _ = await open_store()
        await fill(store, make, 5)
        await store.close()
        run_sql(path, statement)
        store, opened = await open_store()
        assert (len(bad_files(path)), len(opened.rows)) == (at + 1, 5)
        await store.close()


@pytest.mark.parametrize("place", [0, 16, 18, 19, 28])
async def test_a_header_with_one_wrong_byte(open_store: Open, make: Make, path: Path, place: int) -> None:
    store, _ = await open_store()
    await fill(store, make)
    await store.close()
    content = bytearray(path.read_bytes())
    content[place] ^= 0x20
    path.write_bytes(content)
    store, opened = await open_store()
    assert (len(bad_files(path)), len(opened.rows)) == (1, 40)
    assert await store.load("echo:/3") is not None


async def test_a_lost_reservation_is_made_up_for(open_store: Open, make: Make, path: Path) -> None:
    store, _ = await open_store()
    await store.reserve(1_000_000)
    await store.close()
    run_sql(path, "ALTER TABLE meta RENAME TO mega")
    _, opened = await open_store()
    assert 1_000_000 < opened.seq < 2**53


class Crash(Exception):
    pass


@pytest.mark.parametrize("place", ["salvaged", "set-aside"])
async def test_a_crash_while_a_damaged_file_is_replaced(
    open_store: Open, make: Make, path: Path, place: str
) -> None:
    store, _ = await open_store()
    await fill(store, make, 5)
    await store.close()
    run_sql(path, "ALTER TABLE action RENAME TO auction")

    def crash(reached: str) -> None:
        if reached == place:
            raise Crash

    with pytest.raises(Crash):
        await open_store(failpoint=crash)
    _, opened = await open_store()
    assert (len(bad_files(path)), len(opened.rows)) == (1, 5)
    assert not [file for file in path.parent.iterdir() if file.suffix in (".tmp", ".mended", ".salvaged")]


async def test_a_log_without_its_database_is_kept_aside(
    open_store: Open, make: Make, path: Path, notes: list[str]
) -> None:
    as_file(path.with_name("ahpd.db-wal"), b"orphan")
    _, opened = await open_store()
    (aside,) = path.parent.glob("ahpd.db.bad-*-wal")
    assert aside.read_bytes() == b"orphan"
    assert str(aside) in notes[0]
    assert list(opened.rows) == []
