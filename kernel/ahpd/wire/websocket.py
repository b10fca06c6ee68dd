"""One WebSocket, server side, from the answer 101 to the last byte.

Bytes come in through wsproto, which judges them; frames go out ready-made through an outbox.
Permessage-deflate is never agreed: a compressed frame belongs to one connection and could not
be shared by subscribers. Hands the application whole text messages as bytes and refuses to
know what is in them.
"""

from collections.abc import Awaitable, Callable

import trio
from wsproto.connection import Connection, ConnectionState, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Ping, TextMessage

from ahpd.wire import frames
from ahpd.wire.limits import Limits
from ahpd.wire.outbox import Flusher, Log, Outbox

_READ = 1 << 16


class Closed(Exception):
    """The conversation is over. ``code`` is what the peer was told, or told us."""

    def __init__(self, code: int, reason: str = "") -> None:
        super().__init__(f"{code} {reason}".rstrip())
        self.code = code
        self.reason = reason


class WebSocket:
    """One peer. One task may call ``receive``; anybody may ``push``, ``flush`` and ``close``."""

    def __init__(
        self, stream: trio.SocketStream, flusher: Flusher, limits: Limits, log: Log, early: bytes = b""
    ) -> None:
        """``early``: bytes that came in glued to the upgrade request."""
        self.outbox = Outbox(stream.socket, flusher, limits, self._ends)
        self.push = self.outbox.push
        """Queue a ready frame (see ``frames``); the flusher writes it at the end of this pass."""
        self.flush = self.outbox.flush
        """Write now what can be written without waiting."""
        self.ended: Closed | None = None
        self._sock = stream.socket
        self._limits = limits
        self._log = log
        self._early = early
        self._wire = Connection(ConnectionType.SERVER)
        self._parts = bytearray()  # of a message still incomplete
        self._verdict: tuple[int, str] | None = None
        self._heard = True
        self._waiting: trio.CancelScope | None = None

    def send(self, payload: bytes) -> None:
        """Queue one text message for this peer alone."""
        self.push(frames.text(payload))

    def close(self, code: int = frames.NORMAL, reason: str = "") -> None:
        """Say goodbye after what is queued. Returns at once: ``run`` waits for the peer's end.

        Whoever is in ``receive`` gets ``Closed(code)`` now; a second call changes nothing.
        """
        if self.ended is None:
            self.outbox.finish(frames.close(code, reason))
            self._ends(code, reason)

    async def receive(self) -> list[bytes]:
        """All messages that one read completed, at least one. Raises ``Closed`` at the end.

        What was pushed while the previous ones were handled goes out first, in one write.
        """
        self.flush()
        while True:
            if self._verdict is not None:
                self.close(*self._verdict)
            if self.ended is not None:
                raise Closed(self.ended.code, self.ended.reason)
            data = await self._read()
            if self.ended is not None:
                continue
            if not data:
                self.outbox.abandon()
            elif messages := self._take(data):
                return messages

    async def run(self, application: Callable[["WebSocket"], Awaitable[None]]) -> None:
        """Serve the peer until the application returns and the goodbyes are said.

        An exception of the application ends here: logged, and the peer sees 1011.
        """
        try:
            async with trio.open_nursery() as nursery:
                self.outbox.start(nursery)
                nursery.start_soon(self._keep_alive)
                await self._guarded(application)
                await self._farewell()
                nursery.cancel_scope.cancel()
        finally:
            self.close(frames.GOING_AWAY, "stopping")  # only a cancelled run comes here open
            self.outbox.abandon()

    async def _guarded(self, application: Callable[["WebSocket"], Awaitable[None]]) -> None:
        try:
            await application(self)
        except* Closed:
            pass  # letting the end pass through is the normal way out
        except* (Exception, SystemExit):
            self._log.exception("application failed", peer=self._peer())
            self.close(frames.INTERNAL_ERROR, "internal error")
        self.close(frames.NORMAL)

    async def _farewell(self) -> None:
        """Let the peer read what is left, and read on ourselves until it goes.

        Closing with unread bytes in the kernel would reset the connection and destroy the
        close frame on its way.
        """
        if self.ended is None or self.ended.code == frames.LOST:
            return
        until = self.outbox.cut_until or trio.current_time() + self._limits.close_wait
        with trio.move_on_at(until):
            # Not until the end of the stream: some clients answer our close frame and then
            # wait for us to close the connection.
            while self._wire.state is ConnectionState.OPEN or self.outbox.size:
                data = await self._recv()
                if not data:
                    return
                if self._verdict is None:  # else wsproto gave up on this peer already
                    self._wire.receive_data(data)
                    for _ in self._wire.events():
                        pass

    async def _read(self) -> bytes:
        if self._early:
            data, self._early = self._early, b""
            return data
        self._heard = True  # the silence before this was the application's
        with trio.CancelScope() as self._waiting:
            data = await self._recv()
            self._heard = True
            return data
        return b""

    async def _recv(self) -> bytes:
        try:
            return await self._sock.recv(_READ)
        except (OSError, trio.ClosedResourceError):
            return b""

    def _take(self, data: bytes) -> list[bytes]:
        """Feed bytes to wsproto; answer pings, collect what came to an end."""
        messages: list[bytes] = []
        self._wire.receive_data(data)
        for event in self._wire.events():
            if isinstance(event, TextMessage | BytesMessage):
                piece = event.data.encode() if isinstance(event, TextMessage) else event.data
                if not self._assemble(piece, event, messages):
                    break
            elif isinstance(event, Ping):
                self.push(frames.pong(bytes(event.payload)))
            elif isinstance(event, CloseConnection):
                # Kept for the next receive(), so that what came before it is still answered.
                self._verdict = (int(event.code), event.reason or "")
                break
        if not messages:
            self.flush()
        return messages

    def _assemble(
        self, piece: bytes | bytearray, event: TextMessage | BytesMessage, messages: list[bytes]
    ) -> bool:
        if len(self._parts) + len(piece) > self._limits.max_message:
            self._verdict = (frames.TOO_BIG, f"a message is at most {self._limits.max_message} bytes")
            return False
        if not event.message_finished:
            # One bytearray, not a list of pieces: sixteen million pieces of one byte would be
            # a gigabyte of objects within the size bound.
            self._parts += piece
            return True
        whole = bytes(self._parts + piece) if self._parts else bytes(piece)
        self._parts.clear()
        if isinstance(event, BytesMessage) and not _is_text(whole):
            self._verdict = (frames.INVALID_TEXT, "a binary message has to hold UTF-8 text")
            return False
        messages.append(whole)
        return True

    async def _keep_alive(self) -> None:
        """Ping a silent peer; drop one that stays silent."""
        step, silent = self._limits.ping_every, 0.0
        while True:
            await trio.sleep(step)
            if self._heard:
                self._heard, silent = False, 0.0
            elif silent > self._limits.dead_after and not self._sock.is_readable():
                # Readable but unheard is a busy application, not a dead peer.
                self.outbox.abandon("no answer to pings")
                return
            else:
                self.push(frames.ping())
                self.flush()
            silent += step

    def _ends(self, code: int, reason: str) -> None:
        if self.ended is None:
            self.ended = Closed(code, reason)
            if self._waiting is not None:
                self._waiting.cancel()

    def _peer(self) -> str:
        try:
            return str(self._sock.getpeername())
        except OSError:
            return "gone"


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
