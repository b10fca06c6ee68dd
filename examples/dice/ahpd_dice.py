"""ahpd-dice: one tool, offered in sessions and at doors."""

from random import randint

from ahpd import Tool, ToolCall, hookimpl


async def roll_dice(call: ToolCall) -> str:
    return str(randint(1, call.arguments.get("sides", 6)))


@hookimpl
def ahpd_tools() -> list[Tool]:
    sides = {"type": "integer", "minimum": 2, "description": "How many sides the die has; 6 when left out."}
    return [Tool("roll_dice", roll_dice, "Roll one die.", {"sides": sides}, scope="both")]
