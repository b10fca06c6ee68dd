"""RFC 6455 from the outside: framing, pings, reserved bits and opcodes, fragments, UTF-8, closing.

The groups follow those of the well-known WebSocket test suites; each row is one exchange with a
real daemon, byte by byte.
"""

from struct import pack

import pytest
import trio

from .conftest import BINARY, CLOSE, CONTINUATION, PING, PONG, TEXT, Daemon, client_frame

SIZES = [0, 1, 125, 126, 127, 128, 65_535, 65_536, 131_072]


@pytest.mark.parametrize("opcode", [TEXT, BINARY])
@pytest.mark.parametrize("size", SIZES)
async def test_a_message_of_every_length_encoding_comes_back(daemon: Daemon, opcode: int, size: int) -> None:
    peer = await daemon.open()
    await peer.frame(opcode, b"*" * size)
    assert await peer.read_frame() == (TEXT, b"*" * size)


@pytest.mark.parametrize("size", [0, 1, 125, 126, 1000, 65_536])
@pytest.mark.parametrize("chop", [1, 997])
async def test_a_message_may_arrive_in_any_chops(daemon: Daemon, size: int, chop: int) -> None:
    if chop == 1 and size > 1000:
        chop = 64
    peer = await daemon.open()
    frame = client_frame(TEXT, b"*" * size)
    for start in range(0, len(frame), chop):
        await peer.send(frame[start : start + chop])
    assert await peer.read_frame() == (TEXT, b"*" * size)


@pytest.mark.parametrize("payload", [b"", b"hello", b"\x00\xff\xfe", b"\xfe" * 125])
async def test_a_ping_is_answered_with_its_payload(daemon: Daemon, payload: bytes) -> None:
    peer = await daemon.open()
    await peer.frame(PING, payload)
    assert await peer.read_frame() == (PONG, payload)


@pytest.mark.parametrize("opcode", [PING, PONG, CLOSE])
async def test_a_control_frame_above_125_bytes_is_a_protocol_error(daemon: Daemon, opcode: int) -> None:
    peer = await daemon.open()
    await peer.frame(opcode, b"\x03\xe8" + b"x" * 124)
    assert await peer.closed_with() == 1002


@pytest.mark.parametrize("payload", [b"", b"unasked"])
async def test_an_unasked_pong_is_ignored(daemon: Daemon, payload: bytes) -> None:
    peer = await daemon.open()
    await peer.send(client_frame(PONG, payload) + client_frame(PING, b"next"))
    assert await peer.read_frame() == (PONG, b"next")


@pytest.mark.parametrize("chop", [1, 10_000])
async def test_pings_are_answered_in_order(daemon: Daemon, chop: int) -> None:
    peer = await daemon.open()
    burst = b"".join(client_frame(PING, b"%d" % number) for number in range(10))
    for start in range(0, len(burst), chop):
        await peer.send(burst[start : start + chop])
    assert [await peer.read_frame() for _ in range(10)] == [(PONG, b"%d" % number) for number in range(10)]


@pytest.mark.parametrize("rsv", range(1, 8))
@pytest.mark.parametrize("opcode", [TEXT, PING])
async def test_a_reserved_bit_is_a_protocol_error(daemon: Daemon, rsv: int, opcode: int) -> None:
    peer = await daemon.open()
    await peer.frame(TEXT, b"good")
    await peer.frame(opcode, b"bad", rsv=rsv)
    assert await peer.read_frame() == (TEXT, b"good")
    assert await peer.closed_with() == 1002


@pytest.mark.parametrize("payload", [b"", b"x"])
@pytest.mark.parametrize("opcode", [3, 4, 5, 6, 7, 11, 12, 13, 14, 15])
async def test_a_reserved_opcode_is_a_protocol_error(daemon: Daemon, opcode: int, payload: bytes) -> None:
    peer = await daemon.open()
    await peer.frame(opcode, payload)
    assert await peer.closed_with() == 1002


@pytest.mark.parametrize("opcode", [TEXT, BINARY, PING, CLOSE, CONTINUATION])
async def test_an_unmasked_frame_is_a_protocol_error(daemon: Daemon, opcode: int) -> None:
    peer = await daemon.open()
    await peer.frame(opcode, b"\x03\xe8", mask=False)
    assert await peer.closed_with() == 1002


@pytest.mark.parametrize(
    "frame",
    [
        pack("!BBH4s", 0x81, 0x80 | 126, 125, b"abcd") + b"x" * 125,
        pack("!BBQ4s", 0x81, 0x80 | 127, 65_535, b"abcd"),
        pack("!BBQ4s", 0x81, 0x80 | 127, 1 << 63, b"abcd"),
        pack("!BBQ4s", 0x81, 0x80 | 127, (1 << 64) - 1, b"abcd"),
    ],
)
async def test_a_length_that_is_not_minimal_or_negative_is_a_protocol_error(daemon: Daemon, frame: bytes) -> None:
    peer = await daemon.open()
    await peer.send(frame)
    assert await peer.closed_with() == 1002


