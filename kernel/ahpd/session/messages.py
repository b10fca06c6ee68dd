"""The verbs on messages: send one, change or take back one that waits. Half of `ahpd.HostApi`.

A message that waits belongs to whoever sent it: the chat whose tool did, or the person at a door.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal
from uuid import uuid4

from ahpd.access import Gatekeeper, Principal
from ahpd.errors import AhpdError, Conflict, InvalidParams, NotFound, SessionNotFound
from ahpd.session.chats import Chats
from ahpd.session.dormant import Dormant
from ahpd.session.live import LiveChat, QueuedMessage
from ahpd.session.sessions import Sessions
from ahpd.session.turns import Turns
from ahpd.state import Json
from ahpd.views import Sender, Sent

ARCHIVED = 64


class Messages:
    """Verbs on messages of any chat of the host."""

    def __init__(
        self, gatekeeper: Gatekeeper, sessions: Sessions, dormant: Dormant, chats: Chats, turns: Turns
    ) -> None:
        self.require = gatekeeper.require
        self.holds = gatekeeper.holds
        self._sessions, self._dormant, self._chats, self._turns = sessions, dormant, chats, turns

    async def chat(self, uri: str) -> LiveChat:
        """A chat by any of its names, its session awake. Raises `SessionNotFound`."""
        found = self._sessions.find_chat(uri)
        if found is None and self._dormant.sleeps(uri) and await self._dormant.wake(uri):
            found = self._sessions.find_chat(uri)
        if found is None:
            raise SessionNotFound(f"No chat at {uri}")
        return found[0]

    async def send(
        self,
        principal: Principal,
        chat: str,
        text: str,
        *,
        steer: bool = False,
        sender: Sender | None = None,
        model: str | None = None,
        kind: Literal["user", "agent", "systemNotification"] | None = None,
        meta: Mapping[str, Any] | None = None,
        message_id: str | None = None,
    ) -> Sent:
        self.require(principal, "chat:send", chat)
        live = await self.chat(chat)
        self._require_open(live)
        message = _message(text, sender, model, kind, meta)
        by = sender.chat if sender is not None else principal.id
        if message_id is not None and await self._is_turn(live, message_id):
            return Sent(message_id, 1, "sent")
        if message_id is not None and message_id in live.queue:
            return Sent(message_id, live.queue[message_id].revision, "queued")
        message_id = message_id or str(uuid4())
        kept = QueuedMessage(principal, by)
        if steer and live.turn is not None:
            self._turns.steer(live, message_id, message, kept)
            return Sent(message_id, 1, "steered")
        if self._turns.is_free(live):
            self._turns.begin(live, message, principal, turn_id=message_id)
            return Sent(message_id, 1, "sent")
        self._turns.queue(live, message_id, message, kept)
        return Sent(message_id, 1, "queued")

    async def _is_turn(self, chat: LiveChat, message_id: str) -> bool:
        return message_id in chat.turn_ids or await self._turns.history.learn(chat, message_id)

    def _require_open(self, chat: LiveChat) -> None:
        self.require_usable(self._chats.session_state(chat.session), self._chats.chat_state(chat))
        if chat.session.agent is None:
            raise InvalidParams(f"No agent called {chat.session.provider} is enabled here")

    def require_usable(self, session: Json, chat: Json | None = None) -> None:
        if (session.get("status", 0) | (chat or {}).get("status", 0)) & ARCHIVED:
            raise InvalidParams("This session is archived; take it out of the archive first")
        if session.get("lifecycle") == "failed":
            raise InvalidParams("This session could not be started; create another one")
        if not self._turns.accepting:
            raise AhpdError("This host is stopping")

    async def replace_queued(
        self, principal: Principal, chat: str, message: str, text: str, *, expected: int, by: str
    ) -> Sent:
        self.require(principal, "chat:send", chat)
        live = await self.chat(chat)
        old = self._own_queued(live, message, expected, by)
        changed = {**old["message"], "text": text}
        self._turns.queue(live, message, changed, QueuedMessage(principal, by))
        return Sent(message, expected + 1, "replaced")

    async def cancel_queued(
        self, principal: Principal, chat: str, message: str, *, expected: int, by: str
    ) -> Sent:
        self.require(principal, "chat:cancel", chat)
        live = await self.chat(chat)
        self._own_queued(live, message, expected, by)
        del live.queue[message]
        action = {"type": "chat/pendingMessageRemoved", "kind": "queued", "id": message}
        self._chats.dispatch(live, action)
        self._chats.keeper.record(live)
        return Sent(message, expected, "cancelled")

    def _own_queued(self, chat: LiveChat, message: str, expected: int, by: str) -> Json:
        kept = chat.queue.get(message)
        waiting = self._chats.chat_state(chat).get("queuedMessages", [])
        entry: Json | None = next((each for each in waiting if each["id"] == message), None)
        if kept is None or entry is None or kept.by != by:
            raise NotFound("messageId must name a queued message this chat sent")
        if kept.revision != expected:
            raise Conflict(
                f"expectedRevision must be the message's current revision (now {kept.revision})",
                {"revision": kept.revision},
            )
        return entry


def _message(
    text: str, sender: Sender | None, model: str | None, kind: str | None, meta: Mapping[str, Any] | None
) -> Json:
    message: Json = {"text": text, "origin": {"kind": kind or ("user" if sender is None else "agent")}}
    if model is not None:
        message["model"] = {"id": model}
    extra = dict(meta or {})
    if sender is not None:
        delegation = {"sourceSession": sender.session, "sourceChat": sender.chat}
        if sender.turn is not None:
            delegation["sourceTurnId"] = sender.turn
        extra["vscode.chat.delegation"] = delegation
    if extra:
        message["_meta"] = extra
    return message
