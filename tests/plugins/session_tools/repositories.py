"""Real git repositories for tests, small and with no settings of this machine's."""

from __future__ import annotations

import subprocess
from pathlib import Path

WHO = ("-c", "user.name=T", "-c", "user.email=t@example.invalid", "-c", "commit.gpgsign=false")


def git(where: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(where), *WHO, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def repository(path: Path) -> Path:
    """A repository with one commit, holding `inner/file`."""
    (path / "inner").mkdir(parents=True)
    (path / "inner" / "file").write_text("one\n")
    git(path, "init", "-q", "-b", "main")
    git(path, "add", ".")
    git(path, "commit", "-q", "-m", "one")
    return path


def worktrees(path: Path) -> list[Path]:
    """Every linked worktree of a repository."""
    lines = git(path, "worktree", "list", "--porcelain").splitlines()
    return [Path(line.removeprefix("worktree ")) for line in lines if line.startswith("worktree ")][1:]


def branches(path: Path) -> list[str]:
    return git(path, "branch", "--format=%(refname:short)").split()
