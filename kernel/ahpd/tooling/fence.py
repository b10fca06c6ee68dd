"""What a plugin's code may raise without taking its caller along.

`except Exception` is not enough of a fence: code that calls `sys.exit`, or that raises while it is being
cancelled inside a nursery of its own, would end everything around it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from ahpd.errors import AhpdError
from ahpd.log import get

T = TypeVar("T")


async def in_plugin(plugin: str, what: str, run: Callable[[], Awaitable[T]]) -> T:
    """What a plugin answers. Raises an `AhpdError`: the plugin's own, or one that says only where to look."""
    try:
        return await run()
    except BaseException as error:
        if not is_contained(error):
            raise
        cause = sole(error)
        if isinstance(cause, AhpdError):
            raise cause from None
        get(f"ahpd.plugin.{plugin}").exception("the plugin failed", what=what)
        raise AhpdError(f"{what} failed in the plugin {plugin}; the host's log has the details") from None


def is_contained(error: BaseException) -> bool:
    """Whether a fence may stop this: everything but cancellation and interrupts, also in groups."""
    if isinstance(error, BaseExceptionGroup):
        return all(is_contained(each) for each in error.exceptions)
    return isinstance(error, Exception | SystemExit)


def sole(error: BaseException) -> BaseException:
    """The one error inside nested groups, or the group itself when it holds several."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
