"""The pure reducer for a chat channel: turns, response parts, tool calls, pending messages, questions.

Owns: how a `chat/*` action changes `ChatState`. Refuses to know: who may dispatch what, what an agent is, and
the time. Every instant in the result is computed from instants in the action and the state.

Three things shape this file:

* A turn that runs lives in `activeTurn`; it joins `turns` only when it ends. Nearly every action names a
  turn, and one that names another than the active turn is late news and changes nothing.
* The activity bits of `status` are derived, never set: see `_refresh`. `Error` alone is not derivable (it
  says how the last turn ended), so only the end of a turn writes it and the next refresh wipes it.
* A tool call changes shape with its status. `_reshaped` therefore builds each new state from the fields all
  states share plus the ones the new status has, instead of editing the old one: what is not named is gone.
"""

import math
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from ahpd.protocol.edits import (
    ACTIVITY_BITS,
    IS_ARCHIVED,
    IS_READ,
    Handler,
    Json,
    add_directory,
    drop,
    flag_setter,
    index_of,
    listed,
    put,
    reduce_with,
    remove_directory,
    replaced,
    setter,
    status_of,
    upsert,
)
from ahpd.protocol.times import time_after

_IDLE, _ERROR, _IN_PROGRESS, _INPUT_NEEDED = 1, 2, 8, 24

_BLOCKING = frozenset({"pending-confirmation", "pending-result-confirmation", "auth-required"})
_OPEN = _BLOCKING | {"streaming", "running"}
_SHARED = ("toolCallId", "toolName", "displayName", "intention", "contributor", "_meta")
_QUESTION = ("confirmationTitle", "riskAssessment", "edits", "editable", "options")
# A result is written by whoever ran the tool and is laid over the call: it must not rewrite these.
_NOT_IN_RESULT = frozenset(
    (*_SHARED, *_QUESTION, "status", "invocationMessage", "toolInput", "confirmed", "selectedOption", "auth")
)

# -- status ----------------------------------------------------------------------------------------


def _asks(part: object) -> bool:
    """Whether this response part holds the turn up until somebody answers."""
    if not isinstance(part, dict):
        return False
    if part.get("kind") == "inputRequest":
        return part.get("response") is None
    call = part.get("toolCall")
    return part.get("kind") == "toolCall" and isinstance(call, dict) and _status(call) in _BLOCKING


def _refresh(state: Json, *, error: bool = False, unread: bool = False) -> Json:
    """Derive the activity bits anew, keep the other bits; `unread` also clears IsRead."""
    turn = state.get("activeTurn")
    if isinstance(turn, dict):
        waits = any(_asks(part) for part in listed(turn.get("responseParts")))
        activity = _INPUT_NEEDED if waits else _IN_PROGRESS
    else:
        activity = _ERROR if error else _IDLE
    flags = status_of(state) & ~ACTIVITY_BITS
    return put(state, "status", (flags & ~IS_READ if unread else flags) | activity)


# -- the active turn and its parts -----------------------------------------------------------------


def _active(state: Json, action: Json) -> Json | None:
    """The active turn, if the action names it."""
    turn, wanted = state.get("activeTurn"), action.get("turnId")
    if isinstance(turn, dict) and isinstance(wanted, str) and turn.get("id") == wanted:
        return turn
    return None


def _with_parts(state: Json, turn: Json, parts: list[Any]) -> Json:
    return {**state, "activeTurn": {**turn, "responseParts": parts}}


def _find_part(parts: list[Any], kind: str, member: str, key: str, wanted: object) -> int:
    """Where the last part of that kind stands whose `member` object has that `key`, or -1."""
    for at in range(len(parts) - 1, -1, -1):
        part = parts[at]
        if isinstance(part, dict) and part.get("kind") == kind and isinstance(wanted, str):
            held = part.get(member)
            if isinstance(held, dict) and held.get(key) == wanted:
                return at
    return -1


def _appender(kind: str) -> Handler:
    """A handler that appends `content` to the part `partId`, if that part is of this kind."""

    def apply(state: Json, action: Json) -> Json:
        turn, wanted, text = _active(state, action), action.get("partId"), action.get("content")
        if turn is None or not isinstance(wanted, str) or not isinstance(text, str) or not text:
            return state
        parts = listed(turn.get("responseParts"))
        # The part that grows is nearly always the last one.
        for at in range(len(parts) - 1, -1, -1):
            part = parts[at]
            if isinstance(part, dict) and part.get("id") == wanted:
                old = part.get("content")
                if part.get("kind") != kind or not isinstance(old, str):
                    return state
                return _with_parts(state, turn, replaced(parts, at, {**part, "content": old + text}))
        return state

    return apply


