"""Turns that are kept and not in memory: forks, side chats, truncating and attaching reach them all the same."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
import trio
from ahpd.client import AhpClient, RequestFailed, answer_text
from ahpd.config import Config, Overrides
from ahpd.host import Host
from ahpd.places import Places
from ahpd.plugins import Loader
from ahpd.registry import build
from ahpd.testing import OpenHost

from ...conftest import Json, Stage, applied, message, outcome, started, until

Lives = Callable[[], AbstractAsyncContextManager[Stage]]
SESSION = "echo:/one"
TURNS = 60


@asynccontextmanager
async def host_in(folder: Path) -> AsyncIterator[Stage]:
    """A host whose store is in that folder."""
    overrides = Overrides(plugins=("agent-echo", "store-sqlite"))
    config = Config.load(Places.from_environment({"AHPD_HOME": str(folder)}), overrides)
    loader = Loader(config).load_all()
    registry = build(loader, config)
    host = Host(registry.config, loader, registry)
    async with host.running(), trio.open_nursery() as nursery:
        yield Stage(OpenHost(host, nursery))
        nursery.cancel_scope.cancel()


@pytest.fixture(params=["memory", "sqlite"])
def lives(request: pytest.FixtureRequest, stage: Stage, tmp_path: Path) -> Lives:
    """Each call is a further life of one host: another process's, or, with nothing on disk, one after a sleep."""

    @asynccontextmanager
    async def after_a_sleep() -> AsyncIterator[Stage]:
        host = stage.open.host
        for session in list(host.sessions.by_uri.values()):
            host.dormant.sleep(session)
            await session.closed.wait()
        yield stage

    return after_a_sleep if request.param == "memory" else lambda: host_in(tmp_path)


async def lived(lives: Lives) -> str:
    """A session whose chat has the turns t0 to t59 and sleeps; the chat."""
    async with lives() as stage:
        alice = await stage.client()
        session, chat = await stage.session(alice, "echo", uri=SESSION)
        for number in range(TURNS):
            await alice.dispatch(chat, started(f"t{number}", str(number)))
            await alice.finished(chat, f"t{number}")
        assert session == SESSION
    return chat


def ids(state: Json) -> list[str]:
    return [turn["id"] for turn in state["turns"]]


def first(count: int) -> list[str]:
    return [f"t{number}" for number in range(count)]


async def all_turns(client: AhpClient, chat: str) -> list[str]:
    """The ids of a chat's turns, read page by page."""
    state = await client.subscribe(chat)
    while cursor := state.get("turnsNextCursor"):
        await client.request("fetchTurns", {"channel": chat, "cursor": cursor})
        await client.until(lambda: client.states[chat].get("turnsNextCursor") != cursor)
        state = client.states[chat]
    return ids(state)


async def beside(client: AhpClient, chat: str, kind: str, turn_id: str, **more: object) -> str:
    """A new chat that begins with that turn of another."""
    uri = f"ahp-chat:/{kind}-{turn_id}"
    source = {"kind": kind, "chat": chat, "turnId": turn_id, **more}
    await client.request("createChat", {"channel": SESSION, "chat": uri, "source": source})
    await client.subscribe(uri)
    return uri


async def context_turns(client: AhpClient, chat: str) -> int:
    """How many turns of another chat the agent of this one was given."""
    told = json.loads(answer_text(await client.turn(chat, "/start")))
    count: int = told["contextTurns"]
    return count


# -- forks --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [5, 55])
async def test_a_fork_reaches_behind_what_is_in_memory(lives: Lives, at: int) -> None:
    chat = await lived(lives)
    async with lives() as stage:
        alice = await stage.client()
        assert len((await alice.subscribe(chat))["turns"]) < TURNS
        fork = await beside(alice, chat, "fork", f"t{at}")
        assert ids(alice.states[fork]) == first(at + 1)[-50:]
        await alice.turn(fork, "on its own")
        assert (await all_turns(alice, fork))[:-1] == first(at + 1)
        assert await all_turns(alice, chat) == first(TURNS)
    async with lives() as stage:
        alice = await stage.client()
        assert (await all_turns(alice, fork))[:-1] == first(at + 1)
        assert alice.states[fork]["origin"] == {"kind": "fork", "chat": chat, "turnId": f"t{at}"}


async def test_a_turn_that_is_kept_is_not_begun_again(lives: Lives) -> None:
    chat = await lived(lives)
    async with lives() as stage:
        alice = await stage.client()
        await alice.subscribe(chat)
        for name in ("t3", "t59"):
            assert "already been started" in str(await outcome(alice, chat, started(name, "other words")))
        assert await all_turns(alice, chat) == first(TURNS)


