"""A chat's state as a transcript small enough for a model to read. Pure: state in, rows out.

Implements the answer of `get_session_context`: three levels of detail, texts cut to a number of characters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Detail:
    """How many characters of each kind of text are kept, and whether tool calls are told, and their inputs."""

    user: int
    assistant: int
    tool_names: bool = False
    tool_input: int = 0


DETAILS = {
    "summary": Detail(160, 140),
    "digest": Detail(300, 800, tool_names=True),
    "full": Detail(1000, 2000, tool_names=True, tool_input=200),
}
DEFAULT_LIMIT, MAX_LIMIT = 10, 50


class Transcript:
    """The newest turns of one chat, made once. `truncated` tells whether a turn or any text was left out."""

    def __init__(self, chat: Mapping[str, Any], detail: Detail, limit: int) -> None:
        turns = list(chat.get("turns") or ())
        if chat.get("activeTurn"):
            turns.append({**chat["activeTurn"], "state": "inProgress"})
        dropped = max(0, len(turns) - limit)
        self._detail = detail
        self.truncated = dropped > 0
        self.rows = [self._row(number, turn) for number, turn in enumerate(turns[dropped:], dropped + 1)]

    def _row(self, number: int, turn: Mapping[str, Any]) -> dict[str, Any]:
        parts: Sequence[Mapping[str, Any]] = turn.get("responseParts") or ()
        user = str((turn.get("message") or {}).get("text") or "")
        said = [str(part.get("content", "")) for part in parts if part.get("kind") == "markdown"]
        row: dict[str, Any] = {"turn": number, "state": turn.get("state")}
        if user:
            row["user"] = self._cut(user, self._detail.user)
        if assistant := "\n\n".join(said).strip():
            row["assistant"] = self._cut(assistant, self._detail.assistant)
        calls = [part["toolCall"] for part in parts if part.get("kind") == "toolCall"]
        if calls and self._detail.tool_names:
            row["toolCalls"] = [self._call(call) for call in calls]
        return row

    def _call(self, call: Mapping[str, Any]) -> Any:
        if not self._detail.tool_input:
            return call["toolName"]
        row = {"name": call["toolName"]}
        # A call that still streams has only part of its input, and a large input is a reference, not a text.
        if isinstance(given := call.get("toolInput"), str):
            row["input"] = self._cut(given, self._detail.tool_input)
        return row

    def _cut(self, text: str, most: int) -> str:
        if len(text) <= most:
            return text
        self.truncated = True
        return text[: most - 1] + "…"
