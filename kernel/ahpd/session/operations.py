"""The verbs of a host, principal first: what the socket, tools and doors call. Implements `ahpd.HostApi`.

Each asks its grant through `access.require` before it does anything, so that every path to an effect is guarded
by the same line.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any
from uuid import uuid4

import msgspec

from ahpd.access import Gatekeeper, Principal
from ahpd.agents import Agent
from ahpd.errors import InvalidParams, NotFound, Rejected, SessionNotFound, TurnInProgress
from ahpd.lineage import SessionTrees
from ahpd.ports import SessionRow
from ahpd.session.attachments import Attachments
from ahpd.session.catalogue import Catalogue
from ahpd.session.chats import TITLE_LENGTH, Chats
from ahpd.session.dormant import Dormant, chats_of
from ahpd.session.live import LiveChat, LiveSession
from ahpd.session.messages import Messages
from ahpd.session.moves import Moves
from ahpd.session.sessions import Sessions
from ahpd.session.settings import capabilities_of, resolve, schema_of
from ahpd.session.suggestions import for_message, setting_values
from ahpd.session.turns import Turns
from ahpd.state import Json, sendable
from ahpd.views import SessionView

PAGE = 50
"""Turns in one page of a chat's history."""

BEGINNING = ("chat/turnStarted", "chat/pendingMessageSet")
"""Actions that begin a turn, now or when its time has come."""


