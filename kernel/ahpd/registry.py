"""What all loaded plugins declare, asked one plugin at a time, checked, and frozen.

A plugin that raises or declares something wrong loses everything it declared and shows `error`; the others are
not touched. Two plugins that claim one name both lose that one thing. The relay of pluggy is not used, since it
throws away everybody's answers when one of them raises. Knows no plugin by name.
"""

from __future__ import annotations

import inspect
import itertools
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeAlias, TypeVar

import click
import msgspec

from ahpd import log
from ahpd.agents import Agent, described
from ahpd.config import KERNEL_KEYS, SWITCHES, Config
from ahpd.errors import AhpdError, PluginError, StartError, is_contained
from ahpd.plugins import Loader, Status, cached, fence, judge, read_cache, row, write_cache
from ahpd.ports import ConfigKey, ControlVerb, Limit, Method, PluginConfig, SessionStore
from ahpd.protocol.shapes import PARAM_SHAPES
from ahpd.schemas import bad_schema
from ahpd.tools import Tool

T = TypeVar("T")

TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
PROVIDER = re.compile(r"[a-z][a-z0-9+.-]*")
METHOD_NAME = re.compile(r"[A-Za-z][A-Za-z0-9]*(/[A-Za-z][A-Za-z0-9]*)*")
VERB = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
KERNEL_VERBS = frozenset(
    {"run", "demo", "plugin", "config", "status", "start", "stop", "restart", "reload", "help"}
)
"""Verbs of the command line that are ahpd's own, now or by promise."""
GRANT = re.compile(r"[a-z][A-Za-z-]*:[a-z][A-Za-z-]*")
TAKEN_SCHEMES = ("file", "http", "https")
ASKED_AT_START = ("ahpd_session_store",)
"""Hooks that decide something for as long as a host runs: switching a plugin that has one waits for a restart."""
MOST = 1000
"""How many of one thing a plugin may declare, so that an endless generator ends."""


@dataclass(frozen=True, slots=True)
class RegisteredTool:
    plugin: str
    tool: Tool


@dataclass(frozen=True, slots=True)
class Contribution:
    """Everything one plugin declared. Kept while it stays loaded, so that its tools keep their identity."""

    plugin: str
    module: object
    given: PluginConfig
    """The settings it declared this with."""
    keys: tuple[ConfigKey, ...] = ()
    tools: tuple[Tool, ...] = ()
    limits: tuple[Limit, ...] = ()
    agents: tuple[Agent, ...] = ()
    described: tuple[Mapping[str, Any], ...] = ()
    """What each of the agents says of itself: its `AgentInfo`, and its `settings`."""
    methods: tuple[Method, ...] = ()
    commands: tuple[click.Command, ...] = ()
    verbs: tuple[ControlVerb, ...] = ()

    @property
    def provides(self) -> dict[str, list[str]]:
        return {
            "tools": [tool.name for tool in self.tools],
            "agents": [agent.provider for agent in self.agents],
            "channels": [],
            "routes": [],
            "commands": [str(command.name) for command in self.commands],
        }


