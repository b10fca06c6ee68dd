"""The backend itself: who it is, what it can be asked for, and what it remembers.

The host's store keeps sessions; what is remembered here is only what this process saw, and ends with it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from ahpd import AgentSession, Model, PastSession, Start

from ahpd_agent_echo.session import EchoSession

KEPT = 1000
"""How many past sessions one agent remembers; the oldest are forgotten first."""

TITLE_LENGTH = 60

VOICE: Mapping[str, Any] = {
    "type": "string",
    "title": "Voice",
    "description": "How plain lines are said back.",
    "enum": ["plain", "shouty", "backwards"],
    "enumLabels": ["Plain", "Shouty", "Backwards"],
    "default": "plain",
    "sessionMutable": True,
}


class EchoAgent:
    """An `ahpd.Agent`. `provider` is `echo`, or one of the ids of the option `alsoAs`."""

    def __init__(self, provider: str = "echo") -> None:
        self._provider = provider
        self._past: dict[str, PastSession] = {}

    @property
    def provider(self) -> str:
        return self._provider

    @property
    def display_name(self) -> str:
        return "Echo" if self._provider == "echo" else f"Echo ({self._provider})"

    @property
    def description(self) -> str:
        return "Says back what it is told, and does what a line that starts with / asks. Needs no account."

    def models(self) -> Sequence[Model]:
        return (Model("echo-1", "Echo 1"), Model("echo-2", "Echo 2"))

    def settings(self) -> Mapping[str, Mapping[str, Any]]:
        return {"voice": VOICE}

    def capabilities(self) -> Mapping[str, Any]:
        return {"multipleChats": {"fork": True, "sideChat": True}, "multipleWorkingDirectories": {}}

    async def open(self, start: Start) -> AgentSession:
        """Open one chat, new or resumed. Never fails: there is nothing to reach."""
        if start.id not in self._past:
            self._remember(_first_seen(start))
        return EchoSession(start, self._heard)

    async def past(self) -> AsyncIterator[PastSession]:
        """The sessions this process opened, newest first."""
        for session in sorted(self._past.values(), key=lambda kept: kept.modified_at, reverse=True):
            yield session

    def forget(self, id: str) -> None:
        """Drop a session from `past()`, once it was deleted."""
        self._past.pop(id, None)

    def _heard(self, start: Start, text: str) -> None:
        """A turn of that session begins: its first words are its title."""
        known = self._past.get(start.id) or _first_seen(start)
        self._remember(replace(known, title=known.title or _title(text), modified_at=_now()))

    def _remember(self, session: PastSession) -> None:
        self._past.pop(session.id, None)
        self._past[session.id] = session
        if len(self._past) > KEPT:
            del self._past[next(iter(self._past))]


def _first_seen(start: Start) -> PastSession:
    first = start.history[0]["message"]["text"] if start.history else ""
    now = _now()
    return PastSession(start.id, _title(first), now, now, tuple(start.working_directories))


def _title(text: str) -> str:
    line = " ".join(text.strip().partition("\n")[0].split())
    return line if len(line) <= TITLE_LENGTH else line[: TITLE_LENGTH - 1] + "…"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
