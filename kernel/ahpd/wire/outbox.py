"""What waits to be written to one client, and the one task that writes for everybody.

All writing is a plain, non-blocking ``writev`` from the head of one queue. Nobody ever awaits a
send, so a direct send and the fallback writer cannot interleave: the writer only waits until the
socket takes more and then makes the same plain call. The queue holds whole frames; only its head
may be the rest of a frame already begun, which is what a cut has to keep.

Knows bytes and deadlines; what a frame means is the business of ``websocket``.
"""

import os
import socket
from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Protocol

import trio

from ahpd.wire import frames
from ahpd.wire.limits import Limits

_BATCH = 512  # frames per writev; Linux takes 1024
_FAIR_SHARE = 256  # outboxes flushed before other tasks get their turn


class Log(Protocol):
    """The part of a structlog logger this folder uses."""

    def debug(self, event: str, **fields: object) -> object: ...
    def warning(self, event: str, **fields: object) -> object: ...
    def exception(self, event: str, **fields: object) -> object: ...


class Barrier(Protocol):
    """What has to be on disk before anybody may hear of it."""

    @property
    def pending(self) -> bool: ...

    async def commit(self) -> None:
        """Return when everything that was pending at the call is on disk."""
        ...


class Flusher:
    """Writes out every outbox that was pushed to, once per pass of the scheduler.

    Flushing at each push would cost one system call per frame and subscriber; a burst of
    actions leaves as one call per subscriber this way. It is also the one place where a message
    waits for the disk: what is queued is noted, the barrier is committed, and what was noted goes
    out. Frames that came meanwhile wait for the next round.
    """

    def __init__(self, log: Log, barrier: Barrier | None = None) -> None:
        self._log = log
        self._barrier = barrier
        self._dirty: list[Outbox] = []
        self._wake = trio.Event()

    @property
    def holding(self) -> bool:
        """Whether new frames have to wait for the disk."""
        return self._barrier is not None and self._barrier.pending

    def mark(self, outbox: "Outbox") -> None:
        if not self._dirty:
            self._wake.set()
        self._dirty.append(outbox)

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake = trio.Event()
            dirty, self._dirty = self._dirty, []
            for outbox in dirty:
                outbox.marked = False
                outbox.note()
            if self._barrier is not None and self._barrier.pending:
                await self._barrier.commit()
            for outbox in dirty:
                outbox.release()
            for start in range(0, len(dirty), _FAIR_SHARE):
                if start:
                    await trio.lowlevel.checkpoint()
                for outbox in dirty[start : start + _FAIR_SHARE]:
                    self._flush(outbox)

    def _flush(self, outbox: "Outbox") -> None:
        try:
            outbox.flush()
        except Exception:  # one client's surprise must not silence all the others
            self._log.exception("flush failed")
            outbox.abandon()


