"""The seams of the kernel: what a plugin fills in, and the plain shapes it declares.

Knows no file format, no user file and no URI scheme.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Literal, Protocol

from ahpd.errors import ConfigError
from ahpd.tools import ToolCall

Applies = Literal["live", "session", "restart"]


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


@dataclass(frozen=True, slots=True)
class PluginConfig:
    """What a plugin is told of its settings: its name, its options over their defaults, the daemon's keys."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)

    def require(self, option: str) -> Any:
        """The option's value; `ConfigError` naming it when there is none."""
        value = self.options.get(option)
        if value is None:
            raise ConfigError(f"plugins.{self.name}.{option} must be set")
        return value


class Limit(Protocol):
    """A bound on what a model may start by itself: read before a call, charged after it succeeded."""

    @property
    def name(self) -> str: ...

    def check(self, call: ToolCall) -> str | None:
        """The refusal, or `None` when the call may go on."""
        ...

    def charge(self, call: ToolCall) -> None: ...


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