class Operations(Messages):
    """Every verb on sessions and chats."""

    def __init__(
        self,
        gatekeeper: Gatekeeper,
        sessions: Sessions,
        dormant: Dormant,
        chats: Chats,
        turns: Turns,
        catalogue: Catalogue,
        lineage: SessionTrees,
        agents: Callable[[], Mapping[str, Agent]],
        described: Callable[[], list[Json]],
        settings: Callable[[], Mapping[str, Any]],
        principal: Callable[[str | None], Principal],
    ) -> None:
        super().__init__(gatekeeper, sessions, dormant, chats, turns)
        self.principal = principal
        self.attachments = Attachments(gatekeeper, sessions, dormant, turns.history)
        self._moves = Moves(sessions, chats, turns)
        self._catalogue, self.lineage = catalogue, lineage
        self._agents, self._described, self._settings = agents, described, settings

    @property
    def settings(self) -> Mapping[str, Any]:
        return MappingProxyType(self._settings())

    # -- reading ----------------------------------------------------------------------------------------

    def agents(self, principal: Principal) -> list[Json]:
        return self._described()

    def sessions(self, principal: Principal) -> list[Mapping[str, Any]]:
        rows = self._catalogue.newest_first() if self.holds(principal, "session:list") else []
        return [dict(row) for row in rows]

    def page(self, principal: Principal, limit: int | None, cursor: str | None) -> Json:
        """A page of the catalogue: `{items, nextCursor?}`."""
        self.require(principal, "session:list")
        return self._catalogue.page(limit, cursor)

    def session(self, uri: str) -> SessionView | None:
        session = self._sessions.find(uri)
        if session is not None:
            return self._sessions.view(session)
        row = self._dormant.row(uri)
        return None if row is None else _view_of(row)

    async def chat_state(self, principal: Principal, chat: str) -> Json | None:
        self.require(principal, "chat:turns", chat)
        try:
            state = self._chats.chat_state(await self.chat(chat))
        except SessionNotFound:
            return None
        # A copy: what a plugin changed in the state itself would be told to no client, and kept.
        copied: Json = msgspec.json.decode(msgspec.json.encode(state))
        return copied

    async def older_turns(self, principal: Principal, chat: LiveChat, cursor: str | None) -> Json:
        """The `chat/turnsLoaded` action for the page before a cursor. `InvalidParams` for a foreign one."""
        self.require(principal, "chat:turns", chat.uri)
        turns = self._chats.chat_state(chat).get("turns", [])
        end = len(turns)
        if cursor is not None:
            end = next((i for i, turn in enumerate(turns) if turn["id"] == cursor), -1)
        if end > 0:
            start = max(0, end - PAGE)
            page, more = turns[start:end], turns[start]["id"] if start else self._older(chat)
        else:
            page, more = await self._stored_turns(chat, cursor)
        action: Json = {"type": "chat/turnsLoaded", "turns": page}
        if more is not None:
            action["turnsNextCursor"] = more
        return action

    def _older(self, chat: LiveChat) -> str | None:
        """The cursor for turns before those in memory."""
        cursor: str | None = self._chats.chat_state(chat).get("turnsNextCursor")
        return cursor

    async def _stored_turns(
        self, chat: LiveChat, cursor: str | None, limit: int = PAGE
    ) -> tuple[list[Json], str | None]:
        try:
            turns, more = await self._chats.keeper.store.turns(chat.uri, cursor, limit)
        except KeyError:
            if cursor in chat.turn_ids:
                return [], None
            raise InvalidParams("cursor is not one that this chat gave out") from None
        return [dict(turn) for turn in turns], more

    def resolve_config(self, provider: str | None, config: Mapping[str, Any]) -> Json:
        """The settings a new session would have: `{schema, values}`."""
        properties = schema_of(self._agent(provider))
        return {
            "schema": {"type": "object", "properties": properties},
            "values": resolve(properties, config),
        }

    def _agent(self, provider: str | None) -> Agent:
        agents = self._agents()
        agent = agents.get(provider) if provider is not None else next(iter(agents.values()), None)
        if agent is None:
            raise InvalidParams(f"provider must be one of {', '.join(agents) or 'no agent is enabled'}")
        return agent

    def config_completions(
        self, provider: str | None, config: Mapping[str, Any], name: str, query: str
    ) -> Awaitable[Json]:
        """What a setting of a new session may be set to: `{items}`."""
        return setting_values(self._agent(provider), config, name, query)

    def message_completions(self, principal: Principal, chat: LiveChat, text: str, offset: int) -> Awaitable[Json]:
        """What may be put into a message that is being written: `{items}`."""
        self.require(principal, "chat:send", chat.uri)
        directories = self._chats.session_state(chat.session).get("workingDirectories", [])
        return for_message(chat.session.agent, chat.uri, text, offset, directories)

    async def look_up(self, principal: Principal, channel: str, action: Any) -> None:
        """Read what an action on a chat will be judged by, which cannot wait then. It may be anything at all."""
        if not isinstance(action, dict):
            return
        kind, turn_id = action.get("type"), action.get("turnId")
        if kind == "chat/pendingMessageSet":
            turn_id = action.get("id")  # which its turn will have, unless another one has it
        if kind in BEGINNING:
            await self.attachments.look_up(principal, action.get("message"))
        found = self._sessions.find_chat(channel)
        if found is None or not isinstance(turn_id, str):
            return
        if kind in BEGINNING and self.holds(principal, "chat:send"):
            await self._turns.history.learn(found[0], turn_id)
        elif kind == "chat/truncated" and self.holds(principal, "chat:truncate"):
            await self._turns.history.recall(found[0], turn_id)

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
            strategy="deferred" if self.settings.get("deferredTitleGeneration") else "activeAgent",
        )
        return self._sessions.view(session)

    async def delete_session(self, principal: Principal, session: str) -> None:
        self.require(principal, "session:dispose", session)
        await self._sessions.dispose(await self._dormant.awake(session))

    # -- chats ------------------------------------------------------------------------------------------

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
        working_directories: Sequence[str] | None = None,
    ) -> str:
        self.require(principal, "chat:fork" if source else "chat:create", session)
        live = await self._dormant.awake(session)
        if uri is not None and uri in live.chats:
            return uri
        if uri is not None and not self._sessions.is_free(uri, live):
            raise InvalidParams(f"chat {uri} is the name of something else already")
        origin, turns = await self._source(live, source) if source else (None, None)
        if message is not None:
            await self.attachments.look_up(principal, message)
            message = self._may_begin(principal, live, message)
        if self._sessions.by_uri.get(live.uri) is not live:
            raise SessionNotFound(f"No session at {session}")  # it ended while its turns were read
        inherited = None if turns is None or origin is None else self._own_directories(origin["chat"])
        directories = self._directories(live, working_directories) if inherited is None else inherited
        chat = self._chats.add(live, uri, _title(title), origin, turns, directories)
        if message is not None:
            self._turns.begin(chat, message, principal)
        return chat.uri

    def _own_directories(self, chat: str) -> list[str]:
        """The directories that a chat has chosen among its session's; none for all of them."""
        source = self._chats.by_uri.get(chat)
        return [] if source is None else list(self._chats.chat_state(source).get("workingDirectories") or ())

    def _directories(self, session: LiveSession, wanted: Sequence[str] | None) -> list[str]:
        allowed = self._chats.session_state(session).get("workingDirectories") or ()
        for directory in wanted or ():
            if directory not in allowed:
                raise InvalidParams(f"workingDirectories: {directory} is not a directory of the session")
        return list(dict.fromkeys(wanted or ()))

    def _may_begin(self, principal: Principal, session: LiveSession, message: Json) -> Json:
        """A new chat's first message as the chat takes it, before there is one: a chat that could not begin with
        its message must not be left behind."""
        self.require(principal, "chat:send", session.uri)
        if message["origin"].get("kind") != "user":
            raise InvalidParams("initialMessage.origin.kind must be user")
        self.require_usable(self._chats.session_state(session))
        try:
            return self.attachments.pin(principal, session, message)
        except Rejected as refusal:
            raise InvalidParams(f"initialMessage: {refusal.sentence}") from None

    async def _source(self, session: LiveSession, source: Mapping[str, Any]) -> tuple[Json, list[Json] | None]:
        """A new chat's origin, and the turns it begins with, for `createChat.source`."""
        found = self._sessions.find_chat(str(source.get("chat")))
        if found is None or found[0].session is not session:
            raise InvalidParams("source.chat must be a chat of the same session")
        kind = source.get("kind")
        capability = capabilities_of(session.agent).get("multipleChats") or {}
        if kind not in ("fork", "sideChat") or not capability.get(kind):
            raise InvalidParams(f"source.kind {kind} is not something {session.provider} can do")
        turn_id, history = str(source.get("turnId")), self._turns.history
        origin: Json = {"kind": kind, "chat": found[0].uri, "turnId": turn_id}
        if kind == "fork":
            turns = await history.through(found[0].uri, turn_id)
            if not turns:
                raise InvalidParams("source.turnId must be a completed turn of that chat")
            return origin, turns
        running = self._chats.chat_state(found[0]).get("activeTurn") or {}
        if turn_id != running.get("id") and not await history.learn(found[0], turn_id):
            raise InvalidParams("source.turnId must be a turn of that chat")
        if source.get("selection"):
            origin["selection"] = source["selection"]
        return origin, None

    async def dispose_chat(self, principal: Principal, chat: str) -> None:
        self.require(principal, "chat:dispose", chat)
        await self._sessions.drop_chat(await self.chat(chat))

    async def rename_chat(self, principal: Principal, chat: str, title: str) -> None:
        self.require(principal, "session:rename", chat)
        self._chats.rename(await self.chat(chat), _title(title))

    async def archive(self, principal: Principal, target: str, archived: bool) -> None:
        session = await self._dormant.wake(target) if self.session(target) is not None else None
        if session is None:
            chat = await self.chat(target)
            if not self._chats.is_default(chat):
                self.require(principal, "chat:mark", target)
                self._chats.dispatch(chat, {"type": "chat/isArchivedChanged", "isArchived": archived})
                return
            session = chat.session
        self.require(principal, "session:mark", target)
        self._chats.dispatch_session(session, {"type": "session/isArchivedChanged", "isArchived": archived})
        if archived:
            self._turns.rest(session)

    # -- what plugins keep, and do later ----------------------------------------------------------------

    def session_meta(self, session: str) -> Mapping[str, Any]:
        live = self._sessions.find(session)
        if live is not None:
            return dict(self._chats.session_state(live).get("_meta") or {})
        row = self._dormant.row(session)
        if row is None:
            raise SessionNotFound(f"No session at {session}")
        return dict(row.summary.get("_meta") or {})

    async def set_session_meta(self, session: str, key: str, value: Any | None) -> None:
        live = await self._dormant.awake(session)
        before = self._chats.session_state(live).get("_meta") or {}
        after = {name: kept for name, kept in before.items() if name != key}
        if value is not None:
            after[key] = sendable(value)
        if after != before:
            # Everybody who watches hears of it from the flusher, which waits for the disk first.
            self._chats.dispatch_session(live, {"type": "session/metaChanged", "_meta": after})

    async def kept(self, chat: str, key: str) -> Any | None:
        return (await self.chat(chat)).kept.get(key)

    async def keep(self, chat: str, key: str, value: Any | None) -> None:
        live = await self.chat(chat)
        if value is None:
            live.kept.pop(key, None)
        else:
            live.kept[key] = sendable(value)
        self._chats.keeper.record(live)
        await self._chats.keeper.commit()

    async def all_kept(self, key: str) -> Mapping[str, Any]:
        stored = await self._chats.keeper.store.records()
        kept = {chat: record.get("kept") or {} for chat, record in stored.items()}
        found = {chat: values[key] for chat, values in kept.items() if key in values}
        for uri, chat in self._chats.by_uri.items():
            found.pop(uri, None)
            if key in chat.kept:
                found[uri] = chat.kept[key]
        return found

    def after_turn(self, chat: str, key: str, act: Callable[[], Awaitable[None]]) -> None:
        found = self._sessions.find_chat(chat)
        if found is not None and found[0].turn is not None:
            found[0].after_turn[key] = act

    async def move_chat(
        self,
        principal: Principal,
        chat: str,
        *,
        into: str | None,
        after: str | None = None,
        first: bool = False,
    ) -> str:
        self.require(principal, "chat:move", chat)
        try:
            target = None if into is None else await self._dormant.awake(into)
            behind = None if after is None else (await self.chat(after)).uri
            live = await self.chat(chat)
        except SessionNotFound as error:
            raise NotFound(error.sentence) from None
        if target is not None and self._sessions.by_uri.get(target.uri) is not target:
            raise NotFound(f"No session at {into}")  # it ended while the others were looked up
        self._moves.require_movable(live)
        if target is None:
            self.require(principal, "session:create", chat)
            return (await self._moves.into_own(live)).uri
        if target is live.session:
            self._moves.within(live, behind, first)
        else:
            self._moves.into(live, target, behind, first)
        return target.uri

    async def set_workspace(self, principal: Principal, session: str, directory: str) -> None:
        self.require(principal, "session:folders", session)
        live = await self._dormant.awake(session)
        if any(chat.turn is not None for chat in live.chats.values()):
            raise TurnInProgress("A turn is running in this session; its directory can change when it has ended")
        directories = self._chats.session_state(live).get("workingDirectories", [])
        if not directories:
            action: Json = {"type": "session/workingDirectorySet", "directory": directory}
        else:
            action = {
                "type": "session/workingDirectoryReplaced",
                "directory": directories[0],
                "replacement": directory,
            }
        self._chats.change_directories(live, action)
        self._turns.rest(live)


def _view_of(row: SessionRow) -> SessionView:
    """A session that sleeps, from its row."""
    summary = row.summary
    return SessionView(
        uri=row.uri,
        id=row.id,
        provider=str(summary.get("provider", "")),
        title=str(summary.get("title", "")),
        working_directories=tuple(summary.get("workingDirectories", ())),
        default_chat=str(summary.get("defaultChat", "")),
        chats=chats_of(summary),
        owner=row.record.get("owner"),
        parent=row.parent,
        settings=dict(row.record.get("settings") or {}),
        strategy=str(row.record.get("strategy", "activeAgent")),
    )


def _title(title: str | None) -> str:
    folded = sendable(" ".join((title or "").split()))
    if len(folded) > TITLE_LENGTH:
        raise InvalidParams(f"title must not exceed {TITLE_LENGTH} characters")
    return str(folded)