class Outbox:
    """The bounded queue of ready frames of one client.

    ``report(code, reason)`` is called once, synchronously, when the outbox ends the
    conversation by itself: 1013 for a client that does not keep up, 1006 for one that is gone.
    """

    def __init__(
        self,
        sock: trio.socket.SocketType,
        flusher: Flusher,
        limits: Limits,
        report: Callable[[int, str], None],
    ) -> None:
        self.marked = False
        self.ended = False
        self.cut_until: float | None = None
        self._sock = sock
        self._flusher = flusher
        self._limits = limits
        self._report = report
        self._queue: deque[bytes | memoryview] = deque()
        self._free = 0  # frames at the head that may go out
        self._noted = 0  # frames at the head that may, once the disk has them
        self._size = 0
        self._bound = limits.max_outbox
        self._torn = False  # the head is the rest of a frame already begun
        self._blocked = False  # the writer has it
        self._nursery: trio.Nursery | None = None
        self._wait: trio.CancelScope | None = None

    @property
    def size(self) -> int:
        """Bytes that wait here."""
        return self._size

    def start(self, nursery: trio.Nursery) -> None:
        """From now on the fallback writer may be started, in this nursery."""
        self._nursery = nursery
        self.flush()

    def push(self, frame: bytes) -> None:
        """Queue one whole frame. Never waits; after the end it does nothing."""
        if self.ended:
            return
        self._queue.append(frame)
        self._size += len(frame)
        if self._size > self._bound:
            self._overflow(len(frame))
        elif not self.marked:
            self.marked = True
            self._flusher.mark(self)

    def note(self) -> None:
        """What is queued now may go out at the next `release`; not before, whoever flushes meanwhile."""
        self._noted = len(self._queue)

    def release(self) -> None:
        """What was noted is on disk."""
        self._free = max(self._free, self._noted)
        self._noted = 0

    def flush(self) -> None:
        """Hand the kernel what it takes at once; the writer sees to the rest."""
        if not self._flusher.holding:
            self._free = len(self._queue)
        if self._free and not self._blocked and self._nursery is not None:
            self._send()
            if self._free:
                self._blocked = True
                self._nursery.start_soon(self._write)

    def finish(self, frame: bytes) -> None:
        """Queue the last frame. Once it is out, our half of the connection is shut."""
        self.push(frame)
        self.ended = True
        self.flush()

    def cut(self, reason: str) -> None:
        """Give up on a client that does not keep up, without tearing its frame stream."""
        if self.ended:
            return
        rest = self._queue[0] if self._torn else None
        self._queue.clear()
        if rest is not None:
            self._queue.append(rest)
        last = frames.close(frames.OVERLOADED, reason)
        self._queue.append(last)
        self._size = len(rest or b"") + len(last)
        self._free, self._noted = len(self._queue), 0
        self.ended = True
        self.cut_until = trio.current_time() + self._limits.drain
        if self._wait is not None:
            self._wait.deadline = self.cut_until
        self._report(frames.OVERLOADED, reason)
        self.flush()

    def abandon(self, reason: str = "connection lost") -> None:
        """Forget everything and wake whoever waits on the socket: nothing can be saved."""
        told = self.ended
        self.ended = True
        self._queue.clear()
        self._size = self._free = self._noted = 0
        self._shut(socket.SHUT_RDWR)
        if not told:
            self._report(frames.LOST, reason)

    def _overflow(self, size: int) -> None:
        self.flush()
        # One frame larger than the bound (a long chat's snapshot) is not a client's fault: it
        # comes on top of the bound, once, until it has gone out.
        if size > self._limits.max_outbox and self._bound == self._limits.max_outbox:
            self._bound += size
        if self._size > self._bound:
            self.cut("too far behind")

    def _send(self) -> None:
        queue = self._queue
        while self._free:
            batch = list(islice(queue, min(_BATCH, self._free)))
            try:
                # os.writev on the number, not on a copy of the socket: a copy would cost a
                # descriptor per client, and after a close the number is -1 and fails cleanly.
                sent = os.writev(self._sock.fileno(), batch)
            except BlockingIOError:
                return
            except OSError:
                self.abandon()
                return
            if not self._took(sent, len(batch)):
                return
        if queue:
            return
        self._bound = self._limits.max_outbox
        if self.ended:
            self._shut(socket.SHUT_WR)

    def _took(self, sent: int, count: int) -> bool:
        """Drop what went out; false if the kernel took less than it was offered."""
        queue = self._queue
        self._size -= sent
        self._torn = self._torn and not sent
        for _ in range(count):
            head = queue[0]
            if sent < len(head):
                if sent:
                    queue[0] = memoryview(head)[sent:]
                    self._torn = True
                return False
            sent -= len(head)
            queue.popleft()
            self._free -= 1
            self._noted = max(0, self._noted - 1)
        return True

    async def _write(self) -> None:
        """The fallback: exists only while the kernel's buffer is full."""
        deadline = trio.current_time() + self._limits.write_deadline
        while self._free:
            with trio.CancelScope(deadline=self.cut_until or deadline) as self._wait:
                try:
                    await trio.lowlevel.wait_writable(self._sock)
                except (OSError, trio.ClosedResourceError):
                    self.abandon()
            before, late = self._size, self._wait.cancelled_caught
            if not late:
                self._send()
                if self._size < before:
                    deadline = trio.current_time() + self._limits.write_deadline
            elif self.ended:
                self.abandon()
            else:
                self.cut("stopped reading")
        self._wait = None
        self._blocked = False

    def _shut(self, how: int) -> None:
        try:
            self._sock.shutdown(how)
        except OSError:
            pass  # the peer was quicker
