"""One opened chat of the echo agent: a turn runs its message line by line.

Owns what each command does and how the answer is laid out. Reading a line is `lines.py`.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from typing import Any

import trio
from ahpd import AgentError, Answer, BoundTool, Confirmation, Start, Turn

from ahpd_agent_echo.lines import (
    Ask,
    Bad,
    Command,
    Fail,
    Say,
    Show,
    Sleep,
    Spawn,
    Stream,
    Think,
    UseTool,
    parse,
)

SLICE = 0.002
"""Seconds a flat-out stream may run before it lets others run."""

NO_ENDPOINT = "This session has no tools endpoint."

_WORDS = re.compile(r"\s*\S+|\s+$")

_VOICES: Mapping[str, Callable[[str], str]] = {
    "shouty": str.upper,
    "backwards": lambda text: text[::-1],
}


class Writer:
    """A turn's answer, where every line begins on a line of its own."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._last = ""

    def line(self, text: str) -> None:
        """A whole line of markdown at once."""
        self._turn.markdown(self._begin("markdown") + text)

    async def words(self, text: str) -> None:
        """A line of markdown, word by word. An empty line is only its line break."""
        for piece in self._pieces(text):
            self._turn.markdown(piece)
            await trio.lowlevel.checkpoint()

    def reasoning(self, text: str) -> None:
        self._turn.reasoning(self._begin("reasoning") + text)

    def break_line(self) -> None:
        """End the line before, where deltas must begin with their own first character."""
        if line_break := self._begin("markdown"):
            self._turn.markdown(line_break)

    def new_part(self) -> None:
        """Something that is not text came between."""
        self._last = ""

    def _pieces(self, text: str) -> list[str]:
        pieces = _WORDS.findall(text) or ([""] if self._last == "markdown" else [])
        if pieces:
            pieces[0] = self._begin("markdown") + pieces[0]
        return pieces

    def _begin(self, kind: str) -> str:
        same, self._last = self._last == kind, kind
        return "\n" if same else ""


class EchoSession:
    """An `ahpd.AgentSession`. `heard` is told of each turn, with the session's `Start` and the text."""

    def __init__(self, start: Start, heard: Callable[[Start, str], None]) -> None:
        self._start = start
        self._heard = heard

    async def prompt(self, turn: Turn) -> None:
        """Run the message. Raises `AgentError` at a `/fail` line, and for nothing else."""
        self._heard(self._start, turn.text)
        out = Writer(turn)
        for line in turn.text.split("\n"):
            await self._run(parse(line), turn, out)
            while steering := turn.take_steering():
                out.line(f"steered: {steering['text']}")

    async def close(self) -> None:
        """Nothing is held: a child of `/spawn` is the session's."""

    async def _run(self, command: Command, turn: Turn, out: Writer) -> None:
        match command:
            case Say(text):
                await out.words(self._voice(text))
            case Think(text):
                out.reasoning(text)
            case Show("tools"):
                out.line(_json([_shown(tool) for tool in self._start.tools.offered()]))
            case Show():
                out.line(_json(_told(self._start)))
            case Bad(sentence):
                out.line(sentence)
            case Fail(text):
                raise AgentError(text)
            case Sleep(seconds):
                await trio.sleep(seconds)
            case Stream():
                out.break_line()
                await _stream(command, turn)
            case Spawn(seconds):
                out.line(await self._spawn(seconds))
            case Ask(question):
                out.line(await _ask(question, turn, out))
            case UseTool():
                await self._use_tool(command, turn, out)

    async def _spawn(self, seconds: str) -> str:
        child = await self._start.run_process(["sleep", seconds])
        command = f"sleep {seconds}"
        work = {"kind": "shell", "label": f"Sleep {seconds} s", "command": command}
        self._start.background(f"process-{child.pid}", work, child.wait)
        return f"Started process {child.pid}: {command}."

    def _voice(self, text: str) -> str:
        # Asked at every line: the setting may change while the session runs.
        said = _VOICES.get(str(self._start.settings.get("voice")))
        return said(text) if said else text

    async def _use_tool(self, use: UseTool, turn: Turn, out: Writer) -> None:
        if use.how == "mcp":
            out.line(NO_ENDPOINT)
            return
        tool = self._start.tools.find(use.name)
        if tool is None:
            out.line(f"There is no tool named {use.name} here.")
            return
        out.new_part()
        asked = _confirmation(tool.name, use.arguments) if use.how == "confirm" else None
        result = await turn.call_tool(tool.name, use.arguments, asked)
        if result.is_error:
            out.line(f"{tool.name} failed: {result.text}" if result.text else f"{tool.name} failed.")


