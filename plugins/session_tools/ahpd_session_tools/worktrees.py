"""Git worktrees: a directory of its own for a session, on a branch of its own, beside its repository.

git runs as a child with nobody to ask, for a bounded time, and without the repository's hooks: an agent can
write those, and they would run as the host. What was made is recorded in the session's `_meta`, so that
deleting the session can take it away again. Knows nothing of calls and inputs.
"""

from __future__ import annotations

import os
import re
import secrets
import signal
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import trio
from ahpd import Log, ToolError

from ahpd_session_tools import places

META = "ahpd.worktrees"
"""Where a session's `_meta` says which worktrees were made for it."""
MAKE_SECONDS = 120.0
"""A checkout of a large repository takes this long at most."""
ASK_SECONDS = 10.0
UNDO_SECONDS = 30.0
TERM_SECONDS = 2.0
NAME_LENGTH = 40

_log = Log("ahpd.plugin.session-tools")

# Of the daemon's own environment: these would send git to another repository than the one it is given.
_REDIRECTING = {
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_COMMON_DIR",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_NAMESPACE",
    "GIT_PREFIX",
}
_UNATTENDED = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "true",
    "SSH_ASKPASS": "true",
    "GCM_INTERACTIVE": "never",
    "GIT_SSH_COMMAND": "ssh -oBatchMode=yes",
    "LC_ALL": "C",
}


@dataclass(frozen=True, slots=True)
class Worktree:
    """A worktree that was made: the main directory of its repository, where it is, and its branch."""

    repository: str
    path: str
    branch: str


@dataclass(frozen=True, slots=True)
class Site:
    """A directory inside a repository. `inside` is the way to it from the top of its working tree."""

    repository: str
    inside: str
    is_linked: bool


async def site(directory: str) -> Site | None:
    """Where in a repository a directory is; `None` when it is in none."""
    asked = ("rev-parse", "--path-format=absolute", "--git-dir", "--git-common-dir", "--show-prefix")
    answer = await _git(directory, *asked)
    if answer.code:
        return None
    own, common, prefix, *_ = [*answer.out.split("\n"), "", ""]
    is_linked = own != common
    root = common
    if os.path.basename(common) == ".git":
        root = os.path.dirname(common)
    elif not is_linked:
        # A submodule's directory is elsewhere; a bare repository has none and is its own.
        top = await _git(directory, "rev-parse", "--show-toplevel")
        root = top.out.rstrip("\n") if not top.code else common
    return Site(root, prefix.rstrip("/"), is_linked)


async def make(directory: str, title: str, root: str | None) -> tuple[Worktree, str]:
    """A new worktree at the commit `directory` is at, and the place in it to work, as a path.

    It is `<repository>.worktrees/<name>`, or `<root>/<repository's name>/<name>`.
    """
    here = await site(directory)
    if here is None:
        raise ToolError(f"{directory} is not a git repository, so it has no worktrees")
    name = f"{_slug(title)}-{secrets.token_hex(4)}"
    folder = Path(root, os.path.basename(here.repository)) if root else Path(f"{here.repository}.worktrees")
    # No slash in the branch: a branch called `ahpd` must not be in its way.
    tree = Worktree(here.repository, str(folder / name), f"ahpd-{name}")
    try:
        add = ("worktree", "add", "-b", tree.branch, "--", tree.path)
        answer = await _git(directory, *add, seconds=MAKE_SECONDS)
        if answer.code:
            raise ToolError(f"No worktree could be made of {directory}: {answer.complaint}")
    except BaseException:
        await discard(tree)
        raise
    within = os.path.join(tree.path, here.inside)
    return tree, within if here.inside and await trio.Path(within).is_dir() else tree.path


