"""`ahpd wakeup`, against a real daemon: what a chat has set is seen, and taken back, from a terminal."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import trio

from ...e2e.conftest import Home, Start, home, start

__all__ = ["home", "start"]

SET = '/call schedule_wakeup {"delaySeconds": 3600, "prompt": "look\\nat \\u001b[31mit"}'


async def ahpd(home: Home, *args: str) -> tuple[int, str, str]:
    """Exit code, what was printed, and what was said about it."""
    with trio.fail_after(20):
        done = await trio.run_process(
            home.command(*args), env=home.env, capture_stdout=True, capture_stderr=True, check=False
        )
    return done.returncode, done.stdout.decode(), done.stderr.decode()


async def listed(home: Home) -> list[dict[str, Any]]:
    code, out, _ = await ahpd(home, "wakeup", "list", "--json")
    assert code == 0
    rows: list[dict[str, Any]] = json.loads(out)
    return rows


async def test_a_wakeup_is_listed_and_cancelled(home: Home, start: Start) -> None:
    daemon = await start()
    client = await daemon.client()
    chat = client.default_chat(await client.create_session())
    assert await listed(home) == []
    await client.turn(chat, SET)
    [row] = await listed(home)
    assert row["chat"] == chat
    assert row["prompt"] == "look\nat \x1b[31mit"
    left = datetime.fromisoformat(row["due"]) - datetime.now(UTC)
    assert timedelta(minutes=59) < left <= timedelta(hours=1)
    assert await ahpd(home, "wakeup", "list") == (0, f"{row['due']}  {chat}  look at ?[31mit\n", "")
    assert await ahpd(home, "wakeup", "cancel", chat) == (0, f"the wakeup of {chat} is cancelled\n", "")
    assert await listed(home) == []
    assert await ahpd(home, "wakeup", "cancel", chat) == (1, "", f"ahpd: {chat} has no wakeup\n")
    code, out, said = await ahpd(home, "wakeup", "cancel", "ahp-chat://no/such")
    assert (code, out) == (1, "")
    assert "ahp-chat://no/such" in said

    await home.ahpd("plugin", "disable", "wakeups")
    off = "ahpd: wakeup is a verb of the plugin wakeups, which is off; ahpd plugin enable wakeups\n"
    assert await ahpd(home, "wakeup", "list") == (1, "", off)


async def test_they_need_a_running_daemon(home: Home) -> None:
    for args in (["list"], ["list", "--json"], ["cancel", "ahp-chat://a/b"]):
        code, out, said = await ahpd(home, "wakeup", *args)
        assert (code, out) == (3, "")
        assert said == "ahpd: no ahpd of this home is running; start one with: ahpd run\n"


async def test_a_daemon_that_has_them_off_says_so(home: Home, start: Start) -> None:
    await start("--plugin", "agent-echo")
    code, _, said = await ahpd(home, "wakeup", "list")
    assert (code, said) == (1, "ahpd: a running ahpd does not know wakeups/list\n")
