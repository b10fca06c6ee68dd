"""Starting work: `create_session` and `create_chat`. What they start is left running.

A call that fails at any step leaves nothing of what its earlier steps made.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Literal

import trio
from ahpd import AhpdError, Log, PermissionDenied, SessionView, ToolCall, ToolError

from ahpd_session_tools import choices, placement, targets, worktrees
from ahpd_session_tools.inputs import Inputs
from ahpd_session_tools.links import chat_id, link
from ahpd_session_tools.messages import sender

UNDO_SECONDS = 10.0

_log = Log("ahpd.plugin.session-tools")

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
    if "worktree" in inputs:
        raise inputs.refusal(
            'worktree is only valid when relationship is "independent"; '
            "chats in the current session share its workspace."
        )
    prompt, title = inputs.text("prompt"), inputs.title()
    chat = await _start_chat(call, inputs, call.session, prompt, title)
    return f"Chat created in the current session ({link(call.session.uri, chat_id(chat))})."


async def create_chat(call: ToolCall) -> str:
    """Open another chat, in the session named or else in the calling one, and begin its first turn."""
    inputs = Inputs(call)
    if "session" not in inputs and call.session is None:
        raise inputs.refusal("no session provided and the current session could not be determined.")
    prompt = inputs.text("prompt")
    title = inputs.title() if "title" in inputs else None
    chat_session = _session(call, inputs)
    chat = await _start_chat(call, inputs, chat_session, prompt, title)
    return f"Chat created ({link(chat_session.uri, chat_id(chat))})."


def _session(call: ToolCall, inputs: Inputs) -> SessionView:
    """The session named, which this host must run, or else the calling one."""
    if "session" not in inputs and call.session is not None:
        return call.session
    target = targets.required(call, inputs)
    view = call.host.session(target.session)
    if view is None or not view.live:
        raise ToolError(f"{inputs.text('session')} is not a session this host is running")
    return view


async def _start_chat(call: ToolCall, inputs: Inputs, session: SessionView, prompt: str, title: str | None) -> str:
    """A new chat's URI, its first turn begun."""
    model = choices.model_of(inputs, call.host.agents(call.principal), session.provider)
    if model is None and call.session is not None and call.session.provider == session.provider:
        model = await callers_model(call)
    async with AsyncExitStack() as undo:
        chat = await call.host.create_chat(call.principal, session.uri, title=title, model=model)
        undo.push_async_callback(_drop_chat, call, chat)
        await call.host.send(call.principal, chat, prompt, sender=sender(call), model=model)
        undo.pop_all()
    return chat


async def _create_independent(call: ToolCall, inputs: Inputs) -> str:
    prompt, title = inputs.text("prompt"), inputs.title()
    here = call.session
    agents = call.host.agents(call.principal)
    runner = choices.choose(inputs, agents, here.provider if here else None)
    declared = choices.settings_of(agents, runner.provider)
    config = choices.checked_config(inputs, declared, runner.provider)
    model = runner.model
    if here is not None and here.provider == runner.provider:
        # The same agent goes on as it was set here; another one's settings would mean nothing to it.
        config = {key: value for key, value in here.settings.items() if key in declared} | config
        model = model or await callers_model(call)
    async with AsyncExitStack() as undo:
        placed = await placement.place(call, inputs, title)
        if placed.tree is not None:
            undo.push_async_callback(worktrees.discard, placed.tree)
        made = await call.host.create_session(
            call.principal,
            provider=runner.provider,
            working_directories=placed.directories,
            config=config,
            title=title,
            parent=here.uri if here else None,
            owner=here.owner if here else None,
        )
        undo.push_async_callback(_drop_session, call, made.uri)
        if placed.tree is not None:
            kept = worktrees.record([placed.tree])
            await call.host.set_session_meta(made.uri, worktrees.META, kept)
        await call.host.send(call.principal, made.default_chat, prompt, sender=sender(call), model=model)
        undo.pop_all()
    return f"New session created ({link(made.uri)})."


async def callers_model(call: ToolCall) -> str | None:
    """The model the calling turn was asked for, where the person behind the call may see that."""
    try:
        state = await call.host.chat_state(call.principal, call.chat) if call.chat else None
    except PermissionDenied:
        return None
    turn = (state or {}).get("activeTurn") or {}
    model = (turn.get("message") or {}).get("model") or {}
    return model.get("id")


async def _drop_chat(call: ToolCall, chat: str) -> None:
    await _taken_back(partial(call.host.dispose_chat, call.principal, chat), chat)


async def _drop_session(call: ToolCall, session: str) -> None:
    await _taken_back(partial(call.host.delete_session, call.principal, session), session)


async def _taken_back(drop: Callable[[], Awaitable[None]], what: str) -> None:
    with trio.move_on_after(UNDO_SECONDS) as scope:
        scope.shield = True
        try:
            await drop()
        except AhpdError as error:
            _log.warning("left behind by a call that failed", what=what, why=error.sentence)
