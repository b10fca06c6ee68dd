"""The list of sessions: one summary per session, pages of it, and telling root's watchers what moved.

A summary is worked out from the session's state whenever it is needed and kept nowhere, except for what root's
watchers were told last, so that they are told differences only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import trio

from ahpd.errors import InvalidParams
from ahpd.log import get
from ahpd.ports import SessionRow
from ahpd.protocol.times import read_time
from ahpd.session.live import LiveSession
from ahpd.session.names import ROOT
from ahpd.state import Json, Notice, State

DEBOUNCE = 0.1
"""Seconds in which changes of one summary are told together."""
IDLE, ERROR, BUSY, INPUT_NEEDED = 1, 2, 8, 24
ACTIVITY, FLAGS = 31, 32 | 64
_FIXED = ("resource", "provider", "createdAt")
_OF_A_CHAT = ("resource", "title", "origin", "interactivity", "status", "changes")


class Catalogue:
    """Every session of the host, newest first."""

    def __init__(self, state: State, sessions: Mapping[str, LiveSession]) -> None:
        self._state = state
        self._sessions = sessions
        self.rows: dict[str, SessionRow] = {}
        """Sessions that are kept and not awake."""
        self.keep: Callable[[LiveSession], None] = lambda session: None
        """Told of every session that moved, once the burst is over."""
        self._told: dict[str, Json] = {}
        self._moved: dict[str, None] = {}
        self._wake = trio.Event()

    def summary(self, session: LiveSession) -> Json:
        """The session's `SessionSummary`."""
        state = self._state.channels[session.uri].state
        chats = state.get("chats", [])
        speaker = _speaker(chats, state.get("defaultChat"))
        summary: Json = {
            "resource": session.uri,
            "provider": session.provider,
            "title": state.get("title", ""),
            "status": _activity(speaker) | (state.get("status", 0) & FLAGS),
            "createdAt": session.created_at,
            "modifiedAt": max([session.created_at, *(chat.get("modifiedAt", "") for chat in chats)]),
            "chats": [{key: chat[key] for key in _OF_A_CHAT if key in chat} for chat in chats],
        }
        activity = state.get("activity") or speaker.get("activity")
        if activity:
            summary["activity"] = activity
        for key in ("defaultChat", "workingDirectories", "project", "changes", "_meta"):
            if key in state:
                summary[key] = state[key]
        return summary

    def newest_first(self) -> list[Mapping[str, Any]]:
        rows: list[Mapping[str, Any]] = [self.summary(session) for session in self._sessions.values()]
        rows += [row.summary for row in self.rows.values()]
        rows.sort(key=lambda row: (row["modifiedAt"], row["resource"]), reverse=True)
        return rows

    def page(self, limit: int | None, cursor: str | None) -> Json:
        """A page of rows and where the next one begins. Raises `InvalidParams` for a foreign cursor."""
        rows = self.newest_first()
        start = 0
        if cursor is not None:
            at, _, resource = cursor.partition(" ")
            if not resource or read_time(at) is None:
                raise InvalidParams("cursor is not one that listSessions gave out")
            start = next(
                (i for i, row in enumerate(rows) if (row["modifiedAt"], row["resource"]) < (at, resource)),
                len(rows),
            )
        end = len(rows) if limit is None else start + limit
        page: Json = {"items": rows[start:end]}
        if end < len(rows):
            last = rows[end - 1]
            page["nextCursor"] = f"{last['modifiedAt']} {last['resource']}"
        return page

    def added(self, session: LiveSession) -> None:
        summary = self._told[session.uri] = self.summary(session)
        self._state.tell(ROOT, Notice("root/sessionAdded", {"channel": ROOT, "summary": summary}))

    def sleeping(self, row: SessionRow) -> None:
        """A session is listed from its row from now on; nothing of its summary has changed."""
        self.rows[row.uri] = row
        self._told[row.uri] = dict(row.summary)

    def awake(self, session: LiveSession) -> None:
        """A session is listed from its state again."""
        del self.rows[session.uri]
        self.moved(session.uri)

    def removed(self, uri: str) -> None:
        self.rows.pop(uri, None)
        self._moved.pop(uri, None)
        if self._told.pop(uri, None) is not None:
            self._state.tell(ROOT, Notice("root/sessionRemoved", {"channel": ROOT, "session": uri}))

    def moved(self, uri: str) -> None:
        """Something in a summary may have changed; root's watchers hear of it shortly."""
        self._moved[uri] = None
        self._wake.set()

    async def run(self) -> None:
        """Tell root's watchers about moved summaries, a burst of changes at a time."""
        while True:
            await self._wake.wait()
            await trio.sleep(DEBOUNCE)
            self._wake = trio.Event()
            moved, self._moved = self._moved, {}
            for uri in moved:
                session, told = self._sessions.get(uri), self._told.get(uri)
                if session is None:
                    continue
                try:
                    self.keep(session)
                    if told is not None:
                        self._tell_changes(session, told)
                except Exception:  # one session's surprise is not the list's
                    get("ahpd.catalogue").exception("a session cannot be kept", session=uri)

    def _tell_changes(self, session: LiveSession, told: Json) -> None:
        summary = self._told[session.uri] = self.summary(session)
        changes = {
            key: summary.get(key)
            for key in summary.keys() | told.keys()
            if key not in _FIXED and summary.get(key) != told.get(key)
        }
        if changes:
            params = {"channel": ROOT, "session": session.uri, "changes": changes}
            self._state.tell(ROOT, Notice("root/sessionSummaryChanged", params))


def _speaker(chats: list[Json], default: str | None) -> Json:
    """The chat that speaks for its session: one that needs input, else one that failed, else the default one,
    else the latest modified."""
    latest = sorted(chats, key=lambda chat: str(chat.get("modifiedAt", "")), reverse=True)
    ranked = sorted(latest, key=lambda chat: chat["resource"] != default)
    for urgent in (INPUT_NEEDED, ERROR):
        for chat in ranked:
            if _activity(chat) == urgent:
                return chat
    return ranked[0] if ranked else {}


def _activity(chat: Json) -> int:
    """Bits 0 to 4 of a chat's status."""
    bits: int = chat.get("status", IDLE) & ACTIVITY
    return bits or IDLE
