"""One client on standard input and output: a JSON-RPC message per line, UTF-8.

For a host started by the program that uses it: no port, no token, and the end of the input is the end of the
host. Everything that is not a message goes to standard error.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

import trio

from ahpd.wire.outbox import Barrier

LONGEST_LINE = 16 * 1024 * 1024
MOST_WAITING = 64 * 1024 * 1024
"""Bytes a parent may leave unread before it is taken for gone."""


class StdioTransport:
    """Implements `ahpd.wire.connection.Transport`."""

    form = "line"

    def __init__(self, fd: int = 1, barrier: Barrier | None = None) -> None:
        self._barrier = barrier
        self._stream = trio.lowlevel.FdStream(os.dup(fd))
        self._waiting: list[bytes] = []
        self._size = 0
        self._wake = trio.Event()
        self._idle = trio.Event()
        self._idle.set()
        self.lost = trio.Event()

    def ready(self, payload: bytes) -> bytes:
        return payload + b"\n"

    def push(self, made: bytes) -> None:
        self._waiting.append(made)
        self._size += len(made)
        if self._size > MOST_WAITING:
            self.lost.set()
        if self._idle.is_set():
            self._idle = trio.Event()
        self._wake.set()

    async def drained(self) -> None:
        """Wait until everything that was pushed has been written, or cannot be."""
        if not self.lost.is_set():
            await self._idle.wait()

    async def run(self) -> None:
        """Write what is pushed, until cancelled or the reader has gone."""
        while True:
            await self._wake.wait()
            self._wake = trio.Event()
            lines, self._waiting, self._size = self._waiting, [], 0
            if self._barrier is not None and self._barrier.pending:
                await self._barrier.commit()
            try:
                await self._stream.send_all(b"".join(lines))
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                self.lost.set()
                self._idle.set()
                return
            if not self._waiting:
                self._idle.set()


async def lines(fd: int = 0) -> AsyncIterator[bytes]:
    """Every line of the input without its end; stops where the input does, or at a line that is too long."""
    stream = trio.lowlevel.FdStream(os.dup(fd))
    kept = b""
    async with stream:
        while True:
            try:
                data = await stream.receive_some(1 << 16)
            except (trio.BrokenResourceError, OSError):
                return
            *whole, kept = (kept + data).split(b"\n") if b"\n" in data else [kept + data]
            for line in whole:
                if line.strip():
                    yield line
            if not data or len(kept) > LONGEST_LINE:
                return
