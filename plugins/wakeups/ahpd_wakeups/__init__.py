"""Wakeups: an agent begins a turn in its own chat later, whatever sleeps or restarts in between.

The table of contents: `tools.py` is the tool and its words, `clock.py` waits and fires, `wakeup.py` is what is
kept, `agenda.py` is the order of what is due.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager

from ahpd import HostApi, Tool, hookimpl

from ahpd_wakeups.clock import running
from ahpd_wakeups.tools import TOOLS


@hookimpl
def ahpd_tools() -> Iterable[Tool]:
    return TOOLS


@hookimpl
def ahpd_lifespan(host: HostApi) -> AbstractAsyncContextManager[None]:
    return running(host)
