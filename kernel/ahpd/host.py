"""The composition root: builds a host from a registry, opens its nurseries, serves, and stops in order.

Stopping: nothing new begins, running turns are cancelled where everybody sees it, clients are told (1001), agents
and children get a bounded time to go, the port closes.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import trio

from ahpd import control, log
from ahpd.access import ROOT, Gatekeeper, Principal
from ahpd.agents import Agent
from ahpd.config import Config, resolve_token
from ahpd.configfile import edit
from ahpd.errors import AhpdError, Rejected, StartError
from ahpd.lineage import SessionTrees
from ahpd.plugins import Loader
from ahpd.ports import ConfigKey, Limit
from ahpd.protocol.reduce_chat import reduce_chat
from ahpd.protocol.reduce_root import reduce_root
from ahpd.protocol.reduce_session import reduce_session
from ahpd.registry import Registry, build, changes
from ahpd.schemas import misfit
from ahpd.session import names
from ahpd.session.catalogue import Catalogue
from ahpd.session.chats import Chats
from ahpd.session.inbound import Inbound
from ahpd.session.live import LiveSession, now
from ahpd.session.operations import Operations, agent_info
from ahpd.session.sessions import Sessions
from ahpd.session.toolbox import Toolboxes
from ahpd.session.turns import Turns
from ahpd.state import Json, State
from ahpd.tooling.invoke import Invoker
from ahpd.tooling.offer import offered_tools
from ahpd.tools import Offer, OfferedTool
from ahpd.wire.clients import Client, Clients
from ahpd.wire.connection import Connection, Transport
from ahpd.wire.methods import Methods

if TYPE_CHECKING:
    from ahpd.wire.request import ASGIApp, Request
    from ahpd.wire.websocket import WebSocket

STOP_SECONDS = 4.0
"""From the first signal to the end; whatever has not gone by then is left behind."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How `ahpd run` speaks to whoever started it."""

    json: bool = False
    stdio: bool = False


