"""The artifact tools: what a session delivered, and what its person will want to look at again.

The table of contents: `tools.py` is the list, `methods.py` the command of a window, `entries.py` reads and joins
entries, `record.py` keeps them in the session's `_meta`, `settings.py` is its one key, `wording.py` its words.
"""

from __future__ import annotations

from collections.abc import Iterable

from ahpd import ConfigKey, Method, Tool, hookimpl

from ahpd_artifacts.methods import methods
from ahpd_artifacts.record import Records
from ahpd_artifacts.settings import KEYS
from ahpd_artifacts.tools import tools

_RECORDS = Records()


@hookimpl
def ahpd_config_keys() -> Iterable[ConfigKey]:
    return KEYS


@hookimpl
def ahpd_tools() -> Iterable[Tool]:
    return tools(_RECORDS)


@hookimpl
def ahpd_methods() -> Iterable[Method]:
    return methods(_RECORDS)
