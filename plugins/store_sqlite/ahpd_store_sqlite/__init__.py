"""Sessions kept over restarts, in one SQLite file.

This file is the table of contents: `store.py` is the store the host uses, `writer.py` the one thread that writes,
`opening.py` what happens before a file may be used.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ahpd import ConfigKey, PluginConfig, SessionStore, hookimpl

from ahpd_store_sqlite.store import SqliteStore

PATH = ConfigKey(
    "path",
    {"type": "string", "minLength": 1, "format": "path"},
    description="The database file; without it, ahpd.db in the data folder.",
)


@hookimpl
def ahpd_config_keys() -> Iterable[ConfigKey]:
    return [PATH]


@hookimpl
def ahpd_session_store(config: PluginConfig) -> SessionStore | None:
    return SqliteStore(Path(config.options.get("path") or Path(config.data_folder, "ahpd.db")))
