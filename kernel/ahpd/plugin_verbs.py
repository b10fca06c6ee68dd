"""`ahpd plugin ...`: list, show and switch plugins. Only `show` imports one, behind a fence."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from ahpd.commandline import (
    DONE,
    FAILED,
    HELP,
    PluginVerbs,
    fail,
    known_plugin,
    looked_up,
    note,
    printable,
    show,
    tell_daemon,
    verb,
)
from ahpd.errors import AhpdError

if TYPE_CHECKING:
    from ahpd.config import Config
    from ahpd.plugins import Discovery
    from ahpd.ports import ConfigKey


RESTART = (
    "; the running ahpd still keeps sessions as it did when it started, so restart it for this to take hold:"
    " what is begun until then may not be there afterwards"
)


@click.group("plugin", cls=PluginVerbs, context_settings=HELP)
def plugin() -> None:
    """List, show and switch plugins."""


@verb(plugin, name="list", context_settings=HELP)
def plugin_list(as_json: bool, config_file: str | None) -> int:
    """Every plugin, how it stands and what to do about it. Imports none."""
    from ahpd.plugins import cached, read_cache, rows

    config, discovery = looked_up(config_file)
    cache = read_cache(config.places)
    table = rows(config, discovery, cache)
    unknown = {name for name in discovery.found if "provides" not in cached(name, config, discovery, cache)}
    show(table, as_json, _as_table(table, unknown))
    wrong = [row["name"] for row in table if row["enabled"] and row["state"] != "ready"]
    if wrong:
        return fail(f"enabled and not ready: {', '.join(wrong)}", FAILED)
    if unknown and not as_json and sys.stdout.isatty():
        # For people alone: a script takes a line on stderr for something gone wrong.
        note("what provides ? is not known until it is loaded; ahpd plugin show NAME does that, and so does a run")
    return DONE


def _as_table(rows: Sequence[Mapping[str, Any]], unknown: Collection[str]) -> Iterable[str]:
    cells = [("NAME", "STATE", "VERSION", "DISTRIBUTION", "PROVIDES", "NEXT STEP")]
    for row in rows:
        step = "; ".join(part for part in (row["reason"], row["next"]) if part)
        provided = "?" if row["name"] in unknown else _provided(row["provides"])
        shown = (row["name"], row["state"], row["version"], row["distribution"], provided, step)
        cells.append(tuple(printable(cell or "-") for cell in shown))  # type: ignore[arg-type]
    widths = [max(len(line[column]) for line in cells) for column in range(5)]
    for line in cells:
        padded = [cell.ljust(width) for cell, width in zip(line, widths, strict=False)]
        padded[1] = _coloured(padded[1])
        yield "  ".join((*padded, line[5])).rstrip()


def _provided(provides: Mapping[str, Sequence[str]]) -> str:
    counted = [(len(names), kind) for kind, names in provides.items() if names]
    return ", ".join(f"{count} {kind if count > 1 else kind[:-1]}" for count, kind in counted)


def _coloured(state: str) -> str:
    colour = {"ready": "green", "disabled": None, "STATE": None}.get(state.strip(), "red")
    return state if colour is None or os.environ.get("NO_COLOR") else click.style(state, fg=colour)


@verb(plugin, name="show", context_settings=HELP)
@click.argument("name")
def plugin_show(name: str, as_json: bool, config_file: str | None) -> int:
    """One plugin in full. Imports it, behind a fence, to see what it provides."""
    from ahpd.plugins import Loader, Status, cached, hindrance, judge, read_cache, row
    from ahpd.registry import build

    config, discovery = looked_up(config_file)
    known_plugin(name, config, discovery, "installed or configured")
    alone = _alone(config, name)
    loader = Loader(alone, discovery).load_all()
    registry = build(loader, alone, strict=False)
    registry.remember(ran=False)
    status, enabled = registry.statuses[name], config.plugin(name).enabled
    known = cached(name, config, discovery, read_cache(config.places)) if enabled else {}
    if status.state == "ready" and known.get("beside"):
        status = Status("error", known.get("reason", ""), known.get("next", ""))
    if status.state == "ready" and enabled:
        status = hindrance(name, config) or status
    told = status if enabled or status.state != "ready" else judge(name, config, discovery)
    provides = next(row["provides"] for row in registry.rows() if row["name"] == name)
    shown = row(name, config, discovery, told, provides)
    shown["requires"] = [demand for one in discovery.found.get(name, ()) for demand in one.requires]
    shown["settings"] = [_as_declared(key) for key in registry.config_keys.get(name, ())]
    show(shown, as_json, _as_sheet(shown))
    return fail(f"plugin {name}: {status.reason}", FAILED) if status.state != "ready" else DONE


def _alone(config: Config, name: str) -> Config:
    return type(config).load(config.places, replace(config.overrides, plugins=(name,)))


def _as_declared(key: ConfigKey) -> dict[str, Any]:
    where = {"name": key.name, "daemon": key.daemon, "secret": key.secret, "applies": key.applies}
    return {**where, "schema": dict(key.schema), "default": key.default, "description": key.description}


def _as_sheet(shown: Mapping[str, Any]) -> Iterable[str]:
    for name in ("name", "state", "reason", "next", "version", "distribution", "entryPoint"):
        if shown[name]:
            yield f"{name + ':':14}{printable(shown[name])}"
    for kind, names in shown["provides"].items():
        if names:
            yield f"{kind + ':':14}{', '.join(names)}"
    for key in shown["settings"]:
        spelled = key["name"] if key["daemon"] else f"plugins.{shown['name']}.{key['name']}"
        yield f"{'setting:':14}{spelled}  {printable(key['description'])}".rstrip()


@verb(plugin, name="enable", context_settings=HELP)
@click.argument("name")
def plugin_enable(name: str, as_json: bool, config_file: str | None) -> int:
    """Switch a plugin on, in a running daemon of this home too."""
    config, discovery = looked_up(config_file, to_write=True)
    if name not in discovery.found:
        known_plugin(name, replace(config, values={}, default_plugins=()), discovery, "installed")
    return _switch(name, True, config, discovery, as_json)


@verb(plugin, name="disable", context_settings=HELP)
@click.argument("name")
def plugin_disable(name: str, as_json: bool, config_file: str | None) -> int:
    """Switch a plugin off, in a running daemon of this home too. Never imports it."""
    config, discovery = looked_up(config_file, to_write=True)
    known_plugin(name, config, discovery, "installed or configured")
    return _switch(name, False, config, discovery, as_json)


def _switch(name: str, on: bool, config: Config, discovery: Discovery, as_json: bool) -> int:
    from ahpd.configfile import edit
    from ahpd.plugins import judge

    was = config.plugin(name).enabled
    edit(config.writable, {("plugins", name, "enabled"): on})
    config = config.reload()
    word = "enabled" if on else "disabled"
    if config.plugin(name).enabled is not on:
        source = config.sources.get(f"plugins.{name}.enabled", "another file")
        raise AhpdError(f"plugin {name} is {word} in {config.writable}, but {source} says otherwise and wins")
    status = judge(name, config, discovery)
    answer = {"name": name, "enabled": on, "changed": was is not on, "running": False, "restart": False}
    answer |= {"state": status.state, "reason": status.reason or None, "next": status.next or None}
    told = tell_daemon(config)
    line = f"plugin {name} is {word}" + ("" if was is not on else " already")
    if told is not None:
        row = next((row for row in told.get("plugins", ()) if row["name"] == name), answer)
        answer |= {"running": True} | {part: row[part] for part in ("state", "reason", "next")}
        if row["enabled"] is not on:
            raise AhpdError(f"plugin {name} is {word}, but the running ahpd was started with a list of its own")
        answer["restart"] = f"plugins.{name}.enabled" in told["restart"]
        line += RESTART if answer["restart"] else ", in the running ahpd too"
    if on and answer["state"] != "ready":
        raise AhpdError(f"plugin {name} is enabled and {answer['state']}: {answer['reason']}; {answer['next']}")
    show(answer, as_json, [line])
    return DONE
