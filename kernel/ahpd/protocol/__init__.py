"""The protocol as pure functions: frames, versions, actions, shapes and reducers.

Owns: what the bytes of the Agent Host Protocol mean. Refuses to know: sockets, time, sessions, plugins.
Nothing in here waits or does I/O, and it imports the standard library and msgspec only.
"""

from ahpd.protocol.actions import ACTIONS, ActionRule, client_actions, combine, family
from ahpd.protocol.frames import ErrorBody, FrameError, Notification, Request, RequestId, Response, parse
from ahpd.protocol.reduce_chat import reduce_chat
from ahpd.protocol.reduce_root import reduce_root
from ahpd.protocol.reduce_session import reduce_session
from ahpd.protocol.shapes import (
    ACTION_SHAPES,
    PARAM_SHAPES,
    ShapeError,
    check_action,
    decode_as,
    decode_params,
    validate_action,
)
from ahpd.protocol.times import read_time, time_after, write_time
from ahpd.protocol.versions import SUPPORTED, SUPPORTED_RANGES, agree, read_version

__all__ = [
    "ACTIONS",
    "ACTION_SHAPES",
    "ActionRule",
    "ErrorBody",
    "FrameError",
    "Notification",
    "PARAM_SHAPES",
    "Request",
    "RequestId",
    "Response",
    "SUPPORTED",
    "SUPPORTED_RANGES",
    "ShapeError",
    "agree",
    "check_action",
    "client_actions",
    "combine",
    "decode_as",
    "decode_params",
    "family",
    "parse",
    "read_time",
    "read_version",
    "reduce_chat",
    "reduce_root",
    "reduce_session",
    "time_after",
    "validate_action",
    "write_time",
]
