"""What happens before a file may be used: one user at a time, a look at it, and what to do with a damaged one.

A file that cannot be opened, is no database of ours, or is too new is refused in words and left alone. One that is
damaged is moved aside whole, and a new one begins with everything that can still be read in it. Until a file has
been looked at it is only ever read, through a connection that cannot write.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

from ahpd import Opened, StartError

from ahpd_store_sqlite.migrations import APPLICATION, Migration, migrate, version_of
from ahpd_store_sqlite.reading import catalogue
from ahpd_store_sqlite.salvage import mended_copy, salvage
from ahpd_store_sqlite.writer import Failpoint

CHECKED = 256 * 1024 * 1024
"""Bytes up to which a file is read through at every start, which takes a second. A cut one is noticed anyway."""
_BUSY_SECONDS = 2.0
_DAMAGE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR})
"""What SQLite says of a damaged file. The last is for tables that are not as they were made."""
_TABLES = frozenset({"meta", "session", "chat", "turn", "action"})
_FORMATS = frozenset({b"\1\1", b"\2\2", b""})
"""What a header says of how a file is read and written: without a log, with one; and a file without a header."""
_BESIDE = ("-wal", "-shm")


class Damaged(Exception):
    """A file that was a database of ours, or took the place of one. `str` says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Database:
    """A database in use. `notes` are sentences its owner should read."""

    lock: Lock
    writing: sqlite3.Connection
    reading: sqlite3.Connection
    opened: Opened
    notes: Sequence[str]


class Lock:
    """The right to use a database, for this process alone. Kept by the system: it cannot be left behind."""

    def __init__(self, path: Path) -> None:
        """Raises `StartError` when somebody else has it."""
        self._file = Path(f"{path}.lock")
        while True:
            self._descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                owner = os.read(self._descriptor, 20).decode("ascii", "replace").strip()
                os.close(self._descriptor)
                raise StartError(
                    f"{path} is in use by another ahpd{f' (process {owner})' if owner else ''}; "
                    "stop that one, set AHPD_HOME to another folder, or plugins.store-sqlite.path to another file"
                ) from None
            if self._is_current():
                break
            os.close(self._descriptor)  # Its last owner took it away between the two calls.
        os.truncate(self._descriptor, 0)
        os.write(self._descriptor, str(os.getpid()).encode())

    def _is_current(self) -> bool:
        try:
            return os.path.samestat(os.fstat(self._descriptor), os.stat(self._file))
        except FileNotFoundError:
            return False

    def release(self) -> None:
        self._file.unlink(missing_ok=True)
        os.close(self._descriptor)


def open_database(path: Path, migrations: Sequence[Migration], failpoint: Failpoint) -> Database:
    """Raises `StartError`; nothing has been changed then."""
    path = Path(os.path.realpath(path))
    with _in_words(path):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = Lock(path)
        try:
            return _open(path, migrations, failpoint, lock)
        except BaseException:
            lock.release()
            raise


@contextmanager
def _in_words(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StartError(f"{path}, where sessions are kept, cannot be used: {error.strerror or error}") from error
    except sqlite3.Error as error:
        raise StartError(f"{path}, where sessions are kept, cannot be opened: {error}") from error
    except ValueError as error:
        raise StartError(f"{path}, where sessions are kept, holds a row that cannot be read: {error}") from error


def _open(path: Path, migrations: Sequence[Migration], failpoint: Failpoint, lock: Lock) -> Database:
    notes = _tidy(path)
    if path.exists():
        try:
            version = _look(path, len(migrations))
        except Damaged as damage:
            notes.append(_replace(path, str(damage), migrations, failpoint))
        else:
            if 0 < version < len(migrations):
                _back_up(path, version)
                failpoint("backed-up")
    writing = _connect(path)
    try:
        migrate(writing, migrations)
        reading = _connect(path)
        reading.execute("PRAGMA query_only = ON")
        return Database(lock, writing, reading, catalogue(reading), notes)
    except BaseException:
        writing.close()
        raise


def _connect(path: Path) -> sqlite3.Connection:
    if not path.exists():
        # Made by us, since SQLite would make it as open as the umask says.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        _sync(path.parent)
    connection = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA page_size = 4096")  # of new files; see salvage.HEADER
        mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        if mode != "wal":
            raise StartError(f"{path} cannot be kept with a write-ahead log; is it on a network folder?")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA journal_size_limit = {64 * 1024 * 1024}")
        # Now, rather than at the first write: whether anybody else is writing, or nobody may.
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")
    except BaseException:
        connection.close()
        raise
    return connection


def _read_only(path: Path) -> sqlite3.Connection:
    """A connection that changes no file. With a log to read, it may make the index of that log (`-shm`)."""
    log = Path(f"{path}-wal")
    mode = "mode=ro" if log.exists() and log.stat().st_size else "immutable=1"
    uri = f"file:{quote(str(path))}?{mode}"
    return sqlite3.connect(uri, uri=True, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)


# -- looking ---------------------------------------------------------------------------------------


def _look(path: Path, newest: int) -> int:
    """The version of a file that may be used. Raises `Damaged`, or `StartError` for one that is not for us."""
    with path.open("rb") as file:  # says better than SQLite does why a file cannot be read
        header = file.read(20)
    if header[18:20] not in _FORMATS:
        # SQLite would open it, and then refuse every write.
        raise Damaged("its header is not as it was written")
    connection = _read_only(path)
    try:
        return _judge(connection, path, newest)
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)
        if code & 0xFF in _DAMAGE:
            raise Damaged(str(error)) from error
        raise
    except (ValueError, TypeError) as error:
        raise Damaged(f"a row cannot be read: {error}") from error
    finally:
        connection.close()


