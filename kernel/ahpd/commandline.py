"""What all verbs share: their shape, their common options, what they read first, and how they speak."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ahpd import log
from ahpd.errors import AhpdError, ConfigError

if TYPE_CHECKING:
    from ahpd.config import Config, Overrides
    from ahpd.plugins import Discovery

F = TypeVar("F", bound=Callable[..., Any])

DONE, FAILED, WRONG_USE, NOT_RUNNING, INTERRUPTED = 0, 1, 2, 3, 130


def fail(sentence: str, code: int) -> int:
    note(sentence)
    return code


def note(sentence: str) -> None:
    click.echo(f"ahpd: {log.redact(' '.join(sentence.split()))}", err=True)


class Verbs(click.Group):
    """A group with a verb of its own when none is typed: `ahpd --port 0` is `ahpd run --port 0`."""

    default = "run"

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0].startswith("-") and args[0] not in ("--help", "-h", "--version")):
            args = [self.default, *args]
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if self.get_command(ctx, args[0]) is None:
            from ahpd.config import nearest

            close = nearest(args[0], self.known_verbs(ctx))
            meant = f"; did you mean {close}?" if close else f"; {ctx.command_path} --help lists them"
            raise click.UsageError(f"there is no verb {args[0]}{meant}", ctx)
        return super().resolve_command(ctx, args)

    def known_verbs(self, ctx: click.Context) -> list[str]:
        """Everything that may be typed, as far as that is known."""
        return self.list_commands(ctx)


class ConfigVerbs(Verbs):
    default = "get"


class PluginVerbs(Verbs):
    default = "list"


HELP = {"help_option_names": ["-h", "--help"]}

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON value and nothing else.")
config_file_option = click.option("--config-file", metavar="P", help="Use this configuration file alone.")


def verb(group: click.Group, **settings: Any) -> Callable[[F], click.Command]:
    """A verb of a group, with the options every verb of configuration and plugins has."""

    def declare(function: F) -> click.Command:
        return group.command(**settings)(config_file_option(json_option(function)))

    return declare


def show(value: Any, as_json: bool, lines: Iterable[str]) -> None:
    if as_json:
        click.echo(json.dumps(value, indent=2))
    else:
        for line in lines:
            click.echo(line)


def printable(text: str) -> str:
    """A package's metadata must not steer the terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


# What verbs look at


def overrides_of(options: Mapping[str, Any], settings: Mapping[str, Any] | None = None) -> Overrides:
    from ahpd.config import Overrides

    if options.get("no_plugins") and options.get("plugin"):
        raise ConfigError("--no-plugins cannot be used beside --plugin")
    named = tuple(options.get("plugin") or ())
    file = options.get("config_file")
    return Overrides(
        config_file=Path(file).expanduser().absolute() if file else None,
        settings=settings or {},
        plugins=() if options.get("no_plugins") else named or None,
        plugin_options=tuple(options.get("plugin_option") or ()),
    )


def looked_up(config_file: str | None, *, to_write: bool = False) -> tuple[Config, Discovery]:
    """The configuration and what is installed. A file that is named `to_write` need not be there yet."""
    from ahpd.config import Config
    from ahpd.plugins import discover

    discovery = discover()
    for problem in discovery.problems:
        note(problem)
    overrides = replace(overrides_of({"config_file": config_file}), makes_file=to_write)
    return Config.load(overrides=overrides), discovery


def known_plugin(name: str, config: Config, discovery: Discovery, what: str) -> None:
    from ahpd.config import nearest

    names = {*discovery.found, *config.configured_plugins, *config.enabled_plugins}
    if name not in names:
        close = nearest(name, names)
        meant = f"; did you mean {close}?" if close else "; ahpd plugin list shows those that are"
        raise AhpdError(f"no plugin {name} is {what}{meant}")


def tell_daemon(config: Config) -> dict[str, Any] | None:
    """Have the running daemon read its configuration again; `None` when none that reads `config` runs.

    It may have been started with a file of its own, and what is written to another one changes nothing there.
    """
    from ahpd.control import NotRunning, ask, running

    record = running(config.places)
    if record is None or not record.get("control"):
        return None
    try:
        told = ask(record["control"], "reload")
    except NotRunning:
        return None
    written = os.path.realpath(config.writable)
    if written not in map(os.path.realpath, told["files"]):
        note(f"the running ahpd does not read {config.writable} and stays as it is")
        return None
    return told
