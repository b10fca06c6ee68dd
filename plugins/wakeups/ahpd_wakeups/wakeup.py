"""A wakeup, as it is kept on the record of its chat."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

KEY = "wakeup"
"""Where on a chat's record it is kept."""
META = "ahpd.wakeup"
"""Under which key of a message's `_meta` its turn says that a wakeup began it."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Wakeup:
    """One turn to come. Times are epoch milliseconds: there is no time zone in them, so none can change them.

    `id` becomes the id of the message it sends, by which a message that went out is told from one that did not.
    `person` is the id of whoever was behind the turn that set it.
    """

    chat: str
    id: str
    at: int
    prompt: str
    person: str | None
    set_at: int

    def kept(self) -> dict[str, Any]:
        """What is kept of it."""
        return {"id": self.id, "at": self.at, "prompt": self.prompt, "person": self.person, "set": self.set_at}

    def meta(self) -> dict[str, Any]:
        """The `_meta` of its message."""
        return {META: {"id": self.id, "set": iso(self.set_at), "due": iso(self.at)}}

    def shown(self) -> dict[str, Any]:
        """As a person is shown it."""
        return {
            "chat": self.chat,
            "due": iso(self.at),
            "set": iso(self.set_at),
            "person": self.person,
            "prompt": self.prompt,
        }


def read(chat: str, kept: Any) -> Wakeup | None:
    """The wakeup kept on a chat's record; `None` for nothing, and for what this version cannot read."""
    if not isinstance(kept, dict):
        return None
    known, at, prompt = kept.get("id"), kept.get("at"), kept.get("prompt")
    person, was_set = kept.get("person"), kept.get("set")
    if not (isinstance(known, str) and isinstance(prompt, str) and isinstance(person, str | None)):
        return None
    if not (isinstance(at, int) and isinstance(was_set, int)):
        return None
    return Wakeup(chat, known, at, prompt, person, was_set)


def iso(at: int) -> str:
    """Epoch milliseconds as the protocol writes a time."""
    time = _EPOCH + timedelta(milliseconds=at)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
