"""Frames: what is taken, what is refused with which code, and that nothing is lost on the way through."""

import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from ahpd.protocol import ErrorBody, FrameError, Notification, Request, Response, frames, parse
from hypothesis import given
from hypothesis import strategies as st

FIXTURES = Path(os.environ.get("AHP_FIXTURES") or Path(__file__).parents[2].parent / "shared" / "ahp")


def refused(data: bytes | str) -> tuple[int, Any]:
    with pytest.raises(FrameError) as failure:
        parse(data)
    assert failure.value.message
    return failure.value.code, failure.value.id


def frame(**members: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **members}).encode()


def test_a_request_a_notification_and_both_answers() -> None:
    assert parse(frame(id=7, method="ping", params={"channel": "ahp-root://"})) == Request(
        7, "ping", {"channel": "ahp-root://"}
    )
    assert parse(frame(method="unsubscribe", params={"channel": "a:b"})) == Notification(
        "unsubscribe", {"channel": "a:b"}
    )
    assert parse(frame(id="x", result=None)) == Response("x", None, None)
    failed = parse(frame(id=1, error={"code": -32999, "message": "m", "data": {"a": [1]}}))
    assert failed == Response(1, None, ErrorBody(-32999, "m", {"a": [1]}))
    assert parse(frame(id=2, result=None, error={"code": 1, "message": "m"})) == Response(
        2, None, ErrorBody(1, "m")
    )
    assert parse(frame(id=None, error={"code": -32700, "message": "m"})).id is None  # type: ignore[union-attr]


def test_text_and_bytes_read_alike() -> None:
    data = frame(id=1, method="ping", params={"a": "é"})
    assert parse(data) == parse(data.decode())


@pytest.mark.parametrize("params", [{}, {"params": None}])
def test_absent_params_read_as_an_empty_object(params: dict[str, Any]) -> None:
    assert parse(frame(id=1, method="ping", **params)) == Request(1, "ping", {})


@pytest.mark.parametrize("id", [0, -3, 1.5, "", "abc", 2**53 + 1, 10**40])
def test_an_id_comes_back_as_it_came(id: int | float | str) -> None:
    asked = parse(frame(id=id, method="ping"))
    assert isinstance(asked, Request)
    answer = json.loads(frames.result(asked.id, {"ok": True}))
    assert answer == {"jsonrpc": "2.0", "id": id, "result": {"ok": True}}
    assert type(answer["id"]) is type(id)


DEEP = b"[" * 5000 + b"]" * 5000


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"nonsense",
        b"[1,",
        b'"open',
        b"\xff\xfe",
        b"\xef\xbb\xbf{}",
        b'{"jsonrpc":"2.0","method":"x","params":{"a":NaN}}',
        b'{"jsonrpc":"2.0","method":"x","params":{"a":Infinity}}',
        b'{"jsonrpc":"2.0","method":"x","params":{"a":1e999}}',
        b'{"jsonrpc":"2.0","method":"x","params":{"a":"\\ud800"}}',
        b'{"jsonrpc":"2.0","method":"x"} trailing',
        '{"jsonrpc":"2.0","method":"\ud800"}',
        DEEP,
        b'{"a":' * 5000 + b"1" + b"}" * 5000,
        b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":' + DEEP + b"}}",
        b'{"jsonrpc":"2.0","id":1,"result":' + b"[" * 300 + b"]" * 300 + b"}",
    ],
)
def test_what_is_no_json_is_a_parse_error(data: bytes | str) -> None:
    assert refused(data) == (frames.PARSE_ERROR, None)


def test_depth_is_bounded_where_it_can_still_be_written_again() -> None:
    params: Any = 1
    for _ in range(frames.MAX_DEPTH - 2):
        params = [params]
    data = frames.request(1, "x", {"a": params})
    asked = parse(data)
    assert isinstance(asked, Request)
    assert frames.request(asked.id, asked.method, asked.params) == data
    with pytest.raises(FrameError):
        parse(frames.request(1, "x", {"a": [[params]]}))


