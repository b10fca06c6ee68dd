"""A client that does not read costs itself and nobody else, and its frame stream stays whole."""

import os
from collections.abc import AsyncIterator

import pytest
import trio
from ahpd.wire import frames
from ahpd.wire.limits import Limits
from ahpd.wire.outbox import Flusher, Outbox
from ahpd.wire.request import Request
from ahpd.wire.websocket import Closed, WebSocket
from trio.testing import MockClock, wait_all_tasks_blocked

from .conftest import CLOSE, PING, PONG, TEXT, UPGRADE, Daemon, Log, Peer, Serve, client_frame, echo

KIB = 1024


class Room:
    """An application that lets tests push to everybody who is connected."""

    def __init__(self) -> None:
        self.members: dict[str, WebSocket] = {}
        self.ends: dict[str, int] = {}

    async def __call__(self, websocket: WebSocket, request: Request) -> None:
        self.members[request.path] = websocket
        try:
            await echo(websocket, request)
        except Closed as end:
            self.ends[request.path] = end.code

    def say(self, payload: bytes) -> None:
        frame = frames.text(payload)
        for websocket in self.members.values():
            websocket.push(frame)


async def join(daemon: Daemon, room: Room, name: str, *, receive_buffer: int = 0) -> Peer:
    peer = await daemon.open(
        head=UPGRADE.replace(b"GET /", b"GET /" + name.encode()), receive_buffer=receive_buffer
    )
    while f"/{name}" not in room.members:
        await trio.lowlevel.checkpoint()
    return peer


async def read_all(peer: Peer) -> list[tuple[int, bytes]]:
    """Every frame up to the close frame, which is the last."""
    read: list[tuple[int, bytes]] = []
    while not read or read[-1][0] != CLOSE:
        read.append(await peer.read_frame())
    return read


@pytest.mark.parametrize("size", [100, 5_000, 60_000])
async def test_a_slow_client_is_cut_and_nobody_else_waits(serve: Serve, size: int) -> None:
    room = Room()
    daemon = await serve(room, Limits(max_outbox=512 * KIB))
    slow = await join(daemon, room, "slow", receive_buffer=4 * KIB)
    fast = await join(daemon, room, "fast")
    sent = 0
    while "/slow" not in room.ends:
        room.say(b"%08d" % sent + b"x" * size)
        opcode, payload = await fast.read_frame()
        assert (opcode, payload[:8]) == (TEXT, b"%08d" % sent)
        sent += 1
        assert sent * size < 64 * KIB * KIB
    assert room.ends == {"/slow": 1013}
    assert room.members["/slow"].outbox.size <= size + 200

    *messages, (_, last) = await read_all(slow)
    assert last[:2] == b"\x03\xf5"
    assert [payload[:8] for _, payload in messages] == [b"%08d" % number for number in range(len(messages))]
    assert all(len(payload) == size + 8 for _, payload in messages)
    assert await slow.rest() == b""

    await fast.frame(TEXT, b"and I?")
    assert await fast.read_frame() == (TEXT, b"and I?")
    assert [line for line in daemon.log.lines if line[0] == "exception"] == []


async def test_pushes_after_a_cut_are_ignored(serve: Serve) -> None:
    room = Room()
    daemon = await serve(room, Limits(max_outbox=64 * KIB))
    peer = await join(daemon, room, "slow", receive_buffer=4 * KIB)
    websocket = room.members["/slow"]
    while websocket.ended is None:
        websocket.push(frames.text(b"x" * 10_000))
    left = websocket.outbox.size
    for _ in range(1000):
        websocket.push(frames.text(b"y" * 10_000))
    assert websocket.outbox.size == left
    assert all(b"y" not in payload for _, payload in await read_all(peer))


async def test_one_frame_larger_than_the_bound_is_no_reason_to_cut(serve: Serve) -> None:
    room = Room()
    daemon = await serve(room, Limits(max_outbox=16 * KIB))
    peer = await join(daemon, room, "one")
    room.say(b"x" * 4_000_000)
    room.say(b"small")
    assert await peer.read_frame() == (TEXT, b"x" * 4_000_000)
    assert await peer.read_frame() == (TEXT, b"small")


async def test_a_client_cut_by_the_flood_of_its_own_pings(serve: Serve) -> None:
    daemon = await serve(limits=Limits(max_outbox=64 * KIB))
    peer = await daemon.open(receive_buffer=4 * KIB)
    (websocket,) = daemon.listener.websockets
    flood = client_frame(PING, b"p" * 125) * 100
    while websocket.ended is None:
        await peer.send(flood)
    *pongs, (_, last) = await read_all(peer)
    assert last[:2] == b"\x03\xf5"
    assert set(pongs) == {(PONG, b"p" * 125)}


