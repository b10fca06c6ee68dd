"""The composition root: builds a host from a registry, opens its nurseries, and switches plugins while it runs.

Holds no socket: `serving` does, and hands connections to `attend`.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from types import MappingProxyType
from typing import Any

import trio

from ahpd import log
from ahpd.access import ROOT, Gatekeeper, Principal
from ahpd.agents import Agent
from ahpd.config import Config
from ahpd.errors import AhpdError, ConfigError, PluginError
from ahpd.lineage import SessionTrees
from ahpd.memory_store import MemoryStore
from ahpd.plugins import Loader, failure
from ahpd.ports import Limit
from ahpd.protocol.reduce_chat import reduce_chat
from ahpd.protocol.reduce_root import reduce_root
from ahpd.protocol.reduce_session import reduce_session
from ahpd.registry import (
    RegisteredTool,
    Registry,
    build,
    changes,
    check_tool,
    lifespans,
    session_store,
)
from ahpd.rootconfig import Echo, RootConfig
from ahpd.session import names
from ahpd.session.catalogue import Catalogue
from ahpd.session.chats import Chats
from ahpd.session.dormant import Dormant
from ahpd.session.inbound import Inbound
from ahpd.session.index import SessionIndex
from ahpd.session.keeper import Keeper
from ahpd.session.live import LiveSession
from ahpd.session.operations import Operations
from ahpd.session.presence import Presence
from ahpd.session.sessions import Sessions
from ahpd.session.toolbox import Toolboxes
from ahpd.session.turns import Turns
from ahpd.state import Json, State
from ahpd.tooling.fence import pass_on, sole
from ahpd.tooling.invoke import Invoker
from ahpd.tooling.offer import offered_tools
from ahpd.tools import Offer, OfferedTool, Tool
from ahpd.wire.clients import Client, Clients
from ahpd.wire.connection import Connection, Transport
from ahpd.wire.methods import Methods

STOP_SECONDS = 3.5
"""From the first signal to the end; whatever has not gone by then is left behind."""


LIFE_SECONDS = 10.0
"""How long what a plugin runs beside the host may take to begin, and to end."""
GRACE_SECONDS = 30.0
"""How long a client that lost its last socket stays present in its sessions."""
BUILDER = "host"
"""Whose the tools are that a program gave to the host it built."""
REDUCERS = {"root": reduce_root, "session": reduce_session, "chat": reduce_chat}


class Host:
    """One running host. Holds no socket by itself: connections are handed to `attend`."""

    def __init__(self, config: Config, loader: Loader, registry: Registry) -> None:
        self.config, self.loader, self.registry = config, loader, registry
        self.log = log.get("ahpd.host")
        self.state = State(REDUCERS)
        self.gatekeeper = Gatekeeper()
        self.lineage = SessionTrees()
        live: dict[str, LiveSession] = {}
        self.catalogue = Catalogue(self.state, live)
        self.keeper = Keeper(session_store(registry) or MemoryStore(), self.state, self.catalogue.summary)
        self.catalogue.keep = self.keeper.session
        index = SessionIndex()
        self.chats = Chats(self.state, self.catalogue, self.keeper, index)
        self.clients = Clients()
        invoker = Invoker(self.gatekeeper, self._limits)
        self.presence = Presence(self.chats, live)
        patience = config.settings["clientToolTimeoutMs"]
        toolboxes = Toolboxes(
            invoker, self._api, self._view, self._offer, self._unattended, self.presence, patience
        )
        self.turns = Turns(self.chats, toolboxes, patience)
        self.sessions = Sessions(
            self.state,
            live,
            self.catalogue,
            self.chats,
            self.turns,
            self.lineage,
            self._agents,
            self._offered,
            index,
            self.keeper,
            self.principal,
            _uri_of(config.settings["paths"][0]),
        )
        self.dormant = Dormant(self.state, self.sessions, index, self.catalogue, self.keeper, self._idle_seconds)
        self.operations = Operations(
            self.gatekeeper,
            self.sessions,
            self.dormant,
            self.chats,
            self.turns,
            self.catalogue,
            self.lineage,
            self._agents,
            self._described,
            lambda: self.config.settings,
            self.principal,
        )
        self.inbound = Inbound(self.chats, self.turns, self.presence, self.operations.attachments)
        self.methods = Methods(
            self.state,
            self.clients,
            self.sessions,
            self.dormant,
            self.operations,
            self.inbound,
            self._welcome,
            self._on_root,
            self.presence,
            self._client_left,
            lambda method: self.registry.methods.get(method),
            compat=config.settings["ahpCompat"] != "off",
        )
        self._set: tuple[RegisteredTool, ...] | None = None
        self._added: tuple[RegisteredTool, ...] = ()
        self._left: dict[trio.Event, trio.Event] = {}
        """Set when what a plugin runs has really ended, by the event that asks it to."""
        self._lives: dict[str, trio.Event] = {}
        self._nursery: trio.Nursery | None = None
        self._reloading = trio.Lock()
        self._closing, self._store_closed = trio.Lock(), False
        self.root = RootConfig(self.state, names.ROOT, config)
        self.state.open(names.ROOT, "root", self._root_state())

    @classmethod
    def from_config(cls, config: Config) -> Host:
        """A host with the plugins its configuration enables. Raises `ConfigError` and `StartError`."""
        loader = Loader(config).load_all()
        registry = build(loader, config)
        return cls(registry.config, loader, registry)

    # -- what the parts ask of each other ---------------------------------------------------------------

    def _api(self) -> Operations:
        return self.operations

    def _view(self, session: LiveSession) -> Any:
        return self.sessions.view(session)

    def _unattended(self) -> Principal:
        """Whose grants a call has that no turn stands behind. With no user directory there is nobody to ask."""
        return ROOT

    def principal(self, reference: str | None) -> Principal:
        """Whoever a kept reference stands for. With no user directory everybody is root."""
        return ROOT

    def _idle_seconds(self) -> float:
        return float(self.config.settings["idleSleepSeconds"])

    def _agents(self) -> Mapping[str, Agent]:
        return {provider: agent for provider, (_, agent) in self.registry.agents.items()}

    def _described(self) -> list[Json]:
        return [dict(told) for told in self.registry.described.values()]

    def _told_agents(self) -> list[Json]:
        """As root's state has them: the protocol's `AgentInfo`s."""
        return [{key: told[key] for key in told if key != "settings"} for told in self._described()]

    def _limits(self, plugin: str) -> list[Limit]:
        return [limit for owner, limit in self.registry.limits if owner == plugin]

    def _offer(self, session: LiveSession) -> Offer:
        return Offer(
            principal=self._unattended(),
            session=self.sessions.view(session),
            provider=session.provider,
            strategy=session.strategy,  # type: ignore[arg-type]
            settings=MappingProxyType(self.config.settings),
            agents=self.operations.agents(self._unattended()),
        )

    @property
    def tools(self) -> tuple[RegisteredTool, ...]:
        """What sessions are offered from: the plugins' tools, or those set here, and those registered here."""
        return (self.registry.tools if self._set is None else self._set) + self._added

    def set_tools(self, tools: Sequence[Tool]) -> None:
        """Offer these instead of everything plugins and `register_tool` contribute, in every session at once.

        For a program that builds its own host. Raises `PluginError` for a tool that could not be offered, and
        for two of one name; nothing has changed then.
        """
        checked = _checked(tools)
        self._set, self._added = checked, ()
        self.sessions.reoffer()

    def register_tool(self, tool: Tool) -> None:
        """Offer one more tool, behind all others, before or while the host runs. Raises as `set_tools`."""
        _checked([each.tool for each in self.tools] + [tool])
        self._added += (RegisteredTool(BUILDER, tool),)
        self.sessions.reoffer()

    def _offered(self, session: LiveSession) -> tuple[OfferedTool, ...]:
        return offered_tools(self.tools, self._offer(session))

    def _client_left(self, client: Client) -> None:
        """A client's socket is gone. When it was the last one, it has a while to come back."""
        if client.sockets == 0 and self._nursery is not None:
            self._nursery.start_soon(self._mourn, client, client.generation)

    async def _mourn(self, client: Client, generation: int) -> None:
        await trio.sleep(GRACE_SECONDS)
        if client.sockets == 0 and client.generation == generation:
            self.presence.leave_everywhere(client.id)

    # -- root -------------------------------------------------------------------------------------------

    def _root_state(self) -> Json:
        return {
            "agents": self._told_agents(),
            "activeSessions": 0,
            "terminals": [],
            "config": self.root.view(self.registry),
        }

    def _on_root(self, principal: Principal, action: Json, origin: Mapping[str, Any]) -> None:
        """A client's `root/configChanged`: kept, in force, and told, in this order and at once."""
        config = self.root.push(self.registry, action)
        echo = Echo(origin, tuple(action["config"]), action.get("replace") is True)
        if config is None:
            self.root.tell(self.registry, echo)
            return
        before = self.registry.config.enabled_plugins
        self._take(config, echo)
        if config.enabled_plugins != before and self._nursery is not None:
            self._nursery.start_soon(self._switch)

    async def _switch(self) -> None:
        """Switch plugins as the configuration now says."""
        try:
            await self.reload()
        except AhpdError as error:
            self.log.warning(f"plugins stay as they are: {error.sentence}")

    def _welcome(self, principal: Principal) -> Json:
        from ahpd import __version__

        return {
            "serverInfo": {"name": "ahpd", "version": __version__},
            "defaultDirectory": _uri_of(self.config.settings["paths"][0]),
            **({"_meta": dict(self.registry.capabilities)} if self.registry.capabilities else {}),
        }

    # -- live changes -----------------------------------------------------------------------------------

    async def reload(self) -> dict[str, Any]:
        """Read the configuration again and switch plugins on and off accordingly; what changed.

        One at a time: two that load the same plugin would each begin what it runs.
        """
        async with self._reloading:
            config = self.config.reload()
            # A plugin's first import may take seconds, which nobody who watches a turn waits for.
            await trio.to_thread.run_sync(self.loader.sync, config)
            before = self.registry
            # Read once more: a client may have changed a setting meanwhile.
            self.registry = build(self.loader, self.config.reload(), before)
            self.registry.remember()
            self.registry.report(before)
            self._apply(before)
            await self._switch_lives()
            return changes(before, self.registry)

    def _take(self, config: Config, echo: Echo | None = None) -> None:
        before = self.registry
        self.registry = build(self.loader, config, before)
        self._apply(before, echo)

    def _apply(self, before: Registry, echo: Echo | None = None) -> None:
        settings, self.config = self.config.settings, self.root.in_force(self.registry.config)
        self.root.tell(self.registry, echo)
        if list(before.agents) != list(self.registry.agents):
            agents = self._told_agents()
            self.state.dispatch(names.ROOT, {"type": "root/agentsChanged", "agents": agents})
        if settings != self.config.settings or _what_offers_show(before) != _what_offers_show(self.registry):
            self.sessions.reoffer()

    # -- running ----------------------------------------------------------------------------------------

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Everything but sockets. Leaving it stops the host in order.

        Raises `StartError` when what is kept cannot be read.
        """
        store = self.keeper.store
        opened = await store.open({"session": reduce_session, "chat": reduce_chat})
        try:
            await self.keeper.start(opened.seq)
            self.dormant.take(opened)
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                await nursery.start(self.sessions.run)
                nursery.start_soon(self.catalogue.run)
                nursery.start_soon(self.dormant.run)
                await self.dormant.mend(opened)
                await self._switch_lives()
                try:
                    yield
                finally:
                    with trio.CancelScope(shield=True, deadline=trio.current_time() + STOP_SECONDS):
                        await self._stop()
                    nursery.cancel_scope.cancel()
        finally:
            with trio.CancelScope(shield=True):
                await self._close_store()

    async def _close_store(self) -> None:
        """Once, whoever of those who end the host comes first."""
        async with self._closing:
            if not self._store_closed:
                self._store_closed = True
                await self.keeper.store.close()

    async def leave_behind(self) -> None:
        """For a process that ends now although something in it does not: keep what there is, end the children."""
        for session in self.sessions.by_uri.values():
            self.keeper.session(session)
        await self._close_store()
        async with trio.open_nursery() as nursery:
            for session in self.sessions.everything():
                nursery.start_soon(session.children.end)

    async def _stop(self) -> None:
        await self.quiet()
        for ended in reversed(list(self._lives.values())):
            left = self._left.get(ended)
            ended.set()
            if left is not None:
                with trio.move_on_after(STOP_SECONDS / 4):
                    await left.wait()
        for session in self.sessions.by_uri.values():
            self.keeper.session(session)

    async def quiet(self) -> None:
        """Begin nothing new and end every running turn, where everybody who watches sees it."""
        self.turns.accepting = False
        for session in self.sessions.by_uri.values():
            for chat in session.chats.values():
                self.turns.cancel(chat)
        await trio.lowlevel.checkpoint()

    # -- what plugins run beside the host ---------------------------------------------------------------

    async def _switch_lives(self) -> None:
        """Begin what newly loaded plugins run, end what unloaded ones did."""
        for name in [name for name in self._lives if name not in self.registry.contributions]:
            self._lives.pop(name).set()
        assert self._nursery is not None
        for name in self.registry.contributions:
            if name not in self._lives:
                ended = self._lives[name] = trio.Event()
                self._left[ended] = trio.Event()
                await self._nursery.start(self._live, name, ended)

    async def _live(
        self, name: str, ended: trio.Event, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """One plugin's own fence and nursery: what crashes in here costs that plugin."""
        started = False
        try:
            # The scope goes around the stack: what is entered may hold a nursery, and scopes are left in order.
            with trio.fail_after(LIFE_SECONDS) as bound:
                async with AsyncExitStack() as stack:
                    for context in lifespans(self.registry, name, self.operations):
                        await stack.enter_async_context(context)
                    bound.deadline = math.inf
                    started = True
                    task_status.started()
                    await ended.wait()
                    bound.deadline = trio.current_time() + LIFE_SECONDS
        except BaseException as error:
            pass_on(error)
            log.get(f"ahpd.plugin.{name}").exception("the plugin's own work ended")
            if not started:
                task_status.started()
            if self._lives.get(name) is not ended:
                return  # switched off, and perhaps on again, meanwhile: what is loaded now is another one
            del self._lives[name]
            reason = f"what it runs beside the host ended: {sole(error)!r}"
            if bound.cancelled_caught and not started:
                reason = f"it did not begin within {LIFE_SECONDS:g} seconds"
            self.loader.drop(name, failure(name, reason, beside=True))
            try:
                self._take(self.config)
                if not ended.is_set():  # how it went when the host ended says nothing of the next start
                    self.registry.remember()
            except ConfigError as broken:  # somebody is just editing the file; the next reload takes it
                log.get("ahpd.host").warning(broken.sentence)
        finally:
            self._left.pop(ended, trio.Event()).set()

    async def attend(self, transport: Transport, receive: Callable[[], Any], principal: Principal = ROOT) -> None:
        """Serve one client until `receive` raises; `receive` answers the messages of one read."""
        connection = Connection(self.methods, transport, principal)
        try:
            async with trio.open_nursery() as nursery:
                try:
                    while True:
                        for message in await receive():
                            await connection.handle(message, nursery)
                finally:
                    nursery.cancel_scope.cancel()
        finally:
            connection.gone()


def _what_offers_show(registry: Registry) -> Any:
    return list(registry.contributions), registry.tools, registry.described


def _checked(tools: Sequence[Tool]) -> tuple[RegisteredTool, ...]:
    for tool in tools:
        check_tool(tool)
    names = [tool.name for tool in tools]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise PluginError(f"there are two tools called {twice[0]}")
    return tuple(RegisteredTool(BUILDER, tool) for tool in tools)


def _uri_of(folder: str) -> str:
    from pathlib import Path

    return Path(folder).absolute().as_uri()
