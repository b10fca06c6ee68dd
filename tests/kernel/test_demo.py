"""`ahpd demo`: what it prints is what clients were sent, and it ends when it is told to."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import trio


def command(*args: str) -> list[str]:
    return [sys.executable, "-m", "ahpd", "demo", *args]


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AHPD_", "XDG_"))}
    return {**kept, "AHPD_HOME": str(tmp_path / "home")}


async def test_once_is_a_transcript_and_the_end(env: dict[str, str], tmp_path: Path) -> None:
    with trio.fail_after(20):
        done = await trio.run_process(command("--once"), env=env, capture_stdout=True, capture_stderr=True)
    told = done.stdout.decode()
    for words in ("alice  creates echo:/", "tool get_current_session", "tool list_sessions", "A second session"):
        assert words in told
    assert "the same ones" in told
    assert "hold the same state" in told
    assert "NOT" not in told
    assert "DIFFERENT" not in told
    assert b"Traceback" not in done.stderr
    assert not (tmp_path / "home").exists(), "the demo has a home of its own"


async def test_json_is_one_value(env: dict[str, str]) -> None:
    with trio.fail_after(20):
        done = await trio.run_process(command("--once", "--json"), env=env, capture_stdout=True)
    told = json.loads(done.stdout)
    assert told["ws"].startswith("ws://127.0.0.1:")
    assert told["transcript"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_it_stays_up_until_it_is_interrupted(env: dict[str, str], number: int) -> None:
    process = await trio.lowlevel.open_process(command(), env=env, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        told = b""
        with trio.fail_after(20):
            while b"still up at ws://" not in told:
                part = await process.stdout.receive_some(65536)
                assert part, told.decode()
                told += part
        process.send_signal(number)
        with trio.fail_after(5):
            assert await process.wait() == 0
    finally:
        if process.poll() is None:
            process.kill()
            with trio.CancelScope(shield=True):
                await process.wait()