class Host:
    """One running host. Holds no socket by itself: connections are handed to `attend`."""

    def __init__(self, config: Config, loader: Loader, registry: Registry) -> None:
        self.config, self.loader, self.registry = config, loader, registry
        self.log = log.get("ahpd.host")
        self.state = State({"root": reduce_root, "session": reduce_session, "chat": reduce_chat})
        self.gatekeeper = Gatekeeper()
        self.lineage = SessionTrees()
        live: dict[str, LiveSession] = {}
        self.catalogue = Catalogue(self.state, live)
        self.chats = Chats(self.state, self.catalogue)
        self.clients = Clients()
        invoker = Invoker(self.gatekeeper, self._limits)
        toolboxes = Toolboxes(invoker, self._api, self._view, self._offer, self._unattended)
        self.turns = Turns(self.chats, toolboxes, config.settings["clientToolTimeoutMs"])
        self.sessions = Sessions(
            self.state,
            live,
            self.catalogue,
            self.chats,
            self.turns,
            self.lineage,
            self._agents,
            self._offered,
            _uri_of(config.settings["paths"][0]),
        )
        self.operations = Operations(
            self.gatekeeper,
            self.sessions,
            self.chats,
            self.turns,
            self.catalogue,
            self.lineage,
            self._agents,
            lambda: self.config.settings,
        )
        self.inbound = Inbound(self.chats, self.turns)
        self.methods = Methods(
            self.state,
            self.clients,
            self.sessions,
            self.operations,
            self.inbound,
            self._welcome,
            self._on_root,
            self._client_left,
        )
        self.state.open(names.ROOT, "root", self._root_state())

    # -- what the parts ask of each other ---------------------------------------------------------------

    def _api(self) -> Operations:
        return self.operations

    def _view(self, session: LiveSession) -> Any:
        return self.sessions.view(session)

    def _unattended(self) -> Principal:
        """Whose grants a call has that no turn stands behind. With no user directory there is nobody to ask."""
        return ROOT

    def _agents(self) -> Mapping[str, Agent]:
        return {provider: agent for provider, (_, agent) in self.registry.agents.items()}

    def _limits(self, plugin: str) -> list[Limit]:
        return [limit for owner, limit in self.registry.limits if owner == plugin]

    def _offer(self, session: LiveSession) -> Offer:
        return Offer(
            principal=self._unattended(),
            session=self.sessions.view(session),
            provider=session.provider,
            strategy=session.strategy,  # type: ignore[arg-type]
            settings=self.config.settings,
            agents=self.operations.agents(self._unattended()),
        )

    def _offered(self, session: LiveSession) -> tuple[OfferedTool, ...]:
        return offered_tools(self.registry.tools, self._offer(session))

    def _client_left(self, client: Client) -> None:
        """Nothing to do until clients bring tools of their own."""

    # -- root -------------------------------------------------------------------------------------------

    def _root_keys(self) -> dict[str, ConfigKey]:
        return {name: key for name, key in self.config.keys.items() if key.in_root}

    def _root_state(self) -> Json:
        return {
            "agents": [agent_info(agent) for agent in self._agents().values()],
            "activeSessions": 0,
            "terminals": [],
            "config": self._root_config(),
        }

    def _root_config(self) -> Json:
        keys = self._root_keys()
        properties = {
            name: {"title": name, "description": key.description, **key.schema, "default": key.default}
            for name, key in keys.items()
        }
        values = {name: _plain(self.config.settings[name]) for name in keys}
        return {"schema": {"type": "object", "properties": properties}, "values": values}

    def _on_root(self, principal: Principal, action: Json, origin: Mapping[str, Any]) -> None:
        """A client's `root/configChanged`: kept in the configuration file, and in force at once."""
        keys, changed = self._root_keys(), action["config"]
        for name, value in changed.items():
            if name not in keys:
                raise Rejected(f"{name} is not a setting of this host")
            complaint = misfit(value, keys[name].schema)
            if complaint:
                raise Rejected(f"{name} {complaint}")
        if action.get("replace"):
            raise Rejected("Settings of this host are changed one by one, not replaced")
        edit(self.config.writable, {(name,): value for name, value in changed.items()})
        self.state.dispatch(names.ROOT, action, origin)
        self._take(self.config.reload())

    def _welcome(self, principal: Principal) -> Json:
        from ahpd import __version__

        return {
            "serverInfo": {"name": "ahpd", "version": __version__},
            "defaultDirectory": _uri_of(self.config.settings["paths"][0]),
        }

    # -- live changes -----------------------------------------------------------------------------------

    def reload(self) -> dict[str, Any]:
        """Read the configuration again and switch plugins on and off accordingly; what changed."""
        before = self.registry
        config = self.config.reload()
        self.loader.sync(config)
        self.registry = build(self.loader, config, before)
        self.registry.remember()
        self.registry.report(before)
        self._apply(before)
        return changes(before, self.registry)

    def _take(self, config: Config) -> None:
        before = self.registry
        self.registry = build(self.loader, config, before)
        self._apply(before)

    def _apply(self, before: Registry) -> None:
        self.config = self.registry.config
        if list(before.agents) != list(self.registry.agents):
            agents = [agent_info(agent) for agent in self._agents().values()]
            self.state.dispatch(names.ROOT, {"type": "root/agentsChanged", "agents": agents})
        values = self._root_config()["values"]
        if values != self.state.channels[names.ROOT].state["config"]["values"]:
            self.state.dispatch(names.ROOT, {"type": "root/configChanged", "config": values})
        self.sessions.reoffer()

    # -- running ----------------------------------------------------------------------------------------

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Everything but sockets. Leaving it stops the host in order."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self.sessions.run)
            nursery.start_soon(self.catalogue.run)
            try:
                yield
            finally:
                with trio.CancelScope(shield=True, deadline=trio.current_time() + STOP_SECONDS):
                    await self.quiet()
                nursery.cancel_scope.cancel()

    async def quiet(self) -> None:
        """Begin nothing new and end every running turn, where everybody who watches sees it."""
        self.turns.accepting = False
        for session in self.sessions.by_uri.values():
            for chat in session.chats.values():
                self.turns.cancel(chat)
        await trio.lowlevel.checkpoint()

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


def _uri_of(folder: str) -> str:
    from pathlib import Path

    return Path(folder).absolute().as_uri()


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


class _WebSocketTransport:
    """Implements `ahpd.wire.connection.Transport` on a WebSocket."""

    form = "text"

    def __init__(self, websocket: WebSocket) -> None:
        from ahpd.wire import frames

        self.ready = frames.text
        self.push = websocket.push


Announce = Callable[[dict[str, Any]], None]
"""Told where the host listens, once it does: `{ws, http, pid, version}`."""


async def serve(host: Host, options: RunOptions, announce: Announce, stopping: trio.Event | None = None) -> None:
    """Serve a host on its port (or on standard input and output) until `stopping`, or a signal."""
    if options.stdio:
        await _serve_stdio(host, trio.Event() if stopping is None else stopping)
    else:
        await _serve_port(host, announce, trio.Event() if stopping is None else stopping)