def _response_part(state: Json, action: Json) -> Json:
    turn, part = _active(state, action), action.get("part")
    # An error part ends its turn, so it only ever comes with `chat/error`.
    if turn is None or not isinstance(part, dict) or part.get("kind") == "error":
        return state
    return _with_parts(state, turn, [*listed(turn.get("responseParts")), part])


def _usage(state: Json, action: Json) -> Json:
    turn, usage = _active(state, action), action.get("usage")
    if turn is None or not isinstance(usage, dict):
        return state
    return {**state, "activeTurn": {**turn, "usage": usage}}


# -- turns -----------------------------------------------------------------------------------------


def _turn_started(state: Json, action: Json) -> Json:
    turn_id, started, message = action.get("turnId"), action.get("startedAt"), action.get("message")
    if not isinstance(turn_id, str) or not isinstance(started, str) or not isinstance(message, dict):
        return state
    turn = {"id": turn_id, "startedAt": started, "message": message, "responseParts": []}
    taken = action.get("queuedMessageId")
    after = _without_steering(drop(state, "queuedMessages", "id", taken, keep_empty=False), taken)
    after = put({**after, "activeTurn": turn}, "modifiedAt", time_after(started) or state.get("modifiedAt"))
    return _refresh(after, unread=True)


def _duration(action: Json) -> float | None:
    """Milliseconds, never negative; an absent one reads as 0, because a turn has to be able to end."""
    value = action.get("duration")
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return max(0, value) if isinstance(value, int) or math.isfinite(value) else None


def _end_turn(state: Json, action: Json, outcome: str, last: tuple[Json, ...] = ()) -> Json:
    turn, duration = _active(state, action), _duration(action)
    if turn is None or duration is None:
        return state
    parts = [_cut_short(part) for part in listed(turn.get("responseParts"))]
    ended = {**turn, "duration": duration, "responseParts": [*parts, *last], "state": outcome}
    after = {key: value for key, value in state.items() if key != "activeTurn"}
    after["turns"] = [*listed(state.get("turns")), ended]
    started = turn.get("startedAt")
    moment = time_after(started, duration) if isinstance(started, str) else None
    return _refresh(put(after, "modifiedAt", moment or state.get("modifiedAt")), error=outcome == "error")


def _turn_failed(state: Json, action: Json) -> Json:
    part = action.get("part")
    return _end_turn(state, action, "error", (part,)) if isinstance(part, dict) else state


def _resumable(turn: Json) -> bool:
    last = (listed(turn.get("responseParts")) or [None])[-1]
    failed = isinstance(last, dict) and last.get("kind") == "error" and last.get("resumable") is True
    return failed and turn.get("state") == "error"


def _turn_resume(state: Json, action: Json) -> Json:
    turns = listed(state.get("turns"))
    at = index_of(turns[-1:], "id", action.get("turnId"))
    if at < 0 or state.get("activeTurn") is not None or not _resumable(turns[-1]):
        return state
    turn = turns[-1]
    reopened = {key: value for key, value in turn.items() if key not in ("duration", "state")}
    reopened = put(reopened, "startedAt", turn.get("startedAt") or state.get("modifiedAt"))
    return _refresh({**state, "turns": turns[:-1], "activeTurn": reopened}, unread=True)


def _truncated(state: Json, action: Json) -> Json:
    turns, wanted = listed(state.get("turns")), action.get("turnId")
    at = index_of(turns, "id", wanted)
    if at < 0 and wanted is not None:
        return state
    after = put(state, "activeTurn", None)
    if at + 1 < len(turns):
        after = {**after, "turns": turns[: at + 1]}
    if wanted is None:
        after = put(after, "turnsNextCursor", None)
    return _refresh(after)


def _turns_loaded(state: Json, action: Json) -> Json:
    page, held, cursor = action.get("turns"), listed(state.get("turns")), action.get("turnsNextCursor")
    if not isinstance(page, list) or not isinstance(cursor, str | None):
        return state
    older = [turn for turn in page if isinstance(turn, dict) and index_of(held, "id", turn.get("id")) < 0]
    after = {**state, "turns": [*older, *held]} if older else state
    return put(after, "turnsNextCursor", cursor)


# -- tool calls ------------------------------------------------------------------------------------


def _status(call: Json) -> str:
    status = call.get("status")
    return status if isinstance(status, str) else ""


