"""Finding plugins, judging them without importing them, and importing the enabled ones behind a fence.

A plugin is an entry point of the group `ahpd`. Everything a list needs is read from package metadata and from
what the last run left in the cache, so that the commands which repair an installation never import what is
broken in it. Knows no plugin by name and asks no hook: that is the registry's work.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import json
import re
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any, Literal, TypeAlias, get_args

import pluggy

from ahpd import hookspecs, log
from ahpd.config import KERNEL_KEYS, Config, nearest
from ahpd.errors import AhpdError, ConfigError, is_contained
from ahpd.hookspecs import PROJECT
from ahpd.places import Places, private_folder, write_private
from ahpd.ports import Applies, ConfigKey
from ahpd.schemas import bad_schema

State: TypeAlias = Literal["ready", "disabled", "missing", "incompatible", "unconfigured", "error", "waiting"]

PROVIDES: tuple[str, ...] = ("tools", "agents", "channels", "routes", "commands")


@dataclass(frozen=True, slots=True)
class Found:
    """A plugin as its distribution's metadata names it. `requires` are the distribution's demands on ahpd."""

    name: str
    value: str
    distribution: str
    version: str
    requires: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Discovery:
    """Every plugin installed here, by name; more than one under a name is a clash. `problems` are sentences."""

    found: Mapping[str, tuple[Found, ...]]
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Status:
    """How a plugin stands, why, and what to do next. `detail` is a traceback for the log."""

    state: State
    reason: str = ""
    next: str = ""
    detail: str = ""
    beside: bool = False
    """Whether it failed in what it runs beside a host, which nobody learns who only imports it."""


READY = Status("ready")
SLOW_SECONDS = 5.0
"""How long an import takes before the log says whose it is."""


# Without importing


def discover() -> Discovery:
    """Read the metadata of everything on `sys.path`. A distribution that cannot be read costs only itself."""
    found: dict[str, list[Found]] = {}
    problems: list[str] = []
    seen: set[str] = set()
    for distribution in metadata.distributions():
        try:
            text = distribution.read_text("entry_points.txt")
            if not text or PROJECT not in text:
                continue
            name, plugins = _plugins_of(distribution)
        except Exception as error:
            # Half-removed packages and hand-made metadata raise almost anything from importlib.metadata.
            problems.append(f"the metadata of {_folder_of(distribution)} cannot be read ({error!r}); left out")
            continue
        spelled = re.sub(r"[-_.]+", "-", name).lower()
        if plugins and spelled not in seen:
            # The first one on the path hides others of its name, as it does for an import.
            seen.add(spelled)
            for plugin in plugins:
                found.setdefault(plugin.name, []).append(plugin)
    ordered = {name: tuple(sorted(found[name], key=lambda one: one.distribution)) for name in sorted(found)}
    return Discovery(ordered, tuple(problems))


def _plugins_of(distribution: metadata.Distribution) -> tuple[str, list[Found]]:
    points = distribution.entry_points.select(group=PROJECT)
    if not points:
        return "", []
    name, version = distribution.metadata["Name"], distribution.metadata["Version"]
    if not name or not version:
        raise ValueError("no name or version")
    requires = tuple(line for line in distribution.requires or () if line.lower().startswith(PROJECT))
    return name, [Found(point.name, point.value, name, version, requires) for point in points]


def _folder_of(distribution: metadata.Distribution) -> str:
    return str(getattr(distribution, "_path", None) or "a distribution")


def host_version() -> str:
    return metadata.version(PROJECT)


def unmet(found: Found, version: str) -> str | None:
    """Why this plugin was not made for `version` of ahpd; `None` when its distribution admits it."""
    if not found.requires:
        return None
    from packaging.requirements import InvalidRequirement, Requirement

    for line in found.requires:
        try:
            demand = Requirement(line)
        except InvalidRequirement:
            return f"{found.distribution} asks for {line!r}, which cannot be read"
        if demand.name.lower() != PROJECT or (demand.marker and not demand.marker.evaluate({"extra": ""})):
            continue
        if not demand.specifier.contains(version, prereleases=True):
            return f"{found.distribution} {found.version} needs ahpd {demand.specifier}, this is {version}"
    return None


def judge(name: str, config: Config, discovery: Discovery) -> Status:
    """The state of a plugin as far as it can be told without importing it; `ready`: nothing speaks against it."""
    found = discovery.found.get(name, ())
    turn_off = f"ahpd plugin disable {name}"
    if not config.plugin(name).enabled:
        wrong = config.wrong_about(name)
        reason = wrong[1] if wrong else "" if found else "not installed"
        return Status("disabled", reason, f"ahpd plugin enable {name}" if found else "")
    if not found:
        close = nearest(name, discovery.found)
        meant = f" (did you mean {close}?)" if close else ""
        return Status("missing", f"no installed package has it{meant}", f"install its package, or {turn_off}")
    if len(found) > 1:
        owners = " and ".join(f"{one.distribution} {one.version}" for one in found)
        return Status("error", f"{owners} both call a plugin {name}; neither is used", "uninstall one of them")
    if unfit := unmet(found[0], host_version()):
        return Status(
            "incompatible", unfit, f"install a fitting version of {found[0].distribution}, or {turn_off}"
        )
    return READY


def hindrance(name: str, config: Config) -> Status | None:
    """What no daemon starts with in a plugin's table. Not part of `judge`: a start refuses all of the file."""
    wrong = config.wrong_about(name)
    return Status("unconfigured", wrong[1], f"ahpd config unset {wrong[0]}") if wrong else None


