"""How a daemon ends, and that nothing it started is left behind."""

from __future__ import annotations

import re
import signal
from typing import TYPE_CHECKING, Any

import pytest
from ahpd.client import AhpClient, answer_text

from ..conftest import ended, turn_running, until
from ..kernel.wire.conftest import TEXT, UPGRADE
from .conftest import end, gone, install

if TYPE_CHECKING:
    from .conftest import Daemon, Home

STUBBORN = """
import trio
from ahpd import hookimpl

class Session:
    async def prompt(self, turn):
        await trio.sleep_forever()
    async def close(self):
        await trio.sleep_forever()

class Agent:
    provider, display_name, description = "stubborn", "Stubborn", "Never lets go."
    def models(self): return ()
    def settings(self): return {}
    def capabilities(self): return {}
    async def open(self, start): return Session()
    async def past(self):
        return
        yield

@hookimpl
def ahpd_agents():
    return [Agent()]
"""


SHIELDED = """
import trio
from ahpd import hookimpl

async def never_ends():
    with trio.CancelScope(shield=True):
        await trio.sleep_forever()

class Session:
    def __init__(self, start):
        self.start = start
    async def prompt(self, turn):
        if turn.text == "spawn":
            child = await self.start.run_process(["sleep", "600"])
            turn.markdown(f"Started process {child.pid}.")
        if turn.text == "hang":
            await never_ends()
    async def close(self):
        await never_ends()

class Agent:
    display_name, description = "Shielded", "Cannot be ended."
    def __init__(self, provider): self.provider = provider
    def models(self): return ()
    def settings(self): return {}
    def capabilities(self): return {}
    async def open(self, start):
        if self.provider == "unopened":
            await never_ends()
        return Session(start)
    async def past(self):
        return
        yield

@hookimpl
def ahpd_agents():
    return [Agent("shielded"), Agent("unopened")]
"""


async def closed(client: AhpClient) -> int:
    """The code with which a client's connection ended."""
    await until(lambda: client.closed)
    assert client.closed is not None
    return client.closed.code


async def spawned(client: AhpClient, chat: str) -> int:
    """A process that an agent left to its session."""
    found = re.search(r"Started process (\d+)", answer_text(await client.turn(chat, "/spawn 600")))
    assert found
    pid = int(found[1])
    assert not gone(pid)
    return pid


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_running_turns_are_cancelled_in_front_of_everybody(daemon: Daemon, number: int) -> None:
    alice, bob = await daemon.client(), await daemon.client()
    session = await alice.create_session()
    chat = alice.default_chat(session)
    await bob.subscribe(chat)
    turn_id = await alice.start_turn(chat, "/sleep 600")
    await turn_running(bob, chat)
    assert await daemon.stop(number) == 0
    for client in (alice, bob):
        assert await closed(client) == 1001
        assert ended(client, turn_id) == ["chat/turnCancelled"]
        assert client.states[chat]["turns"][-1]["state"] == "cancelled"


async def test_a_signal_right_after_the_announcement_is_heard(start: Any) -> None:
    for _ in range(3):
        daemon: Daemon = await start()
        assert await daemon.stop() == 0


async def test_a_daemon_started_with_nohup_outlives_its_terminal(start: Any) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # what nohup does: a child inherits it
    try:
        daemon: Daemon = await start()
    finally:
        signal.signal(signal.SIGHUP, before)
    daemon.process.send_signal(signal.SIGHUP)
    await (await daemon.client()).request("ping")
    assert await daemon.stop() == 0
    assert "SIGHUP" not in daemon.log()


