"""The seams of the kernel: what a plugin fills in, and the plain shapes it declares.

Knows no file format, no user file and no URI scheme.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

import msgspec

from ahpd.access import Principal
from ahpd.errors import ConfigError, InvalidParams
from ahpd.protocol.shapes import ShapeError, decode_as
from ahpd.tools import ToolCall
from ahpd.views import HostApi

Applies = Literal["live", "session", "restart"]
Reducer: TypeAlias = Callable[[dict[str, Any], dict[str, Any]], dict[str, Any]]
"""A pure function of a channel's state and an action, from the protocol; keyed by `session` and `chat`."""


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """A setting and when a change of it takes hold.

    `schema` is the JSON Schema of its value. With `daemon` it is a key of the configuration itself, otherwise
    an option under `[plugins.<name>]` of the plugin that declares it. `flag` gives `ahpd run` an option.
    """

    name: str
    schema: Mapping[str, Any]
    default: Any = None
    _: KW_ONLY
    description: str = ""
    applies: Applies = "restart"
    daemon: bool = False
    secret: bool = False
    flag: bool = False
    in_root: bool = False
    """Whether clients holding `config:read` see it in root config and may push it."""
    pushed: bool = False
    """A setting that clients bring: it is known in root config alone, for as long as the host runs, and no file
    ever holds it. Such a key is one of the daemon's, always in root config, and its name may have dots."""

    def __post_init__(self) -> None:
        if self.pushed:
            object.__setattr__(self, "daemon", True)
            object.__setattr__(self, "in_root", True)


@dataclass(frozen=True, slots=True)
class PluginConfig:
    """What a plugin is told of its settings: its name, its options over their defaults, the daemon's keys."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    data_folder: str = ""
    """Where files of this installation are kept; private to its user, and made by whoever writes first."""

    def require(self, option: str) -> Any:
        """The option's value; `ConfigError` naming it when there is none."""
        value = self.options.get(option)
        if value is None:
            raise ConfigError(f"plugins.{self.name}.{option} must be set")
        return value


class Limit(Protocol):
    """A bound on what a model may start by itself.

    A call that passed `check` is charged before it runs and given back when it fails, so that calls running side
    by side cannot pass one bound together and a refused call costs nothing.
    """

    @property
    def name(self) -> str: ...

    def check(self, call: ToolCall) -> str | None:
        """The refusal, or `None` when the call may go on."""
        ...

    def charge(self, call: ToolCall) -> None: ...

    def refund(self, call: ToolCall) -> None:
        """Take back what `charge` counted for this call."""
        ...


@dataclass(frozen=True, slots=True)
class MethodCall:
    """One command of a client. `params` is what the method's `params` made of what was sent."""

    method: str
    params: Any
    principal: Principal
    host: HostApi
    client: str
    """The id the client gave itself."""


@dataclass(frozen=True, slots=True, eq=False)
class Method:
    """A command that clients may send beside the protocol's own. What `run` returns is the result, as JSON.

    `grant` is asked of whoever sends it before anything else happens; `None` lets everybody. `params` is a
    `msgspec.Struct` that what is sent has to fit, or a function that answers what `run` is given, or raises
    `InvalidParams`. It runs beside the connection's other work, and an `AhpdError` it raises is the answer.
    """

    name: str
    grant: str | None
    params: type[msgspec.Struct] | Callable[[Mapping[str, Any]], Any]
    run: Callable[[MethodCall], Awaitable[Any]]
    _: KW_ONLY
    capabilities: Mapping[str, Any] = field(default_factory=dict)
    """What `initialize` says under `_meta` while the command is served, so that clients know."""

    def read(self, params: Mapping[str, Any]) -> Any:
        """The params as `run` takes them. Raises `InvalidParams`."""
        if not isinstance(self.params, type):
            return self.params(params)
        try:
            return decode_as(self.params, params, self.name)
        except ShapeError as error:
            raise InvalidParams(str(error)) from None


@dataclass(frozen=True, slots=True, eq=False)
class ControlVerb:
    """What a plugin's commands may ask of a running daemon of their home: `ask_daemon("<plugin>/<name>", {...})`.

    Whoever asks is the user the daemon runs as. What `run` returns is the answer, a JSON object; an `AhpdError`
    it raises is told to whoever asked.
    """

    name: str
    run: Callable[[HostApi, Mapping[str, Any]], Awaitable[Mapping[str, Any]]]


class ChildProcess(Protocol):
    """A child of a session, in a process group of its own."""

    @property
    def pid(self) -> int: ...

    async def wait(self) -> int:
        """Its exit code, negative for a signal. Never leaves a zombie."""
        ...

    def kill(self) -> None:
        """End the whole process group at once."""
        ...


