"""Worktrees, with a real git: when one is made, where, what of it stays, and what never does."""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trio
from ahpd import AhpdError, ToolError
from ahpd_session_tools import worktrees

from tests.plugins.session_tools.repositories import branches, git, repository
from tests.plugins.session_tools.repositories import worktrees as linked

if TYPE_CHECKING:
    from tests.plugins.session_tools.conftest import Caller

ALONE = {"prompt": "Do it", "title": "Fix: the Login!", "relationship": "independent"}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The path as git spells it, which on some machines goes through no symbolic link."""
    return Path(os.path.realpath(tmp_path))


@pytest.fixture
def repo(home: Path) -> Path:
    return repository(home / "repo")


def works_in(caller: Caller, *directories: Path) -> None:
    """Let the calling session work there."""
    assert caller.session is not None
    uris = tuple(directory.as_uri() for directory in directories)
    caller.session = replace(caller.session, working_directories=uris)
    caller.host.rows[0]["workingDirectories"] = list(uris)


def started_in(caller: Caller) -> list[str]:
    return [uri.removeprefix("file://") for uri in caller.host.did("create_session")[0]["working_directories"]]


async def test_a_worktree_beside_the_repository(caller: Caller, repo: Path) -> None:
    await caller.text("create_session", **ALONE, workspace=str(repo), worktree=True)
    [tree] = linked(repo)
    assert started_in(caller) == [str(tree)]
    assert tree.parent == repo.with_name("repo.worktrees")
    assert tree.name.startswith("fix-the-login-")
    assert git(tree, "branch", "--show-current") == f"ahpd-{tree.name}"
    assert git(tree, "status", "--porcelain") == ""
    assert caller.host.metas["echo:/new"] == {
        "ahpd.worktrees": [{"repository": str(repo), "path": str(tree), "branch": f"ahpd-{tree.name}"}]
    }


async def test_a_worktree_under_the_root_of_all(caller: Caller, repo: Path, home: Path) -> None:
    caller.host.present = {"worktreesRoot": str(home / "trees")}
    await caller.text("create_session", **ALONE, workspace=str(repo), worktree=True)
    [tree] = linked(repo)
    assert tree.parent == home / "trees" / "repo"


async def test_it_works_at_the_same_place_inside(caller: Caller, repo: Path) -> None:
    await caller.text("create_session", **ALONE, workspace=str(repo / "inner"), worktree=True)
    [tree] = linked(repo)
    assert started_in(caller) == [str(tree / "inner")]
    (repo / "untracked").mkdir()
    await caller.text("create_session", **ALONE, workspace=str(repo / "untracked"), worktree=True)
    assert caller.host.did("create_session")[1]["working_directories"][0].rpartition("/")[2] != "untracked"


async def test_the_other_directories_stay(caller: Caller, repo: Path, home: Path) -> None:
    works_in(caller, repo, home)
    await caller.text("create_session", **ALONE, worktree=True)
    assert started_in(caller) == [str(linked(repo)[0]), str(home)]


async def test_a_worktree_of_a_worktree_begins_where_that_is(caller: Caller, repo: Path, home: Path) -> None:
    git(repo, "worktree", "add", "-q", "-b", "side", str(home / "side"))
    git(home / "side", "commit", "-q", "--allow-empty", "-m", "two")
    await caller.text("create_session", **ALONE, workspace=str(home / "side"), worktree=True)
    tree = next(tree for tree in linked(repo) if tree.name.startswith("fix"))
    assert tree.parent == repo.with_name("repo.worktrees")
    assert git(tree, "rev-parse", "HEAD") == git(home / "side", "rev-parse", "HEAD")


async def test_in_the_callers_project_it_is_as_the_caller_has_it(caller: Caller, repo: Path) -> None:
    works_in(caller, repo)
    for workspace in ({}, {"workspace": str(repo)}, {"workspace": str(repo / "inner")}):
        await caller.text("create_session", **ALONE, **workspace)
        assert linked(repo) == []
    kept = [{"repository": "/r", "path": "/r.worktrees/x", "branch": "x"}]
    caller.host.metas["echo:/here"] = {"ahpd.worktrees": kept}
    await caller.text("create_session", **ALONE)
    assert len(linked(repo)) == 1


@pytest.mark.parametrize(("isolation", "made"), [("worktree", 1), ("folder", 0)])
async def test_an_isolation_setting_says_how_the_caller_has_it(
    caller: Caller, repo: Path, isolation: str, made: int
) -> None:
    works_in(caller, repo)
    assert caller.session is not None
    caller.session = replace(caller.session, settings={"isolation": isolation})
    await caller.text("create_session", **ALONE, workspace=str(repo / "inner"))
    assert len(linked(repo)) == made


async def test_projects_of_the_list_are_projects(caller: Caller, repo: Path, home: Path) -> None:
    other = repository(home / "other")
    works_in(caller, other)
    project = {"uri": "file:///project", "displayName": "P"}
    for uri, directory in (("echo:/a", repo), ("echo:/b", other)):
        caller.host.add(uri, project=project, workingDirectories=[directory.as_uri()])
    await caller.text("create_session", **ALONE, workspace=str(repo))
    assert linked(repo) == []


async def test_another_project_is_worked_on_in_a_worktree(caller: Caller, repo: Path, home: Path) -> None:
    works_in(caller, repository(home / "own"))
    await caller.text("create_session", **ALONE, workspace=str(repo))
    assert started_in(caller) == [str(linked(repo)[0])]


@pytest.mark.parametrize("more", [{}, {"worktree": False}])
async def test_a_folder_with_no_repository_is_a_folder(caller: Caller, home: Path, more: dict[str, Any]) -> None:
    await caller.text("create_session", **ALONE, **more, workspace=str(home))
    assert started_in(caller) == [str(home)]


async def test_no_worktree_is_the_repository_itself(caller: Caller, repo: Path, home: Path) -> None:
    git(repo, "worktree", "add", "-q", "-b", "side", str(home / "side"))
    await caller.text("create_session", **ALONE, workspace=str(home / "side" / "inner"), worktree=False)
    assert started_in(caller) == [str(repo)]


async def test_at_a_door_it_is_the_folder_unless_asked(caller: Caller, repo: Path) -> None:
    caller.leave()
    caller.host.present = {"paths": [str(repo)]}
    arguments = {"prompt": "x", "title": "y"}
    await caller.text("create_session", **arguments, workspace=str(repo))
    assert started_in(caller) == [str(repo)]
    await caller.text("create_session", **arguments, worktree=True)
    assert len(linked(repo)) == 1


@pytest.mark.parametrize("present", [{}, {"paths": []}])
async def test_no_directory_to_take_one_of(caller: Caller, present: dict[str, Any]) -> None:
    caller.leave()
    caller.host.present = present
    with pytest.raises(ToolError, match="no default directory"):
        await caller.text("create_session", prompt="x", title="y", worktree=True)


@pytest.mark.parametrize("workspace", ["/nowhere/at all", "vscode-remote://ssh/x"])
async def test_what_is_no_repository_has_no_worktrees(caller: Caller, workspace: str) -> None:
    with pytest.raises(ToolError) as refused:
        await caller.text("create_session", **ALONE, workspace=workspace, worktree=True)
    assert str(refused.value) == f"{workspace} is not a git repository, so it has no worktrees"
    assert caller.host.asked == []


async def test_a_repository_with_nothing_in_it(caller: Caller, home: Path) -> None:
    git(home, "init", "-q")
    with pytest.raises(ToolError, match=f"No worktree could be made of {home}: .*HEAD"):
        await caller.text("create_session", **ALONE, workspace=str(home), worktree=True)
    assert not Path(f"{home}.worktrees").exists()


async def test_a_bare_repository(caller: Caller, repo: Path, home: Path) -> None:
    git(home, "clone", "-q", "--bare", str(repo), "bare.git")
    await caller.text("create_session", **ALONE, workspace=str(home / "bare.git"), worktree=True)
    assert started_in(caller)[0].startswith(str(home / "bare.git.worktrees"))


@pytest.mark.parametrize("verb", ["create_session", "set_session_meta", "send"])
async def test_nothing_is_left_of_a_call_that_fails(caller: Caller, repo: Path, verb: str) -> None:
    caller.host.failing[verb] = AhpdError("no")
    with pytest.raises(AhpdError, match="no"):
        await caller.text("create_session", **ALONE, workspace=str(repo), worktree=True)
    assert linked(repo) == []
    assert branches(repo) == ["main"]
    assert not repo.with_name("repo.worktrees").exists()
    assert len(caller.host.did("delete_session")) == (verb != "create_session")


async def test_nothing_is_left_of_a_call_that_is_cancelled(
    caller: Caller, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hangs(*_: object, **__: object) -> object:
        scope.cancel()
        await trio.sleep_forever()

    monkeypatch.setattr(caller.host, "create_session", hangs)
    with trio.fail_after(5), trio.CancelScope() as scope:
        await caller.text("create_session", **ALONE, workspace=str(repo), worktree=True)
    assert scope.cancelled_caught
    assert linked(repo) == []
    assert branches(repo) == ["main"]


async def test_no_input_is_wrong_after_a_worktree_was_made(caller: Caller, repo: Path) -> None:
    for wrong in ({"model": "gpt"}, {"agent": "nobody"}, {"config": {"nope": 1}}, {"title": ""}, {"prompt": ""}):
        with pytest.raises(ToolError):
            await caller.text("create_session", **{**ALONE, **wrong}, workspace=str(repo), worktree=True)
    assert not repo.with_name("repo.worktrees").exists()


async def test_the_repositorys_hooks_do_not_run(caller: Caller, repo: Path, home: Path) -> None:
    hook = repo / ".git" / "hooks" / "post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {home}/ran\n")
    hook.chmod(hook.stat().st_mode | stat.S_IXUSR)
    await caller.text("create_session", **ALONE, workspace=str(repo), worktree=True)
    assert not (home / "ran").exists()


async def test_the_daemons_own_git_variables_mean_nothing(
    caller: Caller, repo: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_DIR", str(home / "elsewhere"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(home / "index"))
    await caller.text("create_session", **ALONE, workspace=str(repo), worktree=True)
    monkeypatch.undo()
    assert len(linked(repo)) == 1


async def test_git_is_waited_for_only_so_long(
    caller: Caller, repo: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "bin").mkdir()
    slow = home / "bin" / "git"
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{home / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setattr(worktrees, "ASK_SECONDS", 0.05)
    with trio.fail_after(5), pytest.raises(ToolError) as refused:
        await caller.text("create_session", **ALONE, workspace=str(repo), worktree=True)
    assert str(refused.value) == f"git took longer than 0.05 seconds in {repo}"


async def test_no_git_at_all(caller: Caller, repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ToolError, match="git could not be started"):
        await caller.text("create_session", **ALONE, workspace=str(repo), worktree=True)


@pytest.mark.parametrize(
    "kept",
    [None, "text", [1], ["x"], [{}], [{"repository": "/r", "path": "", "branch": "b"}], [{"path": "/p", "x": 1}]],
)
def test_a_record_of_another_shape_is_no_record(kept: object) -> None:
    assert worktrees.recorded({worktrees.META: kept}) == []


# Deleting a session takes its worktrees along


async def deleted(caller: Caller, repo: Path) -> Path:
    """Make a session in a worktree, and let it be held."""
    await caller.text("create_session", **ALONE, workspace=str(repo), worktree=True)
    [tree] = linked(repo)
    caller.host.add("echo:/new", workingDirectories=[tree.as_uri()])
    return tree


async def test_a_clean_worktree_goes_with_its_session(caller: Caller, repo: Path) -> None:
    await deleted(caller, repo)
    await caller.text("delete_session", session="echo:/new")
    assert linked(repo) == []
    assert branches(repo) == ["main"]
    assert not repo.with_name("repo.worktrees").exists()


@pytest.mark.parametrize("change", ["new file", "changed file"])
async def test_a_dirty_one_stays_and_the_log_says_so(
    caller: Caller, repo: Path, change: str, capsys: pytest.CaptureFixture[str]
) -> None:
    tree = await deleted(caller, repo)
    (tree / ("new" if change == "new file" else "inner/file")).write_text("two\n")
    await caller.text("delete_session", session="echo:/new")
    assert linked(repo) == [tree]
    said = capsys.readouterr().err
    assert "worktree kept" in said
    assert str(tree) in said


async def test_work_that_is_nowhere_else_keeps_its_branch(caller: Caller, repo: Path) -> None:
    tree = await deleted(caller, repo)
    git(tree, "commit", "-q", "--allow-empty", "-m", "two")
    await caller.text("delete_session", session="echo:/new")
    assert linked(repo) == []
    assert branches(repo) == [f"ahpd-{tree.name}", "main"]


async def test_one_another_session_works_in_stays(
    caller: Caller, repo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tree = await deleted(caller, repo)
    caller.host.add("echo:/guest", workingDirectories=[(tree / "inner").as_uri()])
    await caller.text("delete_session", session="echo:/new")
    assert linked(repo) == [tree]
    assert "another session works in it" in capsys.readouterr().err


async def test_one_that_is_gone_already_is_no_trouble(caller: Caller, repo: Path) -> None:
    tree = await deleted(caller, repo)
    git(repo, "worktree", "remove", str(tree))
    answer = await caller.text("delete_session", session="echo:/new")
    assert answer.startswith("Deleted session echo:/new.")


async def test_a_session_that_is_not_deleted_keeps_its_worktree(caller: Caller, repo: Path) -> None:
    tree = await deleted(caller, repo)
    caller.host.failing["delete_session"] = AhpdError("no")
    with pytest.raises(AhpdError, match="no"):
        await caller.text("delete_session", session="echo:/new")
    assert linked(repo) == [tree]