async def discard(tree: Worktree) -> None:
    """Take back a worktree nobody has worked in, and whatever there is of one that was not finished."""
    with trio.move_on_after(UNDO_SECONDS) as scope:
        scope.shield = True
        with suppress(ToolError):
            await _git(tree.repository, "worktree", "remove", "--force", "--", tree.path)
            await _git(tree.repository, "branch", "-D", "--", tree.branch)
        _remove_empty_folder(tree)


async def remove_clean(tree: Worktree) -> None:
    """Remove a worktree that holds nothing uncommitted, and its branch where that is merged; keep any other.

    Which of them happened is said in the log.
    """
    if not await trio.Path(tree.path).is_dir():
        return
    try:
        answer = await _git(tree.repository, "worktree", "remove", "--", tree.path, seconds=UNDO_SECONDS)
        if answer.code:
            _log.warning("worktree kept", path=tree.path, why=answer.complaint)
            return
        _log.info("worktree removed", path=tree.path)
        if (await _git(tree.repository, "branch", "-d", "--", tree.branch)).code:
            _log.info("branch kept", branch=tree.branch, repository=tree.repository)
    except ToolError as error:
        _log.warning("worktree kept", path=tree.path, why=error.sentence)
    _remove_empty_folder(tree)


async def remove_unused(trees: Iterable[Worktree], directories: Iterable[str]) -> None:
    """`remove_clean` those in which none of these directories is."""
    used = [places.place(directory) for directory in directories]
    for tree in trees:
        if any(one == tree.path or one.startswith(tree.path + "/") for one in used):
            _log.warning("worktree kept", path=tree.path, why="another session works in it")
        else:
            await remove_clean(tree)


def recorded(meta: Mapping[str, Any]) -> list[Worktree]:
    """The worktrees a session's `_meta` tells of; entries of another shape are skipped."""
    entries = meta.get(META)
    found = []
    for entry in entries if isinstance(entries, Sequence) and not isinstance(entries, str) else ():
        with suppress(TypeError):
            tree = Worktree(**entry)
            if all(isinstance(part, str) and part for part in asdict(tree).values()):
                found.append(tree)
    return found


def record(trees: Iterable[Worktree]) -> list[dict[str, str]]:
    """What is put under `META`."""
    return [asdict(tree) for tree in trees]


@dataclass(frozen=True, slots=True)
class _Answer:
    code: int
    out: str
    complaint: str


async def _git(directory: str, *arguments: str, seconds: float | None = None) -> _Answer:
    seconds = ASK_SECONDS if seconds is None else seconds
    environment = {name: value for name, value in os.environ.items() if name not in _REDIRECTING} | _UNATTENDED
    argv = ["git", "-c", f"core.hooksPath={os.devnull}", "-C", directory, *arguments]
    with trio.move_on_after(seconds):
        try:
            # A session of its own has no terminal a credential helper could ask at.
            done = await trio.run_process(
                argv,
                stdin=subprocess.DEVNULL,
                capture_stdout=True,
                capture_stderr=True,
                check=False,
                env=environment,
                start_new_session=True,
                deliver_cancel=_end_group,
            )
        except (OSError, ValueError) as error:
            raise ToolError(f"git could not be started: {error}") from error
        complaint = done.stderr.decode(errors="replace").strip().rpartition("\n")[2].removeprefix("fatal: ")
        return _Answer(done.returncode, os.fsdecode(done.stdout), complaint)
    raise ToolError(f"git took longer than {seconds:g} seconds in {directory}")


async def _end_group(git: trio.Process) -> None:
    """End git and what it started. It is asked first: then it takes back what it has half made."""
    for signal_, seconds in ((signal.SIGTERM, TERM_SECONDS), (signal.SIGKILL, 0)):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(git.pid, signal_)
        with trio.move_on_after(seconds) as scope:
            scope.shield = True
            await git.wait()


def _slug(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower())[:NAME_LENGTH].strip("-") or "session"


def _remove_empty_folder(tree: Worktree) -> None:
    with suppress(OSError):  # others are in it
        os.rmdir(os.path.dirname(tree.path))