@dataclass(frozen=True)
class Registry:
    """All that may be offered while this registry is the current one."""

    config: Config
    """The configuration held to every declared key."""
    contributions: Mapping[str, Contribution]
    tools: tuple[RegisteredTool, ...]
    limits: tuple[tuple[str, Limit], ...]
    agents: Mapping[str, tuple[str, Agent]]
    described: Mapping[str, Mapping[str, Any]]
    """By provider: the protocol's `AgentInfo`, with its `settings`. Asked once, when it is loaded."""
    methods: Mapping[str, tuple[str, Method]]
    """Commands of clients beside the protocol's own."""
    capabilities: Mapping[str, Any]
    """What those commands have `initialize` say."""
    verbs: Mapping[str, tuple[str, ControlVerb]]
    """What commands of plugins may ask of the daemon, by `<plugin>/<name>`, each with its plugin."""
    commands: Mapping[str, click.Command]
    """Verbs of the command line."""
    config_keys: Mapping[str, tuple[ConfigKey, ...]]
    """By plugin; the kernel's own are in `ahpd.config.KERNEL_KEYS`."""
    statuses: Mapping[str, Status]
    problems: Mapping[str, str]
    """Each enabled plugin that is not ready, with its reason."""
    rivals: Mapping[str, frozenset[str]]
    """By plugin, the others that claim a name it claims."""
    loader: Loader = field(repr=False, compare=False)
    decided_by: frozenset[str] = frozenset()
    """The plugins that were asked when the host started, by the hooks that are asked only then."""
    undecided: tuple[str, ...] = ()
    """The plugins with such hooks that were switched since: what they decide waits for a restart."""

    def rows(self) -> list[dict[str, Any]]:
        """As `ahpd plugin list` shows them, from what is loaded here and now."""
        found = self.loader.discovery
        names = {*self.statuses, *found.found, *self.config.configured_plugins}
        return [
            row(
                name,
                self.config,
                found,
                self.statuses.get(name) or judge(name, self.config, found),
                self._provides(name),
            )
            for name in self.config.ordered(names)
        ]

    def _provides(self, name: str) -> Mapping[str, Sequence[str]] | None:
        contribution = self.contributions.get(name)
        return contribution.provides if contribution else None

    def remember(self, *, ran: bool = True) -> None:
        """Leave what was learned for commands that must not import plugins.

        A command that only imported plugins has not `ran` them: it cannot know better what failed beside a host.
        """
        entries: dict[str, dict[str, Any]] = {}
        before = {} if ran else read_cache(self.config.places)
        for name, status in self.statuses.items():
            found = self.loader.discovery.found.get(name, ())
            if len(found) == 1:
                entries[name] = {
                    "distribution": found[0].distribution,
                    "version": found[0].version,
                    "entryPoint": found[0].value,
                    "state": status.state,
                    "reason": log.redact(status.reason),
                    "next": status.next,
                    "provides": self._provides(name) or {},
                    "keys": [asdict(key) for key in self.config_keys.get(name, ())],
                    "options": sorted(self.config.written_options(name)),
                    "rivals": sorted(self.rivals.get(name, ())),
                    "beside": status.beside,
                }
                known = cached(name, self.config, self.loader.discovery, before)
                if status.state == "ready" and known.get("beside"):
                    entries[name] |= {
                        part: known[part] for part in ("state", "reason", "next", "beside") if part in known
                    }
        write_cache(self.config.places, entries)

    def report(self, before: Registry | None = None) -> None:
        """Say in the log what is wrong, leaving out what `before` said already."""
        logger = log.get("ahpd")
        said = before.config.warnings if before else ()
        for sentence in self.config.warnings:
            if sentence not in said:
                logger.warning(sentence)
        for name in self.undecided:
            if before is None or name not in before.undecided:
                logger.warning(
                    f"plugin {name} was switched; where sessions are kept changes when ahpd is restarted"
                )
        for name, reason in self.problems.items():
            if before is None or before.problems.get(name) != reason:
                status = self.statuses[name]
                more = {"exception": status.detail} if status.detail else {}
                logger.warning(
                    f"plugin {name}: {reason}", plugin=name, state=status.state, next=status.next, **more
                )


def build(loader: Loader, config: Config, previous: Registry | None = None, *, strict: bool = True) -> Registry:
    """Ask every loaded plugin what it declares. Contributions of plugins that stayed loaded are taken over.

    Raises `ConfigError` for a wrong setting (unless not `strict`), and at a start (no `previous`) `StartError`
    for a plugin that is `required` and not ready. Anything else a plugin does wrong ends up in its status.
    """
    keys, clashes = _agreed(declared_keys(loader))
    config = config.declare(keys, _keys_elsewhere(loader, config))
    if strict:
        config.check()
    contributions = {}
    for name in config.ordered(loader.modules):
        kept = previous.contributions.get(name) if previous else None
        if kept is None or kept.module is not loader.modules[name]:
            kept = _contribution(loader, name, config.plugin_config(name), keys[name])
        elif _live_change(kept, config.plugin_config(name)):
            kept = _asked_again(loader, kept, config.plugin_config(name))
        if kept is not None:
            contributions[name] = kept
    tools = [(name, tool.name, tool) for name, own in contributions.items() for tool in own.tools]
    agents = [(name, agent.provider, agent) for name, own in contributions.items() for agent in own.agents]
    tools, agents = _undisputed("the tool", tools, clashes), _undisputed("the agent", agents, clashes)
    methods, capabilities = _methods(contributions, clashes)
    commands = _commands(contributions, clashes)
    statuses = {name: loader.statuses[name] for name in config.ordered(loader.statuses)}
    for name, sentences in clashes.items():
        if name in contributions:
            advice = f"ahpd plugin disable {name}, or another of them"
            statuses[name] = Status("error", "; ".join(sentences), advice)
    if strict and previous is None:
        _insist(config, statuses)
    decided_by = previous.decided_by if previous else _deciders(loader)
    return Registry(
        config,
        contributions,
        tuple(RegisteredTool(name, tool) for name, _, tool in tools),
        tuple((name, limit) for name, own in contributions.items() for limit in own.limits),
        {provider: (name, agent) for name, provider, agent in agents},
        {provider: _described_by(contributions[name], agent) for name, provider, agent in agents},
        methods,
        capabilities,
        {f"{name}/{verb.name}": (name, verb) for name, own in contributions.items() for verb in own.verbs},
        commands,
        keys,
        statuses,
        {name: status.reason for name, status in statuses.items() if status.state != "ready"},
        {name: frozenset().union(*found.values()) - {name} for name, found in clashes.items()},
        loader,
        decided_by,
        config.ordered(decided_by ^ _deciders(loader)),
    )


