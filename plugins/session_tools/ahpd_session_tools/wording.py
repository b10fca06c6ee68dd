"""The words and input schemas of the session tools, as data. A model reads nothing else about them.

Property names, types and bounds are interfaces; every description is ours to better.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from ahpd import WITHHELD, Offer, Wording

Schema = Mapping[str, Any]


def _text(description: str, **more: Any) -> Schema:
    return {"type": "string", "description": description, **more}


def _flag(description: str) -> Schema:
    return {"type": "boolean", "description": description}


_SESSION = _text(
    "The session's URI as list_sessions answers it in `session`, or an openLink; an openLink with a chat "
    "names that chat, anything else means the session's first chat."
)

LIST_SESSIONS = (
    "List the agent sessions of this host that you may see, newest activity first, one compact row of metadata "
    "each; get_session_context reads what was said in one. Use a row's `session` to tell sessions apart and as "
    "input of other tools, and its `openLink` only as the target of a link shown to the user, never the other "
    "way round. Archived sessions are left out unless you ask for them. Narrow the list with status, agent, "
    "title, path, workspace, withChanges, unread, withPullRequest, createdAfter, createdBefore, modifiedAfter "
    "and modifiedBefore; a row must pass all that you give. `session` looks up one session and ignores the rest."
)
LIST_SESSIONS_INPUT: Mapping[str, Schema] = {
    "session": _text("Look up this one session, by URI or openLink, archived or not. No other filter applies."),
    "status": {
        "type": "array",
        "items": {"type": "string", "enum": ["idle", "inProgress", "inputNeeded", "error", "archived"]},
        "description": "Keep sessions in any of these states. Naming archived also brings archived ones in.",
    },
    "workspace": _text("Keep sessions of this project (its name or URI) or with exactly this directory."),
    "withChanges": _flag("Keep only sessions that changed files."),
    "unread": _flag("Keep only sessions with activity the user has not seen."),
    "withPullRequest": _flag("Keep only sessions that have a pull request of their own."),
    "includeArchived": _flag("Bring archived sessions in. False when left out."),
    "createdAfter": _text("Keep sessions created at this ISO-8601 time or later."),
    "createdBefore": _text("Keep sessions created at this ISO-8601 time or earlier."),
    "agent": _text("Keep sessions that run this agent, by its provider id, which begins each session URI."),
    "title": _text("Keep sessions whose title contains this, in any case."),
    "path": _text("Keep sessions that work in this directory or anywhere below it."),
    "modifiedAfter": _text("Keep sessions last active at this ISO-8601 time or later."),
    "modifiedBefore": _text("Keep sessions last active at this ISO-8601 time or earlier."),
    "limit": {
        "type": "integer",
        "minimum": 1,
        "description": "How many rows at most, counted from the newest. 50 when left out, never more than 200.",
    },
}

GET_CURRENT_SESSION = (
    "Describe the session this conversation belongs to, as one row of list_sessions: its URI, title, status, "
    "directories, project and branch. Use it to learn your own `session` before you compare it with others."
)

CREATE_SESSION = (
    "Start new work beside this conversation, with a first message that a fresh agent begins on at once. "
    'relationship "currentSession" opens another chat in this session: same agent, same directories, for work '
    'that belongs to the task at hand. relationship "independent" starts a session of its own, for work that '
    "stands alone, needs another directory, or another agent. The new agent sees nothing of this conversation, "
    "so put all it needs to know into prompt. This returns as soon as the work has begun and never brings its "
    "answer: follow it with get_session_context, talk to it with send_message. The answer holds an openLink to "
    "show the user. How many sessions and chats you may start, and how deep they may nest, is limited."
)
CREATE_SESSION_AT_DOOR = (
    "Start a session on this host, owned by you, with a first message its agent begins on at once. It knows "
    "nothing but that message, so put all it needs into prompt. This returns as soon as the work has begun and "
    "never brings its answer: follow it with get_session_context, talk to it with send_message. The answer "
    "holds an openLink to show the user."
)
_AGENT = "The agent to run, by provider id."
_CREATE_INPUT: Mapping[str, Schema] = {
    "prompt": _text("The first message, complete in itself."),
    "workspace": _text(
        "Where to work: the name of a project in list_sessions, a project or folder URI, an absolute path, or a "
        'directory another session works in. Only with relationship "independent", which keeps the present '
        "directories when this is left out."
    ),
    "worktree": _flag(
        "True for a git worktree of its own, on a new branch, beside the repository; false for the folder itself. "
        "Left out: as this session has it for work in the same project, a worktree for another git project. Only "
        'with relationship "independent".'
    ),
    "title": _text("A few words that tell this work from others in a list.", maxLength=200),
    "model": _text("The model to use, by id or name. The caller's own where the agent is the same."),
    "agent": _text(f'{_AGENT} Only with relationship "independent". The present session\'s agent when left out.'),
    "config": {
        "type": "object",
        "description": "Settings of the new session, by name, as its agent declares them. Only with "
        'relationship "independent".',
    },
}
CREATE_SESSION_INPUT: Mapping[str, Schema] = {
    "relationship": _text(
        '"currentSession" for a chat in this session, "independent" for a session of its own.',
        enum=["currentSession", "independent"],
    ),
    **_CREATE_INPUT,
}
CREATE_SESSION_DOOR_INPUT: Mapping[str, Schema] = {
    **_CREATE_INPUT,
    "workspace": _text(
        "Where to work: the name of a project in list_sessions, a project or folder URI, an absolute path, or a "
        "directory another session works in. The host's default directory when left out."
    ),
    "worktree": _flag(
        "True for a git worktree of its own, on a new branch, beside the repository. The folder itself when left "
        "out."
    ),
    "model": _text("The model to use, by id or name. The agent's own choice when left out."),
    "agent": _text(f"{_AGENT} The host's first agent when left out."),
    "config": {
        "type": "object",
        "description": "Settings of the new session, by name, as its agent declares them.",
    },
}

SEND_MESSAGE = (
    "Send a message to another chat of this host as if its user had typed it. It returns at once: the reply is "
    "neither waited for nor returned, read it later with get_session_context. A chat that is free begins a turn; "
    "one that is busy queues the message until its running turn has ended well. delivery steer hands the message "
    "to the running turn instead, to correct its course now. The answer gives messageId and revision. While a "
    "message you sent is still queued, operation replace gives it a new text and operation cancel takes it "
    "back; both need that messageId and, as expectedRevision, the revision you were last told. You cannot send "
    "to the chat you are in, and the number of messages is limited."
)
_SEND_INPUT: Mapping[str, Schema] = {
    "session": _SESSION,
    "message": _text("The text. Needed to send and to replace; to cancel, an empty one will do."),
    "operation": _text("What to do with the message. send when left out.", enum=["send", "replace", "cancel"]),
    "delivery": _text(
        "How a send reaches a busy chat: queue behind the running turn, the default, or steer that turn.",
        enum=["queue", "steer"],
    ),
    "messageId": _text("The queued message to replace or cancel, as a send answered it."),
    "expectedRevision": {
        "type": "integer",
        "minimum": 1,
        "description": "The revision last answered for that message. The change is refused if it moved on.",
    },
}
SEND_MESSAGE_INPUT = _SEND_INPUT

GET_SESSION_CONTEXT = (
    "Read the recent turns of a chat: what its user asked, what the agent answered, which tools it called, and "
    "whether a turn is running now. Begin with detail summary, a line or two per turn; digest adds longer texts "
    "and the names of tools, full adds the tools' inputs. Texts are cut, and `truncated` says so; "
    "`hasMoreHistory` says that older turns exist which this cannot reach. Reading starts nothing: a chat whose "
    "agent is not loaded answers an empty transcript."
)
GET_SESSION_CONTEXT_INPUT: Mapping[str, Schema] = {
    "session": _SESSION,
    "detail": _text("How much of each turn to return. summary when left out.", enum=["summary", "digest", "full"]),
    "transcriptLimit": {
        "type": "number",
        "description": "How many turns at most, counted from the newest. 10 when left out, never more than 50.",
    },
}

SET_WORKSPACE = (
    "Move this session to another folder, for good: its agent starts again there, with the conversation so far. "
    "Use it only when the task turned out to be real work on a project in that folder, never for scratch files, "
    "and not for a look at something. Ask the user one question first, immediately before every call, that names "
    "the folder and says whether the work is to be isolated; an approval of this tool call does not answer that "
    "question. Nothing moves while your turn runs, so make this the last call of the turn and end it at once: "
    "the host then moves the session and continues the task by itself."
)
SET_WORKSPACE_INPUT: Mapping[str, Schema] = {
    "workspaceFolder": _text("The folder: an absolute path on this host, or a file URI."),
    "isolation": _flag(
        "True to work in a new git worktree of the folder's repository, on a branch of its own; false to work in "
        "the folder itself."
    ),
}
WILL_ISOLATE = (
    "An isolated worktree will be created from {uri} and set as the workspace after this turn ends. End this turn "
    "now without calling more tools or replying; the host will continue the original task automatically in the "
    "isolated workspace."
)
WILL_MOVE = (
    "Workspace will be set to {uri} after this turn ends. End this turn now without calling more tools or "
    "replying; the host will continue the original task automatically in the selected workspace."
)
MOVED = (
    "The session now works in {uri}, the workspace you asked for. Carry on with the user's task there; do not ask "
    "again and do not announce the move."
)
MOVE_FAILED = (
    "The session was not moved to {uri} and still works where it did. The reason: {why}\n"
    "Do not carry on with the task now: tell the user what went wrong, and let them decide."
)

CREATE_CHAT = (
    "Open another chat in a session, with a first message that a fresh agent begins on at once. It works in that "
    "session's directories and sees nothing of this conversation, so put all it needs to know into prompt. This "
    "returns as soon as the work has begun and never brings its answer: follow it with get_session_context, talk "
    "to it with send_message. The answer holds an openLink to show the user. How many chats you may open is "
    "limited; use create_session for work that needs another directory or agent."
)
CREATE_CHAT_INPUT: Mapping[str, Schema] = {
    "session": _text("The session to open it in, by URI or openLink. The one you are in when left out."),
    "prompt": _text("The first message, complete in itself."),
    "title": _text("A few words that tell this chat from others in a list.", maxLength=200),
    "model": _text("The model to use, by id or name, one of the session's agent."),
}
CREATE_CHAT_DOOR = Wording(
    parameters={
        **CREATE_CHAT_INPUT,
        "session": _text("The session to open it in, by URI or openLink, as list_sessions answers it."),
    },
    required=("session", "prompt"),
)

_RENAME = "Give a chat a title, by default the chat you are in. A session is titled by its first chat. "
RENAME_CHAT = (
    _RENAME
    + "Rename when the user asks for it, or when the host reminds you that this chat has no title yet; only "
    "in that second case set automatic, and say nothing about it. Choose one to four words that say what the "
    "chat is about."
)
RENAME_CHAT_DEFERRED = (
    _RENAME + "The host titles chats by itself, so rename one only when the user asks you to. Choose one to four "
    "words that say what the chat is about."
)
RENAME_CHAT_AT_DOOR = (
    "Give a chat a title; name it by chat or, for a session's first chat, by session. A session is titled by its "
    "first chat."
)
RENAME_CHAT_DEFERRED_INPUT: Mapping[str, Schema] = {
    "session": _text(
        "The session the chat belongs to, by URI or openLink. It has to own chat when both are given."
    ),
    "chat": _text("The chat, by an openLink; one that names no chat means the session's first one."),
    "title": _text("The new title.", maxLength=200),
}
RENAME_CHAT_INPUT: Mapping[str, Schema] = {
    **RENAME_CHAT_DEFERRED_INPUT,
    "automatic": _flag("True only when you answer the host's reminder to title this chat, never otherwise."),
}
RENAME_CHAT_DOOR = Wording(description=RENAME_CHAT_AT_DOOR, parameters=RENAME_CHAT_DEFERRED_INPUT)

DELETE_SESSION = (
    "Delete a session of this host for good: its chats, what its agent keeps of it, and the git worktrees made "
    "for it that hold nothing uncommitted. It cannot be undone, so do it only when the user asked for this very "
    "session to go. Only the session's owner may. You cannot delete the session you are in."
)
DELETE_SESSION_INPUT: Mapping[str, Schema] = {
    "session": _text("The session to delete, by its URI as list_sessions answers it in `session`, or an openLink.")
}

LIST_AGENTS = (
    "List the agents you may start a session on: the id that create_session takes as agent, a name, the settings "
    "it takes as config, each with its schema, and the agent's first five models. list_models has the others."
)
LIST_MODELS = (
    "List the models of the agents you may start: an id and a name, either of which create_session and "
    "create_chat take as model, and the agent that has it."
)
LIST_MODELS_INPUT: Mapping[str, Schema] = {
    "agent": _text("Only the models of this agent, by provider id. Those of every agent when left out.")
}

ARCHIVE_CHAT = (
    "Put a chat, or a whole session, into the archive, so that it no longer shows among active sessions. Nothing "
    "is lost: archived false takes it out again. An archived session takes no messages."
)
ARCHIVE_CHAT_INPUT: Mapping[str, Schema] = {
    "session": _text(
        "The session, by URI or openLink. An openLink with a chat archives that chat alone; a session's first "
        "chat is the session."
    ),
    "archived": {"type": "boolean", "default": True, "description": "False takes it out of the archive again."},
}

MOVE_SESSION = (
    "Put a chat somewhere else: into another session or to another place in its own (into, and after), or into a "
    "session of its own (relationship independent). The chat keeps its history. A session's first chat stays "
    "where it is, and so does a chat with a running turn. Refused unless this host allows chats to be moved."
)
MOVE_SESSION_INPUT: Mapping[str, Schema] = {
    "session": _text("What to move: an openLink with a chat; without a chat it means the session's first one."),
    "into": _text("The session to put it into, by URI or openLink; its own one to change its place there."),
    "after": _text("The chat of that session to sit behind, by openLink. At the end when left out."),
    "relationship": _text("independent to make it a session of its own, instead of into.", enum=["independent"]),
}

CREATE_SESSION_REQUIRED = ("relationship", "prompt", "title")
SEND_MESSAGE_DOOR = Wording(required=("session",))


def create_session_here(offer: Offer) -> Wording | None:
    """The schema with the agents that may be started as an enum, each named in the description."""
    return Wording(parameters=_with_agents(CREATE_SESSION_INPUT, offer)) if offer.agents else None


def create_session_at_door(offer: Offer) -> Wording:
    """As `create_session_here`, for a person at a door."""
    return Wording(
        description=CREATE_SESSION_AT_DOOR,
        parameters=_with_agents(CREATE_SESSION_DOOR_INPUT, offer),
        required=("prompt", "title"),
    )


def list_models_at_door(offer: Offer) -> Wording:
    return Wording(parameters=_with_agents(LIST_MODELS_INPUT, offer))


def rename_chat_here(offer: Offer) -> Wording | Literal["withheld"] | None:
    """By who titles the session's chats: its agent, the host, or nobody an agent should get in the way of."""
    if offer.strategy == "utility":
        return WITHHELD
    if offer.strategy == "deferred":
        return Wording(description=RENAME_CHAT_DEFERRED, parameters=RENAME_CHAT_DEFERRED_INPUT)
    return None


def _with_agents(parameters: Mapping[str, Schema], offer: Offer) -> Mapping[str, Schema]:
    if not offer.agents:
        return parameters
    names = "; ".join(f"{agent['provider']}: {agent.get('displayName', '')}" for agent in offer.agents)
    agent = parameters["agent"]
    described = {
        **agent,
        "enum": [agent["provider"] for agent in offer.agents],
        "description": f"{agent['description']} One of: {names}.",
    }
    return {**parameters, "agent": described}
