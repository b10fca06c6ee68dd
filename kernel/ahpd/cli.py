"""The command line: `run`, and the verbs that look after plugins and configuration.

Everything heavy is imported by the verb that needs it. The verbs that repair an installation never import a
plugin, except `plugin show`, and `config set` and `check` for a setting that nothing else explains. stdout
holds what was asked for and nothing else; a failure is one line on stderr.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from ahpd import __version__, log
from ahpd.commandline import (
    DONE,
    FAILED,
    HELP,
    INTERRUPTED,
    NOT_RUNNING,
    WRONG_USE,
    config_file_option,
    fail,
    json_option,
    overrides_of,
)
from ahpd.config_verbs import config
from ahpd.errors import AhpdError, ConfigError
from ahpd.more_verbs import AllVerbs
from ahpd.plugin_verbs import plugin

if TYPE_CHECKING:
    from ahpd.config import Config
    from ahpd.plugins import Loader
    from ahpd.ports import ConfigKey


# Ending well


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and answer its exit code. Nothing a person typed or installed ends in a traceback."""
    code = _guarded(lambda: cli.main(args=list(sys.argv[1:] if argv is None else argv), **_CLICK))
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read us left. The interpreter flushes once more at exit and would complain there.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return code or FAILED
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return fail(f"the output cannot be written: {error.strerror}", FAILED)
    return code


_CLICK: dict[str, Any] = {"prog_name": "ahpd", "standalone_mode": False}


def _guarded(command: Callable[[], Any]) -> int:
    try:
        code = command()
        return code if isinstance(code, int) else DONE
    except click.exceptions.Exit as error:
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except click.ClickException as error:
        return fail(error.format_message(), WRONG_USE)
    except BrokenPipeError:
        return FAILED
    except AhpdError as error:
        return fail(error.sentence, _code_of(error))
    except BaseExceptionGroup as group:
        return _grouped(group)
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else FAILED
    except OSError as error:
        # A full disk, a folder nobody may enter: no fault of ours, and the system has the words.
        about = f"{error.filename}: " if error.filename else ""
        return fail(f"{about}{error.strerror or error}", FAILED)
    except Exception as error:
        return _broken(error)


def _code_of(error: AhpdError) -> int:
    from ahpd.control import NotRunning

    if isinstance(error, ConfigError):
        return WRONG_USE
    return NOT_RUNNING if isinstance(error, NotRunning) else FAILED


def _grouped(group: BaseExceptionGroup[BaseException]) -> int:
    """A nursery wraps what ended it; the one error in there that was meant for people is told."""
    if group.subgroup(KeyboardInterrupt):
        return INTERRUPTED
    meant: BaseException | None = group.subgroup(AhpdError)
    while isinstance(meant, BaseExceptionGroup):
        meant = meant.exceptions[0]
    return fail(meant.sentence, _code_of(meant)) if isinstance(meant, AhpdError) else _broken(group)


def _broken(error: BaseException) -> int:
    if os.environ.get("AHPD_TRACEBACK"):
        log.get("ahpd").exception("a fault in ahpd", exc_info=error)
    told = " ".join(f"{type(error).__name__}: {error}".split())
    return fail(f"a fault in ahpd: {told} (AHPD_TRACEBACK=1 says where)", FAILED)


@click.group(cls=AllVerbs, context_settings=HELP)
@click.version_option(__version__, prog_name="ahpd", message="%(prog)s %(version)s")
def cli() -> None:
    """A sessions server for coding agents.

    Without a verb it runs the daemon: `ahpd --port 0` is `ahpd run --port 0`.
    `ahpd run --help` lists the options of that.
    """


cli.add_command(plugin)
cli.add_command(config)


# run


@dataclass
class Prepared:
    """What must be known before the options of `run` can be: the plugins of this run and their settings."""

    loader: Loader | None = None
    keys: dict[str, ConfigKey] = field(default_factory=dict)
    error: AhpdError | None = None


class SettingOption(click.Option):
    """The option of `run` for one declared setting."""

    def __init__(self, key: ConfigKey) -> None:
        from ahpd.config import flag_of

        self.key = key
        flag, kind = flag_of(key.name), key.schema.get("type")
        pair = kind == "boolean" and not flag.startswith("--without-")
        more: dict[str, Any] = {"is_flag": True, "default": None}
        if kind != "boolean":
            choices = "|".join(map(str, key.schema.get("enum", ())))
            item = key.schema.get("items", key.schema)
            sort = {"integer": "N", "number": "N"}.get(
                str(kind), "PATH" if item.get("format") == "path" else "TEXT"
            )
            more = {"multiple": kind == "array", "metavar": choices or sort}
        spelled = f"{flag}/--no-{flag[2:]}" if pair else flag
        super().__init__([spelled, "setting_" + key.name.replace("-", "_")], help=key.description, **more)


