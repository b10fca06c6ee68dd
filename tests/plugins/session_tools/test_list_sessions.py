"""`list_sessions` and `get_current_session`: product page "Tools", "The host's own tools"."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from ahpd import Principal, ToolError
from ahpd_session_tools.rows import row

if TYPE_CHECKING:
    from tests.plugins.session_tools.conftest import Caller, FakeHost


def test_a_whole_row() -> None:
    summary = {
        "resource": "echo:/a",
        "provider": "echo",
        "title": "Doors",
        "status": 1 | 64,
        "activity": "Reading",
        "workingDirectories": ["file:///a", "file:///b"],
        "project": {"uri": "file:///a", "displayName": "Alpha"},
        "createdAt": "2026-01-01T00:00:00.000Z",
        "modifiedAt": "2026-01-02T00:00:00.000Z",
        "changes": {"files": 2},
        "chats": [
            {"resource": "ahp-chat://c2/x", "title": "Side"},
            {"resource": "ahp-chat://default/x", "title": "Doors"},
        ],
        "defaultChat": "ahp-chat://default/x",
        "_meta": {
            "git": {"branchName": "fix", "baseBranchName": "main", "outgoingChanges": 0, "other": 1},
            "github": {
                "owner": "o",
                "repo": "r",
                "pullRequestUrls": ["https://x/3", "https://x/2", "https://x/1"],
                "initialPullRequestUrls": ["https://x/3", "https://x/2"],
                "associatedPullRequestUrls": ["https://x/2"],
            },
        },
    }
    made = row(summary)
    assert made == {
        "session": "echo:/a",
        "openLink": "agent-host-session://echo/a",
        "title": "Doors",
        "status": "idle,archived",
        "activity": "Reading",
        "workingDirectory": "file:///a",
        "workingDirectories": ["file:///a", "file:///b"],
        "project": "Alpha",
        "projectUri": "file:///a",
        "unread": True,
        "createdAt": "2026-01-01T00:00:00.000Z",
        "modifiedAt": "2026-01-02T00:00:00.000Z",
        "changes": {"files": 2},
        "git": {"branch": "fix", "baseBranch": "main", "ahead": 0},
        "github": {"owner": "o", "repo": "r", "pullRequestUrl": "https://x/2"},
        "chats": [
            {"title": "Doors", "openLink": "agent-host-session://echo/a"},
            {"title": "Side", "openLink": "agent-host-session://echo/a?chat=c2"},
        ],
    }
    assert list(made)[:4] == ["session", "openLink", "title", "status"]


def test_a_bare_row() -> None:
    assert row({"resource": "echo:/a", "title": "", "status": 32, "chats": [{"resource": "x:/y"}]}) == {
        "session": "echo:/a",
        "openLink": "agent-host-session://echo/a",
    }


@pytest.mark.parametrize(
    ("bits", "words"),
    [
        (1, "idle"),
        (2, "error"),
        (8, "inProgress"),
        (24, "inputNeeded"),
        (2 | 64, "error,archived"),
        (1 | 32, "idle"),
    ],
)
def test_status_words(bits: int, words: str) -> None:
    assert row({"resource": "echo:/a", "status": bits})["status"] == words


def test_a_row_with_no_status_is_not_unread() -> None:
    assert "unread" not in row({"resource": "echo:/a"})


@pytest.fixture
def rows(host: FakeHost) -> None:
    host.add(
        "echo:/alpha",
        title="Mend the Door",
        workingDirectories=["file:///src/alpha/my%20dir"],
        project={"uri": "file:///src/alpha", "displayName": "Alpha"},
        status=8 | 32,
        createdAt="2026-02-01T00:00:00.000Z",
        modifiedAt="2026-02-05T00:00:00.000Z",
        changes={"files": 0, "additions": 3},
    )
    host.add(
        "robin:/beta",
        title="Paint the wall",
        workingDirectories=["file:///src/beta"],
        status=24,
        createdAt="2026-03-01T00:00:00.000Z",
        modifiedAt="2026-03-05T00:00:00.000Z",
        changes={"files": 0},
        _meta={"github": {"pullRequestUrls": ["https://x/1"]}},
    )
    host.add(
        "echo:/gone",
        title="Old door",
        status=1 | 32 | 64,
        createdAt="2025-01-01T00:00:00.000Z",
        modifiedAt="2026-04-01T00:00:00.000Z",
        _meta={
            "github": {"pullRequestUrls": ["https://x/1"], "initialPullRequestUrls": ["https://x/1"]},
        },
    )


@pytest.mark.usefixtures("rows")
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, ["robin:/beta", "echo:/alpha", "echo:/here"]),
        ({"status": []}, ["robin:/beta", "echo:/alpha", "echo:/here"]),
        ({"status": ["inputNeeded", "idle"]}, ["robin:/beta", "echo:/here"]),
        ({"status": ["inProgress"]}, ["echo:/alpha"]),
        ({"status": ["archived"]}, ["echo:/gone"]),
        ({"includeArchived": True}, ["echo:/gone", "robin:/beta", "echo:/alpha", "echo:/here"]),
        ({"agent": "robin"}, ["robin:/beta"]),
        ({"agent": "nobody"}, []),
        ({"title": "DOOR"}, ["echo:/alpha"]),
        ({"workspace": "alpha"}, ["echo:/alpha"]),
        ({"workspace": "file:///src/alpha"}, ["echo:/alpha"]),
        ({"workspace": "/src/Alpha/my dir/"}, ["echo:/alpha"]),
        ({"workspace": "file:///src/alpha/my dir"}, ["echo:/alpha"]),
        ({"workspace": "/src"}, []),
        ({"workspace": "/"}, []),
        ({"path": "/src"}, ["robin:/beta", "echo:/alpha"]),
        ({"path": "/src/alpha/../beta"}, ["robin:/beta"]),
        ({"path": "/src/bet"}, []),
        ({"path": "/"}, ["robin:/beta", "echo:/alpha", "echo:/here"]),
        ({"withChanges": True}, ["echo:/alpha"]),
        ({"withChanges": False}, ["robin:/beta", "echo:/alpha", "echo:/here"]),
        ({"unread": True}, ["robin:/beta"]),
        ({"withPullRequest": True, "includeArchived": True}, ["robin:/beta"]),
        ({"createdAfter": "2026-02-01T00:00:00Z"}, ["robin:/beta", "echo:/alpha"]),
        ({"createdBefore": "2026-02-01T01:00:00+01:00"}, ["echo:/alpha", "echo:/here"]),
        ({"createdAfter": "2026-02-01", "createdBefore": "2026-02-28"}, ["echo:/alpha"]),
        ({"modifiedAfter": "2026-03-05T00:00:00"}, ["robin:/beta"]),
        ({"modifiedBefore": "2026-01-31"}, ["echo:/here"]),
        ({"limit": 1}, ["robin:/beta"]),
        ({"limit": 2.0}, ["robin:/beta", "echo:/alpha"]),
        ({"limit": 9999}, ["robin:/beta", "echo:/alpha", "echo:/here"]),
        ({"session": "echo:/gone"}, ["echo:/gone"]),
        ({"session": "agent-host-session://echo/gone?chat=x"}, ["echo:/gone"]),
        ({"session": "echo:/gone", "agent": "robin", "limit": 0}, ["echo:/gone"]),
        ({"session": "robin:/gone"}, []),
        ({"nonsense": {"a": 1}, "worktree": True}, ["robin:/beta", "echo:/alpha", "echo:/here"]),
    ],
)
async def test_filters(caller: Caller, given: dict[str, Any], expected: list[str]) -> None:
    assert await caller.listed(**given) == expected


async def test_the_same_time_is_sorted_by_name(caller: Caller) -> None:
    caller.host.rows.clear()
    for name in "cab":
        caller.host.add(f"echo:/{name}")
    assert await caller.listed() == ["echo:/a", "echo:/b", "echo:/c"]


async def test_a_row_with_no_time_comes_last(caller: Caller) -> None:
    caller.host.add("echo:/a", modifiedAt="", createdAt="soon")
    assert await caller.listed() == ["echo:/here", "echo:/a"]
    assert await caller.listed(createdAfter="1999-01-01") == ["echo:/here"]


async def test_fifty_rows_unless_asked_for_more_and_never_more_than_200(caller: Caller) -> None:
    for number in range(250):
        caller.host.add(f"echo:/{number}")
    assert len(await caller.listed()) == 50
    assert len(await caller.listed(limit=60)) == 60
    assert len(await caller.listed(limit=1000)) == 200


async def test_nobody_may_read_so_nothing_is_listed(caller: Caller) -> None:
    caller.principal = Principal("user:bo", "bo", frozenset({"session:write"}))
    assert await caller.text("list_sessions") == '{"sessions":[]}'


WRONG_TIME = "must be an ISO-8601 timestamp string."
NO_TIME = "must be a valid ISO-8601 timestamp (e.g. 2025-01-31T00:00:00Z)."


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ({"withChanges": "yes"}, "withChanges must be a boolean."),
        ({"unread": None}, "unread must be a boolean."),
        ({"withPullRequest": 1}, "withPullRequest must be a boolean."),
        ({"includeArchived": "no"}, "includeArchived must be a boolean."),
        ({"status": "idle"}, "status must be an array of status names."),
        (
            {"status": ["idle", "busy", 3]},
            "unknown status value(s) busy, 3. Valid values: idle, inProgress, inputNeeded, error, archived.",
        ),
        ({"createdAfter": 5}, f"createdAfter {WRONG_TIME}"),
        ({"createdBefore": "soon"}, f"createdBefore {NO_TIME}"),
        ({"modifiedAfter": None}, f"modifiedAfter {WRONG_TIME}"),
        ({"modifiedBefore": ""}, f"modifiedBefore {NO_TIME}"),
        ({"workspace": ""}, "workspace must be a non-empty string."),
        ({"path": 3}, "path must be a non-empty string."),
        ({"title": " "}, "title must be a non-empty string."),
        ({"agent": None}, "agent must be a non-empty string."),
        ({"session": ""}, "session must be a non-empty string."),
        ({"limit": 0}, "limit must be a positive number."),
        ({"limit": True}, "limit must be a positive number."),
        ({"limit": float("nan")}, "limit must be a positive number."),
        ({"limit": "5"}, "limit must be a positive number."),
    ],
)
async def test_refusals(caller: Caller, given: dict[str, Any], rule: str) -> None:
    with pytest.raises(ToolError) as refused:
        await caller.text("list_sessions", **given)
    assert str(refused.value) == f"Invalid list_sessions input: {rule}"


async def test_the_current_session(caller: Caller) -> None:
    assert await caller.json("get_current_session") == row(caller.host.rows[0])


async def test_the_current_session_without_a_row(caller: Caller) -> None:
    caller.host.rows.clear()
    assert await caller.text("get_current_session") == (
        '{"session":"echo:/here","openLink":"agent-host-session://echo/here"}'
    )


async def test_no_current_session_at_a_door(caller: Caller) -> None:
    caller.leave()
    with pytest.raises(ToolError, match="must run inside a session"):
        await caller.text("get_current_session")
