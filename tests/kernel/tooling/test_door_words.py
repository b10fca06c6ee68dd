"""Words at a door: fixed ones, and ones that depend on who asks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pytest
from ahpd import WITHHELD, Offer, Principal, Tool, ToolCall, Wording
from ahpd.tooling.offer import offered_tools

ANA = Principal("user:ana", "ana")
AGENTS = ({"provider": "echo"},)


@dataclass(frozen=True)
class Placed:
    """A registered tool."""

    tool: Tool
    plugin: str = "tests"


async def run(call: ToolCall) -> str:
    return ""


def by_agents(offer: Offer) -> Wording | Literal["withheld"] | None:
    if not offer.agents:
        return WITHHELD
    return Wording(parameters={"agent": {"enum": [agent["provider"] for agent in offer.agents]}})


def broken(offer: Offer) -> Wording:
    raise RuntimeError("broken")


@pytest.mark.parametrize("words", [None, Wording(description="at a door")])
def test_fixed_words(words: Wording | None) -> None:
    [offered] = offered_tools([Placed(Tool("t", run, "inside", scope="both", at_door=words))], Offer(ANA))
    assert offered.definition["description"] == ("inside" if words is None else "at a door")


def test_words_for_who_asks() -> None:
    placed = [Placed(Tool("t", run, scope="host", at_door=by_agents))]
    [offered] = offered_tools(placed, Offer(ANA, agents=AGENTS))
    assert offered.definition["inputSchema"]["properties"] == {"agent": {"enum": ["echo"]}}
    assert offered_tools(placed, Offer(ANA)) == ()


def test_words_that_break_withhold_that_tool_alone() -> None:
    placed = [Placed(Tool("a", run, scope="host", at_door=broken)), Placed(Tool("b", run, scope="host"))]
    assert [offered.name for offered in offered_tools(placed, Offer(ANA))] == ["b"]
