"""What an agent holds of a session's tools: always the present list, found by any of their names."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from ahpd.agents import Turn
from ahpd.tools import Effects, Tool, ToolCall

from ...conftest import Stage, says


async def who(call: ToolCall) -> str:
    return f"{call.principal.name} {call.turn} {call.id} {call.session.uri if call.session else None} {call.chat}"


async def test_the_list_is_read_anew_each_time(stage: Stage) -> None:
    agent = stage.cast(says)
    alice = await stage.client()
    _, chat = await stage.session(alice)
    await alice.turn(chat, "open")
    tools = agent.opened[0].tools
    before = [tool.name for tool in tools.offered()]
    stage.equip(Tool("late", who, instruction="Use it.", defer=True, effects=Effects(reads=True)))
    assert [tool.name for tool in tools.offered()] == [*before, "late"]
    late = tools.find("late")
    assert late is not None
    assert (late.instruction, late.defer, late.effects) == ("Use it.", True, {"reads": True})
    assert late.definition["name"] == "late"
    stage.open.host.registry = replace(stage.open.host.registry, tools=())
    stage.open.host.sessions.reoffer()
    assert tools.offered() == []
    assert tools.find("late") is None


@pytest.mark.parametrize("name", ["late", "mcp__ahp__late", "older", "mcp__ahp__oldest"])
async def test_a_tool_is_found_by_any_of_its_names(stage: Stage, name: str) -> None:
    agent = stage.cast(says)
    stage.equip(Tool("late", who, legacy_names=("older", "oldest")))
    alice = await stage.client()
    _, chat = await stage.session(alice)
    await alice.turn(chat, "open")
    found = agent.opened[0].tools.find(name)
    assert found is not None
    assert found.name == "late"


@pytest.mark.parametrize("name", ["", "lat", "LATE", "mcp__other__late", "mcp__ahp__", "ahp__late"])
async def test_and_by_no_other(stage: Stage, name: str) -> None:
    agent = stage.cast(says)
    stage.equip(Tool("late", who))
    alice = await stage.client()
    _, chat = await stage.session(alice)
    await alice.turn(chat, "open")
    assert agent.opened[0].tools.find(name) is None


async def test_a_call_knows_where_it_comes_from(stage: Stage) -> None:
    results: list[Any] = []

    async def calls(turn: Turn) -> None:
        results.append(await turn.call_tool("who", {}))

    stage.cast(calls)
    stage.equip(Tool("who", who))
    alice = await stage.client()
    session, chat = await stage.session(alice)
    turn = await alice.turn(chat, "go")
    call = turn["responseParts"][0]["toolCall"]
    assert results[0].text == f"root {turn['id']} {call['toolCallId']} {session} {chat}"


async def test_a_call_in_flight_ends_although_its_tool_is_gone(stage: Stage) -> None:
    async def leaves(call: ToolCall) -> str:
        stage.open.host.registry = replace(stage.open.host.registry, tools=())
        stage.open.host.sessions.reoffer()
        return "done"

    async def calls(turn: Turn) -> None:
        await turn.call_tool("leaves", {})
        await turn.call_tool("leaves", {})

    stage.cast(calls)
    stage.equip(Tool("leaves", leaves))
    alice = await stage.client()
    session, chat = await stage.session(alice)
    turn = await alice.turn(chat, "go")
    first, second = (part["toolCall"] for part in turn["responseParts"])
    assert (first["success"], first["content"][0]["text"]) == (True, "done")
    assert (second["success"], second["content"][0]["text"]) == (False, "No tool named leaves")
    assert alice.states[session]["serverTools"] == []
    changed = [entry for entry in alice.actions if entry["action"]["type"] == "session/serverToolsChanged"]
    assert len(changed) == 1
    await stage.agrees(alice, session, chat)


async def meddle(call: ToolCall) -> str:
    """A tool that changes whatever it is handed, where it is let."""
    assert call.offer is not None
    assert call.chat is not None
    for settings in (call.offer.settings, call.host.settings):
        with pytest.raises(TypeError):
            settings["advancedTools"] = True  # type: ignore[index]
    state: Any = await call.host.chat_state(call.principal, call.chat)
    state["activeTurn"]["message"]["text"] = "changed"
    state["turns"].clear()
    rows: Any = call.host.sessions(call.principal)
    rows[0]["title"] = "changed"
    return "done"


async def test_what_a_tool_is_handed_is_not_what_the_host_works_with(stage: Stage) -> None:
    async def calls(turn: Turn) -> None:
        results.append((await turn.call_tool("meddle", {})).text)

    results: list[str] = []
    stage.cast(says, calls)
    stage.equip(Tool("meddle", meddle))
    alice = await stage.client()
    session, chat = await stage.session(alice)
    await alice.turn(chat, "first")
    await alice.turn(chat, "second")
    assert results == ["done"]
    assert [turn["message"]["text"] for turn in alice.states[chat]["turns"]] == ["first", "second"]
    assert stage.open.host.config.settings["advancedTools"] is False
    await stage.agrees(alice, session, chat)
