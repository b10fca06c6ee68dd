"""What one line of a message asks of the echo agent. Pure: text in, a command out, nothing raised.

A line that starts with a known `/word` is a command, every other line is text to say back, also one that
starts with a slash, such as a path. A command that cannot be read becomes a `Bad` with a sentence.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias


@dataclass(frozen=True, slots=True)
class Say:
    text: str


@dataclass(frozen=True, slots=True)
class Think:
    text: str


@dataclass(frozen=True, slots=True)
class Ask:
    question: str


@dataclass(frozen=True, slots=True)
class Fail:
    text: str


@dataclass(frozen=True, slots=True)
class Sleep:
    seconds: float


@dataclass(frozen=True, slots=True)
class Spawn:
    """`seconds` is a number, kept as it was written: it goes to `sleep` as it stands."""

    seconds: str


@dataclass(frozen=True, slots=True)
class Stream:
    """`count` deltas of `size` bytes, `per_second` of them a second; 0 means as fast as it goes."""

    count: int
    per_second: float
    size: int


@dataclass(frozen=True, slots=True)
class UseTool:
    """`call` runs it at once, `confirm` asks a person first, `mcp` goes by the session's tools endpoint."""

    name: str
    arguments: Mapping[str, Any]
    how: Literal["call", "confirm", "mcp"]


@dataclass(frozen=True, slots=True)
class Show:
    what: Literal["tools", "start"]


@dataclass(frozen=True, slots=True)
class Bad:
    sentence: str


Command: TypeAlias = Say | Think | Ask | Fail | Sleep | Spawn | Stream | UseTool | Show | Bad

_COMMAND = re.compile(r"\s*/(\w+)(?:\s+(.*))?$", re.DOTALL)
_BARE_STREAM = re.compile(r"\s*stream\s+(\d+\s+\d+(?:\.\d+)?\s+\d+)\s*$")


def parse(line: str) -> Command:
    """Read one line."""
    line = line.removesuffix("\r")
    if bare := _BARE_STREAM.match(line):
        return _stream(bare[1])
    found = _COMMAND.match(line)
    read = found and _COMMANDS.get(found[1])
    if not found or not read:
        return Say(line)
    return read((found[2] or "").strip())


def _call(rest: str) -> Command:
    return _use_tool("call", rest)


def _confirm(rest: str) -> Command:
    return _use_tool("confirm", rest)


def _mcp(rest: str) -> Command:
    return _use_tool("mcp", rest)


def _use_tool(how: Literal["call", "confirm", "mcp"], rest: str) -> Command:
    name, _, text = rest.partition(" ")
    if not name:
        return Bad(f"/{how} needs a tool: /{how} TOOL JSON")
    try:
        arguments = json.loads(text) if text.strip() else {}
    except ValueError as error:
        return Bad(f"/{how} {name}: this is not JSON: {error}")
    if not isinstance(arguments, dict):
        return Bad(f"/{how} {name}: the input must be a JSON object.")
    return UseTool(name, arguments, how)


def _tools(rest: str) -> Command:
    return Show("tools")


def _start(rest: str) -> Command:
    return Show("start")


def _think(rest: str) -> Command:
    return Think(rest) if rest else Bad("/think needs a text: /think TEXT")


def _ask(rest: str) -> Command:
    return Ask(rest) if rest else Bad("/ask needs a question: /ask QUESTION")


def _fail(rest: str) -> Command:
    return Fail(rest or "The echo agent was asked to fail.")


def _sleep(rest: str) -> Command:
    seconds = _number(rest)
    return Bad("/sleep needs a number of seconds: /sleep SECONDS") if seconds is None else Sleep(seconds)


def _spawn(rest: str) -> Command:
    if _number(rest) is None:
        return Bad("/spawn needs a number of seconds: /spawn SECONDS")
    return Spawn(rest)


def _stream(rest: str) -> Command:
    numbers = [_number(word) for word in rest.split()]
    match numbers:
        case [float(count), float(per_second), float(size)] if count.is_integer() and size.is_integer():
            return Stream(int(count), per_second, int(size))
    return Bad("/stream needs three numbers: /stream N PERSEC BYTES")


def _number(word: str) -> float | None:
    """A finite number that is not negative, or `None`."""
    try:
        number = float(word)
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None


_COMMANDS: Mapping[str, Callable[[str], Command]] = {
    "call": _call,
    "confirm": _confirm,
    "mcp": _mcp,
    "tools": _tools,
    "start": _start,
    "think": _think,
    "ask": _ask,
    "fail": _fail,
    "sleep": _sleep,
    "spawn": _spawn,
    "stream": _stream,
}
