"""Every hook of the kernel. Hooks declare, objects act: an implementation is a plain function returning data.

Each hook is of one kind, and each kind has one rule for what a failure costs (see docs/plugins.md). An
implementation names only the arguments it wants.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

import pluggy

from ahpd.agents import Agent
from ahpd.ports import ConfigKey, ControlVerb, Limit, Method, PluginConfig, SessionStore
from ahpd.tools import Tool
from ahpd.views import HostApi

if TYPE_CHECKING:
    import click

PROJECT = "ahpd"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def ahpd_config_keys() -> Iterable[ConfigKey]:  # type: ignore[empty-body]
    """Settings this plugin reads: its own options, and keys of the daemon it gives a meaning to.

    Kind: declare. Called: once, before the configuration is checked; the only hook that sees no settings.
    Fails: the plugin is dropped and shows `error`.
    Example: plugins/session_tools/ahpd_session_tools/__init__.py
    """


@hookspec
def ahpd_tools(config: PluginConfig) -> Iterable[Tool]:  # type: ignore[empty-body]
    """Tools for models, and for people at a door.

    Kind: declare. Called: at start, when the plugin is switched on in a running host, and when the value of a live
    key that it declares changes.
    Fails: the plugin is dropped; a tool whose input schema is not valid fails it too.
    Example: examples/dice/ahpd_dice.py
    """


@hookspec
def ahpd_limits(config: PluginConfig) -> Iterable[Limit]:  # type: ignore[empty-body]
    """Bounds on what a model may start by itself.

    Kind: declare. Called: at start, and again when the plugin is switched on in a running host.
    Fails: the plugin is dropped; no tool of it is offered without its limits.
    Example: plugins/session_tools/ahpd_session_tools/limits.py
    """


@hookspec
def ahpd_agents(config: PluginConfig) -> Iterable[Agent]:  # type: ignore[empty-body]
    """Backends that answer in sessions.

    Kind: declare. Called: at start, and again when the plugin is switched on in a running host.
    Fails: the plugin is dropped and its agents are not offered.
    Example: plugins/agent_echo/ahpd_agent_echo/__init__.py
    """


@hookspec
def ahpd_methods(config: PluginConfig) -> Iterable[Method]:  # type: ignore[empty-body]
    """Commands that clients may send beside the protocol's own, each with its grant.

    Kind: declare. Called: at start, and again when the plugin is switched on in a running host.
    Fails: the plugin is dropped; a command of the protocol's own name fails it too.
    Example: plugins/artifacts/ahpd_artifacts/__init__.py
    """


@hookspec
def ahpd_commands(config: PluginConfig) -> Iterable[click.Command]:  # type: ignore[empty-body]
    """Verbs of the command line: `ahpd <name> ...`.

    Kind: declare. Called: when a verb is typed that ahpd has not, with no host running; and at start, for names.
    Fails: the plugin is dropped; a verb of ahpd's own name fails it too. Verbs of ahpd go on in any case.
    Example: plugins/wakeups/ahpd_wakeups/__init__.py
    """


@hookspec
def ahpd_control_verbs(config: PluginConfig) -> Iterable[ControlVerb]:  # type: ignore[empty-body]
    """What commands of this plugin may ask of a running daemon, each as `<plugin>/<name>`.

    Kind: declare. Called: at start, and again when the plugin is switched on in a running host.
    Fails: the plugin is dropped and its commands are told that the daemon does not know the verb.
    Example: plugins/wakeups/ahpd_wakeups/__init__.py
    """


@hookspec
def ahpd_session_store(config: PluginConfig) -> SessionStore | None:
    """Where sessions are kept over restarts. With none, they live as long as the process.

    Kind: decide. Called: once, at start; exactly one plugin may answer.
    Fails: the host does not start, since starting without a store would lose what it was trusted with.
    Example: plugins/store_sqlite/ahpd_store_sqlite/__init__.py
    """


@hookspec
def ahpd_lifespan(host: HostApi) -> AbstractAsyncContextManager[None]:  # type: ignore[empty-body]
    """Something that runs while the host runs: entered before it listens, left in reverse order after.

    Kind: live. Called: at start, and again when the plugin is switched on in a running host.
    Fails: the plugin shows `error`; when it fails later, it is fenced and logged, and the host goes on.
    Example: plugins/wakeups/ahpd_wakeups/__init__.py
    """
