"""Child processes of this machine, each in a group of its own, none of which outlives its session or the daemon.

trio's own `open_process` starts children from worker threads. The kernel's "tell me when my parent dies" is
about the *thread* that forked, and worker threads end when idle, so children are forked here on the main thread:
a millisecond of the loop's time against children that vanish at random, or stay for ever.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence

import trio

from ahpd.errors import AhpdError

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
REAP_SECONDS = 0.5
"""For children that have been killed already: only one stuck in the kernel takes longer."""


def _die_with_parent() -> None:
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Child:
    """One child process and its group."""

    def __init__(self, popen: subprocess.Popen[bytes]) -> None:
        self.popen = popen
        self._lock = trio.Lock()

    @property
    def pid(self) -> int:
        return self.popen.pid

    async def wait(self) -> int:
        """Its exit code, negative for a signal. Any number of tasks may wait."""
        async with self._lock:
            if self.popen.returncode is None:
                await _exited(self.popen.pid)
                self.kill()
                self.popen.wait()
        return self.popen.wait()

    def kill(self) -> None:
        """End the whole group, also what the child left running when it exited.

        The group's number stays ours until the child has been reaped, and only `wait` reaps.
        """
        if self.popen.returncode is None:
            try:
                os.killpg(self.popen.pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                pass  # macOS refuses to signal a group in which nobody is left but a zombie


async def _exited(pid: int) -> None:
    if hasattr(os, "pidfd_open"):
        handle = os.pidfd_open(pid)
        try:
            await trio.lowlevel.wait_readable(handle)
        finally:
            os.close(handle)
    else:
        # Left behind when cancelled: a session that ends must not wait for a child that it has yet to kill.
        await trio.to_thread.run_sync(
            lambda: os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT), abandon_on_cancel=True
        )


class Children:
    """The processes of one session: started, remembered, and all ended with it."""

    def __init__(self) -> None:
        self._alive: dict[int, Child] = {}
        self.nursery: trio.Nursery | None = None
        """Where children are waited for, so that one nobody waits for leaves no zombie."""

    async def start(
        self,
        argv: Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: int | None = subprocess.DEVNULL,
        stdout: int | None = subprocess.DEVNULL,
        stderr: int | None = subprocess.DEVNULL,
    ) -> Child:
        """Start a program; `env` lies over the host's own environment.

        Raises `AhpdError` with a sentence when it cannot be started.
        """
        try:
            popen = subprocess.Popen(  # noqa: ASYNC220 - see the module docstring
                list(argv),
                cwd=cwd,
                env=None if env is None else {**os.environ, **env},
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )
        except (OSError, ValueError) as error:
            raise AhpdError(f"{argv[0]} could not be started: {error}") from None
        child = self._alive[popen.pid] = Child(popen)
        if self.nursery is not None:
            self.nursery.start_soon(self._reap, child)
        return child

    async def _reap(self, child: Child) -> None:
        await child.wait()
        self._alive.pop(child.pid, None)

    async def end(self) -> None:
        """Kill every group and reap every child. Shielded by the caller, bounded here."""
        for child in self._alive.values():
            child.kill()
        with trio.move_on_after(REAP_SECONDS):
            for child in list(self._alive.values()):
                await self._reap(child)