async def _serve_stdio(host: Host, stopping: trio.Event) -> None:
    from ahpd.wire import stdio

    transport = stdio.StdioTransport()
    incoming = stdio.lines()

    async def receive() -> list[bytes]:
        return [await anext(incoming)]

    async def stopped() -> None:
        await stopping.wait()
        await host.quiet()

    async with host.running(), trio.open_nursery() as nursery:
        await nursery.start(_stop_on_signals, stopping)
        nursery.start_soon(transport.run)
        with trio.CancelScope() as attending:
            nursery.start_soon(_stop_when, transport.lost.wait, attending)
            nursery.start_soon(_stop_when, stopped, attending)
            try:
                await host.attend(transport, receive)
            except* StopAsyncIteration:
                pass
        # What the client asked before its input ended is answered, if it is still there to read it.
        with trio.move_on_after(STOP_SECONDS / 2):
            await transport.drained()
        nursery.cancel_scope.cancel()


async def _stop_when(happens: Callable[[], Any], scope: trio.CancelScope) -> None:
    await happens()
    scope.cancel()


async def _serve_port(host: Host, announce: Announce, stopping: trio.Event) -> None:
    from ahpd.wire.guard import Doorkeeper
    from ahpd.wire.listener import Listener

    settings = host.config.settings
    doorkeeper = Doorkeeper(
        resolve_token(host.config), settings["host"], settings["allowedHosts"], settings["allowedOrigins"]
    )

    async def on_websocket(websocket: WebSocket, request: Request) -> None:
        await host.attend(_WebSocketTransport(websocket), websocket.receive)

    listener = Listener(on_websocket=on_websocket, guard=doorkeeper, http_app=_http_app, log=log.get("ahpd.wire"))
    try:
        addresses = await listener.open(settings["host"], settings["port"])
    except OSError as error:
        raise StartError(
            f"{settings['host']}:{settings['port']} cannot be listened on: {error.strerror or error};"
            " choose another port with --port, or 0 for any"
        ) from None
    with control.claim(host.config.places) as publish:
        async with host.running(), trio.open_nursery() as nursery:
            await nursery.start(_stop_on_signals, stopping)
            nursery.start_soon(listener.serve)
            door = await nursery.start(
                control.serve, control.socket_path(host.config.places), _verbs(host, stopping)
            )
            record = _record(addresses[0])
            publish({**record, "startedAt": now(), "control": str(door)})
            announce(record)
            await stopping.wait()
            await host.quiet()
            await listener.stop()
            nursery.cancel_scope.cancel()


def _record(address: tuple[str, int]) -> dict[str, Any]:
    from ahpd import __version__

    name, port = address
    where = f"[{name}]:{port}" if ":" in name else f"{name}:{port}"
    return {"ws": f"ws://{where}/", "http": f"http://{where}", "pid": os.getpid(), "version": __version__}


def _verbs(host: Host, stopping: trio.Event) -> control.Handler:
    async def answer(verb: str, args: Mapping[str, Any]) -> Mapping[str, Any]:
        if verb == "status":
            return {"pid": os.getpid(), "sessions": len(host.sessions.by_uri), "serverSeq": host.state.seq}
        if verb == "reload":
            return host.reload()
        if verb == "stop":
            stopping.set()
            return {"stopping": True}
        raise AhpdError(f"a running ahpd does not know {verb}")

    return answer


async def _http_app() -> ASGIApp:
    return await trio.to_thread.run_sync(_make_http_app)


def _make_http_app() -> ASGIApp:
    from quart_trio import QuartTrio

    app = QuartTrio("ahpd")

    @app.errorhandler(404)
    async def nothing(error: Exception) -> tuple[dict[str, str], int]:
        from quart import request

        return {"message": f"Nothing is served at {request.path}"}, 404

    return app  # type: ignore[return-value]


async def _stop_on_signals(
    stopping: trio.Event, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        task_status.started()
        async for number in signals:
            if stopping.is_set():
                os._exit(128 + number)
            log.get("ahpd.host").info("stopping", signal=signal.Signals(number).name)
            stopping.set()


def run(config: Config, loader: Loader, registry: Registry, options: RunOptions) -> None:
    """Run a host until it is told to stop. Raises `StartError` when it cannot start."""
    import json

    def announce(record: dict[str, Any]) -> None:
        if options.json:
            print(json.dumps({"event": "listening", **record}), flush=True)
        else:
            print(
                f"ahpd {record['version']} is listening\n  ws    {record['ws']}\n  http  {record['http']}",
                flush=True,
            )

    host = Host(config, loader, registry)
    try:
        trio.run(serve, host, options, announce)
    except* StartError as group:
        raise _first(group) from None
    except* KeyboardInterrupt:
        sys.exit(130)


def _first(group: BaseExceptionGroup[Any]) -> BaseException:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