def _reshaped(call: Json, action: Json, status: str, **fields: object) -> Json:
    """The call in another status: what all states share, then `fields`; `None` leaves a field out."""
    after: Json = {"status": status}
    after.update((name, call[name]) for name in _SHARED if call.get(name) is not None)
    after.update((name, value) for name, value in fields.items() if value is not None)
    return _with_meta(after, action)


def _with_meta(call: Json, action: Json) -> Json:
    meta = action.get("_meta")
    return {**call, "_meta": meta} if isinstance(meta, dict) else call


def _spoken(value: object) -> bool:
    """A string or a `{markdown}` object; also the two forms of a tool's input."""
    return isinstance(value, str | dict)


def _cut_short(part: object) -> object:
    """The part as it stands when its turn ends: a call that is still open counts as skipped."""
    call = part.get("toolCall") if isinstance(part, dict) and part.get("kind") == "toolCall" else None
    if not isinstance(part, dict) or not isinstance(call, dict) or _status(call) not in _OPEN:
        return part
    kept = {"invocationMessage": call.get("invocationMessage"), "reason": "skipped"}
    if kept["invocationMessage"] is None:
        kept["invocationMessage"] = ""
    if _status(call) != "streaming":
        kept["toolInput"] = call.get("toolInput")
    return {**part, "toolCall": _reshaped(call, {}, "cancelled", **kept)}


def _find_call(parts: list[Any], wanted: object) -> int:
    return _find_part(parts, "toolCall", "toolCall", "toolCallId", wanted)


def _on_call(*statuses: str, refresh: bool = True) -> Callable[[Handler], Handler]:
    """Turn a change of one call into a handler; it only sees calls in one of `statuses`."""

    def wrap(change: Handler) -> Handler:
        def apply(state: Json, action: Json) -> Json:
            turn = _active(state, action)
            if turn is None:
                return state
            parts = listed(turn.get("responseParts"))
            at = _find_call(parts, action.get("toolCallId"))
            if at < 0 or _status(call := parts[at]["toolCall"]) not in statuses:
                return state
            changed = change(call, action)
            if changed is call:
                return state
            after = _with_parts(state, turn, replaced(parts, at, {**parts[at], "toolCall": changed}))
            return _refresh(after) if refresh else after

        return apply

    return wrap


def _call_start(state: Json, action: Json) -> Json:
    turn = _active(state, action)
    if turn is None or not all(isinstance(action.get(name), str) for name in _SHARED[:3]):
        return state
    parts = listed(turn.get("responseParts"))
    if _find_call(parts, action["toolCallId"]) >= 0:
        return state
    call = _reshaped(action, action, "streaming")
    return _refresh(_with_parts(state, turn, [*parts, {"kind": "toolCall", "toolCall": call}]))


@_on_call("streaming", refresh=False)
def _call_delta(call: Json, action: Json) -> Json:
    text, said = action.get("content"), action.get("invocationMessage")
    after = call
    if isinstance(text, str) and text:
        old = call.get("partialInput")
        after = {**after, "partialInput": (old if isinstance(old, str) else "") + text}
    if _spoken(said):
        after = put(after, "invocationMessage", said)
    return _with_meta(after, action)


def _contributor(call: Json, action: Json) -> object:
    """Who contributes the tool, possibly refined. Which client executes it is fixed at the start for good."""
    held, given = call.get("contributor"), action.get("contributor")
    ours = isinstance(held, dict) and held.get("kind") == "client"
    if ours or not isinstance(given, dict) or given.get("kind") == "client":
        return held
    return given


@_on_call("streaming", "running", "pending-confirmation")
def _call_ready(call: Json, action: Json) -> Json:
    said, confirmed, given = action.get("invocationMessage"), action.get("confirmed"), action.get("toolInput")
    if not _spoken(said) or not isinstance(confirmed, str | None) or not (given is None or _spoken(given)):
        return call
    if given is None and _status(call) != "streaming":
        given = call.get("toolInput")
    intention = action.get("intention")
    fields = {
        "intention": intention if isinstance(intention, str) else call.get("intention"),
        "contributor": _contributor(call, action),
        "invocationMessage": said,
        "toolInput": given,
    }
    if confirmed is not None:
        return _reshaped(call, action, "running", confirmed=confirmed, **fields)
    pending = _status(call) == "pending-confirmation"
    for name in _QUESTION:
        value = action.get(name)
        fields[name] = call.get(name) if value is None and pending else value
    return _reshaped(call, action, "pending-confirmation", **fields)


