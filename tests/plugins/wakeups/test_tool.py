"""The tool: its answers, its refusals, its words."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
from ahpd import Principal, ToolError
from ahpd_wakeups import ahpd_lifespan, ahpd_tools
from ahpd_wakeups.tools import TOOLS
from ahpd_wakeups.wakeup import iso, read
from jsonschema_rs import Draft202012Validator

from .conftest import ANA, CHAT, DAY, HOUR, NOON, World

BAD_DELAY = "Invalid schedule_wakeup input: delaySeconds must be a number from 60 to 2592000."
BAD_PROMPT = "Invalid schedule_wakeup input: prompt must be a non-empty string."


async def refused(world: World, **arguments: Any) -> str:
    with pytest.raises(ToolError) as caught:
        await world.tool(**arguments)
    return caught.value.sentence


@pytest.mark.parametrize("seconds", [60, 61.5, 30 * DAY])
async def test_it_says_when(world: World, seconds: float) -> None:
    async with world.up():
        answer = await world.tool(delaySeconds=seconds, prompt="look")
    assert answer == f"Wakeup set for {iso(NOON + round(seconds * 1000))}."
    assert re.fullmatch(r"Wakeup set for \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z\.", answer)


@pytest.mark.parametrize("seconds", [None, 59, 59.999, 30 * DAY + 1, 0, -60, True, "60", math.nan, math.inf, [60]])
async def test_a_delay_out_of_range_is_refused_and_changes_nothing(world: World, seconds: Any) -> None:
    async with world.up():
        await world.tool(delaySeconds=60, prompt="kept")
        assert await refused(world, delaySeconds=seconds, prompt="look") == BAD_DELAY
    assert [kept["prompt"] for kept in world.records.values()] == ["kept"]


async def test_a_delay_is_required(world: World) -> None:
    async with world.up():
        assert await refused(world, prompt="look") == BAD_DELAY
        assert await refused(world) == BAD_DELAY


@pytest.mark.parametrize("prompt", [None, "", "  \n", 7, ["look"]])
async def test_a_prompt_says_something(world: World, prompt: Any) -> None:
    async with world.up():
        assert await refused(world, delaySeconds=60, prompt=prompt) == BAD_PROMPT
        assert await refused(world, delaySeconds=60) == BAD_PROMPT


@pytest.mark.parametrize("stop", [None, "true", 1])
async def test_stop_is_a_boolean(world: World, stop: Any) -> None:
    async with world.up():
        sentence = await refused(world, stop=stop, delaySeconds=60, prompt="look")
    assert sentence == "Invalid schedule_wakeup input: stop must be a boolean."


async def test_stop_cancels(world: World) -> None:
    async with world.up():
        await world.tool(delaySeconds=60, prompt="look", stop=False)
        assert await world.tool(stop=True) == "Wakeup cancelled."
        assert world.records == {}
        assert await world.tool(stop=True, delaySeconds=5, prompt="") == "This chat has no wakeup."
        await world.passes(HOUR)
    assert world.disk.taken == []


async def test_a_new_call_replaces(world: World) -> None:
    async with world.up():
        await world.tool(delaySeconds=60, prompt="first")
        assert await world.tool(delaySeconds=120, prompt="second") == f"Wakeup set for {iso(NOON + 120_000)}."
        await world.passes(100)
        assert world.disk.taken == []
        await world.passes(20)
        await world.passes(DAY)
    assert world.disk.texts() == ["second"]


async def test_it_keeps_the_person_and_both_times(world: World) -> None:
    async with world.up():
        await world.tool(delaySeconds=60, prompt="look")
    kept = world.records[CHAT]
    assert {name: kept[name] for name in ("at", "prompt", "person", "set")} == {
        "at": NOON + 60_000,
        "prompt": "look",
        "person": ANA.id,
        "set": NOON,
    }
    assert set(kept) == {"id", "at", "prompt", "person", "set"}


async def test_a_call_nobody_is_behind_keeps_nobody(world: World) -> None:
    nobody = Principal(None, "this turn", frozenset({"session:read"}))
    async with world.up():
        await world.tool(principal=nobody, delaySeconds=60, prompt="look")
    assert world.records[CHAT]["person"] is None


async def test_there_is_no_wakeup_without_a_chat(world: World) -> None:
    async with world.up():
        assert await refused(world, chat=None, stop=True) == "schedule_wakeup must run inside a session."


async def test_a_host_that_keeps_no_wakeups_says_so(world: World) -> None:
    async with world.up():
        pass
    assert await refused(world, stop=True) == "Wakeups are switched off on this host."


async def test_what_cannot_be_kept_is_not_acknowledged(world: World) -> None:
    async with world.up(keeps_fail=ToolError("The disk is full")):
        assert await refused(world, delaySeconds=60, prompt="look") == "The disk is full"
        await world.passes(HOUR)
    assert world.disk.taken == []


def test_what_is_declared() -> None:
    (tool,) = ahpd_tools()
    assert (tool.name, tool.scope, tuple(tool.grants), tool.effects) == ("schedule_wakeup", "session", (), None)
    assert not tool.advanced
    assert "survives this session going to sleep and a restart of the daemon" in tool.description
    schema = tool.input_schema()
    assert set(schema) == {"type", "properties"}, "stop alone is a legal call"
    assert schema["properties"]["delaySeconds"] | {"description": ""} == {
        "type": "integer",
        "minimum": 60,
        "maximum": 2592000,
        "description": "",
    }
    checker = Draft202012Validator(schema)
    assert checker.is_valid({"stop": True})
    assert checker.is_valid({"delaySeconds": 60, "prompt": "look"})


async def test_the_lifespan_hook_runs_the_clock(world: World) -> None:
    async with ahpd_lifespan(world.api):
        await world.tool(delaySeconds=60, prompt="look")
        assert await world.tool(stop=True) == "Wakeup cancelled."
    assert tuple(ahpd_tools()) == TOOLS


@pytest.mark.parametrize("kept", [None, 3, {}, {"id": 1, "at": 1, "prompt": "", "person": None, "set": 1}])
def test_what_cannot_be_read_is_nothing(kept: Any) -> None:
    assert read(CHAT, kept) is None
