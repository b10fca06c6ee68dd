"""What each line of a message does: contract of the echo agent."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pytest
import trio
from ahpd import AgentError, Answer, Confirmation, ToolResult
from ahpd_agent_echo import agent, session

if TYPE_CHECKING:
    from trio.testing import MockClock

    from tests.plugins.agent_echo.conftest import Stage


async def test_text_comes_back_word_by_word(stage: Stage) -> None:
    turn = await stage.run("hello  big world")
    assert turn.deltas == ["hello", "  big", " world"]


async def test_lines_and_paragraphs_are_kept(stage: Stage) -> None:
    text = "one two\n\n  three \nfour"
    assert (await stage.run(text)).answer == text


async def test_nothing_is_said_to_nothing(stage: Stage) -> None:
    assert (await stage.run("")).parts == []


@pytest.mark.parametrize(
    ("voice", "said"), [("plain", "Ab cd"), ("shouty", "AB CD"), ("backwards", "dc bA"), ("odd", "Ab cd")]
)
async def test_voice(stage: Stage, voice: str, said: str) -> None:
    stage.settings["voice"] = voice
    assert (await stage.run("Ab cd")).answer == said


async def test_voice_changes_plain_lines_alone(stage: Stage) -> None:
    stage.settings["voice"] = "shouty"
    turn = await stage.run("/think quiet\n/call nothing")
    assert turn.parts == [("reasoning", "quiet"), ("markdown", "There is no tool named nothing here.")]


async def test_call_runs_the_tool_and_says_nothing_more(stage: Stage) -> None:
    stage.offer("roll")
    turn = await stage.run('/call mcp__ahp__roll {"sides": 6}')
    assert turn.parts == [("call", ("roll", {"sides": 6}, None))]


async def test_confirm_asks_first(stage: Stage) -> None:
    stage.offer("roll")
    [(_, (name, arguments, asked))] = (await stage.run('/confirm roll {"sides": 6}')).parts
    assert (name, arguments) == ("roll", {"sides": 6})
    assert isinstance(asked, Confirmation)
    assert asked.title == "Allow this tool call?"
    assert '{"sides": 6}' in asked.message


@pytest.mark.parametrize(("text", "says"), [("no dice", "roll failed: no dice"), ("", "roll failed.")])
async def test_a_failed_call_adds_one_line(stage: Stage, text: str, says: str) -> None:
    async def fail(arguments: Mapping[str, Any], call_id: str) -> ToolResult:
        return ToolResult(text, is_error=True)

    stage.offer("roll", fail)
    assert (await stage.run("/call roll")).answer == says


async def test_a_tool_nobody_has(stage: Stage) -> None:
    assert (await stage.run("/call roll")).answer == "There is no tool named roll here."


async def test_a_line_that_cannot_be_read_is_answered(stage: Stage) -> None:
    turn = await stage.run("before\n/call roll {\nafter")
    before, wrong, after = turn.answer.split("\n")
    assert (before, after) == ("before", "after")
    assert wrong.startswith("/call roll: this is not JSON")


async def test_mcp_without_an_endpoint(stage: Stage) -> None:
    stage.offer("roll")
    assert (await stage.run("/mcp roll {}")).answer == "This session has no tools endpoint."


async def test_tools(stage: Stage) -> None:
    stage.offer("roll")
    stage.offer(
        "open",
        instruction="Use it.",
        defer=False,
        effects={"reads": True},
        contributor={"kind": "client", "clientId": "c1"},
    )
    assert json.loads((await stage.run("/tools")).answer) == [
        {"name": "roll", "description": "Does roll.", "inputSchema": {"type": "object"}},
        {
            "name": "open",
            "description": "Does open.",
            "inputSchema": {"type": "object"},
            "instruction": "Use it.",
            "deferLoading": False,
            "effects": {"reads": True},
            "contributor": {"kind": "client", "clientId": "c1"},
        },
    ]


async def test_start(stage: Stage) -> None:
    stage.settings["voice"] = "plain"
    assert json.loads((await stage.run("/start")).answer) == {
        "settings": {"voice": "plain"},
        "workingDirectories": ["file:///home/ana"],
        "clientToolTimeoutMs": 600_000,
        "titleStrategy": "activeAgent",
        "toolsServer": False,
        "contextTurns": 0,
    }


async def test_start_tells_of_mcp_servers_only_when_there_are_some(stage: Stage) -> None:
    stage.more = {"mcp_servers": {"files": {"type": "stdio"}}, "strategy": "deferred"}
    told = json.loads((await stage.run("/start")).answer)
    assert told["mcpServers"] == {"files": {"type": "stdio"}}
    assert told["titleStrategy"] == "deferred"


async def test_think(stage: Stage) -> None:
    turn = await stage.run("/think one\n/think two\nsaid")
    assert turn.parts == [("reasoning", "one"), ("reasoning", "\ntwo"), ("markdown", "said")]


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (Answer("accept", {"answer": {"state": "submitted", "value": {"kind": "text", "value": "red"}}}), "red"),
        (Answer("accept", {"answer": {"state": "skipped"}}), "The question was left unanswered."),
        (Answer("accept"), "The question was left unanswered."),
        (Answer("decline"), "The question was declined."),
        (Answer("cancel"), "The question was cancelled."),
    ],
)
async def test_ask(stage: Stage, answer: Answer, says: str) -> None:
    stage.answer = answer
    turn = await stage.run("/ask Which one?")
    [(_, request), *_] = turn.parts
    assert request["message"] == "Which one?"
    [question] = request["questions"]
    assert question["kind"] == "text"
    assert question["message"] == "Which one?"
    assert turn.answer == says


async def test_sleep(stage: Stage, autojump_clock: MockClock) -> None:
    began = trio.current_time()
    assert (await stage.run("/sleep 30\ndone")).answer == "done"
    assert trio.current_time() - began == 30


async def test_sleep_ends_when_cancelled(stage: Stage, autojump_clock: MockClock) -> None:
    with trio.move_on_after(5) as scope:
        await stage.run("/sleep 3000")
    assert scope.cancelled_caught


async def test_stream_flat_out(stage: Stage) -> None:
    turn = await stage.run("stream 100 0 60")
    assert len(turn.deltas) == 100
    for number, delta in enumerate(turn.deltas):
        assert re.match(rf"\[{number}@\d{{13}}\]\.+$", delta)
        assert len(delta.encode()) == 60


async def test_stream_never_cuts_the_stamp(stage: Stage) -> None:
    [delta] = (await stage.run("/stream 1 0 2")).deltas
    assert re.fullmatch(r"\[0@\d{13}\]", delta)


async def test_stream_begins_each_delta_with_its_stamp_after_a_line(stage: Stage) -> None:
    turn = await stage.run("hi\nstream 1 0 30")
    assert turn.deltas[:2] == ["hi", "\n"]
    assert turn.deltas[2].startswith("[0@")


async def test_stream_paced_does_not_drift(stage: Stage, autojump_clock: MockClock) -> None:
    began = trio.current_time()
    turn = await stage.run("/stream 301 100 20")
    assert len(turn.deltas) == 301
    assert trio.current_time() - began == pytest.approx(3.0)


@pytest.mark.parametrize("line", ["/stream 1000000 0 20", "/stream 1000000 1000000 20"])
async def test_stream_ends_when_cancelled(stage: Stage, line: str) -> None:
    with trio.move_on_after(0.05) as scope:
        await stage.run(line)
    assert scope.cancelled_caught
    assert len(stage.turns[0].deltas) < 1_000_000


async def test_flat_out_lets_others_run(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "SLICE", 0.0)
    ran = 0

    async def other() -> None:
        nonlocal ran
        while True:
            await trio.lowlevel.checkpoint()
            ran += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        await stage.run("stream 50 0 20")
        nursery.cancel_scope.cancel()
    assert ran >= 25


async def test_fail(stage: Stage) -> None:
    with pytest.raises(AgentError, match="it broke"):
        await stage.run("first\n/fail it broke\nnever said")
    assert stage.turns[0].answer == "first"


async def test_spawn(stage: Stage) -> None:
    reported: list[Any] = []
    stage.more = {"background": lambda *told: reported.append(told)}
    turn = await stage.run("/spawn 300")
    assert stage.spawned == [["sleep", "300"]]
    assert turn.answer == "Started process 4711: sleep 300."
    ((work_id, work, until),) = reported
    assert (work_id, work["kind"], work["command"]) == ("process-4711", "shell", "sleep 300")
    assert await until() == 0


async def test_steering_is_said_between_lines(stage: Stage) -> None:
    stage.steering = ["look left"]
    assert (await stage.run("one\ntwo")).answer == "one\nsteered: look left\ntwo"


async def test_steering_after_the_last_line(stage: Stage, autojump_clock: MockClock) -> None:
    stage.steering = ["stop", "go"]
    assert (await stage.run("/sleep 1")).answer == "steered: stop\nsteered: go"


async def test_titles_are_short(stage: Stage) -> None:
    echo = agent.EchoAgent()
    opened = await echo.open(stage.start())
    turn = await stage.run("word " * 40)
    await opened.prompt(turn)
    [past] = [past async for past in echo.past()]
    assert len(past.title) == agent.TITLE_LENGTH
    assert past.title.endswith("…")
