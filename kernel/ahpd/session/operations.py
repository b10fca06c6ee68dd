"""The verbs of a host, principal first: what the socket, tools and doors call. Implements `ahpd.HostApi`.

Each asks its grant through `access.require` before it does anything, so that every path to an effect is guarded
by the same line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import uuid4

from ahpd.access import Gatekeeper, Principal
from ahpd.agents import Agent
from ahpd.errors import AhpdError, Conflict, InvalidParams, NotFound, SessionNotFound
from ahpd.lineage import SessionTrees
from ahpd.session import names
from ahpd.session.catalogue import Catalogue
from ahpd.session.chats import TITLE_LENGTH, Chats
from ahpd.session.live import LiveChat, LiveSession, QueuedMessage
from ahpd.session.sessions import Sessions
from ahpd.session.settings import resolve, schema_of
from ahpd.session.turns import Turns
from ahpd.state import Json, sendable
from ahpd.views import Sender, Sent, SessionView

PAGE = 50
"""Turns in one page of a chat's history."""
ARCHIVED = 64


class Operations:
    """Every verb on sessions and chats."""

    def __init__(
        self,
        gatekeeper: Gatekeeper,
        sessions: Sessions,
        chats: Chats,
        turns: Turns,
        catalogue: Catalogue,
        lineage: SessionTrees,
        agents: Callable[[], Mapping[str, Agent]],
        settings: Callable[[], Mapping[str, Any]],
    ) -> None:
        self.require = gatekeeper.require
        self.holds = gatekeeper.holds
        self._sessions, self._chats, self._turns = sessions, chats, turns
        self._catalogue, self.lineage = catalogue, lineage
        self._agents, self._settings = agents, settings

    @property
    def settings(self) -> Mapping[str, Any]:
        return self._settings()

    # -- reading ----------------------------------------------------------------------------------------

    def agents(self, principal: Principal) -> list[Json]:
        return [{**agent_info(agent), "settings": schema_of(agent)} for agent in self._agents().values()]

    def sessions(self, principal: Principal) -> list[Json]:
        return self._catalogue.newest_first() if self.holds(principal, "session:list") else []

    def page(self, principal: Principal, limit: int | None, cursor: str | None) -> Json:
        """A page of the catalogue: `{items, nextCursor?}`."""
        self.require(principal, "session:list")
        return self._catalogue.page(limit, cursor)

    def session(self, uri: str) -> SessionView | None:
        session = self._sessions.find(uri)
        return None if session is None else self._sessions.view(session)

    def chat_state(self, principal: Principal, chat: str) -> Json | None:
        self.require(principal, "chat:turns", chat)
        found = self._sessions.find_chat(chat)
        return None if found is None else self._chats.chat_state(found[0])

    def older_turns(self, principal: Principal, chat: LiveChat, cursor: str | None) -> Json:
        """The `chat/turnsLoaded` action for the page before a cursor. `InvalidParams` for a foreign one."""
        self.require(principal, "chat:turns", chat.uri)
        turns = self._chats.chat_state(chat).get("turns", [])
        end = len(turns)
        if cursor is not None:
            end = next((i for i, turn in enumerate(turns) if turn["id"] == cursor), -1)
            if end < 0:
                raise InvalidParams("cursor is not one that this chat gave out")
        start = max(0, end - PAGE)
        action: Json = {"type": "chat/turnsLoaded", "turns": turns[start:end]}
        if start:
            action["turnsNextCursor"] = turns[start]["id"]
        return action

    def resolve_config(self, provider: str | None, config: Mapping[str, Any]) -> Json:
        """The settings a new session would have: `{schema, values}`."""
        agents = self._agents()
        agent = agents.get(provider) if provider is not None else next(iter(agents.values()), None)
        if agent is None:
            raise InvalidParams(f"provider must be one of {', '.join(agents) or 'no agent is enabled'}")
        properties = schema_of(agent)
        return {
            "schema": {"type": "object", "properties": properties},
            "values": resolve(properties, config),
        }

    # -- sessions ---------------------------------------------------------------------------------------

    async def create_session(
        self,
        principal: Principal,
        *,
        provider: str | None = None,
        working_directories: Sequence[str] = (),
        config: Mapping[str, Any] | None = None,
        title: str | None = None,
        parent: str | None = None,
        owner: str | None = None,
        uri: str | None = None,
        active_client: Json | None = None,
    ) -> SessionView:
        self.require(principal, "session:create")
        session = await self._sessions.create(
            uri or f"ahp-session:/{uuid4()}",
            provider=provider,
            working_directories=working_directories,
            config=config,
            title=_title(title),
            parent=parent,
            owner=owner or principal.id,
            active_client=active_client,
        )
        return self._sessions.view(session)

    async def delete_session(self, principal: Principal, session: str) -> None:
        self.require(principal, "session:dispose", session)
        await self._sessions.dispose(self._sessions.get(session))

    # -- chats ------------------------------------------------------------------------------------------

    def _chat(self, uri: str) -> LiveChat:
        found = self._sessions.find_chat(uri)
        if found is None:
            raise SessionNotFound(f"No chat at {uri}")
        return found[0]

    async def create_chat(
        self,
        principal: Principal,
        session: str,
        *,
        title: str | None = None,
        model: str | None = None,
        uri: str | None = None,
        source: Mapping[str, Any] | None = None,
        message: Json | None = None,
    ) -> str:
        self.require(principal, "chat:fork" if source else "chat:create", session)
        live = self._sessions.get(session)
        if uri is not None and uri in live.chats:
            return uri
        if uri is not None and self._sessions.find_chat(uri) is not None:
            raise InvalidParams(f"chat {uri} belongs to another session")
        if uri is not None and (names.is_root(uri) or self._sessions.find(uri) is not None):
            raise InvalidParams(f"chat {uri} is the name of something else")
        origin, turns = self._source(live, source) if source else (None, None)
        if message is not None:
            self._require_may_begin(principal, live, message)
        chat = self._chats.add(live, uri, _title(title), origin, turns)
        if message is not None:
            self._turns.begin(chat, message, principal)
        return chat.uri

    def _require_may_begin(self, principal: Principal, session: LiveSession, message: Json) -> None:
        """Before there is a chat: one that could not begin with its message must not be left behind."""
        self.require(principal, "chat:send", session.uri)
        if message["origin"].get("kind") != "user":
            raise InvalidParams("initialMessage.origin.kind must be user")
        self._require_usable(self._chats.session_state(session))

    def _source(self, session: LiveSession, source: Mapping[str, Any]) -> tuple[Json, list[Json] | None]:
        """A new chat's origin, and the turns it begins with, for `createChat.source`."""
        found = self._sessions.find_chat(str(source.get("chat")))
        if found is None or found[0].session is not session:
            raise InvalidParams("source.chat must be a chat of the same session")
        kind = source.get("kind")
        capability = session.agent.capabilities().get("multipleChats") or {}
        if kind not in ("fork", "sideChat") or kind not in capability:
            raise InvalidParams(f"source.kind {kind} is not something {session.agent.display_name} can do")
        state = self._chats.chat_state(found[0])
        ids = [turn["id"] for turn in state.get("turns", [])]
        turn_id = source.get("turnId")
        origin: Json = {"kind": kind, "chat": found[0].uri, "turnId": turn_id}
        if kind == "fork":
            if turn_id not in ids:
                raise InvalidParams("source.turnId must be a completed turn of that chat")
            return origin, state["turns"][: ids.index(turn_id) + 1]
        if turn_id not in ids and turn_id != (state.get("activeTurn") or {}).get("id"):
            raise InvalidParams("source.turnId must be a turn of that chat")
        if source.get("selection"):
            origin["selection"] = source["selection"]
        return origin, None

    async def dispose_chat(self, principal: Principal, chat: str) -> None:
        self.require(principal, "chat:dispose", chat)
        await self._sessions.drop_chat(self._chat(chat))

    async def rename_chat(self, principal: Principal, chat: str, title: str) -> None:
        self.require(principal, "session:rename", chat)
        self._chats.rename(self._chat(chat), _title(title))

    async def archive(self, principal: Principal, target: str, archived: bool) -> None:
        session = self._sessions.find(target)
        chat = None if session is not None else self._chat(target)
        if chat is not None and not self._chats.is_default(chat):
            self.require(principal, "chat:mark", target)
            self._chats.dispatch(chat, {"type": "chat/isArchivedChanged", "isArchived": archived})
            return
        session = session or (chat.session if chat is not None else None)
        assert session is not None
        self.require(principal, "session:mark", target)
        self._chats.dispatch_session(session, {"type": "session/isArchivedChanged", "isArchived": archived})

    # -- messages ---------------------------------------------------------------------------------------

    async def send(
        self,
        principal: Principal,
        chat: str,
        text: str,
        *,
        steer: bool = False,
        sender: Sender | None = None,
        model: str | None = None,
    ) -> Sent:
        self.require(principal, "chat:send", chat)
        live = self._chat(chat)
        self._require_open(live)
        message = _message(text, sender, model)
        by = sender.chat if sender is not None else principal.id
        message_id = str(uuid4())
        kept = QueuedMessage(principal, by)
        if steer and live.turn is not None:
            self._turns.steer(live, message_id, message, kept)
            return Sent(message_id, 1, "steered")
        if self._turns.is_free(live):
            self._turns.begin(live, message, principal, turn_id=message_id)
            return Sent(message_id, 1, "sent")
        self._turns.queue(live, message_id, message, kept)
        return Sent(message_id, 1, "queued")

    def _require_open(self, chat: LiveChat) -> None:
        self._require_usable(self._chats.session_state(chat.session), self._chats.chat_state(chat))

    def _require_usable(self, session: Json, chat: Json | None = None) -> None:
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
        live = self._chat(chat)
        old = self._own_queued(live, message, expected, by)
        changed = {**old["message"], "text": text}
        self._turns.queue(live, message, changed, live.queue[message])
        return Sent(message, expected + 1, "replaced")

    async def cancel_queued(
        self, principal: Principal, chat: str, message: str, *, expected: int, by: str
    ) -> Sent:
        self.require(principal, "chat:cancel", chat)
        live = self._chat(chat)
        self._own_queued(live, message, expected, by)
        del live.queue[message]
        action = {"type": "chat/pendingMessageRemoved", "kind": "queued", "id": message}
        self._chats.dispatch(live, action)
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


def agent_info(agent: Agent) -> Json:
    """The protocol's `AgentInfo`."""
    info: Json = {
        "provider": agent.provider,
        "displayName": agent.display_name,
        "description": agent.description,
        "models": [
            {"id": model.id, "provider": agent.provider, "name": model.name, **model.extra}
            for model in agent.models()
        ],
    }
    capabilities = dict(agent.capabilities())
    if capabilities:
        info["capabilities"] = capabilities
    return info


def _title(title: str | None) -> str:
    folded = sendable(" ".join((title or "").split()))
    if len(folded) > TITLE_LENGTH:
        raise InvalidParams(f"title must not exceed {TITLE_LENGTH} characters")
    return str(folded)


def _message(text: str, sender: Sender | None, model: str | None) -> Json:
    message: Json = {"text": text, "origin": {"kind": "user" if sender is None else "agent"}}
    if model is not None:
        message["model"] = {"id": model}
    if sender is not None:
        delegation = {"sourceSession": sender.session, "sourceChat": sender.chat}
        if sender.turn is not None:
            delegation["sourceTurnId"] = sender.turn
        message["_meta"] = {"vscode.chat.delegation": delegation}
    return message
