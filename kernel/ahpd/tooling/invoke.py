"""One tool call, whoever asks: grants, input, limits, run, charge.

A tool never takes its caller along: whatever it raises becomes a result somebody can read. Implements the
product's "Grants" and "Limits": a refused call charges nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from ahpd.access import Gatekeeper
from ahpd.errors import AhpdError, ToolError
from ahpd.log import get
from ahpd.ports import Limit
from ahpd.state import sendable
from ahpd.tooling.fence import pass_on, sole
from ahpd.tools import OfferedTool, ToolCall, ToolResult

MAX_OUTPUT = 256 * 1024
"""Bytes of a result's text that are handed on; the rest is cut with a line that says so."""

MAX_DATA = 2 * 1024 * 1024
"""Bytes of a result's structured data and content, as JSON; a client is cut off when twice that waits for it."""

CHECKERS = 1024
"""Compiled input schemas kept."""


class Invoker:
    """Runs offered tools. `limits` answers those of one plugin's tools."""

    def __init__(self, gatekeeper: Gatekeeper, limits: Callable[[str], Sequence[Limit]]) -> None:
        self._gatekeeper = gatekeeper
        self._limits = limits
        self._checkers: dict[bytes, Any] = {}

    async def invoke(self, offered: OfferedTool, call: ToolCall) -> ToolResult:
        """Run a call and answer its result. Raises nothing of the tool's own; cancellation passes."""
        charged: list[Limit] = []
        kept = False
        try:
            refusal = self._refusal(offered, call)
            if refusal is not None:
                return ToolResult(refusal, is_error=True)
            for limit in self._limits(offered.plugin):
                limit.charge(call)
                charged.append(limit)
            result = self._checked(offered, await offered.tool.run(call))
            kept = not result.is_error
        except BaseException as error:
            pass_on(error)
            return self._failure(offered, call, sole(error))
        finally:
            if not kept:
                self._give_back(offered, call, charged)
        return result

    @staticmethod
    def _failure(offered: OfferedTool, call: ToolCall, error: BaseException) -> ToolResult:
        if isinstance(error, AhpdError):
            return ToolResult(error.sentence, is_error=True)
        get(f"ahpd.plugin.{offered.plugin}").exception("tool failed", tool=call.tool)
        return ToolResult(
            f"{call.tool} failed ({type(error).__name__}); the host's log has the details.", is_error=True
        )

    @staticmethod
    def _give_back(offered: OfferedTool, call: ToolCall, charged: Sequence[Limit]) -> None:
        for limit in charged:
            try:
                limit.refund(call)
            except BaseException as error:
                pass_on(error)
                get(f"ahpd.plugin.{offered.plugin}").exception("limit failed", limit=limit.name)

    def _refusal(self, offered: OfferedTool, call: ToolCall) -> str | None:
        for grant in offered.tool.grants:
            self._gatekeeper.require(call.principal, grant)
        if not offered.tool.checks_input:
            complaint = self._input_complaint(offered, call)
            if complaint is not None:
                return complaint
        for limit in self._limits(offered.plugin):
            refusal = limit.check(call)
            if refusal is not None:
                return refusal
        return None

    def _input_complaint(self, offered: OfferedTool, call: ToolCall) -> str | None:
        schema = offered.definition["inputSchema"]
        key = msgspec.json.encode(schema)
        checker = self._checkers.get(key)
        if checker is None:
            import jsonschema_rs  # late: most hosts start without ever needing it

            if len(self._checkers) >= CHECKERS:
                self._checkers.clear()
            checker = self._checkers[key] = jsonschema_rs.Draft202012Validator(schema)
        for error in checker.iter_errors(dict(call.arguments)):
            where = ".".join(str(step) for step in error.instance_path)
            return f"Invalid {call.tool} input: {where + ': ' if where else ''}{error.message}."
        return None

    @staticmethod
    def _checked(offered: OfferedTool, answer: object) -> ToolResult:
        if isinstance(answer, str):
            answer = ToolResult(answer)
        if not isinstance(answer, ToolResult):
            raise TypeError(f"{offered.name} answered {type(answer).__name__}, not text or a ToolResult")
        try:
            text, structured, content = sendable([answer.text, answer.structured, answer.content])
            content = _cut_items(content)
            # What is no JSON fails here, as this tool's fault.
            size = len(msgspec.json.encode([structured, content]))
        except RecursionError:
            raise ToolError(f"{offered.name} answered data that contains itself.") from None
        if size > MAX_DATA:
            # Half of a picture or of an object is of no use to anybody: data is handed on whole or not at all.
            raise ToolError(f"{offered.name} answered {size} bytes of data; at most {MAX_DATA} are handed on.")
        return ToolResult(_cut(text), answer.is_error, structured, content)


def _cut(text: str, budget: int = MAX_OUTPUT) -> str:
    encoded = text.encode()
    if len(encoded) <= budget:
        return text
    kept = encoded[:budget].decode("utf-8", "ignore")
    return f"{kept}\n[cut: {len(encoded)} bytes, of which the first {budget} are shown]"


def _cut_items(content: Sequence[Any]) -> list[Any]:
    """Content items whose text together is kept to the bound; others stay whole."""
    budget, kept = MAX_OUTPUT, []
    for item in content:
        if item.get("type") == "text":
            text = str(item.get("text", ""))
            item = {**item, "text": _cut(text, budget)}
            budget = max(0, budget - len(text.encode()))
        kept.append(item)
    return kept
