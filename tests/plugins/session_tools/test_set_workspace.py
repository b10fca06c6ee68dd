"""`set_workspace`: nothing moves before the turn ends; then the session does, and a turn nobody sees goes on."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from ahpd import AhpdError, PermissionDenied, ToolError

from tests.plugins.session_tools.repositories import git, repository
from tests.plugins.session_tools.repositories import worktrees as linked

if TYPE_CHECKING:
    from tests.plugins.session_tools.conftest import Caller

MOVES = (
    "Workspace will be set to {} after this turn ends. End this turn now without calling more tools or replying; "
    "the host will continue the original task automatically in the selected workspace."
)
ISOLATES = (
    "An isolated worktree will be created from {} and set as the workspace after this turn ends. End this turn "
    "now without calling more tools or replying; the host will continue the original task automatically in the "
    "isolated workspace."
)
HERE = "ahp-chat://default/here"


@pytest.fixture
def there(tmp_path: Path) -> Path:
    """A folder to move to."""
    return tmp_path


@pytest.mark.parametrize(
    ("folder", "uri"),
    [
        ("/p/a", "file:///p/a"),
        ("/p/a/", "file:///p/a"),
        ("/p/x/../a", "file:///p/a"),
        ("//p/a", "file:///p/a"),
        ("/p/a#b c?d", "file:///p/a%23b%20c%3Fd"),
        ("file:///p/a%23b", "file:///p/a%23b"),
        ("file://localhost/p/a", "file:///p/a"),
        ("FILE:///p/a", "file:///p/a"),
    ],
)
async def test_what_it_answers(caller: Caller, folder: str, uri: str) -> None:
    answer = await caller.text("set_workspace", workspaceFolder=folder, isolation=False)
    assert answer == MOVES.format(uri)
    answer = await caller.text("set_workspace", workspaceFolder=folder, isolation=True)
    assert answer == ISOLATES.format(uri)


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ({}, "workspaceFolder must be a non-empty string."),
        ({"workspaceFolder": " ", "isolation": 1}, "workspaceFolder must be a non-empty string."),
        *(
            (
                {"workspaceFolder": folder, "isolation": False},
                "workspaceFolder must be an absolute local path or file URI.",
            )
            for folder in (
                "p/a",
                "~/a",
                "C:\\a",
                "http://x/a",
                "file://server/a",
                "file:///a?b",
                "file:///a#b",
                "file:a",
            )
        ),
        ({"workspaceFolder": "/a"}, "isolation must be a boolean."),
        ({"workspaceFolder": "/a", "isolation": "no"}, "isolation must be a boolean."),
    ],
)
async def test_refusals(caller: Caller, given: dict[str, Any], rule: str) -> None:
    with pytest.raises(ToolError) as refused:
        await caller.text("set_workspace", **given)
    assert str(refused.value) == f"Invalid set_workspace input: {rule}"
    assert caller.host.waiting == {}


async def test_it_needs_a_turn(caller: Caller) -> None:
    caller.turn = None
    with pytest.raises(ToolError) as refused:
        await caller.text("set_workspace", workspaceFolder="", isolation=False)
    assert str(refused.value) == "set_workspace must run from an active chat turn."


async def test_nothing_moves_before_the_turn_ends(caller: Caller, there: Path) -> None:
    await caller.text("set_workspace", workspaceFolder=str(there), isolation=False)
    assert caller.host.asked == []
    await caller.host.end_turn(HERE)
    move, message = caller.host.asked
    assert move == (
        "set_workspace",
        {"session": "echo:/here", "directory": there.as_uri(), "principal": "user:ana"},
    )
    assert message[0] == "send"
    assert there.as_uri() in message[1]["text"]
    assert message[1]["chat"] == HERE
    assert (message[1]["kind"], message[1]["principal"]) == ("systemNotification", "user:ana")
    assert message[1]["meta"] == {
        "vscode.chat.requestHiddenFromTranscript": True,
        "vscode.chat.systemInitiatedLabel": "Continue in Requested Workspace",
        "vscode.chat.workspaceContinuation": True,
    }


async def test_the_task_goes_on_with_the_same_model(caller: Caller, there: Path) -> None:
    caller.host.chats[HERE] = {"activeTurn": {"message": {"text": "x", "model": {"id": "echo-2"}}}}
    await caller.text("set_workspace", workspaceFolder=str(there), isolation=False)
    caller.host.chats[HERE] = {"turns": [{"id": "t1", "state": "complete"}]}
    await caller.host.end_turn(HERE)
    assert caller.host.did("send")[0]["model"] == "echo-2"


async def test_the_last_call_wins(caller: Caller, there: Path) -> None:
    for folder in ("/p/b", str(there)):
        await caller.text("set_workspace", workspaceFolder=folder, isolation=False)
    await caller.host.end_turn(HERE)
    assert [given["directory"] for given in caller.host.did("set_workspace")] == [there.as_uri()]


@pytest.mark.parametrize(("state", "moves"), [("complete", 1), ("error", 1), ("cancelled", 0)])
async def test_a_cancelled_turn_moves_nothing(caller: Caller, state: str, moves: int, there: Path) -> None:
    await caller.text("set_workspace", workspaceFolder=str(there), isolation=False)
    caller.host.chats[HERE] = {"turns": [{"id": "t0", "state": "cancelled"}, {"id": "t1", "state": state}]}
    await caller.host.end_turn(HERE)
    assert len(caller.host.did("set_workspace")) == moves
    assert len(caller.host.did("send")) == moves


async def test_somebody_who_may_not_read_moves_all_the_same(caller: Caller, there: Path) -> None:
    caller.host.refuses_state = PermissionDenied("ana may not chat:turns here")
    await caller.text("set_workspace", workspaceFolder=str(there), isolation=False)
    await caller.host.end_turn(HERE)
    assert len(caller.host.did("set_workspace")) == 1


async def test_a_move_that_fails_is_reported_by_the_agent(caller: Caller, there: Path) -> None:
    caller.host.failing["set_workspace"] = AhpdError("A turn is running.")
    await caller.text("set_workspace", workspaceFolder=str(there), isolation=False)
    await caller.host.end_turn(HERE)
    [sent] = caller.host.did("send")
    assert f"was not moved to {there.as_uri()} and" in sent["text"]
    assert "A turn is running." in sent["text"]
    assert "Do not carry on" in sent["text"]
    assert sent["kind"] == "systemNotification"
    assert sent["meta"]["vscode.chat.requestHiddenFromTranscript"] is True
    assert "vscode.chat.workspaceContinuation" not in sent["meta"]


async def test_isolated(caller: Caller, tmp_path: Path) -> None:
    repo = repository(Path(os.path.realpath(tmp_path)) / "repo")
    old = {"repository": "/r", "path": "/r.worktrees/x", "branch": "x"}
    caller.host.metas["echo:/here"] = {"ahpd.worktrees": [old]}
    await caller.text("set_workspace", workspaceFolder=str(repo / "inner"), isolation=True)
    assert linked(repo) == []
    await caller.host.end_turn(HERE)
    [tree] = linked(repo)
    assert tree.name.startswith("about-here-")
    assert caller.host.did("set_workspace")[0]["directory"] == (tree / "inner").as_uri()
    assert [kept["path"] for kept in caller.host.metas["echo:/here"]["ahpd.worktrees"]] == [
        "/r.worktrees/x",
        str(tree),
    ]
    assert (tree / "inner").as_uri() in caller.host.did("send")[0]["text"]


async def test_isolated_in_no_repository(caller: Caller, tmp_path: Path) -> None:
    await caller.text("set_workspace", workspaceFolder=str(tmp_path), isolation=True)
    await caller.host.end_turn(HERE)
    assert caller.host.did("set_workspace") == []
    [sent] = caller.host.did("send")
    assert f"{tmp_path} is not a git repository, so it has no worktrees" in sent["text"]


async def test_no_worktree_is_left_of_a_move_that_fails(caller: Caller, tmp_path: Path) -> None:
    repo = repository(tmp_path / "repo")
    caller.host.failing["set_workspace"] = AhpdError("no")
    await caller.text("set_workspace", workspaceFolder=str(repo), isolation=True)
    await caller.host.end_turn(HERE)
    assert linked(repo) == []
    assert git(repo, "branch", "--format=%(refname:short)") == "main"
    assert "echo:/here" not in caller.host.metas


async def test_a_session_that_is_gone_by_then_is_no_trouble_of_ours(caller: Caller, there: Path) -> None:
    assert caller.session is not None
    caller.session = replace(caller.session, uri="echo:/gone")
    await caller.text("set_workspace", workspaceFolder=str(there), isolation=False)
    caller.host.raises = AhpdError("No chat there")
    with pytest.raises(AhpdError, match="No chat there"):
        await caller.host.end_turn(HERE)


async def test_a_folder_that_is_not_there(caller: Caller) -> None:
    await caller.text("set_workspace", workspaceFolder="/nowhere/at all", isolation=False)
    await caller.host.end_turn(HERE)
    assert caller.host.did("set_workspace") == []
    assert "/nowhere/at all is not a folder on this host." in caller.host.did("send")[0]["text"]
