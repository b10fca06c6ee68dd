"""What a tool is: a declaration, a call, a result, and the words it is offered in.

Knows no tool. Implements the kernel's half of the product's "Tools" page: advanced permission, effects,
wording, scope and the order of the list are fields here; who owns which tool is a plugin's business.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Literal, TypeAlias

from ahpd.access import Principal
from ahpd.views import HostApi, SessionView

Scope: TypeAlias = Literal["session", "host", "both"]
"""Where a tool may be called: inside a session, with no session at hand, or either."""

Strategy: TypeAlias = Literal["activeAgent", "deferred", "utility"]
"""Who titles a session's chats; fixed when the session opens."""


@dataclass(frozen=True, slots=True)
class Effects:
    """A tool's own claim about what running it does; an agent's policy reads it. Not a permission."""

    reads: bool = False
    writes: bool = False
    network: bool = False
    destructive: bool = False

    def as_json(self) -> dict[str, bool]:
        pairs = {
            "reads": self.reads,
            "writes": self.writes,
            "network": self.network,
            "destructive": self.destructive,
        }
        return {name: True for name, claimed in pairs.items() if claimed}


@dataclass(frozen=True, slots=True)
class Wording:
    """Words that replace a tool's own. A field left `None` keeps the tool's."""

    description: str | None = None
    title: str | None = None
    parameters: Mapping[str, Any] | None = None
    required: Sequence[str] | None = None
    instruction: str | None = None


WITHHELD: Literal["withheld"] = "withheld"
"""What `Tool.for_session` answers when a session must not be offered the tool at all."""


@dataclass(frozen=True, slots=True)
class Offer:
    """For whom a list of tools is made: a session, or a person at a door (`session` is `None`)."""

    principal: Principal
    session: SessionView | None = None
    provider: str | None = None
    strategy: Strategy = "activeAgent"
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The daemon's declared keys and their values as they are now."""
    agents: Sequence[Mapping[str, Any]] = ()
    """What `HostApi.agents` answers for the principal, for words that name who a session can run on."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call. `arguments` is the caller's JSON object; `host` acts as `principal`."""

    tool: str
    arguments: Mapping[str, Any]
    principal: Principal
    host: HostApi
    session: SessionView | None = None
    chat: str | None = None
    turn: str | None = None
    id: str = ""
    offer: Offer | None = None


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a call answered. `content` items are AHP tool-result content; text alone is the usual case."""

    text: str = ""
    is_error: bool = False
    structured: Mapping[str, Any] | None = None
    content: Sequence[Mapping[str, Any]] = ()

    def items(self) -> list[dict[str, Any]]:
        if self.content:
            return [dict(item) for item in self.content]
        return [{"type": "text", "text": self.text}]


Run: TypeAlias = Callable[[ToolCall], Awaitable["str | ToolResult"]]
Shape: TypeAlias = Callable[[Offer], "Wording | Literal['withheld'] | None"]


@dataclass(frozen=True, slots=True, eq=False)
class Tool:
    """One thing a model can call.

    `parameters` is the `properties` object of its JSON Schema (draft 2020-12), `required` its required names.
    `grants` are asked of the person behind the call before it runs. `advanced` withholds the tool from every
    session until the operator sets `advancedTools`. `offered` narrows further, per session and live.
    """

    name: str
    run: Run
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    required: Sequence[str] = ()
    _: KW_ONLY
    title: str | None = None
    grants: Sequence[str] = ()
    effects: Effects | None = None
    advanced: bool = False
    scope: Scope = "session"
    defer: bool | None = None
    annotations: Mapping[str, Any] | None = None
    instruction: str | None = None
    compact: Wording | None = None
    for_session: Shape | None = None
    at_door: Wording | Shape | None = None
    """Words and schema where there is no calling session; a function when they depend on who asks."""
    offered: Callable[[Offer], bool] | None = None
    checks_input: bool = False
    """True when `run` refuses bad input in its own words, so that the host's generic check stays out."""
    legacy_names: Sequence[str] = ()
    schema: Mapping[str, Any] | None = None
    """A whole input schema, for one that `parameters` and `required` cannot say."""

    def input_schema(self, wording: Wording | None = None) -> dict[str, Any]:
        """The JSON Schema of the arguments, in the given words."""
        replaced = wording and (wording.parameters is not None or wording.required is not None)
        if self.schema is not None and not replaced:
            return dict(self.schema)
        parameters, required = self.parameters, self.required
        if wording is not None:
            parameters = parameters if wording.parameters is None else wording.parameters
            required = required if wording.required is None else wording.required
        schema: dict[str, Any] = {"type": "object", "properties": dict(parameters)}
        if required:
            schema["required"] = list(required)
        return schema

    def definition(self, wording: Wording | None = None) -> dict[str, Any]:
        """The protocol's `ToolDefinition`, in the given words."""
        title = self.title if wording is None or wording.title is None else wording.title
        description = self.description
        if wording is not None and wording.description is not None:
            description = wording.description
        made: dict[str, Any] = {"name": self.name}
        if title is not None:
            made["title"] = title
        if description:
            made["description"] = description
        made["inputSchema"] = self.input_schema(wording)
        if self.annotations is not None:
            made["annotations"] = dict(self.annotations)
        return made


@dataclass(frozen=True, slots=True)
class OfferedTool:
    """A tool as one session or person sees it: the tool, whose it is, and the words chosen for them."""

    tool: Tool
    plugin: str
    wording: Wording | None
    definition: Mapping[str, Any]
    """The protocol's `ToolDefinition`: `{name, title?, description?, inputSchema, annotations?}`."""

    @property
    def name(self) -> str:
        return self.tool.name

    @property
    def instruction(self) -> str | None:
        if self.wording is not None and self.wording.instruction is not None:
            return self.wording.instruction
        return self.tool.instruction