async def test_a_frame_pushed_between_reads_goes_out_without_being_asked(serve: Serve) -> None:
    room = Room()
    daemon = await serve(room)
    peer = await join(daemon, room, "one")
    room.say(b"news")
    assert await peer.read_frame() == (TEXT, b"news")


async def test_messages_before_a_close_arrive_before_it(serve: Serve) -> None:
    room = Room()
    daemon = await serve(room)
    peer = await join(daemon, room, "one")
    for number in range(300):
        room.say(b"%d" % number)
    room.members["/one"].close(1008, "not you")
    room.say(b"too late")
    *messages, (_, last) = await read_all(peer)
    assert messages == [(TEXT, b"%d" % number) for number in range(300)]
    assert last == b"\x03\xf0not you"
    assert room.ends == {} or room.ends == {"/one": 1008}


# The outbox by itself, on a pair of sockets and a clock that the test turns.


async def turn(clock: MockClock, seconds: float) -> None:
    """Let everybody do what can be done now, then that much later."""
    await wait_all_tasks_blocked()
    clock.jump(seconds)
    await wait_all_tasks_blocked()


class Pair:
    def __init__(self, limits: Limits, nursery: trio.Nursery) -> None:
        ours, self.theirs = trio.socket.socketpair()
        self.ends: list[tuple[int, str]] = []
        self.flusher = Flusher(Log())
        self.stream = trio.SocketStream(ours)
        self.outbox = Outbox(ours, self.flusher, limits, lambda *end: self.ends.append(end))
        nursery.start_soon(self.flusher.run)
        self.outbox.start(nursery)

    def fill(self, frame: bytes = frames.text(b"x" * 1000)) -> None:
        """Push until the kernel takes no more."""
        while self.outbox.size == 0:
            self.outbox.push(frame)
            self.outbox.flush()

    async def drain(self) -> bytes:
        read = b""
        while data := await self.theirs.recv(1 << 20):
            read += data
        return read


@pytest.fixture
async def nursery_of_the_test() -> AsyncIterator[trio.Nursery]:
    async with trio.open_nursery() as nursery:
        yield nursery
        nursery.cancel_scope.cancel()


async def test_a_burst_is_written_once_per_pass(nursery_of_the_test: trio.Nursery) -> None:
    pair = Pair(Limits(), nursery_of_the_test)
    for number in range(1500):
        pair.outbox.push(frames.text(b"%04d" % number))
    assert pair.outbox.size == 1500 * 6
    await wait_all_tasks_blocked()
    assert pair.outbox.size == 0
    expected = b"".join(frames.text(b"%04d" % number) for number in range(1500))
    assert await pair.theirs.recv(1 << 20) == expected


async def test_a_client_that_takes_nothing_is_cut_at_the_write_deadline(
    mock_clock: MockClock, nursery_of_the_test: trio.Nursery
) -> None:
    pair = Pair(Limits(write_deadline=30, drain=30), nursery_of_the_test)
    pair.fill()
    await turn(mock_clock, 29.9)
    assert pair.ends == []
    await turn(mock_clock, 0.2)
    assert pair.ends == [(1013, "stopped reading")]


async def test_a_client_that_takes_a_little_is_not_cut(
    mock_clock: MockClock, nursery_of_the_test: trio.Nursery
) -> None:
    pair = Pair(Limits(write_deadline=30), nursery_of_the_test)
    for _ in range(10):
        pair.fill()
        await turn(mock_clock, 29)
        await pair.theirs.recv(300_000)
    assert pair.ends == []


async def test_a_cut_client_that_drains_gets_whole_frames_and_the_reason(
    mock_clock: MockClock, nursery_of_the_test: trio.Nursery
) -> None:
    pair = Pair(Limits(write_deadline=30, drain=30), nursery_of_the_test)
    frame = frames.text(b"x" * 100_000)
    pair.fill(frame)
    pair.outbox.push(frame)
    await turn(mock_clock, 31)
    assert pair.ends == [(1013, "stopped reading")]
    await turn(mock_clock, 28)
    read = await pair.drain()
    last = frames.close(1013, "stopped reading")
    assert read.endswith(last)
    assert (len(read) - len(last)) % len(frame) == 0


