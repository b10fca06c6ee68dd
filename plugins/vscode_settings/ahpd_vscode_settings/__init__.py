"""The settings VS Code brings along when it connects, declared so that they are taken and read by every client.

The table of contents: `keys.py` is the list. Nothing here acts on any of them.
"""

from __future__ import annotations

from collections.abc import Iterable

from ahpd import ConfigKey, hookimpl

from ahpd_vscode_settings.keys import KEYS


@hookimpl
def ahpd_config_keys() -> Iterable[ConfigKey]:
    return KEYS