async def test_a_waiting_message_with_the_id_of_a_kept_turn_gets_a_turn_of_its_own(lives: Lives) -> None:
    chat = await lived(lives)
    async with lives() as stage:
        alice = await stage.client()
        await alice.subscribe(SESSION)
        await alice.subscribe(chat)
        await alice.dispatch(chat, started("now", "/ask who"))
        (needed,) = await alice.until(lambda: alice.states[SESSION].get("inputNeeded"))
        queued = {"type": "chat/pendingMessageSet", "kind": "queued", "id": "t3", "message": message("again")}
        await applied(alice, chat, queued)
        answer = {"type": "chat/inputCompleted", "requestId": needed["request"]["id"], "response": "decline"}
        await applied(alice, chat, answer)
        await alice.until(lambda: alice.states[chat]["turns"][-1]["message"]["text"] == "again")
        turns = await all_turns(alice, chat)
        assert turns[: TURNS + 1] == [*first(TURNS), "now"]
        assert len(turns) == TURNS + 2
        assert turns[-1] != "t3"


async def test_that_goes_for_a_message_that_waited_while_the_host_was_down(tmp_path: Path) -> None:
    def lives() -> AbstractAsyncContextManager[Stage]:
        return host_in(tmp_path)

    chat = await lived(lives)
    async with lives() as stage:
        alice = await stage.client()
        await alice.subscribe(chat)
        await alice.dispatch(chat, started("now", "/ask who"))
        queued = {"type": "chat/pendingMessageSet", "kind": "queued", "id": "t3", "message": message("again")}
        await applied(alice, chat, queued)
    async with lives() as stage:
        alice = await stage.client()
        await alice.subscribe(chat)
        await alice.turn(chat, "next")  # after which it is its turn
        await alice.until(lambda: alice.states[chat]["turns"][-1]["message"]["text"] == "again")
        turns = await all_turns(alice, chat)
        assert turns[:TURNS] == first(TURNS)
        assert turns[-1] != "t3"


async def test_a_turn_id_is_used_once_in_a_session(stage: Stage) -> None:
    alice = await stage.client()
    _, chat = await stage.session(alice, "echo", uri=SESSION)
    for name in ("a", "b"):
        await alice.dispatch(chat, started(name, name))
        await alice.finished(chat, name)
    fork = await beside(alice, chat, "fork", "a")
    for name in ("a", "b"):
        assert "already been started" in str(await outcome(alice, fork, started(name)))
    await applied(alice, fork, {"type": "chat/truncated", "turnId": "a"})
    assert ids(alice.states[chat]) == ["a", "b"]


# -- side chats ---------------------------------------------------------------------------------------------


async def test_a_side_chats_agent_is_given_what_it_was_opened_beside(lives: Lives) -> None:
    chat = await lived(lives)
    async with lives() as stage:
        alice = await stage.client()
        early = await beside(alice, chat, "sideChat", "t5", selection={"text": "5"})
        late = await beside(alice, chat, "sideChat", "t55")
        assert alice.states[early]["turns"] == alice.states[late]["turns"] == []
        assert await context_turns(alice, early) == 6
        assert await context_turns(alice, late) == 56
        assert await context_turns(alice, await beside(alice, chat, "fork", "t7")) == 0
    async with lives() as stage:
        alice = await stage.client()
        state = await alice.subscribe(early)
        origin = {"kind": "sideChat", "chat": chat, "turnId": "t5", "selection": {"text": "5"}}
        assert state["origin"] == origin
        assert await context_turns(alice, early) == 6
        await alice.request("disposeChat", {"channel": chat})
    async with lives() as stage:
        alice = await stage.client()
        await alice.subscribe(early)
        assert await context_turns(alice, early) == 0
        assert alice.states[early]["origin"] == origin


async def test_a_side_chat_of_a_running_turn_is_given_what_there_is(stage: Stage) -> None:
    alice = await stage.client()
    _, chat = await stage.session(alice, "echo", uri=SESSION)
    await alice.turn(chat, "first")
    running = await alice.start_turn(chat, "second\n/ask Well?")
    await alice.until(lambda: alice.states[SESSION].get("inputNeeded"))
    side = await beside(alice, chat, "sideChat", running)
    assert await context_turns(alice, side) == 2
    with pytest.raises(RequestFailed, match="completed turn"):
        await beside(alice, chat, "fork", running)
    await applied(alice, chat, {"type": "chat/turnCancelled", "turnId": running})


# -- truncating ---------------------------------------------------------------------------------------------