@_on_call("pending-confirmation")
def _call_confirmed(call: Json, action: Json) -> Json:
    options = listed(call.get("options"))
    at = index_of(options, "id", action.get("selectedOptionId"))
    fields = {
        "invocationMessage": call.get("invocationMessage"),
        "toolInput": call.get("toolInput"),
        "selectedOption": options[at] if at >= 0 else None,
    }
    confirmed, reason, edited = (action.get(name) for name in ("confirmed", "reason", "editedToolInput"))
    if action.get("approved") is True and isinstance(confirmed, str):
        # An input kept elsewhere is rewritten there by the host; the reference to it stays.
        if isinstance(edited, str) and not isinstance(fields["toolInput"], dict):
            fields["toolInput"] = edited
        return _reshaped(call, action, "running", confirmed=confirmed, **fields)
    if action.get("approved") is False and isinstance(reason, str):
        for name in ("reasonMessage", "userSuggestion"):
            fields[name] = action.get(name)
        return _reshaped(call, action, "cancelled", reason=reason, **fields)
    return call


@_on_call("running", refresh=False)
def _call_content_changed(call: Json, action: Json) -> Json:
    content = action.get("content")
    return _with_meta({**call, "content": content}, action) if isinstance(content, list) else call


@_on_call("running", "pending-confirmation", "auth-required")
def _call_complete(call: Json, action: Json) -> Json:
    result, parked = action.get("result"), _status(call) == "auth-required"
    if not isinstance(result, dict) or (parked and result.get("success") is not False):
        return call
    # Somebody who declines to sign in ends the call there and then: nothing is left to confirm.
    held_back = action.get("requiresResultConfirmation") is True and not parked
    fields = {name: value for name, value in result.items() if name not in _NOT_IN_RESULT}
    if parked and fields.get("content") is None:
        fields["content"] = call.get("content")
    for name in ("invocationMessage", "toolInput", "selectedOption"):
        fields[name] = call.get(name)
    asked = _status(call) == "pending-confirmation"
    fields["confirmed"] = "not-needed" if asked else call.get("confirmed")
    after = _reshaped(call, action, "pending-result-confirmation" if held_back else "completed")
    after.update((name, value) for name, value in fields.items() if value is not None)
    return after


@_on_call("pending-result-confirmation")
def _call_result_confirmed(call: Json, action: Json) -> Json:
    approved = action.get("approved")
    if approved is True:
        return _with_meta({**call, "status": "completed"}, action)
    if approved is not False:
        return call
    kept = {name: call.get(name) for name in ("invocationMessage", "toolInput", "selectedOption")}
    return _reshaped(call, action, "cancelled", reason="result-denied", **kept)


@_on_call("running")
def _call_auth_required(call: Json, action: Json) -> Json:
    contributor, auth = call.get("contributor"), action.get("auth")
    if not isinstance(contributor, dict) or contributor.get("kind") != "mcp" or not isinstance(auth, dict):
        return call
    return _with_meta({**call, "status": "auth-required", "auth": auth}, action)


@_on_call("auth-required")
def _call_auth_resolved(call: Json, action: Json) -> Json:
    return _with_meta({**put(call, "auth", None), "status": "running"}, action)


# -- pending messages ------------------------------------------------------------------------------


def _without_steering(state: Json, wanted: object) -> Json:
    slot = state.get("steeringMessage")
    matches = isinstance(slot, dict) and isinstance(wanted, str) and slot.get("id") == wanted
    return put(state, "steeringMessage", None) if matches else state


def _pending_set(state: Json, action: Json) -> Json:
    wanted, message = action.get("id"), action.get("message")
    if not isinstance(wanted, str) or not isinstance(message, dict):
        return state
    entry = {"id": wanted, "message": message}
    if action.get("kind") == "steering":
        return {**state, "steeringMessage": entry}
    return upsert(state, "queuedMessages", "id", entry) if action.get("kind") == "queued" else state


def _pending_removed(state: Json, action: Json) -> Json:
    if action.get("kind") == "steering":
        return _without_steering(state, action.get("id"))
    if action.get("kind") == "queued":
        return drop(state, "queuedMessages", "id", action.get("id"), keep_empty=False)
    return state


def _queue_reordered(state: Json, action: Json) -> Json:
    queue, order = listed(state.get("queuedMessages")), listed(action.get("order"))
    named = [at for each in order if (at := index_of(queue, "id", each)) >= 0]
    places = list(dict.fromkeys([*named, *range(len(queue))]))
    return state if places == sorted(places) else {**state, "queuedMessages": [queue[at] for at in places]}


# -- questions to the user -------------------------------------------------------------------------


