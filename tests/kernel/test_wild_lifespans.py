"""What a plugin runs beside the host and raises there: it costs the plugin, not the host."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from ahpd.testing import open_host

from ..conftest import until

install: Callable[..., None] = runpy.run_path(str(Path(__file__).with_name("installed.py")))["install"]

WILD = """
from contextlib import asynccontextmanager
import asyncio
import trio
from ahpd import hookimpl

class Own(BaseException):
    pass

raised = trio.Event()

async def work():
    try:
        await raised.wait()
    finally:
        raise {error}

@hookimpl
def ahpd_lifespan(host):
    @asynccontextmanager
    async def life():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(work)
            nursery.start_soon(trio.sleep_forever)
            yield
    return life()
"""
OFF = {"store-sqlite": {"enabled": False}}
ERRORS = ["Own", "asyncio.CancelledError", "KeyboardInterrupt", "GeneratorExit", "SystemExit(1)"]


@pytest.mark.parametrize("while_stopping", [False, True])
@pytest.mark.parametrize("error", ERRORS)
async def test_whatever_it_raises_ends_it_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: str, while_stopping: bool
) -> None:
    install(tmp_path, "wild", {"wild_life": WILD.format(error=error)})
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        async with open_host(options={**OFF, "wild_life": {"enabled": True}}) as opened:
            client = await opened.client()
            if not while_stopping:
                sys.modules["wild_life"].raised.set()
                await until(lambda: opened.host.registry.statuses["wild_life"].state == "error")
                assert error.partition("(")[0].split(".")[-1] in opened.host.registry.statuses["wild_life"].reason
            await client.request("ping")
    finally:
        sys.modules.pop("wild_life", None)
