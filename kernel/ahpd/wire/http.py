"""Plain HTTP on connections the listener hands over: hypercorn's HTTP/1.1, one per connection.

Uses modules hypercorn does not document, hence its pin. Its WebSocket and HTTP/2 code is never
reached: both have faults that one unauthenticated connection can trigger. To be imported late
and in a thread, since hypercorn takes most of a second. Knows no route and no rule.
"""

from collections.abc import Awaitable, Callable
from typing import Any, NoReturn

import h11
import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config
from hypercorn.events import Updated
from hypercorn.logging import Logger
from hypercorn.protocol.h11 import H11Protocol
from hypercorn.trio.task_group import TaskGroup
from hypercorn.trio.task_group import _handle as run_app
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ConnectionState
from hypercorn.utils import parse_socket_addr

from ahpd.wire.limits import Limits
from ahpd.wire.outbox import Log
from ahpd.wire.request import ASGIApp, Guard, Receive, Refusal, Request, Scope, Send
from ahpd.wire.slots import Slots


class Plain:
    """The HTTP side of a listener: the dispatcher, the app's lifespan, and the connections."""

    def __init__(self, judge: Guard, owner: Callable[[str], ASGIApp | None], limits: Limits, log: Log) -> None:
        self._judge = judge
        self._owner = owner
        self._limits = limits
        self._log = log
        self._app: ASGIApp | None = None
        self._context = WorkerContext(None)
        self._config = _config(limits, log)
        self._stopping = trio.Event()
        self._ended = trio.Event()

    async def run(
        self, provide: Callable[[], Awaitable[ASGIApp]] | None, ready: Callable[["Plain"], None]
    ) -> None:
        """Fetch and start the app, call ``ready``, keep its lifespan until cancelled."""
        try:
            self._app = await provide() if provide is not None else None
        except (Exception, SystemExit):
            self._log.exception("http app could not be made")
        async with trio.open_nursery() as nursery:
            if self._app is not None:
                started = trio.Event()
                nursery.start_soon(self._live, self._app, started)
                with trio.move_on_after(self._limits.http_ready):
                    await started.wait()
            else:
                self._ended.set()
            ready(self)
            await trio.sleep_forever()

    async def end_idle(self) -> None:
        """Close connections between two requests, and the others after their answer."""
        await self._context.terminated.set()

    async def stop(self) -> None:
        """Let the app shut down, within ``http_grace``."""
        self._stopping.set()
        with trio.move_on_after(self._limits.http_grace):
            await self._ended.wait()

    async def converse(self, stream: trio.SocketStream, early: bytes, slots: Slots) -> None:
        """Serve one connection to its end; ``early`` was read from it before."""
        duck: Any = _Stream(stream, early, self._limits.write_deadline, slots)

        async def app(scope: Any, receive: Any, send: Any) -> None:
            try:
                await self._answer(scope, receive, _honest(send, duck))
            except* _Gone:
                pass  # an app may well stop by letting this through

        await _Connection(ASGIWrapper(app), self._config, self._context, {}, duck)

    async def _live(self, app: ASGIApp, started: trio.Event) -> None:
        events = iter(("lifespan.startup", "lifespan.shutdown"))

        async def receive() -> Scope:
            if started.is_set():
                await self._stopping.wait()
            return {"type": next(events, "lifespan.shutdown")}

        async def send(message: Scope) -> None:
            if message["type"] == "lifespan.startup.failed":
                self._app = None
                self._log.warning("http app did not start", reason=message.get("message", ""))
            (started if message["type"].startswith("lifespan.startup") else self._ended).set()

        scope: Scope = {"type": "lifespan", "asgi": {"spec_version": "2.0", "version": "3.0"}, "state": {}}
        try:
            await app(scope, receive, send)
        except* (Exception, SystemExit):
            # Raising on this scope is how an app says that it has no lifespan.
            if started.is_set():
                self._log.exception("http app failed in its lifespan")
        finally:
            started.set()
            self._ended.set()

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI app hypercorn sees: guard, mounts, then the app."""
        target = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
        request = Request.read(scope["method"], target.decode("ascii"), list(scope["headers"]), scope["client"])
        app = self._owner(request.path) or self._app
        if refusal := self._judge(request) or self._unfit(request):
            await _refuse(send, refusal)
        elif app is None:
            await _refuse(send, Refusal(404, f"Nothing is served on {request.path}."))
        else:
            body = _Body(receive, self._limits)
            await app({**scope, "path": request.path}, body.receive, send)

    def _unfit(self, request: Request) -> Refusal | None:
        length = request.header("content-length") or "0"
        if length.isdigit() and int(length) > self._limits.max_body:
            return Refusal(413, f"A request body is at most {self._limits.max_body} bytes.")
        return None


async def _refuse(send: Send, refusal: Refusal) -> None:
    await send({"type": "http.response.start", "status": refusal.status, "headers": refusal.fields()})
    await send({"type": "http.response.body", "body": refusal.body()})


class _Gone(OSError):
    """What ASGI lets a server raise when an app sends to a client that left."""


def _honest(send: Send, stream: "_Stream") -> Send:
    async def honest(message: Scope) -> None:
        # hypercorn's send to a peer that is gone does nothing and does not even yield: an app
        # that streams without looking would freeze every other task, or spin for ever.
        if stream.gone:
            raise _Gone("the client is gone")
        with trio.CancelScope(shield=True):
            # The last message ends the request, of which hypercorn tells the app; Quart then cancels its own
            # send, and the rest of it, which closes the connection or starts the idle time, would never be
            # done. Nothing in it waits for longer than the write deadline.
            await send(message)
        await trio.lowlevel.checkpoint()

    return honest


class _Body:
    """``receive`` with the two bounds hypercorn lacks: bytes of a body and the wait for them.

    Beyond either the app is told that the client went away, which every app has to expect.
    """

    def __init__(self, receive: Receive, limits: Limits) -> None:
        self._receive = receive
        self._left = limits.max_body
        self._timeout = limits.body_timeout
        self._whole = False

    async def receive(self) -> Scope:
        if self._whole:
            return await self._receive()  # waits for the disconnect, as long as that takes
        with trio.move_on_after(self._timeout):
            message = await self._receive()
            self._left -= len(message.get("body", b""))
            self._whole = not message.get("more_body", False)
            if self._left >= 0:
                return message
        self._left = -1
        return {"type": "http.disconnect"}


class _Stream:
    """What hypercorn needs of a stream. It may think it closed it; the listener really does."""

    def __init__(self, stream: trio.SocketStream, early: bytes, write_deadline: float, slots: Slots) -> None:
        self.socket = stream.socket
        self.slots = slots
        self.gone = False
        self._stream = stream
        self._early = early
        self._write_deadline = write_deadline
        self._reading = trio.CancelScope()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        if self._early:
            early, self._early = self._early, b""
            return early
        with trio.CancelScope() as self._reading:
            if not self.gone:
                try:
                    return await self._stream.receive_some(max_bytes)
                except trio.BrokenResourceError:
                    self.gone = True
                    raise
        raise trio.ClosedResourceError("closed by this side")

    async def send_all(self, data: bytes) -> None:
        # A scope of our own: hypercorn shields this call, so none around it would fire.
        try:
            if self.gone:
                raise trio.ClosedResourceError
            with trio.fail_after(self._write_deadline):
                await self._stream.send_all(data)
        except (trio.TooSlowError, trio.BrokenResourceError, trio.ClosedResourceError) as error:
            self._leave()
            raise trio.BrokenResourceError("the client stopped reading or left") from error

    def may_answer(self) -> bool:
        return self.slots.answer(self._stream)

    def rests(self) -> None:
        self.slots.rest(self._stream)

    async def send_eof(self) -> None:
        # Left to the listener: here it could collide with an app that is still sending.
        await trio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        self._leave()
        await trio.lowlevel.checkpoint()

    def _leave(self) -> None:
        self.gone = True
        self._reading.cancel()


class _Unspoken(Exception):
    """A request for a protocol that is not served on this connection."""


class _Http11(H11Protocol):
    """Hypercorn's HTTP/1.1 without the doors to its other protocols."""

    may_answer: Callable[[], bool]

    async def _check_protocol(self, event: h11.Request) -> None:
        # Answered here, not by the app: h11 holds back what follows an offer to switch.
        if event.http_version not in (b"1.0", b"1.1"):
            await self._hang_up(505)
        if any(name == b"sec-websocket-key" for name, _ in event.headers):
            await self._hang_up(400)
        if not self.may_answer():
            await self._hang_up(503)
        if {b"content-length", b"transfer-encoding"} <= {name for name, _ in event.headers}:
            # Somebody on the way may have believed the other one (RFC 9112 section 6.1): what comes after this
            # request need not be a request. This is how hypercorn is told that an answer is the last one.
            self.keep_alive_requests = self.config.keep_alive_max_requests

    async def _hang_up(self, status: int) -> NoReturn:
        await self._send_error_response(status)
        raise _Unspoken  # returning would let hypercorn read on, and wait for ever

    async def _create_stream(self, request: h11.Request) -> None:
        fields = [field for field in request.headers.raw_items() if field[0].lower() != b"upgrade"]
        bare = h11.Request(
            method=request.method,
            target=request.target,
            headers=fields,
            http_version=request.http_version,
        )
        await super()._create_stream(bare)


