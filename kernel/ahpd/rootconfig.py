"""Root config: which settings clients see under `ahp-root://`, and what their `root/configChanged` does.

Three kinds of key: the daemon's, which a file holds; `plugins.<name>` for every plugin of the configuration; and
those that clients bring (`ConfigKey.pushed`), held here for as long as the host runs. A value is what the files
hold, not what flags made of it for this run. Refuses whole whatever it does not take whole.

The protocol has an action for values and none for anything else of the root state. So what else changes is in the
next snapshot (the schema, `_meta`), and what watching clients must hear at once is a value too: `RESTART`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from ahpd.config import Config
from ahpd.configfile import REMOVE, edit
from ahpd.errors import ConfigError, Rejected
from ahpd.log import MASK
from ahpd.masks import NOTHING, differences, has_secrets, joined, masked
from ahpd.plugins import judge
from ahpd.ports import ConfigKey
from ahpd.registry import Registry
from ahpd.schemas import misfit
from ahpd.state import Json, State

Path: TypeAlias = tuple[str, ...]
Edits: TypeAlias = dict[Path, Any]

RESTART = "ahpd.restartNeeded"
"""In the root state's `_meta` while the files hold something only a restart brings into force. Also a read-only
key of root config, true or false, for clients that watch already: they are sent no other word of it."""
NEVER = frozenset(
    {
        "stdio",
        "configFile",
        "noCwd",
        "worktreesRoot",
        "clientToolTimeoutMs",
        "connectionToken",
        "connectionTokenFile",
        "withoutConnectionToken",
        "trustToken",
        "issuer",
        "resource",
        "users",
        "automations",
        "sessions",
    }
)
"""Keys that are not in root config whatever their declaration says: who may connect is not for clients."""
PATIENCE = 0.25
"""Seconds a push waits, with everything else of the host, for another command that is editing the file."""
HOST_TOOLS: Mapping[str, Any] = {
    "type": "boolean",
    "title": "hostTools",
    "description": "Whether sessions of its agents are offered the tools of this host.",
    "default": True,
}


@dataclass(frozen=True, slots=True)
class Echo:
    """A client's push that was taken: who sent it, the keys it named, and whether it was a `replace`."""

    origin: Mapping[str, Any]
    names: tuple[str, ...]
    replace: bool = False