def _deciders(loader: Loader) -> frozenset[str]:
    """The loaded plugins that have a hook which is asked only when a host starts."""
    hooks = [getattr(loader.manager.hook, hook) for hook in ASKED_AT_START]
    return frozenset(each.plugin_name for hook in hooks for each in hook.get_hookimpls())


def _methods(
    contributions: Mapping[str, Contribution], clashes: Clashes
) -> tuple[dict[str, tuple[str, Method]], dict[str, Any]]:
    """The commands nobody disputes, each with its plugin, and the capabilities they bring."""
    claims = [(name, method.name, method) for name, own in contributions.items() for method in own.methods]
    claims = _undisputed("the command", claims, clashes)
    said = [(name, key, value) for name, _, method in claims for key, value in method.capabilities.items()]
    said = _undisputed("the capability", said, clashes)
    return {method.name: (name, method) for name, _, method in claims}, {key: value for _, key, value in said}


def _commands(contributions: Mapping[str, Contribution], clashes: Clashes) -> dict[str, click.Command]:
    claims = [
        (name, str(command.name), command) for name, own in contributions.items() for command in own.commands
    ]
    return {spelled: command for _, spelled, command in _undisputed("the verb", claims, clashes)}


def _insist(config: Config, statuses: Mapping[str, Status]) -> None:
    for name, status in statuses.items():
        if status.state != "ready" and config.plugin(name).required:
            raise StartError(f"plugin {name} is required and is {status.state}: {status.reason}")


def changes(before: Registry, after: Registry) -> dict[str, Any]:
    """What a reload did, as the control door answers it; `restart` names settings that wait for a restart.

    Plugins that decide something at a start are held to that start: after off and on again nothing waits.
    """
    old, new = before.config, after.config
    differing = [name for name, value in new.settings.items() if old.settings.get(name) != value]
    known = {**old.keys, **new.keys}
    waiting = [name for name in differing if known[name].applies == "restart"]
    return {
        "loaded": [name for name in after.contributions if name not in before.contributions],
        "unloaded": [name for name in before.contributions if name not in after.contributions],
        "changed": differing,
        "restart": [*waiting, *(f"plugins.{name}.enabled" for name in after.undecided)],
        "plugins": after.rows(),
        "files": [str(file) for file in new.files],
    }


# Deciding and living


def session_store(registry: Registry) -> SessionStore | None:
    """The one store that plugins offer. Raises `StartError` when it cannot be told which: a host that started
    without would lose what it is trusted with."""
    offered = {}
    for name, implementation in _implementations(registry, "ahpd_session_store"):
        given = {"config": registry.config.plugin_config(name)}
        try:
            store = implementation.function(*(given[argument] for argument in implementation.argnames))
        except AhpdError as error:
            raise StartError(f"plugin {name} cannot say where sessions are kept: {error.sentence}") from error
        except BaseException as error:
            if not is_contained(error):
                raise
            raise StartError(f"plugin {name} cannot say where sessions are kept: {error!r}") from error
        if store is not None:
            offered[name] = store
    if len(offered) > 1:
        raise StartError(f"{' and '.join(offered)} both keep sessions; disable one: ahpd plugin disable NAME")
    return next(iter(offered.values()), None)


