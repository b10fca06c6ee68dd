"""Clients that are present in sessions, the tools they bring, and what becomes of their calls when they leave.

A client's tool runs at the client: here it is only offered, reported and waited for. Implements the product's
"A client's tools".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ahpd.session.chats import Chats
from ahpd.session.live import LiveSession
from ahpd.state import Json

NAME = re.compile(r"[A-Za-z0-9_-]+")


class Presence:
    """Who is present in the sessions that are awake."""

    def __init__(self, chats: Chats, sessions: Mapping[str, LiveSession]) -> None:
        self._chats, self._sessions = chats, sessions

    def entries(self, session: LiveSession) -> list[Json]:
        """The session's `activeClients`."""
        return list(self._chats.session_state(session).get("activeClients", []))

    def is_present(self, session: LiveSession, client_id: str) -> bool:
        return any(entry["clientId"] == client_id for entry in self.entries(session))

    def leave(self, session: LiveSession, client_id: str, origin: Mapping[str, Any] | None = None) -> None:
        """Take a client out of a session; the calls it was running fail, so that their turns go on."""
        action = {"type": "session/activeClientRemoved", "clientId": client_id}
        if origin is not None or self.is_present(session, client_id):
            self._chats.dispatch_session(session, action, origin)
        self._fail_calls(session, client_id)

    def leave_everywhere(self, client_id: str, kept: frozenset[str] = frozenset()) -> None:
        """As `leave`, in every session but those kept."""
        for session in list(self._sessions.values()):
            if session.uri not in kept and self.is_present(session, client_id):
                self.leave(session, client_id)

    @staticmethod
    def _fail_calls(session: LiveSession, client_id: str) -> None:
        for chat in list(session.chats.values()):
            if chat.turn is not None:
                chat.turn.client_gone(client_id)

    def tools(self, session: LiveSession) -> Iterator[tuple[str, str, Json]]:
        """Every tool that present clients bring: the client's id, the name it is offered under, its definition."""
        for entry in self.entries(session):
            client_id = entry["clientId"]
            for tool in entry.get("tools") or []:
                name = tool.get("name") if isinstance(tool, dict) else None
                if isinstance(name, str) and NAME.fullmatch(name) and NAME.fullmatch(client_id):
                    yield client_id, f"{client_id}__{name}", tool
