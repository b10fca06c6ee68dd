"""Which tools a session or a person is offered now, and in which words.

A tool that is not offered is absent: it is in no list and cannot be called. Implements the product's
"Advanced permission", "Which sessions are offered the session tools" and "The wording a session is given".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from ahpd.log import get
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
        words = _words(registered, offer)
        if words != WITHHELD:
            chosen.append(OfferedTool(tool, registered.plugin, words, definition(tool, words)))
    return tuple(chosen)


def _words(registered: Registered, offer: Offer) -> Wording | Any:
    """The words for this offer, `None` for the tool's own, `WITHHELD` for a tool that is not offered.

    A tool's own functions are a plugin's code: one that raises withholds that tool and nothing else.
    """
    tool = registered.tool
    try:
        if tool.offered is not None and not tool.offered(offer):
            return WITHHELD
        if offer.session is None:
            return tool.at_door(offer) if callable(tool.at_door) else tool.at_door
        return tool.for_session(offer) if tool.for_session is not None else None
    except (Exception, SystemExit):
        get(f"ahpd.plugin.{registered.plugin}").exception("tool not offered", tool=tool.name)
        return WITHHELD


def definition(tool: Tool, wording: Wording | None = None) -> Mapping[str, Any]:
    """The protocol's `ToolDefinition`."""
    title = tool.title if wording is None or wording.title is None else wording.title
    description = tool.description
    if wording is not None and wording.description is not None:
        description = wording.description
    made: dict[str, Any] = {"name": tool.name}
    if title is not None:
        made["title"] = title
    if description:
        made["description"] = description
    made["inputSchema"] = tool.input_schema(wording)
    if tool.annotations is not None:
        made["annotations"] = dict(tool.annotations)
    return made