async def test_a_chat_is_cut_behind_what_is_in_memory(lives: Lives) -> None:
    chat = await lived(lives)
    async with lives() as stage:
        alice, bob = await stage.client(), await stage.client()
        for client in (alice, bob):
            assert len((await client.subscribe(chat))["turns"]) < TURNS
        assert "no completed turn" in str(await outcome(alice, chat, {"type": "chat/truncated", "turnId": "no"}))
        await applied(alice, chat, {"type": "chat/truncated", "turnId": "t5"})
        await bob.until(lambda: ids(bob.states[chat])[-1] == "t5")
        assert ids(alice.states[chat]) == ids(bob.states[chat]) == first(6)
        await stage.agrees(bob, chat)
        assert "no completed turn" in str(await outcome(alice, chat, {"type": "chat/truncated", "turnId": "t9"}))
        assert "already been started" in str(await outcome(alice, chat, started("t59")))
        await applied(alice, chat, started("new", "new"))
        await alice.finished(chat, "new")
    async with lives() as stage:
        carol = await stage.client()
        assert await all_turns(carol, chat) == [*first(6), "new"]


async def test_whoever_was_shown_a_part_is_cut_with_the_others(lives: Lives) -> None:
    chat = await lived(lives)
    async with lives() as stage:
        alice, bob = await stage.client(), await stage.client()
        await alice.subscribe(chat)
        assert len((await bob.subscribe(chat, view={"turns": 2}))["turns"]) == 2
        for last in (40, 4):
            await applied(alice, chat, {"type": "chat/truncated", "turnId": f"t{last}"})
            await bob.until(lambda: ids(bob.states[chat])[-1] == f"t{last}")  # noqa: B023
            await stage.agrees(alice, chat)
            await stage.agrees(bob, chat)
        assert ids(bob.states[chat]) == first(5)


async def test_a_chat_that_is_emptied_is_empty_in_the_store_too(lives: Lives) -> None:
    chat = await lived(lives)
    async with lives() as stage:
        alice = await stage.client()
        await alice.subscribe(chat)
        await applied(alice, chat, {"type": "chat/truncated"})
        assert alice.states[chat]["turns"] == []
        assert "turnsNextCursor" not in alice.states[chat]
    async with lives() as stage:
        alice = await stage.client()
        assert await all_turns(alice, chat) == []
        await alice.turn(chat, "again")
        assert len(await all_turns(alice, chat)) == 1


# -- attached chats -----------------------------------------------------------------------------------------


def attaching(uri: str, **more: object) -> Json:
    return message("look", attachments=[{"type": "chat", "label": "That", "resource": uri, **more}])


async def test_an_attached_chat_may_end_behind_what_is_in_memory(lives: Lives) -> None:
    chat = await lived(lives)
    async with lives() as stage:
        alice = await stage.client()
        _, other = await stage.session(alice, "echo")
        assert stage.open.host.dormant.sleeps(chat)
        for turn_id, end in (("a", "t5"), ("b", "t59")):
            attached = started(turn_id, message=attaching(chat, endTurn=end))
            await applied(alice, other, attached)
            turn = await alice.finished(other, turn_id)
            assert turn["message"]["attachments"][0]["endTurn"] == end
        bad = started("c", message=attaching(chat, endTurn="never"))
        assert "no completed turn never" in str(await outcome(alice, other, bad))
        await applied(alice, other, started("d", message=attaching(chat)))
        assert (await alice.finished(other, "d"))["message"]["attachments"][0]["endTurn"] == "t59"


async def test_what_runs_beside_the_turns_does_not_outlive_the_process(lives: Lives) -> None:
    async with lives() as stage:
        alice = await stage.client()
        _, chat = await stage.session(alice, "echo", uri=SESSION)
        await alice.turn(chat, "/spawn 600")
        (work,) = alice.states[chat]["backgroundWork"]
        assert (work["kind"], work["command"]) == ("shell", "sleep 600")
    async with lives() as stage:
        alice = await stage.client()
        assert not (await alice.subscribe(chat)).get("backgroundWork")


async def test_a_page_is_read_once_however_many_want_it(lives: Lives) -> None:
    chat = await lived(lives)
    async with lives() as stage:
        alice, bob = await stage.client(), await stage.client()
        for client in (alice, bob):
            await client.subscribe(chat)
        await alice.dispatch(chat, {"type": "chat/truncated", "turnId": "t7"})
        await bob.dispatch(chat, {"type": "chat/truncated", "turnId": "t3"})
        await until(lambda: ids(alice.states[chat]) == ids(bob.states[chat]) == first(4))
        await stage.agrees(alice, chat)
