"""A host on its port, or on standard input and output: announcing, answering the command line, stopping in order.

Stopping: nothing new begins, running turns are cancelled where everybody sees it, clients are told (1001), agents
and children get a bounded time to go, the port closes.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import trio

from ahpd import control, log
from ahpd.config import Config, resolve_token
from ahpd.errors import AhpdError, StartError
from ahpd.host import STOP_SECONDS, Host
from ahpd.plugins import Loader
from ahpd.registry import Registry
from ahpd.session.live import now
from ahpd.tooling.fence import in_plugin

if TYPE_CHECKING:
    from ahpd.wire.listener import Listener
    from ahpd.wire.request import ASGIApp, Request
    from ahpd.wire.websocket import WebSocket


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How `ahpd run` speaks to whoever started it."""

    json: bool = False
    stdio: bool = False


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

    transport = stdio.StdioTransport(barrier=host.keeper)
    incoming = stdio.lines()

    async def receive() -> list[bytes]:
        return [await anext(incoming)]

    async def stopped() -> None:
        await stopping.wait()
        await host.quiet()

    async with host.running(), trio.open_nursery() as nursery:
        await nursery.start(_stop_on_signals, stopping)
        nursery.start_soon(_give_up, host, stopping)
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
        stopping.set()  # from here on it ends, also when nobody signalled
        nursery.cancel_scope.cancel()


async def _stop_when(happens: Callable[[], Any], scope: trio.CancelScope) -> None:
    await happens()
    scope.cancel()


async def _serve_port(host: Host, announce: Announce, stopping: trio.Event) -> None:
    from ahpd.wire.guard import Doorkeeper
    from ahpd.wire.limits import Limits, raise_descriptor_limit
    from ahpd.wire.listener import Listener

    settings = host.config.settings
    doorkeeper = Doorkeeper(
        resolve_token(host.config), settings["host"], settings["allowedHosts"], settings["allowedOrigins"]
    )

    async def on_websocket(websocket: WebSocket, request: Request) -> None:
        await host.attend(_WebSocketTransport(websocket), websocket.receive)

    listener = Listener(
        on_websocket=on_websocket,
        guard=doorkeeper,
        http_app=_http_app,
        limits=Limits().within(raise_descriptor_limit()),
        log=log.get("ahpd.wire"),
        barrier=host.keeper,
    )
    with control.claim(host.config.places) as publish:
        addresses = await _open(listener, settings["host"], settings["port"])
        async with host.running(), trio.open_nursery() as nursery:
            await nursery.start(_stop_on_signals, stopping)
            nursery.start_soon(_give_up, host, stopping)
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


async def _open(listener: Listener, host: str, port: int) -> list[tuple[str, int]]:
    try:
        return await listener.open(host, port)
    except OSError as error:
        raise StartError(
            f"{host}:{port} cannot be listened on: {error.strerror or error};"
            " choose another port with --port, or 0 for any"
        ) from None


async def _give_up(host: Host, stopping: trio.Event) -> None:
    """A host whose store refuses can acknowledge nothing: better to end, whole, and say why."""
    await host.keeper.failed.wait()
    log.get("ahpd.host").error("stopping: sessions cannot be kept any more")
    stopping.set()


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
            return await host.reload()
        if verb == "stop":
            stopping.set()
            return {"stopping": True}
        if found := host.registry.verbs.get(verb):
            plugin, added = found
            return await in_plugin(plugin, verb, lambda: added.run(host.operations, args))
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


def _stop_signals() -> list[signal.Signals]:
    """What stops a daemon. A terminal that closes does, unless whoever started it said otherwise with nohup."""
    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [signal.SIGTERM, signal.SIGINT, *([] if ignored else [signal.SIGHUP])]


async def _stop_on_signals(
    stopping: trio.Event, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    with trio.open_signal_receiver(*_stop_signals()) as signals:
        task_status.started()
        async for number in signals:
            if stopping.is_set():
                if number == signal.SIGHUP:
                    continue  # a terminal that closes is told of by the shell and by the kernel: no impatience
                os._exit(128 + number)
            log.get("ahpd.host").info("stopping", signal=signal.Signals(number).name)
            stopping.set()


async def _until_the_end(host: Host, options: RunOptions, announce: Announce) -> None:
    stopping = trio.Event()
    # Beside everything: inside the nurseries that something holds open it would be cancelled, or waited for.
    trio.lowlevel.spawn_system_task(_leave, host, options, stopping)
    await serve(host, options, announce, stopping)


async def _leave(host: Host, options: RunOptions, stopping: trio.Event) -> None:
    """End the process when the host has had its time to stop.

    A plugin's task that shields itself cannot be ended; what is kept and what others look for can be put in
    order without it.
    """
    await stopping.wait()
    await trio.sleep(STOP_SECONDS)
    logger = log.get("ahpd.host")
    logger.warning("something does not end; it is left behind")
    code = 0
    try:
        await host.leave_behind()
        if not options.stdio:
            control.withdraw(host.config.places)
        sys.stdout.flush()
    except Exception:
        logger.exception("the host did not end well")
        code = 1
    os._exit(1 if host.keeper.failed.is_set() else code)


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
        trio.run(_until_the_end, host, options, announce)
        if host.keeper.failed.is_set():
            raise StartError("sessions could not be kept any more; the log says where and why")
    except* StartError as group:
        raise _first(group) from None
    except* KeyboardInterrupt:
        sys.exit(130)


def _first(group: BaseExceptionGroup[Any]) -> BaseException:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
