"""Child processes: whole groups end, nobody is left a zombie, exit codes come through."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
import trio.testing
from ahpd.errors import AhpdError
from ahpd.processes import Children

from ..conftest import until


def there(pid: int) -> bool:
    """Whether a process is there, be it as a zombie."""
    return Path(f"/proc/{pid}").exists()


def runs(pid: int) -> bool:
    return there(pid) and Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


@asynccontextmanager
async def children() -> AsyncIterator[Children]:
    """The children of a session that lasts as long as the block."""
    made = Children()
    async with trio.open_nursery() as nursery:
        made.nursery = nursery
        yield made
        nursery.cancel_scope.cancel()
    await made.end()


async def told(stream: trio.abc.ReceiveStream) -> list[int]:
    """The numbers in the first line that a child writes."""
    received = b""
    with trio.fail_after(5):
        while not received.endswith(b"\n"):
            received += await stream.receive_some(100)
    return [int(word) for word in received.split()]


def shell(script: str) -> list[str]:
    return ["sh", "-c", script]


@pytest.mark.parametrize(
    ("script", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", -9), ("kill -15 $$", -15)]
)
async def test_the_exit_code_comes_through_for_everybody_who_waits(script: str, code: int) -> None:
    codes = []
    async with children() as family:
        child = await family.start(shell(script))

        async def wait() -> None:
            codes.append(await child.wait())

        with trio.fail_after(5):
            async with trio.open_nursery() as nursery:
                for _ in range(3):
                    nursery.start_soon(wait)
    assert codes == [code] * 3


async def test_a_child_nobody_waits_for_leaves_no_zombie() -> None:
    async with children() as family:
        child = await family.start(["true"])
        await until(lambda: not there(child.pid))


async def test_all_end_with_their_session() -> None:
    async with children() as family:
        alive = [await family.start(["sleep", "600"]) for _ in range(5)]
        assert all(runs(child.pid) for child in alive)
    assert not any(there(child.pid) for child in alive)
    assert [child.popen.returncode for child in alive] == [-signal.SIGKILL] * 5


async def test_the_whole_group_ends_with_its_child() -> None:
    async with children() as family:
        child = await family.start(shell("sleep 600 & sleep 600 & echo $!; wait"), stdout=subprocess.PIPE)
        assert child.popen.stdout is not None
        (grandchild,) = await told(trio.lowlevel.FdStream(os.dup(child.popen.stdout.fileno())))
        assert runs(grandchild)
        child.kill()
        with trio.fail_after(5):
            assert await child.wait() == -signal.SIGKILL
        await until(lambda: not runs(grandchild))


async def test_what_a_child_leaves_running_ends_when_it_exits() -> None:
    async with children() as family:
        child = await family.start(shell("sleep 600 & echo $!"), stdout=subprocess.PIPE)
        assert child.popen.stdout is not None
        (orphan,) = await told(trio.lowlevel.FdStream(os.dup(child.popen.stdout.fileno())))
        with trio.fail_after(5):
            assert await child.wait() == 0
        await until(lambda: not runs(orphan))


async def test_killing_what_has_gone_does_nothing() -> None:
    async with children() as family:
        child = await family.start(["true"])
        with trio.fail_after(5):
            await child.wait()
        child.kill()
        assert await child.wait() == 0


async def test_a_program_that_is_not_there_is_a_sentence() -> None:
    async with children() as family:
        with pytest.raises(AhpdError, match="no-such-program could not be started"):
            await family.start(["no-such-program"])
        with pytest.raises(AhpdError, match="could not be started"):
            await family.start(["true"], cwd="/no/such/folder")


async def test_surroundings_are_handed_on() -> None:
    async with children() as family:
        child = await family.start(shell('echo "$NUMBER"'), env={"NUMBER": "42"}, stdout=subprocess.PIPE)
        assert child.popen.stdout is not None
        assert await told(trio.lowlevel.FdStream(os.dup(child.popen.stdout.fileno()))) == [42]


async def test_it_works_alike_where_there_are_no_process_handles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pidfd_open")
    with trio.fail_after(5):
        async with children() as family:
            child = await family.start(shell("exit 3"))
            assert await child.wait() == 3
            forever = await family.start(["sleep", "600"])
            await trio.testing.wait_all_tasks_blocked()  # its end is being waited for by now
    assert not there(forever.pid)
