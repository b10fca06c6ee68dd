"""What a fence stops and what it lets through: cancellation passes, whatever a plugin invents does not."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest
import trio
from ahpd.errors import AhpdError, ToolError, is_contained
from ahpd.tooling.fence import in_plugin, pass_on


class Own(BaseException):
    """Neither an `Exception` nor anything Python knows."""


WILD = [Own(), SystemExit(0), KeyboardInterrupt(), GeneratorExit(), asyncio.CancelledError(), RuntimeError()]


@pytest.mark.parametrize("error", WILD, ids=repr)
@pytest.mark.parametrize("grouped", [False, True])
async def test_whatever_a_plugin_raises_stays_with_it(error: BaseException, grouped: bool) -> None:
    async def run() -> None:
        if not grouped:
            raise error
        async with trio.open_nursery():
            raise error

    with pytest.raises(AhpdError, match="look failed in the plugin wild"):
        await in_plugin("wild", "look", run)


async def test_a_plugins_own_words_come_out_of_a_group() -> None:
    async def run() -> None:
        async with trio.open_nursery():
            raise ToolError("Not today.")

    with pytest.raises(ToolError, match="Not today"):
        await in_plugin("polite", "look", run)


async def test_cancellation_passes() -> None:
    with trio.CancelScope() as scope:
        scope.cancel()
        await in_plugin("slow", "look", trio.sleep_forever)
    assert scope.cancelled_caught


async def test_what_comes_along_with_a_cancellation_goes_no_further(capsys: pytest.CaptureFixture[str]) -> None:
    async def raises_when_cancelled() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise Own

    async def run() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            nursery.start_soon(raises_when_cancelled)

    with trio.CancelScope() as scope:
        scope.cancel()
        await in_plugin("wild", "look", run)
    assert scope.cancelled_caught
    assert "Own" in capsys.readouterr().err


def test_ctrl_c_is_a_persons_where_no_loop_runs() -> None:
    with pytest.raises(KeyboardInterrupt):
        pass_on(KeyboardInterrupt())


async def test_ctrl_c_in_a_thread_is_an_invention() -> None:
    assert await trio.to_thread.run_sync(is_contained, KeyboardInterrupt())


def test_the_rule_imports_no_loop() -> None:
    code = "import sys; from ahpd.errors import is_contained; assert is_contained(SystemExit()); "
    subprocess.run([sys.executable, "-c", code + "assert 'trio' not in sys.modules"], check=True)
