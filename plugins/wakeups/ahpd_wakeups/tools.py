"""`schedule_wakeup`: its input, its answers and its words. Implements the product's "Tools" page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ahpd import Tool, ToolCall, ToolError

from ahpd_wakeups.clock import wakeups_of
from ahpd_wakeups.wakeup import iso

SHORTEST, LONGEST = 60, 2_592_000

DESCRIPTION = (
    "Wake this chat later: a new turn begins here by itself after delaySeconds, with prompt as its message. Use "
    "it to come back to something that takes longer than you should wait for, such as a build, a deployment or a "
    "review, instead of sleeping or polling inside a turn; then end your turn. The host keeps the wakeup on disk: "
    "it survives this session going to sleep and a restart of the daemon, and one that fell due in between begins "
    "once, at the next start. It does not keep the session awake, and when it is due while a turn runs, it waits "
    "behind that turn. This chat holds one wakeup: another call replaces it, and stop: true cancels it. The "
    "answer says when it is due, in UTC. Beside this conversation, prompt is all you will be told then, so say in "
    "it what to check and what to do about it."
)

PARAMETERS: Mapping[str, Mapping[str, Any]] = {
    "delaySeconds": {
        "type": "integer",
        "minimum": SHORTEST,
        "maximum": LONGEST,
        "description": "Seconds from now until the turn: from 60 to 2592000, which is 30 days.",
    },
    "prompt": {"type": "string", "description": "The message the turn begins with."},
    "stop": {"type": "boolean", "description": "True cancels this chat's wakeup. Give nothing else with it."},
}


async def schedule_wakeup(call: ToolCall) -> str:
    """Set the calling chat's wakeup in place of the one it has, or cancel it."""
    if call.chat is None:
        raise ToolError(f"{call.tool} must run inside a session.")
    stop = call.arguments.get("stop", False)
    if not isinstance(stop, bool):
        raise _refusal(call, "stop must be a boolean.")
    wakeups = wakeups_of(call.host)
    if stop:
        return "Wakeup cancelled." if await wakeups.cancel(call.chat) else "This chat has no wakeup."
    seconds, prompt = _seconds(call), _prompt(call)
    wakeup = await wakeups.schedule(call.chat, seconds, prompt, call.principal.id)
    return f"Wakeup set for {iso(wakeup.at)}."


def _seconds(call: ToolCall) -> float:
    """Refused rather than moved to the nearest bound: a turn at another time than asked for is no help."""
    given = call.arguments.get("delaySeconds")
    if isinstance(given, bool) or not isinstance(given, int | float) or not SHORTEST <= given <= LONGEST:
        raise _refusal(call, f"delaySeconds must be a number from {SHORTEST} to {LONGEST}.")
    return given


def _prompt(call: ToolCall) -> str:
    given = call.arguments.get("prompt")
    if not isinstance(given, str) or not given.strip():
        raise _refusal(call, "prompt must be a non-empty string.")
    return given


def _refusal(call: ToolCall, rule: str) -> ToolError:
    return ToolError(f"Invalid {call.tool} input: {rule}")


TOOLS = (
    # No grant: it acts on the calling chat alone, and the turn it begins is checked when it begins.
    Tool(
        "schedule_wakeup",
        schedule_wakeup,
        DESCRIPTION,
        PARAMETERS,
        title="Schedule Wakeup",
        annotations={"title": "Schedule Wakeup", "readOnlyHint": False},
        checks_input=True,
    ),
)
