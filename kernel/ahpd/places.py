"""Where an installation keeps things, and how a private file is written there."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ahpd.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Places:
    """The four folders of one installation. None of them need exist."""

    config: Path
    data: Path
    run: Path
    cache: Path

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None) -> Places:
        env = os.environ if environ is None else environ
        if home := env.get("AHPD_HOME"):
            root = Path(home).expanduser().absolute()
            return cls(root, root / "data", root / "run", root / "cache")
        data = _xdg(env, "XDG_DATA_HOME", ".local/share")
        runtime = env.get("XDG_RUNTIME_DIR", "")
        run = Path(runtime, "ahpd") if os.path.isabs(runtime) else data / "run"
        return cls(_xdg(env, "XDG_CONFIG_HOME", ".config"), data, run, _xdg(env, "XDG_CACHE_HOME", ".cache"))

    @property
    def user_file(self) -> Path:
        """`config.toml`, unless there is none and a `config.json` is."""
        toml, as_json = self.config / "config.toml", self.config / "config.json"
        return as_json if as_json.exists() and not toml.exists() else toml


def _xdg(env: Mapping[str, str], variable: str, fallback: str) -> Path:
    # The XDG rules: a relative value is as good as none.
    if os.path.isabs(env.get(variable, "")):
        return Path(env[variable], "ahpd")
    try:
        return Path(env.get("HOME") or Path.home(), fallback, "ahpd").absolute()
    except RuntimeError as error:
        raise ConfigError("there is no home folder; set AHPD_HOME to a folder ahpd may use") from error


def private_folder(path: Path) -> Path:
    """Make a folder only its owner may enter, those above it too. One that is there already is left as it is."""
    try:
        for folder in (*reversed(path.parents), path):
            if not folder.exists():
                folder.mkdir(mode=0o700, exist_ok=True)
        path.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{path} cannot be made: {error.strerror}") from error
    return path


def write_private(path: Path, text: str, *, keep_mode: bool = True) -> None:
    """Replace a file whole or not at all. Its mode is 0600, unless it is there already and keeps its own.

    Follows symbolic links.
    """
    target = Path(os.path.realpath(path))
    try:
        mode = target.stat().st_mode & 0o777 if keep_mode and target.exists() else 0o600
        descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=private_folder(target.parent))
        try:
            with open(descriptor, "w", encoding="utf-8", newline="") as file:
                file.write(text)
                file.flush()
                os.fchmod(file.fileno(), mode)
                os.fsync(file.fileno())
            os.replace(name, target)
        except BaseException:
            os.unlink(name)
            raise
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from error
