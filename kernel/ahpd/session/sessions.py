"""A session's life in one documented order, and finding one by any of its names.

Create: check, record, channels, nursery, announce, open the agent, `session/ready`. Whatever fails before the
announcement leaves nothing behind; what fails after it is state (`session/creationFailed`). Dispose: end turns,
let agents go, end processes, close channels, announce.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import trio

from ahpd.access import Principal
from ahpd.agents import Agent
from ahpd.errors import InvalidParams, ProviderNotFound, SessionExists, SessionNotFound
from ahpd.lineage import SessionTrees
from ahpd.log import get
from ahpd.ports import SessionRow, StoredChat, StoredSession
from ahpd.protocol.times import read_time
from ahpd.session import names
from ahpd.session.catalogue import IDLE, Catalogue
from ahpd.session.chats import Chats
from ahpd.session.index import SessionIndex
from ahpd.session.keeper import Keeper, restore_record
from ahpd.session.live import LiveChat, LiveSession, now
from ahpd.session.settings import capabilities_of, resolve, schema_of, settle
from ahpd.session.turns import CLOSE_SECONDS, Turns
from ahpd.state import Json, Spelling, State
from ahpd.tooling.fence import pass_on
from ahpd.tools import OfferedTool
from ahpd.views import SessionView

Agents = Callable[[], Mapping[str, Agent]]
OfferFor = Callable[[LiveSession], tuple[OfferedTool, ...]]
LEAVE_SECONDS = CLOSE_SECONDS + 1.0
"""How long the end of something is waited for: what agents may take to let go, and then the children."""


class Sessions:
    """Every live session of the host, by held name."""

    def __init__(
        self,
        state: State,
        by_uri: dict[str, LiveSession],
        catalogue: Catalogue,
        chats: Chats,
        turns: Turns,
        lineage: SessionTrees,
        agents: Agents,
        offer_for: OfferFor,
        index: SessionIndex,
        keeper: Keeper,
        principal: Callable[[str | None], Principal],
        default_directory: str | None = None,
    ) -> None:
        self._state, self.by_uri, self._catalogue = state, by_uri, catalogue
        self._chats, self._turns, self._lineage = chats, turns, lineage
        self._agents, self._offer_for = agents, offer_for
        self._index, self._keeper, self._principal = index, keeper, principal
        self._default_directory = default_directory
        self._creating: set[str] = set()
        self._alive: set[LiveSession] = set()
        """All with something that runs, also those nobody finds any more."""
        self.nursery: trio.Nursery | None = None

    # -- finding ----------------------------------------------------------------------------------------

    def find(self, uri: str) -> LiveSession | None:
        """A session that is awake, by its held name, by the URI its creator chose, or as `ahp-session:/<id>`."""
        held = None if uri.startswith(names.CHAT_SCHEME) else self._index.held(uri)
        return None if held is None else self.by_uri.get(held)

    def get(self, uri: str) -> LiveSession:
        session = self.find(uri)
        if session is None:
            raise SessionNotFound(f"No session at {uri}")
        return session

    def find_chat(self, uri: str) -> tuple[LiveChat, Spelling | None] | None:
        """A chat by any of its names, with the spelling that goes with the name."""
        chat = self._chats.by_uri.get(uri)
        if chat is not None:
            return chat, None
        if uri.startswith("ahp-chat://"):
            return self._find_by_session(uri)
        if uri.startswith(names.CHAT_SCHEME):
            session = self.by_uri.get(self._index.held(uri) or "")
            if session is not None:
                default = self._chats.session_state(session).get("defaultChat")
                if default in session.chats:
                    return session.chats[default], session.chats[default].spelling(uri, None)
        return None

    def _find_by_session(self, uri: str) -> tuple[LiveChat, Spelling | None] | None:
        chat_id, _, code = uri.removeprefix("ahp-chat://").partition("/")
        alias = names.decode(code.partition("/")[0])
        session = None if alias is None else self.find(alias)
        if alias is None:
            return None
        if session is None:
            # A chat that has moved is awake without the session that its name speaks of.
            moved = self._chats.by_uri.get(names.chat_uri(chat_id, self._index.held(alias) or alias))
            return None if moved is None else (moved, moved.spelling(uri, None))
        spelling = session.spelling(alias)
        held = uri if spelling is None else spelling.held(uri)
        chat = session.chats.get(held) or self._chats.by_uri.get(held)
        if chat is None and chat_id == "default":
            # `default` is a role: it may have moved to a chat of another name.
            default = self._chats.session_state(session).get("defaultChat")
            chat = session.chats.get(default) if default else None
        return None if chat is None else (chat, chat.spelling(uri, spelling))

    def view(self, session: LiveSession) -> SessionView:
        state = self._chats.session_state(session)
        return SessionView(
            uri=session.uri,
            id=session.id,
            provider=session.provider,
            title=str(state.get("title", "")),
            working_directories=tuple(state.get("workingDirectories", ())),
            default_chat=str(state.get("defaultChat", "")),
            chats=tuple(session.chats),
            owner=session.owner,
            parent=self._lineage.parent(session.uri),
            settings=dict(session.values),
            strategy=session.strategy,
        )

    # -- creating ---------------------------------------------------------------------------------------

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Hold the nursery of all sessions until cancelled."""
        async with trio.open_nursery() as nursery:
            self.nursery = nursery
            task_status.started()
            await trio.sleep_forever()

    async def create(
        self,
        uri: str,
        *,
        provider: str | None = None,
        working_directories: Sequence[str] = (),
        config: Mapping[str, Any] | None = None,
        title: str = "",
        parent: str | None = None,
        owner: str | None = None,
        active_client: Json | None = None,
        strategy: str = "activeAgent",
    ) -> LiveSession:
        """Create a session under the URI its creator chose; it can be watched when this returns."""
        agent = self._agent(provider)
        if names.is_root(uri) or uri.startswith(names.CHAT_SCHEME):
            raise InvalidParams(f"channel must be a session URI, such as echo:/<uuid>; got {uri!r}")
        held = names.held_name(agent.provider, uri)
        if not all(map(self.is_free, (uri, held, names.default_chat(held)))):
            raise SessionExists(f"There is already something at {uri}")
        properties = schema_of(agent)
        values = settle(properties, config or {})
        session = LiveSession(held, names.session_id(uri), agent.provider, agent, now(), values, owner, strategy)
        session.parent, session.aliases = parent, () if uri == held else (uri,)
        creating = {uri, held, names.default_chat(held)}
        self._creating |= creating
        try:
            await self._begin(session)
        finally:
            self._creating -= creating
        if parent is not None:
            self._lineage.link(held, parent)
        with self._or_nothing(session):
            self._furnish(session, title, working_directories, properties, active_client)
        self._catalogue.added(session)
        assert session.nursery is not None
        session.nursery.start_soon(self._make_ready, session)
        return session

    def _furnish(
        self,
        session: LiveSession,
        title: str,
        working_directories: Sequence[str],
        properties: Json,
        active_client: Json | None,
    ) -> None:
        """Everything of a new session that others can see, in one step."""
        agent = session.agent
        assert agent is not None
        self._record(session)
        directories = list(dict.fromkeys(working_directories or filter(None, [self._default_directory])))
        if "multipleWorkingDirectories" not in capabilities_of(agent):
            del directories[1:]
        self._open_channels(session, title, directories, properties, active_client)
        self._keeper.session(session)
        for chat in session.chats.values():
            self._keeper.chat(chat)

    @contextmanager
    def _or_nothing(self, session: LiveSession) -> Iterator[None]:
        """A session that cannot be made whole leaves nothing in memory behind."""
        try:
            yield
        except BaseException:
            session.closing.set()
            self._close_channels(session)
            if session.uri not in self._catalogue.rows:
                self._index.remove(session.uri)
            raise

    def is_free(self, uri: str, within: LiveSession | None = None) -> bool:
        """Whether a URI names nothing yet, awake or asleep; a new chat's may name the session it is made in."""
        known = self._index.of_channel(uri)
        if names.is_root(uri) or uri in self._creating or self._index.held(uri) is not None:
            return False
        mine = within is not None and known == within.uri and self.find_chat(uri) is None
        return (known is None or mine) and self._state.get(uri) is None

    async def _begin(self, session: LiveSession) -> None:
        assert self.nursery is not None
        await self.nursery.start(self._live, session)
        self.nursery.start_soon(self._lose_patience, session)

    async def _lose_patience(self, session: LiveSession) -> None:
        """Count a session as gone although something in it shields itself: nothing in Python ends such a task, and
        whoever asked for the end would be without an answer for as long as it likes."""
        await session.closing.wait()
        with trio.move_on_after(LEAVE_SECONDS) as patience:
            await session.closed.wait()
        if patience.cancelled_caught:
            get("ahpd.sessions").warning("something of a session does not end; left behind", session=session.uri)
            await session.children.end()
            session.closed.set()

    def everything(self) -> Sequence[LiveSession]:
        """Every session in which something may still run."""
        return tuple(self._alive)

    def _agent(self, provider: str | None) -> Agent:
        agents = self._agents()
        if not agents:
            raise ProviderNotFound("No agent is enabled here; see ahpd plugin list, then ahpd plugin enable NAME")
        if provider is None:
            return next(iter(agents.values()))
        if provider not in agents:
            raise ProviderNotFound(f"No agent called {provider}; there is {', '.join(agents)}")
        return agents[provider]

    def _record(self, session: LiveSession) -> None:
        self.by_uri[session.uri] = session
        self._index.add(session.uri, session.id, session.aliases)

    def _open_channels(
        self,
        session: LiveSession,
        title: str,
        directories: list[str],
        properties: Json,
        active_client: Json | None,
    ) -> None:
        default = names.default_chat(session.uri)
        state: Json = {
            "provider": session.provider,
            "title": title,
            "status": IDLE,
            "lifecycle": "creating",
            "activeClients": [] if active_client is None else [active_client],
            "chats": [],
            "defaultChat": default,
            "config": {
                "schema": {"type": "object", "properties": properties},
                "values": session.values.copy(),
            },
        }
        if directories:
            state["workingDirectories"] = directories
        channel = self._state.open(session.uri, "session", state)
        _, entry = self._chats.new_chat(session, default, "", {"kind": "user"})
        state["chats"] = [entry]
        session.offered = self._offer_for(session)
        if session.offered:
            channel.state = {**state, "serverTools": definitions(session)}

    async def _live(
        self, session: LiveSession, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """The session's own nursery. A crash inside stops here: it costs this session's turns."""
        self._alive.add(session)
        try:
            while not session.closing.is_set():
                try:
                    async with trio.open_nursery() as nursery:
                        session.nursery = session.children.nursery = nursery
                        task_status.started()
                        task_status = trio.TASK_STATUS_IGNORED
                        await session.closing.wait()
                        nursery.cancel_scope.cancel()
                except BaseException as error:
                    pass_on(error)
                    get("ahpd.sessions").exception("session crashed", session=session.uri)
                    for chat in session.chats.values():
                        self._turns.cancel(chat)
        finally:
            with trio.CancelScope(shield=True):
                async with trio.open_nursery() as closing:
                    for chat in session.chats.values():
                        closing.start_soon(self._turns.close_agent, chat)
                await session.children.end()
            self._alive.discard(session)
            session.closed.set()

    async def _make_ready(self, session: LiveSession) -> None:
        chat = next(iter(session.chats.values()))
        try:
            await self._turns.open_agent(chat)
        except BaseException as error:
            pass_on(error)
            get("ahpd.sessions").warning("agent did not start", session=session.uri, error=str(error))
            failed = {"errorType": "startFailed", "message": str(error) or type(error).__name__}
            self._tell(session, {"type": "session/creationFailed", "error": failed})
        else:
            self._tell(session, {"type": "session/ready"})

    def _tell(self, session: LiveSession, action: Json) -> None:
        if session.uri in self.by_uri:
            self._chats.dispatch_session(session, action)

    # -- waking -----------------------------------------------------------------------------------------

    def adopt(self, row: SessionRow) -> None:
        """Know a stored session's place in its tree."""
        if row.parent is not None:
            self._lineage.link(row.uri, row.parent)

    async def revive(self, stored: StoredSession, row: SessionRow) -> LiveSession:
        """Bring a stored session back as it was last written. No agent is started."""
        record, state = stored.record, dict(stored.state)
        provider = str(record.get("provider") or state.get("provider", ""))
        agent = self._agents().get(provider)
        values = dict(state.get("config", {}).get("values", {}))
        if agent is not None:
            properties = schema_of(agent)
            values = resolve(properties, values)
            schema = {"type": "object", "properties": properties}
            state["config"] = {"schema": schema, "values": values.copy()}
        session = LiveSession(stored.uri, row.id, provider, agent, str(record.get("createdAt", "")), values)
        session.owner, session.strategy = record.get("owner"), str(record.get("strategy", "activeAgent"))
        session.parent, session.aliases = row.parent, tuple(row.aliases)
        await self._begin(session)
        with self._or_nothing(session):
            self._refurnish(session, stored, state)
        return session

    def _refurnish(self, session: LiveSession, stored: StoredSession, state: Json) -> None:
        self._record(session)
        channel = self._state.open(session.uri, "session", state | {"activeClients": []})
        if state.get("lifecycle") == "creating":
            channel.state["lifecycle"] = "ready"
        order = {entry["resource"]: place for place, entry in enumerate(state.get("chats", ()))}
        for chat in sorted(stored.chats, key=lambda each: order.get(each.uri, len(order))):
            self._revive_chat(session, chat)
        session.offered = self._offer_for(session)
        if session.offered:
            channel.state["serverTools"] = definitions(session)

    def _revive_chat(self, session: LiveSession, stored: StoredChat) -> None:
        state = {"turns": [], **stored.state}
        state.pop("backgroundWork", None)  # what ran beside the turns ended with the process
        chat = self._chats.revive(session, stored.uri, state)
        restore_record(chat, stored.record, self._principal)

    def end_interrupted(self, session: LiveSession) -> None:
        """End the turns that were running when the host ended: their agents are gone."""
        for chat in session.chats.values():
            active = self._chats.chat_state(chat).get("activeTurn")
            if active is not None:
                began = read_time(str(active.get("startedAt")))
                elapsed = 0 if began is None else int((datetime.now(UTC) - began).total_seconds() * 1000)
                error = {
                    "errorType": "executionInterrupted",
                    "message": "The host stopped while this turn was running.",
                }
                part = {"kind": "error", "error": error, "resumable": _resumes(session.agent)}
                ended = {"turnId": active["id"], "duration": max(0, elapsed), "part": part}
                self._chats.dispatch(chat, {"type": "chat/error", **ended})
                self._keeper.turn_ended(chat)

    # -- changing ---------------------------------------------------------------------------------------

    def reoffer(self) -> None:
        """Work out again what every session is offered, and tell those where it changed."""
        for session in list(self.by_uri.values()):
            before = definitions(session)
            session.offered = self._offer_for(session)
            if definitions(session) != before:
                action = {"type": "session/serverToolsChanged", "tools": definitions(session)}
                self._chats.dispatch_session(session, action)

    # -- disposing --------------------------------------------------------------------------------------

    async def dispose(self, session: LiveSession) -> None:
        """End a session and everything that belongs to it. Irreversible."""
        self.end(session)
        await session.closed.wait()

    def end(self, session: LiveSession) -> None:
        """Begin to dispose: nobody finds the session any more; `session.closed` is set when all of it has gone."""
        if session.closing.is_set():
            return
        session.closing.set()
        for chat in session.chats.values():
            self._turns.cancel(chat)
        self._close_channels(session)
        self.forget(session.uri)

    def _close_channels(self, session: LiveSession) -> None:
        self.by_uri.pop(session.uri, None)
        for chat in session.chats.values():
            self._chats.forget(chat)
        self._state.close(session.uri)

    def forget(self, held: str) -> None:
        """Take a session that is not awake out of every list, and out of the store."""
        self._index.remove(held)
        self._keeper.drop_session(held)
        self._catalogue.removed(held)

    def let_go(self, session: LiveSession) -> None:
        """A session falls asleep: nobody finds it among those awake, its agents and children end."""
        session.closing.set()
        self._close_channels(session)

    async def drop_chat(self, chat: LiveChat) -> None:
        """Close one chat of a session. Raises `InvalidParams` for the last one."""
        if len(chat.session.chats) == 1:
            raise InvalidParams("A session keeps at least one chat; dispose the session instead")
        self._turns.cancel(chat)
        self._chats.drop(chat)
        await self._let_agent_go(chat)

    async def _let_agent_go(self, chat: LiveChat) -> None:
        """Close a chat's agent, and wait for that as long as can be asked of whoever waits for it."""
        gone = trio.Event()

        async def close() -> None:
            try:
                await self._turns.close_agent(chat)
            finally:
                gone.set()

        nursery = chat.session.nursery
        assert nursery is not None  # a chat is reachable only while its session's nursery is open
        nursery.start_soon(close)
        with trio.move_on_after(LEAVE_SECONDS):
            await gone.wait()


def definitions(session: LiveSession) -> list[Any]:
    return [offered.definition for offered in session.offered]


def _resumes(agent: Agent | None) -> bool:
    """Whether an agent says that it can take a failed turn up again; most do not say."""
    return bool(getattr(agent, "resumes_turns", False))
