"""Which tools there are, in which order, with which schema and words, and who is offered them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jsonschema_rs
import pytest
from ahpd import Offer, Tool, Wording
from ahpd_session_tools import ahpd_config_keys, ahpd_tools

if TYPE_CHECKING:
    from tests.plugins.session_tools.conftest import Caller

READ = {"readOnlyHint": True, "openWorldHint": False}
CHANGE = {"readOnlyHint": False, "destructiveHint": True}
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
    "create_session": (
        {
            "relationship": {"type": "string", "enum": ["currentSession", "independent"]},
            "prompt": TEXT,
            "workspace": TEXT,
            "title": TITLE,
            "model": TEXT,
            "agent": TEXT,
            "config": CONFIG,
        },
        ["relationship", "prompt", "title"],
    ),
    "send_message": (SEND, ["session", "message"]),
    "get_session_context": (
        {
            "session": TEXT,
            "detail": {"type": "string", "enum": ["summary", "digest", "full"]},
            "transcriptLimit": {"type": "number"},
        },
        ["session"],
    ),
}


def bare(schema: dict[str, Any]) -> tuple[dict[str, Any], list[str] | None]:
    """The properties without their descriptions, each of which must say something, and the required names."""
    properties = {}
    for name, described in schema["properties"].items():
        assert len(described["description"]) > 10
        properties[name] = {key: value for key, value in described.items() if key != "description"}
    return properties, schema.get("required")


def tools() -> dict[str, Tool]:
    return {tool.name: tool for tool in ahpd_tools()}


def test_the_order_is_the_products() -> None:
    assert list(tools()) == list(SCHEMAS)


@pytest.mark.parametrize("name", list(SCHEMAS))
def test_schemas(name: str) -> None:
    schema = tools()[name].input_schema()
    assert bare(schema) == SCHEMAS[name]
    jsonschema_rs.meta.validate(schema)


def test_schemas_at_a_door() -> None:
    create = tools()["create_session"]
    properties, required = bare(create.input_schema(create.at_door))
    assert properties == {
        key: value for key, value in SCHEMAS["create_session"][0].items() if key != "relationship"
    }
    assert required == ["prompt", "title"]
    send = tools()["send_message"]
    assert bare(send.input_schema(send.at_door)) == (SEND, ["session"])


@pytest.mark.parametrize(
    ("name", "title", "hints", "grants", "scope"),
    [
        ("list_sessions", "List Sessions", READ, (), "both"),
        ("get_current_session", "Get Current Session", READ, ("session:read",), "session"),
        ("create_session", "Create Session", CHANGE, ("session:write",), "both"),
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
    at_door = Offer(caller.principal, settings=settings)
    for tool in ahpd_tools():
        assert tool.offered is not None
        assert tool.offered(in_session) is offered
        assert tool.offered(at_door)


def test_the_keys() -> None:
    switch, providers = ahpd_config_keys()
    assert (switch.name, switch.schema, switch.default) == ("sessionTools", {"type": "boolean"}, True)
    assert (providers.name, providers.default) == ("sessionToolsProviders", [])
    for key in (switch, providers):
        assert (key.daemon, key.applies, key.flag, key.in_root) == (True, "live", True, True)
        assert key.description