@pytest.mark.parametrize("opcode", [PING, PONG, CLOSE])
async def test_a_control_frame_cannot_be_fragmented(daemon: Daemon, opcode: int) -> None:
    peer = await daemon.open()
    await peer.frame(opcode, b"\x03\xe8", fin=False)
    assert await peer.closed_with() == 1002


Piece = tuple[int, bytes, bool]


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ([(TEXT, b"one ", False), (CONTINUATION, b"two", True)], [b"one two"]),
        ([(TEXT, b"", False), (CONTINUATION, b"", False), (CONTINUATION, b"", True)], [b""]),
        ([(TEXT, b"", False), (CONTINUATION, b"mid", False), (CONTINUATION, b"", True)], [b"mid"]),
        ([(BINARY, b"bin", False), (CONTINUATION, b"ary", True)], [b"binary"]),
        (
            [(TEXT, b"a", False)] + [(CONTINUATION, b"b", False)] * 50 + [(CONTINUATION, b"c", True)],
            [b"a" + b"b" * 50 + b"c"],
        ),
        ([(TEXT, b"x", False), (CONTINUATION, b"y", True), (TEXT, b"z", True)], [b"xy", b"z"]),
        (
            [(TEXT, b"x" * 70_000, False), (CONTINUATION, b"y" * 70_000, True)],
            [b"x" * 70_000 + b"y" * 70_000],
        ),
        ([(TEXT, "é".encode()[:1], False), (CONTINUATION, "é".encode()[1:], True)], ["é".encode()]),
        ([(BINARY, "é".encode()[:1], False), (CONTINUATION, "é".encode()[1:], True)], ["é".encode()]),
        (
            [(TEXT, b"\xf0", False), (CONTINUATION, b"\x9f", False), (CONTINUATION, b"\x98\x80", True)],
            ["😀".encode()],
        ),
    ],
)
@pytest.mark.parametrize("ping_between", [False, True])
async def test_fragments_are_put_together(
    daemon: Daemon, pieces: list[Piece], expected: list[bytes], ping_between: bool
) -> None:
    peer = await daemon.open()
    answers: list[tuple[int, bytes]] = []
    for opcode, payload, fin in pieces:
        await peer.frame(opcode, payload, fin=fin)
        if ping_between:
            await peer.frame(PING, b"between")
    count = len(expected) + (len(pieces) if ping_between else 0)
    answers = [await peer.read_frame() for _ in range(count)]
    assert [payload for opcode, payload in answers if opcode == TEXT] == expected
    assert all(answer == (PONG, b"between") for answer in answers if answer[0] != TEXT)


@pytest.mark.parametrize(
    "pieces",
    [
        [(CONTINUATION, b"no start", True)],
        [(CONTINUATION, b"no start", False)],
        [(CONTINUATION, b"", True), (TEXT, b"x", True)],
        [(TEXT, b"open", False), (TEXT, b"again", True)],
        [(TEXT, b"open", False), (BINARY, b"again", True)],
        [(TEXT, b"open", False), (TEXT, b"again", False), (CONTINUATION, b"end", True)],
        [(TEXT, b"a", False), (PING, b"", True), (TEXT, b"b", True)],
    ],
)
async def test_fragments_out_of_order_are_a_protocol_error(daemon: Daemon, pieces: list[Piece]) -> None:
    peer = await daemon.open()
    await peer.send(b"".join(client_frame(opcode, payload, fin=fin) for opcode, payload, fin in pieces))
    opcode, payload = await peer.read_frame()
    if opcode == PONG:
        opcode, payload = await peer.read_frame()
    assert (opcode, payload[:2]) == (CLOSE, pack("!H", 1002))


VALID = [
    "plain",
    "κόσμε",
    "\x00",
    "\x7f",
    "\u0080",
    "\u07ff",
    "\u0800",
    "\uffff",
    "\U00010000",
    "\U0010ffff",
    "\ufffd",
    "\ue000",
    "𝄞" * 40,
]


@pytest.mark.parametrize("text", VALID, ids=ascii)
async def test_valid_text_comes_back_even_split_between_any_two_bytes(daemon: Daemon, text: str) -> None:
    peer = await daemon.open()
    raw = text.encode()
    await peer.frame(TEXT, raw)
    assert await peer.read_frame() == (TEXT, raw)
    await peer.frame(TEXT, raw[:1], fin=False)
    for index in range(1, len(raw)):
        await peer.frame(CONTINUATION, raw[index : index + 1], fin=False)
    await peer.frame(CONTINUATION, b"", fin=True)
    assert await peer.read_frame() == (TEXT, raw)


