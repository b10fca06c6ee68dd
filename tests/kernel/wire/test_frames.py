import pytest
from ahpd.wire import frames
from wsproto.connection import Connection, ConnectionType
from wsproto.events import CloseConnection, Event, Ping, Pong, TextMessage


def read(data: bytes) -> list[Event]:
    client = Connection(ConnectionType.CLIENT)
    client.receive_data(data)
    return list(client.events())


@pytest.mark.parametrize("size", [0, 1, 125, 126, 127, 65_535, 65_536, 70_000])
def test_a_text_frame_is_read_back_by_an_independent_parser(size: int) -> None:
    events = read(frames.text(b"x" * size))
    assert all(isinstance(event, TextMessage) for event in events)
    assert "".join(event.data for event in events if isinstance(event, TextMessage)) == "x" * size


def test_pings_and_pongs_carry_their_payload() -> None:
    assert read(frames.ping(b"a") + frames.pong(b"b" * 125)) == [Ping(b"a"), Pong(b"b" * 125)]


def test_a_control_frame_has_a_bound() -> None:
    with pytest.raises(ValueError, match="125"):
        frames.ping(b"x" * 126)


@pytest.mark.parametrize(
    ("code", "reason", "expected"),
    [
        (1000, "", (1000, "")),
        (1013, "too far behind", (1013, "too far behind")),
        (1005, "never sent", (1005, "")),
        (1006, "", (1005, "")),
        (1008, "é" * 100, (1008, "é" * 61)),
        (1011, "x" * 200, (1011, "x" * 123)),
        (1011, "\ud800", (1011, "?")),
    ],
)
def test_a_close_frame_is_valid_whatever_the_reason(code: int, reason: str, expected: tuple[int, str]) -> None:
    (event,) = read(frames.close(code, reason))
    assert isinstance(event, CloseConnection)
    assert (event.code, event.reason or "") == expected