class RunCommand(click.Command):
    """`run` takes an option for every setting that declares one, plugins' settings included."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.obj = prepared = _prepare(args)
        try:
            rest = super().parse_args(ctx, list(args))
        except click.UsageError:
            if prepared.error:
                # Without the plugins an option of theirs looks unknown; say what is really wrong.
                raise prepared.error from None
            raise
        if prepared.error:
            raise prepared.error
        return rest

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        from ahpd.config import KERNEL_KEYS

        own = super().get_params(ctx)
        taken = {spelling for option in own for spelling in (*option.opts, *option.secondary_opts)}
        keys = {key.name: key for key in KERNEL_KEYS} | (ctx.obj.keys if isinstance(ctx.obj, Prepared) else {})
        generated = [SettingOption(key) for key in keys.values() if key.flag]
        return [option for option in generated if taken.isdisjoint(option.opts)] + own


def _prepare(args: Sequence[str]) -> Prepared:
    """Load the plugins that these arguments ask for. Never raises: `run --help` must work in any state."""
    prepared = Prepared()
    try:
        from ahpd.config import Config
        from ahpd.plugins import Loader
        from ahpd.registry import declared_keys

        config = Config.load(overrides=overrides_of(_peek(args)))
        prepared.loader = Loader(config).load_all()
        found = [key for keys in declared_keys(prepared.loader).values() for key in keys if key.daemon]
        prepared.keys = {key.name: key for key in found}
    except AhpdError as error:
        prepared.error = error
    return prepared


def _peek(args: Sequence[str]) -> dict[str, Any]:
    """The options that decide which plugins load, read before the rest can be parsed."""
    peeked: dict[str, Any] = {"config_file": None, "plugin": [], "no_plugins": "--no-plugins" in args}
    for place, option in enumerate(args):
        name, equals, value = option.partition("=")
        value = value if equals else "".join(args[place + 1 : place + 2])
        if name == "--config-file":
            peeked["config_file"] = value
        elif name == "--plugin":
            peeked["plugin"].append(value)
    return peeked


@cli.command(cls=RunCommand, context_settings=HELP)
@click.option("--plugin", multiple=True, metavar="NAME", help="Load this plugin; replaces the enabled ones.")
@click.option("--no-plugins", is_flag=True, help="Load no plugin.")
@click.option("--plugin-option", multiple=True, metavar="NAME.KEY=VALUE", help="One plugin option for this run.")
@click.option("--stdio", is_flag=True, help="Serve one client on stdin and stdout, with no port.")
@config_file_option
@json_option
@click.pass_context
def run(ctx: click.Context, /, as_json: bool, stdio: bool, **options: Any) -> Any:
    """Run the daemon in this terminal."""
    from ahpd.config import Config, check_binding, check_paths
    from ahpd.registry import build

    given = {
        option.key.name: ctx.params[option.name]
        for option in ctx.command.get_params(ctx)
        if isinstance(option, SettingOption) and option.name and ctx.params[option.name] not in (None, ())
    }
    loader = ctx.obj.loader
    config = Config.load(overrides=overrides_of(options, given))
    _check_plugin_options(config, options["plugin_option"])
    registry = build(loader, config)
    log.setup(registry.config.settings["logFormat"], registry.config.settings["logLevel"])
    registry.report()
    registry.remember()
    check_paths(registry.config)
    if not stdio:
        check_binding(registry.config)

    from ahpd.serving import RunOptions
    from ahpd.serving import run as run_host

    return run_host(
        config=registry.config,
        loader=loader,
        registry=registry,
        options=RunOptions(json=as_json, stdio=stdio),
    )


def _check_plugin_options(config: Config, texts: Sequence[str]) -> None:
    from ahpd.config import split_key

    for text in texts:
        name = split_key("plugins." + text.partition("=")[0], config.enabled_plugins)[1]
        if name not in config.enabled_plugins:
            raise ConfigError(f"--plugin-option names {name}, which is not a plugin of this run")


@cli.command(context_settings=HELP)
@click.option("--once", is_flag=True, help="End after the transcript.")
@json_option
def demo(once: bool, as_json: bool) -> Any:
    """Show a session end to end: a daemon, a client, a turn that calls tools."""
    from ahpd.demo import run as run_demo

    return run_demo(once=once, json=as_json)
