"""A daemon on a free loopback port and a peer that speaks in bytes, so that it can also lie."""

import json
import socket
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from struct import pack, unpack
from typing import Any

import pytest
import trio
from ahpd.wire.limits import Limits
from ahpd.wire.listener import Listener
from ahpd.wire.request import Request
from ahpd.wire.websocket import WebSocket

TEXT, BINARY, CLOSE, PING, PONG, CONTINUATION = 1, 2, 8, 9, 10, 0
MASK = b"\x11\x22\x33\x44"
UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
)


def client_frame(opcode: int, payload: bytes = b"", *, fin: bool = True, rsv: int = 0, mask: bool = True) -> bytes:
    size = len(payload)
    first = (0x80 if fin else 0) | rsv << 4 | opcode
    bit = 0x80 if mask else 0
    if size < 126:
        head = bytes((first, bit | size))
    elif size < 1 << 16:
        head = pack("!BBH", first, bit | 126, size)
    else:
        head = pack("!BBQ", first, bit | 127, size)
    if not mask:
        return head + payload
    key = int.from_bytes((MASK * (size // 4 + 1))[:size], "big")
    return head + MASK + (int.from_bytes(payload, "big") ^ key).to_bytes(size, "big")


class Gone(Exception):
    """The daemon closed the TCP connection."""


class Peer:
    """A client made of bytes. Every wait is bounded by five seconds."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self._buffer = bytearray()

    async def send(self, data: bytes) -> None:
        with trio.fail_after(5):
            await self.stream.send_all(data)

    async def frame(self, opcode: int, payload: bytes = b"", **flags: Any) -> None:
        await self.send(client_frame(opcode, payload, **flags))

    async def take(self, count: int) -> bytes:
        while len(self._buffer) < count:
            await self._more()
        data = bytes(self._buffer[:count])
        del self._buffer[:count]
        return data

    async def head(self) -> tuple[int, dict[str, str]]:
        while (end := self._buffer.find(b"\r\n\r\n")) < 0:
            await self._more()
        lines = (await self.take(end + 4)).decode("latin-1").split("\r\n")
        fields = (line.partition(":") for line in lines[1:] if line)
        return int(lines[0].split()[1]), {name.lower(): value.strip() for name, _, value in fields}

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        status, fields = await self.head()
        return status, fields, await self.take(int(fields.get("content-length", "0")))

    async def read_frame(self) -> tuple[int, bytes]:
        first, size = await self.take(2)
        assert first & 0x70 == 0
        assert first & 0x80, "the daemon does not fragment"
        assert size < 128, "the daemon does not mask"
        if size == 126:
            (size,) = unpack("!H", await self.take(2))
        elif size == 127:
            (size,) = unpack("!Q", await self.take(8))
        return first & 0x0F, await self.take(size)

    async def closed_with(self) -> int:
        """The code of the close frame, which has to be the next one; 1005 for an empty one."""
        opcode, payload = await self.read_frame()
        assert opcode == CLOSE, (opcode, payload[:80])
        return int(unpack("!H", payload[:2])[0]) if payload else 1005

    async def rest(self) -> bytes:
        """Everything up to the end of the connection, however that comes."""
        try:
            while True:
                await self._more()
        except Gone:
            data = bytes(self._buffer)
            self._buffer.clear()
            return data

    def reset(self) -> None:
        """Drop the connection with an RST."""
        self.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, pack("ii", 1, 0))
        self.stream.socket.close()

    async def _more(self) -> None:
        with trio.fail_after(5):
            try:
                data = await self.stream.receive_some(1 << 16)
            except trio.BrokenResourceError:
                data = b""
        if not data:
            raise Gone
        self._buffer += data


@dataclass
class Log:
    lines: list[tuple[str, str]] = field(default_factory=list)

    def debug(self, event: str, **fields: object) -> None:
        self.lines.append(("debug", event))

    def warning(self, event: str, **fields: object) -> None:
        self.lines.append(("warning", event))

    def exception(self, event: str, **fields: object) -> None:
        self.lines.append(("exception", event))
        traceback.print_exc()  # pytest shows it when the test fails


@dataclass
class Daemon:
    listener: Listener
    port: int
    log: Log
    stack: AsyncExitStack
    scope: trio.CancelScope

    async def dial(self, *, receive_buffer: int = 0) -> Peer:
        sock = trio.socket.socket()
        if receive_buffer:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        with trio.fail_after(5):
            await sock.connect(("127.0.0.1", self.port))
        stream = trio.SocketStream(sock)
        self.stack.push_async_callback(trio.aclose_forcefully, stream)
        return Peer(stream)

    async def open(self, *, head: bytes = UPGRADE, early: bytes = b"", receive_buffer: int = 0) -> Peer:
        """A peer whose WebSocket is open."""
        peer = await self.dial(receive_buffer=receive_buffer)
        await peer.send(head + b"\r\n" + early)
        status, _ = await peer.head()
        assert status == 101
        return peer

    async def get(self, path: str, *lines: str) -> tuple[int, dict[str, str], bytes]:
        peer = await self.dial()
        await peer.send("\r\n".join((f"GET {path} HTTP/1.1", "Host: x", *lines, "", "")).encode())
        return await peer.answer()

    async def still_serves(self) -> None:
        """A good client is answered, and nothing of ours broke on the way."""
        peer = await self.open()
        await peer.frame(TEXT, b"still there?")
        assert await peer.read_frame() == (TEXT, b"still there?")
        assert [line for line in self.log.lines if line[0] == "exception"] == []


async def echo(websocket: WebSocket, request: Request) -> None:
    while True:
        for message in await websocket.receive():
            websocket.send(message)


Serve = Callable[..., Awaitable[Daemon]]


async def within(scope: trio.CancelScope, run: Callable[[], Awaitable[None]]) -> None:
    with scope:
        await run()


@asynccontextmanager
async def daemons() -> AsyncIterator[Serve]:
    async with AsyncExitStack() as stack, trio.open_nursery() as nursery:

        async def serve(
            on_websocket: Callable[[WebSocket, Request], Awaitable[None]] = echo,
            limits: Limits | None = None,
            **options: Any,
        ) -> Daemon:
            log = Log()
            listener = Listener(
                on_websocket=on_websocket, limits=limits or Limits(close_wait=0.5), log=log, **options
            )
            ((_, port),) = await listener.open()
            scope = trio.CancelScope()
            nursery.start_soon(within, scope, listener.serve)
            return Daemon(listener, port, log, stack, scope)

        yield serve
        nursery.cancel_scope.cancel()


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """``await serve(application, limits, ...)`` starts a daemon of the test's own making."""
    async with daemons() as start:
        yield start


@pytest.fixture
async def daemon(serve: Serve) -> Daemon:
    """An echo server."""
    return await serve()


def message_of(body: bytes) -> str:
    return str(json.loads(body)["message"])