class _Tasks(TaskGroup):
    """Hypercorn's tasks, with an end to the queue between a connection and its app.

    Hypercorn waits for a place in that queue even when nobody takes anything out of it any more: the app that
    answered without reading the body, or the one that is told, in its own last send, that it is done.
    """

    async def spawn_app(self, app: Any, config: Config, scope: Any, send: Any) -> Callable[[Any], Awaitable[None]]:
        give, take = trio.open_memory_channel[Any](config.max_app_queue_size)

        async def put(event: Any) -> None:
            if event["type"] == "http.disconnect":
                give.close()
                return
            try:
                await give.send(event)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                pass  # nobody wants it any more

        async def receive() -> Any:
            try:
                return await take.receive()
            except trio.EndOfChannel:
                return {"type": "http.disconnect"}

        async def run() -> None:
            with take:
                await run_app(app, config, scope, receive, send, trio.to_thread.run_sync, trio.from_thread.run)

        self.spawn(run)
        return put


class _Connection(TCPServer):
    async def protocol_send(self, event: Any) -> None:
        if isinstance(event, Updated) and event.idle:
            self.stream.rests()
        await super().protocol_send(event)

    async def run(self) -> None:
        sock = self.stream.socket
        try:
            peer = parse_socket_addr(sock.family, sock.getpeername())
            here = parse_socket_addr(sock.family, sock.getsockname())
            async with _Tasks() as self._task_group:
                protocol: Any = _Http11(
                    self.app,
                    self.config,
                    self.context,
                    self._task_group,
                    ConnectionState(self.state),
                    False,
                    peer,
                    here,
                    self.protocol_send,
                )
                protocol.may_answer = self.stream.may_answer
                self.protocol = protocol
                await self.idle_task.restart(self._task_group, self._idle_timeout)
                await self._read_data()
                await self.idle_task.stop()  # else one that left is kept for as long as one that may come back
        except* (OSError, _Unspoken):
            pass
        finally:
            self.stream.rests()
            await self._close()


def _config(limits: Limits, log: Log) -> Config:
    config = Config()
    config._log = _HypercornLog(log)
    config.keep_alive_timeout = limits.http_idle
    config.keep_alive_max_requests = 1 << 62  # the default closes after a thousand
    config.h11_max_incomplete_size = limits.head_bytes
    config.include_server_header = False
    return config


class _HypercornLog(Logger):
    """Hypercorn's asynchronous logger, in our words; its access log is not wanted."""

    def __init__(self, log: Log) -> None:
        self._log = log

    async def exception(self, message: str, *args: Any, **fields: Any) -> None:
        self._log.exception("http app failed", detail=message)

    async def _ignore(self, *args: Any, **fields: Any) -> None: ...

    access = critical = error = warning = info = debug = log = _ignore
