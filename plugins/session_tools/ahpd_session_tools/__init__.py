"""The session tools: what an agent cannot see for itself, the sessions beside it and the chats inside them.

The table of contents: `tools.py` is the list, `sessions.py` and `messages.py` run it, `limits.py` bounds it,
`settings.py` says which sessions are offered it, `wording.py` holds its words.
"""

from __future__ import annotations

from collections.abc import Iterable

from ahpd import ConfigKey, Limit, Tool, hookimpl

from ahpd_session_tools.limits import LIMITS
from ahpd_session_tools.settings import KEYS
from ahpd_session_tools.tools import TOOLS


@hookimpl
def ahpd_config_keys() -> Iterable[ConfigKey]:
    return KEYS


@hookimpl
def ahpd_tools() -> Iterable[Tool]:
    return TOOLS


@hookimpl
def ahpd_limits() -> Iterable[Limit]:
    return LIMITS
