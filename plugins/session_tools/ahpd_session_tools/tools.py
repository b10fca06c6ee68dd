"""The list of session tools. What each does is in the module of its `run`.

A list is offered in the order of declaration, so this one order holds both of the product's: taken without those
that need a session it is the door's, without those of a door the sessions'.
"""

from __future__ import annotations

from ahpd import Tool

from ahpd_session_tools import wording
from ahpd_session_tools.agents import list_agents, list_models
from ahpd_session_tools.chats import archive_chat, move_session, rename_chat
from ahpd_session_tools.messages import get_session_context, send_message
from ahpd_session_tools.sessions import delete_session, get_current_session, list_sessions
from ahpd_session_tools.settings import offered
from ahpd_session_tools.starting import create_chat, create_session
from ahpd_session_tools.workspace import set_workspace

READ, WRITE = ("session:read",), ("session:write",)


def _reads(title: str) -> dict[str, str | bool]:
    return {"title": title, "readOnlyHint": True, "openWorldHint": False}


def _changes(title: str, destructive: bool = True) -> dict[str, str | bool]:
    """Marked destructive, so that a permission mode that asks does ask."""
    return {"title": title, "readOnlyHint": False, "destructiveHint": destructive}


TOOLS = (
    # No grant: the list is cut to what its person may read, down to nothing.
    Tool(
        "list_sessions",
        list_sessions,
        wording.LIST_SESSIONS,
        wording.LIST_SESSIONS_INPUT,
        title="List Sessions",
        scope="both",
        annotations=_reads("List Sessions"),
        offered=offered,
        checks_input=True,
    ),
    Tool(
        "get_current_session",
        get_current_session,
        wording.GET_CURRENT_SESSION,
        title="Get Current Session",
        grants=READ,
        annotations=_reads("Get Current Session"),
        offered=offered,
        checks_input=True,
    ),
    Tool(
        "set_workspace",
        set_workspace,
        wording.SET_WORKSPACE,
        wording.SET_WORKSPACE_INPUT,
        ("workspaceFolder", "isolation"),
        title="Set Workspace",
        grants=WRITE,
        annotations=_changes("Set Workspace"),
        offered=offered,
        checks_input=True,
    ),
    Tool(
        "list_agents",
        list_agents,
        wording.LIST_AGENTS,
        title="List Agents",
        grants=READ,
        scope="host",
        annotations=_reads("List Agents"),
        offered=offered,
        checks_input=True,
    ),
    Tool(
        "list_models",
        list_models,
        wording.LIST_MODELS,
        wording.LIST_MODELS_INPUT,
        title="List Models",
        grants=READ,
        scope="host",
        annotations=_reads("List Models"),
        at_door=wording.list_models_at_door,
        offered=offered,
        checks_input=True,
    ),
    Tool(
        "create_session",
        create_session,
        wording.CREATE_SESSION,
        wording.CREATE_SESSION_INPUT,
        wording.CREATE_SESSION_REQUIRED,
        title="Create Session",
        grants=WRITE,
        scope="both",
        annotations=_changes("Create Session"),
        for_session=wording.create_session_here,
        at_door=wording.create_session_at_door,
        offered=offered,
        checks_input=True,
    ),
    Tool(
        "create_chat",
        create_chat,
        wording.CREATE_CHAT,
        wording.CREATE_CHAT_INPUT,
        ("prompt",),
        title="Create Chat",
        grants=WRITE,
        scope="both",
        annotations=_changes("Create Chat"),
        at_door=wording.CREATE_CHAT_DOOR,
        offered=offered,
        checks_input=True,
    ),
    Tool(
        "rename_chat",
        rename_chat,
        wording.RENAME_CHAT,
        wording.RENAME_CHAT_INPUT,
        ("title",),
        title="Rename Chat",
        grants=WRITE,
        scope="both",
        annotations=_changes("Rename Chat", destructive=False),
        for_session=wording.rename_chat_here,
        at_door=wording.RENAME_CHAT_DOOR,
        offered=offered,
        checks_input=True,
    ),
    Tool(
        "archive_chat",
        archive_chat,
        wording.ARCHIVE_CHAT,
        wording.ARCHIVE_CHAT_INPUT,
        ("session",),
        title="Archive Chat",
        grants=WRITE,
        scope="host",
        annotations=_changes("Archive Chat", destructive=False),
        offered=offered,
        checks_input=True,
    ),
    Tool(
        "send_message",
        send_message,
        wording.SEND_MESSAGE,
        wording.SEND_MESSAGE_INPUT,
        ("session", "message"),
        title="Send Message",
        grants=WRITE,
        scope="both",
        annotations=_changes("Send Message"),
        at_door=wording.SEND_MESSAGE_DOOR,
        offered=offered,
        checks_input=True,
    ),
    Tool(
        "get_session_context",
        get_session_context,
        wording.GET_SESSION_CONTEXT,
        wording.GET_SESSION_CONTEXT_INPUT,
        ("session",),
        title="Get Session Context",
        grants=READ,
        scope="both",
        annotations=_reads("Get Session Context"),
        offered=offered,
        checks_input=True,
    ),
    Tool(
        "delete_session",
        delete_session,
        wording.DELETE_SESSION,
        wording.DELETE_SESSION_INPUT,
        ("session",),
        title="Delete Session",
        grants=WRITE,
        scope="both",
        annotations=_changes("Delete Session"),
        offered=offered,
        checks_input=True,
    ),
    Tool(
        "move_session",
        move_session,
        wording.MOVE_SESSION,
        wording.MOVE_SESSION_INPUT,
        ("session",),
        title="Move Session",
        grants=WRITE,
        scope="host",
        annotations=_changes("Move Session", destructive=False),
        offered=offered,
        checks_input=True,
    ),
)
