"""Reading a call's arguments, and the sentences a wrong one is refused with.

Every refusal is `Invalid <tool> input: <field> <rule>`, a `ToolError`. Properties no tool knows are ignored.
An optional property may be left out; `null` is a wrong value like any other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from ahpd import ToolCall, ToolError

TITLE_LENGTH = 200


class Inputs:
    """The arguments of one call."""

    def __init__(self, call: ToolCall) -> None:
        self._tool = call.tool
        self._given = call.arguments

    def __contains__(self, name: str) -> bool:
        return name in self._given

    def refusal(self, rule: str) -> ToolError:
        """To be raised: `rule` names the field and what it must be."""
        return ToolError(f"Invalid {self._tool} input: {rule}")

    def text(self, name: str) -> str:
        """A required string with something in it, as it was given."""
        given = self._given.get(name)
        if not isinstance(given, str) or not given.strip():
            raise self.refusal(f"{name} must be a non-empty string.")
        return given

    def optional_text(self, name: str) -> str | None:
        return self.text(name) if name in self._given else None

    def title(self) -> str:
        """A required title, its white space collapsed."""
        given = self._given.get("title")
        if not isinstance(given, str) or not given:
            raise self.refusal("title must be a non-empty string.")
        title = " ".join(given.split())
        if not title:
            raise self.refusal("title must contain non-whitespace characters.")
        if len(title) > TITLE_LENGTH:
            raise self.refusal(f"title must not exceed {TITLE_LENGTH} characters.")
        return title

    def flag(self, name: str, default: bool | None = False) -> bool:
        """A boolean, which must be given when the default is `None`."""
        given = self._given.get(name, default)
        if not isinstance(given, bool):
            raise self.refusal(f"{name} must be a boolean.")
        return given

    def optional_flag(self, name: str) -> bool | None:
        return self.flag(name) if name in self._given else None

    def count(self, name: str, default: int, most: int) -> int:
        """A number of things: at least one, whole, and `most` when more are asked for."""
        given = self._given.get(name, default)
        if isinstance(given, bool) or not isinstance(given, int | float) or not 1 <= given < math.inf:
            raise self.refusal(f"{name} must be a positive number.")
        return min(int(given), most)

    def choice(self, name: str, options: Sequence[str], default: str) -> str:
        given = self._given.get(name, default)
        if given not in options:
            raise self.refusal(f"{name} must be one of {', '.join(options)}.")
        return str(given)

    def record(self, name: str) -> dict[str, Any]:
        """An optional object; empty when left out."""
        given = self._given.get(name, {})
        if not isinstance(given, dict):
            raise self.refusal(f"{name} must be an object.")
        return given

    def time(self, name: str) -> datetime | None:
        """An optional point in time; one without a zone is in UTC."""
        if name not in self._given:
            return None
        given = self._given[name]
        if not isinstance(given, str):
            raise self.refusal(f"{name} must be an ISO-8601 timestamp string.")
        time = parse_time(given)
        if time is None:
            raise self.refusal(f"{name} must be a valid ISO-8601 timestamp (e.g. 2025-01-31T00:00:00Z).")
        return time

    def words(self, name: str, valid: Sequence[str]) -> frozenset[str]:
        """An optional array of `valid` words; empty when left out."""
        given = self._given.get(name, [])
        if not isinstance(given, list):
            raise self.refusal(f"{name} must be an array of {name} names.")
        unknown = [str(word) for word in given if word not in valid]
        if unknown:
            raise self.refusal(f"unknown {name} value(s) {', '.join(unknown)}. Valid values: {', '.join(valid)}.")
        return frozenset(given)


def parse_time(text: str) -> datetime | None:
    """An ISO 8601 time with its zone, UTC when it names none; `None` when it is no such thing."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return time if time.tzinfo else time.replace(tzinfo=UTC)
