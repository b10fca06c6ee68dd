"""What goes to the store, and when: the one place that turns changes of state into things kept.

Every action of a session or a chat is appended as it happens; a turn that ends puts its chat, so that the actions
of the turn become one row; a summary that moved puts its session. Nobody hears of a change before it is on disk:
the keeper is the barrier that the flusher waits for. Presence of clients, offered tools and open questions belong
to a running process and are not kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import trio

from ahpd.errors import AhpdError
from ahpd.log import get
from ahpd.ports import (
    Append,
    CutTurns,
    DropChat,
    DropSession,
    PutChat,
    PutRecord,
    PutSession,
    SessionRow,
    SessionStore,
)
from ahpd.session.live import LiveChat, LiveSession, QueuedMessage
from ahpd.state import Channel, Envelope, Json, State

RESERVED = 1_000_000
"""Numbers given out between two writes that remember how far they may go."""
FAILING_SECONDS = 30.0
"""How long the store may refuse before the host gives up: nothing can be acknowledged meanwhile."""
OPEN_ACTIONS = 500
"""Actions outside turns after which a chat is put."""
_KEPT_KINDS = frozenset({"session", "chat"})
_TRANSIENT = ("serverTools", "activeClients", "inputNeeded")
_NOT_OF_A_CHAT = ("turns", "backgroundWork")
"""Kept as rows of their own, or gone with the process that did it."""


class Keeper:
    """Implements `ahpd.wire.outbox.Barrier` over the host's store."""

    def __init__(self, store: SessionStore, state: State, summary: Callable[[LiveSession], Json]) -> None:
        self.store = store
        self._state, self._summary = state, summary
        self._reserved = 0
        self._open: dict[str, int] = {}
        self.failed = trio.Event()
        """Set when the store has refused for too long; the host must stop."""
        if store.durable:
            state.journal = self._append

    async def start(self, seq: int) -> None:
        """Begin numbering above everything any client was ever told."""
        self._state.begin_at(seq)
        await self._reserve()

    # -- the barrier ------------------------------------------------------------------------------------

    @property
    def pending(self) -> bool:
        return self.store.pending or self._state.seq > self._reserved

    async def commit(self) -> None:
        """Return when everything so far is on disk. Does not return while it cannot be."""
        deadline = trio.current_time() + FAILING_SECONDS
        while True:
            try:
                if self._state.seq > self._reserved:
                    await self._reserve()
                await self.store.commit()
                return
            except AhpdError as error:
                get("ahpd.store").error("the store refuses", why=error.sentence)
                if trio.current_time() > deadline:
                    self.failed.set()
                    await trio.sleep_forever()
                await trio.sleep(1)

    async def _reserve(self) -> None:
        ahead = self._state.seq + RESERVED
        await self.store.reserve(ahead)
        self._reserved = ahead

    # -- what happens -----------------------------------------------------------------------------------

    def _append(self, channel: Channel, envelope: Envelope) -> None:
        if channel.kind in _KEPT_KINDS:
            self.store.write(Append(channel.uri, envelope.seq, envelope.action))
            self._open[channel.uri] = self._open.get(channel.uri, 0) + 1

    def session(self, session: LiveSession) -> None:
        """Put a session: its row and its state as they are now."""
        state = self._state.channels[session.uri].state
        kept = {key: value for key, value in state.items() if key not in _TRANSIENT}
        self._open.pop(session.uri, None)
        self.store.write(PutSession(self.row(session), kept, _session_record(session)))

    def chat(self, chat: LiveChat, turns: tuple[Json, ...] = (), replace: bool = False) -> None:
        """Put a chat: its state as it is now, and turns that have been completed since."""
        state = self._state.channels[chat.uri].state
        kept = {key: value for key, value in state.items() if key not in _NOT_OF_A_CHAT}
        self._open.pop(chat.uri, None)
        self.store.write(PutChat(chat.session.uri, chat.uri, kept, chat_record(chat), turns, replace))

    def busy_chat(self, chat: LiveChat) -> None:
        """Put a chat that has gathered many actions outside turns, so that reading them back stays short."""
        if chat.turn is None and self._open.get(chat.uri, 0) > OPEN_ACTIONS:
            self.chat(chat)

    def record(self, chat: LiveChat) -> None:
        """Put what is kept of a chat beside its state."""
        self.store.write(PutRecord(chat.uri, chat_record(chat)))

    def truncated(self, chat: LiveChat, last: str | None) -> None:
        self.store.write(CutTurns(chat.uri, last))
        self.chat(chat)

    def turn_ended(self, chat: LiveChat) -> None:
        turns = self._state.channels[chat.uri].state.get("turns") or []
        self.chat(chat, tuple(turns[-1:]))

    def drop_chat(self, chat: LiveChat) -> None:
        self.store.write(DropChat(chat.uri))

    def drop_session(self, uri: str) -> None:
        self.store.write(DropSession(uri))

    def row(self, session: LiveSession) -> SessionRow:
        busy = any(chat.turn is not None for chat in session.chats.values())
        return SessionRow(
            session.uri,
            session.id,
            tuple(session.aliases),
            session.parent,
            self._summary(session),
            busy,
            _session_record(session),
        )


def _session_record(session: LiveSession) -> Json:
    return {
        "provider": session.provider,
        "createdAt": session.created_at,
        "owner": session.owner,
        "settings": dict(session.values),
        "strategy": session.strategy,
    }


def chat_record(chat: LiveChat) -> Json:
    """What is kept of a chat beside its state: who queued what, and whatever plugins keep on it."""
    queue = {
        message_id: {"principal": kept.principal.id, "by": kept.by, "revision": kept.revision}
        for message_id, kept in chat.queue.items()
    }
    record: Json = {"queue": queue, "kept": dict(chat.kept)}
    return {part: value for part, value in record.items() if value}


def restore_record(chat: LiveChat, record: Mapping[str, Any], principal: Callable[[str | None], Any]) -> None:
    """Take a chat's record back. `principal` finds the person an id stands for now."""
    chat.kept = dict(record.get("kept") or {})
    for message_id, kept in record.get("queue", {}).items():
        who = principal(kept.get("principal"))
        chat.queue[message_id] = QueuedMessage(who, kept.get("by"), int(kept.get("revision", 1)))
