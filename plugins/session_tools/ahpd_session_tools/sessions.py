"""Sessions as a list: `list_sessions`, `get_current_session` and `delete_session`."""

from __future__ import annotations

from ahpd import PermissionDenied, Principal, SessionView, ToolCall, ToolError

from ahpd_session_tools import filters, placement, targets, worktrees
from ahpd_session_tools.inputs import Inputs
from ahpd_session_tools.links import link
from ahpd_session_tools.rows import json_text, row

DEFAULT_LIMIT, MAX_LIMIT = 50, 200


async def list_sessions(call: ToolCall) -> str:
    """The catalogue the person may read, filtered, newest first. Empty where they may read none."""
    inputs = Inputs(call)
    named = inputs.optional_text("session")
    if named is not None:
        target = targets.find(call, named)
        return json_text({"sessions": [row(target.summary)] if target else []})
    tests, limit = filters.tests(inputs), inputs.count("limit", default=DEFAULT_LIMIT, most=MAX_LIMIT)
    kept = [one for one in call.host.sessions(call.principal) if all(test(one) for test in tests)]
    return json_text({"sessions": [row(one) for one in filters.newest_first(kept)[:limit]]})


async def get_current_session(call: ToolCall) -> str:
    """The calling session's own row."""
    session = _calling_session(call)
    target = targets.find(call, session.uri)
    return json_text(row(target.summary) if target else {"session": session.uri, "openLink": link(session.uri)})


def _calling_session(call: ToolCall) -> SessionView:
    if call.session is None:
        raise ToolError(f"{call.tool} must run inside a session.")
    return call.session


async def delete_session(call: ToolCall) -> str:
    """Delete another session, and the worktrees made for it that hold nothing unsaved.

    After "Grants" of the product's "Tools": only its owner may, or somebody who holds `session:*`.
    """
    inputs = Inputs(call)
    target = targets.required(call, inputs)
    if call.session is not None and target.session == call.session.uri:
        raise inputs.refusal("refusing to delete the current session.")
    actor = _actor(call)
    view = call.host.session(target.session)
    if view is not None and not _may_delete(actor, view.owner):
        raise PermissionDenied("Only the session's owner can delete it.")
    trees = placement.made_for(call, target.session)
    await call.host.delete_session(actor, target.session)
    await worktrees.remove_unused(trees, _directories(call))
    return f"Deleted session {target.session}. Reply with one short sentence confirming the session was deleted."


def _actor(call: ToolCall) -> Principal:
    """The person of the turn; with no turn running, the calling session's owner. Never the model."""
    if call.session is None or call.turn is not None or call.session.owner is None:
        return call.principal
    return call.host.principal(call.session.owner)


def _may_delete(actor: Principal, owner: str | None) -> bool:
    holds_all = actor.is_root or not actor.grants.isdisjoint({"session:*", "*:*"})
    return holds_all or owner is None or owner == actor.id


def _directories(call: ToolCall) -> list[str]:
    """Every directory some session works in."""
    rows = call.host.sessions(call.principal)
    return [directory for one in rows for directory in one.get("workingDirectories") or ()]