def _find_request(turn: object, wanted: object) -> tuple[list[Any], int]:
    """The parts of the turn and where the open request with that id stands (-1: nowhere)."""
    parts = listed(turn.get("responseParts")) if isinstance(turn, dict) else []
    at = _find_part(parts, "inputRequest", "request", "id", wanted)
    return parts, at if at >= 0 and parts[at].get("response") is None else -1


def _put_request(state: Json, parts: list[Any], at: int, request: Json, **fields: object) -> Json:
    part = {**parts[at], "request": request, **fields}
    return _with_parts(state, state["activeTurn"], replaced(parts, at, part))


def _answers(request: Json) -> Json:
    answers = request.get("answers")
    return answers if isinstance(answers, dict) else {}


def _input_requested(state: Json, action: Json) -> Json:
    request, turn = action.get("request"), state.get("activeTurn")
    if not isinstance(turn, dict) or not isinstance(request, dict) or not isinstance(request.get("id"), str):
        return state
    parts, at = _find_request(turn, request["id"])
    if at < 0:
        after = _with_parts(state, turn, [*parts, {"kind": "inputRequest", "request": request}])
    else:
        if request.get("answers") is None:
            request = put(request, "answers", _answers(parts[at]["request"]) or None)
        after = _put_request(state, parts, at, request)
    return _refresh(after, unread=True)


def _answer_changed(state: Json, action: Json) -> Json:
    parts, at = _find_request(state.get("activeTurn"), action.get("requestId"))
    question, answer = action.get("questionId"), action.get("answer")
    if at < 0 or not isinstance(question, str) or not isinstance(answer, dict | None):
        return state
    request = parts[at]["request"]
    before = _answers(request)
    answers = put(before, question, answer)
    if answers is before:
        return state
    return _put_request(state, parts, at, put(request, "answers", answers or None))


def _input_completed(state: Json, action: Json) -> Json:
    parts, at = _find_request(state.get("activeTurn"), action.get("requestId"))
    response, given = action.get("response"), action.get("answers")
    if at < 0 or not isinstance(response, str):
        return state
    request = parts[at]["request"]
    if isinstance(given, dict) and given:
        request = {**request, "answers": {**_answers(request), **given}}
    return _refresh(_put_request(state, parts, at, request, response=response))


def _work_set(state: Json, action: Json) -> Json:
    return upsert(state, "backgroundWork", "id", action.get("work"))


def _work_removed(state: Json, action: Json) -> Json:
    return drop(state, "backgroundWork", "id", action.get("id"))


_HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        "chat/turnStarted": _turn_started,
        "chat/responsePart": _response_part,
        "chat/delta": _appender("markdown"),
        "chat/reasoning": _appender("reasoning"),
        "chat/usage": _usage,
        "chat/turnComplete": partial(_end_turn, outcome="complete"),
        "chat/turnCancelled": partial(_end_turn, outcome="cancelled"),
        "chat/error": _turn_failed,
        "chat/turnResume": _turn_resume,
        "chat/activityChanged": setter("activity", str, clears=True),
        "chat/toolCallStart": _call_start,
        "chat/toolCallDelta": _call_delta,
        "chat/toolCallReady": _call_ready,
        "chat/toolCallConfirmed": _call_confirmed,
        "chat/toolCallContentChanged": _call_content_changed,
        "chat/toolCallComplete": _call_complete,
        "chat/toolCallResultConfirmed": _call_result_confirmed,
        "chat/toolCallAuthRequired": _call_auth_required,
        "chat/toolCallAuthResolved": _call_auth_resolved,
        "chat/pendingMessageSet": _pending_set,
        "chat/pendingMessageRemoved": _pending_removed,
        "chat/queuedMessagesReordered": _queue_reordered,
        "chat/draftChanged": setter("draft", dict, clears=True),
        "chat/inputRequested": _input_requested,
        "chat/inputAnswerChanged": _answer_changed,
        "chat/inputCompleted": _input_completed,
        "chat/truncated": _truncated,
        "chat/turnsLoaded": _turns_loaded,
        "chat/workingDirectorySet": add_directory,
        "chat/workingDirectoryRemoved": remove_directory,
        "chat/isReadChanged": flag_setter("isRead", IS_READ),
        "chat/isArchivedChanged": flag_setter("isArchived", IS_ARCHIVED),
        "chat/movableChanged": setter("movable", bool),
        "chat/changesetsChanged": setter("changesets", list, clears=True),
        "chat/backgroundWorkSet": _work_set,
        "chat/backgroundWorkRemoved": _work_removed,
    }
)


def reduce_chat(state: Json, action: Json) -> Json:
    """The chat state after `action`: a new object, or `state` itself if nothing changed. Never raises."""
    return reduce_with(_HANDLERS, state, action)
