"""The backend contract: what an agent is, what it is started with, and what it may say while a turn runs.

An `Agent` is declared by a hook and opened once per chat. Its `AgentSession.prompt` runs one turn inside a
cancel scope of the host's: returning ends the turn, raising `AgentError` fails it, and a cancelled turn is a
`trio.Cancelled` that must not be swallowed. Knows nothing of sockets, state or storage.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from ahpd.ports import ChildProcess
from ahpd.tools import ToolResult


@dataclass(frozen=True, slots=True)
class Model:
    """One model an agent can be asked for. Shapes as the protocol's `SessionModelInfo`."""

    id: str
    name: str
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PastSession:
    """A session an agent remembers by itself. Times are ISO 8601 UTC."""

    id: str
    title: str
    created_at: str
    modified_at: str
    working_directories: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class BoundTool:
    """A tool bound to one chat of one session, ready to be called in process.

    `call(arguments, call_id)` checks grants and limits and runs it; it never raises for a tool that fails:
    the sentence comes back as a result with `is_error`.
    """

    name: str
    definition: Mapping[str, Any]
    call: Callable[[Mapping[str, Any], str], Awaitable[ToolResult]]
    instruction: str | None = None
    defer: bool | None = None
    effects: Mapping[str, bool] | None = None
    contributor: Mapping[str, Any] | None = None
    reported: str | None = None
    """The name its calls are reported under, where that is not the name it is offered under: a client knows its
    own tool by the name it announced."""


class Toolbox(Protocol):
    """The tools one chat is offered now. Read it again for each turn: the list changes while sessions run."""

    def offered(self) -> Sequence[BoundTool]: ...

    def find(self, name: str) -> BoundTool | None:
        """By bare name, or by the name a harness shows it under (`mcp__ahp__<name>`)."""
        ...


class Background(Protocol):
    """Reports work that goes on beside the turns of a chat, so that people see it and the session stays awake."""

    def __call__(
        self,
        work_id: str,
        work: Mapping[str, Any] | None,
        until: Callable[[], Awaitable[Any]] | None = None,
    ) -> None:
        """Set or, with `None`, remove the work of an id the agent chose.

        `work` is the protocol's `BackgroundWork`: `label`, and either `kind: "shell"` with its `command`, or
        `kind: "subagent"` with its `chat`; the host adds `id` and `startedAt`. It is removed by itself when
        `await until()` returns, which runs in the session's nursery, and when the agent is closed.
        """
        ...


def _unreported(
    work_id: str, work: Mapping[str, Any] | None, until: Callable[[], Awaitable[Any]] | None = None
) -> None:
    """For a `Start` that no host made: nobody is told."""


@dataclass(frozen=True, slots=True)
class Start:
    """What an agent is opened with. `id` is the session's own id, also across restarts.

    `settings` shows the session's values as they are now, also after a change of a `sessionMutable` one.
    `resume` is true when the chat already has turns, which `history` then holds as the protocol's `Turn`s.
    `mcp_servers` is absent (`None`) rather than empty. `tools_server()` opens the session's own tools
    endpoint, or answers `None` where there is none. `client_tool_timeout_ms` 0 means: wait for ever.
    """

    id: str
    session: str
    chat: str
    settings: Mapping[str, Any]
    working_directories: Sequence[str]
    tools: Toolbox
    run_process: Callable[..., Awaitable[ChildProcess]]
    """`await run_process(argv, cwd=, env=, stdin=, stdout=)`: a child in its own process group that ends
    with the session, and with the daemon. `env` lies over the daemon's own environment."""
    resume: bool = False
    history: Sequence[Mapping[str, Any]] = ()
    mcp_servers: Mapping[str, Any] | None = None
    client_tool_timeout_ms: int = 600_000
    strategy: str = "activeAgent"
    tools_server: Callable[[], Awaitable[ToolsServer | None]] | None = None
    context: Sequence[Mapping[str, Any]] = ()
    """For a side chat, the turns of the chat it was opened beside, up to the one it was opened at: to be read,
    and shown to nobody. A turn that still runs is there as far as it has got. Empty once that chat, or that turn,
    has gone."""
    background: Background = _unreported


@dataclass(frozen=True, slots=True)
class ToolsServer:
    """A session's own MCP endpoint."""

    url: str
    token: str


@dataclass(frozen=True, slots=True)
class Confirmation:
    """What a person is asked before a tool call runs. `options` as the protocol's `ConfirmationOption`."""

    title: str
    message: str
    options: Sequence[Mapping[str, Any]] = ()
    editable: bool = False


@dataclass(frozen=True, slots=True)
class Decision:
    """A person's answer to a `Confirmation`. `edited_input` replaces the call's input when given."""

    approved: bool
    option: str | None = None
    edited_input: str | None = None
    reason: str | None = None
    suggestion: Any = None


