"""Settings: which there are, how the layers that set them meet, and what the result is.

Layers, later wins: `defaults.toml`, the user's file, the file named by $AHPD_CONFIG, flags. Objects meet key by
key, lists are replaced. Keys are declared, by the kernel below and by plugins; this module checks values against
them and knows the meaning of none but the connection token's.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ahpd import log
from ahpd.configfile import read_file
from ahpd.errors import ConfigError, StartError
from ahpd.masks import has_secrets
from ahpd.places import Places, private_folder
from ahpd.ports import ConfigKey, PluginConfig
from ahpd.schemas import misfit, read_value

BOOLEAN: Mapping[str, Any] = {"type": "boolean"}
TEXT: Mapping[str, Any] = {"type": "string", "minLength": 1}
TEXTS: Mapping[str, Any] = {"type": "array", "items": {"type": "string", "minLength": 1}}
PATH: Mapping[str, Any] = {"type": "string", "minLength": 1, "format": "path"}
"""`format: path` in any declared schema: a relative value is resolved against the folder of its file."""

KERNEL_KEYS = (
    ConfigKey("port", {"type": "integer", "minimum": 0, "maximum": 65535}, 9187, daemon=True, flag=True,
              in_root=True, description="Port to listen on; 0 takes any free one."),
    ConfigKey("host", TEXT, "127.0.0.1", daemon=True, flag=True, in_root=True,
              description="Address to listen on."),
    ConfigKey("paths", {"type": "array", "items": PATH}, (), daemon=True, flag=True, in_root=True,
              description="Folder to work in, the first being the default; without one, the current folder."),
    ConfigKey("connectionToken", TEXT, daemon=True, flag=True, secret=True,
              description="Secret a client must bring to connect."),
    ConfigKey("connectionTokenFile", PATH, daemon=True, flag=True,
              description="File holding that secret; made with a fresh one when it is not there."),
    ConfigKey("withoutConnectionToken", BOOLEAN, False, daemon=True, flag=True,
              description="Ask for no secret, also where others can reach the port."),
    ConfigKey("allowedOrigins", TEXTS, (), daemon=True, description="Web origins a browser may connect from."),
    ConfigKey("allowedHosts", TEXTS, (), daemon=True, description="More names this host may be addressed by."),
    ConfigKey("advancedTools", BOOLEAN, False, daemon=True, flag=True, applies="live", in_root=True,
              description="Offer the tools that ask for advanced permission."),
    ConfigKey("clientToolTimeoutMs", {"type": "integer", "minimum": 0}, 600_000, daemon=True, flag=True,
              description="How long a client may take to run one of its tools, in ms; 0 waits for ever."),
    ConfigKey("idleSleepSeconds", {"type": "number", "minimum": 1}, 900, daemon=True, flag=True, applies="live",
              description="Seconds after which a session that nobody watches lets its agent go."),
    ConfigKey("ahpCompat", {"type": "string", "enum": ["off", "0.7"]}, "off", daemon=True, flag=True,
              description="Serve clients of protocol 0.7 and 0.8 as well."),
    ConfigKey("deferredTitleGeneration", BOOLEAN, False, daemon=True, applies="session", in_root=True,
              description="Title chats here, after their first message, instead of leaving it to their agents."),
    ConfigKey("logFormat", {"enum": ["human", "json"]}, daemon=True, flag=True,
              description="How log lines look; by default human at a terminal, json otherwise."),
    ConfigKey("logLevel", {"enum": list(log.LEVELS)}, "info", daemon=True, flag=True,
              description="Least important log lines still said."),
)  # fmt: skip

SWITCHES = ("enabled", "hostTools", "required")
"""What every `[plugins.<name>]` table understands, beside the plugin's own options."""


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word somebody probably meant."""
    by_lower = {name.lower(): name for name in known}
    close = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.6)
    return by_lower[close[0]] if close else None


def flag_of(key: str) -> str:
    """`clientToolTimeoutMs` as it is typed: `--client-tool-timeout-ms`. `paths` is given one by one: `--path`."""
    return "--path" if key == "paths" else "--" + re.sub(r"(?<=[a-z0-9])([A-Z])", r"-\1", key).lower()


def split_key(dotted: str, plugins: Collection[str] = ()) -> tuple[str, ...]:
    """A key as typed, in steps. A plugin's name may hold dots, so the longest known one that fits is taken."""
    first, _, rest = dotted.partition(".")
    if first != "plugins" or not rest:
        return tuple(dotted.split("."))
    fitting = [name for name in plugins if rest == name or rest.startswith(name + ".")]
    name = max(fitting, key=len, default=rest.partition(".")[0])
    tail = rest[len(name) + 1 :]
    return (first, name, *tail.split(".")) if tail else (first, name)


