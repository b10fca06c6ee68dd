"""One port for both: WebSockets beside plain HTTP, guards, mounts, and how it all stops."""

import errno
import json
import resource
from typing import Any, cast

import pytest
import trio
from ahpd.wire.limits import Limits, raise_descriptor_limit
from ahpd.wire.listener import Listener
from ahpd.wire.request import ASGIApp, Receive, Refusal, Request, Scope, Send
from ahpd.wire.websocket import WebSocket
from trio.testing import MockClock, wait_all_tasks_blocked

from .conftest import TEXT, UPGRADE, Daemon, Log, Peer, Serve, echo, message_of


async def mount(scope: Scope, receive: Receive, send: Send) -> None:
    """A raw app that echoes a body and says which path it saw."""
    assert scope["type"] == "http"
    body = b""
    while (message := await receive())["type"] == "http.request":
        body += message["body"]
        if not message["more_body"]:
            break
    else:
        return
    answer = scope["path"].encode() + b" " + body
    headers = [(b"content-length", str(len(answer)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": answer})


async def quart() -> ASGIApp:
    from quart_trio import QuartTrio

    app: Any = QuartTrio("ahpd.tests")

    @app.get("/api/hello")
    async def hello() -> dict[str, str]:
        return {"hello": "world"}

    @app.get("/api/broken")
    async def broken() -> None:
        raise RuntimeError("on purpose")

    made: ASGIApp = app
    return made


async def ask(
    peer: Peer, path: str, *, method: str = "GET", body: bytes = b""
) -> tuple[int, dict[str, str], bytes]:
    head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    await peer.send(head.encode() + body)
    return await peer.answer()


async def test_one_port_serves_websockets_an_app_and_mounts(serve: Serve) -> None:
    daemon = await serve(http_app=quart, http_paths=["/api"], mounts={"/mcp": mount})
    await daemon.still_serves()
    status, _, body = await daemon.get("/api/hello")
    assert (status, json.loads(body)) == (200, {"hello": "world"})
    assert (await daemon.get("/mcp/deep?x=1"))[2] == b"/mcp/deep "
    assert (await daemon.get("/nowhere"))[0] == 404
    await daemon.still_serves()


async def test_a_route_that_breaks_is_answered_500(serve: Serve) -> None:
    daemon = await serve(http_app=quart)
    assert (await daemon.get("/api/broken"))[0] == 500
    await daemon.still_serves()


async def test_a_connection_is_kept_for_many_requests(serve: Serve) -> None:
    daemon = await serve(mounts={"/mcp": mount})
    peer = await daemon.dial()
    for number in range(1100):  # hypercorn's own default ends at a thousand
        body = b"%d" % number
        assert (await ask(peer, "/mcp", method="POST", body=body))[2] == b"/mcp " + body


async def test_pipelined_requests_are_answered_in_order(serve: Serve) -> None:
    daemon = await serve(mounts={"/mcp": mount})
    peer = await daemon.dial()
    await peer.send(b"".join(b"GET /mcp/%d HTTP/1.1\r\nHost: x\r\n\r\n" % number for number in range(20)))
    assert [(await peer.answer())[2] for _ in range(20)] == [b"/mcp/%d " % number for number in range(20)]


async def test_the_longest_mount_wins_by_whole_segments_and_may_come_and_go(serve: Serve) -> None:
    async def other(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    mounts: dict[str, ASGIApp] = {"/mcp": mount, "/mcp/inner": other}
    daemon = await serve(mounts=mounts)
    assert (await daemon.get("/mcp"))[0] == 200
    assert (await daemon.get("/mcp/inner/x"))[0] == 204
    assert (await daemon.get("/mcp/innermost"))[0] == 200
    assert (await daemon.get("/mcp%2Finner"))[0] == 204
    assert (await daemon.get("/mcpx"))[0] == 404
    del mounts["/mcp"]
    assert (await daemon.get("/mcp"))[0] == 404


@pytest.mark.parametrize("path", ["/mcp", "/mcp/x", "/api", "/api/hello"])
async def test_a_websocket_is_not_opened_where_http_lives(serve: Serve, path: str) -> None:
    daemon = await serve(mounts={"/mcp": mount}, http_paths=["/api"])
    peer = await daemon.dial()
    await peer.send(UPGRADE.replace(b"GET /", b"GET " + path.encode()) + b"\r\n")
    status, _, body = await peer.answer()
    assert (status, message_of(body)) == (404, f"No WebSocket is served on {path}.")


@pytest.mark.parametrize(
    ("second", "status"),
    [
        (UPGRADE + b"\r\n", 400),
        (UPGRADE + b"Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits=abc\r\n\r\n", 400),
        (UPGRADE + b"\r\nearly bytes", 400),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
        (
            b"GET /mcp HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMA\r\n\r\n",
            200,
        ),
        (b"\x00\x01\x02\r\n\r\n", 400),
        (b"GET /mcp HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 70_000, 431),
    ],
)
async def test_a_later_request_opens_no_other_protocol(serve: Serve, second: bytes, status: int) -> None:
    daemon = await serve(mounts={"/mcp": mount})
    peer = await daemon.dial()
    assert (await ask(peer, "/mcp"))[0] == 200
    await peer.send(second)
    assert (await peer.answer())[0] == status
    await daemon.still_serves()


# Guards


def guard(request: Request) -> Refusal | None:
    if (request.header("origin") or "").startswith("http://evil"):
        return Refusal(403, "This origin is not allowed.")
    if request.query.get("tkn") == "right" or request.header("Authorization") == "Bearer right":
        return None
    return Refusal(401, "A token is needed.", (("WWW-Authenticate", "Bearer"),))


@pytest.mark.parametrize(
    ("target", "line", "status"),
    [
        ("/mcp", b"", 401),
        ("/mcp?tkn=wrong", b"", 401),
        ("/mcp?tkn=right", b"", 200),
        ("/mcp", b"authorization: Bearer right\r\n", 200),
        ("/mcp?tkn=right", b"Origin: http://evil.example\r\n", 403),
        ("/?tkn=wrong", b"ws", 401),
        ("/", b"ws", 401),
        ("/?tkn=right", b"ws", 101),
        ("/any/path?a=b&tkn=right", b"ws", 101),
        ("/?tkn=right", b"wsOrigin: http://evil.example\r\n", 403),
    ],
)
async def test_the_guard_stands_before_both_doors(serve: Serve, target: str, line: bytes, status: int) -> None:
    daemon = await serve(guard=guard, mounts={"/mcp": mount})
    peer = await daemon.dial()
    head = f"GET {target} HTTP/1.1\r\n".encode()
    upgrade = line.startswith(b"ws")
    rest = UPGRADE.partition(b"\r\n")[2] if upgrade else b"Host: x\r\n"
    await peer.send(head + rest + line.removeprefix(b"ws") + b"\r\n")
    got, fields = await peer.head()
    assert got == status
    if status in (401, 403):
        body = await peer.take(int(fields["content-length"]))
        assert message_of(body) in ("A token is needed.", "This origin is not allowed.")
        assert fields["connection"] == "close"
        assert ("www-authenticate" in fields) == (status == 401)
        assert await peer.rest() == b""


@pytest.mark.parametrize("upgrade", [False, True])
async def test_a_guard_that_breaks_refuses(serve: Serve, upgrade: bool) -> None:
    def broken(request: Request) -> Refusal | None:
        raise RuntimeError("on purpose")

    daemon = await serve(guard=broken, mounts={"/mcp": mount})
    peer = await daemon.dial()
    await peer.send((UPGRADE if upgrade else b"GET /mcp HTTP/1.1\r\nHost: x\r\n") + b"\r\n")
    status, _, body = await peer.answer()
    assert (status, message_of(body)) == (500, "The request could not be checked.")
    assert daemon.log.lines == [("exception", "guard failed")]


async def test_the_application_sees_the_request(serve: Serve) -> None:
    seen: list[Request] = []

    async def sees(websocket: WebSocket, request: Request) -> None:
        seen.append(request)

    daemon = await serve(sees)
    head = UPGRADE.replace(b"GET /", b"GET /a%20b?tkn=x%26y&empty=")
    peer = await daemon.open(head=head + b"X-Two: 1\r\nX-Two: 2\r\n")
    assert await peer.closed_with() == 1000
    (request,) = seen
    assert (request.method, request.path) == ("GET", "/a b")
    assert request.query == {"tkn": "x&y", "empty": ""}
    assert request.header("x-two") == "1, 2"
    assert request.header("absent") is None
    assert request.peer is not None
    assert request.peer[0] == "127.0.0.1"


# What hypercorn leaves to others


async def test_a_body_above_the_bound_is_refused_or_cut(serve: Serve) -> None:
    daemon = await serve(mounts={"/mcp": mount}, limits=Limits(max_body=1000, close_wait=0.2))
    status, _, body = await ask(await daemon.dial(), "/mcp", method="POST", body=b"x" * 1001)
    assert (status, message_of(body)) == (413, "A request body is at most 1000 bytes.")
    peer = await daemon.dial()
    chunk = b"1f4\r\n" + b"x" * 500 + b"\r\n"
    await peer.send(b"POST /mcp HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk * 3)
    assert (await peer.answer())[0] == 500
    await daemon.still_serves()


async def test_a_body_that_never_comes_is_given_up(serve: Serve) -> None:
    daemon = await serve(mounts={"/mcp": mount}, limits=Limits(body_timeout=0.05, close_wait=0.2))
    peer = await daemon.dial()
    await peer.send(b"POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc")
    assert (await peer.answer())[0] == 500
    await daemon.still_serves()


class Stream:
    """A raw app that streams for ever and never looks whether anybody is there."""

    def __init__(self) -> None:
        self.ended = trio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            while True:
                await send({"type": "http.response.body", "body": b"x" * 60_000, "more_body": True})
        finally:
            self.ended.set()


async def test_a_client_that_stops_reading_http_blocks_nobody_and_is_dropped(serve: Serve) -> None:
    app = Stream()
    daemon = await serve(mounts={"/stream": app}, limits=Limits(write_deadline=0.2, close_wait=0.2))
    peer = await daemon.dial(receive_buffer=4096)
    await peer.send(b"GET /stream HTTP/1.1\r\nHost: x\r\n\r\n")
    assert (await peer.head())[0] == 200
    await daemon.still_serves()
    with trio.fail_after(5):
        await app.ended.wait()
        while daemon.listener.connected > 1:
            await trio.lowlevel.checkpoint()
    await daemon.still_serves()


async def test_an_app_that_streams_to_nobody_does_not_freeze_the_others(serve: Serve) -> None:
    app = Stream()
    daemon = await serve(mounts={"/stream": app})
    peer = await daemon.dial()
    await peer.send(b"GET /stream HTTP/1.1\r\nHost: x\r\n\r\n")
    await peer.head()
    peer.reset()
    await daemon.still_serves()
    with trio.fail_after(5):
        await app.ended.wait()


async def test_a_mount_that_breaks_is_answered_500(serve: Serve) -> None:
    async def breaks(scope: Scope, receive: Receive, send: Send) -> None:
        raise SystemExit(3) if scope["path"] == "/bad/exit" else RuntimeError("on purpose")

    daemon = await serve(mounts={"/bad": breaks})
    assert (await daemon.get("/bad"))[0] == 500
    assert daemon.log.lines == [("exception", "http app failed")]
    assert (await daemon.get("/bad/exit"))[0] == 500
    daemon.log.lines.clear()
    await daemon.still_serves()


# Connections that are over


async def ends(daemon: Daemon) -> None:
    """Wait until no connection is left."""
    with trio.fail_after(5):
        while daemon.listener.connected:
            await trio.lowlevel.checkpoint()


@pytest.mark.parametrize("path", ["/nowhere", "/api/hello", "/mcp"])
@pytest.mark.parametrize(
    "head",
    [
        b"GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        b"GET %s HTTP/1.0\r\n\r\n",
        b"GET %s HTTP/1.1\r\nHost: x\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ],
    ids=["close", "1.0", "two lengths"],
)
async def test_a_connection_is_closed_after_its_last_answer(serve: Serve, path: str, head: bytes) -> None:
    daemon = await serve(http_app=quart, mounts={"/mcp": mount})
    peer = await daemon.dial()
    await peer.send(head % path.encode())
    status, fields, _ = await peer.answer()
    assert (status, fields["connection"]) == (404 if path == "/nowhere" else 200, "close")
    assert await peer.rest() == b""


@pytest.mark.parametrize("path", ["/nowhere", "/api/hello", "/mcp"])
async def test_a_connection_that_is_idle_is_closed(serve: Serve, path: str) -> None:
    daemon = await serve(http_app=quart, mounts={"/mcp": mount}, limits=Limits(http_idle=0.05))
    peer = await daemon.dial()
    await ask(peer, path)
    assert await peer.rest() == b""


async def test_a_client_that_leaves_between_two_requests_is_forgotten_at_once(serve: Serve) -> None:
    daemon = await serve(mounts={"/mcp": mount}, limits=Limits())
    peer = await daemon.dial()
    await ask(peer, "/mcp")
    await wait_all_tasks_blocked()
    await peer.stream.aclose()
    await ends(daemon)


@pytest.mark.parametrize("path", ["/nowhere", "/api/hello", "/deaf"])
async def test_a_body_that_no_app_reads_holds_nothing_up(serve: Serve, path: str) -> None:
    async def deaf(scope: Scope, receive: Receive, send: Send) -> None:
        await wait_all_tasks_blocked()  # until nothing more fits between it and the connection
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})

    daemon = await serve(http_app=quart, mounts={"/deaf": deaf})
    peer = await daemon.dial()
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    await peer.send(head + b"1\r\nx\r\n" * 100)
    await peer.answer()
    assert await peer.rest() == b""
    await peer.stream.aclose()
    await ends(daemon)


# Room for those who were let in


async def test_connections_that_say_nothing_make_room(serve: Serve) -> None:
    daemon = await serve(limits=Limits(connections=5, http_requests=2), mounts={"/mcp": mount})
    silent, idle = await daemon.dial(), await daemon.dial()
    await ask(idle, "/mcp")
    peers = [await daemon.open() for _ in range(5)]
    assert (await silent.rest(), await idle.rest()) == (b"", b"")
    for peer in peers:
        await peer.frame(TEXT, b"x")
        assert await peer.read_frame() == (TEXT, b"x")
    status, _, _ = await (await daemon.dial()).answer()
    assert status == 503


async def test_requests_that_are_never_done_leave_room_for_websockets(serve: Serve) -> None:
    daemon = await serve(limits=Limits(connections=5, http_requests=2), mounts={"/mcp": mount})
    slow = [await daemon.dial() for _ in range(4)]
    for peer in slow:
        await peer.send(b"POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n")
        await wait_all_tasks_blocked()
    statuses = [(await peer.answer())[0] for peer in slow[2:]]
    await slow[0].send(b"abc")
    assert (statuses, (await slow[0].answer())[2]) == ([503, 503], b"/mcp abc")
    await daemon.still_serves()


class Full:
    """A port of a process that has no descriptor left, for a while."""

    def __init__(self, times: int) -> None:
        self.times = times
        self.accepting = trio.Event()

    async def accept(self) -> trio.SocketStream:
        await trio.lowlevel.checkpoint()
        if self.times:
            self.times -= 1
            raise OSError(errno.EMFILE, "Too many open files")
        self.accepting.set()
        await trio.sleep_forever()
        raise AssertionError

    async def __aenter__(self) -> None: ...

    async def __aexit__(self, *args: object) -> None: ...


async def test_a_process_without_descriptors_says_so_now_and_then_and_goes_on(autojump_clock: MockClock) -> None:
    log, full = Log(), Full(times=1000)
    listener = Listener(on_websocket=echo, log=log)
    listener._listeners = cast(list[trio.SocketListener], [full])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(listener.serve)
        await full.accepting.wait()
        nursery.cancel_scope.cancel()
    assert log.lines == [("warning", "no connection can be accepted for now")] * 2


def test_places_are_fewer_than_descriptors() -> None:
    few, usual, many = (Limits().within(count) for count in (256, 1024, 65536))
    assert (few.connections, few.http_requests) == (128, 64)
    assert (usual.connections, usual.http_requests) == (512, 256)
    assert (many.connections, many.http_requests) == (2000, 1000)


def test_as_many_descriptors_are_taken_as_are_allowed() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, before[1]))
    try:
        taken = raise_descriptor_limit()
        assert taken == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        assert taken >= min(before[1] if before[1] > 0 else 1024, 1024)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


# The app comes late


async def test_websockets_are_served_while_http_is_still_being_made(serve: Serve) -> None:
    go = trio.Event()

    async def late() -> ASGIApp:
        await go.wait()
        return mount

    daemon = await serve(http_app=late)
    peer = await daemon.dial()
    await peer.send(b"GET /late HTTP/1.1\r\nHost: x\r\n\r\n")
    await daemon.still_serves()
    go.set()
    assert (await peer.answer())[2] == b"/late "


async def test_http_that_is_never_made_is_answered_503(serve: Serve) -> None:
    async def never() -> ASGIApp:
        await trio.sleep_forever()
        raise AssertionError

    daemon = await serve(http_app=never, limits=Limits(http_ready=0.05))
    assert (await daemon.get("/x"))[0] == 503
    await daemon.still_serves()


async def test_an_app_that_cannot_be_made_leaves_mounts_and_websockets(serve: Serve) -> None:
    async def fails() -> ASGIApp:
        raise RuntimeError("on purpose")

    daemon = await serve(http_app=fails, mounts={"/mcp": mount})
    assert (await daemon.get("/mcp"))[0] == 200
    assert (await daemon.get("/x"))[0] == 404
    assert daemon.log.lines == [("exception", "http app could not be made")]
    daemon.log.lines.clear()
    await daemon.still_serves()


class Lifespan:
    """An app whose lifespan goes wrong in a chosen way."""

    def __init__(self, way: str) -> None:
        self.way = way
        self.events: list[str] = []

    async def make(self) -> ASGIApp:
        return self

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            await mount(scope, receive, send)
            return
        if self.way == "returns":
            return
        if self.way == "raises":
            raise RuntimeError("no lifespan here")
        self.events.append((await receive())["type"])
        if self.way == "fails":
            await send({"type": "lifespan.startup.failed", "message": "on purpose"})
            return
        await send({"type": "lifespan.startup.complete"})
        if self.way == "breaks later":
            raise RuntimeError("on purpose")
        self.events.append((await receive())["type"])
        await send({"type": "lifespan.shutdown.complete"})


@pytest.mark.parametrize(
    ("way", "status"),
    [("good", 200), ("returns", 200), ("raises", 200), ("fails", 404), ("breaks later", 200)],
)
async def test_a_lifespan_may_go_wrong(serve: Serve, way: str, status: int) -> None:
    app = Lifespan(way)
    daemon = await serve(http_app=app.make)
    assert (await daemon.get("/x"))[0] == status
    daemon.log.lines.clear()
    await daemon.still_serves()
    with trio.fail_after(5):
        await daemon.listener.stop()
    assert app.events == {
        "good": ["lifespan.startup", "lifespan.shutdown"],
        "fails": ["lifespan.startup"],
        "breaks later": ["lifespan.startup"],
    }.get(way, [])


# Stopping


async def test_stopping_says_1001_to_websockets_and_closes_idle_http(serve: Serve) -> None:
    daemon = await serve(mounts={"/mcp": mount}, limits=Limits())
    websocket, http = await daemon.open(), await daemon.dial()
    assert (await ask(http, "/mcp"))[0] == 200
    async with trio.open_nursery() as nursery:
        nursery.start_soon(daemon.listener.stop)
        assert await websocket.closed_with() == 1001
        await websocket.frame(8, b"\x03\xe9")
        assert await websocket.rest() == b""
        assert await http.rest() == b""
    with pytest.raises(OSError):
        await daemon.dial()


async def test_a_request_in_flight_is_answered_while_stopping(serve: Serve) -> None:
    entered, go = trio.Event(), trio.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        entered.set()
        await go.wait()
        await mount(scope, receive, send)

    daemon = await serve(mounts={"/slow": slow})
    peer = await daemon.dial()
    await peer.send(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
    await entered.wait()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(daemon.listener.stop)
        await wait_all_tasks_blocked()
        go.set()
        assert (await peer.answer())[2] == b"/slow "


async def test_nobody_can_hold_up_the_stop(serve: Serve) -> None:
    async def deaf(websocket: WebSocket, request: Request) -> None:
        await trio.sleep_forever()

    daemon = await serve(deaf, Limits(close_wait=0.1, http_grace=0.1), mounts={"/stream": Stream()})
    await daemon.open()
    stuck = await daemon.dial(receive_buffer=4096)
    await stuck.send(b"GET /stream HTTP/1.1\r\nHost: x\r\n\r\n")
    await stuck.head()
    half = await daemon.dial()
    await half.send(b"GET /")
    with trio.fail_after(2):
        await daemon.listener.stop()
    assert daemon.listener.connected == 0


async def test_cancelling_instead_of_stopping_still_says_1001(serve: Serve) -> None:
    daemon = await serve(mounts={"/stream": Stream()})
    peer = await daemon.open()
    await peer.frame(TEXT, b"x")
    assert await peer.read_frame() == (TEXT, b"x")
    stuck = await daemon.dial(receive_buffer=4096)
    await stuck.send(b"GET /stream HTTP/1.1\r\nHost: x\r\n\r\n")
    await stuck.head()
    daemon.scope.cancel()
    assert await peer.closed_with() == 1001