def _judge(connection: sqlite3.Connection, path: Path, newest: int) -> int:
    version, tables = version_of(connection), _tables(connection)
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    if tables and application != APPLICATION:
        if tables >= _TABLES:
            raise Damaged("its header is not as it was written")
        raise StartError(f"{path} is not a database of ahpd; set plugins.store-sqlite.path to another file")
    if version > newest:
        raise StartError(
            f"{path} was written by a newer ahpd (schema {version}, this one knows {newest}); "
            "run that version or a newer one, or set plugins.store-sqlite.path to another file"
        )
    if path.stat().st_size <= CHECKED:
        verdict = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if verdict != "ok":
            raise Damaged(" ".join(verdict.split()))
    if bool(tables) != (version > 0):
        raise Damaged("its version does not fit its tables")
    if version == newest:
        catalogue(connection)
    return version


def _tables(connection: sqlite3.Connection) -> frozenset[str]:
    return frozenset(name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'"))


# -- keeping and replacing -------------------------------------------------------------------------


def _back_up(path: Path, version: int) -> None:
    """Copy a file before it is migrated: `ahpd.db.backup-v<version>-<time>`."""
    copy = _free_name(f"{path}.backup-v{version}-{_time()}")
    unfinished = Path(f"{path}.tmp")
    source, target = _read_only(path), _new_file(unfinished)
    try:
        source.backup(target)
    finally:
        target.close()
        source.close()
    _finish(unfinished, copy)


def _replace(path: Path, damage: str, migrations: Sequence[Migration], failpoint: Failpoint) -> str:
    """Put a damaged file aside and a new one with what could be read in its place. What to tell the owner.

    The new file is finished before the old one moves: a crash at any point leaves one of the two to begin with.
    """
    unfinished, ready, mended = Path(f"{path}.tmp"), Path(f"{path}.salvaged"), Path(f"{path}.mended")
    mended_copy(path, mended)
    source, target = _read_only(mended), _new_file(unfinished)
    try:
        migrate(target, migrations)
        kept, lost = salvage(source, target)
    finally:
        target.close()
        source.close()
    _remove(mended)
    _finish(unfinished, ready)
    failpoint("salvaged")
    aside = _set_aside(path)
    failpoint("set-aside")
    _finish(ready, path)
    state = "everything that could be found" if not lost else "not everything"
    return (
        f"{path} was damaged ({damage}) and is kept as {aside}; "
        f"a new one holds what could be read: {kept} sessions, {state}"
    )


def _set_aside(path: Path) -> Path:
    aside = _free_name(f"{path}.bad-{_time()}")
    for suffix in ("", *_BESIDE):
        part = Path(f"{path}{suffix}")
        if part.exists():
            part.rename(f"{aside}{suffix}")
    _sync(path.parent)
    return aside


def _tidy(path: Path) -> list[str]:
    """Take away what a crash during a backup or a replacement left, or finish it. What to tell the owner."""
    notes: list[str] = []
    _remove(Path(f"{path}.tmp"))
    _remove(Path(f"{path}.mended"))
    ready = Path(f"{path}.salvaged")
    if path.exists():
        ready.unlink(missing_ok=True)
        return notes
    log = Path(f"{path}-wal")
    if log.exists() and log.stat().st_size:
        # Never read with another file than its own.
        notes.append(f"{path} was missing beside its log, which is kept as {_set_aside(path)}-wal")
    if ready.exists():
        _finish(ready, path)
    return notes


def _remove(path: Path) -> None:
    for suffix in ("", "-journal", *_BESIDE):
        Path(f"{path}{suffix}").unlink(missing_ok=True)


def _new_file(path: Path) -> sqlite3.Connection:
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA page_size = 4096")
    return connection


def _finish(unfinished: Path, path: Path) -> None:
    """Give a finished file its name, on disk."""
    with unfinished.open("rb") as file:
        os.fsync(file.fileno())
    unfinished.rename(path)
    _sync(path.parent)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _time() -> str:
    return datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")


def _free_name(wanted: str) -> Path:
    name, number = Path(wanted), 1
    while name.exists():
        number += 1
        name = Path(f"{wanted}-{number}")
    return name