@dataclass(frozen=True, slots=True)
class Overrides:
    """What a command line asks for. Setting values are texts as typed, lists of them, or booleans."""

    config_file: Path | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    plugins: tuple[str, ...] | None = None
    """The plugins of this run instead of the enabled ones; empty for none."""
    plugin_options: tuple[str, ...] = ()
    """Each `NAME.KEY=VALUE`."""
    makes_file: bool = False
    """Whether `config_file` may be absent: it is made by what is written to it."""


@dataclass(frozen=True, slots=True)
class Layer:
    """One source of settings. `name` is the file, or the flag; relative paths begin at `folder`."""

    name: str
    values: Mapping[str, Any]
    folder: Path
    typed: bool = False


@dataclass(frozen=True, slots=True)
class PluginSettings:
    """What a configuration says of one plugin. `options` are its own, over their declared defaults."""

    enabled: bool
    host_tools: bool = True
    required: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Config:
    """All settings as of one reading. Immutable: `reload` and `declare` answer another one."""

    places: Places
    overrides: Overrides
    files: tuple[Path, ...]
    default_plugins: tuple[str, ...]
    values: Mapping[str, Any]
    """The layers merged, unchecked, without the defaults of declared keys."""
    settings: Mapping[str, Any]
    """Every daemon key known so far, with its value or its default."""
    keys: Mapping[str, ConfigKey]
    options: Mapping[str, Mapping[str, ConfigKey]]
    """Declared options by plugin. A plugin that is not in here was never asked; its options stay unchecked."""
    problems: tuple[str, ...]
    warnings: tuple[str, ...]
    origins: Mapping[tuple[str, ...], Layer]
    bad: frozenset[tuple[str, ...]] = frozenset()
    """Keys with a wrong value, which are read as if they were not set."""
    wrong: Mapping[tuple[str, ...], str] = field(default_factory=dict)
    """The sentence about each of those."""
    declared: tuple[Mapping[str, Sequence[ConfigKey]], frozenset[str], bool] = ({}, frozenset(), False)
    filed: Mapping[str, Any] = field(default_factory=dict)
    """As `values`, without what flags say: what a start that is given none would find."""
    filed_origins: Mapping[tuple[str, ...], Layer] = field(default_factory=dict)
    pushed: Mapping[str, ConfigKey] = field(default_factory=dict)
    """Declared keys that no file holds and `settings` does not have: clients bring their values."""

    @classmethod
    def load(cls, places: Places | None = None, overrides: Overrides | None = None) -> Config:
        """Read the files. Wrong values end up in `problems`; only an unreadable file raises `ConfigError`."""
        places = places or Places.from_environment()
        overrides = overrides or Overrides()
        return _compose(places, overrides, {}, frozenset(), warn=False)

    def reload(self) -> Config:
        """The same layers read again, held to the same declared keys."""
        keys, elsewhere, warn = self.declared
        return _compose(self.places, self.overrides, keys, elsewhere, warn=warn)

    def declare(self, keys: Mapping[str, Sequence[ConfigKey]], elsewhere: Collection[str] = ()) -> Config:
        """This configuration with the keys plugins declare, by plugin name. Now unknown keys are warned about.

        `elsewhere` names keys that belong to plugins which are not loaded: nothing is said of those.
        """
        return _compose(self.places, self.overrides, keys, frozenset(elsewhere), warn=True)

    def check(self) -> None:
        """Raise `ConfigError` with the first wrong value."""
        if self.problems:
            raise ConfigError(self.problems[0])

    def keeps_secret(self, path: Sequence[str]) -> bool:
        """Whether what is at a path of the file may be a secret: a key that says so, or an option nobody knows."""
        if path[0] != "plugins":
            return path[0] in self.keys and self._is_secret(self.keys[path[0]])
        if len(path) < 3 or path[2] in SWITCHES:
            return False
        key = self.options.get(path[1], {}).get(path[2])
        return key is None or self._is_secret(key)

    @staticmethod
    def _is_secret(key: ConfigKey) -> bool:
        return key.secret or has_secrets(key.schema)

    @property
    def writable(self) -> Path:
        """The file that `config set` and `plugin enable` edit."""
        return self.overrides.config_file or self.places.user_file

    def held(self, path: Sequence[str], default: Any = None) -> Any:
        """What the files hold under a key, as it is written there; flags change nothing of it."""
        value: Any = self.filed
        for step in path:
            if not isinstance(value, Mapping) or step not in value:
                return default
            value = value[step]
        return value

    @property
    def sources(self) -> Mapping[str, str]:
        """Dotted key to the file or flag that set it. What has a wrong value is not set."""
        return {".".join(path): layer.name for path, layer in self.origins.items() if path not in self.bad}

    @property
    def configured_plugins(self) -> tuple[str, ...]:
        """Names that have a table of their own under `plugins`."""
        return tuple(_table(self.values, "plugins"))

    @property
    def enabled_plugins(self) -> tuple[str, ...]:
        names = {*self.default_plugins, *self.configured_plugins, *(self.overrides.plugins or ())}
        return self.ordered(name for name in names if self.plugin(name).enabled)

    def ordered(self, names: Iterable[str]) -> tuple[str, ...]:
        """The order of everything plugins contribute: the default list first, then by name."""
        rank = {name: index for index, name in enumerate(self.default_plugins)}
        return tuple(sorted(names, key=lambda name: (rank.get(name, len(rank)), name)))

    def plugin(self, name: str) -> PluginSettings:
        table = _table(_table(self.values, "plugins"), name)
        enabled = table.get("enabled", name in self.default_plugins) is True
        if self.overrides.plugins is not None:
            enabled = name in self.overrides.plugins
        declared = self.options.get(name, {})
        options = {key.name: key.default for key in declared.values()}
        options |= {
            option: value
            for option, value in table.items()
            if (option not in SWITCHES or option in declared) and ("plugins", name, option) not in self.bad
        }
        for option, key in declared.items():
            options[option] = self._resolved(("plugins", name, option), options[option], key.schema)
        return PluginSettings(
            enabled, table.get("hostTools", True) is not False, table.get("required", False) is True, options
        )

    def written_options(self, name: str) -> Mapping[str, Any]:
        """A plugin's own options as somebody wrote them, unchecked and without defaults."""
        table = _table(_table(self.values, "plugins"), name)
        return {option: value for option, value in table.items() if option != "enabled"}

    def wrong_about(self, name: str) -> tuple[str, str] | None:
        """What is wrong with a plugin's table, where that is to be mended: (dotted key, sentence)."""
        for path, sentence in self.wrong.items():
            if path in (("plugins",), ("plugins", name)) or path[:2] == ("plugins", name):
                return ".".join(path), sentence
        return None

    def plugin_config(self, name: str) -> PluginConfig:
        return PluginConfig(name, self.plugin(name).options, self.settings, str(self.places.data))

    def _resolved(self, path: tuple[str, ...], value: Any, schema: Mapping[str, Any]) -> Any:
        layer = self.origins.get(path)
        return value if layer is None else _absolute(value, schema, layer.folder)


