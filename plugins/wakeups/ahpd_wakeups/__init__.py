"""Wakeups: an agent begins a turn in its own chat later, whatever sleeps or restarts in between.

The table of contents: `tools.py` is the tool and its words, `clock.py` waits and fires, `commands.py` is
for people, `wakeup.py` is what is kept, `agenda.py` is the order of what is due.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager

import click
from ahpd import ControlVerb, HostApi, Tool, hookimpl

from ahpd_wakeups.clock import running
from ahpd_wakeups.commands import VERBS, wakeup
from ahpd_wakeups.tools import TOOLS


@hookimpl
def ahpd_tools() -> Iterable[Tool]:
    return TOOLS


@hookimpl
def ahpd_commands() -> Iterable[click.Command]:
    return (wakeup,)


@hookimpl
def ahpd_control_verbs() -> Iterable[ControlVerb]:
    return VERBS


@hookimpl
def ahpd_lifespan(host: HostApi) -> AbstractAsyncContextManager[None]:
    return running(host)