class RootConfig:
    """The `config` of the root state, and who may change what of it."""

    def __init__(self, state: State, channel: str, config: Config) -> None:
        self._state, self._channel = state, channel
        self._pushed: dict[str, Any] = {}
        self._started: dict[Path, Any] = {}
        """What the files held, for every key that waits for a restart, when it was first known."""
        self._settings: dict[str, Any] = {}
        self._learn(config)

    # -- what is in force -------------------------------------------------------------------------------

    def in_force(self, config: Config) -> Config:
        """A configuration with what waits for a restart left as it was at the start."""
        self._learn(config)
        return replace(config, settings={**config.settings, **self._settings})

    def _learn(self, config: Config) -> None:
        waiting = [name for name, key in config.keys.items() if key.applies == "restart"]
        self._settings = {name: self._settings.get(name, config.settings[name]) for name in waiting}
        self._started = {path: self._started.get(path, value) for path, value in _waiting(config).items()}

    def _restart_needed(self, config: Config) -> bool:
        return any(self._started.get(path, value) != value for path, value in _waiting(config).items())

    # -- what is shown ----------------------------------------------------------------------------------

    def view(self, registry: Registry) -> Json:
        """The `config` of the root state: `{schema, values}`. A key without a value has none in `values`."""
        config, properties, values = registry.config, {}, {}
        for name, key in _keys(config).items():
            properties[name] = _property(config, key, (name,))
            values[name] = _list(self._pushed.get(name, key.default)) if key.pushed else _shown(config, key)
        for name in _plugins(config):
            properties[f"plugins.{name}"] = _plugin_property(registry, name)
            values[f"plugins.{name}"] = _plugin_shown(registry, name)
        properties[RESTART] = {
            "type": "boolean",
            "title": "Restart needed",
            "description": "Whether something was changed that waits for a restart of this host.",
            "readOnly": True,
            "default": False,
        }
        values[RESTART] = self._restart_needed(config) or bool(registry.undecided)
        return {
            "schema": {"type": "object", "properties": properties},
            "values": {name: value for name, value in values.items() if value is not None},
        }

    def tell(self, registry: Registry, echo: Echo | None = None) -> None:
        """Bring the root state up to date: one `root/configChanged` with what changed, or with what was pushed."""
        channel = self._state.channels[self._channel]
        after, before = self.view(registry), channel.state["config"]["values"]
        values: Json = after["values"]
        channel.state = {
            **channel.state,
            "config": {**after, "values": before},
            **self._meta(channel.state, values),
        }
        named = echo.names if echo else ()
        told = {
            name: values[name] for name in values if name in named or before.get(name, NOTHING) != values[name]
        }
        action: Json = {"type": "root/configChanged", "config": told}
        if not before.keys() <= values.keys() or (echo and echo.replace):
            action = {"type": "root/configChanged", "config": values, "replace": True}
        if echo:
            self._state.dispatch(self._channel, action, echo.origin)
        elif told or "replace" in action:
            self._state.dispatch(self._channel, action)

    @staticmethod
    def _meta(state: Json, values: Json) -> Json:
        meta = {name: value for name, value in state.get("_meta", {}).items() if name != RESTART}
        if values[RESTART]:
            meta[RESTART] = True
        return {"_meta": meta} if meta or "_meta" in state else {}

    # -- what is pushed ---------------------------------------------------------------------------------

    def push(self, registry: Registry, action: Json) -> Config | None:
        """Take a `root/configChanged` and answer the configuration it made, `None` when no file was changed.

        What it returned for is on disk; telling anybody is left to the caller. With `replace`, what clients
        brought before is gone; what files hold stays. Raises `Rejected` naming the key; nothing has changed then.
        """
        given: Json = action["config"]
        _refuse_undeclared(registry.config, given)
        pushed = {} if action.get("replace") is True else dict(self._pushed)
        pushed |= {name: _fitting(name, given[name], key) for name, key in _pushed(registry.config, given)}
        filed = {name: value for name, value in given.items() if name not in registry.config.pushed}
        config = _write(registry, filed) if filed else None
        self._pushed = pushed
        return config


def _waiting(config: Config) -> dict[Path, Any]:
    """What the files hold for every key whose change waits for a restart."""
    found: dict[Path, Any] = {(name,): config.held((name,), key.default) for name, key in _restarting(config.keys)}
    for plugin, options in config.options.items():
        for name, key in _restarting(options):
            path = ("plugins", plugin, name)
            found[path] = config.held(path, key.default)
    return {path: _list(value) for path, value in found.items()}


def _restarting(keys: Mapping[str, ConfigKey]) -> Iterator[tuple[str, ConfigKey]]:
    return ((name, key) for name, key in keys.items() if key.applies == "restart")


