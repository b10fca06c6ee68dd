"""The list of session tools, in the order they are offered. What each does is in the module of its `run`."""

from __future__ import annotations

from ahpd import Tool

from ahpd_session_tools import wording
from ahpd_session_tools.messages import get_session_context, send_message
from ahpd_session_tools.sessions import create_session, get_current_session, list_sessions
from ahpd_session_tools.settings import offered

READ, WRITE = ("session:read",), ("session:write",)


def _reads(title: str) -> dict[str, str | bool]:
    return {"title": title, "readOnlyHint": True, "openWorldHint": False}


def _changes(title: str) -> dict[str, str | bool]:
    """Marked destructive, so that a permission mode that asks does ask."""
    return {"title": title, "readOnlyHint": False, "destructiveHint": True}


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
        at_door=wording.CREATE_SESSION_DOOR,
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
)
