"""What agents suggest: values of a setting whose choices are not fixed, and what may be put into a message.

Either is an optional method of an agent, described at `ahpd.Agent`. One that has it not, or is not quick, suggests
nothing: people type on meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import trio

from ahpd.agents import Agent
from ahpd.errors import InvalidParams
from ahpd.session.settings import resolve, schema_of
from ahpd.state import Json
from ahpd.tooling.fence import fenced

PATIENCE = 2.0
"""Seconds an agent may think about it."""


async def setting_values(agent: Agent, config: Mapping[str, Any], name: str, query: str) -> Json:
    """What a setting of a session to be may be set to. Raises `InvalidParams` for a setting it has not."""
    properties = schema_of(agent)
    if name not in properties:
        raise InvalidParams(f"property must be a setting of {agent.provider}: {', '.join(properties) or 'none'}")
    return await _suggested(agent, "complete", property=name, query=query, settings=resolve(properties, config))


async def for_message(agent: Agent | None, chat: str, text: str, offset: int, directories: list[str]) -> Json:
    """What may be put into a message that is being written, at `offset` UTF-16 units."""
    named = {"chat": chat, "text": text, "offset": offset, "working_directories": tuple(directories)}
    return await _suggested(agent, "completions", **named)


async def _suggested(agent: Agent | None, method: str, **named: Any) -> Json:
    suggest, items = getattr(agent, method, None), []
    if suggest is not None and agent is not None:
        with fenced("agent", agent.provider, f"Asking for {method}"), trio.move_on_after(PATIENCE):
            items = [dict(item) for item in await suggest(**named)]
    return {"items": items}