@dataclass(frozen=True, slots=True)
class Answer:
    """A person's answer to an input request; `answers` by question id, as `ChatInputAnswer`."""

    response: Literal["accept", "decline", "cancel"]
    answers: Mapping[str, Any] = field(default_factory=dict)


class Turn(Protocol):
    """One running turn, as its agent sees it. Plain methods change state at once; `async` ones wait."""

    @property
    def id(self) -> str: ...

    @property
    def message(self) -> Mapping[str, Any]:
        """The protocol's `Message` that began the turn."""
        ...

    @property
    def text(self) -> str: ...

    @property
    def resumed(self) -> bool:
        """Whether this is a failed turn taken up again; its agent knows the message already."""
        ...

    def markdown(self, text: str) -> None:
        """Append to the answer; opens a part when the last one is of another kind."""
        ...

    def reasoning(self, text: str) -> None: ...

    def notice(self, text: str) -> None:
        """A `systemNotification` part."""
        ...

    def usage(self, usage: Mapping[str, Any]) -> None: ...

    def activity(self, text: str | None) -> None: ...

    def tool_started(
        self,
        call_id: str,
        name: str,
        *,
        display_name: str | None = None,
        intention: str | None = None,
        contributor: Mapping[str, Any] | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> None: ...

    def tool_input(self, call_id: str, text: str) -> None:
        """More of the call's input while it streams."""
        ...

    def tool_ready(self, call_id: str, message: str, tool_input: str | None = None) -> None:
        """The call runs now, nobody needs to be asked."""
        ...

    def tool_content(self, call_id: str, content: Sequence[Mapping[str, Any]]) -> None: ...

    def tool_finished(self, call_id: str, result: ToolResult, past_tense: str | None = None) -> None: ...

    async def confirm(self, call_id: str, asked: Confirmation, tool_input: str | None = None) -> Decision:
        """Hold a started call until a person decides. A denied call is already cancelled in state."""
        ...

    async def confirm_result(self, call_id: str, result: ToolResult, past_tense: str | None = None) -> bool:
        """As `tool_finished`, for a result that counts only when a person says so; wait for it.

        False when it was denied (the call is cancelled in state then), when the turn ends before anybody has
        said, and for a call that is not running.
        """
        ...

    async def ask(self, request: Mapping[str, Any]) -> Answer:
        """Put a `ChatInputRequest` (its `id` may be left out) to whoever watches; wait for the answer."""
        ...

    async def call_tool(
        self, name: str, arguments: Mapping[str, Any], confirm: Confirmation | None = None
    ) -> ToolResult:
        """Run a tool of `Start.tools` and report it: start, input, confirmation, result."""
        ...

    def take_steering(self) -> Mapping[str, Any] | None:
        """The message meant for the running turn, taken off its slot; `None` when there is none."""
        ...


class AgentSession(Protocol):
    """One opened chat. All methods run in the session's nursery."""

    async def prompt(self, turn: Turn) -> None:
        """Run one turn to its end."""
        ...

    async def close(self) -> None:
        """Let go of everything. Bounded by the host to a few seconds."""
        ...


@runtime_checkable
class Agent(Protocol):
    """A backend. `provider` is its id in `createSession` and the scheme of its sessions' URIs.

    It may have more, each called by name, with two seconds to answer:

    * `async complete(property=, query=, settings=)`: what an `enumDynamic` setting may be set to, as
      `{value, label, description?}`;
    * `async completions(chat=, text=, offset=, working_directories=)`: what may be put into a message that is
      being written, as the protocol's `CompletionItem`. Clients are known to drop an item whose `attachment`
      has no `_meta.command` and no `uri`.

    `resumes_turns = True` says that a turn which a stop of the host cut off can be resumed.
    """

    @property
    def provider(self) -> str: ...

    @property
    def display_name(self) -> str: ...

    @property
    def description(self) -> str: ...

    def models(self) -> Sequence[Model]: ...

    def settings(self) -> Mapping[str, Mapping[str, Any]]:
        """Its session settings: property name to the protocol's config property schema."""
        ...

    def capabilities(self) -> Mapping[str, Any]:
        """The protocol's `AgentCapabilities`."""
        ...

    async def open(self, start: Start) -> AgentSession: ...

    def past(self) -> AsyncIterable[PastSession]:
        """Sessions it remembers by itself, newest first."""
        ...


def described(agent: Agent) -> dict[str, Any]:
    """The protocol's `AgentInfo`. Raises whatever the agent raises."""
    info: dict[str, Any] = {
        "provider": agent.provider,
        "displayName": agent.display_name,
        "description": agent.description,
        "models": [
            {"id": model.id, "provider": agent.provider, "name": model.name, **model.extra}
            for model in agent.models()
        ],
    }
    capabilities = dict(agent.capabilities())
    if capabilities:
        info["capabilities"] = capabilities
    return info
