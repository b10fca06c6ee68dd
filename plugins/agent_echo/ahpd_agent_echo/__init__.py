"""The echo agent: answers by itself, needs nothing from outside, and is what tests and demos speak to.

This file is the table of contents: `agent.py` is the backend, `session.py` runs a turn, `lines.py` reads lines.
"""

from __future__ import annotations

from collections.abc import Iterable

from ahpd import Agent, ConfigKey, PluginConfig, hookimpl

from ahpd_agent_echo.agent import EchoAgent

ALSO_AS = ConfigKey(
    "alsoAs",
    {"type": "array", "items": {"type": "string", "pattern": "^[a-z][a-z0-9+.-]*$"}, "uniqueItems": True},
    [],
    description="More provider ids to register the echo agent under.",
)


@hookimpl
def ahpd_config_keys() -> Iterable[ConfigKey]:
    return [ALSO_AS]


@hookimpl
def ahpd_agents(config: PluginConfig) -> Iterable[Agent]:
    return [EchoAgent(provider) for provider in dict.fromkeys(["echo", *config.options.get("alsoAs", ())])]
