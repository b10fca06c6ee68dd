"""What a client's action does: checked against the state as it is, applied, and carried out.

Every handler either dispatches the action with its origin, so that everybody including its sender hears it, or
raises `Rejected`. Nothing here waits, so actions of all clients take effect in the order they arrive.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from ahpd.access import Principal
from ahpd.agents import Answer, Decision
from ahpd.errors import Rejected
from ahpd.session.attachments import Attachments
from ahpd.session.chats import TITLE_LENGTH, Chats
from ahpd.session.live import LiveChat, LiveSession, QueuedMessage
from ahpd.session.presence import Presence
from ahpd.session.settings import capabilities_of, check_change
from ahpd.session.turns import Turns
from ahpd.state import Json

Origin: TypeAlias = Mapping[str, Any]
OnChat: TypeAlias = Callable[["Inbound", LiveChat, Json, Origin, Principal], None]
OnSession: TypeAlias = Callable[["Inbound", LiveSession, Json, Origin], None]

ARCHIVED = 64


class Inbound:
    """Applies actions that clients dispatched. `origin` is `{clientId, clientSeq}` of the sender."""

    def __init__(self, chats: Chats, turns: Turns, presence: Presence, attachments: Attachments) -> None:
        self.chats, self.turns, self.presence, self.attachments = chats, turns, presence, attachments

    def to_chat(self, chat: LiveChat, action: Json, origin: Origin, principal: Principal) -> None:
        """Raises `Rejected` with the reason its sender is told."""
        CHAT[action["type"]](self, chat, action, origin, principal)

    def to_session(self, session: LiveSession, action: Json, origin: Origin) -> None:
        """Raises `Rejected` with the reason its sender is told."""
        SESSION[action["type"]](self, session, action, origin)

    # -- turns ------------------------------------------------------------------------------------------

    def start_turn(self, chat: LiveChat, action: Json, origin: Origin, principal: Principal) -> None:
        self._require_open(chat)
        message = action["message"]
        self._require_user(message)
        if chat.session.has_turn(action["turnId"]) or action["turnId"] in chat.older_turns:
            raise Rejected("This turn has already been started")
        if chat.turn is not None:
            raise Rejected("A turn is running in this chat; queue the message or cancel the turn first")
        self.turns.begin(
            chat,
            self.attachments.pin(principal, chat.session, message),
            principal,
            turn_id=action["turnId"],
            started_at=action["startedAt"],
            queued_id=action.get("queuedMessageId"),
            origin=origin,
        )

    @staticmethod
    def _require_user(message: Json) -> None:
        kind = message["origin"].get("kind")
        if kind != "user":
            raise Rejected(f"A client's message has the origin user, not {kind}")

    def _require_open(self, chat: LiveChat) -> None:
        state = self.chats.chat_state(chat)
        if state.get("interactivity", "full") != "full":
            raise Rejected("This chat is read-only")
        session = self.chats.session_state(chat.session)
        if (session.get("status", 0) | state.get("status", 0)) & ARCHIVED:
            raise Rejected("This session is archived; take it out of the archive first")
        if session.get("lifecycle") == "failed":
            raise Rejected("This session could not be started; create another one")
        if chat.session.agent is None:
            raise Rejected(f"No agent called {chat.session.provider} is enabled here")
        if chat.settling:
            raise Rejected("What the last turn asked for is being done; try again in a moment")
        if not self.turns.accepting:
            raise Rejected("This host is stopping")

    def cancel_turn(self, chat: LiveChat, action: Json, origin: Origin, principal: Principal) -> None:
        if chat.turn is None or chat.turn.id != action["turnId"]:
            raise Rejected("No such turn is running in this chat")
        self.turns.cancel(chat, origin)

    def resume_turn(self, chat: LiveChat, action: Json, origin: Origin, principal: Principal) -> None:
        self._require_open(chat)
        turns = self.chats.chat_state(chat).get("turns") or [{}]
        last = turns[-1]
        part = (last.get("responseParts") or [{}])[-1]
        failed = last.get("id") == action["turnId"] and last.get("state") == "error"
        if chat.turn is not None or not failed or not part.get("resumable"):
            raise Rejected("Only the last turn can be resumed, when it failed in a way that allows it")
        self.turns.resume(chat, last, principal, origin)

    def truncate(self, chat: LiveChat, action: Json, origin: Origin, principal: Principal) -> None:
        turns = self.chats.chat_state(chat).get("turns", [])
        turn_id = action.get("turnId")
        if turn_id is not None and all(turn["id"] != turn_id for turn in turns):
            raise Rejected(f"This chat has no completed turn {turn_id}")
        self.turns.cancel(chat)
        self.chats.dispatch(chat, action, origin)
        chat.older_turns.clear()
        self.chats.keeper.truncated(chat, turn_id)
        self.turns.forget_history(chat)

    # -- waiting messages -------------------------------------------------------------------------------

    def set_pending(self, chat: LiveChat, action: Json, origin: Origin, principal: Principal) -> None:
        self._require_open(chat)
        self._require_user(action["message"])
        other = "steering" if action["kind"] == "queued" else "queued"
        if any(entry["id"] == action["id"] for entry in self._pending(chat, other)):
            raise Rejected(f"{action['id']} is a {other} message of this chat already")
        kept = QueuedMessage(principal, principal.id)
        put = self.turns.queue if action["kind"] == "queued" else self.turns.steer
        put(chat, action["id"], self.attachments.pin(principal, chat.session, action["message"]), kept, origin)

    def remove_pending(self, chat: LiveChat, action: Json, origin: Origin, principal: Principal) -> None:
        if all(entry["id"] != action["id"] for entry in self._pending(chat, action["kind"])):
            raise Rejected(f"No {action['kind']} message {action['id']} is waiting in this chat")
        chat.queue.pop(action["id"], None)
        self.chats.dispatch(chat, action, origin)
        self.chats.keeper.record(chat)

    def _pending(self, chat: LiveChat, kind: str) -> list[Json]:
        """The messages of one kind that wait in a chat."""
        state = self.chats.chat_state(chat)
        if kind == "queued":
            return list(state.get("queuedMessages") or [])
        slot = state.get("steeringMessage")
        return [slot] if slot else []

    def apply_to_chat(self, chat: LiveChat, action: Json, origin: Origin, principal: Principal) -> None:
        """An action that is nothing but a change of state."""
        self.chats.dispatch(chat, action, origin)

    def chat_directory(self, chat: LiveChat, action: Json, origin: Origin, principal: Principal) -> None:
        allowed = list(self.chats.session_state(chat.session).get("workingDirectories", []))
        if action["type"] == "chat/workingDirectoryRemoved":
            allowed += self.chats.chat_state(chat).get("workingDirectories", [])
        if action["directory"] not in allowed:
            raise Rejected("A chat works in directories of its session only")
        self._several_directories(chat.session)
        self._require_rest(chat)
        chat.stale = True
        self.chats.dispatch(chat, action, origin)

    @staticmethod
    def _several_directories(session: LiveSession) -> Mapping[str, Any]:
        """What the session's agent can do with more than one directory."""
        capability: Mapping[str, Any] | None = capabilities_of(session.agent).get("multipleWorkingDirectories")
        if capability is None:
            raise Rejected(f"{session.provider} works in the directory it was started in")
        return capability

    @staticmethod
    def _require_rest(*chats: LiveChat) -> None:
        if any(chat.turn is not None for chat in chats):
            raise Rejected("A turn is running; directories can change when it has ended")

    # -- what a turn waits for --------------------------------------------------------------------------

    def confirm_call(self, chat: LiveChat, action: Json, origin: Origin, principal: Principal) -> None:
        call = self._open_call(chat, action)
        if call.get("status") != "pending-confirmation":
            raise Rejected("This tool call is not waiting for a confirmation")
        option = self._option(call, action)
        approved = action["approved"]
        if option is not None and (option.get("kind") == "approve") != approved:
            raise Rejected(f"The option {option['id']} does not fit approved: {str(approved).lower()}")
        self.chats.dispatch(chat, action, origin)
        decision = Decision(
            approved,
            action.get("selectedOptionId"),
            action.get("editedToolInput"),
            action.get("reasonMessage") if isinstance(action.get("reasonMessage"), str) else None,
            action.get("userSuggestion"),
        )
        self._answer(chat, action["toolCallId"], decision)

    @staticmethod
    def _option(call: Json, action: Json) -> Json | None:
        chosen = action.get("selectedOptionId")
        if chosen is None:
            return None
        for option in call.get("options", []):
            if option.get("id") == chosen:
                found: Json = option
                return found
        raise Rejected(f"This tool call has no option {chosen}")

    def _open_call(self, chat: LiveChat, action: Json) -> Json:
        active = self.chats.chat_state(chat).get("activeTurn") or {}
        if active.get("id") != action["turnId"]:
            raise Rejected("No such turn is running in this chat")
        for part in active.get("responseParts", []):
            call = part.get("toolCall") or {}
            if call.get("toolCallId") == action["toolCallId"]:
                found: Json = call
                return found
        raise Rejected(f"This turn has no tool call {action['toolCallId']}")

    def client_reports(self, chat: LiveChat, action: Json, origin: Origin, principal: Principal) -> None:
        """A client reports on a call that it runs itself."""
        call = self._open_call(chat, action)
        contributor = call.get("contributor") or {}
        if contributor.get("kind") != "client" or contributor.get("clientId") != origin["clientId"]:
            raise Rejected("Only the client that provides this tool may report on its calls")
        if call.get("status") != "running":
            raise Rejected("This tool call is not running")
        self.chats.dispatch(chat, action, origin)
        if action["type"] == "chat/toolCallComplete" and chat.turn is not None:
            chat.turn.client_finished(action["toolCallId"], action["result"])

    def confirm_result(self, chat: LiveChat, action: Json, origin: Origin, principal: Principal) -> None:
        call = self._open_call(chat, action)
        if call.get("status") != "pending-result-confirmation":
            raise Rejected("This tool call is not waiting for its result to be confirmed")
        self.chats.dispatch(chat, action, origin)
        self._answer(chat, action["toolCallId"], bool(action["approved"]))

    @staticmethod
    def _answer(chat: LiveChat, waiting_id: str, value: Any) -> None:
        if chat.turn is not None:
            chat.turn.answered(waiting_id, value)

    def _open_request(self, chat: LiveChat, action: Json) -> Json:
        active = self.chats.chat_state(chat).get("activeTurn") or {}
        for part in active.get("responseParts", []):
            request = part.get("request") or {}
            if part.get("kind") == "inputRequest" and request.get("id") == action["requestId"]:
                if part.get("response") is None:
                    found: Json = request
                    return found
                raise Rejected("This question has been answered already")
        raise Rejected(f"No question {action['requestId']} is open in this chat")

    def change_answer(self, chat: LiveChat, action: Json, origin: Origin, principal: Principal) -> None:
        request = self._open_request(chat, action)
        self._check_answers(request, {action["questionId"]: action.get("answer")})
        self.chats.dispatch(chat, action, origin)

    def complete_input(self, chat: LiveChat, action: Json, origin: Origin, principal: Principal) -> None:
        request = self._open_request(chat, action)
        answers = {**request.get("answers", {}), **(action.get("answers") or {})}
        self._check_answers(request, answers)
        if action["response"] == "accept":
            self._check_required(request, answers)
        self.chats.dispatch(chat, action, origin)
        self._answer(chat, action["requestId"], Answer(action["response"], answers))

    @staticmethod
    def _check_answers(request: Json, answers: Mapping[str, Any]) -> None:
        questions = {question.get("id"): question for question in request.get("questions", [])}
        for question_id, answer in answers.items():
            if question_id not in questions:
                raise Rejected(f"This request asks no question {question_id}")
            if answer is None or answer.get("state") == "skipped":
                continue
            given, kind = (answer.get("value") or {}).get("kind"), questions[question_id].get("kind")
            if given != ANSWER_KINDS.get(kind, given):
                raise Rejected(f"The answer to {question_id} must be of kind {ANSWER_KINDS[kind]}")

    @staticmethod
    def _check_required(request: Json, answers: Mapping[str, Any]) -> None:
        for question in request.get("questions", []):
            answer = answers.get(question.get("id")) or {}
            if question.get("required") and answer.get("value") is None:
                raise Rejected(f"The question {question.get('id')} must be answered")

    # -- sessions ---------------------------------------------------------------------------------------

    def retitle(self, session: LiveSession, action: Json, origin: Origin) -> None:
        title = action["title"]
        if not title.strip():
            raise Rejected("A title must say something")
        if len(title) > TITLE_LENGTH:
            raise Rejected(f"A title has at most {TITLE_LENGTH} characters")
        self.chats.dispatch_session(session, action, origin)

    def apply_to_session(self, session: LiveSession, action: Json, origin: Origin) -> None:
        """An action that is nothing but a change of state."""
        self.chats.dispatch_session(session, action, origin)

    def archive_session(self, session: LiveSession, action: Json, origin: Origin) -> None:
        self.chats.dispatch_session(session, action, origin)
        if action["isArchived"]:
            self.turns.rest(session)

    def configure(self, session: LiveSession, action: Json, origin: Origin) -> None:
        properties = self.chats.session_state(session)["config"]["schema"]["properties"]
        changed = action["config"]
        check_change(properties, changed, begun=any(chat.turn_ids for chat in session.chats.values()))
        if action.get("replace"):
            raise Rejected("Settings of a session are changed one by one, not replaced")
        session.values.update(changed)
        if not all(properties[name].get("sessionMutable") for name in changed):
            # The agent was opened with the session, perhaps; its first turn must find the last choice made.
            for chat in session.chats.values():
                chat.stale = True
        self.chats.dispatch_session(session, action, origin)

    def set_client(self, session: LiveSession, action: Json, origin: Origin) -> None:
        entry = action["activeClient"]
        self._require_own(entry["clientId"], origin)
        if entry in self.chats.session_state(session)["activeClients"]:
            return  # an echo would be taken for news and answered in kind, for ever
        self.chats.dispatch_session(session, action, origin)

    def remove_client(self, session: LiveSession, action: Json, origin: Origin) -> None:
        self._require_own(action["clientId"], origin)
        self.presence.leave(session, action["clientId"], origin)

    @staticmethod
    def _require_own(client_id: str, origin: Origin) -> None:
        if client_id != origin["clientId"]:
            raise Rejected("A client may speak for itself only")

    def session_directory(self, session: LiveSession, action: Json, origin: Origin) -> None:
        capability = self._several_directories(session)
        directories = self.chats.session_state(session).get("workingDirectories", [])
        is_first = bool(directories) and action["directory"] == directories[0]
        if is_first and action["type"] == "session/workingDirectoryRemoved":
            raise Rejected("The first directory of a session cannot be removed")
        if (
            is_first
            and action["type"] == "session/workingDirectoryReplaced"
            and not capability.get("primaryReplacement")
        ):
            raise Rejected(f"{session.provider} cannot change its first directory")
        self._require_rest(*session.chats.values())
        self.chats.change_directories(session, action, origin)

    def customization(self, session: LiveSession, action: Json, origin: Origin) -> None:
        known = self.chats.session_state(session).get("customizations", [])
        ids = [entry["id"] for top in known for entry in (top, *top.get("children", []))]
        if action["id"] not in ids:
            raise Rejected(f"This session has no customization {action['id']}")
        self.chats.dispatch_session(session, action, origin)


