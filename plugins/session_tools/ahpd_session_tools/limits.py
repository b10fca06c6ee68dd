"""What an agent may start by itself. Implements "Limits" of the product's "Tools" page, in its words.

Counts are kept per session tree, against the session whose tool was called, and given back when a call fails.
A call with no session, at a door, is in no tree and bounded by nothing here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ahpd import Limit, ToolCall

from ahpd_session_tools.starting import relationship

MAX_DEPTH = 3


@dataclass(frozen=True, slots=True)
class TreeLimit:
    """At most `most` of what `counts` recognises, in one session tree."""

    name: str
    most: int
    refusal: str
    counts: Callable[[ToolCall], bool]

    def check(self, call: ToolCall) -> str | None:
        if call.session is None or not self.counts(call):
            return None
        spent = call.host.lineage.spent(call.session.uri, self.name)
        return self.refusal.format(most=self.most) if spent >= self.most else None

    def charge(self, call: ToolCall) -> None:
        if call.session is not None and self.counts(call):
            call.host.lineage.charge(call.session.uri, self.name)

    def refund(self, call: ToolCall) -> None:
        if call.session is not None and self.counts(call):
            call.host.lineage.refund(call.session.uri, self.name)


@dataclass(frozen=True, slots=True)
class DepthLimit:
    """How many create links may sit above a session that makes another."""

    name: str = "depth"

    def check(self, call: ToolCall) -> str | None:
        if call.session is None or not _makes_session(call):
            return None
        depth = call.host.lineage.depth(call.session.uri)
        if depth < MAX_DEPTH:
            return None
        return (
            f"Refusing to create a session: recursion limit reached (max spawn depth {MAX_DEPTH}). "
            f"This session was itself created {depth} level(s) deep."
        )

    def charge(self, call: ToolCall) -> None:
        """Depth is a place in the tree: there is nothing to count."""

    def refund(self, call: ToolCall) -> None:
        """Nothing was counted."""


def _makes_session(call: ToolCall) -> bool:
    return call.tool == "create_session" and relationship(call) == "independent"


def _makes_chat(call: ToolCall) -> bool:
    if call.tool == "create_session":
        return relationship(call) == "currentSession"
    return call.tool == "create_chat"


def _sends(call: ToolCall) -> bool:
    """Sends and steers; changing or taking back a queued message starts nothing."""
    return call.tool == "send_message" and call.arguments.get("operation", "send") == "send"


SESSIONS = TreeLimit(
    "sessions",
    50,
    "Refusing to create more than {most} sessions from server tools in this session tree.",
    _makes_session,
)
CHATS = TreeLimit(
    "chats",
    50,
    "Refusing to create more than {most} chats from server tools in this session tree.",
    _makes_chat,
)
MESSAGES = TreeLimit(
    "messages",
    100,
    "Refusing to send more than {most} messages from server tools in this session tree.",
    _sends,
)
LIMITS: tuple[Limit, ...] = (SESSIONS, CHATS, MESSAGES, DepthLimit())
