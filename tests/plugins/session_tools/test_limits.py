"""The four bounds, to the letter: product page "Tools", section "Limits"."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from ahpd_session_tools import ahpd_limits

if TYPE_CHECKING:
    from tests.plugins.session_tools.conftest import Caller

ALONE = ("create_session", {"relationship": "independent"})
HERE = ("create_session", {"relationship": "currentSession"})
SEND: tuple[str, dict[str, Any]] = ("send_message", {})

SESSIONS = "Refusing to create more than 50 sessions from server tools in this session tree."
CHATS = "Refusing to create more than 50 chats from server tools in this session tree."
MESSAGES = "Refusing to send more than 100 messages from server tools in this session tree."


def refusal(caller: Caller, made: tuple[str, dict[str, Any]]) -> str | None:
    call = caller.call(made[0], **made[1])
    return next((no for limit in ahpd_limits() if (no := limit.check(call)) is not None), None)


def charge(caller: Caller, made: tuple[str, dict[str, Any]]) -> None:
    for limit in ahpd_limits():
        limit.charge(caller.call(made[0], **made[1]))


@pytest.mark.parametrize(
    ("made", "most", "says"),
    [
        (ALONE, 50, SESSIONS),
        (HERE, 50, CHATS),
        (("create_session", {}), 50, CHATS),
        (("create_chat", {}), 50, CHATS),
        (("create_chat", {"session": "echo:/other"}), 50, CHATS),
        (SEND, 100, MESSAGES),
        (("send_message", {"operation": "send", "delivery": "steer"}), 100, MESSAGES),
    ],
)
def test_counts(caller: Caller, made: tuple[str, dict[str, Any]], most: int, says: str) -> None:
    for _ in range(most):
        assert refusal(caller, made) is None
        charge(caller, made)
    assert refusal(caller, made) == says


def test_each_is_counted_for_itself(caller: Caller) -> None:
    made: tuple[str, dict[str, Any]]
    for made in (ALONE, HERE, ("create_chat", {}), SEND, SEND, SEND):
        charge(caller, made)
    assert caller.host.trees.counts == {"sessions": 1, "chats": 2, "messages": 3}


@pytest.mark.parametrize(
    "made",
    [
        ("send_message", {"operation": "replace"}),
        ("send_message", {"operation": "cancel"}),
        ("create_session", {"relationship": "nonsense"}),
        ("list_sessions", {}),
        ("get_session_context", {"relationship": "independent", "operation": "send"}),
    ],
)
def test_what_is_not_counted(caller: Caller, made: tuple[str, dict[str, Any]]) -> None:
    caller.host.trees.counts.update({"sessions": 50, "chats": 50, "messages": 100})
    caller.host.trees.depths["echo:/here"] = 9
    before = dict(caller.host.trees.counts)
    assert refusal(caller, made) is None
    charge(caller, made)
    assert caller.host.trees.counts == before


@pytest.mark.parametrize("depth", [3, 5])
def test_depth(caller: Caller, depth: int) -> None:
    caller.host.trees.depths["echo:/here"] = 2
    assert refusal(caller, ALONE) is None
    caller.host.trees.depths["echo:/here"] = depth
    assert refusal(caller, ALONE) == (
        "Refusing to create a session: recursion limit reached (max spawn depth 3). "
        f"This session was itself created {depth} level(s) deep."
    )
    assert refusal(caller, HERE) is None


@pytest.mark.parametrize("made", [ALONE, ("create_session", {}), ("create_chat", {}), SEND])
def test_a_door_is_in_no_tree(caller: Caller, made: tuple[str, dict[str, Any]]) -> None:
    caller.leave()
    caller.host.trees.counts.update({"sessions": 50, "chats": 50, "messages": 100})
    before = dict(caller.host.trees.counts)
    assert refusal(caller, made) is None
    charge(caller, made)
    assert caller.host.trees.counts == before
