"""JSON-RPC 2.0 frames: bytes to `Request | Notification | Response`, and back.

Owns: what a well-formed frame is, and the error codes. Refuses to know: methods, params, sockets.
Every frame of every client passes through `parse`: it decodes once, and looks closer only if that fails.
"""

from typing import Any, Final, Literal

import msgspec
from msgspec import UNSET, UnsetType

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
SESSION_NOT_FOUND: Final = -32001
PROVIDER_NOT_FOUND: Final = -32002
SESSION_ALREADY_EXISTS: Final = -32003
TURN_IN_PROGRESS: Final = -32004
UNSUPPORTED_PROTOCOL_VERSION: Final = -32005
AUTH_REQUIRED: Final = -32007
NOT_FOUND: Final = -32008
PERMISSION_DENIED: Final = -32009
ALREADY_EXISTS: Final = -32010
CONFLICT: Final = -32011

MAX_DEPTH: Final = 256
"""Lists and objects within each other. Decoder and encoder recurse in C against one shared limit, so a
frame that could just be read deep in the stack could not be written again from a little deeper."""

RequestId = int | str | float


class FrameError(Exception):
    """A frame that cannot be served: `code`, a sentence, and the `id` to answer with (None if unknown)."""

    def __init__(self, code: int, message: str, id: RequestId | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.id = code, message, id


class Request(msgspec.Struct, frozen=True):
    """A call that wants an answer under the same `id`; absent params read as `{}`."""

    id: RequestId
    method: str
    params: dict[str, Any]


class Notification(msgspec.Struct, frozen=True):
    """A call that is never answered."""

    method: str
    params: dict[str, Any]


class ErrorBody(msgspec.Struct, frozen=True):
    """The `error` member of an answer; any integer is a valid code."""

    code: int
    message: str
    data: Any = None


class Response(msgspec.Struct, frozen=True):
    """An answer; `error` is None on success, `id` is None if the peer could not read whose call it was."""

    id: RequestId | None
    result: Any
    error: ErrorBody | None


class _Frame(msgspec.Struct, frozen=True):
    jsonrpc: Literal["2.0"]
    id: int | str | float | UnsetType | None = UNSET
    method: str | UnsetType = UNSET
    params: dict[str, Any] | None = None
    result: Any = UNSET
    error: ErrorBody | None = None


_decoder = msgspec.json.Decoder(_Frame)
_encoder = msgspec.json.Encoder()


def parse(data: bytes | str) -> Request | Notification | Response:
    """The frame in `data`, or FrameError: -32700 if it is no JSON, -32600 if it is no frame we serve."""
    try:
        frame = _decoder.decode(data)
    except msgspec.ValidationError as failure:
        raise _refusal(data, str(failure)) from None
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise FrameError(PARSE_ERROR, "Parse error") from None
    if len(data) > 2 * MAX_DEPTH and _too_deep(data, frame):
        raise FrameError(PARSE_ERROR, f"Parse error: nested more than {MAX_DEPTH} levels deep")
    id, method = frame.id, frame.method
    if isinstance(method, UnsetType):
        return _response(frame)
    if frame.result is not UNSET or frame.error is not None:
        known = None if isinstance(id, UnsetType) else id
        raise FrameError(INVALID_REQUEST, "Invalid request: a call has no result or error", known)
    if isinstance(id, UnsetType):
        return Notification(method, frame.params or {})
    if id is None:
        raise FrameError(INVALID_REQUEST, "Invalid request: id is null")
    return Request(id, method, frame.params or {})


def _response(frame: _Frame) -> Response:
    known = None if isinstance(frame.id, UnsetType) else frame.id
    # Some peers put `result: null` beside an error; a value beside it is a contradiction.
    succeeded = frame.result is not UNSET and (frame.result is not None or frame.error is None)
    if frame.id is UNSET or succeeded == (frame.error is not None):
        raise FrameError(INVALID_REQUEST, "Invalid request: neither a call nor an answer", known)
    return Response(known, frame.result if succeeded else None, frame.error)


def _refusal(data: bytes | str, reason: str) -> FrameError:
    # The typed decoder stops at the first surprise, so what follows may still turn out to be no JSON at all.
    try:
        frame = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return FrameError(PARSE_ERROR, "Parse error")
    id = frame.get("id") if isinstance(frame, dict) else None
    known = id if isinstance(id, int | str | float) and not isinstance(id, bool) else None
    return FrameError(INVALID_REQUEST, f"Invalid request: {reason}", known)


def _too_deep(data: bytes | str, frame: _Frame) -> bool:
    opened = data.count("{") + data.count("[") if isinstance(data, str) else data.count(b"{") + data.count(b"[")
    if opened <= MAX_DEPTH:
        return False
    level: list[Any] = [frame.params, frame.result, frame.error and frame.error.data]
    for _ in range(MAX_DEPTH):
        level = [inner for outer in level for inner in _containers(outer)]
        if not level:
            return False
    return True


def _containers(outer: Any) -> list[Any]:
    inner = outer.values() if isinstance(outer, dict) else outer if isinstance(outer, list) else ()
    return [each for each in inner if isinstance(each, dict | list)]


def result(id: RequestId | None, value: Any) -> bytes:
    """A successful answer."""
    return _encoder.encode({"jsonrpc": "2.0", "id": id, "result": value})


def error(id: RequestId | None, code: int, message: str, data: Any = None) -> bytes:
    """A failed answer; `data` is left out when None."""
    body = {"code": code, "message": message} if data is None else {"code": code, "message": message, "data": data}
    return _encoder.encode({"jsonrpc": "2.0", "id": id, "error": body})


def notification(method: str, params: Any) -> bytes:
    """A call that wants no answer."""
    return _encoder.encode({"jsonrpc": "2.0", "method": method, "params": params})


def request(id: RequestId, method: str, params: Any) -> bytes:
    """A call that wants an answer."""
    return _encoder.encode({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
