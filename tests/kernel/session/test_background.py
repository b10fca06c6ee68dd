"""Work beside the turns: shown while it goes on, gone with its agent, and a reason for a session to stay awake."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
from ahpd.agents import Start, Turn
from ahpd.client import AhpClient

from ...conftest import Json, ScriptedAgent, Stage, applied, says, until

WORK = {"kind": "shell", "label": "Tests", "command": "make test"}


class Reporter:
    """The `Start.background` of the agent that was opened last, kept for a test to use."""

    def __init__(self, stage: Stage, *prompts: Callable[[Turn], Awaitable[None]], **more: Any) -> None:
        self.starts: list[Start] = []
        self.agent: ScriptedAgent = stage.cast(*prompts, on_open=self._opened, **more)

    async def _opened(self, start: Start) -> None:
        self.starts.append(start)

    def __call__(self, *told: Any, opened: int = -1) -> None:
        self.starts[opened].background(*told)


def shown(client: AhpClient, chat: str) -> list[str] | None:
    """The ids of the work a client is shown."""
    work = client.states[chat].get("backgroundWork")
    return None if work is None else [entry["id"] for entry in work]


async def test_work_is_shown_from_its_beginning_to_its_end(stage: Stage) -> None:
    reporter = Reporter(stage)
    alice = await stage.client()
    session, chat = await stage.session(alice)
    reporter("w1", WORK)
    reporter("w2", WORK)
    await alice.until(lambda: shown(alice, chat) == ["w1", "w2"])
    before = alice.states[chat]["backgroundWork"][0]
    assert before == {**WORK, "id": "w1", "startedAt": before["startedAt"]}
    reporter("w1", {**WORK, "label": "More tests"})
    await alice.until(lambda: alice.states[chat]["backgroundWork"][0]["label"] == "More tests")
    assert alice.states[chat]["backgroundWork"][0]["startedAt"] == before["startedAt"]
    assert alice.states[chat]["status"] & 8 == 0
    reporter("w1", None)
    reporter("never", None)
    await alice.until(lambda: shown(alice, chat) == ["w2"])
    await stage.agrees(alice, session, chat)


async def test_work_ends_with_what_is_waited_for(stage: Stage) -> None:
    reporter, done, other = Reporter(stage), trio.Event(), trio.Event()
    alice = await stage.client()
    _, chat = await stage.session(alice)

    async def goes_wrong() -> None:
        await done.wait()
        raise RuntimeError("boom")

    reporter("w1", WORK, done.wait)
    reporter("w2", WORK, goes_wrong)
    reporter("w3", WORK, done.wait)
    reporter("w3", WORK, other.wait)  # the later end counts
    await alice.until(lambda: shown(alice, chat) == ["w1", "w2", "w3"])
    done.set()
    await alice.until(lambda: shown(alice, chat) == ["w3"])
    other.set()
    await alice.until(lambda: shown(alice, chat) == [])
    await alice.turn(chat, "unharmed")


async def crashes(turn: Turn) -> None:
    raise ZeroDivisionError


@pytest.mark.parametrize("how", ["archive", "crash", "truncate"])
async def test_work_goes_with_the_agent_that_reported_it(stage: Stage, how: str) -> None:
    reporter = Reporter(stage, *([crashes] if how == "crash" else []), says)
    alice = await stage.client()
    session, chat = await stage.session(alice)
    reporter("w", WORK, trio.sleep_forever)
    await alice.until(lambda: shown(alice, chat) == ["w"])
    if how == "archive":
        for archived in (True, False):
            await applied(alice, session, {"type": "session/isArchivedChanged", "isArchived": archived})
    elif how == "truncate":
        await applied(alice, chat, {"type": "chat/truncated"})
    else:
        await alice.turn(chat, "crash")
    await alice.until(lambda: shown(alice, chat) == [])
    await alice.turn(chat, "again")
    reporter("late", WORK, opened=0)
    reporter("new", WORK)
    await alice.until(lambda: shown(alice, chat) == ["new"])
    await stage.agrees(alice, session, chat)


async def test_an_agent_that_fails_to_open_leaves_no_work(stage: Stage) -> None:
    async def broken(start: Start) -> None:
        start.background("w", WORK)
        raise RuntimeError("boom")

    stage.cast(on_open=broken)
    alice = await stage.client()
    _, chat = await stage.session(alice)
    await alice.until(lambda: shown(alice, chat) == [])


async def test_a_disposed_session_has_nothing_to_say_of_its_work(stage: Stage) -> None:
    reporter = Reporter(stage)
    alice = await stage.client()
    session, chat = await stage.session(alice)
    reporter("w", WORK, trio.sleep_forever)
    await alice.until(lambda: shown(alice, chat) == ["w"])
    await alice.request("disposeSession", {"channel": session})
    reporter("w", None)
    reporter("w2", WORK)
    assert reporter.agent.closed == 1


async def test_a_session_with_work_is_not_put_to_sleep(stage: Stage) -> None:
    reporter = Reporter(stage)
    alice = await stage.client()
    session, chat = await stage.session(alice)
    reporter("w", WORK)
    await alice.pipe.aclose()
    host = stage.open.host
    live = host.sessions.by_uri[session]
    await until(lambda: not host.state.channels[session].subscribers and not host.state.channels[chat].subscribers)
    assert not host.dormant._is_idle(live, 0)
    reporter("w", None)
    assert host.dormant._is_idle(live, 0)


async def test_a_child_of_the_echo_agent_is_shown_until_it_ends(stage: Stage) -> None:
    alice = await stage.client()
    session, chat = await stage.session(alice, "echo")
    await alice.turn(chat, "/spawn 600\n/spawn 600")
    first, second = alice.states[chat]["backgroundWork"]
    assert (first["kind"], first["command"]) == ("shell", "sleep 600")
    child = stage.open.host.sessions.by_uri[session].children._alive[_pid(first)]
    child.kill()
    await alice.until(lambda: shown(alice, chat) == [second["id"]])
    await stage.agrees(alice, session, chat)


def _pid(work: Json) -> int:
    return int(work["id"].removeprefix("process-"))
