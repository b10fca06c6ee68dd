"""`list_agents` and `list_models`: what a person at a door may start, and no more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from ahpd import ToolError

if TYPE_CHECKING:
    from tests.plugins.session_tools.conftest import Caller


async def test_agents(caller: Caller) -> None:
    caller.leave()
    first, second = (await caller.json("list_agents"))["agents"]
    assert first == {
        "id": "echo",
        "name": "Echo",
        "settings": caller.host.known_agents[0]["settings"],
        "models": [{"id": "echo-1", "name": "Echo One"}, {"id": "echo-2", "name": "Echo Two"}],
        "modelCount": 2,
    }
    assert (second["id"], second["modelCount"]) == ("robin", 3)


async def test_five_models_and_how_many_there_are(caller: Caller) -> None:
    models = [{"id": f"m{number}", "name": f"M{number}", "provider": "many"} for number in range(7)]
    caller.host.known_agents = [
        {"provider": "many", "displayName": "Many", "description": "Has seven.", "models": models}
    ]
    [agent] = (await caller.json("list_agents"))["agents"]
    assert [model["id"] for model in agent["models"]] == ["m0", "m1", "m2", "m3", "m4"]
    assert agent["modelCount"] == 7
    assert agent["description"] == "Has seven."
    assert agent["settings"] == {}


async def test_what_may_only_be_written_is_not_shown(caller: Caller) -> None:
    secret = {"type": "string", "title": "Key", "writeOnly": True, "default": "hunter2"}
    caller.host.known_agents[0] = {**caller.host.known_agents[0], "settings": {"key": secret}}
    answer = await caller.text("list_agents")
    assert "hunter2" not in answer
    assert '"writeOnly":true' in answer


async def test_models(caller: Caller) -> None:
    models = (await caller.json("list_models"))["models"]
    assert models[0] == {"id": "echo-1", "name": "Echo One", "agent": "echo"}
    assert [model["id"] for model in models] == ["echo-1", "echo-2", "r-small", "r-large", "r-only"]
    models = (await caller.json("list_models", agent="robin"))["models"]
    assert [model["id"] for model in models] == ["r-small", "r-large", "r-only"]


@pytest.mark.parametrize("agent", ["nobody", "", None])
async def test_models_of_nobody(caller: Caller, agent: object) -> None:
    with pytest.raises(ToolError) as refused:
        await caller.text("list_models", agent=agent)
    assert str(refused.value) == "Invalid list_models input: agent must be one of echo, robin."


async def test_nothing_one_may_start(caller: Caller) -> None:
    caller.host.known_agents = []
    assert await caller.json("list_agents") == {"agents": []}
    assert await caller.json("list_models") == {"models": []}
