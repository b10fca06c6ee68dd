"""The port: accepts, reads the first head, and decides who goes on with the connection.

A WebSocket upgrade becomes a ``WebSocket`` of ours. Everything else is replayed, with every byte
read so far, into the HTTP side (``http``), which is imported in a thread at the first request that
needs it: it takes a second that no announcement should wait for. Each connection lives behind its own
fence, so nothing that one peer sends can end the daemon. Knows no method of the protocol.
"""

import errno
from base64 import b64decode, b64encode
from binascii import Error as BadBase64
from collections.abc import Awaitable, Callable, Collection, Mapping
from hashlib import sha1
from http import HTTPStatus
from math import inf
from typing import TYPE_CHECKING, cast

import h11
import trio

from ahpd.wire.limits import Limits
from ahpd.wire.outbox import Barrier, Flusher, Log
from ahpd.wire.request import ASGIApp, Guard, Peer, Refusal, Request
from ahpd.wire.slots import Slots
from ahpd.wire.websocket import WebSocket

if TYPE_CHECKING:
    from ahpd.wire.http import Plain

_ACCEPT = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455 section 1.3
_READ = 1 << 16
_NO_ROOM = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS}
_FULL_WAIT = 0.1
_SAY_FULL_EVERY = 60.0

OnWebSocket = Callable[[WebSocket, Request], Awaitable[None]]


