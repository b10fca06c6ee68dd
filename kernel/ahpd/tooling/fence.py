"""What a plugin's code may raise without taking its caller along, and what its caller is told instead."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from ahpd.errors import AhpdError, is_contained
from ahpd.log import get

T = TypeVar("T")


async def in_plugin(plugin: str, what: str, run: Callable[[], Awaitable[T]]) -> T:
    """What a plugin answers. Raises an `AhpdError`: the plugin's own, or one that says only where to look."""
    with fenced("plugin", plugin, what):
        return await run()


@contextmanager
def fenced(kind: str, owner: str, what: str) -> Iterator[None]:
    """Where a plugin, or an agent of one, is asked for something. Raises as `in_plugin`."""
    try:
        yield
    except BaseException as error:
        pass_on(error)
        cause = sole(error)
        if isinstance(cause, AhpdError):
            raise cause from None
        get(f"ahpd.{kind}.{owner}").exception(f"the {kind} failed", what=what)
        raise AhpdError(f"{what} failed in the {kind} {owner}; the host's log has the details") from None


def pass_on(error: BaseException) -> None:
    """Raise what a fence may not stop of this. Returns when it may stop all of it.

    What came in a group with a cancellation goes no further than here: the scope that was cancelled takes only
    its own part out, and whoever is behind it would be left with the plugin's.
    """
    if is_contained(error):
        return
    if isinstance(error, BaseExceptionGroup):
        contained, rest = error.split(is_contained)
        if contained is not None and rest is not None:
            get("ahpd.plugin").error("a plugin failed while it was cancelled", exc_info=contained)
            raise rest
    raise error


def sole(error: BaseException) -> BaseException:
    """The one error inside nested groups, or the group itself when it holds several."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
