"""Configuration files: read with the line of a mistake, edited without losing what is not understood.

TOML and JSON (`.json`) hold the same keys. Knows no key.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import stat
import time
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ahpd.errors import ConfigError
from ahpd.places import private_folder, write_private
from ahpd.schemas import refuse_constant

REMOVE = object()
"""As a value given to `edit`: take the key out."""


def read_file(path: Path) -> dict[str, Any]:
    """The object in a file. Raises `ConfigError` naming the file, and the line when it can."""
    return parse(path, _text_of(path))


def _text_of(path: Path) -> str:
    try:
        # Opening a pipe waits for somebody to write into it, unless told not to.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), encoding="utf-8-sig", newline="") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ConfigError(f"{path} is no regular file; put one in its place")
            return file.read()
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text") from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error


def parse(path: Path, text: str) -> dict[str, Any]:
    try:
        if path.suffix == ".json":
            values = json.loads(text, parse_constant=refuse_constant) if text.strip() else {}
        else:
            values = tomllib.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{path} is not JSON: line {error.lineno}: {error.msg}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not TOML: {_line_first(str(error))}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} cannot be understood: {error}") from error
    if not isinstance(values, dict):
        raise ConfigError(f"{path} must hold one object")
    return values


def _line_first(message: str) -> str:
    found = re.fullmatch(r"(.*) \(at (?:line (\d+), column \d+|end of document)\)", message)
    return f"line {found[2]}: {found[1]}" if found and found[2] else message


def edit(
    path: Path, changes: Mapping[tuple[str, ...], Any], *, patience: float = 10.0, private: bool = False
) -> None:
    """Set keys of a configuration file, or take out those given as `REMOVE`, and leave all else as it is.

    What it returned for is on disk, whatever happens next. Raises `ConfigError`, having written nothing, when the
    file is malformed, a change cannot be made in it, or others write it for longer than `patience` seconds.
    With `private` nobody but its owner may read it afterwards.
    """
    with _one_writer(private_folder(Path(os.path.realpath(path)).parent), patience):
        before = _text_of(path) if path.exists() else ""
        expected = parse(path, before)
        for key, value in changes.items():
            _put(path, expected, key, value, dict)
        after = json.dumps(expected, indent=2, ensure_ascii=False) + "\n"
        if path.suffix != ".json":
            after = _edited_toml(path, before, changes)
            if parse(path, after) != expected:
                raise ConfigError(f"{path} cannot be edited without loss; change it by hand")
        write_private(path, after, keep_mode=not private)


def _edited_toml(path: Path, text: str, changes: Mapping[tuple[str, ...], Any]) -> str:
    import tomlkit

    document = tomlkit.parse(text)
    for key, value in changes.items():
        _put(path, document, key, value, tomlkit.table)
    return tomlkit.dumps(document)


def _put(path: Path, tree: Any, key: tuple[str, ...], value: Any, make: Any) -> None:
    for depth, step in enumerate(key[:-1], 1):
        if step not in tree:
            if value is REMOVE:
                return
            tree[step] = make()
        tree = tree[step]
        if not isinstance(tree, dict):
            dotted = ".".join(key[:depth])
            raise ConfigError(f"{path}: {dotted} must be a table; ahpd config unset {dotted} takes it out")
    if value is not REMOVE:
        tree[key[-1]] = value
    elif key[-1] in tree:
        del tree[key[-1]]


@contextmanager
def _one_writer(folder: Path, patience: float) -> Iterator[None]:
    """Two commands that edit at once take turns; neither loses the other's change."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        _lock(descriptor, folder, patience)
        yield
        _settle(descriptor, folder)
    finally:
        os.close(descriptor)


def _lock(descriptor: int, folder: Path, patience: float) -> None:
    last = time.monotonic() + patience
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() >= last:
                raise ConfigError(f"another command is writing in {folder}; try again") from error
            time.sleep(0.01)


def _settle(descriptor: int, folder: Path) -> None:
    # The file's content is on disk already; that its name means this content is its folder's to remember.
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # file systems that cannot, and need not
            raise ConfigError(f"{folder} cannot be written: {error.strerror}") from error
