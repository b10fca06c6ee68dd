"""Wakeups of a real daemon, over a real socket and a real kill. The clock is moved by a plugin of the test."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from functools import partial
from typing import Any

import trio
from ahpd.client import AhpClient

from ...e2e.conftest import Daemon, Home, Start, home, start

__all__ = ["home", "start"]

Json = dict[str, Any]
HOUR = 3600

CLOCK = """\
import os
import time
from pathlib import Path

from ahpd_wakeups import clock

MOVED = Path(os.environ["AHPD_HOME"]) / "moved"


def moved():
    seconds = int(MOVED.read_text()) if MOVED.exists() else 0
    return time.time_ns() // 1_000_000 + seconds * 1000


clock.wall_clock = moved
"""


async def prepare(home: Home) -> None:
    await home.install("clock", CLOCK)
    await home.ahpd("plugin", "enable", "wakeups")


def move(home: Home, seconds: int) -> None:
    """Set the wall clock of every daemon of this home, `seconds` ahead of the machine's."""
    new = home.root / "moved.new"
    new.write_text(str(seconds))
    os.replace(new, home.root / "moved")


def texts(client: AhpClient, chat: str) -> list[str]:
    """The messages of the turns that have ended."""
    return [turn["message"]["text"] for turn in client.states[chat].get("turns", [])]


def has_come_back(client: AhpClient, chat: str) -> bool:
    return "come back" in texts(client, chat)


async def called(client: AhpClient, chat: str, **arguments: Any) -> str:
    """Call the tool in a turn; its answer."""
    turn = await client.turn(chat, f"/call schedule_wakeup {json.dumps(arguments)}")
    (call,) = (part["toolCall"] for part in turn["responseParts"] if part["kind"] == "toolCall")
    text: str = call["content"][0]["text"]
    return text


async def begin(daemon: Daemon) -> tuple[AhpClient, str, str]:
    client = await daemon.client()
    session = await client.create_session()
    return client, session, client.default_chat(session)


async def come_back(daemon: Daemon, session: str, chat: str) -> AhpClient:
    client = await daemon.client()
    await client.subscribe(session)
    await client.subscribe(chat)
    return client


async def kill(daemon: Daemon) -> None:
    daemon.process.kill()
    await daemon.process.wait()


async def test_it_is_due_when_it_says(home: Home, start: Start) -> None:
    await prepare(home)
    client, _, chat = await begin(await start())
    before = datetime.now(UTC).timestamp()
    said = await called(client, chat, delaySeconds=60, prompt="come back")
    due = datetime.fromisoformat(said.removeprefix("Wakeup set for ").removesuffix(".")).timestamp()
    assert 59 < due - before < 65
    move(home, 60)
    await client.until(lambda: "come back" in texts(client, chat))
    turn = client.states[chat]["turns"][-1]
    assert turn["message"]["origin"] == {"kind": "agent"}
    assert set(turn["message"]["_meta"]["ahpd.wakeup"]) == {"id", "set", "due"}
    assert await called(client, chat, stop=True) == "This chat has no wakeup."


async def test_a_turn_that_runs_when_it_is_due(home: Home, start: Start) -> None:
    """The prompt waits in the queue, begins after the turn, once, and is gone from the store."""
    await prepare(home)
    daemon = await start()
    client, session, chat = await begin(daemon)
    await called(client, chat, delaySeconds=60, prompt="come back")
    await client.start_turn(chat, "/sleep 3")
    move(home, 61)
    await client.until(lambda: client.states[chat].get("queuedMessages"))
    assert [each["message"]["text"] for each in client.states[chat]["queuedMessages"]] == ["come back"]
    await client.until(lambda: "come back" in texts(client, chat))
    assert texts(client, chat)[-2:] == ["/sleep 3", "come back"]
    await kill(daemon)
    again = await come_back(await start(), session, chat)
    assert texts(again, chat).count("come back") == 1
    assert await called(again, chat, stop=True) == "This chat has no wakeup."


async def test_killed_before_it_is_due_and_started_after(home: Home, start: Start) -> None:
    await prepare(home)
    daemon = await start()
    client, session, chat = await begin(daemon)
    await called(client, chat, delaySeconds=60, prompt="come back")
    await kill(daemon)
    move(home, HOUR)
    for _ in range(3):
        daemon = await start()
        again = await come_back(daemon, session, chat)
        await again.until(partial(has_come_back, again, chat))
        await again.request("ping")
        assert texts(again, chat).count("come back") == 1
        await kill(daemon)


async def test_killed_while_many_fire(home: Home, start: Start) -> None:
    """Whenever the kill comes, every chat has its turn once in the end."""
    await prepare(home)
    daemon = await start()
    client = await daemon.client()
    chats = {}
    for _ in range(20):
        session = await client.create_session()
        chats[session] = client.default_chat(session)
        await called(client, chats[session], delaySeconds=60, prompt="come back")
    seen = len(client.actions)
    move(home, 61)
    await client.until(lambda: len(client.actions) > seen + 10)
    await kill(daemon)
    again = await (await start()).client()
    for session, chat in chats.items():
        await again.subscribe(session)
        await again.subscribe(chat)
        await again.until(partial(has_come_back, again, chat))
    with trio.fail_after(5):
        await again.request("ping")
    assert [texts(again, chat).count("come back") for chat in chats.values()] == [1] * 20


async def test_deleting_the_session_takes_it_along(home: Home, start: Start) -> None:
    await prepare(home)
    daemon = await start()
    client, session, chat = await begin(daemon)
    await called(client, chat, delaySeconds=60, prompt="come back")
    await client.request("disposeSession", {"channel": session})
    move(home, 61)
    await kill(daemon)
    daemon = await start()
    assert await daemon.stop() == 0
    assert "wakeup" not in daemon.log()