def _table(tree: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = tree.get(name)
    return value if isinstance(value, Mapping) else {}


def _absolute(value: Any, schema: Mapping[str, Any], folder: Path) -> Any:
    if isinstance(value, list):
        return [_absolute(item, schema.get("items", {}), folder) for item in value]
    if isinstance(value, str) and schema.get("format") == "path":
        return os.path.normpath(folder / os.path.expanduser(value))
    return value


def _compose(
    places: Places,
    overrides: Overrides,
    declared: Mapping[str, Sequence[ConfigKey]],
    elsewhere: frozenset[str],
    *,
    warn: bool,
) -> Config:
    every = [key for keys in declared.values() for key in keys]
    keys = {key.name: key for key in (*KERNEL_KEYS, *(key for key in every if key.daemon and not key.pushed))}
    options = {name: {key.name: key for key in own if not key.daemon} for name, own in declared.items()}
    defaults = tomllib.loads(Path(__file__).with_name("defaults.toml").read_text("utf-8"))
    default_plugins = tuple(defaults.pop("plugins", {}).get("enabled", ()))
    files = _files(places, overrides)
    layers = [Layer("defaults.toml", defaults, Path()), *(Layer(str(f), read_file(f), f.parent) for f in files)]
    filed, filed_origins = _merged(layers)
    values, origins = _merged([*layers, *_typed_layers(overrides, keys, options, default_plugins)])
    config = Config(places, overrides, files, default_plugins, values, {}, keys, options, (), (), origins)
    problems = tuple(_problems(config))
    bad = frozenset(path for path, _ in problems)
    settings = {
        name: key.default
        if name not in values or (name,) in bad
        else config._resolved((name,), values[name], key.schema)
        for name, key in keys.items()
    }
    settings["paths"] = list(settings["paths"] or [_here()])
    _register_secrets(config)
    return replace(
        config,
        settings=settings,
        problems=tuple(sentence for _, sentence in problems),
        warnings=(*_unread(config), *_unknown(config, elsewhere)) if warn else (),
        bad=bad,
        wrong=dict(problems),
        declared=(declared, elsewhere, warn),
        filed=filed,
        filed_origins=filed_origins,
        pushed={key.name: key for key in every if key.pushed},
    )


def _here() -> str:
    try:
        return os.getcwd()
    except OSError:
        # A shell can stand in a folder that was removed; commands that mend things still have to work there.
        return os.path.expanduser("~")


def _files(places: Places, overrides: Overrides) -> tuple[Path, ...]:
    if overrides.config_file is not None:
        absent = overrides.makes_file and not os.path.lexists(overrides.config_file)
        return () if absent else (overrides.config_file,)
    user = places.user_file
    files = [user] if user.exists() else []
    if named := os.environ.get("AHPD_CONFIG"):
        second = Path(named).expanduser().absolute()
        if not second.exists():
            raise ConfigError(f"AHPD_CONFIG names {second}, which is not there")
        files.append(second)
    return tuple(files)


def _typed_layers(
    overrides: Overrides,
    keys: Mapping[str, ConfigKey],
    options: Mapping[str, Mapping[str, ConfigKey]],
    default_plugins: Collection[str],
) -> Iterator[Layer]:
    here = Path(_here())
    for name, value in overrides.settings.items():
        schema = keys[name].schema if name in keys else None
        yield Layer(flag_of(name), {name: _typed(value, schema)}, here, typed=True)
    for text in overrides.plugin_options:
        left, equals, value = text.partition("=")
        _, plugin, *rest = split_key(f"plugins.{left}", {*options, *default_plugins, *(overrides.plugins or ())})
        if not equals or not rest or not all(rest):
            raise ConfigError(f"--plugin-option must be NAME.KEY=VALUE, not {left}")
        declared = options.get(plugin, {}).get(rest[0]) if len(rest) == 1 else None
        tree: Any = read_value(value, declared.schema if declared else None)
        for step in reversed(("plugins", plugin, *rest)):
            tree = {step: tree}
        yield Layer("--plugin-option", tree, here)


def _typed(value: Any, schema: Mapping[str, Any] | None) -> Any:
    if isinstance(value, str):
        return read_value(value, schema)
    if isinstance(value, list | tuple):
        return [read_value(item, (schema or {}).get("items")) for item in value]
    return value


def _merged(layers: Iterable[Layer]) -> tuple[dict[str, Any], dict[tuple[str, ...], Layer]]:
    values: dict[str, Any] = {}
    origins: dict[tuple[str, ...], Layer] = {}
    for layer in layers:
        _merge(values, layer.values, (), layer, origins)
    return values, origins


def _merge(
    into: dict[str, Any],
    values: Mapping[str, Any],
    path: tuple[str, ...],
    layer: Layer,
    origins: dict[tuple[str, ...], Layer],
) -> None:
    for name, value in values.items():
        here = (*path, name)
        origins[here] = layer
        if isinstance(value, Mapping):
            if not isinstance(into.get(name), dict):
                into[name] = {}
            _merge(into[name], value, here, layer, origins)
        else:
            into[name] = value


def _problems(config: Config) -> Iterator[tuple[tuple[str, ...], str]]:
    for name, key in config.keys.items():
        if name in config.values and (found := misfit(config.values[name], key.schema)):
            yield (name,), _sentence(config, (name,), found)
    plugins = config.values.get("plugins", {})
    if not isinstance(plugins, Mapping):
        yield ("plugins",), _sentence(config, ("plugins",), ("", "a table of plugin names"))
        return
    for plugin, table in plugins.items():
        if not isinstance(table, Mapping):
            yield ("plugins", plugin), _sentence(config, ("plugins", plugin), ("", "a table"))
            continue
        schemas = dict.fromkeys(SWITCHES, BOOLEAN)
        schemas |= {option: key.schema for option, key in config.options.get(plugin, {}).items()}
        for option, schema in schemas.items():
            if option in table and (found := misfit(table[option], schema)):
                path = ("plugins", plugin, option)
                yield path, _sentence(config, path, found)


def _sentence(config: Config, path: tuple[str, ...], found: tuple[str, str]) -> str:
    layer, (inner, what) = config.origins[path], found
    subject = layer.name if layer.typed else f"{layer.name}: {'.'.join(path)}"
    return f"{subject}{inner} must be {what}"


def _unread(config: Config) -> Iterator[str]:
    read = config.places.user_file
    other = read.with_suffix(".json")
    if read in config.files and other != read and other.exists():
        yield f"{other} is not read, because {read} is there; move its settings there and remove it"


def _unknown(config: Config, elsewhere: Collection[str]) -> Iterator[str]:
    for name in config.values:
        if name not in config.keys and name != "plugins" and name not in elsewhere:
            close = nearest(name, {*config.keys, "plugins"})
            meant = f"did you mean {close}? It" if close else "it"
            yield f"{config.origins[(name,)].name}: {name} is not a setting ahpd knows; {meant} is ignored"
    for plugin, known in config.options.items():
        for option in _table(_table(config.values, "plugins"), plugin):
            if option not in known and option not in SWITCHES:
                close = nearest(option, {*known, *SWITCHES})
                meant = f"did you mean {close}? It" if close else "it"
                path = ("plugins", plugin, option)
                yield (
                    f"{config.origins[path].name}: {'.'.join(path)} is not an option {plugin} knows;"
                    f" {meant} is passed on as it is"
                )


def _register_secrets(config: Config) -> None:
    for name, key in config.keys.items():
        if key.secret and isinstance(value := config.values.get(name), str):
            log.register_secret(value)
    for plugin, known in config.options.items():
        for option, key in known.items():
            value = _table(_table(config.values, "plugins"), plugin).get(option)
            if key.secret and isinstance(value, str):
                log.register_secret(value)


# The connection token


def check_binding(config: Config) -> None:
    """Raise `StartError` for an address others can reach with nothing said about a token, or for two answers."""
    settings = config.settings
    has_token = bool(settings["connectionToken"] or settings["connectionTokenFile"])
    if settings["withoutConnectionToken"] and has_token:
        raise StartError("withoutConnectionToken cannot be used beside a connection token; leave one of them out")
    if settings["connectionToken"] and settings["connectionTokenFile"]:
        raise StartError("connectionToken and connectionTokenFile are both set; leave one of them out")
    if not (has_token or settings["withoutConnectionToken"] or is_loopback(settings["host"])):
        raise StartError(
            f"{settings['host']} can be reached from other machines: use --connection-token,"
            " --connection-token-file or --without-connection-token"
        )


def check_paths(config: Config) -> None:
    """Raise `ConfigError` for a folder typed on the command line that is none.

    Those of a file are warned about, since a disk that is not there today must not keep a daemon from starting.
    """
    absent = [path for path in config.settings["paths"] if not os.path.isdir(path)]
    if not absent:
        return
    layer = config.origins.get(("paths",))
    where = layer.name if layer else "the current folder"
    if layer and layer.typed:
        raise ConfigError(f"{where} must name a folder that is there; {absent[0]} is none")
    for path in absent:
        log.get("ahpd").warning(f"{where}: paths names {path}, which is no folder; sessions in it cannot work")


def is_loopback(host: str) -> bool:
    from ipaddress import ip_address

    try:
        return host == "localhost" or ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def resolve_token(config: Config) -> str | None:
    """The secret clients must bring, or `None` when none is asked for. Makes the token file when it is named
    and absent. Raises `StartError` when the file cannot be used."""
    token: str | None = config.settings["connectionToken"]
    if config.settings["withoutConnectionToken"]:
        return None
    if token is None and config.settings["connectionTokenFile"]:
        token = _token_in(Path(config.settings["connectionTokenFile"]))
    log.register_secret(token)
    return token


def _token_in(path: Path) -> str:
    import secrets

    try:
        private_folder(path.parent)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        try:
            token = path.read_text("utf-8").strip()
        except (OSError, ValueError) as error:
            raise StartError(f"the connection token file {path} cannot be read") from error
        if not token:
            raise StartError(f"the connection token file {path} is empty") from None
        return token
    except OSError as error:
        raise StartError(f"the connection token file {path} cannot be made: {error.strerror}") from error
    token = secrets.token_urlsafe(32)
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(token + "\n")
    return token
