"""Commands of the protocol, turned into verbs of the host. One short function per command.

Params arrive decoded and the command's grant has been asked. Names go in as clients spell them and come out
as they spell them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeAlias

from ahpd.access import Principal
from ahpd.errors import InvalidParams, InvalidRequest, NotFound, SessionNotFound, UnsupportedVersion
from ahpd.ports import Method
from ahpd.protocol.shapes import (
    Completions,
    CreateChat,
    CreateSession,
    FetchTurns,
    Initialize,
    ListSessions,
    MoveChat,
    Reconnect,
    ResolveSessionConfig,
    SessionConfigCompletions,
    Subscribe,
)
from ahpd.protocol.versions import OLD_RANGES, SUPPORTED_RANGES, agree
from ahpd.session import names
from ahpd.session.dormant import Dormant
from ahpd.session.inbound import Inbound
from ahpd.session.operations import Operations
from ahpd.session.presence import Presence
from ahpd.session.sessions import Sessions
from ahpd.state import Json, State
from ahpd.wire import gate
from ahpd.wire.clients import Client, Clients
from ahpd.wire.connection import Connection, Later, Target

Handler: TypeAlias = Callable[["Methods", Connection, Any], Awaitable[Any]]
RootAction: TypeAlias = Callable[[Principal, Json, Mapping[str, Any]], None]


class Methods:
    """Implements `ahpd.wire.connection.Services`."""

    def __init__(
        self,
        state: State,
        clients: Clients,
        sessions: Sessions,
        dormant: Dormant,
        operations: Operations,
        inbound: Inbound,
        welcome: Callable[[Principal], Json],
        on_root: RootAction,
        presence: Presence,
        client_left: Callable[[Client], None],
        added: Callable[[str], tuple[str, Method] | None],
        compat: bool = False,
    ) -> None:
        self.state, self.clients, self.client_left = state, clients, client_left
        self._sessions, self._operations, self._inbound = sessions, operations, inbound
        self._welcome, self._on_root, self._compat = welcome, on_root, compat
        self._presence = presence
        self.host, self.added, self._dormant = operations, added, dormant
        self.require = operations.require
        self.sleeps, self.wake, self.look_up = dormant.sleeps, dormant.wake, operations.look_up

    # -- names ------------------------------------------------------------------------------------------

    def find(self, uri: str) -> Target | None:
        """The channel a client means; `None` when there is none."""
        if names.is_root(uri):
            return Target(names.ROOT, "root", None)
        session = self._sessions.find(uri)
        if session is not None:
            return Target(session.uri, "session", session.spelling(uri))
        found = self._sessions.find_chat(uri)
        if found is not None:
            return Target(found[0].uri, "chat", found[1])
        return None

    def _find_readable(self, principal: Principal, uri: str) -> Target | None:
        """As `find`, without what the principal may not read."""
        target = self.find(uri)
        grant = None if target is None else gate.CHANNELS.get(target.kind)
        return target if target is None or grant is None or self._operations.holds(principal, grant) else None

    def _find_all(self, principal: Principal, uris: Iterable[str]) -> dict[str, Target]:
        """What a principal may read of channels listed, each once, by the name that it is listed under last.

        A chat has as many names as a client can think of, and a connection watches it under one of them.
        """
        once: dict[str, tuple[str, Target]] = {}
        for uri in uris:
            target = self._find_readable(principal, uri)
            if target is not None:
                once[target.uri] = (uri, target)
        return dict(once.values())

    def _require_target(self, uri: str) -> Target:
        target = self.find(uri)
        if target is None:
            is_ours = uri.startswith((names.SESSION_SCHEME, names.CHAT_SCHEME)) or not uri.startswith("ahp-")
            raise (SessionNotFound if is_ours else NotFound)(f"There is nothing to watch at {uri}")
        return target

    def unwatched(self, client: Client, target: Target) -> None:
        """No connection of a client watches a session any more: it is not present there."""
        session = self._sessions.find(target.uri) if target.kind == "session" else None
        if session is not None and self._presence.is_present(session, client.id):
            self._presence.leave(session, client.id)

    # -- actions ----------------------------------------------------------------------------------------

    def apply(self, principal: Principal, target: Target, action: Json, origin: Mapping[str, Any]) -> None:
        if target.kind == "root":
            self._on_root(principal, action, origin)
        elif target.kind == "session":
            self._inbound.to_session(self._sessions.get(target.uri), action, origin)
        else:
            found = self._sessions.find_chat(target.uri)
            if found is not None:
                self._inbound.to_chat(found[0], action, origin, principal)

    # -- commands ---------------------------------------------------------------------------------------

    async def serve(self, connection: Connection, method: str, params: Any) -> Any:
        return await COMMANDS[method](self, connection, params)

    async def initialize(self, connection: Connection, params: Initialize) -> Json:
        if connection.client is not None:
            raise InvalidRequest("This connection has been initialized already")
        version = _agreed(params.protocol_versions, self._compat)
        if version is None:
            offered = ", ".join(params.protocol_versions) or "none"
            ranges = SUPPORTED_RANGES + (OLD_RANGES if self._compat else [])
            raise UnsupportedVersion(
                f"This host speaks {' and '.join(ranges)}; the client offered {offered}",
                {"supportedVersions": ranges},
            )
        client = self.clients.greet(params.client_id, version)
        client.capabilities = params.capabilities or {}
        self._join(connection, client)
        found = self._find_all(connection.principal, params.initial_subscriptions or [])
        return {
            "protocolVersion": version,
            "serverSeq": self.state.seq,
            "snapshots": [connection.watch(uri, target) for uri, target in found.items()],
            **self._welcome(connection.principal),
        }

    def _join(self, connection: Connection, client: Client) -> None:
        connection.greeted(client)
        self.clients.joined(client)

    async def reconnect(self, connection: Connection, params: Reconnect) -> Json:
        if connection.client is not None:
            raise InvalidRequest("This connection has been initialized already")
        client = self.clients.known(params.client_id)
        if client is None:
            raise NotFound("This host does not know that client any more; initialize again")
        named = dict.fromkeys(each if isinstance(each, str) else each.channel for each in params.subscriptions)
        found = self._find_all(connection.principal, named)
        after = _oldest(params)
        self._join(connection, client)
        if client.sockets == 1:
            # A session that the client does not ask back for is one it is not present in any more.
            self._presence.leave_everywhere(client.id, frozenset(target.uri for target in found.values()))
        shown = all(connection.shown(target, after) for target in found.values())
        if not shown or not self.state.can_replay(after):
            snapshots = [connection.watch(uri, target) for uri, target in found.items()]
            return {"type": "snapshot", "snapshots": snapshots}
        for target in found.values():
            connection.attach(target)
        missed = self.state.missed(after, [target.uri for target in found.values()], client.id)
        spellings = {target.uri: target.spelling for target in found.values()}
        return {
            "type": "replay",
            "actions": [
                _spelled(told, spellings[told["channel"]])
                for envelope in missed
                if (told := connection.told(envelope.as_json())) is not None
            ],
            "missing": [uri for uri in named if self._find_readable(connection.principal, uri) is None],
        }

    async def subscribe(self, connection: Connection, params: Subscribe) -> Json:
        target = self._require_target(params.channel)
        turns = params.view.turns if params.view is not None else None
        return {"snapshot": connection.watch(params.channel, target, turns)}

    async def list_sessions(self, connection: Connection, params: ListSessions) -> Json:
        return self._operations.page(connection.principal, params.limit, params.cursor)

    async def create_session(self, connection: Connection, params: CreateSession) -> None:
        client = connection.client
        if params.fork is not None and connection.older is not None:
            raise InvalidParams("createSession: fork is not served; create a chat with a source instead")
        entry = params.active_client
        if entry is not None and client is not None:
            entry = {**entry, "clientId": client.id}
        await self._operations.create_session(
            connection.principal,
            provider=params.provider,
            working_directories=params.working_directories or (),
            config=params.config,
            uri=params.channel,
            active_client=entry,
        )

    async def dispose_session(self, connection: Connection, params: Any) -> Later | None:
        # Ended here, so that it is gone for whatever the client sends next; only what it leaves is waited for.
        if self._dormant.discard(params.channel):
            return None  # it could not be woken
        session = self._sessions.get(params.channel)
        self._sessions.end(session)
        return Later(session.closed.wait())

    async def create_chat(self, connection: Connection, params: CreateChat) -> None:
        source = None
        if params.source is not None:
            source = {
                "kind": params.source.kind,
                "chat": params.source.chat,
                "turnId": params.source.turn_id,
                "selection": params.source.selection,
            }
        session = self._sessions.get(params.channel)
        spelling = session.spelling(params.channel)
        await self._operations.create_chat(
            connection.principal,
            session.uri,
            uri=params.chat if spelling is None else spelling.held(params.chat),
            source=source,
            message=params.initial_message if spelling is None else spelling.held(params.initial_message),
            working_directories=params.working_directories,
        )

    async def dispose_chat(self, connection: Connection, params: Any) -> Later:
        return Later(self._operations.dispose_chat(connection.principal, params.channel))

    async def move_chat(self, connection: Connection, params: MoveChat) -> Json:
        place = params.destination
        session = await self._operations.move_chat(
            connection.principal,
            params.channel,
            into=place.session if place.kind == "session" else None,
            after=place.after,
            first=place.after is None,
        )
        return {"session": place.session or session}

    async def fetch_turns(self, connection: Connection, params: FetchTurns) -> Json:
        found = self._sessions.find_chat(params.channel)
        if found is None:
            raise SessionNotFound(f"No chat at {params.channel}")
        chat, spelling = found
        action = await self._operations.older_turns(connection.principal, chat, params.cursor)
        client = connection.client
        assert client is not None
        # Everybody else who watches has these turns, or asks for them: their cursor must not be moved.
        connection.deliver(self.state.address(chat.uri, action, client.id), spelling)
        return {}

    async def resolve_session_config(self, connection: Connection, params: ResolveSessionConfig) -> Json:
        return self._operations.resolve_config(params.provider, params.config or {})

    async def session_config_completions(self, connection: Connection, params: SessionConfigCompletions) -> Later:
        config, query = params.config or {}, params.query or ""
        return Later(self._operations.config_completions(params.provider, config, params.property, query))

    async def completions(self, connection: Connection, params: Completions) -> Json | Later:
        found = self._sessions.find_chat(params.channel)
        if found is None:
            raise SessionNotFound(f"No chat at {params.channel}")
        if params.kind != "userMessage":
            return {"items": []}
        return Later(
            self._operations.message_completions(connection.principal, found[0], params.text, params.offset)
        )


def _agreed(offered: list[str], compat: bool) -> str | None:
    try:
        return agree(offered, compat)
    except ValueError as error:
        raise InvalidParams(f"initialize: protocolVersions: {error}") from None


def _spelled(envelope: Json, spelling: Any) -> Any:
    return envelope if spelling is None else spelling.out(envelope)


def _oldest(params: Reconnect) -> int:
    """The number everything after which was missed: one for all channels, or the lowest of theirs."""
    if params.last_seen_server_seq is not None:
        return params.last_seen_server_seq
    seqs = [each.last_seen_server_seq for each in params.subscriptions if not isinstance(each, str)]
    return min(seqs, default=0)


COMMANDS: Mapping[str, Handler] = {
    "initialize": Methods.initialize,
    "reconnect": Methods.reconnect,
    "subscribe": Methods.subscribe,
    "listSessions": Methods.list_sessions,
    "createSession": Methods.create_session,
    "disposeSession": Methods.dispose_session,
    "createChat": Methods.create_chat,
    "disposeChat": Methods.dispose_chat,
    "moveChat": Methods.move_chat,
    "fetchTurns": Methods.fetch_turns,
    "resolveSessionConfig": Methods.resolve_session_config,
    "sessionConfigCompletions": Methods.session_config_completions,
    "completions": Methods.completions,
}