class Spawner(Protocol):
    """Where the processes of a session run."""

    async def start(
        self,
        argv: Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: int | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
    ) -> ChildProcess: ...


@dataclass(frozen=True, slots=True)
class SessionRow:
    """What the catalogue needs of a stored session. `summary` is its last `SessionSummary`.

    `busy` says that a turn was running when it was last written: the host has to end it.
    """

    uri: str
    id: str
    aliases: tuple[str, ...]
    parent: str | None
    summary: Mapping[str, Any]
    busy: bool = False
    record: Mapping[str, Any] = field(default_factory=dict)
    """As last put with the session; read back with the row, and not written with it."""


@dataclass(frozen=True, slots=True)
class StoredChat:
    """A chat as it was last written. `state` holds its newest turns, and `turnsNextCursor` when there are more.

    `record` is what the host and plugins keep of it beside the state clients see.
    """

    uri: str
    state: Mapping[str, Any]
    record: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StoredSession:
    """A session as it was last written, chats in their order. `record` as in `StoredChat`."""

    uri: str
    state: Mapping[str, Any]
    chats: tuple[StoredChat, ...]
    record: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PutSession:
    """A session's row and its whole state; earlier actions of its channel are contained in it."""

    row: SessionRow
    state: Mapping[str, Any]
    record: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PutChat:
    """A chat's whole state, its completed turns apart; earlier actions of its channel are contained in it.

    `turns` are appended to what is kept, unless `replace` says that they are all there are. One whose id is kept
    already is replaced where it stands, and the one that `state` shows as running is kept no longer: it counts as
    completed when it ends again.
    """

    session: str
    uri: str
    state: Mapping[str, Any]
    record: Mapping[str, Any]
    turns: Sequence[Mapping[str, Any]] = ()
    replace: bool = False


@dataclass(frozen=True, slots=True)
class PutSummary:
    """A session's row alone; nothing for a session that is not kept."""

    row: SessionRow


@dataclass(frozen=True, slots=True)
class PutRecord:
    """What is kept of a chat beside its state; nothing for a chat that is not kept."""

    chat: str
    record: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CutTurns:
    """A chat's completed turns end with the one of that id from now on; with `None` there are none."""

    chat: str
    last: str | None


@dataclass(frozen=True, slots=True)
class Append:
    """One action of a session or a chat since it was last put; `load` answers the state with it applied."""

    channel: str
    seq: int
    action: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DropChat:
    uri: str


@dataclass(frozen=True, slots=True)
class DropSession:
    """A session, its chats, their turns, and every action of any of them."""

    uri: str


StoreOp: TypeAlias = PutSession | PutChat | PutSummary | PutRecord | CutTurns | Append | DropChat | DropSession


@dataclass(frozen=True, slots=True)
class Opened:
    """A store that can be used: every row it holds, and a number above every `serverSeq` it ever gave room for.

    `changed` names the sessions that have actions (of their own or of a chat) after what was last put: their rows
    may be out of date.
    """

    rows: Sequence[SessionRow]
    seq: int
    changed: frozenset[str] = frozenset()


class SessionStore(Protocol):
    """Keeps sessions over restarts. What `commit` returned for is on disk, whatever happens next.

    `write` only queues, in order, and never waits; everything queued between two commits is kept whole or not at
    all. Reads see what has been queued before them. The reducers it is opened with apply the actions that were
    appended after a state was put.
    """

    @property
    def durable(self) -> bool:
        """Whether it outlives the process; the host appends actions only to one that does."""
        ...

    async def open(self, reducers: Mapping[str, Reducer]) -> Opened:
        """Raises `StartError` saying what is wrong and where, and changes nothing then."""
        ...

    def write(self, op: StoreOp) -> None: ...

    @property
    def pending(self) -> bool:
        """Whether something is queued, or on its way, that is not on disk yet."""
        ...

    async def commit(self) -> None:
        """Return when everything queued before the call is on disk. Raises `AhpdError` when it cannot be."""
        ...

    async def reserve(self, seq: int) -> None:
        """Remember, durably, that numbers up to `seq` may be given out; `Opened.seq` will be at least that."""
        ...

    async def load(self, uri: str) -> StoredSession | None: ...

    async def records(self) -> Mapping[str, Mapping[str, Any]]:
        """The record of every chat that has one which is not empty, by chat URI."""
        ...

    async def turns(
        self, chat: str, before: str | None, limit: int
    ) -> tuple[Sequence[Mapping[str, Any]], str | None]:
        """The newest `limit` completed turns before the turn with that id (all for `None`), oldest first, and the
        cursor for the ones before them. Raises `KeyError` for a chat, or an id in it, that is not kept."""
        ...

    async def close(self) -> None: ...