# What the last run learned


def read_cache(places: Places) -> dict[str, dict[str, Any]]:
    """By plugin name: distribution, version, entryPoint, state, reason, next, provides, keys, options.

    Empty when there is none, or none that can be used.
    """
    try:
        cache = json.loads((places.cache / "plugins.json").read_text("utf-8"))["plugins"]
        return {name: entry for name, entry in cache.items() if _is_entry(entry)}
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return {}


_STATES: tuple[str, ...] = get_args(State)
_PARTS: Mapping[str, Callable[[Any], bool]] = {
    "distribution": lambda part: isinstance(part, str),
    "version": lambda part: isinstance(part, str),
    "entryPoint": lambda part: isinstance(part, str),
    "state": lambda part: part in _STATES,
    "reason": lambda part: isinstance(part, str),
    "next": lambda part: isinstance(part, str),
    "provides": lambda part: isinstance(part, dict) and all(map(_are_texts, part.values())),
    "keys": lambda part: isinstance(part, list) and all(map(_is_key, part)),
    "options": lambda part: _are_texts(part),
    "rivals": lambda part: _are_texts(part),
    "beside": lambda part: isinstance(part, bool),
}


def _is_entry(entry: Any) -> bool:
    """Whether a cached entry can be used as it is. A cache that others wrote is no reason to end in a fault."""
    return isinstance(entry, dict) and all(part not in entry or fits(entry[part]) for part, fits in _PARTS.items())


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _is_key(key: Any) -> bool:
    try:
        made = ConfigKey(**key)
        switches = (made.daemon, made.secret, made.flag, made.in_root, made.pushed)
        if made.daemon and made.name in {own.name for own in KERNEL_KEYS}:
            return False
        whole = isinstance(made.name, str) and isinstance(made.description, str)
        whole = whole and made.applies in get_args(Applies) and all(isinstance(each, bool) for each in switches)
        return whole and isinstance(made.schema, dict) and bad_schema(made.schema) is None
    except (TypeError, AttributeError):
        return False


def write_cache(places: Places, entries: Mapping[str, Mapping[str, Any]]) -> None:
    """Add to what is cached. Failing to is no failure of the command that tried."""
    with contextlib.suppress(AhpdError, OSError, TypeError, ValueError):
        private_folder(places.cache)
        plugins = {**read_cache(places), **entries}
        write_private(places.cache / "plugins.json", json.dumps({"plugins": plugins}, indent=1) + "\n")


