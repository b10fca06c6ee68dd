"""No byte sequence, from nobody in particular, may end the daemon or trouble another client."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from struct import pack

import pytest
import trio
from ahpd.wire.limits import Limits
from ahpd.wire.request import Request
from ahpd.wire.websocket import WebSocket

from .conftest import CONTINUATION, TEXT, UPGRADE, Daemon, Gone, Peer, Serve, client_frame, echo, message_of

END = b"\r\n\r\n"
KEY = b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"

HEADS: dict[str, tuple[bytes, int]] = {
    "no key": (UPGRADE.replace(KEY, b"") + b"\r\n", 400),
    "empty key": (UPGRADE.replace(KEY, b"Sec-WebSocket-Key: \r\n") + b"\r\n", 400),
    "short key": (UPGRADE.replace(KEY, b"Sec-WebSocket-Key: YWJj\r\n") + b"\r\n", 400),
    "key not base64": (UPGRADE.replace(KEY, b"Sec-WebSocket-Key: !!!!\r\n") + b"\r\n", 400),
    "key not ASCII": (UPGRADE.replace(KEY, b"Sec-WebSocket-Key: \xff\xfe\r\n") + b"\r\n", 400),
    "two keys": (UPGRADE + KEY + b"\r\n", 400),
    "version 8": (UPGRADE.replace(b"Version: 13", b"Version: 8") + b"\r\n", 426),
    "version words": (UPGRADE.replace(b"Version: 13", b"Version: new") + b"\r\n", 426),
    "no version": (UPGRADE.replace(b"Sec-WebSocket-Version: 13\r\n", b"") + b"\r\n", 426),
    "POST": (UPGRADE.replace(b"GET", b"POST") + b"\r\n", 400),
    "HTTP/1.0": (UPGRADE.replace(b"HTTP/1.1", b"HTTP/1.0") + b"\r\n", 400),
    "no Connection": (UPGRADE.replace(b"Connection: Upgrade\r\n", b"") + b"\r\n", 400),
    "Connection: close": (UPGRADE.replace(b"Connection: Upgrade", b"Connection: close") + b"\r\n", 400),
    "no Host": (UPGRADE.replace(b"Host: localhost\r\n", b"") + b"\r\n", 400),
    "two Hosts": (UPGRADE + b"Host: other\r\n\r\n", 400),
    "a body": (UPGRADE + b"Content-Length: 3\r\n\r\nabc", 400),
    "a chunked body": (UPGRADE + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    "HTTP/2 preface": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00", 505),
    "HTTP/3": (b"GET / HTTP/3.0\r\nHost: x\r\n\r\n", 505),
    "no version at all": (b"GET /\r\n\r\n", 400),
    "garbage": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + END, 400),
    "TLS hello": (b"\x16\x03\x01\x00\x05hello\r\n\r\n", 400),
    "zero bytes": (b"\x00" * 40 + END, 400),
    "header without colon": (b"GET / HTTP/1.1\r\nHost x\r\n\r\n", 400),
    "header name with space": (b"GET / HTTP/1.1\r\nHost: x\r\nA B: c\r\n\r\n", 400),
    "folded first header": (b"GET / HTTP/1.1\r\n folded\r\nHost: x\r\n\r\n", 400),
    "header with NUL": (b"GET / HTTP/1.1\r\nHost: x\r\nA: b\x00c\r\n\r\n", 400),
    "two lengths": (b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
    "length not a number": (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: ten\r\n\r\n", 400),
    "negative length": (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", 400),
    "unknown coding": (b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: rot13\r\n\r\n", 501),
    "head too large": (b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 20_000 + END, 431),
    "target too large": (b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: x" + END, 431),
    "non-ASCII target": (b"GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "huge body announced": (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n", 413),
    "bad percent escape": (b"GET /%zz%c3 HTTP/1.1\r\nHost: x\r\n\r\n", 404),
    "star": (b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", 404),
    "absolute form": (b"GET http://[x/ HTTP/1.1\r\nHost: x\r\n\r\n", 404),
    "connect": (b"CONNECT a:1 HTTP/1.1\r\nHost: x\r\n\r\n", 404),
    "h2c": (
        b"GET /x HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
        b"HTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n",
        404,
    ),
    "upgrade to something else": (
        b"GET /x HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: foo\r\n\r\n",
        404,
    ),
}


@pytest.mark.parametrize("name", HEADS)
async def test_a_bad_head_is_answered_and_forgotten(daemon: Daemon, name: str) -> None:
    head, status = HEADS[name]
    peer = await daemon.dial()
    await peer.send(head)
    assert (await peer.answer())[0] == status
    await daemon.still_serves()


GOOD_BUT_ODD = {
    "deflate offered": b"Sec-WebSocket-Extensions: permessage-deflate\r\n",
    "deflate with nonsense": b"Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits=abc\r\n",
    "deflate with a huge window": b"Sec-WebSocket-Extensions: permessage-deflate; server_max_window_bits=99\r\n",
    "extensions of nothing": b"Sec-WebSocket-Extensions: ;;;,,,=\r\n",
    "subprotocols": b"Sec-WebSocket-Protocol: a, b\r\n",
    "subprotocol nonsense": b"Sec-WebSocket-Protocol: ,,\xff\r\n",
    "more tokens": b"Connection: keep-alive\r\n",
}


@pytest.mark.parametrize("name", GOOD_BUT_ODD)
async def test_an_odd_upgrade_is_taken_plainly(daemon: Daemon, name: str) -> None:
    peer = await daemon.dial()
    await peer.send(UPGRADE + GOOD_BUT_ODD[name] + b"\r\n")
    status, fields = await peer.head()
    assert status == 101
    assert "sec-websocket-extensions" not in fields
    assert "sec-websocket-protocol" not in fields
    await peer.frame(TEXT, b"hello")
    assert await peer.read_frame() == (TEXT, b"hello")
    await daemon.still_serves()


EARLY = {
    "one byte": client_frame(TEXT, b"x")[:1],
    "a frame": client_frame(TEXT, b"hello"),
    "half a frame": client_frame(TEXT, b"hello")[:4],
    "many frames": client_frame(TEXT, b"hello") * 50,
    "a large frame": client_frame(TEXT, b"x" * 100_000),
    "garbage": b"\xff" * 100,
    "a close": client_frame(8, b"\x03\xe8"),
    "a second request": UPGRADE + b"\r\n",
}


@pytest.mark.parametrize("name", EARLY)
async def test_bytes_glued_to_the_upgrade_do_no_harm(daemon: Daemon, name: str) -> None:
    peer = await daemon.open(early=EARLY[name])
    if name == "a frame":
        assert await peer.read_frame() == (TEXT, b"hello")
    await daemon.still_serves()


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"G",
        b"GET / HTTP/1.1\r\nHost:",
        UPGRADE,
        UPGRADE + b"\r\n",
        UPGRADE + b"\r\n\x81",
        b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc",
    ],
    ids=[
        "nothing",
        "a letter",
        "half a head",
        "a head less its blank line",
        "an upgrade",
        "half a frame",
        "half a body",
    ],
)
@pytest.mark.parametrize("end", ["reset", "close", "half"])
async def test_a_peer_may_leave_at_any_point(daemon: Daemon, sent: bytes, end: str) -> None:
    peer = await daemon.dial()
    if sent:
        await peer.send(sent)
    if end == "reset":
        peer.reset()
    elif end == "close":
        await peer.stream.aclose()
    else:
        await peer.stream.send_eof()
        await peer.rest()
    await daemon.still_serves()


async def test_a_head_that_never_ends_is_given_up(serve: Serve) -> None:
    daemon = await serve(limits=Limits(head_timeout=0.05))
    peer = await daemon.dial()
    await peer.send(b"GET / HTTP/1.1\r\n")
    assert (await peer.answer())[0] == 408
    await peer.rest()
    await daemon.still_serves()


async def test_a_message_above_the_bound_is_refused_with_1009(serve: Serve) -> None:
    daemon = await serve(limits=Limits(max_message=1000))
    peer = await daemon.open()
    await peer.frame(TEXT, b"x" * 1000)
    assert await peer.read_frame() == (TEXT, b"x" * 1000)
    await peer.frame(TEXT, b"x" * 1001)
    assert await peer.closed_with() == 1009
    await daemon.still_serves()


async def test_the_bound_counts_all_fragments_of_a_message(serve: Serve) -> None:
    daemon = await serve(limits=Limits(max_message=1000))
    peer = await daemon.open()
    await peer.frame(TEXT, b"x" * 600, fin=False)
    await peer.frame(CONTINUATION, b"x" * 600, fin=False)
    assert await peer.closed_with() == 1009


async def test_a_length_that_only_claims_to_be_huge_is_cut_at_the_bound(serve: Serve) -> None:
    daemon = await serve(limits=Limits(max_message=1000))
    peer = await daemon.open()
    await peer.send(pack("!BBQ4s", 0x81, 0x80 | 127, 1 << 62, b"abcd") + b"x" * 2000)
    assert await peer.closed_with() == 1009


async def test_no_more_connections_than_the_limit(serve: Serve) -> None:
    daemon = await serve(limits=Limits(connections=2))
    kept = [await daemon.open() for _ in range(2)]
    peer = await daemon.dial()
    status, _, body = await peer.answer()
    assert (status, message_of(body)) == (503, "Too many connections are open; try again later.")
    await peer.stream.aclose()
    await kept.pop().stream.aclose()
    await _until(lambda: _opens(daemon))


async def _opens(daemon: Daemon) -> bool:
    peer = await daemon.dial()
    try:
        await peer.send(UPGRADE + b"\r\n")
        return (await peer.head())[0] == 101
    except (Gone, trio.BrokenResourceError):
        return False
    finally:
        await peer.stream.aclose()


async def _until(check: Callable[[], Awaitable[bool]]) -> None:
    with trio.fail_after(5):
        while not await check():
            await trio.lowlevel.checkpoint()


@pytest.mark.parametrize("error", [RuntimeError, MemoryError, RecursionError, SystemExit, AssertionError])
async def test_an_application_that_breaks_is_closed_with_1011(serve: Serve, error: type[BaseException]) -> None:
    async def breaks(websocket: WebSocket, request: Request) -> None:
        if request.path != "/bad":
            await echo(websocket, request)
        await websocket.receive()
        raise error("on purpose")

    daemon = await serve(breaks)
    peer = await daemon.open(head=UPGRADE.replace(b"GET /", b"GET /bad"))
    await peer.frame(TEXT, b"go")
    assert await peer.closed_with() == 1011
    assert daemon.log.lines == [("exception", "application failed")]
    daemon.log.lines.clear()
    await daemon.still_serves()


async def test_an_application_that_breaks_in_a_group_is_closed_with_1011(serve: Serve) -> None:
    async def breaks(websocket: WebSocket, request: Request) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(websocket.receive)
            raise RuntimeError("on purpose")

    daemon = await serve(breaks)
    assert await (await daemon.open()).closed_with() == 1011


async def test_an_application_that_returns_closes_normally(serve: Serve) -> None:
    async def short(websocket: WebSocket, request: Request) -> None:
        websocket.send(b"bye")

    daemon = await serve(short)
    peer = await daemon.open()
    assert await peer.read_frame() == (TEXT, b"bye")
    assert await peer.closed_with() == 1000


async def test_the_application_sees_the_end_as_closed(serve: Serve) -> None:
    ends: list[tuple[int, str]] = []
    ended = trio.Event()

    async def watches(websocket: WebSocket, request: Request) -> None:
        try:
            await echo(websocket, request)
        finally:
            assert websocket.ended is not None
            ends.append((websocket.ended.code, websocket.ended.reason))
            ended.set()

    daemon = await serve(watches, replace(Limits(), close_wait=0.2))
    for leave, expected in ((_leaves, (4321, "enough")), (_vanishes, (1006, "connection lost"))):
        ended = trio.Event()
        await leave(await daemon.open())
        with trio.fail_after(5):
            await ended.wait()
        assert ends[-1] == expected


async def _leaves(peer: Peer) -> None:
    await peer.frame(8, pack("!H", 4321) + b"enough")


async def _vanishes(peer: Peer) -> None:
    peer.reset()
