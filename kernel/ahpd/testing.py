"""For tests of plugins: a whole host in memory, and clients that see only what a client is sent.

async with open_host(plugins=["agent-echo", "dice"]) as host:
    client = await host.client()
    session = await client.create_session()
    turn = await client.turn(client.default_chat(session), "/call roll_dice {}")
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from ahpd.access import ROOT as ROOT_PRINCIPAL
from ahpd.access import Principal
from ahpd.client import AhpClient, Disconnected, RequestFailed, answer_text, call_texts
from ahpd.config import Config, Overrides
from ahpd.errors import PluginError
from ahpd.host import Host
from ahpd.places import Places
from ahpd.registry import Registry
from ahpd.session.names import ROOT

__all__ = ["AhpClient", "Disconnected", "OpenHost", "RequestFailed", "answer_text", "call_texts", "open_host"]


class _MemoryEnd:
    """The client's end of a connection that never leaves the process. Implements `ahpd.client.Pipe`."""

    form = "memory"

    def __init__(self) -> None:
        self._to_host, self.from_client = trio.open_memory_channel[bytes](1024)
        self._outbox, self._to_client = trio.open_memory_channel[bytes](100_000)

    async def send(self, payload: bytes) -> None:
        await self._to_host.send(payload)

    async def receive(self) -> bytes:
        try:
            return await self._to_client.receive()
        except (trio.EndOfChannel, trio.ClosedResourceError):
            raise Disconnected(1000) from None

    async def aclose(self) -> None:
        self._to_host.close()
        self._outbox.close()

    # The host's end: implements `ahpd.wire.connection.Transport`.

    def ready(self, payload: bytes) -> bytes:
        return payload

    def push(self, made: bytes) -> None:
        try:
            self._outbox.send_nowait(made)
        except trio.WouldBlock:
            self._outbox.close()  # a client that reads nothing is cut off, as on a real socket
        except (trio.ClosedResourceError, trio.BrokenResourceError):
            pass


class OpenHost:
    """A running host and whoever connects to it."""

    def __init__(self, host: Host, nursery: trio.Nursery) -> None:
        self.host = host
        self._nursery = nursery

    @property
    def registry(self) -> Registry:
        return self.host.registry

    async def client(
        self, *subscriptions: str, client_id: str | None = None, principal: Principal = ROOT_PRINCIPAL
    ) -> AhpClient:
        """A new client that has initialized and watches root and whatever is named."""
        client = await self.connect(client_id, principal)
        await client.initialize(ROOT, *subscriptions)
        return client

    async def connect(self, client_id: str | None = None, principal: Principal = ROOT_PRINCIPAL) -> AhpClient:
        """A new connection on which nothing has been said."""
        pipe = _MemoryEnd()
        client = AhpClient(pipe, client_id)
        self._nursery.start_soon(self._attend, pipe, principal)
        await self._nursery.start(client.run)
        return client

    async def _attend(self, pipe: _MemoryEnd, principal: Principal) -> None:
        async def receive() -> list[bytes]:
            return [await pipe.from_client.receive()]

        try:
            await self.host.attend(pipe, receive, principal)
        except* (trio.EndOfChannel, trio.ClosedResourceError):
            pass


@asynccontextmanager
async def open_host(
    plugins: Sequence[str] | None = None,
    settings: Mapping[str, Any] | None = None,
    options: Mapping[str, Mapping[str, Any]] | None = None,
) -> AsyncIterator[OpenHost]:
    """A running host with the named plugins (by default those a new installation has) and no socket.

    `settings` are keys of the daemon, `options` those of plugins by plugin name. Everything the host writes goes
    to a folder that is removed afterwards. Raises `PluginError` for a named plugin that is not installed.
    """
    with tempfile.TemporaryDirectory(prefix="ahpd-test-") as folder:
        home = Path(folder)
        _write(home, settings or {}, options or {})
        overrides = Overrides(plugins=None if plugins is None else tuple(plugins))
        config = Config.load(Places.from_environment({"AHPD_HOME": folder}), overrides)
        host = Host.from_config(config)
        _insist(host.registry, plugins or ())
        async with host.running(), trio.open_nursery() as nursery:
            yield OpenHost(host, nursery)
            nursery.cancel_scope.cancel()


def _insist(registry: Registry, plugins: Sequence[str]) -> None:
    for name in plugins:
        status = registry.statuses.get(name)
        if status is None or status.state == "missing":
            raise PluginError(f"plugin {name} is not installed here; pip install -e its folder first")


def _write(home: Path, settings: Mapping[str, Any], options: Mapping[str, Mapping[str, Any]]) -> None:
    import tomli_w

    tree = {**settings, "plugins": {name: dict(own) for name, own in options.items()}}
    (home / "config.toml").write_text(tomli_w.dumps(tree))
