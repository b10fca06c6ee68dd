"""`ahpd config ...`: read, check and change settings, whatever state the plugins are in."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from ahpd import log
from ahpd.commandline import (
    DONE,
    HELP,
    WRONG_USE,
    ConfigVerbs,
    fail,
    known_plugin,
    looked_up,
    note,
    overrides_of,
    printable,
    show,
    tell_daemon,
    verb,
)
from ahpd.errors import AhpdError, ConfigError

if TYPE_CHECKING:
    from ahpd.config import Config
    from ahpd.plugins import Discovery, Loader


@click.group("config", cls=ConfigVerbs, context_settings=HELP)
def config() -> None:
    """Read and change the configuration."""


def _with_keys(config: Config, discovery: Discovery, wanted: Callable[[Config], bool]) -> Config:
    """`config` held to what plugins declare, as far as the cache of the last run knows it.

    Plugins that are enabled and not in the cache are imported, one by one, only while a key is wanted that
    nothing else explains: reading settings must work whatever is installed.
    """
    from ahpd.plugins import Loader, cached, read_cache
    from ahpd.ports import ConfigKey
    from ahpd.registry import declared_keys

    cache, keys, elsewhere = read_cache(config.places), {}, set[str]()
    for name in discovery.found:
        entry = cached(name, config, discovery, cache)
        own = tuple(ConfigKey(**key) for key in entry.get("keys", ()))
        if not config.plugin(name).enabled:
            elsewhere |= {key.name for key in own if key.daemon}
        elif entry.get("state") == "ready" or own:
            keys[name] = own
    known = config.declare(keys, elsewhere)
    loader: Loader | None = None
    for name in config.enabled_plugins:
        if name not in keys and wanted(known):
            loader = loader or Loader(config, discovery)
            loader.load(name)
            keys |= declared_keys(loader)
            known = config.declare(keys, elsewhere)
    return known


def never(config: Config) -> bool:
    return False


@verb(config, name="get", context_settings=HELP)
@click.argument("key", required=False)
def config_get(key: str | None, as_json: bool, config_file: str | None) -> int:
    """One setting, or all of them and where each comes from. Secrets read <set>."""
    from ahpd.config import split_key

    loaded, discovery = looked_up(config_file)
    known = _with_keys(loaded, discovery, never)
    tree, names = _shown(known, discovery), {*discovery.found, *known.configured_plugins}
    path = split_key(key, names) if key is not None else ()
    for place, sentence in known.wrong.items():
        if place[: len(path)] == path[: len(place)]:
            note(f"{sentence}; it is read as if it were not set")
    if key is None:
        shown = {"files": [str(file) for file in known.files], "config": tree, "sources": dict(known.sources)}
        show(shown, as_json, _as_lines(tree, known.sources))
        return DONE
    value = _at(tree, key, names)
    show(value, as_json, [value if isinstance(value, str) else json.dumps(value)])
    return DONE


def _shown(config: Config, discovery: Discovery) -> dict[str, Any]:
    """Every setting in effect. What may be a secret is masked, options of plugins nobody asked included."""
    tree: dict[str, Any] = {name: value for name, value in config.values.items() if name != "plugins"}
    for name, value in config.settings.items():
        tree[name] = log.MASK if config.keys[name].secret and value is not None else value
    tree["plugins"] = {}
    for name in config.ordered({*config.enabled_plugins, *config.configured_plugins, *discovery.found}):
        settings, declared = config.plugin(name), config.options.get(name, {})
        table: dict[str, Any] = {"enabled": settings.enabled, "hostTools": settings.host_tools}
        table["required"] = settings.required
        for option, value in settings.options.items():
            hidden = option not in declared or declared[option].secret
            table[option] = log.MASK if hidden and value is not None else value
        tree["plugins"][name] = table
    return {name: log.masked(value, name) for name, value in tree.items()}


def _as_lines(tree: Mapping[str, Any], sources: Mapping[str, str], above: str = "") -> Iterable[str]:
    for name, value in tree.items():
        dotted = f"{above}{name}"
        if isinstance(value, Mapping) and value:
            yield from _as_lines(value, sources, f"{dotted}.")
            continue
        source = f"  ({sources[dotted]})" if dotted in sources else ""
        yield printable(
            f"{dotted} = {'not set' if value is None else json.dumps(value, ensure_ascii=False)}{source}"
        )


def _at(tree: Mapping[str, Any], key: str, plugins: Iterable[str]) -> Any:
    from ahpd.config import nearest, split_key

    value: Any = tree
    for step in split_key(key, set(plugins)):
        if not isinstance(value, Mapping) or step not in value:
            close = nearest(step, value) if isinstance(value, Mapping) else None
            raise AhpdError(f"there is no setting {key}" + (f"; did you mean {close}?" if close else ""))
        value = value[step]
    return value


@verb(config, name="set", context_settings={**HELP, "ignore_unknown_options": True})
@click.argument("key")
@click.argument("value")
def config_set(key: str, value: str, as_json: bool, config_file: str | None) -> int:
    """Set one setting: JSON where it parses and fits, else text."""
    from ahpd.config import split_key
    from ahpd.configfile import edit

    loaded, discovery = looked_up(config_file, to_write=True)
    path = split_key(key, {*discovery.found, *loaded.configured_plugins})
    known = _with_keys(loaded, discovery, lambda config: _schema_of(config, path) is None)
    parsed = _checked(known, discovery, path, value)
    edit(known.writable, {path: parsed}, private=known.keeps_secret(path))
    value_now = _at(_shown(known.reload(), discovery), key, path[1:2])
    return _after_change(known, path, {"key": key, "value": value_now}, as_json)


def _schema_of(config: Config, path: tuple[str, ...]) -> Mapping[str, Any] | None:
    """The schema of the declared key that `path` names or leads into."""
    from ahpd.config import BOOLEAN, SWITCHES

    if path[0] != "plugins":
        return config.keys[path[0]].schema if path[0] in config.keys else None
    if len(path) < 3:
        return None
    declared = config.options.get(path[1], {})
    if path[2] in declared:
        return declared[path[2]].schema
    return BOOLEAN if path[2] in SWITCHES else None


def _checked(config: Config, discovery: Discovery, path: tuple[str, ...], text: str) -> Any:
    from ahpd.config import SWITCHES, nearest
    from ahpd.schemas import misfit, read_value

    dotted, schema = ".".join(path), _schema_of(config, path)
    depth = 3 if path[0] == "plugins" else 1
    if path[0] == "plugins":
        if len(path) < 3:
            raise ConfigError(f"{dotted} is a table; name an option in it, as plugins.NAME.KEY")
        known_plugin(path[1], config, discovery, "installed or configured")
    if schema is None and (path[0] != "plugins" or path[1] in config.options):
        names = {*config.options[path[1]], *SWITCHES} if path[0] == "plugins" else set(config.keys)
        close = nearest(path[depth - 1], names)
        raise ConfigError(f"{dotted} is not a setting ahpd knows" + (f"; did you mean {close}?" if close else ""))
    whole = value = read_value(text, schema if len(path) == depth else None)
    for step in reversed(path[depth:]):
        whole = {step: whole}
    found = misfit(whole, schema) if schema is not None else None
    if value is None:
        found = ("", "a value; ahpd config unset takes it out")
    if found:
        raise ConfigError(f"{config.writable}: {'.'.join(path[:depth])}{found[0]} must be {found[1]}")
    return value


_WHEN = {
    "live": "; the running ahpd took it",
    "session": "; the running ahpd uses it for the next session",
    "enable": "; it counts once that plugin is enabled",
    "restart": "; the running ahpd takes it at its next start",
}
"""What to say when a daemon runs, the later the further down."""


def _after_change(config: Config, path: tuple[str, ...], answer: dict[str, Any], as_json: bool) -> int:
    fresh = config.reload()
    source = fresh.sources.get(".".join(path), str(config.writable))
    if source != str(config.writable):
        note(f"{source} sets {'.'.join(path)} too, and wins")
    line = f"{answer['key']} is {json.dumps(answer['value'], ensure_ascii=False)}"
    line += _in_daemon(fresh, list(_settings_in(path, answer["value"])), answer)
    show(answer, as_json, [line])
    return DONE


def _settings_in(path: tuple[str, ...], value: Any) -> Iterable[tuple[str, ...]]:
    """The settings that a path is, is in, or has beneath it."""
    depth = 3 if path[0] == "plugins" else 1
    if len(path) >= depth or not isinstance(value, Mapping):
        yield path[:depth]
        return
    for name, inner in value.items():
        yield from _settings_in((*path, name), inner)


def _in_daemon(config: Config, changed: Sequence[tuple[str, ...]], answer: dict[str, Any]) -> str:
    """Have a running daemon take a change; the end of the sentence that says when it does. `answer` learns it."""
    told = tell_daemon(config)
    if told is None:
        return ""
    for path in changed:
        if path[0] == "plugins" and path[2:] == ("enabled",):
            _compare(config, path[1], told)
    whens = list(_WHEN)
    answer["applies"] = max((_applies(config, path, told) for path in changed), key=whens.index, default="live")
    return _WHEN[answer["applies"]]


def _compare(config: Config, name: str, told: Mapping[str, Any]) -> None:
    """Say where the running daemon has not come to what was switched."""
    row = next((row for row in told["plugins"] if row["name"] == name), None)
    if row is None or row["enabled"] is not config.plugin(name).enabled:
        note(f"the running ahpd was started with a list of plugins of its own and keeps {name} as it is")
    elif row["enabled"] and row["state"] != "ready":
        note(f"plugin {name} is enabled and {row['state']}: {row['reason']}; {row['next']}")


def _applies(config: Config, path: tuple[str, ...], told: Mapping[str, Any]) -> str:
    if path[0] != "plugins" or len(path) < 3:
        return config.keys[path[0]].applies if path[0] in config.keys else "restart"
    _, name, option = path
    if option == "enabled":
        return "restart" if ".".join(path) in told["restart"] else "live"
    if name in told["loaded"]:
        return "live"  # it was not on, or waited for just this; now it was begun with it
    if not config.plugin(name).enabled:
        return "enable"
    declared = config.options.get(name, {}).get(option)
    return declared.applies if declared else "restart"


@verb(config, name="unset", context_settings=HELP)
@click.argument("key")
def config_unset(key: str, as_json: bool, config_file: str | None) -> int:
    """Take one setting out of the file."""
    from ahpd.config import split_key
    from ahpd.configfile import REMOVE, edit, read_file

    loaded, discovery = looked_up(config_file, to_write=True)
    path = split_key(key, {*discovery.found, *loaded.configured_plugins})
    place: Any = read_file(loaded.writable) if loaded.writable.exists() else {}
    for step in path:
        place = place.get(step) if isinstance(place, Mapping) else None
    if place is None:
        show({"key": key, "changed": False}, as_json, [f"{key} is not set in {loaded.writable}"])
        return DONE
    edit(loaded.writable, {path: REMOVE})
    fresh = _with_keys(loaded.reload(), discovery, never)
    if source := fresh.sources.get(".".join(path)):
        note(f"{source} sets {'.'.join(path)} too, and still does")
    answer: dict[str, Any] = {"key": key, "changed": True}
    line = f"{key} is taken out of {loaded.writable}"
    line += _in_daemon(fresh, list(_settings_in(path, place)), answer)
    show(answer, as_json, [line])
    return DONE


@verb(config, name="check", context_settings=HELP)
def config_check(as_json: bool, config_file: str | None) -> int:
    """Hold the configuration to what is declared and name everything that is wrong."""
    from ahpd.config import check_binding

    try:
        loaded, discovery = looked_up(config_file)
    except ConfigError as error:
        # A file that cannot be read at all is what a check is asked about, and no reason to print nothing.
        show({"files": [], "problems": [error.sentence], "warnings": []}, as_json, [error.sentence])
        return fail("1 wrong in the configuration", WRONG_USE)
    known = _with_keys(loaded, discovery, lambda config: bool(config.warnings or _unexplained(config)))
    problems = list(known.problems)
    try:
        check_binding(known)
    except AhpdError as error:
        problems.append(error.sentence)
    shown = {"files": [str(file) for file in known.files], "problems": problems, "warnings": list(known.warnings)}
    show(shown, as_json, [*problems, *known.warnings] or ["nothing is wrong"])
    return fail(f"{len(problems)} wrong in the configuration", WRONG_USE) if problems else DONE


def _unexplained(config: Config) -> bool:
    """Whether an enabled plugin has options in a file and is not known to declare any."""
    return any(
        name not in config.options and config.plugin(name).enabled and config.plugin(name).options
        for name in config.configured_plugins
    )


@verb(config, name="path", context_settings=HELP)
def config_path(as_json: bool, config_file: str | None) -> int:
    """The file that set and unset write."""
    from ahpd.places import Places

    file = overrides_of({"config_file": config_file}).config_file or Places.from_environment().user_file
    show({"path": str(file), "exists": file.exists()}, as_json, [str(file)])
    return DONE
