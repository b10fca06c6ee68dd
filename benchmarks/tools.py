"""What the host adds to a tool call, and what working out a session's tools costs. In one process, with no socket.

python benchmarks/tools.py
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

import trio
from ahpd import Tool, ToolCall
from ahpd.testing import AhpClient, OpenHost, open_host

CALL_BUDGET, OFFER_BUDGET = 1.0, 0.2
"""Milliseconds of processor time, the 50th percentile of each."""


async def nothing(call: ToolCall) -> str:
    return "done"


def many(count: int) -> list[Tool]:
    """Tools with a schema of an ordinary size."""
    text = {"type": "string", "description": "A text of some length that says what this is for, and when."}
    properties = {f"property{number}": text for number in range(6)}
    words = "What the tool does, when to call it and what it answers. " * 6
    return [Tool(f"tool_{number}", nothing, words, properties, ("property0",)) for number in range(count)]


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def show(what: str, seconds: Sequence[float], budget: float) -> None:
    low, high = (percentile(seconds, share) * 1000 for share in (0.5, 0.99))
    verdict = "within" if low <= budget else "OVER"
    print(f"{what:34} p50 {low:.3f} ms   p99 {high:.3f} ms   ({verdict} {budget:g} ms)")


def offers(opened: OpenHost, session: str, times: int) -> list[float]:
    host = opened.host
    live = host.sessions.get(session)
    took = []
    for _ in range(times):
        began = time.process_time()
        host._offered(live)
        took.append(time.process_time() - began)
    return took


async def calls(client: AhpClient, chat: str, line: str, times: int) -> list[float]:
    """Whole turns of many calls, host and client together, divided by the calls."""
    took = []
    for _ in range(times):
        began = time.process_time()
        await client.turn(chat, "\n".join([line] * 50), patience=60)
        took.append((time.process_time() - began) / 50)
    return took


def equip(opened: OpenHost, count: int) -> None:
    for tool in many(count - len(opened.host.tools)):
        opened.host.register_tool(tool)


async def bench(times: int, tools: int) -> None:
    async with open_host(["session-tools", "artifacts", "wakeups", "agent-echo"]) as opened:
        equip(opened, tools)
        client = await opened.client()
        session = await client.create_session()
        show(f"an offer of {tools} tools", offers(opened, session, times * 20), OFFER_BUDGET)
        lines = {
            "a call that does nothing": '/call tool_0 {"property0": "x"}',
            "list_sessions": "/call list_sessions {}",
            "list_artifacts_and_references": "/call list_artifacts_and_references {}",
        }
        for what, line in lines.items():
            # In a session of its own, so that no figure pays for the turns of another.
            chat = client.default_chat(await client.create_session())
            show(what, await calls(client, chat, line, times), CALL_BUDGET)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=20, help="turns of 50 calls to measure")
    parser.add_argument("--tools", type=int, default=100, help="tools that are registered")
    given = parser.parse_args()
    trio.run(bench, given.times, given.tools)
