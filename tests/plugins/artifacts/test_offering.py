"""The three tools as they are offered: order, schemas, flags and words."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema_rs
import pytest
from ahpd import Offer, Principal, Tool, Wording
from ahpd_artifacts import ahpd_config_keys, ahpd_tools

if TYPE_CHECKING:
    from tests.plugins.artifacts.conftest import Caller

NAMES = ["add_artifact_or_reference", "remove_artifact_or_reference", "list_artifacts_and_references"]
TYPES = ["pullRequest", "issue", "commit", "website", "file", "resource"]
REFERENCE = Path(__file__).parents[4] / "shared" / "spec" / "tool-schemas.json"


def tools() -> dict[str, Tool]:
    return {tool.name: tool for tool in ahpd_tools()}


def bare(schema: Any) -> Any:
    """A schema without its descriptions."""
    if isinstance(schema, dict):
        return {key: bare(value) for key, value in schema.items() if key != "description"}
    return schema


def test_the_order_and_the_flags() -> None:
    assert list(tools()) == NAMES
    assert [tool.defer for tool in tools().values()] == [False, True, True]
    assert [tool.annotations for tool in tools().values()] == [
        {"readOnlyHint": False},
        {"readOnlyHint": False, "destructiveHint": True},
        {"readOnlyHint": True},
    ]
    for tool in tools().values():
        assert (tuple(tool.grants), tool.effects, tool.advanced, tool.scope) == ((), None, False, "session")
        assert tool.checks_input


def test_schemas() -> None:
    text = {"type": "string"}
    item = {
        "type": "object",
        "properties": {
            "type": {**text, "enum": TYPES},
            "label": text,
            "isArtifact": {"type": "boolean"},
            "link": text,
            "uri": text,
            "commitHash": text,
        },
        "required": ["type", "label", "isArtifact"],
    }
    schemas = [bare(tool.input_schema()) for tool in tools().values()]
    assert schemas == [
        {
            "type": "object",
            "properties": {"items": {"type": "array", "minItems": 1, "items": item}},
            "required": ["items"],
        },
        {"type": "object", "properties": {"id": text}, "required": ["id"]},
        {"type": "object", "properties": {}},
    ]
    for tool in tools().values():
        jsonschema_rs.meta.validate(tool.input_schema())


@pytest.mark.skipif(not REFERENCE.exists(), reason="the schemas are not beside this checkout")
@pytest.mark.parametrize("name", NAMES)
def test_the_schemas_agree_with_the_written_ones(name: str) -> None:
    written = json.loads(REFERENCE.read_text())[name]
    assert bare(tools()[name].input_schema()) == bare(written["inputSchema"])
    assert tools()[name].title == written["flags"]["title"]


def test_the_instruction_tells_when_to_record() -> None:
    tool = tools()["add_artifact_or_reference"]
    told = (tool.instruction or "") + tool.description
    for word in ("optional", "inventory", "inspected or reviewed", "one call", "log", "cache", "scratch", *NAMES):
        assert word in told, word
    assert all(tools()[name].instruction is None for name in NAMES[1:])


def test_compact_words_leave_everything_else_alone(caller: Caller) -> None:
    """Product page "Tools", "The wording a session is given"."""
    assert [key.name for key in ahpd_config_keys()] == ["artifactToolsCompactPrompts"]
    [key] = ahpd_config_keys()
    assert (key.daemon, key.in_root, key.applies, key.default) == (True, True, "live", False)
    offer = Offer(Principal("user:ana", "ana"), caller.call("x", {}).session)
    tool = tools()["add_artifact_or_reference"]
    assert tool.for_session is not None
    assert tool.for_session(offer) is None
    words = tool.for_session(replace(offer, settings={"artifactToolsCompactPrompts": True}))
    assert isinstance(words, Wording)
    assert words is tool.compact
    assert (words.title, words.parameters, words.required) == (None, None, None)
    assert words.instruction is not None
    assert tool.instruction is not None
    assert words.description is not None
    assert len(words.instruction) < len(tool.instruction) / 2
    assert "Call `add_artifact_or_reference`" in words.description
    assert all(name in words.instruction for name in NAMES)
    assert [tools()[name].for_session for name in NAMES[1:]] == [None, None]
