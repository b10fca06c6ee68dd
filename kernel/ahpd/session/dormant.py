"""Sessions that are kept but not in memory: how one wakes, and when one goes to sleep.

Reading wakes a session's state and starts nothing; its agent is opened by the first turn. A session that nobody
watches and in which nothing runs is written out and let go after a while; its row stays in every list.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import trio

from ahpd.errors import SessionNotFound
from ahpd.log import get
from ahpd.ports import Opened, SessionRow, StoredChat
from ahpd.session import names
from ahpd.session.catalogue import Catalogue
from ahpd.session.index import SessionIndex
from ahpd.session.keeper import Keeper
from ahpd.session.live import LiveSession
from ahpd.session.sessions import Sessions
from ahpd.state import State

LONGEST_LOOK = 30.0
"""Seconds between two looks at who is idle."""
Idle = Callable[[], float]


class Dormant:
    """Wakes sessions and puts them to sleep."""

    def __init__(
        self,
        state: State,
        sessions: Sessions,
        index: SessionIndex,
        catalogue: Catalogue,
        keeper: Keeper,
        idle_seconds: Idle,
    ) -> None:
        self._state, self._sessions, self._index = state, sessions, index
        self._catalogue, self._keeper = catalogue, keeper
        self._idle_seconds = idle_seconds
        self._waking: dict[str, trio.Lock] = {}
        self._leaving: dict[str, LiveSession] = {}

    def take(self, opened: Opened) -> None:
        """Know the sessions a store holds; they all sleep."""
        for row in opened.rows:
            self._index.add(row.uri, row.id, row.aliases)
            for chat in chats_of(row.summary):
                self._index.place_chat(chat, row.uri)
            self._sessions.adopt(row)
            self._catalogue.sleeping(row)

    async def mend(self, opened: Opened) -> None:
        """Wake the sessions whose rows are out of date, or in which a turn was running when the host ended."""
        rows = {row.uri: row for row in opened.rows}
        for uri in sorted({*opened.changed, *(uri for uri, row in rows.items() if row.busy)}):
            try:
                await self.wake(uri)
            except Exception:
                get("ahpd.sessions").exception("a stored session cannot be read", session=uri)

    # -- waking -----------------------------------------------------------------------------------------

    def sleeps(self, uri: str) -> str | None:
        """The held name of the sleeping session that a channel belongs to; `None` when it is of no such one."""
        held = self._index.of_channel(uri)
        return held if held is not None and held in self._catalogue.rows else None

    async def wake(self, uri: str) -> LiveSession | None:
        """The session a channel belongs to, awake. `None` when there is none."""
        held = self._index.of_channel(uri)
        if held is None:
            return None
        async with self._waking.setdefault(held, trio.Lock()):
            try:
                session = self._sessions.by_uri.get(held) or await self._load(held)
                if session is not None:
                    session.idle_since = None  # whoever asked is not done with it
                return session
            finally:
                if not self._waking[held].statistics().tasks_waiting:
                    del self._waking[held]

    async def _load(self, held: str) -> LiveSession | None:
        if (leaving := self._leaving.get(held)) is not None:
            await leaving.closed.wait()
        row = self._catalogue.rows.get(held)
        stored = None if row is None else await self._keeper.store.load(held)
        if row is None or stored is None or held not in self._catalogue.rows:
            return None
        taken = {chat.uri: await self._taken(chat) for chat in stored.chats}
        session = await self._sessions.revive(stored, row)
        for chat in session.chats.values():
            chat.older_turns |= taken.get(chat.uri, set())
        self._catalogue.awake(session)
        self._sessions.end_interrupted(session)
        return session

    async def _taken(self, chat: StoredChat) -> set[str]:
        """Ids of messages that wait in a chat and that older turns of it have: theirs must be others."""
        state = chat.state
        slot = state.get("steeringMessage")
        waiting = [*(state.get("queuedMessages") or []), *([slot] if slot else [])]
        found = set()
        for entry in waiting if state.get("turnsNextCursor") else []:
            with suppress(KeyError):
                await self._keeper.store.turns(chat.uri, entry["id"], 1)
                found.add(entry["id"])
        return found

    def discard(self, uri: str) -> bool:
        """Dispose of a session without waking it, as of one that cannot be read. False when it is not asleep."""
        held = None if uri.startswith(names.CHAT_SCHEME) else self._index.held(uri)
        if held is None or held not in self._catalogue.rows:
            return False
        self._sessions.forget(held)
        return True

    # -- sleeping ---------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Put idle sessions to sleep, until cancelled."""
        while True:
            limit = self._idle_seconds()
            await trio.sleep(min(LONGEST_LOOK, max(limit / 4, 0.05)))
            for session in list(self._sessions.by_uri.values()):
                try:
                    if self._is_idle(session, limit):
                        self.sleep(session)
                except Exception:  # costs one session its sleep; raised, it would end the host
                    get("ahpd.sessions").exception("cannot fall asleep", session=session.uri)

    def _is_idle(self, session: LiveSession, limit: float) -> bool:
        channels = [session.uri, *session.chats]
        if any(self._state.channels[uri].subscribers for uri in channels) or not _is_quiet(session):
            session.idle_since = None
            return False
        if session.idle_since is None:
            session.idle_since = trio.current_time()
        return trio.current_time() - session.idle_since >= limit

    def sleep(self, session: LiveSession) -> None:
        """Write a session out and let everything of it go. The caller has seen that nothing runs in it."""
        self._keeper.session(session)
        for chat in session.chats.values():
            self._keeper.chat(chat)
        self._catalogue.sleeping(self._keeper.row(session))
        self._leaving[session.uri] = session
        self._sessions.let_go(session)
        assert self._sessions.nursery is not None
        self._sessions.nursery.start_soon(self._gone, session)

    async def _gone(self, session: LiveSession) -> None:
        await session.closed.wait()
        if self._leaving.get(session.uri) is session:
            del self._leaving[session.uri]

    # -- for those who only want to know ----------------------------------------------------------------

    async def awake(self, uri: str) -> LiveSession:
        """As `wake`. Raises `SessionNotFound`."""
        session = await self.wake(uri)
        if session is None:
            raise SessionNotFound(f"No session at {uri}")
        return session

    def row(self, uri: str) -> SessionRow | None:
        held = self._index.held(uri)
        return None if held is None else self._catalogue.rows.get(held)


def _is_quiet(session: LiveSession) -> bool:
    return not any(
        chat.turn is not None or chat.settling or (chat.background is not None and chat.background.goes_on)
        for chat in session.chats.values()
    )


def chats_of(summary: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(chat["resource"] for chat in summary.get("chats", ()))
