"""Plugins switched off and on by another process while sessions run."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
import trio
from ahpd.client import AhpClient, answer_text
from ahpd.session.names import ROOT

from ..conftest import Json, turn_running

if TYPE_CHECKING:
    from .conftest import Daemon, Home, Start

TOOLS = ["list_sessions", "get_current_session", "create_session", "send_message", "get_session_context"]


def changes(client: AhpClient, session: str) -> list[Json]:
    """Every time a session's tools changed, as a client was told."""
    return [
        entry["action"]
        for entry in client.actions
        if entry["channel"] == session and entry["action"]["type"] == "session/serverToolsChanged"
    ]


def offered(client: AhpClient, session: str) -> list[str]:
    return [tool["name"] for tool in client.states[session].get("serverTools", [])]


async def test_tools_leave_and_join_running_sessions_in_one_step(daemon: Daemon) -> None:
    alice = await daemon.client()
    sessions = [await alice.create_session() for _ in range(3)]
    chat = alice.default_chat(sessions[0])
    assert all(set(TOOLS) <= set(offered(alice, session)) for session in sessions)
    busy = await alice.start_turn(alice.default_chat(sessions[1]), "/sleep 600")
    await turn_running(alice, alice.default_chat(sessions[1]))

    await daemon.home.ahpd("plugin", "disable", "session-tools")
    for session in sessions:
        await alice.until(lambda session=session: changes(alice, session))  # type: ignore[misc]
    await alice.request("ping")
    assert [len(changes(alice, session)) for session in sessions] == [1, 1, 1]
    assert all(set(offered(alice, session)).isdisjoint(TOOLS) for session in sessions)
    turn = await alice.turn(chat, "/call list_sessions {}\n/tools")
    assert "There is no tool named list_sessions here." in answer_text(turn)
    assert "get_current_session" not in answer_text(turn)
    assert alice.states[alice.default_chat(sessions[1])]["activeTurn"]["id"] == busy

    await daemon.home.ahpd("plugin", "enable", "session-tools")
    for session in sessions:
        await alice.until(lambda session=session: len(changes(alice, session)) == 2)  # type: ignore[misc]
    assert all(set(TOOLS) <= set(offered(alice, session)) for session in sessions)
    turn = await alice.turn(chat, "/call list_sessions {}")
    (part,) = [part for part in turn["responseParts"] if part["kind"] == "toolCall"]
    assert part["toolCall"]["success"] is True


FAMILIES = {
    "session-tools": "list_sessions",
    "artifacts": "add_artifact_or_reference",
    "wakeups": "schedule_wakeup",
}
"""Each with one tool of it."""


@pytest.mark.parametrize("plugin", FAMILIES)
async def test_twenty_sessions_are_told_once_for_each_switch(daemon: Daemon, plugin: str) -> None:
    alice, bob = await daemon.client(), await daemon.client()
    sessions = [await alice.create_session() for _ in range(20)]
    for session in sessions:
        await bob.subscribe(session)
    chat = alice.default_chat(sessions[7])
    busy = await alice.start_turn(chat, "/sleep 600")
    await turn_running(alice, chat)
    for times, verb in enumerate(["disable", "enable", "disable", "enable"], 1):
        await daemon.home.ahpd("plugin", verb, plugin)
        for client in (alice, bob):
            for session in sessions:
                await client.until(lambda c=client, s=session, n=times: len(changes(c, s)) >= n)  # type: ignore[misc]
            await client.request("ping")
            assert [len(changes(client, session)) for session in sessions] == [times] * 20
            has_it = {FAMILIES[plugin] in offered(client, session) for session in sessions}
            assert has_it == {verb == "enable"}
    assert alice.states[chat]["activeTurn"]["id"] == busy


WAITS = """
import os
import trio
from ahpd import Tool, hookimpl

async def wait_for_it(call):
    # Opening a pipe to read waits until somebody opens it to write.
    return await trio.Path(os.environ["AHPD_HOME"], "pipe").read_text()

@hookimpl
def ahpd_tools():
    return [Tool("wait_for_it", wait_for_it)]
"""


async def test_a_call_in_flight_finishes_when_its_plugin_is_switched_off(home: Home, start: Start) -> None:
    await home.install("waits", WAITS)
    daemon = await start()
    os.mkfifo(home.root / "pipe")
    alice = await daemon.client()
    session = await alice.create_session()
    chat = alice.default_chat(session)
    turn_id = await alice.start_turn(chat, "/call wait_for_it {}\n/call wait_for_it {}")
    await alice.until(lambda: (alice.states[chat].get("activeTurn") or {}).get("responseParts"))
    await home.ahpd("plugin", "disable", "waits")
    await alice.until(lambda: changes(alice, session))
    await trio.Path(home.root, "pipe").write_text("here it is")
    turn = await alice.finished(chat, turn_id)
    (call,) = [part["toolCall"] for part in turn["responseParts"] if part["kind"] == "toolCall"]
    assert call["success"] is True
    assert call["content"] == [{"type": "text", "text": "here it is"}]
    assert "There is no tool named wait_for_it here." in answer_text(turn), "the next call finds it gone"


async def test_an_agent_that_is_switched_off_is_offered_no_more_and_its_sessions_go_on(daemon: Daemon) -> None:
    alice = await daemon.client()
    session = await alice.create_session()
    await daemon.home.ahpd("plugin", "disable", "agent-echo")
    await alice.until(lambda: alice.states[ROOT]["agents"] == [])
    assert answer_text(await alice.turn(alice.default_chat(session), "still here")) == "still here"
    await daemon.home.ahpd("plugin", "enable", "agent-echo")
    agents = await alice.until(lambda: alice.states[ROOT]["agents"])
    assert [agent["provider"] for agent in agents] == ["echo"]


async def test_reading_the_same_configuration_again_says_nothing(daemon: Daemon) -> None:
    alice = await daemon.client()
    await alice.create_session()
    await daemon.home.ahpd("plugin", "enable", "session-tools")
    await daemon.home.ahpd("plugin", "enable", "session-tools")
    await alice.request("ping")
    assert [entry for entry in alice.actions if "ool" in entry["action"]["type"]] == []