async def test_a_cut_client_that_never_drains_is_dropped(
    mock_clock: MockClock, nursery_of_the_test: trio.Nursery
) -> None:
    pair = Pair(Limits(write_deadline=30, drain=30), nursery_of_the_test)
    pair.fill()
    await turn(mock_clock, 30)
    await turn(mock_clock, 29.9)
    assert pair.outbox.size > 0
    await turn(mock_clock, 0.2)
    assert pair.outbox.size == 0
    assert await pair.stream.receive_some(1) == b""
    assert pair.ends == [(1013, "stopped reading")]


async def test_a_lost_client_is_reported_once(nursery_of_the_test: trio.Nursery) -> None:
    pair = Pair(Limits(), nursery_of_the_test)
    pair.theirs.close()
    for _ in range(3):
        pair.outbox.push(frames.text(b"anybody?"))
        pair.outbox.flush()
    assert pair.ends == [(1006, "connection lost")]
    assert pair.outbox.ended


async def test_one_failing_outbox_does_not_silence_the_others(nursery_of_the_test: trio.Nursery) -> None:
    bad, good = Pair(Limits(), nursery_of_the_test), Pair(Limits(), nursery_of_the_test)
    good.outbox = Outbox(good.stream.socket, bad.flusher, Limits(), lambda *end: None)
    good.outbox.start(nursery_of_the_test)
    bad.outbox.push("not bytes")  # type: ignore[arg-type]
    good.outbox.push(frames.text(b"fine"))
    await wait_all_tasks_blocked()
    assert await good.theirs.recv(100) == frames.text(b"fine")
    assert bad.ends == [(1006, "connection lost")]


# Keep-alive, on the same clock.


async def test_a_silent_client_is_pinged_and_one_that_answers_is_kept(mock_clock: MockClock, serve: Serve) -> None:
    daemon = await serve(limits=Limits(ping_every=20, dead_after=60))
    peer = await daemon.open()
    await turn(mock_clock, 20)
    for _ in range(10):
        await turn(mock_clock, 20)
        assert await peer.read_frame() == (PING, b"")
        await peer.frame(PONG)
        await turn(mock_clock, 20)
    assert len(daemon.listener.websockets) == 1


async def test_a_client_that_answers_no_ping_is_dropped(mock_clock: MockClock, serve: Serve) -> None:
    room = Room()
    daemon = await serve(room, Limits(ping_every=20, dead_after=60))
    peer = await join(daemon, room, "dead")
    for _ in range(4):
        await turn(mock_clock, 20)
    assert room.ends == {}
    for _ in range(2):
        await turn(mock_clock, 20)
    assert room.ends == {"/dead": 1006}
    assert await peer.rest() == frames.ping() * 3


async def test_a_client_is_not_taken_for_dead_while_the_application_is_busy(
    mock_clock: MockClock, serve: Serve
) -> None:
    rested = trio.Event()

    async def busy(websocket: WebSocket, request: Request) -> None:
        await websocket.receive()
        await rested.wait()
        await echo(websocket, request)

    daemon = await serve(busy)
    peer = await daemon.open()
    await peer.frame(TEXT, b"work")
    await turn(mock_clock, 10)
    await peer.frame(TEXT, b"well?")
    for _ in range(30):
        await turn(mock_clock, 20)
    rested.set()
    while (answer := await peer.read_frame()) == (PING, b""):
        pass
    assert answer == (TEXT, b"well?")


class Disk:
    """A barrier that a test opens."""

    def __init__(self) -> None:
        self.queued, self.done = 0, 0
        self.asked, self.may = trio.Event(), trio.Event()

    @property
    def pending(self) -> bool:
        return self.done < self.queued

    async def commit(self) -> None:
        covered = self.queued
        self.asked.set()
        await self.may.wait()
        self.done = max(self.done, covered)


async def test_nothing_goes_out_before_the_disk_has_it_whoever_flushes(
    nursery_of_the_test: trio.Nursery,
) -> None:
    disk = Disk()
    ours, theirs = trio.socket.socketpair()
    flusher = Flusher(Log(), disk)
    outbox = Outbox(ours, flusher, Limits(), lambda code, reason: None)
    outbox.start(nursery_of_the_test)
    nursery_of_the_test.start_soon(flusher.run)
    disk.queued += 1
    outbox.push(b"first ")
    with trio.fail_after(5):
        await disk.asked.wait()
    disk.queued += 1
    outbox.push(b"second ")
    outbox.flush()  # what a connection does when it has answered a request
    with pytest.raises(BlockingIOError):
        _now(theirs)
    disk.may.set()
    received = b""
    with trio.fail_after(5):
        while received != b"first second ":
            received += await theirs.recv(100)


def _now(sock: trio.socket.SocketType) -> bytes:
    """What a socket has to read at this moment. Raises `BlockingIOError` for nothing."""
    return os.read(sock.fileno(), 100)
