"""Ready-made server frames, RFC 6455 section 5.2.

A server does not mask and we never compress, so the bytes of a frame depend on its payload
alone: built once, they are right for every subscriber. Knows nothing of sockets or of JSON.
"""

from struct import pack

NORMAL = 1000
GOING_AWAY = 1001
PROTOCOL_ERROR = 1002
NO_CODE = 1005
LOST = 1006
INVALID_TEXT = 1007
REFUSED = 1008
TOO_BIG = 1009
INTERNAL_ERROR = 1011
OVERLOADED = 1013

_TEXT, _CLOSE, _PING, _PONG = 0x81, 0x88, 0x89, 0x8A
_MAX_CONTROL = 125


def text(payload: bytes) -> bytes:
    """One whole text message."""
    size = len(payload)
    if size <= _MAX_CONTROL:
        return bytes((_TEXT, size)) + payload
    if size < 1 << 16:
        return pack("!BBH", _TEXT, 126, size) + payload
    return pack("!BBQ", _TEXT, 127, size) + payload


def ping(payload: bytes = b"") -> bytes:
    return _control(_PING, payload)


def pong(payload: bytes = b"") -> bytes:
    return _control(_PONG, payload)


def close(code: int = NORMAL, reason: str = "") -> bytes:
    """A close frame; a code that never travels (1005, 1006) gives the empty one."""
    if code in (NO_CODE, LOST):
        return _control(_CLOSE, b"")
    # A reason cut in the middle of a character would be a protocol error of ours.
    words = reason.encode("utf-8", "replace")[: _MAX_CONTROL - 2].decode("utf-8", "ignore")
    return _control(_CLOSE, pack("!H", code) + words.encode())


def _control(first: int, payload: bytes) -> bytes:
    if len(payload) > _MAX_CONTROL:
        raise ValueError(f"a control frame carries at most {_MAX_CONTROL} bytes, not {len(payload)}")
    return bytes((first, len(payload))) + payload
