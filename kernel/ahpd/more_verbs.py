"""Verbs that plugins bring to the command line. No plugin is imported unless a verb is typed that ahpd has not.

Their names are known from what the last run left behind, so that `ahpd --help` shows them without importing any.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from ahpd.commandline import Verbs, looked_up
from ahpd.errors import AhpdError

if TYPE_CHECKING:
    from ahpd.config import Config
    from ahpd.plugins import Discovery


class AllVerbs(Verbs):
    """ahpd's own verbs, and behind them those of plugins."""

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        own = super().get_command(ctx, name)
        return own if own is not None or name.startswith("-") else _of_a_plugin(name)

    def known_verbs(self, ctx: click.Context) -> list[str]:
        return [*super().known_verbs(ctx), *_remembered()]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_commands(ctx, formatter)
        if found := _remembered():
            with formatter.section("Commands of plugins"):
                formatter.write_dl([(name, f"Of the plugin {plugin}.") for name, plugin in sorted(found.items())])


def _remembered() -> dict[str, str]:
    """Verbs of plugins that are on, each with its plugin, as the last run left them. Never raises."""
    from ahpd.config import Config
    from ahpd.plugins import discover

    try:
        config, discovery = Config.load(), discover()
        return {verb: row["name"] for row in _rows(config, discovery) for verb in _verbs(row) if row["enabled"]}
    except AhpdError:
        return {}


def _rows(config: Config, discovery: Discovery) -> list[dict[str, Any]]:
    from ahpd.plugins import read_cache, rows

    return rows(config, discovery, read_cache(config.places))


def _verbs(row: Mapping[str, Any]) -> list[str]:
    return [str(name) for name in row["provides"]["commands"]]


def _of_a_plugin(verb: str) -> click.Command | None:
    """A plugin's verb. Only the plugins known to have it are loaded; every one that is on, where none is known to.

    Raises `AhpdError` when the plugin that has it is off, or broken.
    """
    from ahpd.plugins import Loader
    from ahpd.registry import build

    config, discovery = looked_up(None)
    owners = [row for row in _rows(config, discovery) if verb in _verbs(row)]
    if owners and not any(row["enabled"] for row in owners):
        name = owners[0]["name"]
        raise AhpdError(f"{verb} is a verb of the plugin {name}, which is off; ahpd plugin enable {name}")
    asked = [row["name"] for row in owners if row["enabled"]] or config.enabled_plugins
    alone = type(config).load(config.places, replace(config.overrides, plugins=tuple(asked)))
    registry = build(Loader(alone, discovery).load_all(), alone, strict=False)
    if not owners:
        registry.remember(ran=False)
    for row in owners:
        status = registry.statuses.get(row["name"])
        if verb not in registry.commands and status is not None and status.state != "ready":
            raise AhpdError(f"plugin {row['name']}: {status.reason}; {status.next}")
    return registry.commands.get(verb)
