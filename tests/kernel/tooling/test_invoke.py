"""One tool call: who may, what input, which bounds, and what becomes of whatever the tool does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec
import pytest
import trio
from ahpd.access import Gatekeeper, Principal
from ahpd.errors import ToolError
from ahpd.ports import Limit
from ahpd.tooling.invoke import MAX_DATA, MAX_OUTPUT, Invoker
from ahpd.tools import OfferedTool, Tool, ToolCall, ToolResult
from ahpd.views import HostApi

ANA = Principal("user:ana", "ana", frozenset({"session:read"}))
Run = Callable[[ToolCall], Awaitable[Any]]


@dataclass
class Counted:
    """A limit that remembers what it was asked."""

    most: int = 100
    spent: int = 0
    said: list[str] = field(default_factory=list)
    breaks: str = ""
    error: BaseException = field(default_factory=lambda: RuntimeError("broke"))
    name: str = "counted"

    def _note(self, what: str) -> None:
        self.said.append(what)
        if what == self.breaks:
            raise self.error

    def check(self, call: ToolCall) -> str | None:
        self._note("check")
        return "Enough." if self.spent >= self.most else None

    def charge(self, call: ToolCall) -> None:
        self._note("charge")
        self.spent += 1

    def refund(self, call: ToolCall) -> None:
        self._note("refund")
        self.spent -= 1


async def fine(call: ToolCall) -> str:
    return f"ran with {dict(call.arguments)}"


async def invoke(run: Run, arguments: Any = None, limits: Sequence[Limit] = (), **more: Any) -> ToolResult:
    tool = Tool("tool", run, **more)
    offered = OfferedTool(tool, "tests", None, tool.definition())
    call = ToolCall("tool", arguments or {}, ANA, cast(HostApi, None))
    with trio.fail_after(5):
        return await Invoker(Gatekeeper(), lambda plugin: limits).invoke(offered, call)


async def test_a_good_call_runs_and_is_charged_once() -> None:
    limit = Counted()
    result = await invoke(fine, {"a": 1}, [limit])
    assert result == ToolResult("ran with {'a': 1}", content=[])
    assert limit.said == ["check", "charge"]
    assert limit.spent == 1


async def test_a_missing_grant_is_refused_before_anything_else() -> None:
    limit, ran = Counted(), []

    async def run(call: ToolCall) -> str:
        ran.append(call)
        return ""

    result = await invoke(run, {}, [limit], grants=("session:read", "session:write"))
    assert (result.is_error, result.text) == (True, "ana may not session:write here")
    assert (limit.said, ran) == ([], [])
    assert not (await invoke(run, {}, [limit], grants=("session:read",))).is_error


@pytest.mark.parametrize(
    ("arguments", "where"), [({}, '"n"'), ({"n": "x"}, "n: "), ({"n": 1, "deep": [{"k": "x"}]}, "deep.0.k: ")]
)
async def test_bad_input_is_refused_with_a_sentence_that_says_where(arguments: Any, where: str) -> None:
    parameters = {
        "n": {"type": "integer"},
        "deep": {"type": "array", "items": {"type": "object", "properties": {"k": {"type": "integer"}}}},
    }
    limit = Counted()
    result = await invoke(fine, arguments, [limit], parameters=parameters, required=["n"])
    assert result.is_error
    assert result.text.startswith("Invalid tool input: ")
    assert result.text.endswith(".")
    assert where in result.text
    assert limit.said == []


async def test_unknown_properties_are_ignored_and_a_tool_may_check_for_itself() -> None:
    assert not (await invoke(fine, {"n": 1, "x": 2}, parameters={"n": {"type": "integer"}})).is_error
    assert not (await invoke(fine, {"n": "x"}, parameters={"n": {"type": "integer"}}, checks_input=True)).is_error


async def test_a_limit_that_is_reached_refuses_and_charges_nothing() -> None:
    first, full, never = Counted(), Counted(most=0), Counted()
    result = await invoke(fine, {}, [first, full, never])
    assert (result.is_error, result.text) == (True, "Enough.")
    assert [limit.spent for limit in (first, full, never)] == [0, 0, 0]
    assert "charge" not in first.said


async def raises(call: ToolCall) -> str:
    raise ZeroDivisionError("secret detail")


async def exits(call: ToolCall) -> str:
    raise SystemExit(1)


async def exits_in_a_nursery(call: ToolCall) -> str:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(exits, call)
    return ""


async def raises_a_group(call: ToolCall) -> str:
    raise ExceptionGroup("several", [ValueError("one"), KeyError("two")])


async def answers_a_list(call: ToolCall) -> Any:
    return ["not", "text"]


async def answers_nothing(call: ToolCall) -> Any:
    return None


async def answers_an_object(call: ToolCall) -> Any:
    return ToolResult("", structured={"object": object()})


async def answers_a_number(call: ToolCall) -> Any:
    return ToolResult(cast(str, 4))


async def answers_odd_content(call: ToolCall) -> Any:
    return ToolResult("", content=[cast(Any, "text")])


BROKEN = [
    raises,
    exits,
    exits_in_a_nursery,
    raises_a_group,
    answers_a_list,
    answers_nothing,
    answers_an_object,
    answers_a_number,
    answers_odd_content,
]


@pytest.mark.parametrize("run", BROKEN, ids=lambda run: run.__name__)
async def test_whatever_a_tool_does_becomes_a_result_and_costs_nothing(run: Run) -> None:
    limit = Counted()
    result = await invoke(run, {}, [limit])
    assert result.is_error
    assert result.text.startswith("tool failed (")
    assert "secret detail" not in result.text
    assert limit.spent == 0
    assert limit.said == ["check", "charge", "refund"]


async def refuses(call: ToolCall) -> str:
    raise ToolError("Not on a Sunday.")


async def refuses_in_a_nursery(call: ToolCall) -> str:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(refuses, call)
    return ""


@pytest.mark.parametrize("run", [refuses, refuses_in_a_nursery])
async def test_a_refusal_is_told_in_the_tools_words(run: Run) -> None:
    limit = Counted()
    result = await invoke(run, {}, [limit])
    assert (result.is_error, result.text, limit.spent) == (True, "Not on a Sunday.", 0)


async def test_a_result_that_is_an_error_is_given_back() -> None:
    async def errs(call: ToolCall) -> ToolResult:
        return ToolResult("no", is_error=True)

    limit = Counted()
    assert (await invoke(errs, {}, [limit])).text == "no"
    assert limit.spent == 0


async def test_a_cancelled_call_is_cancelled_and_given_back() -> None:
    limit = Counted()

    async def never(call: ToolCall) -> str:
        scope.cancel()
        await trio.sleep_forever()
        return ""

    with trio.CancelScope() as scope:
        await invoke(never, {}, [limit])
    assert scope.cancelled_caught
    assert limit.spent == 0


@pytest.mark.parametrize("breaks", ["check", "charge"])
async def test_a_limit_that_breaks_refuses(breaks: str) -> None:
    first, broken = Counted(), Counted(breaks=breaks)
    result = await invoke(fine, {}, [first, broken])
    assert result.is_error
    assert (first.spent, broken.spent) == (0, 0)


@pytest.mark.parametrize("error", [RuntimeError(), SystemExit(2), BaseException()])
async def test_a_limit_that_cannot_give_back_does_not_take_its_caller_along(error: BaseException) -> None:
    broken, other = Counted(breaks="refund", error=error), Counted()
    result = await invoke(raises, {}, [broken, other])
    assert result.is_error
    assert other.spent == 0


@pytest.mark.parametrize("size", [MAX_OUTPUT, MAX_OUTPUT + 1, MAX_OUTPUT * 3])
@pytest.mark.parametrize("letter", ["a", "é", "😀"])
@pytest.mark.parametrize("form", ["text", "content"])
async def test_long_output_is_cut_between_characters_with_a_line_that_says_so(
    size: int, letter: str, form: str
) -> None:
    text = letter * (size // len(letter.encode()) + 1) if size > MAX_OUTPUT else "a" * size

    async def talks(call: ToolCall) -> ToolResult:
        return ToolResult(text) if form == "text" else ToolResult(content=[{"type": "text", "text": text}])

    result = await invoke(talks)
    shown = result.items()[0]["text"]
    if len(text.encode()) <= MAX_OUTPUT:
        assert shown == text
    else:
        kept, _, note = shown.rpartition("\n")
        assert text.startswith(kept)
        assert MAX_OUTPUT - 4 < len(kept.encode()) <= MAX_OUTPUT
        assert note == f"[cut: {len(text.encode())} bytes, of which the first {MAX_OUTPUT} are shown]"


async def test_content_shares_one_bound_and_keeps_what_is_not_text() -> None:
    items = [
        {"type": "text", "text": "a" * (MAX_OUTPUT - 10)},
        {"type": "resource", "uri": "file:///x"},
        {"type": "text", "text": "b" * 100},
        {"type": "text", "text": "c" * 100},
    ]

    async def talks(call: ToolCall) -> ToolResult:
        return ToolResult(content=items)

    first, resource, second, third = (await invoke(talks)).items()
    assert (first, resource) == (items[0], items[1])
    assert second["text"].startswith("b" * 10 + "\n[cut: 100 bytes")
    assert third["text"].startswith("\n[cut: 100 bytes")


async def test_what_no_client_could_be_sent_is_replaced() -> None:
    async def talks(call: ToolCall) -> ToolResult:
        return ToolResult("a\udc80", structured={"x": "\ud800"}, content=[{"type": "text", "text": "\udfff"}])

    result = await invoke(talks)
    msgspec.json.encode([result.text, result.structured, result.items()])
    assert result.text.startswith("a")


@pytest.mark.parametrize("form", ["structured", "content"])
async def test_data_beyond_the_bound_is_not_handed_on(form: str) -> None:
    async def floods(call: ToolCall) -> ToolResult:
        blob = {"type": "image", "data": "x" * int(call.arguments["size"])}
        return ToolResult("x", structured=blob) if form == "structured" else ToolResult(content=[blob])

    limit = Counted()
    result = await invoke(floods, {"size": MAX_DATA + 1}, [limit])
    assert (result.is_error, result.structured, list(result.content), limit.spent) == (True, None, [], 0)
    assert f"at most {MAX_DATA} are handed on" in result.text
    assert not (await invoke(floods, {"size": MAX_DATA - 100})).is_error


async def test_data_that_contains_itself_is_refused() -> None:
    async def turns_in_circles(call: ToolCall) -> ToolResult:
        data: dict[str, Any] = {}
        data["a"] = data
        return ToolResult("x", structured=data)

    result = await invoke(turns_in_circles)
    assert (result.is_error, result.text) == (True, "tool answered data that contains itself.")