ANSWER_KINDS: Mapping[Any, str] = {
    "text": "text",
    "number": "number",
    "integer": "number",
    "boolean": "boolean",
    "single-select": "selected",
    "multi-select": "selected-many",
}

CHAT: Mapping[str, OnChat] = {
    "chat/turnStarted": Inbound.start_turn,
    "chat/turnCancelled": Inbound.cancel_turn,
    "chat/turnResume": Inbound.resume_turn,
    "chat/truncated": Inbound.truncate,
    "chat/pendingMessageSet": Inbound.set_pending,
    "chat/pendingMessageRemoved": Inbound.remove_pending,
    "chat/queuedMessagesReordered": Inbound.apply_to_chat,
    "chat/draftChanged": Inbound.apply_to_chat,
    "chat/isReadChanged": Inbound.apply_to_chat,
    "chat/isArchivedChanged": Inbound.apply_to_chat,
    "chat/workingDirectorySet": Inbound.chat_directory,
    "chat/workingDirectoryRemoved": Inbound.chat_directory,
    "chat/toolCallConfirmed": Inbound.confirm_call,
    "chat/toolCallContentChanged": Inbound.client_reports,
    "chat/toolCallComplete": Inbound.client_reports,
    "chat/toolCallResultConfirmed": Inbound.confirm_result,
    "chat/inputAnswerChanged": Inbound.change_answer,
    "chat/inputCompleted": Inbound.complete_input,
}

SESSION: Mapping[str, OnSession] = {
    "session/titleChanged": Inbound.retitle,
    "session/isReadChanged": Inbound.apply_to_session,
    "session/isArchivedChanged": Inbound.archive_session,
    "session/configChanged": Inbound.configure,
    "session/activeClientSet": Inbound.set_client,
    "session/activeClientRemoved": Inbound.remove_client,
    "session/workingDirectorySet": Inbound.session_directory,
    "session/workingDirectoryRemoved": Inbound.session_directory,
    "session/workingDirectoryReplaced": Inbound.session_directory,
    "session/customizationToggled": Inbound.customization,
    "session/mcpServerStartRequested": Inbound.customization,
    "session/mcpServerStopRequested": Inbound.customization,
    "session/mcpServerBackgroundRequested": Inbound.customization,
}
