"""Where a session that `create_session` makes will work: in a folder, or in a worktree of its repository.

What `worktree` says decides. Left out, a session in the project of its caller is isolated as its caller is, and
one in another git project is isolated. At a door there is no caller: the folder itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ahpd import AhpdError, SessionView, ToolCall, ToolError

from ahpd_session_tools import places, settings, worktrees
from ahpd_session_tools.inputs import Inputs


@dataclass(frozen=True, slots=True)
class Placement:
    """The working directories, as URIs, and the worktree that was made for the first of them."""

    directories: Sequence[str]
    tree: worktrees.Worktree | None = None


async def place(call: ToolCall, inputs: Inputs, title: str) -> Placement:
    """Decide, and make the worktree when it comes to one. Whoever asks takes it back when a later step fails."""
    named = _named(call, inputs)
    directories = named or (call.session.working_directories if call.session else ())
    given = inputs.optional_flag("worktree")
    first = directories[0] if directories else None
    wanted = await _is_isolated(call, first, is_named=bool(named)) if given is None else given
    if wanted:
        return await _isolated(call, directories, first or _default(call), title)
    if given is False and first is not None:
        return Placement([await _primary(first), *directories[1:]])
    return Placement(directories)


async def make(call: ToolCall, directory: str, title: str) -> tuple[worktrees.Worktree, str]:
    """A worktree of the repository a URI or path is in, and the URI of the place in it to work."""
    path = places.local(directory)
    if path is None:
        raise ToolError(f"{directory} is not a git repository, so it has no worktrees")
    tree, within = await worktrees.make(path, title, settings.worktrees_root(call.host.settings))
    return tree, places.uri(within)


def made_for(call: ToolCall, session: str) -> list[worktrees.Worktree]:
    """The worktrees that were made for a session; none for one this host does not hold."""
    try:
        return worktrees.recorded(call.host.session_meta(session))
    except AhpdError:
        return []


def _named(call: ToolCall, inputs: Inputs) -> list[str]:
    """The directory the input `workspace` means; none when it was left out."""
    named = inputs.optional_text("workspace")
    if named is None:
        return []
    found = places.find(named, call.host.sessions(call.principal))
    if len(found) > 1:
        raise inputs.refusal(
            f'workspace "{named}" is ambiguous; use one of these project URIs: {", ".join(found)}.'
        )
    if not found:
        raise inputs.refusal(
            "workspace must match a unique known project name, project URI, working directory, "
            "absolute path, or valid URI string."
        )
    return found


def _default(call: ToolCall) -> str:
    """The host's default directory, which it would choose by itself."""
    paths: Any = call.host.settings.get("paths") or ()
    if not paths:
        raise ToolError("This host has no default directory; name a workspace.")
    return str(paths[0])


async def _isolated(call: ToolCall, directories: Sequence[str], first: str, title: str) -> Placement:
    tree, directory = await make(call, first, title)
    return Placement([directory, *directories[1:]], tree)


async def _primary(directory: str) -> str:
    """A directory of a linked worktree as its repository's main directory; any other as it is."""
    path = places.local(directory)
    here = await worktrees.site(path) if path is not None else None
    return places.uri(here.repository) if here is not None and here.is_linked else directory


async def _is_isolated(call: ToolCall, directory: str | None, *, is_named: bool) -> bool:
    here = call.session
    if here is None or directory is None:
        return False
    if not is_named or await _is_same_project(call, directory, here):
        return _is_caller_isolated(call, here)
    path = places.local(directory)
    return path is not None and await worktrees.site(path) is not None


def _is_caller_isolated(call: ToolCall, here: SessionView) -> bool:
    """By its own setting where its agent has that, else by what was made for it."""
    isolation = here.settings.get("isolation")
    return isolation == "worktree" if isolation is not None else bool(made_for(call, here.uri))


async def _is_same_project(call: ToolCall, directory: str, here: SessionView) -> bool:
    own = here.working_directories[0] if here.working_directories else None
    if own is None or places.place(own) == places.place(directory):
        return own is not None
    rows = call.host.sessions(call.principal)
    projects = [places.project(one, rows) for one in (own, directory)]
    if None not in projects:
        return projects[0] == projects[1]
    paths = [places.local(one) for one in (own, directory)]
    found = [await worktrees.site(path) if path is not None else None for path in paths]
    roots = [each.repository for each in found if each is not None]
    return len(roots) == 2 and roots[0] == roots[1]
