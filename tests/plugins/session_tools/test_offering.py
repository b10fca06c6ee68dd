"""Which tools there are, in which order, with which schema and words, and who is offered them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema_rs
import pytest
from ahpd import Offer, Principal, Tool, Wording
from ahpd_session_tools import ahpd_config_keys, ahpd_tools

if TYPE_CHECKING:
    from tests.plugins.session_tools.conftest import Caller

READ = {"readOnlyHint": True, "openWorldHint": False}
CHANGE = {"readOnlyHint": False, "destructiveHint": True}
SOFT_CHANGE = {"readOnlyHint": False, "destructiveHint": False}
TEXT = {"type": "string"}
FLAG = {"type": "boolean"}
CONFIG = {"type": "object"}
TITLE = {"type": "string", "maxLength": 200}
SEND = {
    "session": TEXT,
    "message": TEXT,
    "operation": {"type": "string", "enum": ["send", "replace", "cancel"]},
    "delivery": {"type": "string", "enum": ["queue", "steer"]},
    "messageId": TEXT,
    "expectedRevision": {"type": "integer", "minimum": 1},
}
RENAME = {"session": TEXT, "chat": TEXT, "title": TITLE}
SCHEMAS: dict[str, tuple[dict[str, Any], list[str] | None]] = {
    "list_sessions": (
        {
            "session": TEXT,
            "status": {
                "type": "array",
                "items": {
                    "type": "string",
                    "enum": ["idle", "inProgress", "inputNeeded", "error", "archived"],
                },
            },
            "workspace": TEXT,
            "withChanges": FLAG,
            "unread": FLAG,
            "withPullRequest": FLAG,
            "includeArchived": FLAG,
            "createdAfter": TEXT,
            "createdBefore": TEXT,
            "agent": TEXT,
            "title": TEXT,
            "path": TEXT,
            "modifiedAfter": TEXT,
            "modifiedBefore": TEXT,
            "limit": {"type": "integer", "minimum": 1},
        },
        None,
    ),
    "get_current_session": ({}, None),
    "set_workspace": ({"workspaceFolder": TEXT, "isolation": FLAG}, ["workspaceFolder", "isolation"]),
    "list_agents": ({}, None),
    "list_models": ({"agent": TEXT}, None),
    "create_session": (
        {
            "relationship": {"type": "string", "enum": ["currentSession", "independent"]},
            "prompt": TEXT,
            "workspace": TEXT,
            "worktree": FLAG,
            "title": TITLE,
            "model": TEXT,
            "agent": TEXT,
            "config": CONFIG,
        },
        ["relationship", "prompt", "title"],
    ),
    "create_chat": ({"session": TEXT, "prompt": TEXT, "title": TITLE, "model": TEXT}, ["prompt"]),
    "rename_chat": ({**RENAME, "automatic": FLAG}, ["title"]),
    "archive_chat": ({"session": TEXT, "archived": {"type": "boolean", "default": True}}, ["session"]),
    "send_message": (SEND, ["session", "message"]),
    "get_session_context": (
        {
            "session": TEXT,
            "detail": {"type": "string", "enum": ["summary", "digest", "full"]},
            "transcriptLimit": {"type": "number"},
        },
        ["session"],
    ),
    "delete_session": ({"session": TEXT}, ["session"]),
    "move_session": (
        {
            "session": TEXT,
            "into": TEXT,
            "after": TEXT,
            "relationship": {"type": "string", "enum": ["independent"]},
        },
        ["session"],
    ),
}
IN_SESSIONS = [
    "list_sessions",
    "get_current_session",
    "set_workspace",
    "create_session",
    "create_chat",
    "rename_chat",
    "send_message",
    "get_session_context",
    "delete_session",
]
AT_DOORS = [
    "list_sessions",
    "list_agents",
    "list_models",
    "create_session",
    "create_chat",
    "rename_chat",
    "archive_chat",
    "send_message",
    "get_session_context",
    "delete_session",
    "move_session",
]


def bare(schema: dict[str, Any]) -> tuple[dict[str, Any], list[str] | None]:
    """The properties without their descriptions, each of which must say something, and the required names."""
    properties = {}
    for name, described in schema["properties"].items():
        assert len(described["description"]) > 10
        properties[name] = {key: value for key, value in described.items() if key != "description"}
    return properties, schema.get("required")


def tools() -> dict[str, Tool]:
    return {tool.name: tool for tool in ahpd_tools()}


def at_door(name: str, agents: Sequence[Mapping[str, Any]] = ()) -> Wording | None:
    """The words of a tool for somebody at a door."""
    words = tools()[name].at_door
    if callable(words):
        found = words(Offer(Principal("user:ana", "ana"), agents=agents))
        assert found != "withheld"
        return found
    return words


def test_one_declaration_has_both_orders() -> None:
    scopes = {name: tool.scope for name, tool in tools().items()}
    assert [name for name, scope in scopes.items() if scope in ("session", "both")] == IN_SESSIONS
    assert [name for name, scope in scopes.items() if scope in ("host", "both")] == AT_DOORS


@pytest.mark.parametrize("name", list(SCHEMAS))
def test_schemas(name: str) -> None:
    schema = tools()[name].input_schema()
    assert bare(schema) == SCHEMAS[name]
    jsonschema_rs.meta.validate(schema)


DOOR_REQUIRED = {
    "create_session": ["prompt", "title"],
    "create_chat": ["session", "prompt"],
    "rename_chat": ["title"],
    "send_message": ["session"],
}


@pytest.mark.parametrize("name", AT_DOORS)
def test_schemas_at_a_door(name: str) -> None:
    properties, required = bare(tools()[name].input_schema(at_door(name)))
    in_session, required_there = SCHEMAS[name]
    gone = {"relationship"} if name == "create_session" else {"automatic"}
    assert properties == {key: value for key, value in in_session.items() if key not in gone}
    assert required == DOOR_REQUIRED.get(name, required_there)


REFERENCE = Path(__file__).parents[4] / "shared" / "spec" / "tool-schemas.json"
OURS = {
    "list_sessions": {"agent", "title", "path", "modifiedAfter", "modifiedBefore", "limit"},
    "create_session": {"agent", "config"},
    "send_message": {"operation", "delivery", "messageId", "expectedRevision"},
}


@pytest.mark.skipif(not REFERENCE.exists(), reason="the schemas are not beside this checkout")
@pytest.mark.parametrize("name", list(SCHEMAS))
def test_the_schemas_agree_with_the_written_ones(name: str) -> None:
    written = json.loads(REFERENCE.read_text())[name]
    ours = tools()[name].input_schema()
    for key, schema in written["inputSchema"]["properties"].items():
        assert constraints(ours["properties"][key]) == constraints(schema), key
    assert set(ours["properties"]) - OURS.get(name, set()) == set(written["inputSchema"]["properties"])
    assert ours.get("required") == written["inputSchema"].get("required")
    if name in AT_DOORS and name not in ("list_sessions", "get_session_context", "send_message"):
        door = tools()[name].input_schema(at_door(name))
        assert set(door["properties"]) == set(written["doorInputSchema"]["properties"])
        assert door.get("required") == written["doorInputSchema"].get("required")


def constraints(schema: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key not in ("description", "items")}


@pytest.mark.parametrize(
    ("name", "title", "hints", "grants", "scope"),
    [
        ("list_sessions", "List Sessions", READ, (), "both"),
        ("get_current_session", "Get Current Session", READ, ("session:read",), "session"),
        ("set_workspace", "Set Workspace", CHANGE, ("session:write",), "session"),
        ("list_agents", "List Agents", READ, ("session:read",), "host"),
        ("list_models", "List Models", READ, ("session:read",), "host"),
        ("create_session", "Create Session", CHANGE, ("session:write",), "both"),
        ("create_chat", "Create Chat", CHANGE, ("session:write",), "both"),
        ("rename_chat", "Rename Chat", SOFT_CHANGE, ("session:write",), "both"),
        ("archive_chat", "Archive Chat", SOFT_CHANGE, ("session:write",), "host"),
        ("delete_session", "Delete Session", CHANGE, ("session:write",), "both"),
        ("move_session", "Move Session", SOFT_CHANGE, ("session:write",), "host"),
        ("send_message", "Send Message", CHANGE, ("session:write",), "both"),
        ("get_session_context", "Get Session Context", READ, ("session:read",), "both"),
    ],
)
def test_flags(name: str, title: str, hints: dict[str, bool], grants: tuple[str, ...], scope: str) -> None:
    tool = tools()[name]
    assert tool.title == title
    assert tool.annotations == {"title": title, **hints}
    assert tuple(tool.grants) == grants
    assert tool.scope == scope
    assert tool.checks_input
    assert (tool.effects, tool.defer, tool.advanced) == (None, None, False)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("list_sessions", ["openLink", "rchived", "newest", *SCHEMAS["list_sessions"][0].keys() - {"limit"}]),
        ("set_workspace", ["scratch", "one question", "immediately", "last call", "end it at once"]),
        ("create_chat", ["prompt", "get_session_context", "limited"]),
        ("rename_chat", ["automatic", "asks", "reminds"]),
        ("delete_session", ["undone", "owner", "you are in"]),
        ("create_session", ["currentSession", "independent", "prompt", "get_session_context", "limited"]),
        ("send_message", ["at once", "queue", "steer", "replace", "cancel", "expectedRevision", "messageId"]),
        ("get_session_context", ["summary", "digest", "full", "truncated", "hasMoreHistory", "empty"]),
    ],
)
def test_descriptions_tell_what_a_model_must_know(name: str, told: list[str]) -> None:
    description = tools()[name].description
    missing = [word for word in told if word not in description and word != "includeArchived"]
    assert missing == []


def test_the_agents_one_may_start_are_named(caller: Caller) -> None:
    shape = tools()["create_session"].for_session
    assert shape is not None
    assert shape(Offer(caller.principal, caller.session)) is None
    wording = shape(Offer(caller.principal, caller.session, agents=caller.host.known_agents))
    assert isinstance(wording, Wording)
    agent = tools()["create_session"].input_schema(wording)["properties"]["agent"]
    assert agent["enum"] == ["echo", "robin"]
    assert "echo: Echo; robin: Robin" in agent["description"]


@pytest.mark.parametrize(
    ("settings", "provider", "offered"),
    [
        ({}, "echo", True),
        ({"sessionTools": True, "sessionToolsProviders": []}, "echo", True),
        ({"sessionTools": False}, "echo", False),
        ({"sessionToolsProviders": ["echo"]}, "echo", True),
        ({"sessionToolsProviders": ["robin"]}, "echo", False),
        ({"sessionToolsProviders": ["robin"]}, None, False),
        ({"sessionTools": False, "sessionToolsProviders": ["echo"]}, "echo", False),
    ],
)
def test_who_is_offered_them(
    caller: Caller, settings: dict[str, Any], provider: str | None, offered: bool
) -> None:
    in_session = Offer(caller.principal, caller.session, provider, settings=settings)
    from_a_door = Offer(caller.principal, settings=settings)
    for tool in ahpd_tools():
        assert tool.offered is not None
        assert tool.offered(in_session) is offered
        assert tool.offered(from_a_door)


def test_the_agents_one_may_start_are_named_at_a_door(caller: Caller) -> None:
    for name in ("create_session", "list_models"):
        words = at_door(name, caller.host.known_agents)
        assert tools()[name].input_schema(words)["properties"]["agent"]["enum"] == ["echo", "robin"]
        assert "enum" not in tools()[name].input_schema(at_door(name))["properties"]["agent"]


def test_who_titles_chats_shapes_renaming(caller: Caller) -> None:
    """Product page "Tools", "The wording a session is given"."""
    rename = tools()["rename_chat"]
    assert rename.for_session is not None
    assert rename.for_session(Offer(caller.principal, caller.session, strategy="activeAgent")) is None
    assert rename.for_session(Offer(caller.principal, caller.session, strategy="utility")) == "withheld"
    words = rename.for_session(Offer(caller.principal, caller.session, strategy="deferred"))
    assert isinstance(words, Wording)
    assert bare(rename.input_schema(words)) == (RENAME, ["title"])
    assert "automatic" not in str(words.description)


def test_the_keys() -> None:
    keys = {key.name: key for key in ahpd_config_keys()}
    switch, providers = keys["sessionTools"], keys["sessionToolsProviders"]
    assert (switch.schema, switch.default) == ({"type": "boolean"}, True)
    assert providers.default == []
    for key in (switch, providers):
        assert (key.applies, key.flag, key.in_root) == ("live", True, True)
    assert keys["chatMoves"].default == {"enabled": False}
    assert not jsonschema_rs.is_valid(dict(keys["chatMoves"].schema), {"enable": True})
    assert keys["worktreesRoot"].schema["format"] == "path"
    assert len(keys) == 4
    for key in keys.values():
        assert key.daemon
        assert key.description