def lifespans(registry: Registry, name: str, host: Any) -> list[AbstractAsyncContextManager[None]]:
    """What one plugin runs beside the host. Raises `PluginError` when it says so wrongly."""
    found: list[AbstractAsyncContextManager[None]] = []
    for owner, implementation in _implementations(registry, "ahpd_lifespan"):
        if owner == name:
            given = {"host": host}
            context = implementation.function(*(given[argument] for argument in implementation.argnames))
            if not hasattr(context, "__aenter__"):
                raise PluginError(f"ahpd_lifespan must return an async context manager, not {_kind_of(context)}")
            found.append(context)
    return found


def _implementations(registry: Registry, hook: str) -> Iterator[tuple[str, Any]]:
    for name in registry.contributions:
        for implementation in getattr(registry.loader.manager.hook, hook).get_hookimpls():
            if implementation.plugin_name == name:
                yield name, implementation


# Asking


def declared_keys(loader: Loader) -> dict[str, tuple[ConfigKey, ...]]:
    """The settings each loaded plugin declares, asked once while it stays loaded."""
    for name in loader.config.ordered(loader.modules):
        if name not in loader.keys:
            with fence(name, lambda failed, name=name: loader.drop(name, failed)):  # type: ignore[misc]
                keys: list[ConfigKey] = _ask(loader, name, "ahpd_config_keys", ConfigKey, {})
                _refuse(itertools.chain(_repeats("the setting", [key.name for key in keys]), _bad_keys(keys)))
                loader.keys[name] = tuple(keys)
    return {name: loader.keys[name] for name in loader.config.ordered(loader.modules)}


def _contribution(
    loader: Loader, name: str, settings: PluginConfig, keys: tuple[ConfigKey, ...]
) -> Contribution | None:
    with fence(name, lambda failed: loader.drop(name, failed)):
        given = {"config": settings}
        tools = _tools(loader, name, settings)
        limits: list[Limit] = _ask(loader, name, "ahpd_limits", Limit, given)
        agents: list[Agent] = _ask(loader, name, "ahpd_agents", Agent, given)
        _refuse(itertools.chain(_repeats("the agent", [agent.provider for agent in agents]), _bad_agents(agents)))
        methods: list[Method] = _ask(loader, name, "ahpd_methods", Method, given)
        _refuse(itertools.chain(_repeats("the command", [each.name for each in methods]), _bad_methods(methods)))
        commands: list[click.Command] = _ask(loader, name, "ahpd_commands", click.Command, given)
        verbs: list[ControlVerb] = _ask(loader, name, "ahpd_control_verbs", ControlVerb, given)
        _refuse(itertools.chain(_bad_commands(commands), _bad_verbs(verbs)))
        return Contribution(
            name,
            loader.modules[name],
            settings,
            keys,
            tuple(tools),
            tuple(limits),
            tuple(agents),
            tuple(map(_described, agents)),
            tuple(methods),
            tuple(commands),
            tuple(verbs),
        )
    return None


def _live_change(kept: Contribution, settings: PluginConfig) -> dict[str, Any]:
    """The plugin's own live keys whose value is another one by now."""
    changed = {}
    for key in kept.keys:
        before, now = (
            (kept.given.settings, settings.settings) if key.daemon else (kept.given.options, settings.options)
        )
        if key.applies == "live" and now.get(key.name) != before.get(key.name):
            changed[key.name] = now.get(key.name)
    return changed


def _asked_again(loader: Loader, kept: Contribution, settings: PluginConfig) -> Contribution | None:
    """A plugin's tools with its live keys as they are now. All else it declared, and its other options, stay."""
    live = {key.name for key in kept.keys if key.applies == "live" and not key.daemon}
    options = {**kept.given.options, **{name: value for name, value in settings.options.items() if name in live}}
    given = replace(settings, options=options)
    with fence(kept.plugin, lambda failed: loader.drop(kept.plugin, failed)):
        return replace(kept, given=given, tools=tuple(_tools(loader, kept.plugin, given)))
    return None


def _tools(loader: Loader, name: str, settings: PluginConfig) -> list[Tool]:
    tools: list[Tool] = _ask(loader, name, "ahpd_tools", Tool, {"config": settings})
    _refuse(itertools.chain(_repeats("the tool", [tool.name for tool in tools]), *map(_bad_tool, tools)))
    return tools


