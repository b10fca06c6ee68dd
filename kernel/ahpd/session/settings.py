"""A session's settings: the schema it shows, the values in force, and what a change of them must pass.

Knows no setting by name: they come from the session's agent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from ahpd.agents import Agent
from ahpd.errors import InvalidParams, Rejected
from ahpd.state import Json
from ahpd.tooling.fence import fenced

_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "string": str,
    "number": (int, float),
    "boolean": bool,
    "array": list,
    "object": dict,
}


def schema_of(agent: Agent) -> Json:
    """The `properties` of an agent's session settings. Raises `AhpdError` when it says nothing of use."""
    with fenced("agent", agent.provider, "Asking for settings"):
        properties = {name: dict(schema) for name, schema in agent.settings().items()}
        msgspec.json.encode(properties)
        return properties


def capabilities_of(agent: Agent | None) -> Json:
    """The protocol's `AgentCapabilities`. Raises `AhpdError` when the agent fails to say them."""
    if agent is None:
        return {}
    with fenced("agent", agent.provider, "Asking for capabilities"):
        return dict(agent.capabilities())


def defaults(properties: Mapping[str, Any]) -> Json:
    return {name: schema["default"] for name, schema in properties.items() if "default" in schema}


def settle(properties: Mapping[str, Any], given: Mapping[str, Any]) -> Json:
    """Defaults overlaid with what was given. A key nobody declares is left out: clients send settings of
    other hosts along. Raises `InvalidParams` for a value its key does not take."""
    values = defaults(properties)
    for name, value in given.items():
        if name in properties:
            complaint = unfit(name, properties[name], value)
            if complaint:
                raise InvalidParams(complaint)
            values[name] = value
    return values


def resolve(properties: Mapping[str, Any], given: Mapping[str, Any]) -> Json:
    """As `settle`, but a value that does not fit falls back to the default: a picker is still being filled."""
    return defaults(properties) | {
        name: value
        for name, value in given.items()
        if name in properties and not unfit(name, properties[name], value)
    }


def check_change(properties: Mapping[str, Any], changed: Mapping[str, Any], begun: bool = True) -> None:
    """Raises `Rejected` when a session may not be changed so; until its first turn all of it is still open."""
    for name, value in changed.items():
        if name not in properties:
            raise Rejected(f"{name} is not a setting of this session")
        if begun and not properties[name].get("sessionMutable"):
            raise Rejected(f"{name} is fixed once the session has started")
        complaint = unfit(name, properties[name], value)
        if complaint:
            raise Rejected(complaint)


def unfit(name: str, schema: Mapping[str, Any], value: Any) -> str | None:
    """Why a value does not fit a config property; `None` when it does."""
    kind = schema.get("type", "string")
    wanted = _TYPES.get(kind)
    if wanted is not None and (not isinstance(value, wanted) or (isinstance(value, bool) and kind != "boolean")):
        return f"config.{name} must be of type {kind}"
    allowed = schema.get("enum")
    if allowed and value not in allowed:
        return f"config.{name} must be one of {', '.join(map(str, allowed))}"
    return None
