"""Chats as things with a name and a place: `rename_chat`, `archive_chat` and `move_session`.

The last two exist at doors only; see the product's "MCP".
"""

from __future__ import annotations

from ahpd import ToolCall, ToolError

from ahpd_session_tools import settings, targets
from ahpd_session_tools.inputs import Inputs
from ahpd_session_tools.links import chat_id, link, parse

UNKNOWN_CHAT = "chat must be an agent-host-session:// link targeting a known chat."


async def rename_chat(call: ToolCall) -> str:
    """Title a chat: the one a link names, else the calling one, else, at a door, the session's first."""
    inputs = Inputs(call)
    title = inputs.title()
    chat = _renamed(call, inputs)
    # Only an agent that titles its own chats knows the word; for any other it is a property no tool knows.
    is_own_titling = call.session is not None and call.session.strategy == "activeAgent"
    automatic = is_own_titling and inputs.flag("automatic")
    await call.host.rename_chat(call.principal, chat, title)
    return "Renaming chat." if automatic else f'Renamed chat to "{title}".'


def _renamed(call: ToolCall, inputs: Inputs) -> str:
    if "chat" in inputs:
        return _linked(call, inputs)
    if call.chat is None or call.session is None:
        if "session" not in inputs:
            raise inputs.refusal("chat must target a known chat, or the tool must run inside that chat.")
        return _run_here(call, inputs, targets.required(call, inputs))
    if "session" not in inputs:
        return call.chat
    target = targets.required(call, inputs)
    if target.chat_id is not None:
        return _run_here(call, inputs, target)
    if target.session != call.session.uri:
        raise inputs.refusal("session must match the current chat's owning session.")
    return call.chat


def _linked(call: ToolCall, inputs: Inputs) -> str:
    """The chat that the input `chat` links to, which must be one of `session` when that is given too."""
    given = inputs.text("chat")
    target = targets.find(call, given) if parse(given) else None
    if target is None:
        raise inputs.refusal(UNKNOWN_CHAT)
    if "session" in inputs and targets.required(call, inputs).session != target.session:
        raise inputs.refusal("session must match the owning session of chat.")
    view = call.host.session(target.session)
    if view is None or not view.live:
        raise ToolError(f"{given} is not a chat this host is running.")
    chat = target.chat(call)
    if chat is None:
        raise inputs.refusal(UNKNOWN_CHAT)
    return chat


def _run_here(call: ToolCall, inputs: Inputs, target: targets.Target, name: str = "session") -> str:
    chat = target.chat(call)
    if chat is None:
        raise ToolError(f"{inputs.text(name)} is not a chat this host is running.")
    return chat


async def archive_chat(call: ToolCall) -> str:
    """Put a chat, or a whole session, into the archive, or take it out again. A default chat is its session."""
    inputs = Inputs(call)
    target = targets.required(call, inputs)
    archived = inputs.flag("archived", default=True)
    did = "Archived" if archived else "Unarchived"
    if target.chat_id is None:
        await call.host.archive(call.principal, target.session, archived)
        return f"{did} session ({target.open_link})."
    chat = _run_here(call, inputs, target)
    view = call.host.session(target.session)
    what = "session" if view is not None and chat == view.default_chat else "chat"
    await call.host.archive(call.principal, chat, archived)
    return f"{did} {what} ({target.open_link})."


async def move_session(call: ToolCall) -> str:
    """Put a chat elsewhere: into a session, to another place of its own, or into a session of its own.

    `after` left out is the end, unlike in the protocol's own command, where it is the beginning.
    """
    if not settings.may_move_chats(call.host.settings):
        raise ToolError("Moving chats is off on this host; the setting chatMoves.enabled turns it on.")
    inputs = Inputs(call)
    target = targets.required(call, inputs)
    into, after = _destination(call, inputs)
    chat = _run_here(call, inputs, target)
    session = await call.host.move_chat(call.principal, chat, into=into, after=after)
    view = call.host.session(session)
    is_default = view is not None and view.default_chat == chat
    place = link(session, None if is_default else chat_id(chat))
    return f"Moved chat to a session of its own ({place})." if into is None else f"Moved chat ({place})."


def _destination(call: ToolCall, inputs: Inputs) -> tuple[str | None, str | None]:
    """The session a chat goes into, `None` for a new one, and the chat to sit behind."""
    if ("into" in inputs) == ("relationship" in inputs):
        raise inputs.refusal("a move needs a destination: exactly one of into and relationship.")
    if "relationship" in inputs:
        if inputs.text("relationship") != "independent":
            raise inputs.refusal('relationship must be "independent".')
        if "after" in inputs:
            raise inputs.refusal("after is only valid with into.")
        return None, None
    into = targets.required(call, inputs, "into")
    return into.session, _anchor(call, inputs, into) if "after" in inputs else None


def _anchor(call: ToolCall, inputs: Inputs, into: targets.Target) -> str:
    """The chat that `after` names, by link or by its URI: one of the destination's."""
    given = inputs.text("after")
    view = call.host.session(into.session)
    found = targets.find(call, given)
    chat = given if found is None else found.chat(call)
    if view is None or chat not in view.chats or (found is not None and found.session != into.session):
        raise inputs.refusal(f"after {given} is not a chat in {into.session}.")
    return chat
