"""A daemon as a process of its own, and clients that reach it over a socket."""

from __future__ import annotations

import json
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest
import trio
from ahpd.client import AhpClient, WebSocketPipe
from ahpd.session.names import ROOT

from ..conftest import Json
from ..kernel.wire.conftest import Peer

install: Callable[..., None] = runpy.run_path(str(Path(__file__).parents[1] / "kernel" / "installed.py"))[
    "install"
]


def gone(pid: int) -> bool:
    """Whether a process has ended; one that nobody has waited for yet counts as ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


class Raw:
    """A connection on which a test says exactly what it wants to."""

    def __init__(self, pipe: WebSocketPipe) -> None:
        self.pipe = pipe

    async def say(self, frame: Json | bytes) -> Json:
        """Send a frame; the next thing that comes back."""
        with trio.fail_after(5):
            await self.pipe.send(frame if isinstance(frame, bytes) else json.dumps(frame).encode())
            answer: Json = json.loads(await self.pipe.receive())
        return answer

    async def ask(self, method: str, **params: Any) -> Json:
        return await self.say({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})

    async def refused(self, method: str, **params: Any) -> tuple[int, str]:
        error = (await self.ask(method, **params))["error"]
        return error["code"], error["message"]


@dataclass
class Reachable:
    """A daemon that clients can be connected to."""

    home: Home
    ws: str
    port: int
    stack: AsyncExitStack
    nursery: trio.Nursery

    async def client(self, *subscriptions: str, client_id: str | None = None, url: str = "") -> AhpClient:
        """A client that has initialized and watches root."""
        client = await self.connect(client_id, url)
        await client.initialize(ROOT, *subscriptions)
        return client

    async def connect(self, client_id: str | None = None, url: str = "") -> AhpClient:
        """A client that has said nothing yet."""
        with trio.fail_after(5):
            client = AhpClient(await WebSocketPipe.open(url or self.ws), client_id)
        await self.nursery.start(client.run)
        return client

    async def raw(self) -> Raw:
        pipe = await WebSocketPipe.open(self.ws)
        self.stack.push_async_callback(pipe.aclose)
        return Raw(pipe)

    async def peer(self, receive_buffer: int = 0) -> Peer:
        """A client made of bytes."""
        sock = trio.socket.socket()
        if receive_buffer:
            sock.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_RCVBUF, receive_buffer)
        await sock.connect(("127.0.0.1", self.port))
        stream = trio.SocketStream(sock)
        self.stack.push_async_callback(trio.aclose_forcefully, stream)
        return Peer(stream)

    def log(self) -> str:
        return self.home.stderr.read_text()


@dataclass
class Daemon(Reachable):
    """A daemon that is a test's own, to be stopped."""

    process: trio.Process

    async def stop(self, number: int = signal.SIGTERM) -> int:
        """Signal the daemon and wait for its end; the exit code."""
        self.process.send_signal(number)
        return await self.ended()

    async def ended(self) -> int:
        with trio.fail_after(5):
            return await self.process.wait()


class Home:
    """A home of its own, in which daemons and commands run."""

    def __init__(self, root: Path) -> None:
        self.root, self.site, self.stderr = root / "home", root / "site", root / "stderr"
        self.site.mkdir()
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("AHPD_", "XDG_"))}
        self.env = {**kept, "AHPD_HOME": str(self.root), "PYTHONPATH": str(self.site)}

    async def install(self, name: str, source: str) -> None:
        """Put a plugin of that name where daemons of this home find it, and switch it on."""
        install(self.site, f"ahpd-{name}", {name: source})
        await self.ahpd("plugin", "enable", name)

    def command(self, *args: str) -> list[str]:
        return [sys.executable, "-m", "ahpd", *args]

    async def ahpd(self, *args: str) -> str:
        """Run a command that has to succeed; what it said."""
        with trio.fail_after(20):
            done = await trio.run_process(
                self.command(*args), env=self.env, capture_stdout=True, capture_stderr=True, check=False
            )
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()

    async def open_process(self, *args: str) -> trio.Process:
        with self.stderr.open("ab") as stderr:
            return await trio.lowlevel.open_process(
                self.command(*args), env=self.env, stdin=PIPE, stdout=PIPE, stderr=stderr
            )


async def first_line(process: trio.Process) -> bytes:
    assert process.stdout is not None
    received = b""
    with trio.fail_after(20):
        while b"\n" not in received:
            data = await process.stdout.receive_some(65536)
            assert data, "the daemon ended without announcing itself"
            received += data
    return received


async def end(process: trio.Process) -> None:
    if process.poll() is None:
        process.kill()
    with trio.CancelScope(shield=True):
        await process.wait()


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


Start = Callable[..., Any]


@pytest.fixture
async def start(home: Home) -> AsyncIterator[Start]:
    """`await start(*flags)` runs a daemon; one that still runs at the end has to stop well when told to."""
    async with trio.open_nursery() as nursery, AsyncExitStack() as stack:

        async def run(*flags: str) -> Daemon:
            process = await home.open_process("run", "--port", "0", "--json", *flags)
            stack.push_async_callback(end, process)
            said = json.loads(await first_line(process))
            assert said["event"] == "listening"
            assert said["pid"] == process.pid
            clients = await stack.enter_async_context(AsyncExitStack())
            port = int(said["ws"].rstrip("/").rpartition(":")[2])
            daemon = Daemon(home, said["ws"], port, clients, nursery, process)
            stack.push_async_callback(stopped_well, daemon)
            return daemon

        yield run
        nursery.cancel_scope.cancel()


async def stopped_well(daemon: Daemon) -> None:
    if daemon.process.poll() is None:
        assert await daemon.stop() == 0
        assert "Traceback" not in daemon.log()


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Home, str]]:
    """One daemon for all tests of a file, which leave nothing in it that another one could trip over."""
    home = Home(tmp_path_factory.mktemp("standing"))
    with home.stderr.open("ab") as stderr:
        command = home.command("run", "--port", "0", "--json")
        process = subprocess.Popen(command, env=home.env, stdout=PIPE, stderr=stderr, text=True)
    try:
        assert process.stdout is not None
        yield home, json.loads(process.stdout.readline())["ws"]
        process.terminate()
        assert process.wait(5) == 0
        assert "Traceback" not in home.stderr.read_text()
    finally:
        process.kill()
        process.wait()


@pytest.fixture
async def shared(standing: tuple[Home, str]) -> AsyncIterator[Reachable]:
    home, ws = standing
    async with trio.open_nursery() as nursery, AsyncExitStack() as clients:
        yield Reachable(home, ws, int(ws.rstrip("/").rpartition(":")[2]), clients, nursery)
        nursery.cancel_scope.cancel()


@pytest.fixture
async def daemon(start: Start) -> Daemon:
    running: Daemon = await start()
    return running
