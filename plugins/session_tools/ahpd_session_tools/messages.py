"""Messages between chats: `send_message` and `get_session_context`.

What a message does to a chat that is busy, and who may touch a queued one, is the host's to say.
"""

from __future__ import annotations

from typing import Any, Literal, cast

from ahpd import Conflict, NotFound, Sender, Sent, ToolCall, ToolError, ToolResult

from ahpd_session_tools import targets
from ahpd_session_tools.inputs import Inputs
from ahpd_session_tools.rows import json_text
from ahpd_session_tools.transcript import DEFAULT_LIMIT, DETAILS, MAX_LIMIT, Transcript

OPERATIONS = ("send", "replace", "cancel")
DELIVERIES = ("queue", "steer")


async def send_message(call: ToolCall) -> ToolResult:
    """Send, steer, replace or cancel. Answers at once: nobody waits for the reply."""
    inputs = Inputs(call)
    target = targets.required(call, inputs)
    chat = target.chat(call)
    if chat is not None and chat == call.chat:
        raise inputs.refusal("refusing to send a message to the current chat.")
    operation = cast(Literal["send", "replace", "cancel"], inputs.choice("operation", OPERATIONS, default="send"))
    text = "" if operation == "cancel" else inputs.text("message")
    steer = inputs.choice("delivery", DELIVERIES, default="queue") == "steer"
    change = None if operation == "send" else (inputs.text("messageId"), _revision(inputs))
    if chat is None:
        raise ToolError(f"{inputs.text('session')} is not a session this host is running")
    if change is None:
        sent = await call.host.send(call.principal, chat, text, steer=steer, sender=sender(call))
    else:
        sent = await _change(call, inputs, chat, text if operation == "replace" else None, *change)
    return _answer(sent, target.open_link)


def sender(call: ToolCall) -> Sender | None:
    """Where a message of this call comes from; `None` for a call at a door, which comes from its person."""
    if call.session is None or call.chat is None:
        return None
    return Sender(call.session.uri, call.chat, call.turn)


def _revision(inputs: Inputs) -> int:
    if "expectedRevision" not in inputs:
        raise inputs.refusal("expectedRevision must be a positive number.")
    return inputs.count("expectedRevision", default=1, most=2**53)


async def _change(
    call: ToolCall, inputs: Inputs, chat: str, text: str | None, message: str, revision: int
) -> Sent:
    """Replace a queued message, or cancel it when there is no text."""
    host, by = call.host, call.chat or call.principal.id or ""
    try:
        if text is None:
            return await host.cancel_queued(call.principal, chat, message, expected=revision, by=by)
        return await host.replace_queued(call.principal, chat, message, text, expected=revision, by=by)
    except NotFound as error:
        raise inputs.refusal("messageId must name a queued message this chat sent.") from error
    except Conflict as error:
        now = (error.data or {}).get("revision")
        raise inputs.refusal(f"expectedRevision must be the message's current revision (now {now}).") from error


def _answer(sent: Sent, link: str) -> ToolResult:
    text = f"Message {sent.state} ({link}). messageId {sent.id}, revision {sent.revision}."
    structured = {"state": sent.state, "messageId": sent.id, "revision": sent.revision, "openLink": link}
    return ToolResult(text, structured=structured)


async def get_session_context(call: ToolCall) -> str:
    """The newest turns of a chat. A chat that is not live has an empty transcript: reading starts no agent."""
    inputs = Inputs(call)
    target = targets.required(call, inputs)
    detail = inputs.choice("detail", tuple(DETAILS), default="summary")
    limit = inputs.count("transcriptLimit", default=DEFAULT_LIMIT, most=MAX_LIMIT)
    chat = target.chat(call)
    state: Any = (await call.host.chat_state(call.principal, chat) if chat else None) or {}
    transcript = Transcript(state, DETAILS[detail], limit)
    answer = {
        "session": target.session,
        "openLink": target.open_link,
        "detail": detail,
        "transcript": transcript.rows,
        "hasMoreHistory": bool(state.get("turnsNextCursor")),
        "truncated": transcript.truncated,
    }
    return json_text(answer)
