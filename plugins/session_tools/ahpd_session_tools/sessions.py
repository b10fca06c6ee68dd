"""Sessions: `list_sessions`, `get_current_session` and `create_session`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal

from ahpd import PermissionDenied, SessionView, ToolCall, ToolError

from ahpd_session_tools import choices, filters, places, targets
from ahpd_session_tools.inputs import Inputs
from ahpd_session_tools.links import chat_id, link
from ahpd_session_tools.messages import sender
from ahpd_session_tools.rows import row

DEFAULT_LIMIT, MAX_LIMIT = 50, 200


async def list_sessions(call: ToolCall) -> str:
    """The catalogue the person may read, filtered, newest first. Empty where they may read none."""
    inputs = Inputs(call)
    named = inputs.optional_text("session")
    if named is not None:
        target = targets.find(call, named)
        return _json({"sessions": [row(target.summary)] if target else []})
    tests, limit = filters.tests(inputs), inputs.count("limit", default=DEFAULT_LIMIT, most=MAX_LIMIT)
    kept = [one for one in call.host.sessions(call.principal) if all(test(one) for test in tests)]
    return _json({"sessions": [row(one) for one in filters.newest_first(kept)[:limit]]})


async def get_current_session(call: ToolCall) -> str:
    """The calling session's own row."""
    session = _calling_session(call)
    target = targets.find(call, session.uri)
    return _json(row(target.summary) if target else {"session": session.uri, "openLink": link(session.uri)})


def _calling_session(call: ToolCall) -> SessionView:
    if call.session is None:
        raise ToolError(f"{call.tool} must run inside a session.")
    return call.session


Relationship = Literal["currentSession", "independent"]


def relationship(call: ToolCall) -> Relationship | None:
    """What `create_session` is to make: a chat here, or a session of its own; `None` for neither word.

    Left out it is a chat here, and at a door, where there is no here, a session.
    """
    given = call.arguments.get("relationship", "independent" if call.session is None else "currentSession")
    return given if given in ("currentSession", "independent") else None


async def create_session(call: ToolCall) -> str:
    """Start new work: a chat in the calling session, or a session of its own. Its first turn is left running."""
    inputs = Inputs(call)
    match relationship(call):
        case "independent":
            return await _create_independent(call, inputs)
        case "currentSession":
            return await _create_here(call, inputs)
    raise inputs.refusal('relationship must be "currentSession" or "independent".')


async def _create_here(call: ToolCall, inputs: Inputs) -> str:
    if call.session is None:
        raise inputs.refusal('relationship "currentSession" requires an invoking session.')
    for name in ("workspace", "agent", "config"):
        if name in inputs:
            raise inputs.refusal(f'{name} is only valid when relationship is "independent".')
    prompt, title = inputs.text("prompt"), inputs.title()
    agents = call.host.agents(call.principal)
    model = choices.model_of(inputs, agents, call.session.provider) or _callers_model(call)
    chat = await call.host.create_chat(call.principal, call.session.uri, title=title, model=model)
    await call.host.send(call.principal, chat, prompt, sender=sender(call), model=model)
    return f"Chat created in the current session ({link(call.session.uri, chat_id(chat))})."


async def _create_independent(call: ToolCall, inputs: Inputs) -> str:
    prompt, title = inputs.text("prompt"), inputs.title()
    here = call.session
    directories = _working_directories(call, inputs)
    agents = call.host.agents(call.principal)
    runner = choices.choose(inputs, agents, here.provider if here else None)
    declared = choices.settings_of(agents, runner.provider)
    config = choices.checked_config(inputs, declared, runner.provider)
    model = runner.model
    if here is not None and here.provider == runner.provider:
        # The same agent goes on as it was set here; another one's settings would mean nothing to it.
        config = {key: value for key, value in here.settings.items() if key in declared} | config
        model = model or _callers_model(call)
    made = await call.host.create_session(
        call.principal,
        provider=runner.provider,
        working_directories=directories,
        config=config,
        title=title,
        parent=here.uri if here else None,
        owner=here.owner if here else None,
    )
    await call.host.send(call.principal, made.default_chat, prompt, sender=sender(call), model=model)
    return f"New session created ({link(made.uri)})."


def _working_directories(call: ToolCall, inputs: Inputs) -> Sequence[str]:
    """The workspace named, else the calling session's directories, else none: the host's own default."""
    named = inputs.optional_text("workspace")
    if named is None:
        return call.session.working_directories if call.session else ()
    found = places.find(named, call.host.sessions(call.principal))
    if len(found) > 1:
        raise inputs.refusal(
            f'workspace "{named}" is ambiguous; use one of these project URIs: {", ".join(found)}.'
        )
    if not found:
        raise inputs.refusal(
            "workspace must match a unique known project name, project URI, working directory, "
            "absolute path, or valid URI string."
        )
    return found


def _callers_model(call: ToolCall) -> str | None:
    """The model the calling turn was asked for, where the person behind the call may see that."""
    try:
        state = call.host.chat_state(call.principal, call.chat) if call.chat else None
    except PermissionDenied:
        return None
    turn = (state or {}).get("activeTurn") or {}
    model = (turn.get("message") or {}).get("model") or {}
    return model.get("id")


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
