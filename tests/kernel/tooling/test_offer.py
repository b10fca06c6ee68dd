"""Which tools are offered, to whom, in which order and words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from ahpd.access import ROOT
from ahpd.tooling.offer import offered_tools
from ahpd.tools import WITHHELD, Offer, Tool, ToolCall, Wording
from ahpd.views import SessionView


async def run(call: ToolCall) -> str:
    return ""


@dataclass(frozen=True)
class Registered:
    tool: Tool
    plugin: str = "tests"


VIEW = SessionView("echo:/1", "1", "echo", "", (), "ahp-chat:/1", ("ahp-chat:/1",))
IN_SESSION = Offer(ROOT, VIEW, "echo")
AT_DOOR = Offer(ROOT)


def named(offer: Offer, *tools: Tool) -> list[str]:
    return [offered.name for offered in offered_tools([Registered(tool) for tool in tools], offer)]


def test_scope_says_where_a_tool_is_offered() -> None:
    tools = [Tool("s", run), Tool("h", run, scope="host"), Tool("b", run, scope="both")]
    assert named(IN_SESSION, *tools) == ["s", "b"]
    assert named(AT_DOOR, *tools) == ["h", "b"]


def test_the_order_is_that_of_registration() -> None:
    names = ["z", "a", "m", "b"]
    assert named(IN_SESSION, *(Tool(name, run) for name in names)) == names


@pytest.mark.parametrize(
    ("settings", "there"), [({}, False), ({"advancedTools": False}, False), ({"advancedTools": True}, True)]
)
def test_advanced_tools_are_absent_until_the_operator_says_otherwise(
    settings: dict[str, Any], there: bool
) -> None:
    offer = Offer(ROOT, VIEW, "echo", settings=settings)
    assert named(offer, Tool("plain", run), Tool("sharp", run, advanced=True)) == ["plain", *(["sharp"] * there)]


def test_a_tool_may_narrow_itself() -> None:
    only_echo = Tool("t", run, offered=lambda offer: offer.provider == "echo", scope="both")
    assert named(IN_SESSION, only_echo) == ["t"]
    assert named(Offer(ROOT, VIEW, "other"), only_echo) == []
    assert named(AT_DOOR, only_echo) == []


@pytest.mark.parametrize(
    "error", [RuntimeError("boom"), SystemExit(1), KeyError("x"), GeneratorExit(), BaseException()]
)
@pytest.mark.parametrize("where", ["offered", "for_session"])
def test_a_tool_that_cannot_say_withholds_itself_and_nothing_else(error: BaseException, where: str) -> None:
    def broken(offer: Offer) -> Any:
        raise error

    broken_tool = Tool("broken", run, **{where: broken})  # type: ignore[arg-type]
    assert named(IN_SESSION, Tool("a", run), broken_tool, Tool("b", run)) == ["a", "b"]


@pytest.mark.parametrize("words", [7, Wording(description=object())])  # type: ignore[arg-type]
def test_words_that_are_none_withhold_their_tool(words: Any) -> None:
    broken = Tool("broken", run, for_session=lambda offer: words)
    assert named(IN_SESSION, Tool("a", run), broken) == ["a"]


def test_words_are_chosen_for_the_place() -> None:
    tool = Tool(
        "t",
        run,
        "Plain.",
        {"a": {"type": "string"}},
        ["a"],
        title="T",
        scope="both",
        at_door=Wording("At the door.", parameters={"b": {"type": "string"}}, required=()),
        for_session=lambda offer: Wording(description=f"For {offer.provider}."),
    )
    (inside,) = offered_tools([Registered(tool)], IN_SESSION)
    (outside,) = offered_tools([Registered(tool)], AT_DOOR)
    assert inside.definition["description"] == "For echo."
    assert inside.definition["inputSchema"]["required"] == ["a"]
    assert outside.definition["description"] == "At the door."
    assert outside.definition["inputSchema"] == {"type": "object", "properties": {"b": {"type": "string"}}}
    assert (inside.definition["title"], outside.definition["title"]) == ("T", "T")


def test_a_tool_can_be_withheld_from_one_session() -> None:
    tool = Tool("t", run, for_session=lambda offer: WITHHELD if offer.provider == "echo" else None)
    assert named(IN_SESSION, tool) == []
    assert named(Offer(ROOT, VIEW, "other"), tool) == ["t"]


def test_a_definition_says_what_is_set_and_nothing_else() -> None:
    assert Tool("t", run).definition() == {"name": "t", "inputSchema": {"type": "object", "properties": {}}}
    whole = Tool("t", run, "Does.", title="T", annotations={"readOnlyHint": True}, schema={"type": "object"})
    assert whole.definition() == {
        "name": "t",
        "title": "T",
        "description": "Does.",
        "inputSchema": {"type": "object"},
        "annotations": {"readOnlyHint": True},
    }