def test_a_wide_frame_is_not_a_deep_one() -> None:
    asked = parse(frame(id=1, method="x", params={"a": [{} for _ in range(2000)]}))
    assert isinstance(asked, Request)
    assert len(asked.params["a"]) == 2000


@pytest.mark.parametrize(
    ("data", "id"),
    [
        (b"[]", None),
        (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', None),
        (b"7", None),
        (b"null", None),
        (b"{}", None),
        (frame(id=4), 4),
        (frame(id=0, method="x", result=1), 0),
        (frame(id=4, method="x", params=[1]), 4),
        (frame(id=4, method="x", params="p"), 4),
        (frame(id=4, method=5), 4),
        (frame(id=True, method="x"), None),
        (frame(id=[1], method="x"), None),
        (frame(id=None, method="x"), None),
        (frame(id=4, result=1, error={"code": 1, "message": "m"}), 4),
        (frame(id=4, error={"code": "1", "message": "m"}), 4),
        (frame(id=4, error="bad"), 4),
        (frame(result=1), None),
        (b'{"id":"s","method":"x"}', "s"),
        (b'{"jsonrpc":"1.0","id":"s","method":"x"}', "s"),
    ],
)
def test_what_is_no_frame_is_an_invalid_request(data: bytes, id: Any) -> None:
    assert refused(data) == (frames.INVALID_REQUEST, id)


def test_builders() -> None:
    assert json.loads(frames.result(1, None)) == {"jsonrpc": "2.0", "id": 1, "result": None}
    assert json.loads(frames.error(None, -32700, "m")) == {
        "jsonrpc": "2.0",
        "id": None,
        "error": {"code": -32700, "message": "m"},
    }
    with_data = json.loads(frames.error(1, -32005, "m", {"supportedVersions": ["^1.0.0"]}))
    assert with_data["error"]["data"] == {"supportedVersions": ["^1.0.0"]}
    assert json.loads(frames.notification("action", {"a": 1})) == {
        "jsonrpc": "2.0",
        "method": "action",
        "params": {"a": 1},
    }
    assert parse(frames.request(3, "resourceRead", {"uri": "x:y"})) == Request(3, "resourceRead", {"uri": "x:y"})


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(st.text(), json_values, max_size=4))
def test_params_survive_the_trip(params: dict[str, Any]) -> None:
    asked = parse(frames.request(1, "x", params))
    assert isinstance(asked, Request)
    assert repr(asked.params) == repr(params) or asked.params == params


def code_of(data: bytes | str) -> int | None:
    try:
        parse(data)
    except FrameError as failure:
        return failure.code
    return None


@given(st.binary(max_size=60) | st.text(max_size=60))
def test_any_input_is_a_frame_or_a_frame_error(data: bytes | str) -> None:
    assert code_of(data) in (None, frames.PARSE_ERROR, frames.INVALID_REQUEST)


@pytest.mark.parametrize(
    "path", sorted((FIXTURES / "test-cases-0.9" / "round-trips").glob("*.json")), ids=lambda path: path.stem
)
def test_a_round_trip_keeps_values_and_key_presence(path: Any) -> None:
    case = json.loads(path.read_text())
    wanted = case.get("preservedOutput", case["acceptableOutputs"][0])
    if case["type"] == "JsonRpcMessage":
        answer = parse(json.dumps(case["input"]))
        assert isinstance(answer, Response)
        assert answer.error is not None
        sent = frames.error(answer.id, answer.error.code, answer.error.message, answer.error.data)
        assert msgspec.json.decode(sent) == wanted
        return
    asked = parse(frame(id=1, method="x", params={"value": case["input"]}))
    assert isinstance(asked, Request)
    again = msgspec.json.decode(frames.result(1, asked.params["value"]))["result"]
    assert json.dumps(again, sort_keys=True) == json.dumps(wanted, sort_keys=True)
