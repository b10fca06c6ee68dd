"""`ahpd wakeup list|cancel`, for people: what is asked of the running daemon, and what it answers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import click
from ahpd import AhpdError, ControlVerb, HostApi, ask_daemon

from ahpd_wakeups.clock import wakeups_of

PROMPT_LENGTH = 60

# -- in the daemon ----------------------------------------------------------------------------------------


async def pending(host: HostApi, args: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"wakeups": [wakeup.shown() for wakeup in await wakeups_of(host).pending()]}


async def cancel(host: HostApi, args: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"cancelled": await wakeups_of(host).cancel(str(args.get("chat", "")))}


VERBS = (ControlVerb("list", pending), ControlVerb("cancel", cancel))

# -- at the terminal --------------------------------------------------------------------------------------


@click.group("wakeup")
def wakeup() -> None:
    """See and cancel the wakeups of a running ahpd."""


@wakeup.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON value and nothing else.")
def wakeup_list(as_json: bool) -> None:
    """Every wakeup there is, the next one first."""
    rows = ask_daemon("wakeups/list")["wakeups"]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    for row in rows:
        click.echo(f"{row['due']}  {row['chat']}  {_printable(row['prompt'])}")


@wakeup.command("cancel")
@click.argument("chat")
def wakeup_cancel(chat: str) -> None:
    """Cancel the wakeup of CHAT, a chat's URI as `ahpd wakeup list` shows it."""
    if not ask_daemon("wakeups/cancel", {"chat": chat})["cancelled"]:
        raise AhpdError(f"{chat} has no wakeup")
    click.echo(f"the wakeup of {chat} is cancelled")


def _printable(prompt: str) -> str:
    """A model wrote it: one line of it, and nothing that steers the terminal."""
    line = " ".join(prompt.split())
    line = "".join(letter if letter.isprintable() else "?" for letter in line)
    return line if len(line) <= PROMPT_LENGTH else line[: PROMPT_LENGTH - 1] + "…"