def _list(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


# Showing


def _keys(config: Config) -> dict[str, ConfigKey]:
    own = {name: key for name, key in config.keys.items() if key.in_root and name not in NEVER}
    return {**own, **config.pushed}


def _plugins(config: Config) -> tuple[str, ...]:
    named = {*config.default_plugins, *config.configured_plugins, *(config.overrides.plugins or ())}
    return config.ordered(named)


def _schema(key: ConfigKey) -> Mapping[str, Any]:
    return {**key.schema, "writeOnly": True} if key.secret else key.schema


def _property(config: Config, key: ConfigKey, path: Path) -> Json:
    said = {"title": key.name, "description": _described(config, key.description, path)}
    shown = _in_protocol_types({**{word: text for word, text in said.items() if text}, **_schema(key)}, key.name)
    return shown if key.default is None else {**shown, "default": _list(key.default)}


def _in_protocol_types(schema: Mapping[str, Any], title: str) -> Json:
    """A schema as clients may read it: the protocol has no integers, and everything in it has a title."""
    told: Json = {"title": title, **schema}
    if told.get("type") == "integer":
        told["type"] = "number"
    if "enum" in told and "type" not in told:
        told["type"] = "string"
    if isinstance(told.get("items"), Mapping):
        told["items"] = _in_protocol_types(told["items"], title)
    if isinstance(told.get("properties"), Mapping):
        told["properties"] = {name: _in_protocol_types(each, name) for name, each in told["properties"].items()}
    return told


def _described(config: Config, description: str, path: Path) -> str:
    """A description, with the flag that has the last word in this run when there is one."""
    layer = config.origins.get(path)
    if layer is None or not layer.name.startswith("--"):
        return description
    return f"{description} This run was started with {layer.name}, which wins.".strip()


def _shown(config: Config, key: ConfigKey) -> Any:
    return masked(_list(config.held((key.name,), key.default)), _schema(key))


def _plugin_property(registry: Registry, name: str) -> Json:
    config = registry.config
    options = {
        option: _property(config, key, ("plugins", name, option))
        for option, key in _options(registry, name).items()
    }
    if _has_host_tools(registry, name):
        options["hostTools"] = dict(HOST_TOOLS)
    description = f"The plugin {name}: whether it is on, and its options."
    if config.overrides.plugins is not None:
        description += " This run was started with a list of plugins of its own, which wins."
    return {
        "type": "object",
        "title": name,
        "description": description,
        "properties": {
            "enabled": {"type": "boolean", "title": "enabled", "default": name in config.default_plugins},
            "options": {"type": "object", "title": "options", "properties": options},
        },
    }


def _options(registry: Registry, name: str) -> Mapping[str, ConfigKey]:
    """What a plugin declares; nothing is known of one that is not loaded."""
    return registry.config.options.get(name, {})


def _has_host_tools(registry: Registry, name: str) -> bool:
    """Whether the switch says anything: to plugins with agents, and not as an option of their own."""
    contribution = registry.contributions.get(name)
    return bool(contribution and contribution.agents) and "hostTools" not in _options(registry, name)


def _plugin_shown(registry: Registry, name: str) -> Json:
    config, declared = registry.config, _options(registry, name)
    switches = {"enabled", "required"} | ({"hostTools"} - declared.keys())
    options = {option: _list(key.default) for option, key in declared.items() if key.default is not None}
    options |= {option: value for option, value in _held_table(config, name).items() if option not in switches}
    shown = {option: masked(value, _schema_of_option(declared, option)) for option, value in options.items()}
    if _has_host_tools(registry, name):
        shown["hostTools"] = config.held(("plugins", name, "hostTools"), True)
    return {"enabled": _enabled(config, name), "options": shown}


def _schema_of_option(declared: Mapping[str, ConfigKey], option: str) -> Mapping[str, Any]:
    # What nobody declares might be a secret: a misspelt one, or one of a plugin that is not loaded.
    return _schema(declared[option]) if option in declared else {"writeOnly": True}


def _held_table(config: Config, plugin: str) -> Mapping[str, Any]:
    table = config.held(("plugins", plugin), {})
    return table if isinstance(table, Mapping) else {}


def _enabled(config: Config, plugin: str) -> bool:
    return config.held(("plugins", plugin, "enabled"), plugin in config.default_plugins) is True


# Pushing


def _refuse_undeclared(config: Config, given: Mapping[str, Any]) -> None:
    known = {*_keys(config), *(f"plugins.{name}" for name in _plugins(config))}
    for name in given:
        if name == RESTART:
            raise Rejected(f"{name} is the host's to say")
        if name not in known:
            raise Rejected(f"{name} is not a setting of this host")


def _pushed(config: Config, given: Mapping[str, Any]) -> Iterator[tuple[str, ConfigKey]]:
    return ((name, config.pushed[name]) for name in given if name in config.pushed)


def _fitting(name: str, value: Any, key: ConfigKey) -> Any:
    if found := misfit(value, key.schema):
        where, what = found
        raise Rejected(f"{name}{where} must be {what}")
    return value


def _write(registry: Registry, given: Mapping[str, Any]) -> Config | None:
    """Have the file hold what was pushed, and read everything again. Everything is checked before it is written.

    Written here and now, in the one place where actions take effect, for a push that has been echoed must be on
    disk and the next action must find it in force. That is a file of a few kilobytes, two `fsync`s and two
    readings: ten or twenty milliseconds, for something people do by hand.
    """
    config = _read_again(registry.config)
    edits: Edits = {}
    for name, value in given.items():
        found = _plugin_edits if name.startswith("plugins.") else _key_edits
        changes = dict(found(replace(registry, config=config), name, value))
        _refuse_overruled(config, name, changes)
        edits |= changes
    if not edits:
        return None
    try:
        edit(config.writable, edits, patience=PATIENCE, private=any(map(registry.config.keeps_secret, edits)))
    except ConfigError as error:
        raise Rejected(f"{', '.join(given)} cannot be changed: {error.sentence}") from error
    except (ValueError, TypeError, OSError) as error:
        # What JSON can say and the file's format cannot, as half a surrogate pair or a null inside a list.
        raise Rejected(f"{', '.join(given)} cannot be written to {config.writable}") from error
    return config.reload()


def _read_again(config: Config) -> Config:
    try:
        config = config.reload()
        config.check()
    except ConfigError as error:
        raise Rejected(f"Settings cannot be changed now: {error.sentence}") from error
    return config


def _refuse_overruled(config: Config, name: str, edits: Edits) -> None:
    """A second file has the last word: writing the first would look as if it had worked."""
    for path in edits:
        layer = config.filed_origins.get(path)
        if layer is not None and layer.name in map(str, config.files) and layer.name != str(config.writable):
            raise Rejected(
                f"{name} cannot be changed: {layer.name} says otherwise than {config.writable} and wins"
            )


def _key_edits(registry: Registry, name: str, value: Any) -> Edits:
    key, held = registry.config.keys[name], registry.config.held((name,), NOTHING)
    wanted = joined(value, held, _schema(key)) if has_secrets(_schema(key)) else value
    if wanted is not NOTHING:
        _fitting(name, wanted, key)
    return _edits((name,), held, wanted, key)


def _plugin_edits(registry: Registry, name: str, value: Any) -> Edits:
    if not isinstance(value, Mapping):
        raise Rejected(f"{name} must be a table with enabled or options")
    for member in value:
        if member not in ("enabled", "options"):
            raise Rejected(f"{name}.{member} is not a setting of this host")
    edits: Edits = {}
    plugin = name.removeprefix("plugins.")
    if "enabled" in value:
        edits |= _switch_edits(registry, plugin, value["enabled"])
    options = value.get("options", {})
    if not isinstance(options, Mapping):
        raise Rejected(f"{name}.options must be a table")
    for option, wanted in options.items():
        edits |= _option_edits(registry, plugin, option, wanted)
    return edits


def _switch_edits(registry: Registry, plugin: str, on: Any) -> Edits:
    if not isinstance(on, bool):
        raise Rejected(f"plugins.{plugin}.enabled must be true or false")
    if on is _enabled(registry.config, plugin):
        return {}
    if on:
        alone = replace(registry.config.overrides, plugins=(plugin,))
        status = judge(plugin, replace(registry.config, overrides=alone), registry.loader.discovery)
        if status.state != "ready":
            raise Rejected(f"plugins.{plugin} cannot be enabled: it is {status.state}, {status.reason}")
    return {("plugins", plugin, "enabled"): on}


def _option_edits(registry: Registry, plugin: str, option: str, value: Any) -> Edits:
    path, declared = ("plugins", plugin, option), _options(registry, plugin)
    spelled = f"plugins.{plugin}.options.{option}"
    key = declared.get(option)
    if key is None and option == "hostTools" and _has_host_tools(registry, plugin):
        key = ConfigKey("hostTools", HOST_TOOLS, True)
    held = registry.config.held(path, NOTHING)
    if key is None:
        if value == MASK and held is not NOTHING:
            return {}
        if plugin in registry.config.options:
            raise Rejected(f"{spelled} is not an option {plugin} knows")
        raise Rejected(f"{spelled} cannot be changed: {plugin} is not loaded, so nothing is known of its options")
    wanted = joined(value, held, _schema(key))
    if wanted is not NOTHING:
        _fitting(spelled, wanted, key)
    return _edits(path, held, wanted, key)


def _edits(path: Path, held: Any, wanted: Any, key: ConfigKey) -> Edits:
    if held is NOTHING and wanted == _list(key.default):
        return {}
    changes = differences(held, wanted, path)
    return {where: REMOVE if value is NOTHING else value for where, value in changes}
