"""What peers of 0.8 and 0.7 are sent: each difference, both ways, and nothing changed that need not be."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from ahpd.protocol import ACTIONS, client_actions
from ahpd.protocol.downlevel import Older, older

ERROR = {"errorType": "agentFailed", "message": "away"}
PART = {"kind": "error", "error": ERROR, "resumable": True}
TEXT = {"kind": "markdown", "id": "1", "content": "half"}
FAILED = {"id": "t", "message": {"text": "x"}, "responseParts": [TEXT, PART], "state": "error"}
OLD_FAILED = {"id": "t", "message": {"text": "x"}, "responseParts": [TEXT], "state": "error", "error": ERROR}
WENT_ON = {**FAILED, "responseParts": [PART, TEXT], "state": "complete"}
DONE = {"id": "d", "message": {"text": "x"}, "responseParts": [TEXT], "state": "complete"}
SCOPES = [{"kind": "workspace", "uri": "file:///w", "enabled": False}, {"kind": "global", "enabled": True}]
PLUGIN = {
    "type": "plugin",
    "id": "p",
    "enablement": SCOPES,
    "children": [{"type": "mcpServer", "id": "m"}, {"type": "skill", "id": "s", "enabled": False}],
}
OLD_PLUGIN = {
    "type": "plugin",
    "id": "p",
    "enabled": False,
    "children": [
        {"type": "mcpServer", "id": "m", "enabled": True},
        {"type": "skill", "id": "s", "enabled": False},
    ],
}


def words(version: str) -> Older:
    found = older(version)
    assert found is not None
    return found


def envelope(action: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"channel": "echo:/x", "action": action, "serverSeq": 7, **more}


@pytest.fixture(params=["0.7.0", "0.7.9", "0.8.0", "0.8.1"])
def each(request: pytest.FixtureRequest) -> Older:
    return words(request.param)


@pytest.mark.parametrize("version", ["0.9.0", "0.9.7", "1.0.0", "1.0.3"])
def test_the_two_present_lines_are_sent_what_is_held(version: str) -> None:
    assert older(version) is None


def test_peers_of_one_line_share_what_was_made_for_them() -> None:
    assert words("0.7.0") is words("0.7.3")
    assert words("0.8.0") is words("0.8.2")
    assert words("0.7.0") is not words("0.8.0")


@pytest.mark.parametrize(
    ("turn", "shown"),
    [(FAILED, OLD_FAILED), (WENT_ON, {**WENT_ON, "responseParts": [TEXT]}), (DONE, DONE)],
    ids=["failed", "failed and went on", "complete"],
)
def test_an_error_stands_beside_the_parts_of_its_turn(each: Older, turn: Any, shown: Any) -> None:
    before = copy.deepcopy(turn)
    assert each.state("chat", {"turns": [DONE, turn], "title": "t"}) == {"turns": [DONE, shown], "title": "t"}
    loaded = {"type": "chat/turnsLoaded", "turns": [turn]}
    assert each.action(loaded) == {"type": "chat/turnsLoaded", "turns": [shown]}
    assert turn == before


def test_a_turn_that_was_taken_up_again_shows_no_part_of_a_strange_kind(each: Older) -> None:
    active = {"id": "t", "responseParts": [PART, TEXT]}
    assert each.state("chat", {"turns": [], "activeTurn": active})["activeTurn"]["responseParts"] == [TEXT]


def test_a_failure_is_told_without_its_part(each: Older) -> None:
    action = {"type": "chat/error", "turnId": "t", "duration": 5, "part": PART}
    told = each.envelope(envelope(action))
    assert told == envelope({"type": "chat/error", "turnId": "t", "duration": 5, "error": ERROR})


def test_a_session_that_could_not_be_started(each: Older) -> None:
    assert each.state("session", {"lifecycle": "failed"}) == {"lifecycle": "creationFailed"}
    ready = {"lifecycle": "ready", "title": "t"}
    assert each.state("session", ready) is ready


@pytest.mark.parametrize("line", ["0.7.0", "0.8.0"])
def test_an_action_that_came_later_is_not_sent(line: str) -> None:
    for name, rule in ACTIONS.items():
        sent = words(line).envelope(envelope({"type": name})) is not None
        assert sent is rule.known_to(line), name
    for name in ("chat/turnResume", "session/chatsReordered", "chat/movableChanged", "chat/isReadChanged"):
        assert words(line).envelope(envelope({"type": name})) is None
    assert (words(line).envelope(envelope({"type": "session/workingDirectoryReplaced"})) is None) is (line < "0.8")


def test_a_refusal_is_always_sent(each: Older) -> None:
    refused = envelope({"type": "chat/turnResume", "turnId": "t"}, rejectionReason="no")
    assert each.envelope(refused) == refused
    invented = envelope({"type": "x-mine/invented"}, rejectionReason="no")
    assert each.envelope(invented) == invented


def test_a_switch_in_place_of_decisions_before_0_8() -> None:
    seven, eight = words("0.7.0"), words("0.8.0")
    toggled = {"type": "session/customizationToggled", "id": "p", "enablement": SCOPES}
    assert seven.action(toggled) == {"type": "session/customizationToggled", "id": "p", "enabled": False}
    assert seven.action({**toggled, "enablement": []})["enabled"] is True
    changed = {"type": "session/customizationsChanged", "customizations": [PLUGIN]}
    assert seven.action(changed)["customizations"] == [OLD_PLUGIN]
    updated = {"type": "session/customizationUpdated", "customization": PLUGIN}
    assert seven.action(updated)["customization"] == OLD_PLUGIN
    assert seven.state("session", {"customizations": [PLUGIN]}) == {"customizations": [OLD_PLUGIN]}
    assert seven.state("root", {"agents": [{"customizations": [PLUGIN]}]})["agents"][0] == {
        "customizations": [OLD_PLUGIN]
    }
    for action in (toggled, changed, updated):
        assert eight.action(action) is action


def test_a_switch_is_read_as_a_decision_for_the_session() -> None:
    sent = {"type": "session/customizationToggled", "id": "p", "enabled": False}
    held = words("0.7.0").held(sent)
    assert held["enablement"] == [{"kind": "session", "enabled": False}]
    assert words("0.7.0").action(held) == sent


def test_everything_else_is_handed_on_as_it_is(each: Older) -> None:
    changed = {"chat/error", "chat/turnsLoaded"}
    for name in ACTIONS.keys() - changed:
        action = {"type": name}
        assert each.action(action) is action or name.startswith(("session/customization", "root/agents"))
    for name in client_actions(ACTIONS):
        action = {"type": name, "enabled": "yes"}
        assert each.held(action) is action
    root = {"agents": [{"provider": "echo"}]}
    assert each.state("root", root) is root
    assert each.notice("root/sessionAdded", {"summary": {}}) == {"summary": {}}


@pytest.mark.parametrize("odd", [None, 3, "x", [], {}, [None, 3, {"responseParts": 4}]])
def test_what_has_another_shape_is_left_alone(each: Older, odd: Any) -> None:
    each.action({"type": "chat/error", "part": odd})
    each.action({"type": "chat/turnsLoaded", "turns": odd})
    each.action({"type": "session/customizationToggled", "enablement": odd})
    each.action({"type": "session/customizationsChanged", "customizations": odd})
    each.state("chat", {"turns": odd, "activeTurn": odd if isinstance(odd, dict) else None})
    each.state("session", {"customizations": odd, "lifecycle": odd})
    each.held({"type": "session/customizationToggled", "enabled": odd})