async def test_neither_a_deaf_client_nor_a_stubborn_agent_holds_it_up(start: Any, home: Home) -> None:
    await home.install("stubborn", STUBBORN)
    daemon: Daemon = await start()
    alice = await daemon.client()
    for _ in range(3):
        session = await alice.create_session("stubborn")
        await alice.start_turn(alice.default_chat(session), "hold on")
        await turn_running(alice, alice.default_chat(session))
    deaf = await daemon.peer()
    await deaf.send(UPGRADE + b"\r\n")
    await deaf.head()
    half = await daemon.peer()
    await half.send(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nhalf")
    assert await daemon.stop() == 0


async def test_what_shields_itself_is_left_behind(start: Any, home: Home) -> None:
    await home.install("shielded", SHIELDED)
    daemon: Daemon = await start()
    alice = await daemon.client()
    session = await alice.create_session("shielded")
    chat = alice.default_chat(session)
    found = re.search(r"Started process (\d+)", answer_text(await alice.turn(chat, "spawn")))
    assert found
    await alice.start_turn(chat, "hang")
    await turn_running(alice, chat)
    await alice.create_session("unopened")
    assert await daemon.stop() == 0
    assert "left behind" in daemon.log()
    assert gone(int(found[1]))
    assert not [*home.root.rglob("daemon.json"), *home.root.rglob("control.sock")]
    again = await (await start()).client()
    turns = (await again.subscribe(chat))["turns"]
    assert [turn["state"] for turn in turns] == ["complete", "cancelled"]


async def test_a_plugin_that_never_ends_its_import_holds_no_signal_up(start: Any, home: Home) -> None:
    daemon: Daemon = await start()
    gate = home.root / "importing"
    never = f"open({str(gate)!r}, 'w').close()\nimport threading\nthreading.Event().wait()\n"
    install(home.site, "ahpd-endless", {"endless": never})
    enabling = await home.open_process("plugin", "enable", "endless")
    await until(gate.exists)
    assert await daemon.stop() == 0
    await end(enabling)


async def test_children_end_with_their_session(daemon: Daemon) -> None:
    alice = await daemon.client()
    first, second = await alice.create_session(), await alice.create_session()
    lost = [await spawned(alice, alice.default_chat(first)) for _ in range(3)]
    kept = await spawned(alice, alice.default_chat(second))
    await alice.request("disposeSession", {"channel": first})
    assert all(map(gone, lost))
    assert not gone(kept)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_children_end_with_the_daemon(daemon: Daemon, number: int) -> None:
    alice = await daemon.client()
    pids = [await spawned(alice, alice.default_chat(await alice.create_session())) for _ in range(3)]
    assert await daemon.stop(number) == (0 if number == signal.SIGTERM else -number)
    await until(lambda: all(map(gone, pids)))


async def test_50_sessions_with_children_leave_nothing(daemon: Daemon) -> None:
    alice = await daemon.client()
    pids = []
    for _ in range(50):
        session = await alice.create_session()
        pids.append(await spawned(alice, alice.default_chat(session)))
        await alice.request("disposeSession", {"channel": session})
    assert [pid for pid in pids if not gone(pid)] == []
    assert (await alice.request("listSessions"))["items"] == []
    assert await daemon.stop() == 0
    assert "No session" not in daemon.log()


async def test_a_client_that_stops_reading_is_cut_and_holds_up_nobody(daemon: Daemon) -> None:
    alice, bob = await daemon.client(), await daemon.client()
    session = await alice.create_session()
    chat = alice.default_chat(session)
    await bob.subscribe(chat)
    slow = await daemon.peer(receive_buffer=4096)
    await slow.send(UPGRADE + b"\r\n")
    await slow.head()
    hello = (
        b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersions":["1.0.0"],"clientId":"slow",'
    )
    await slow.frame(TEXT, hello + b'"initialSubscriptions":["%s"]}}' % chat.encode())
    await slow.read_frame()
    line = "/stream 100 250 32768"
    turn = await alice.turn(chat, "\n/think next\n".join([line] * 5), patience=20)
    assert answer_text(turn).count("@") == 500
    await bob.finished(chat, turn["id"], patience=20)
    assert alice.states[chat] == bob.states[chat]
    assert answer_text(await alice.turn(chat, "and on")) == "and on"
    opcode, payload = 0, b""
    while opcode != 8:
        opcode, payload = await slow.read_frame()
    assert int.from_bytes(payload[:2], "big") == 1013