INVALID = [
    b"\x80",
    b"\xbf",
    b"\xc0\xaf",  # overlong
    b"\xc1\xbf",
    b"\xc3",  # cut short
    b"\xe0\x80\xaf",
    b"\xe2\x82",
    b"\xed\xa0\x80",  # surrogates
    b"\xed\xbf\xbf",
    b"\xf0\x80\x80\xaf",
    b"\xf0\x9f\x98",
    b"\xf4\x90\x80\x80",  # above U+10FFFF
    b"\xf8\x88\x80\x80\x80",
    b"\xfc\x84\x80\x80\x80\x80",
    b"\xfe",
    b"\xff",
    b"good until \xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xed\xa0\x80 here",
]


@pytest.mark.parametrize("raw", INVALID)
@pytest.mark.parametrize("form", ["text", "binary", "fragments"])
async def test_invalid_text_is_refused_with_1007(daemon: Daemon, raw: bytes, form: str) -> None:
    peer = await daemon.open()
    if form == "fragments":
        await peer.frame(TEXT, raw[:1], fin=False)
        await peer.frame(CONTINUATION, raw[1:])
    else:
        await peer.frame(TEXT if form == "text" else BINARY, raw)
    assert await peer.closed_with() == 1007


async def test_invalid_text_is_refused_before_its_message_is_complete(daemon: Daemon) -> None:
    peer = await daemon.open()
    await peer.frame(TEXT, b"so far so good \xf4\x90", fin=False)
    assert await peer.closed_with() == 1007


@pytest.mark.parametrize(
    "code", [1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 3000, 3999, 4000, 4999]
)
@pytest.mark.parametrize("reason", [b"", b"bye", "é".encode() * 61])
async def test_a_valid_close_is_answered_with_its_code(daemon: Daemon, code: int, reason: bytes) -> None:
    peer = await daemon.open()
    await peer.frame(CLOSE, pack("!H", code) + reason)
    assert await peer.closed_with() == code
    assert await peer.rest() == b""


async def test_an_empty_close_is_answered_with_an_empty_one(daemon: Daemon) -> None:
    peer = await daemon.open()
    await peer.frame(CLOSE)
    assert await peer.closed_with() == 1005
    assert await peer.rest() == b""


@pytest.mark.parametrize(
    "payload",
    [
        b"\x03",
        *(
            pack("!H", code)
            for code in (0, 999, 1004, 1005, 1006, 1014, 1015, 1016, 1100, 2000, 2999, 5000, 65_535)
        ),
    ],
)
async def test_an_invalid_close_is_a_protocol_error(daemon: Daemon, payload: bytes) -> None:
    peer = await daemon.open()
    await peer.frame(CLOSE, payload)
    assert await peer.closed_with() == 1002


async def test_a_close_reason_has_to_be_text(daemon: Daemon) -> None:
    peer = await daemon.open()
    await peer.frame(CLOSE, pack("!H", 1000) + b"\xff\xfe")
    assert await peer.closed_with() == 1007


async def test_nothing_after_a_close_is_looked_at(daemon: Daemon) -> None:
    peer = await daemon.open()
    await peer.send(client_frame(CLOSE, pack("!H", 1000)) + client_frame(TEXT, b"late") + b"\xff" * 20)
    assert await peer.closed_with() == 1000
    assert await peer.rest() == b""


async def test_what_came_before_a_close_is_still_answered(daemon: Daemon) -> None:
    peer = await daemon.open()
    await peer.send(client_frame(TEXT, b"last words") + client_frame(CLOSE, pack("!H", 1000)))
    assert await peer.read_frame() == (TEXT, b"last words")
    assert await peer.closed_with() == 1000


async def test_an_abandoned_fragment_does_not_stand_in_the_way_of_a_close(daemon: Daemon) -> None:
    peer = await daemon.open()
    await peer.frame(TEXT, b"never finished", fin=False)
    await peer.frame(CLOSE, pack("!H", 1000))
    assert await peer.closed_with() == 1000


async def test_many_messages_in_one_write_come_back_in_order(daemon: Daemon) -> None:
    peer = await daemon.open()
    texts = [b"message %d" % number for number in range(500)]
    await peer.send(b"".join(client_frame(TEXT, text) for text in texts))
    assert [await peer.read_frame() for _ in texts] == [(TEXT, text) for text in texts]


async def test_both_sides_may_be_busy_at_once(daemon: Daemon) -> None:
    peer = await daemon.open()
    payload = b"x" * 20_000

    async def write() -> None:
        for _ in range(100):
            await peer.frame(TEXT, payload)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(write)
        for _ in range(100):
            assert await peer.read_frame() == (TEXT, payload)