def _ask(loader: Loader, name: str, hook: str, kind: Any, given: Mapping[str, Any]) -> list[Any]:
    """What one plugin's implementations of one hook return, or `PluginError` when it is no list of `kind`."""
    answers: list[Any] = []
    for implementation in getattr(loader.manager.hook, hook).get_hookimpls():
        if implementation.plugin_name != name:
            continue
        result = implementation.function(*(given[argument] for argument in implementation.argnames))
        if inspect.iscoroutine(result):
            result.close()
            raise PluginError(f"{hook} returned something to await; a hook returns what the plugin adds")
        try:
            items = list(itertools.islice(result, MOST + 1))
        except TypeError as error:
            if hasattr(type(result), "__iter__"):
                raise
            raise PluginError(f"{hook} must return a list of {kind.__name__}, not {_kind_of(result)}") from error
        if len(items) > MOST:
            raise PluginError(f"{hook} declares more than {MOST} things")
        for item in items:
            if not _is_a(item, kind):
                raise PluginError(f"{hook} must return a list of {kind.__name__}; one item is {_kind_of(item)}")
        answers += items
    return answers


def _kind_of(value: object) -> str:
    return "None" if value is None else f"a {type(value).__name__}"


def _is_a(item: object, kind: type) -> bool:
    if isinstance(item, type):
        # A class has every attribute its instances have; somebody forgot to make one.
        return False
    if kind is Limit:
        return isinstance(getattr(item, "name", None), str) and all(
            callable(method := getattr(item, part, None)) and not inspect.iscoroutinefunction(method)
            for part in ("check", "charge", "refund")
        )
    return isinstance(item, kind)


# Checking


def _refuse(sentences: Iterator[str]) -> None:
    if found := list(sentences):
        raise PluginError("; ".join(found))


def _repeats(what: str, names: Sequence[str]) -> Iterator[str]:
    for name in dict.fromkeys(names):
        if names.count(name) > 1:
            yield f"it declares {what} {name} twice"


def _bad_keys(keys: Sequence[ConfigKey]) -> Iterator[str]:
    kernel = {key.name for key in KERNEL_KEYS} | {"plugins"}
    for key in keys:
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_.-]*" if key.pushed else r"[A-Za-z][A-Za-z0-9_-]*", key.name):
            yield f"{key.name!r} is no name for a setting"
        elif key.daemon and key.name in kernel:
            yield f"the setting {key.name} is ahpd's own"
        elif not key.daemon and key.name in SWITCHES and key.name != "hostTools":
            yield f"the option {key.name} is ahpd's own"
        elif reason := bad_schema(key.schema) or _not_json(asdict(key)):
            yield f"the schema of the setting {key.name} is not valid: {reason}"


def check_tool(tool: Tool) -> None:
    """Raise `PluginError` for a tool that could not be offered: its name, its function or its schema is wrong."""
    _refuse(_bad_tool(tool))


def _bad_tool(tool: Tool) -> Iterator[str]:
    if not TOOL_NAME.fullmatch(tool.name):
        yield f"the tool name {tool.name!r} is not 1 to 64 letters, digits, _ or -"
    if not _is_async(tool.run):
        yield f"the tool {tool.name} has a run that is not an async function"
    for words in (None, tool.compact, None if callable(tool.at_door) else tool.at_door):
        if reason := bad_input_schema(tool.input_schema(words)):
            yield f"the input schema of the tool {tool.name} is not valid: {reason}"
            return
    if reason := _not_json(tool.definition()):
        yield f"the definition of the tool {tool.name} is not valid: {reason}"


def _is_async(run: object) -> bool:
    # `type(...).__call__` is for objects that can be called; a plain function's is no coroutine function.
    return any(map(inspect.iscoroutinefunction, (run, type(run).__call__)))


def _bad_methods(methods: Sequence[Method]) -> Iterator[str]:
    for method in methods:
        if not isinstance(method.name, str) or not METHOD_NAME.fullmatch(method.name):
            yield f"{method.name!r} is no name for a command"
        elif method.name in PARAM_SHAPES:
            yield f"the command {method.name} is the protocol's own"
        elif method.grant is not None and not GRANT.fullmatch(method.grant):
            yield f"the command {method.name} asks for {method.grant!r}, which is no grant"
        elif not _is_async(method.run):
            yield f"the command {method.name} has a run that is not an async function"
        elif not callable(method.params) or inspect.iscoroutinefunction(method.params):
            yield f"the command {method.name} has params that are neither a Struct nor a plain function"
        elif isinstance(method.params, type) and not issubclass(method.params, msgspec.Struct):
            yield f"the command {method.name} has params of a class that is no msgspec.Struct"
        elif not isinstance(method.capabilities, Mapping):
            yield f"the command {method.name} has capabilities that are no mapping"
        elif reason := _not_json(dict(method.capabilities)):
            yield f"the capabilities of the command {method.name} are not valid: {reason}"


