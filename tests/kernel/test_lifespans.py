"""What plugins run beside the host: too slow to begin, and what everybody is told of it."""

from __future__ import annotations

import runpy
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from ahpd.host import LIFE_SECONDS
from ahpd.plugins import read_cache
from ahpd.testing import OpenHost, open_host

install: Callable[..., None] = runpy.run_path(str(Path(__file__).with_name("installed.py")))["install"]

SLOW = """
from contextlib import asynccontextmanager
import trio
from ahpd import hookimpl

begun = 0

@hookimpl
def ahpd_lifespan(host):
    @asynccontextmanager
    async def life():
        global begun
        begun += 1
        await trio.sleep_forever()
        yield
    return life()
"""
OFF = {"store-sqlite": {"enabled": False}}


@pytest.fixture
async def host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> AsyncIterator[OpenHost]:
    install(tmp_path, "slow", {"slow_to_begin": SLOW})
    monkeypatch.syspath_prepend(str(tmp_path))
    async with open_host(options={**OFF, "slow_to_begin": {"enabled": True}}) as opened:
        yield opened
    del sys.modules["slow_to_begin"]


def switch(host: OpenHost, **tables: bool) -> None:
    """Write which plugins are on."""
    lines = [f"[plugins.{name}]\nenabled = {str(on).lower()}\n" for name, on in tables.items()]
    host.host.config.places.user_file.write_text("[plugins.store-sqlite]\nenabled = false\n" + "".join(lines))


def shown(answer: dict[str, Any]) -> tuple[str, str]:
    row = next(row for row in answer["plugins"] if row["name"] == "slow_to_begin")
    return row["state"], row["reason"]


async def test_what_does_not_begin_in_time_is_said_remembered_and_not_tried_again(host: OpenHost) -> None:
    late = ("error", f"it did not begin within {LIFE_SECONDS:g} seconds")
    module = sys.modules["slow_to_begin"]
    kept = read_cache(host.host.config.places)["slow_to_begin"]
    assert (kept["state"], kept["reason"]) == late
    switch(host, slow_to_begin=True, wakeups=False)
    assert shown(await host.host.reload()) == late
    assert module.begun == 1, "whoever switches another plugin does not wait for this one"
    switch(host, slow_to_begin=False)
    assert shown(await host.host.reload())[0] == "disabled"
    switch(host, slow_to_begin=True)
    assert shown(await host.host.reload()) == late
    assert module.begun == 2
