"""`delete_session`: who may, as whom, and what it refuses. Product page "Tools", section "Grants"."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from ahpd import PermissionDenied, Principal, ToolError

if TYPE_CHECKING:
    from tests.plugins.session_tools.conftest import Caller

BO = Principal("user:bo", "bo", frozenset({"session:read", "session:write"}))
ANSWER = "Deleted session echo:/other. Reply with one short sentence confirming the session was deleted."


@pytest.fixture(autouse=True)
def other(caller: Caller) -> None:
    """Another session of ana's."""
    caller.host.add("echo:/other")
    caller.host.views["echo:/other"] = replace(caller.host.views["echo:/other"], owner="user:ana")


@pytest.mark.parametrize("named", ["echo:/other", "agent-host-session://echo/other"])
async def test_by_its_owner(caller: Caller, named: str) -> None:
    assert await caller.text("delete_session", session=named) == ANSWER
    assert caller.host.asked == [("delete_session", {"session": "echo:/other", "principal": "user:ana"})]


@pytest.mark.parametrize(
    "principal",
    [
        replace(BO, grants=frozenset({"session:read", "session:*"})),
        replace(BO, grants=frozenset({"session:read", "*:*"})),
        replace(BO, is_root=True),
    ],
)
async def test_by_somebody_who_may_everything(caller: Caller, principal: Principal) -> None:
    caller.principal = principal
    assert await caller.text("delete_session", session="echo:/other") == ANSWER


async def test_by_somebody_else(caller: Caller) -> None:
    caller.principal = BO
    with pytest.raises(PermissionDenied) as refused:
        await caller.text("delete_session", session="echo:/other")
    assert str(refused.value) == "Only the session's owner can delete it."
    assert caller.host.asked == []


async def test_a_session_nobody_owns(caller: Caller) -> None:
    caller.principal = BO
    caller.host.views["echo:/other"] = replace(caller.host.views["echo:/other"], owner=None)
    assert await caller.text("delete_session", session="echo:/other") == ANSWER


async def test_with_no_turn_running_it_is_the_calling_sessions_owner(caller: Caller) -> None:
    caller.turn = None
    caller.host.people["user:ana"] = caller.principal
    caller.principal = replace(BO, is_root=True)
    await caller.text("delete_session", session="echo:/other")
    assert caller.host.did("delete_session")[0]["principal"] == "user:ana"


async def test_from_a_door_it_is_the_caller(caller: Caller) -> None:
    caller.leave()
    assert await caller.text("delete_session", session="echo:/other") == ANSWER
    caller.host.add("echo:/other")
    caller.principal = BO
    caller.host.views["echo:/other"] = replace(caller.host.views["echo:/other"], owner="user:ana")
    with pytest.raises(PermissionDenied, match="Only the session's owner"):
        await caller.text("delete_session", session="echo:/other")


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ({}, "session must be a non-empty string."),
        ({"session": "echo:/none"}, "session must match the URI of a known session (see list_sessions)."),
        ({"session": "echo:/here"}, "refusing to delete the current session."),
        ({"session": "agent-host-session://echo/here"}, "refusing to delete the current session."),
    ],
)
async def test_refusals(caller: Caller, given: dict[str, Any], rule: str) -> None:
    with pytest.raises(ToolError) as refused:
        await caller.text("delete_session", **given)
    assert str(refused.value) == f"Invalid delete_session input: {rule}"
    assert caller.host.asked == []


async def test_one_that_is_only_listed(caller: Caller) -> None:
    caller.host.add("echo:/listed")
    del caller.host.views["echo:/listed"]
    answer = await caller.text("delete_session", session="echo:/listed")
    assert answer.startswith("Deleted session echo:/listed.")