def cached(
    name: str, config: Config, discovery: Discovery, cache: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """A plugin's cached entry; empty when another version of it is installed by now.

    What was in its way counts no more once its options were changed or a rival was switched off.
    """
    entry, found = cache.get(name), discovery.found.get(name, ())
    if entry is None or len(found) != 1:
        return {}
    one = found[0]
    if (entry.get("distribution"), entry.get("version"), entry.get("entryPoint")) != (
        one.distribution,
        one.version,
        one.value,
    ):
        return {}
    # What is written, not what is in force: a default is known only to those who loaded the plugin.
    configured = entry.get("state") == "unconfigured" and entry.get("options") != sorted(
        config.written_options(name)
    )
    alone = not all(config.plugin(rival).enabled for rival in entry.get("rivals", ()))
    if configured or alone:
        return {**entry, "state": "ready", "reason": "", "next": ""}
    return dict(entry)


def rows(config: Config, discovery: Discovery, cache: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What `ahpd plugin list` shows: each plugin installed, enabled or configured. Imports nothing."""
    table = []
    names = {*discovery.found, *config.configured_plugins, *config.enabled_plugins}
    for name in config.ordered(names):
        status, entry = judge(name, config, discovery), cached(name, config, discovery, cache)
        if status.state == "ready" and entry.get("state") in ("error", "unconfigured", "waiting"):
            status = Status(entry["state"], entry.get("reason", ""), entry.get("next", ""))
        if status.state == "ready":
            status = hindrance(name, config) or status
        table.append(row(name, config, discovery, status, entry.get("provides")))
    return table


def row(
    name: str, config: Config, discovery: Discovery, status: Status, provides: Mapping[str, Sequence[str]] | None
) -> dict[str, Any]:
    found = discovery.found.get(name, ())
    return {
        "name": name,
        "enabled": config.plugin(name).enabled,
        "state": status.state,
        "version": ", ".join(one.version for one in found) or None,
        "distribution": ", ".join(one.distribution for one in found) or None,
        "entryPoint": ", ".join(one.value for one in found) or None,
        "provides": {kind: list((provides or {}).get(kind, ())) for kind in PROVIDES},
        "reason": status.reason or None,
        "next": status.next or None,
    }


# Importing


@contextlib.contextmanager
def fence(name: str, failed: Callable[[Status], None]) -> Iterator[None]:
    """Where a plugin's own code runs: whatever it raises becomes its status, and nobody else's trouble.

    Only Ctrl-C passes, see `is_contained`. What the plugin prints goes to stderr, because stdout may be
    somebody's JSON.
    """
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    except ConfigError as error:
        option = error.sentence.removeprefix(f"plugins.{name}.").partition(" ")[0]
        failed(Status("unconfigured", error.sentence, f"ahpd config set plugins.{name}.{option} VALUE"))
    except BaseException as error:
        if not is_contained(error):
            raise
        if isinstance(error, AhpdError):
            failed(failure(name, error.sentence))
            return
        words = " ".join(str(error).split())[:300]
        told = f"{type(error).__name__}: {words}" if words else type(error).__name__
        failed(failure(name, f"it raised {told}", traceback.format_exc()))


@contextlib.contextmanager
def told_when_slow(name: str) -> Iterator[None]:
    """An import that never ends looks like a host that hangs, and nothing else can be said meanwhile."""
    sentence = f"plugin {name} has been importing for {SLOW_SECONDS:g} seconds"
    timer = threading.Timer(SLOW_SECONDS, lambda: log.get("ahpd").warning(sentence, plugin=name))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def failure(name: str, reason: str, detail: str = "", *, beside: bool = False) -> Status:
    return Status("error", reason, f"mend it, or ahpd plugin disable {name}", detail, beside)


@dataclass
class Loader:
    """The plugins imported into this process. One that failed has a status here and no module."""

    config: Config
    discovery: Discovery = field(default_factory=discover)
    statuses: dict[str, Status] = field(default_factory=dict)
    modules: dict[str, object] = field(default_factory=dict)
    keys: dict[str, tuple[ConfigKey, ...]] = field(default_factory=dict)
    """What the registry was told by each module, kept here because it lives as long as the module is in."""
    manager: pluggy.PluginManager = field(default_factory=lambda: pluggy.PluginManager(PROJECT))
    _given_up: dict[str, Any] = field(default_factory=dict)
    """What was so when a plugin failed beside the host. Until that changes it is not tried again: everybody who
    switches another plugin would wait for it."""

    def __post_init__(self) -> None:
        self.manager.add_hookspecs(hookspecs)

    def load_all(self) -> Loader:
        """Load every enabled plugin. Never raises for one that is broken."""
        for name in self.config.enabled_plugins:
            self.load(name)
        return self

    def load(self, name: str) -> Status:
        """Import and register one plugin, unless something speaks against it; say how it stands."""
        if name in self.modules:
            return self.statuses[name]
        status = self.statuses[name] = judge(name, self.config, self.discovery)
        if status.state == "ready":
            with fence(name, lambda failed: self.drop(name, failed)):
                self._register(name, self.discovery.found[name][0])
        self._settle()
        return self.statuses[name]

    def unload(self, name: str) -> None:
        """Take a plugin out. Its module stays imported: Python cannot unload code."""
        self.drop(name, Status("disabled", "", f"ahpd plugin enable {name}"))
        del self.statuses[name]
        self._settle()

    def drop(self, name: str, status: Status) -> None:
        """Take a plugin out because of `status`, which is what it shows from now on."""
        self.modules.pop(name, None)
        self.keys.pop(name, None)
        self.statuses[name] = status
        self._given_up.pop(name, None)
        if status.beside:
            self._given_up[name] = self._circumstances(name)
        if self.manager.has_plugin(name):
            self.manager.unregister(name=name)

    def _circumstances(self, name: str) -> Any:
        return self.discovery.found.get(name), self.config.written_options(name)

    def _is_given_up(self, name: str) -> bool:
        return name in self._given_up and self._given_up[name] == self._circumstances(name)

    def sync(self, config: Config) -> tuple[list[str], list[str]]:
        """Load what `config` enables and is not loaded, unload what it does not enable: (loaded, unloaded).

        A plugin that failed to load is tried again; packages installed since the start are found. Raises
        `ConfigError` for a wrong setting before anything is touched.
        """
        config.check()
        importlib.invalidate_caches()
        self.config, self.discovery = config, discover()
        wanted = config.enabled_plugins
        gone = [name for name in config.ordered(self.statuses) if name not in wanted]
        unloaded = [name for name in gone if name in self.modules]
        for name in gone:
            self.unload(name)
        fresh = [name for name in wanted if name not in self.modules and not self._is_given_up(name)]
        for name in fresh:
            self.load(name)
        return [name for name in fresh if name in self.modules], unloaded

    def _register(self, name: str, found: Found) -> None:
        point = metadata.EntryPoint(found.name, found.value, PROJECT)
        with told_when_slow(name):
            module = point.load()
        if any(module is other for other in self.modules.values()):
            raise AhpdError(f"{found.value} is loaded already under another name")
        for hook, function, options in self._implementations(module):
            if problem := self._objection(hook, function, options):
                raise AhpdError(problem)
        try:
            self.manager.register(module, name=name)
        except pluggy.PluginValidationError as error:
            raise AhpdError(" ".join(str(error).split())) from error
        self.modules[name] = module

    def _implementations(self, module: object) -> Iterator[tuple[str, Any, Mapping[str, Any]]]:
        for attribute in dir(module):
            options = self.manager.parse_hookimpl_opts(module, attribute)
            if options is not None:
                yield options.get("specname") or attribute, getattr(module, attribute), options

    def _objection(self, hook: str, function: Any, options: Mapping[str, Any]) -> str | None:
        plain = inspect.unwrap(function)
        if inspect.iscoroutinefunction(plain) or inspect.isasyncgenfunction(plain):
            return f"{hook} is async; a hook is a plain function that returns what the plugin adds"
        if options.get("wrapper") or options.get("hookwrapper"):
            return f"{hook} is a wrapper; a hook only adds what is its own"
        if not self._has_spec(hook) and not options.get("optionalhook"):
            close = nearest(hook, vars(self.manager.hook))
            meant = f"; did you mean {close}?" if close else ""
            return f"there is no hook {hook}{meant}"
        return None

    def _has_spec(self, hook: str) -> bool:
        caller = getattr(self.manager.hook, hook, None)
        return caller is not None and caller.has_spec()

    def _settle(self) -> None:
        """A plugin with a hook whose owner is off is waiting; the rest of it works meanwhile."""
        for name, module in self.modules.items():
            hooks = [hook for hook, _, _ in self._implementations(module) if not self._has_spec(hook)]
            status = self.statuses[name]
            if hooks and status.state == "ready":
                reason = f"{', '.join(hooks)} belongs to a plugin that is not on"
                self.statuses[name] = Status("waiting", reason, "enable the plugin that owns it")
            elif not hooks and status.state == "waiting":
                self.statuses[name] = READY
