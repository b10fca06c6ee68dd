"""One running turn, as its agent sees it: the plain methods that put what it says into the chat's state.

The turn ends exactly once, whoever ends it; whatever its agent says afterwards goes nowhere. Everything that
waits for a person is held in a map by id, because several calls of one turn may wait at once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import msgspec
import trio

from ahpd.access import Principal
from ahpd.agents import Answer, Confirmation, Decision, Toolbox
from ahpd.session.chats import Chats
from ahpd.session.live import LiveChat
from ahpd.state import Json, sendable
from ahpd.tools import ToolResult

ENDED = "The turn has ended."


@dataclass(slots=True)
class _Waiting:
    """Something inside the turn that waits. `needed` is the id of its entry in the session's `inputNeeded`.

    `value` is what it is answered; until then, what it is told when the turn ends without an answer.
    """

    needed: str
    value: Any
    client: str | None = None
    """The client that runs the call, when it is a client that is waited for."""
    answered: trio.Event = field(default_factory=trio.Event)


class RunningTurn:
    """Implements `ahpd.agents.Turn` on a chat's state."""

    def __init__(
        self,
        chats: Chats,
        chat: LiveChat,
        turn_id: str,
        message: Json,
        principal: Principal,
        toolbox: Toolbox,
        resumed: bool = False,
    ) -> None:
        self._chats, self._chat, self._toolbox = chats, chat, toolbox
        self.id, self.message, self.principal = turn_id, message, principal
        self.scope = trio.CancelScope()
        self.ended, self.resumed = False, resumed
        self._began = trio.current_time()
        self._part_kind, self._part_id, self._parts = "", "", 0
        self._prefix = f"{turn_id}#{uuid4().hex[:8]}-" if resumed else f"{turn_id}#"
        self._waiting: dict[str, _Waiting] = {}
        self._open_calls: dict[str, str] = {}
        """Started calls that have not finished, and what they are called in front of people."""

    @property
    def text(self) -> str:
        return str(self.message.get("text", ""))

    def elapsed(self) -> int:
        """Milliseconds since the turn began."""
        return int((trio.current_time() - self._began) * 1000)

    # -- what the agent says ----------------------------------------------------------------------------

    def _say(self, action: Json) -> None:
        if not self.ended:
            self._chats.dispatch(self._chat, action)

    def _append(self, kind: str, action_type: str, text: str) -> None:
        if self._part_kind != kind:
            self._open_part(kind)
        self._say({"type": action_type, "turnId": self.id, "partId": self._part_id, "content": text})

    def _open_part(self, kind: str) -> None:
        self._parts += 1
        self._part_kind, self._part_id = kind, f"{self._prefix}{self._parts}"
        part = {"kind": kind, "id": self._part_id, "content": ""}
        self._say({"type": "chat/responsePart", "turnId": self.id, "part": part})

    def markdown(self, text: str) -> None:
        self._append("markdown", "chat/delta", text)

    def reasoning(self, text: str) -> None:
        self._append("reasoning", "chat/reasoning", text)

    def notice(self, text: str) -> None:
        self._part_kind = ""
        part = {"kind": "systemNotification", "content": text}
        self._say({"type": "chat/responsePart", "turnId": self.id, "part": part})

    def usage(self, usage: Mapping[str, Any]) -> None:
        self._say({"type": "chat/usage", "turnId": self.id, "usage": dict(usage)})

    def activity(self, text: str | None) -> None:
        action: Json = {"type": "chat/activityChanged"}
        if text:
            action["activity"] = text
        self._say(action)

    # -- tool calls -------------------------------------------------------------------------------------

    def _call(self, name: str, call_id: str, **fields: Any) -> Json:
        return {"type": f"chat/{name}", "turnId": self.id, "toolCallId": call_id, **fields}

    def tool_started(
        self,
        call_id: str,
        name: str,
        *,
        display_name: str | None = None,
        intention: str | None = None,
        contributor: Mapping[str, Any] | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> None:
        self._part_kind = ""
        shown = self._open_calls[call_id] = display_name or name
        optional = {
            "intention": intention,
            "contributor": None if contributor is None else dict(contributor),
            "_meta": None if meta is None else dict(meta),
        }
        given = {key: value for key, value in optional.items() if value is not None}
        self._say(self._call("toolCallStart", call_id, toolName=name, displayName=shown, **given))

    def tool_input(self, call_id: str, text: str) -> None:
        self._say(self._call("toolCallDelta", call_id, content=text))

    def tool_ready(self, call_id: str, message: str, tool_input: str | None = None) -> None:
        fields: Json = {"invocationMessage": message, "confirmed": "not-needed"}
        if tool_input is not None:
            fields["toolInput"] = tool_input
        self._say(self._call("toolCallReady", call_id, **fields))

    def tool_content(self, call_id: str, content: Sequence[Mapping[str, Any]]) -> None:
        self._say(self._call("toolCallContentChanged", call_id, content=[dict(item) for item in content]))

    def tool_finished(self, call_id: str, result: ToolResult, past_tense: str | None = None) -> None:
        shown = self._open_calls.pop(call_id, None)
        if shown is not None:  # else finished already, by the client that ran it
            told = self._told(result, shown, past_tense)
            self._say(self._call("toolCallComplete", call_id, result=told))

    @staticmethod
    def _told(result: ToolResult, shown: str, past_tense: str | None) -> Json:
        """A result as the protocol's tool call result; `shown` is what the call is called in front of people."""
        verb = "Failed to run" if result.is_error else "Ran"
        told: Json = {
            "success": not result.is_error,
            "pastTenseMessage": past_tense or f"{verb} {shown}",
            "content": result.items(),
        }
        if result.structured is not None:
            told["structuredContent"] = dict(result.structured)
        if result.is_error:
            told["error"] = {"message": result.text}
        return told

    async def call_tool(
        self, name: str, arguments: Mapping[str, Any], confirm: Confirmation | None = None
    ) -> ToolResult:
        bound, arguments = self._toolbox.find(name), sendable(arguments)
        call_id, text = f"call-{uuid4()}", msgspec.json.encode(arguments).decode()
        title = name if bound is None else str(bound.definition.get("title") or bound.name)
        shown = name if bound is None else bound.reported or bound.name
        self.tool_started(
            call_id, shown, display_name=title, contributor=None if bound is None else bound.contributor
        )
        self.tool_input(call_id, text)
        if bound is None:
            self.tool_ready(call_id, f"Running {title}", text)
            result = ToolResult(f"No tool named {name}", is_error=True)
        else:
            refused, arguments = await self._let(call_id, title, text, arguments, confirm)
            if refused is not None:
                return refused
            result = await bound.call(arguments, call_id)
        self.tool_finished(call_id, result)
        return result

    async def _let(
        self,
        call_id: str,
        title: str,
        text: str,
        arguments: Mapping[str, Any],
        confirm: Confirmation | None,
    ) -> tuple[ToolResult | None, Mapping[str, Any]]:
        """Have a call confirmed if it must be. Answers the refusal, if any, and the arguments to run with."""
        if confirm is None:
            self.tool_ready(call_id, f"Running {title}", text)
            return None, arguments
        decision = await self.confirm(call_id, confirm, text)
        if not decision.approved:
            return ToolResult(decision.reason or f"{title} was not allowed to run.", is_error=True), arguments
        if decision.edited_input is not None:
            try:
                edited = msgspec.json.decode(decision.edited_input)
            except msgspec.DecodeError:
                edited = None
            if not isinstance(edited, dict):
                result = ToolResult("The edited input is not a JSON object.", is_error=True)
                self.tool_finished(call_id, result)
                return result, arguments
            arguments = edited
        return None, arguments

    # -- waiting for people -----------------------------------------------------------------------------

    async def confirm(self, call_id: str, asked: Confirmation, tool_input: str | None = None) -> Decision:
        fields: Json = {"invocationMessage": asked.message, "confirmationTitle": asked.title}
        if tool_input is not None:
            fields["toolInput"] = tool_input
        if asked.options:
            fields["options"] = [dict(option) for option in asked.options]
        if asked.editable:
            fields["editable"] = True
        self._say(self._call("toolCallReady", call_id, **fields))
        needed: Json = {"kind": "toolConfirmation", "turnId": self.id, "toolCall": self._call_state(call_id)}
        decision: Decision = await self._wait_for(call_id, needed, Decision(False, reason=ENDED))
        if not decision.approved:
            self._open_calls.pop(call_id, None)
        return decision

    async def confirm_result(self, call_id: str, result: ToolResult, past_tense: str | None = None) -> bool:
        shown = self._open_calls.pop(call_id, None)
        if shown is not None:
            told = self._told(result, shown, past_tense)
            held_back = {"result": told, "requiresResultConfirmation": True}
            self._say(self._call("toolCallComplete", call_id, **held_back))
        return await self._result_counts(call_id)

    async def _result_counts(self, call_id: str) -> bool:
        """Whether a finished call's result counts, once nobody has to confirm it any more."""
        call = self._call_state(call_id)
        if call.get("status") == "pending-result-confirmation":
            needed: Json = {"kind": "toolConfirmation", "turnId": self.id, "toolCall": call}
            return bool(await self._wait_for(call_id, needed, False))
        return call.get("status") == "completed"

    def _call_state(self, call_id: str) -> Json:
        active = self._chats.chat_state(self._chat).get("activeTurn") or {}
        for part in reversed(active.get("responseParts", [])):
            call: Json = part.get("toolCall") or {}
            if call.get("toolCallId") == call_id:
                return call
        return {"toolCallId": call_id}

    async def ask(self, request: Mapping[str, Any]) -> Answer:
        asked = {"id": f"ask-{uuid4()}", **request}
        self._part_kind = ""
        self._say({"type": "chat/inputRequested", "turnId": self.id, "request": asked})
        needed: Json = {"kind": "chatInput", "request": asked}
        answer: Answer = await self._wait_for(asked["id"], needed, Answer("cancel"))
        return answer

    async def _wait_for(self, waiting_id: str, needed: Json, unanswered: Any, client: str | None = None) -> Any:
        """What is answered under an id; `unanswered` when the turn ends before, or has ended."""
        if self.ended:
            await trio.lowlevel.checkpoint()
            return unanswered
        entry = f"{needed['kind']}:{uuid4()}"  # says nothing: a name inside would be in one spelling only
        waiting = self._waiting[waiting_id] = _Waiting(entry, unanswered, client)
        request = {"id": entry, "chat": self._chat.uri, **needed}
        action = {"type": "session/inputNeededSet", "request": request}
        self._chats.dispatch_session(self._chat.session, action)
        try:
            await waiting.answered.wait()
        finally:
            self._settle(waiting_id)
        return waiting.value

    def _settle(self, waiting_id: str) -> None:
        """Nobody needs to answer any more; the session must not go on asking."""
        waiting = self._waiting.pop(waiting_id, None)
        session = self._chat.session
        if waiting is not None and session.uri in self._chats.state.channels:
            action = {"type": "session/inputNeededRemoved", "id": waiting.needed}
            self._chats.dispatch_session(session, action)

    def answered(self, waiting_id: str, value: Any) -> bool:
        waiting = self._waiting.get(waiting_id)
        if waiting is None:
            return False
        waiting.value = value
        waiting.answered.set()
        self._settle(waiting_id)
        return True

    def stop(self) -> None:
        self.ended = True
        waiting = list(self._waiting.items())
        for waiting_id, _ in waiting:
            self._settle(waiting_id)
        self.scope.cancel()
        for _, each in waiting:
            each.answered.set()  # heard only by what its agent runs outside the turn: the rest is cancelled

    # -- calls that a client runs -----------------------------------------------------------------------

    async def run_at_client(self, call_id: str, client_id: str, timeout_ms: int) -> ToolResult:
        needed: Json = {
            "kind": "toolClientExecution",
            "turnId": self.id,
            "clientId": client_id,
            "toolCall": self._call_state(call_id),
        }
        patience = timeout_ms / 1000 if timeout_ms else math.inf
        result = ToolResult(f"The client did not run this within {timeout_ms} ms.", is_error=True)
        with trio.move_on_after(patience):
            result = await self._wait_for(call_id, needed, ToolResult(ENDED, is_error=True), client_id)
        held_back = self._call_state(call_id).get("status") in ("pending-result-confirmation", "cancelled")
        if held_back and not await self._result_counts(call_id):
            return ToolResult("The result was not allowed to be used.", is_error=True)
        return result

    def client_gone(self, client_id: str) -> None:
        for waiting_id, waiting in list(self._waiting.items()):
            if waiting.client == client_id:
                gone = ToolResult("The client that provides this tool has left.", is_error=True)
                self.answered(waiting_id, gone)

    def client_finished(self, call_id: str, told: Json) -> None:
        """The client's own completion is in state already; hand it to whoever waits for the call."""
        self._open_calls.pop(call_id, None)
        content = [item for item in told.get("content") or [] if isinstance(item, dict)]
        text = "\n".join(str(item["text"]) for item in content if item.get("type") == "text")
        failed = not told.get("success")
        if failed and not text:
            text = str((told.get("error") or {}).get("message") or "The client could not run this.")
        self.answered(call_id, ToolResult(text, failed, told.get("structuredContent"), content))

    # -- steering ---------------------------------------------------------------------------------------

    def take_steering(self) -> Mapping[str, Any] | None:
        slot = self._chats.chat_state(self._chat).get("steeringMessage")
        if not slot or self.ended:
            return None
        self._chat.queue.pop(slot["id"], None)
        self._say({"type": "chat/pendingMessageRemoved", "kind": "steering", "id": slot["id"]})
        message: Mapping[str, Any] = slot["message"]
        return message
