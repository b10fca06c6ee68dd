"""Plugins switched off and on by another process while sessions run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ahpd.client import AhpClient, answer_text
from ahpd.session.names import ROOT

from ..conftest import Json, turn_running

if TYPE_CHECKING:
    from .conftest import Daemon

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
