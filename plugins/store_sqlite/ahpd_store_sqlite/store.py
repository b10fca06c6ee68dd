"""The store a host uses: what it queues, what it waits for, what it reads. See `ahpd.SessionStore`.

Three things happen in three places. Operations are encoded and queued where they are made. A commit hands the
queue to the writing thread (`writer.py`) and waits. Reads run on a second connection in a worker thread, after
what was queued before them is on disk; a session whose journal has to be folded first is read by the writing
thread.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import trio
from ahpd import AhpdError, Log, Opened, StoredSession, StoreOp

from ahpd_store_sqlite import reading
from ahpd_store_sqlite.migrations import MIGRATIONS, Migration
from ahpd_store_sqlite.opening import Database, open_database
from ahpd_store_sqlite.reading import Journaled, Page, Reducers
from ahpd_store_sqlite.rows import Prepared, apply_all, prepare, reservation
from ahpd_store_sqlite.writer import Failpoint, Job, Writer

T = TypeVar("T")
TAIL = 50
"""Completed turns of a chat that `load` answers."""
PAUSES = (0.05, 0.25, 0.7)
"""Seconds before a failed transaction is tried again; then whoever waits is told."""
CLOSING_SECONDS = 4.0


class SqliteStore:
    """Implements `ahpd.SessionStore`. May be opened again after it was closed.

    The keyword arguments are for tests.
    """

    def __init__(
        self,
        path: Path,
        *,
        tail: int = TAIL,
        pauses: Sequence[float] = PAUSES,
        pause: Callable[[float], object] = time.sleep,
        failpoint: Failpoint = lambda place: None,
        migrations: Sequence[Migration] = MIGRATIONS,
    ) -> None:
        self.path = path
        self._tail, self._pauses, self._pause = tail, pauses, pause
        self._failpoint, self._migrations = failpoint, migrations
        self._log = Log("ahpd.plugin.store-sqlite")
        self._queue: list[Prepared] = []
        self._on_the_way = 0
        """Jobs handed over that have not been dealt with."""
        self._refused = False
        """Whether the writing thread keeps operations that it could not write."""
        self._database: Database | None = None
        self._writer: Writer | None = None
        self._reducers: Reducers = {}
        self._one_reader = trio.Lock()

    @property
    def durable(self) -> bool:
        return True

    async def open(self, reducers: Reducers) -> Opened:
        """Raises `StartError` saying what is wrong and where, and changes nothing then."""
        self._reducers = reducers
        begin = partial(open_database, self.path, self._migrations, self._failpoint)
        self._database = database = await trio.to_thread.run_sync(begin)
        self._writer = Writer(
            database.writing,
            apply_all,
            self._told,
            name=str(self.path),
            pauses=self._pauses,
            pause=self._pause,
            failpoint=self._failpoint,
        )
        for note in database.notes:
            self._log.warning(note)
        return database.opened

    # -- writing ----------------------------------------------------------------------------------------

    def write(self, op: StoreOp) -> None:
        """Raises `TypeError` for an operation that is not JSON; nothing is queued then."""
        self._queue.append(prepare(op))

    @property
    def pending(self) -> bool:
        return bool(self._queue) or self._on_the_way > 0 or self._refused

    async def commit(self) -> None:
        """Return when everything queued before the call is on disk. Raises `AhpdError` when it cannot be: it is
        kept, and tried again by the next commit. A caller that is cancelled has only stopped waiting."""
        if not self.pending:
            await trio.lowlevel.checkpoint()
            return
        operations, self._queue = self._queue, []
        await self._hand(Job(operations))

    async def reserve(self, seq: int) -> None:
        # Not through the queue: what others have queued there stays together with what they queue next.
        await self._hand(Job([reservation(seq)]))

    async def _hand(self, job: Job) -> Any:
        """The answer to a job. Raises what it failed with."""
        if self._writer is None:
            raise self._closed()
        self._on_the_way += 1
        self._writer.hand(job)
        await job.done.wait()
        if job.error is not None:
            raise job.error
        return job.answer

    def _told(self, jobs: list[Job], refused: bool) -> None:
        """The writing thread has dealt with these."""
        self._on_the_way -= len(jobs)
        self._refused = refused
        for job in jobs:
            job.done.set()

    # -- reading ----------------------------------------------------------------------------------------

    async def load(self, uri: str) -> StoredSession | None:
        """A session with the newest turns of each chat; what its journal came to is written back first.

        Raises `AhpdError` when it cannot be read, which says nothing of other sessions.
        """
        read = partial(reading.load, uri=uri, tail=self._tail)
        fold = partial(reading.fold_session, uri=uri, reducers=self._reducers)
        return await self._read_folded(read, fold, uri)

    async def records(self) -> Mapping[str, Mapping[str, Any]]:
        return await self._read(reading.records, "what is kept of chats")

    async def turns(self, chat: str, before: str | None, limit: int) -> Page:
        """As `load`, for the turns of one chat. Raises `KeyError` for a chat or a turn there is not."""
        read = partial(reading.page, uri=chat, before=before, limit=max(1, limit))
        fold = partial(reading.fold_chat, uri=chat, reducers=self._reducers)
        return await self._read_folded(read, fold, chat)

    async def _read(self, read: Callable[[sqlite3.Connection], T], what: str) -> T:
        """Read after everything queued before is on disk."""
        await self.commit()
        async with self._one_reader:
            if self._database is None:
                raise self._closed()
            try:
                return await trio.to_thread.run_sync(_snapshot, self._database.reading, read)
            except (sqlite3.Error, ValueError) as error:
                raise self._unreadable(what, error) from error

    async def _read_folded(
        self,
        read: Callable[[sqlite3.Connection], T | Journaled],
        fold: Callable[[sqlite3.Connection], None],
        what: str,
    ) -> T:
        """As `_read`; when a journal is in the way, by the writing thread, which folds it first."""

        def fold_and_read(connection: sqlite3.Connection) -> T | Journaled:
            fold(connection)
            return read(connection)

        found = await self._read(read, what)
        if isinstance(found, Journaled):
            try:
                found = await self._hand(Job(question=fold_and_read))
            except (sqlite3.Error, ValueError) as error:
                raise self._unreadable(what, error) from error
        assert not isinstance(found, Journaled), "a fold leaves no journal"
        return found

    def _closed(self) -> AhpdError:
        return AhpdError(f"{self.path} is not open")

    def _unreadable(self, what: str, error: Exception) -> AhpdError:
        # Where things are kept, and what SQLite says of it, is for whoever runs the host, not for its clients.
        self._log.error("cannot be read", what=what, file=str(self.path), why=str(error))
        return AhpdError(f"{what} cannot be read; the host's log says why")

    # -- ending -----------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Commit what is queued and let go of the file, within a bounded time, even when cancelled.

        Raises `AhpdError` when something could not be written or the disk does not answer.
        """
        writer, database = self._writer, self._database
        if writer is None or database is None:
            return
        failure: AhpdError | None = None
        with trio.CancelScope(shield=True, deadline=trio.current_time() + CLOSING_SECONDS) as bound:
            try:
                await self.commit()
            except AhpdError as error:
                failure = error
            async with self._one_reader:
                database.reading.close()
            await writer.stop()
            database.lock.release()
        self._writer = self._database = None
        self._queue, self._on_the_way, self._refused = [], 0, False
        if bound.cancelled_caught:
            failure = AhpdError(
                f"{self.path} could not be closed: no answer from the disk in {CLOSING_SECONDS:g} s"
            )
        if failure is not None:
            raise failure


def _snapshot(connection: sqlite3.Connection, read: Callable[[sqlite3.Connection], T]) -> T:
    """Everything as of one moment."""
    connection.execute("BEGIN")
    try:
        return read(connection)
    finally:
        connection.execute("ROLLBACK")
