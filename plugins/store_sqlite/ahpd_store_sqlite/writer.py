"""The one thread that writes. Owns the writing connection; knows no table and no operation.

Whoever hands something over waits in trio; the thread takes all that has been handed over meanwhile and commits
it as one transaction, so a sync of the disk is shared by everybody who waits for one. What cannot be written is
kept, in order, ahead of all that comes after it: the next hand-over tries again. Questions that need the writing
connection are answered between transactions, each in one of its own, so that one that fails costs nobody else.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any, TypeAlias

import trio
from ahpd import AhpdError

from ahpd_store_sqlite.rows import Prepared

Failpoint: TypeAlias = Callable[[str], None]
"""Called in the writing thread with the name of the place it is at, for tests that break things there."""
TOGETHER = 1_000
"""Hand-overs that may share a transaction. Beyond, the first would wait too long for the last."""


@dataclass(slots=True, eq=False)
class Job:
    """Something handed over: operations to write, or a question to ask after all that was handed over before.

    `done` is set in trio, with `error` saying why it failed, or `answer`.
    """

    operations: Sequence[Prepared] = ()
    question: Callable[[sqlite3.Connection], Any] | None = None
    done: trio.Event = field(default_factory=trio.Event)
    answer: Any = None
    error: BaseException | None = None


class Writer:
    """Runs from its making until `stop`. `told` is called in trio with what has been dealt with, and whether
    operations are kept that could not be written."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        apply: Callable[[sqlite3.Connection, Iterable[Prepared]], None],
        told: Callable[[list[Job], bool], None],
        *,
        name: str,
        pauses: Sequence[float],
        pause: Callable[[float], object],
        failpoint: Failpoint,
    ) -> None:
        self._connection, self._apply, self._told = connection, apply, told
        self._name, self._pauses, self._pause, self._failpoint = name, pauses, pause, failpoint
        self._token = trio.lowlevel.current_trio_token()
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._kept: list[Prepared] = []
        """Operations handed over, not on disk."""
        # A daemon thread: should the disk hang, the process can still end.
        self._thread = threading.Thread(target=self._run, name="ahpd-store-sqlite", daemon=True)
        self._thread.start()

    def hand(self, job: Job) -> None:
        self._jobs.put(job)

    async def stop(self) -> None:
        """End the thread after all that was handed over, and close its connection. When cancelled, the thread
        and its connection are still in use."""
        self._jobs.put(None)
        while self._thread.is_alive():
            # Short waits: one for the thread itself could not be cancelled.
            await trio.to_thread.run_sync(self._thread.join, 0.1)

    def _run(self) -> None:
        going = True
        while going:
            jobs, going = self._take()
            failure = self._store([job for job in jobs if job.question is None])
            for job in jobs:
                if job.question is None or failure is not None:
                    job.error = failure
                else:
                    self._answer(job, job.question)
            self._tell(jobs)
        self._end()

    def _take(self) -> tuple[list[Job], bool]:
        """All that has been handed over, at least one; and whether there will be more."""
        jobs: list[Job] = []
        wait = True
        while len(jobs) < TOGETHER:
            try:
                job = self._jobs.get(block=wait)
            except Empty:
                break
            if job is None:
                return jobs, False
            jobs.append(job)
            wait = False
        return jobs, True

    def _store(self, jobs: list[Job]) -> AhpdError | None:
        """Commit the jobs behind what was kept, trying again for a bounded time. Why they could not be."""
        for job in jobs:
            self._kept.extend(job.operations)
        if not self._kept:
            return None
        for pause in (*self._pauses, None):
            try:
                self._transaction(lambda connection: self._apply(connection, self._kept), "commit")
            except Exception as error:  # whatever it is, somebody waits to be told
                if pause is None:
                    return self._refusal(error)
                self._pause(pause)
            else:
                self._kept = []
                return None
        raise AssertionError("the last try returns")

    def _refusal(self, error: Exception) -> AhpdError:
        refusal = AhpdError(
            f"{self._name} cannot be written: {error}; what is not on disk yet is kept and will be tried again"
        )
        refusal.__cause__ = error
        return refusal

    def _answer(self, job: Job, question: Callable[[sqlite3.Connection], Any]) -> None:
        try:
            job.answer = self._transaction(question, "fold")
        except Exception as error:  # the asker's to deal with, who gets it raised
            job.error = error

    def _transaction(self, work: Callable[[sqlite3.Connection], Any], name: str) -> Any:
        connection = self._connection
        try:
            connection.execute("BEGIN IMMEDIATE")
            answer = work(connection)
            self._failpoint(f"before-{name}")
            connection.execute("COMMIT")
            self._failpoint(f"after-{name}")
        finally:
            # Some errors end a transaction by themselves.
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        return answer

    def _tell(self, jobs: list[Job]) -> None:
        try:
            self._token.run_sync_soon(self._told, jobs, bool(self._kept))
        except trio.RunFinishedError:
            pass  # Nobody is left to be told.

    def _end(self) -> None:
        try:
            # One file is all there is between two runs, so that it can be copied by anybody.
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self._connection.close()
        except sqlite3.Error:
            pass  # What is in the log is on disk too, and is read at the next opening.
