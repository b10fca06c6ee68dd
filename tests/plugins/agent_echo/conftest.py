"""A turn and a toolbox that only remember what they were told, and a way to run one message through the agent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from ahpd import Answer, BoundTool, ChildProcess, Confirmation, Decision, Start, ToolResult, Turn
from ahpd_agent_echo.agent import EchoAgent


class FakeTurn:
    """An `ahpd.Turn`. `parts` is what it was told, in order, as (kind, value)."""

    def __init__(self, text: str, tools: FakeToolbox, answer: Answer, steering: Sequence[str]) -> None:
        self._text, self._tools, self._answer, self._steering = text, tools, answer, list(steering)
        self.parts: list[tuple[str, Any]] = []

    @property
    def id(self) -> str:
        return "turn-1"

    @property
    def message(self) -> Mapping[str, Any]:
        return {"text": self._text, "origin": {"kind": "user"}}

    @property
    def text(self) -> str:
        return self._text

    @property
    def resumed(self) -> bool:
        return False

    def markdown(self, text: str) -> None:
        self.parts.append(("markdown", text))

    def reasoning(self, text: str) -> None:
        self.parts.append(("reasoning", text))

    def notice(self, text: str) -> None:
        self.parts.append(("notice", text))

    def usage(self, usage: Mapping[str, Any]) -> None:
        self.parts.append(("usage", usage))

    def activity(self, text: str | None) -> None:
        self.parts.append(("activity", text))

    def tool_started(
        self,
        call_id: str,
        name: str,
        *,
        display_name: str | None = None,
        intention: str | None = None,
        contributor: Mapping[str, Any] | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> None:
        self.parts.append(("tool_started", name))

    def tool_input(self, call_id: str, text: str) -> None: ...

    def tool_ready(self, call_id: str, message: str, tool_input: str | None = None) -> None: ...

    def tool_content(self, call_id: str, content: Sequence[Mapping[str, Any]]) -> None: ...

    def tool_finished(self, call_id: str, result: ToolResult, past_tense: str | None = None) -> None: ...

    async def confirm(self, call_id: str, asked: Confirmation, tool_input: str | None = None) -> Decision:
        return Decision(True)

    async def confirm_result(self, call_id: str, result: ToolResult, past_tense: str | None = None) -> bool:
        return True

    async def ask(self, request: Mapping[str, Any]) -> Answer:
        self.parts.append(("ask", request))
        return self._answer

    async def call_tool(
        self, name: str, arguments: Mapping[str, Any], confirm: Confirmation | None = None
    ) -> ToolResult:
        self.parts.append(("call", (name, dict(arguments), confirm)))
        tool = self._tools.find(name)
        assert tool is not None
        return await tool.call(arguments, "call-1")

    def take_steering(self) -> Mapping[str, Any] | None:
        return {"text": self._steering.pop(0)} if self._steering else None

    @property
    def deltas(self) -> list[str]:
        return [text for kind, text in self.parts if kind == "markdown"]

    @property
    def answer(self) -> str:
        return "".join(self.deltas)


@dataclass
class FakeToolbox:
    """An `ahpd.Toolbox`."""

    tools: list[BoundTool] = field(default_factory=list)

    def offered(self) -> Sequence[BoundTool]:
        return self.tools

    def find(self, name: str) -> BoundTool | None:
        bare = name.removeprefix("mcp__ahp__")
        return next((tool for tool in self.tools if tool.name == bare), None)


@dataclass
class FakeChild:
    """An `ahpd.ChildProcess`."""

    pid: int = 4711

    async def wait(self) -> int:
        return 0

    def kill(self) -> None: ...


@dataclass
class Stage:
    """What a message is run with, and how to run it."""

    tools: FakeToolbox = field(default_factory=FakeToolbox)
    settings: dict[str, Any] = field(default_factory=dict)
    more: dict[str, Any] = field(default_factory=dict)
    answer: Answer = field(default_factory=lambda: Answer("accept"))
    steering: list[str] = field(default_factory=list)
    spawned: list[Sequence[str]] = field(default_factory=list)
    turns: list[FakeTurn] = field(default_factory=list)

    def start(self) -> Start:
        async def run_process(argv: Sequence[str], **more: Any) -> ChildProcess:
            self.spawned.append(argv)
            return FakeChild()

        start = Start(
            id="s1",
            session="echo:/s1",
            chat="ahp-chat://default/x",
            settings=self.settings,
            working_directories=["file:///home/ana"],
            tools=self.tools,
            run_process=run_process,
        )
        return replace(start, **self.more)

    async def run(self, text: str) -> FakeTurn:
        turn = FakeTurn(text, self.tools, self.answer, self.steering)
        self.turns.append(turn)
        session = await EchoAgent().open(self.start())
        as_turn: Turn = turn
        await session.prompt(as_turn)
        await session.close()
        return turn

    def offer(
        self,
        name: str,
        run: Callable[[Mapping[str, Any], str], Awaitable[ToolResult]] | None = None,
        **more: Any,
    ) -> None:
        async def echo(arguments: Mapping[str, Any], call_id: str) -> ToolResult:
            return ToolResult(f"ran with {dict(arguments)}")

        definition = {"name": name, "description": f"Does {name}.", "inputSchema": {"type": "object"}}
        self.tools.tools.append(BoundTool(name, definition, run or echo, **more))


@pytest.fixture
def stage() -> Stage:
    return Stage()
