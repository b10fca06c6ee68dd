"""Who a new session runs on, and how: its agent, its model and its settings, chosen from what is offered.

`agents` here is always what the host answers for the person behind the call: `AgentInfo`s with the session
settings of each under `settings`. A choice that cannot be made is a refusal in the words of the tool.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ahpd import ToolError

from ahpd_session_tools.inputs import Inputs

Agents = Sequence[Mapping[str, Any]]

_TYPES: Mapping[str, tuple[str, type | tuple[type, ...]]] = {
    "string": ("a string", str),
    "number": ("a number", (int, float)),
    "boolean": ("a boolean", bool),
    "array": ("an array", list),
    "object": ("an object", dict),
}


@dataclass(frozen=True, slots=True)
class Runner:
    """An agent, and the model it is asked for; `None` leaves the model to the agent."""

    provider: str
    model: str | None


def choose(inputs: Inputs, agents: Agents, default: str | None) -> Runner:
    """The runner of an independent session: the agent named, else the model's, else `default`, else the first.

    A model that several agents have is the named or default agent's when it has it.
    """
    providers = [str(agent["provider"]) for agent in agents]
    if not providers:
        raise ToolError("This host has no agent a session could be started on.")
    named = inputs.optional_text("agent")
    if named is not None and named not in providers:
        raise inputs.refusal(f"agent must be one of {', '.join(providers)}.")
    preferred = named or (default if default in providers else providers[0])
    wanted = inputs.optional_text("model")
    if wanted is None:
        return Runner(preferred, None)
    own = _matches(wanted, agents, preferred)
    if own or named is not None:
        return _only(inputs, wanted, own, preferred)
    return _only(inputs, wanted, _matches(wanted, agents), None)


def model_of(inputs: Inputs, agents: Agents, provider: str) -> str | None:
    """The model named for a chat of a session that runs `provider`, `None` when none was named."""
    wanted = inputs.optional_text("model")
    if wanted is None:
        return None
    own = _matches(wanted, agents, provider)
    if not own and (others := _matches(wanted, agents)):
        raise inputs.refusal(
            f'model "{others[0].model}" belongs to provider "{others[0].provider}", but relationship '
            f'"currentSession" targets provider "{provider}".'
        )
    return _only(inputs, wanted, own, provider).model


def _matches(wanted: str, agents: Agents, provider: str | None = None) -> list[Runner]:
    """Who has the model: by its id, and only when nobody has that, by its name."""
    models = [
        (Runner(str(agent["provider"]), str(model["id"])), str(model.get("name", "")))
        for agent in agents
        if provider in (None, agent["provider"])
        for model in agent.get("models") or ()
    ]
    by_id = [runner for runner, _ in models if runner.model == wanted]
    return by_id or [runner for runner, name in models if name.lower() == wanted.strip().lower()]


def _only(inputs: Inputs, wanted: str, found: Sequence[Runner], provider: str | None) -> Runner:
    if not found:
        of_whom = f' for provider "{provider}"' if provider is not None else ""
        raise inputs.refusal(f"model must match an available model id or name{of_whom}.")
    if len(found) > 1:
        ids = ", ".join(dict.fromkeys(str(runner.model) for runner in found))
        raise inputs.refusal(f'model "{wanted}" is ambiguous; use one of these model ids: {ids}.')
    return found[0]


def settings_of(agents: Agents, provider: str) -> Mapping[str, Mapping[str, Any]]:
    """The session settings an agent declares, name to schema."""
    for agent in agents:
        if agent["provider"] == provider:
            return agent.get("settings") or {}
    return {}


def checked_config(inputs: Inputs, declared: Mapping[str, Mapping[str, Any]], provider: str) -> dict[str, Any]:
    """The input `config`, refused at the first setting that the agent does not have or take."""
    config = inputs.record("config")
    for key, value in config.items():
        reason = _complaint(declared.get(key), value, provider)
        if reason is not None:
            raise inputs.refusal(f"config.{key} {reason}")
    return config


def _complaint(schema: Mapping[str, Any] | None, value: Any, provider: str) -> str | None:
    if schema is None:
        return f"is not a setting of {provider}."
    if "enum" in schema and not schema.get("enumDynamic") and value not in schema["enum"]:
        return f"must be one of {', '.join(str(option) for option in schema['enum'])}."
    name, kinds = _TYPES.get(str(schema.get("type")), ("", object))
    is_flag_for_number = isinstance(value, bool) and schema.get("type") == "number"
    return f"must be {name}." if is_flag_for_number or not isinstance(value, kinds) else None
