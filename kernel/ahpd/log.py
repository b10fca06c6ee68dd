"""What the daemon says about itself, on stderr, with every secret masked.

Human lines at a terminal, one JSON object a line otherwise. structlog is imported by the first line that is
written, not by this module: `ahpd --help` and `ahpd plugin list` say nothing and must not wait for it. Knows
nothing of configuration; who reads a secret registers it here.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, MutableMapping
from typing import Any

MASK = "<set>"
LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}

_SECRET_KEY = re.compile(r"token|tkn|secret|passw(or)?d|authorization|api[_-]?key|credential|cookie", re.I)
_HARMLESS_KEY = re.compile(r"(file|path|url|env)$", re.I)
_ASSIGNED = re.compile(
    r"\b([\w-]*(?:token|tkn|secret|password|api[_-]?key)[\w-]*\s*=\s*)(?!<set>)[^\s&\"'#,;]+", re.I
)
_BEARER = re.compile(r"\b(bearer|basic)(\s+)[\w.~+/=-]+", re.I)
_DEEPEST = 12
_secrets: set[str] = set()
_ready = False


def register_secret(value: str | None) -> None:
    """Mask this exact text wherever it turns up from now on. Shorter than four characters is too common to."""
    if value and len(value) >= 4:
        from urllib.parse import quote

        _secrets.update({value, quote(value, safe="")})


def redact(text: str) -> str:
    """The text with registered secrets, credentials in URLs and bearer tokens masked."""
    for secret in sorted(_secrets, key=len, reverse=True):
        text = text.replace(secret, MASK)
    return _BEARER.sub(rf"\1\2{MASK}", _ASSIGNED.sub(rf"\1{MASK}", text))


def masked(value: Any, key: str = "", depth: int = 0) -> Any:
    """`value` as plain JSON, masking secrets that are known, that look like one, or that sit under such a key."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if _SECRET_KEY.search(key) and not _HARMLESS_KEY.search(key):
        return MASK
    if depth >= _DEEPEST:
        return "..."
    if isinstance(value, Mapping):
        return {redact(str(name)): masked(item, str(name), depth + 1) for name, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [masked(item, key, depth + 1) for item in value]
    return redact(value if isinstance(value, str) else repr(value))


def _mask_event(_: Any, __: str, event: MutableMapping[str, Any]) -> dict[str, Any]:
    return {name: masked(value, name) for name, value in event.items()}


class _Stderr:
    """Writes whole lines. A closed or full stderr loses lines; it must never end a daemon."""

    def msg(self, line: str) -> None:
        try:
            sys.stderr.write(line + "\n")
            sys.stderr.flush()
        except (OSError, ValueError, AttributeError):
            pass

    debug = info = warning = error = critical = fatal = exception = log = msg


def setup(format: str | None = None, level: str = "info") -> None:
    """Choose how lines look (`human`, `json`, or whatever fits stderr) and which are said. May be called again."""
    global _ready
    import structlog

    terminal = bool(sys.stderr and sys.stderr.isatty())
    human = format == "human" or (format is None and terminal)
    colors = terminal and not os.environ.get("NO_COLOR")
    plain = structlog.dev.plain_traceback
    last: Any = structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=plain)
    if not human:
        last = structlog.processors.JSONRenderer(ensure_ascii=False)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _mask_event,
            last,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=lambda *_: _Stderr(),
        cache_logger_on_first_use=False,
    )
    _ready = True


class Log:
    """A named logger with fields bound to it. Costs nothing until it says something."""

    def __init__(self, name: str, fields: Mapping[str, Any] | None = None) -> None:
        self.name = name
        self.fields = dict(fields or {})

    def bind(self, **fields: Any) -> Log:
        return Log(self.name, {**self.fields, **fields})

    def debug(self, event: str, **fields: Any) -> None:
        self._say("debug", event, fields)

    def info(self, event: str, **fields: Any) -> None:
        self._say("info", event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        self._say("warning", event, fields)

    def error(self, event: str, **fields: Any) -> None:
        self._say("error", event, fields)

    def exception(self, event: str, **fields: Any) -> None:
        """An error with the traceback of the exception being handled, or of `exc_info=error`."""
        self._say("error", event, {"exc_info": True, **fields})

    def _say(self, level: str, event: str, fields: Mapping[str, Any]) -> None:
        if not _ready:
            setup()
        import structlog

        logger = structlog.get_logger().bind(logger=self.name, **self.fields)
        getattr(logger, level)(event, **fields)


def get(name: str) -> Log:
    return Log(name)