def _bad_commands(commands: Sequence[click.Command]) -> Iterator[str]:
    yield from _repeats("the verb", [str(command.name) for command in commands])
    for command in commands:
        if not isinstance(command.name, str) or not VERB.fullmatch(command.name):
            yield f"{command.name!r} is no name for a verb"
        elif command.name in KERNEL_VERBS:
            yield f"the verb {command.name} is ahpd's own"


def _bad_verbs(verbs: Sequence[ControlVerb]) -> Iterator[str]:
    yield from _repeats("the control verb", [verb.name for verb in verbs])
    for verb in verbs:
        if not isinstance(verb.name, str) or not VERB.fullmatch(verb.name):
            yield f"{verb.name!r} is no name for a control verb"
        elif not _is_async(verb.run):
            yield f"the control verb {verb.name} has a run that is not an async function"


def _bad_agents(agents: Sequence[Agent]) -> Iterator[str]:
    for agent in agents:
        provider = agent.provider
        if not isinstance(provider, str) or not PROVIDER.fullmatch(provider):
            yield f"the agent id {provider!r} is not a lower-case URI scheme"
        elif provider in TAKEN_SCHEMES or provider.startswith("ahp-"):
            yield f"the agent id {provider} is a URI scheme that means something else"


def _described(agent: Agent) -> Mapping[str, Any]:
    """Raises `PluginError` for what no client could be sent."""
    made = {**described(agent), "settings": {name: dict(schema) for name, schema in agent.settings().items()}}
    if reason := _not_json(made):
        raise PluginError(f"what the agent {agent.provider} says of itself is not valid: {reason}")
    return made


def _described_by(contribution: Contribution, agent: Agent) -> Mapping[str, Any]:
    return contribution.described[contribution.agents.index(agent)]


def _not_json(value: Any) -> str | None:
    """Why a value cannot be sent. What cannot is refused when it is declared, not when somebody is to be told."""
    try:
        msgspec.json.encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        return f"it is not JSON: {error}"
    return None


def bad_input_schema(schema: Mapping[str, Any]) -> str | None:
    """Why this cannot be a tool's input schema. Providers refuse a whole request over one such tool."""
    if alternatives := [word for word in ("anyOf", "oneOf", "allOf") if word in schema]:
        return f"{alternatives[0]} is not allowed at its top level"
    if reason := bad_schema(schema):
        return reason
    return None if schema.get("type") == "object" else 'its top level must say "type": "object"'


# Clashes

Clashes: TypeAlias = dict[str, dict[str, Sequence[str]]]
"""By plugin, the sentences it shows for names it shares, each with everybody who claims that name."""


def _agreed(
    keys: Mapping[str, tuple[ConfigKey, ...]],
) -> tuple[dict[str, tuple[ConfigKey, ...]], Clashes]:
    """The keys without daemon keys that two plugins declare, and the sentences those plugins show for it."""
    clashes: Clashes = {}
    shared = [(name, key.name, key) for name, own in keys.items() for key in own if key.daemon]
    undisputed = {key_name for _, key_name, _ in _undisputed("the setting", shared, clashes)}
    agreed = {
        name: tuple(key for key in own if not key.daemon or key.name in undisputed) for name, own in keys.items()
    }
    return agreed, clashes


def _undisputed(what: str, claims: Collection[tuple[str, str, T]], clashes: Clashes) -> list[tuple[str, str, T]]:
    """The claims (plugin, name, thing) on names nobody else claims. The others' plugins get a sentence each."""
    owners: dict[str, list[str]] = {}
    for plugin, name, _ in claims:
        owners.setdefault(name, []).append(plugin)
    for name, plugins in owners.items():
        if len(plugins) > 1:
            for plugin in plugins:
                sentence = f"{what} {name} is declared by {' and '.join(plugins)}; neither is used"
                clashes.setdefault(plugin, {})[sentence] = plugins
    return [claim for claim in claims if len(owners[claim[1]]) == 1]


def _keys_elsewhere(loader: Loader, config: Config) -> set[str]:
    """Daemon keys of plugins that are not loaded now, as they declared them when they last were."""
    return {
        str(key.get("name"))
        for name, entry in read_cache(config.places).items()
        if name not in loader.modules
        for key in entry.get("keys", ())
        if key.get("daemon")
    }
