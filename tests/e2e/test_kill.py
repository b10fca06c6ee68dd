"""A daemon that is killed at random moments under load loses nothing that a client was told."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest
import trio
from ahpd.client import AhpClient, Disconnected, RequestFailed
from ahpd.session.names import ROOT

from ..conftest import Json
from .conftest import Daemon, Start

CLIENTS = 8


@dataclass
class Told:
    """What clients were told, from the answers and echoes they received."""

    sessions: set[str] = field(default_factory=set)
    titles: dict[str, list[str | None]] = field(default_factory=dict)
    """Titles asked for since the last one that was echoed, which comes first; `None` while none was."""
    archived: dict[str, list[bool | None]] = field(default_factory=dict)
    chats: dict[str, str] = field(default_factory=dict)
    turns: dict[str, set[str]] = field(default_factory=dict)
    """Turns whose start was echoed, by chat."""
    queued: dict[str, set[str]] = field(default_factory=dict)
    states: dict[str, Json] = field(default_factory=dict)
    last_seq: int = 0


class Load:
    """One client that creates, renames, sends, queues and archives until its connection breaks."""

    def __init__(self, client: AhpClient, told: Told, chance: random.Random) -> None:
        self.client, self.told, self.chance = client, told, chance
        self.own: list[str] = []

    async def run(self) -> None:
        try:
            while True:
                await self.step()
        except (Disconnected, RequestFailed, trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            self.told.last_seq = max(self.told.last_seq, self.client.last_seq)

    async def step(self) -> None:
        if not self.own or self.chance.random() < 0.15:
            session = await self.client.create_session()
            self.own.append(session)
            self.told.sessions.add(session)
            self.told.chats[session] = self.client.default_chat(session)
            return
        session = self.chance.choice(self.own)
        await self.chance.choice([self.rename, self.archive, self.send, self.send, self.queue])(session)

    async def rename(self, session: str) -> None:
        title = f"title {self.chance.random()}"
        asked = self.told.titles.setdefault(session, [None])
        asked.append(title)
        await self.echoed(session, {"type": "session/titleChanged", "title": title})
        asked[:] = [title]

    async def archive(self, session: str) -> None:
        for flag in (True, False):
            asked = self.told.archived.setdefault(session, [None])
            asked.append(flag)
            await self.echoed(session, {"type": "session/isArchivedChanged", "isArchived": flag})
            asked[:] = [flag]

    async def send(self, session: str) -> None:
        chat = self.told.chats[session]
        turn = await self.client.start_turn(chat, "a few words of an answer")
        await self.client.until(lambda: self.began(chat, turn))
        self.told.turns.setdefault(chat, set()).add(turn)
        await self.client.finished(chat, turn)

    def began(self, chat: str, turn: str) -> bool:
        state = self.client.states[chat]
        active = (state.get("activeTurn") or {}).get("id")
        return active == turn or any(each["id"] == turn for each in state["turns"])

    async def queue(self, session: str) -> None:
        chat, message_id = self.told.chats[session], f"queued {self.chance.random()}"
        message = {"text": "later", "origin": {"kind": "user"}}
        action = {"type": "chat/pendingMessageSet", "kind": "queued", "id": message_id, "message": message}
        await self.echoed(chat, action)
        self.told.queued.setdefault(chat, set()).add(message_id)

    async def echoed(self, channel: str, action: Json) -> None:
        envelope = await self.client.outcome(await self.client.dispatch(channel, action))
        assert "rejectionReason" not in envelope


async def under_load(daemon: Daemon, told: Told, chance: random.Random) -> None:
    """Drive a daemon from eight clients and kill it at a moment nobody knows."""
    loads = [Load(await daemon.client(), told, random.Random(chance.random())) for _ in range(CLIENTS)]
    moment = chance.randint(20, 400)
    async with trio.open_nursery() as nursery:
        for load in loads:
            nursery.start_soon(load.run)
        await loads[0].client.until(lambda: sum(len(load.client.actions) for load in loads) >= moment, 20)
        daemon.process.kill()
        await daemon.process.wait()


async def check(daemon: Daemon, told: Told) -> None:
    """Everything that was told is there, once."""
    client = await daemon.client()
    assert client.last_seq >= told.last_seq, "serverSeq went back"
    rows = await every_row(client)
    resources = [row["resource"] for row in rows]
    assert len(resources) == len(set(resources))
    assert told.sessions <= set(resources), "a session that was acknowledged is gone"
    for session in told.sessions:
        await check_session(client, told, session)


async def every_row(client: AhpClient) -> list[Json]:
    result: Json = await client.request("listSessions", {"channel": ROOT})
    assert "nextCursor" not in result
    rows: list[Json] = result["items"]
    return rows


async def check_session(client: AhpClient, told: Told, session: str) -> None:
    state, chat = await client.subscribe(session), told.chats[session]
    asked = told.titles.get(session, [None])
    assert asked[0] is None or state["title"] in asked, "a title that was acknowledged is gone"
    flags = told.archived.get(session, [None])
    assert flags[0] is None or bool(state["status"] & 64) in flags, "an archive mark that was told is gone"
    if not told.turns.get(chat) and not told.queued.get(chat):
        return
    chat_state = await client.subscribe(chat)
    await client.until(lambda: "activeTurn" not in client.states[chat])
    while "turnsNextCursor" in client.states[chat]:
        await client.request("fetchTurns", {"channel": chat, "cursor": client.states[chat]["turnsNextCursor"]})
    turns = [turn["id"] for turn in client.states[chat]["turns"]]
    assert len(turns) == len(set(turns)), "a turn is there twice"
    assert told.turns.get(chat, set()) <= set(turns), "a turn that was acknowledged is gone"
    waiting = len(chat_state.get("queuedMessages", []))
    taken = len(turns) - len(told.turns.get(chat, set()))
    assert waiting + taken >= len(told.queued.get(chat, set())), "a queued message is gone"


async def rounds(start: Start, count: int, seed: int) -> None:
    chance, told = random.Random(seed), Told()
    for _ in range(count):
        await under_load(await start(), told, chance)
    daemon = await start()
    await check(daemon, told)
    assert await daemon.stop() == 0


async def test_a_killed_daemon_keeps_what_it_told(start: Start) -> None:
    await rounds(start, 3, seed=1)


@pytest.mark.nightly
async def test_two_hundred_kills(start: Start) -> None:
    for seed in range(20):
        await rounds(start, 10, seed)


async def test_what_was_shown_is_what_comes_back(start: Start) -> None:
    """A running turn ends as interrupted; everything before it is exactly what the client folded."""
    daemon = await start()
    client = await daemon.client()
    session = await client.create_session()
    chat = client.default_chat(session)
    await client.turn(chat, "one\n/think two\n/call get_current_session {}")
    turn = await client.start_turn(chat, "partly said\n/sleep 600")
    await client.until(lambda: parts(client.states[chat].get("activeTurn")))
    seen: dict[str, Any] = client.states[chat]
    daemon.process.kill()
    await daemon.process.wait()
    again = await (await start()).client()
    await again.subscribe(session)
    state = await again.subscribe(chat)
    assert state["turns"][:-1] == seen["turns"]
    interrupted = state["turns"][-1]
    assert interrupted["id"] == turn
    assert interrupted["responseParts"][:-1] == seen["activeTurn"]["responseParts"]
    assert interrupted["responseParts"][-1]["error"]["errorType"] == "executionInterrupted"
    assert (await again.turn(chat, "and on"))["state"] == "complete"


def parts(turn: Json | None) -> bool:
    return bool(turn) and any(part.get("content") for part in (turn or {}).get("responseParts", []))