class Listener:
    """One port. ``await open()``, announce, ``await serve()``; ``await stop()`` from elsewhere.

    ``mounts`` (raw ASGI apps by path prefix) and ``http_paths`` (prefixes that belong to the app
    of ``http_app``) are read at each request, so both may change while serving. ``http_app`` is
    awaited once, late. A guard that raises refuses.
    """

    def __init__(
        self,
        *,
        on_websocket: OnWebSocket,
        guard: Guard | None = None,
        http_app: Callable[[], Awaitable[ASGIApp]] | None = None,
        http_paths: Collection[str] = (),
        mounts: Mapping[str, ASGIApp] | None = None,
        limits: Limits | None = None,
        log: Log | None = None,
        barrier: Barrier | None = None,
    ) -> None:
        self.limits = limits or Limits()
        self.log: Log = log or _default_log()
        self.flusher = Flusher(self.log, barrier)
        self.websockets: set[WebSocket] = set()
        self._http_wanted = trio.Event()
        self.http_ready = trio.Event()
        """Set when plain HTTP is served, or never will be."""
        self._on_websocket = on_websocket
        self._guard = guard
        self._http_app = http_app
        self._http_paths = http_paths
        self._mounts: Mapping[str, ASGIApp] = {} if mounts is None else mounts
        self._http: Plain | None = None
        self._plain: set[trio.SocketStream] = set()
        self._slots = Slots(self.limits.connections, self.limits.http_requests)
        self.connected = 0
        """How many connections are open, of either kind."""
        self._listeners: list[trio.SocketListener] = []
        self._accepting = trio.CancelScope()
        self._say_full_again = -inf
        self._left = trio.Event()
        self._stopped = trio.Event()

    async def open(self, host: str = "127.0.0.1", port: int = 0) -> list[tuple[str, int]]:
        """Bind; the addresses can be announced, since connections queue from here on."""
        self._listeners = await trio.open_tcp_listeners(port, host=host)
        return [each.socket.getsockname()[:2] for each in self._listeners]

    async def serve(self) -> None:
        """Until ``stop`` is called (returns) or the surrounding scope is cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.flusher.run)
            nursery.start_soon(self._load_http)
            try:
                async with trio.open_nursery() as connections:
                    await self._accept(connections)
                if self._http is not None:
                    await self._http.stop()
            finally:
                nursery.cancel_scope.cancel()
                self._stopped.set()

    async def stop(self) -> None:
        """Close the port, say 1001 to every WebSocket, let requests in flight end, return.

        Bounded by ``close_wait`` and ``http_grace``, whatever the peers do.
        """
        self._accepting.cancel()
        await self._stopped.wait()

    async def _accept(self, connections: trio.Nursery) -> None:
        try:
            with self._accepting:
                async with trio.open_nursery() as nursery:
                    for each in self._listeners:
                        nursery.start_soon(self._accept_from, each, connections)
            await self._wind_down()
            connections.cancel_scope.cancel()
        finally:
            # hypercorn sends inside a shield: only a dead socket frees a stuck one.
            for stream in self._plain:
                _sever(stream)

    async def _accept_from(self, listener: trio.SocketListener, connections: trio.Nursery) -> None:
        async with listener:
            while True:
                try:
                    stream = await listener.accept()
                except OSError as error:
                    if error.errno not in _NO_ROOM:
                        raise
                    await self._wait_for_room(error)
                else:
                    connections.start_soon(self._handle, stream)

    async def _wait_for_room(self, error: OSError) -> None:
        """What cannot be accepted stays queued in the kernel, so that asking again at once would spin."""
        if trio.current_time() >= self._say_full_again:
            self._say_full_again = trio.current_time() + _SAY_FULL_EVERY
            why = error.strerror or str(error)
            self.log.warning("no connection can be accepted for now", why=why, connected=self.connected)
        await trio.sleep(_FULL_WAIT)

    async def _wind_down(self) -> None:
        for websocket in list(self.websockets):
            websocket.close(1001, "stopping")
        if self._http is not None:
            await self._http.end_idle()
        grace = max(self.limits.http_grace, self.limits.close_wait)
        with trio.move_on_after(grace):
            while self.connected:
                self._left = trio.Event()
                await self._left.wait()

    async def _handle(self, stream: trio.SocketStream) -> None:
        """The fence around one connection, and its place among the others."""
        self.connected += 1
        try:
            with trio.CancelScope() as scope:
                if self._slots.enter(stream, scope):
                    await self._converse(stream)
                else:
                    await self._refuse(stream, Refusal(503, "Too many connections are open; try again later."))
        except* (Exception, SystemExit):
            self.log.exception("connection failed")
        finally:
            stream.socket.close()  # before its place is given to the next one
            self._slots.leave(stream)
            self.connected -= 1
            self._left.set()

    async def _converse(self, stream: trio.SocketStream) -> None:
        stream.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_KEEPALIVE, 1)
        head = h11.Connection(h11.SERVER, max_incomplete_event_size=self.limits.head_bytes)
        try:
            with trio.fail_after(self.limits.head_timeout):
                event, read = await _read_head(stream, head, self.limits.head_bytes)
        except trio.TooSlowError:
            await self._refuse(stream, Refusal(408, "The request head took too long."))
        except h11.RemoteProtocolError as error:
            await self._refuse(stream, Refusal(error.error_status_hint, f"Not an HTTP request: {error}."))
        except (OSError, trio.BrokenResourceError):
            pass
        else:
            if event is not None:
                await self._route(stream, event, read, head.trailing_data[0])

    async def _route(self, stream: trio.SocketStream, event: h11.Request, read: bytes, early: bytes) -> None:
        request = Request.read(
            event.method.decode("ascii"), event.target.decode("ascii"), list(event.headers), _peer(stream)
        )
        if event.http_version not in (b"1.0", b"1.1"):
            await self._refuse(stream, Refusal(505, "This port speaks HTTP/1.1."))
        elif "websocket" not in request.tokens("upgrade"):
            await self._serve_http(stream, read)
        elif refusal := self._judge_upgrade(request, event.http_version):
            await self._refuse(stream, refusal)
        else:
            await self._serve_websocket(stream, request, early)

    def _judge_upgrade(self, request: Request, version: bytes) -> Refusal | None:
        if refusal := _bad_upgrade(request, version) or self.judge(request):
            return refusal
        if self.owner(request.path) is not None or _within(request.path, self._http_paths):
            return Refusal(404, f"No WebSocket is served on {request.path}.")
        return None

    def judge(self, request: Request) -> Refusal | None:
        """Ask the guard; one that breaks refuses, since a check nobody hears is a door."""
        if self._guard is None:
            return None
        try:
            return self._guard(request)
        except (Exception, SystemExit):
            self.log.exception("guard failed", path=request.path)
            return Refusal(500, "The request could not be checked.")

    def owner(self, path: str) -> ASGIApp | None:
        """The mount with the longest prefix of this path."""
        prefix = _within(path, self._mounts)
        return None if prefix is None else self._mounts[prefix]

    async def _serve_websocket(self, stream: trio.SocketStream, request: Request, early: bytes) -> None:
        async def application(websocket: WebSocket) -> None:
            await self._on_websocket(websocket, request)

        websocket = WebSocket(stream, self.flusher, self.limits, self.log, early)
        websocket.push(_switching(request.header("sec-websocket-key") or ""))
        self._slots.settle(stream)
        self.websockets.add(websocket)
        try:
            await websocket.run(application)
        finally:
            self.websockets.discard(websocket)

    async def _serve_http(self, stream: trio.SocketStream, read: bytes) -> None:
        self._http_wanted.set()
        with trio.move_on_after(self.limits.http_ready):
            await self.http_ready.wait()
        if self._http is None:
            await self._refuse(stream, Refusal(503, "HTTP is not served right now."))
            return
        self._plain.add(stream)
        try:
            await self._http.converse(stream, read, self._slots)
        finally:
            self._plain.discard(stream)
        if not self._accepting.cancel_called:
            await self._linger(stream)

    async def _load_http(self) -> None:
        # Twelve megabytes and a second of imports that a host watched over WebSockets alone never needs.
        await self._http_wanted.wait()
        try:
            kind = await trio.to_thread.run_sync(_import_plain)
            plain = kind(self.judge, self.owner, self.limits, self.log)
            await plain.run(self._http_app, self._loaded)
        except* Exception:
            self.log.exception("plain HTTP is not served")
        finally:
            self.http_ready.set()

    def _loaded(self, plain: "Plain") -> None:
        self._http = plain
        self.http_ready.set()

    async def _refuse(self, stream: trio.SocketStream, refusal: Refusal) -> None:
        fields = b"".join(b"%s: %s\r\n" % field for field in refusal.fields())
        phrase = HTTPStatus(refusal.status).phrase
        head = f"HTTP/1.1 {refusal.status} {phrase}\r\n".encode()
        with trio.move_on_after(self.limits.close_wait):
            try:
                await stream.send_all(head + fields + b"\r\n" + refusal.body())
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return
        await self._linger(stream)

    async def _linger(self, stream: trio.SocketStream) -> None:
        """Read on until the peer goes: a close over unread bytes would destroy the answer."""
        with trio.move_on_after(self.limits.close_wait):
            try:
                await stream.send_eof()
                while await stream.receive_some(_READ):
                    pass
            except (OSError, trio.BrokenResourceError, trio.ClosedResourceError):
                pass


async def _read_head(
    stream: trio.SocketStream, head: h11.Connection, most: int
) -> tuple[h11.Request | None, bytes]:
    """The first request and everything read so far; no request if the peer left before."""
    read = bytearray()
    while (event := head.next_event()) is h11.NEED_DATA:
        # h11 bounds a head that is still incomplete: never read past the bound in one go.
        data = await stream.receive_some(most + 1 - len(read))
        if not data:
            return None, b""
        read += data
        head.receive_data(data)
    return cast(h11.Request, event), bytes(read)


def _bad_upgrade(request: Request, version: bytes) -> Refusal | None:
    """What RFC 6455 section 4.2.1 asks of an opening handshake."""
    if request.method != "GET":
        return Refusal(400, "A WebSocket is opened with GET.")
    if version != b"1.1":
        return Refusal(400, "A WebSocket needs HTTP/1.1.")
    if "upgrade" not in request.tokens("connection"):
        return Refusal(400, "A WebSocket needs the header Connection: Upgrade.")
    if request.header("sec-websocket-version") != "13":
        return Refusal(426, "Only WebSocket version 13 is spoken.", (("Sec-WebSocket-Version", "13"),))
    if not _is_key(request.header("sec-websocket-key") or ""):
        return Refusal(400, "Sec-WebSocket-Key has to be 16 bytes in base64.")
    if (request.header("content-length") or "0") != "0" or request.header("transfer-encoding"):
        return Refusal(400, "An upgrade request has no body.")
    return None


def _is_key(value: str) -> bool:
    try:
        return len(b64decode(value, validate=True)) == 16
    except (BadBase64, ValueError):
        return False


def _switching(key: str) -> bytes:
    accept = b64encode(sha1(key.encode() + _ACCEPT, usedforsecurity=False).digest())
    return (
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n"
    )


def _within(path: str, prefixes: Collection[str]) -> str | None:
    """The longest prefix that holds this path, whole segments only."""
    held = [each for each in prefixes if path == each or path.startswith(each.rstrip("/") + "/")]
    return max(held, key=len, default=None)


def _peer(stream: trio.SocketStream) -> Peer:
    try:
        host, port = stream.socket.getpeername()[:2]
    except OSError:
        return None
    return str(host), int(port)


def _sever(stream: trio.SocketStream) -> None:
    try:
        stream.socket.shutdown(trio.socket.SHUT_RDWR)
    except OSError:
        pass


def _import_plain() -> "type[Plain]":
    from ahpd.wire.http import Plain

    return Plain


def _default_log() -> Log:
    import structlog

    return cast(Log, structlog.get_logger("ahpd.wire"))
