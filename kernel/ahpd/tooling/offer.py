"""Which tools a session or a person is offered now, and in which words.

A tool that is not offered is absent: it is in no list and cannot be called. Implements the product's
"Advanced permission", "Which sessions are offered the session tools" and "The wording a session is given".
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Protocol

import msgspec

from ahpd.log import get
from ahpd.tooling.fence import pass_on
from ahpd.tools import WITHHELD, Offer, OfferedTool, Tool, Wording


class Registered(Protocol):
    """A tool and the plugin it came from."""

    @property
    def plugin(self) -> str: ...

    @property
    def tool(self) -> Tool: ...


def offered_tools(tools: Iterable[Registered], offer: Offer) -> tuple[OfferedTool, ...]:
    """The offer's list, in the order the tools were registered."""
    place = "session" if offer.session is not None else "host"
    chosen = []
    for registered in tools:
        tool = registered.tool
        if tool.scope not in (place, "both"):
            continue
        if tool.advanced and not offer.settings.get("advancedTools", False):
            continue
        try:
            words = _words(tool, offer)
            if words != WITHHELD:
                chosen.append(_in_words(tool, registered.plugin, words))
        except BaseException as error:
            pass_on(error)
            # A tool's own functions are a plugin's code: one that raises withholds that tool and nothing else.
            get(f"ahpd.plugin.{registered.plugin}").exception("tool not offered", tool=tool.name)
    return tuple(chosen)


def _words(tool: Tool, offer: Offer) -> Wording | Any:
    """The words for this offer, `None` for the tool's own, `WITHHELD` for a tool that is not offered."""
    if tool.offered is not None and not tool.offered(offer):
        return WITHHELD
    if offer.session is None:
        return tool.at_door(offer) if callable(tool.at_door) else tool.at_door
    return tool.for_session(offer) if tool.for_session is not None else None


def _in_words(tool: Tool, plugin: str, words: Wording | None) -> OfferedTool:
    """The tool in these words. Raises `TypeError` for words that are not JSON; the tool's own were looked at when
    it was registered."""
    if words is None:
        return _in_own_words(tool, plugin)
    made = tool.definition(words)
    msgspec.json.encode(made)
    return OfferedTool(tool, plugin, words, made)


@lru_cache(maxsize=1024)
def _in_own_words(tool: Tool, plugin: str) -> OfferedTool:
    """Made once: in a tool's own words it is the same for everybody. Tools of one name are not the same tool."""
    return OfferedTool(tool, plugin, None, tool.definition())