async def _ask(question: str, turn: Turn, out: Writer) -> str:
    out.new_part()
    text_question = {"kind": "text", "id": "answer", "message": question, "required": True}
    answer = await turn.ask({"message": question, "questions": [text_question]})
    return _answered(answer)


def _answered(answer: Answer) -> str:
    """What the person said, or one sentence that they said nothing."""
    if answer.response == "decline":
        return "The question was declined."
    if answer.response == "cancel":
        return "The question was cancelled."
    given = answer.answers.get("answer") or {}
    value = given.get("value") or {}
    said = value.get("value")
    return "The question was left unanswered." if said is None else str(said)


async def _stream(stream: Stream, turn: Turn) -> None:
    if stream.per_second:
        await _paced(stream, turn)
    else:
        await _flat_out(stream, turn)


async def _paced(stream: Stream, turn: Turn) -> None:
    """Each delta has a due time of its own, so that one that comes late does not delay those after it."""
    began = trio.current_time()
    for number in range(stream.count):
        await trio.sleep_until(began + number / stream.per_second)
        turn.markdown(_delta(number, stream.size))


async def _flat_out(stream: Stream, turn: Turn) -> None:
    """Bounded by time rather than by number: one delta may cost much, with many watching, or little."""
    until = time.perf_counter() + SLICE
    for number in range(stream.count):
        turn.markdown(_delta(number, stream.size))
        if time.perf_counter() >= until:
            await trio.lowlevel.checkpoint()
            until = time.perf_counter() + SLICE
    await trio.lowlevel.checkpoint()


def _delta(number: int, size: int) -> str:
    """`[number@milliseconds since 1970]`, filled up to `size` bytes; never shorter than the stamp."""
    # Rounded, not cut: cutting would add half a millisecond to every latency measured with it.
    return f"[{number}@{round(time.time() * 1000)}]".ljust(size, ".")


def _confirmation(name: str, arguments: Mapping[str, Any]) -> Confirmation:
    shown = f"`{name}`"  # bare underscores would be drawn as emphasis
    asked = f"The echo agent was asked to call {shown} with `{_json(arguments)}`"
    return Confirmation("Allow this tool call?", asked)


def _shown(tool: BoundTool) -> dict[str, Any]:
    """One row of `/tools`."""
    row = {
        "name": tool.name,
        "description": tool.definition.get("description", ""),
        "inputSchema": tool.definition.get("inputSchema", {"type": "object"}),
    }
    may_be_missing = {
        "instruction": tool.instruction,
        "deferLoading": tool.defer,
        "effects": tool.effects,
        "contributor": tool.contributor,
    }
    return row | {key: value for key, value in may_be_missing.items() if value is not None}


def _told(start: Start) -> dict[str, Any]:
    """The answer of `/start`."""
    told: dict[str, Any] = {
        "settings": dict(start.settings),
        "workingDirectories": list(start.working_directories),
        "clientToolTimeoutMs": start.client_tool_timeout_ms,
        "titleStrategy": start.strategy,
        "toolsServer": start.tools_server is not None,
        "contextTurns": len(start.context),
    }
    if start.mcp_servers is not None:
        told["mcpServers"] = dict(start.mcp_servers)
    return told


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=dict)
