"""The words and input schemas of the session tools, as data. A model reads nothing else about them.

Property names, types and bounds are interfaces; every description is ours to better.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ahpd import Offer, Wording

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

CREATE_SESSION_REQUIRED = ("relationship", "prompt", "title")
CREATE_SESSION_DOOR = Wording(
    description=CREATE_SESSION_AT_DOOR, parameters=CREATE_SESSION_DOOR_INPUT, required=("prompt", "title")
)
SEND_MESSAGE_DOOR = Wording(required=("session",))


def create_session_here(offer: Offer) -> Wording | None:
    """The schema with the agents that may be started as an enum, each named in the description."""
    if not offer.agents:
        return None
    names = "; ".join(f"{agent['provider']}: {agent['displayName']}" for agent in offer.agents)
    agent = CREATE_SESSION_INPUT["agent"]
    described = {
        **agent,
        "enum": [agent["provider"] for agent in offer.agents],
        "description": f"{agent['description']} One of: {names}.",
    }
    return Wording(parameters={**CREATE_SESSION_INPUT, "agent": described})
