"""Chats that a message speaks of: who may attach which, and up to which turn it then counts.

A message that is accepted names the last turn of every chat it attaches, so that it means the same for ever.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ahpd.access import Gatekeeper, Principal
from ahpd.errors import Rejected
from ahpd.session.dormant import Dormant
from ahpd.session.history import History
from ahpd.session.live import LiveChat, LiveSession
from ahpd.session.sessions import Sessions
from ahpd.state import Json

READ = "chat:turns"


class Attachments:
    """Looks at the attachments of kind `chat` of a message; every other kind is its agent's business."""

    def __init__(self, gatekeeper: Gatekeeper, sessions: Sessions, dormant: Dormant, history: History) -> None:
        self._holds, self._sessions = gatekeeper.holds, sessions
        self._dormant, self._history = dormant, history

    async def look_up(self, principal: Principal, message: Any) -> None:
        """Read what `pin` will have to know. The message may be anything a client has sent."""
        for attachment in _chats_in(message) if self._holds(principal, READ) else ():
            uri, end = attachment["resource"], attachment.get("endTurn")
            if self._dormant.sleeps(uri):
                await self._dormant.wake(uri)
            found = self._sessions.find_chat(uri)
            if found is not None and isinstance(end, str):
                await self._history.learn(found[0], end)

    def pin(self, principal: Principal, session: LiveSession, message: Json) -> Json:
        """The message as a chat of `session` takes it: attached chats end with a named turn, or have none yet.

        Raises `Rejected` for a chat that the principal cannot read, and for a turn that is not a completed one.
        """
        if not any(_chats_in(message)):
            return message
        pinned = [
            self._pinned(principal, session, each) if each["type"] == "chat" else each
            for each in message["attachments"]
        ]
        return {**message, "attachments": pinned}

    def _pinned(self, principal: Principal, session: LiveSession, attachment: Json) -> Json:
        uri, end = attachment["resource"], attachment.get("endTurn")
        found = self._sessions.find_chat(uri)
        if found is None or not self._holds(principal, READ):
            raise Rejected(f"There is no chat {uri} to attach")
        chat = found[0]
        if end is not None and not self._history.has(chat, end):
            raise Rejected(f"The attached chat {uri} has no completed turn {end}")
        end = end or self._history.latest(chat)
        # A chat of another session keeps the name its sender knows it by: every name of it leads there.
        named = {**attachment, "resource": _held(chat, session, uri)}
        return named if end is None else {**named, "endTurn": end}


def _held(chat: LiveChat, session: LiveSession, uri: str) -> str:
    return chat.uri if chat.session is session else uri


def _chats_in(message: Any) -> Iterator[Json]:
    attachments = message.get("attachments") if isinstance(message, dict) else None
    for each in attachments if isinstance(attachments, list) else ():
        if isinstance(each, dict) and each.get("type") == "chat" and isinstance(each.get("resource"), str):
            yield each
