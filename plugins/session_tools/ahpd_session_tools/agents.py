"""Who a session can be started on: `list_agents` and `list_models`, for doors. See the product's "MCP".

Both answer what the host lets the person start, and nothing of anybody else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ahpd import ToolCall

from ahpd_session_tools.choices import Agents
from ahpd_session_tools.inputs import Inputs
from ahpd_session_tools.rows import json_text

FIRST_MODELS = 5


async def list_agents(call: ToolCall) -> str:
    """The agents, each with its settings and its first models."""
    return json_text({"agents": [_row(agent) for agent in call.host.agents(call.principal)]})


async def list_models(call: ToolCall) -> str:
    """The models of one agent, or of every agent."""
    inputs = Inputs(call)
    agents: Agents = call.host.agents(call.principal)
    if "agent" in inputs:
        providers = [str(agent["provider"]) for agent in agents]
        wanted = inputs.choice("agent", providers, default="")
        agents = [agent for agent in agents if agent["provider"] == wanted]
    rows = [{**_model(model), "agent": agent["provider"]} for agent in agents for model in _models(agent)]
    return json_text({"models": rows})


def _row(agent: Mapping[str, Any]) -> dict[str, Any]:
    row = {"id": agent["provider"], "name": agent.get("displayName") or agent["provider"]}
    if agent.get("description"):
        row["description"] = agent["description"]
    settings: Mapping[str, Mapping[str, Any]] = agent.get("settings") or {}
    models = _models(agent)
    return {
        **row,
        "settings": {name: _shown(schema) for name, schema in settings.items()},
        "models": [_model(model) for model in models[:FIRST_MODELS]],
        "modelCount": len(models),
    }


def _shown(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A setting's schema, without the value of one that may only be written."""
    return {key: value for key, value in schema.items() if not (schema.get("writeOnly") and key == "default")}


def _models(agent: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return list(agent.get("models") or ())


def _model(model: Mapping[str, Any]) -> dict[str, Any]:
    return {"id": model["id"], "name": model.get("name") or model["id"]}
