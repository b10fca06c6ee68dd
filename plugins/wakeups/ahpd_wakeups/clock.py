"""Waits for what is due, and begins its turn exactly once. Knows no tool.

**Time.** A wakeup is due when the wall clock reads its time: daylight saving is not in it, a clock that is set
moves what is due with it, and it is never early. Sleeping is done on the monotonic clock, which stands still while
a machine is suspended and does not hear that the wall clock was set. So no sleep is longer than `LOOK_SECONDS`,
and the wall clock is read again after each: a jump, or a resume, is noticed within that time. A longer interval
for what is far off would save next to nothing and be late after a weekend's suspend, however far off it was. One
look reads the clock and the first entry of the agenda, so a thousand wakeups cost what one costs; with none there
is no looking at all.

**Exactly once.** What is kept on the chat's record is the truth, read again right before a turn begins; the agenda
only says when to look. A wakeup is tried at most once by a process. Its message bears its id, and the record is
dropped in the same step in which the host took the message, so that both reach the disk in one commit; should a
crash come between them after all, the next start sends the same id again, and the host, which has that message,
does nothing. A turn that is refused, or that cannot begin, leaves the record for the next start.

**Order.** Setting, cancelling and firing in one chat wait for each other. A call that comes while the wakeup fires
finds it gone: there is nothing to cancel any more, and a new one is set beside the turn that began.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from uuid import uuid4
from weakref import WeakValueDictionary

import trio
from ahpd import AhpdError, HostApi, Log, ToolError

from ahpd_wakeups.agenda import Agenda
from ahpd_wakeups.wakeup import KEY, Wakeup, read

LOOK_SECONDS = 1.0
"""Longest sleep between two looks at the wall clock while something is pending. Two seconds are the most anybody
may have to wait after a resume; half of them are left for waking the session."""
FIRE_SECONDS = 60.0
"""How long a session may take to wake before its wakeup is left for the next start."""

_log = Log("ahpd.plugin.wakeups")

WallClock = Callable[[], int]
"""Epoch milliseconds."""


def wall_clock() -> int:
    return time.time_ns() // 1_000_000


class Wakeups:
    """The wakeups of one host: set, cancelled, listed, and fired while `run` runs."""

    def __init__(self, host: HostApi, wall: WallClock) -> None:
        self._host, self._wall = host, wall
        self._agenda = Agenda()
        self._changed = trio.Event()
        self._locks: WeakValueDictionary[str, trio.Lock] = WeakValueDictionary()
        self._tried: set[str] = set()
        """Ids of wakeups this process has fired and whose record may still be there: for the next start."""

    # -- for the tool, and for people -------------------------------------------------------------------

    async def schedule(self, chat: str, seconds: float, prompt: str, person: str | None) -> Wakeup:
        """Set the chat's wakeup, in place of one it has; on disk when this returns."""
        now = self._wall()
        wakeup = Wakeup(chat, str(uuid4()), now + round(seconds * 1000), prompt, person, now)
        async with self._lock(chat):
            before = self._agenda.time(chat)
            # Until it is sure which of the two is kept (this may be cancelled), look at the earlier time.
            self._look_at(chat, wakeup.at if before is None else min(before, wakeup.at))
            await self._host.keep(chat, KEY, wakeup.kept())
            self._look_at(chat, wakeup.at)
        return wakeup

    async def cancel(self, chat: str) -> bool:
        """Take the chat's wakeup back; false when it has none."""
        async with self._lock(chat):
            if await self._host.kept(chat, KEY) is None:
                return False
            await self._host.keep(chat, KEY, None)
            self._agenda.drop(chat)
            return True

    async def pending(self) -> list[Wakeup]:
        """Every wakeup there is, the next one first; those that are left for the next start too."""
        kept = await self._host.all_kept(KEY)
        found = [read(chat, value) for chat, value in kept.items()]
        return sorted((wakeup for wakeup in found if wakeup), key=lambda wakeup: (wakeup.at, wakeup.chat))

    # -- waiting ----------------------------------------------------------------------------------------

    async def load(self) -> None:
        """Put on the agenda what was kept: before anything else is asked of this."""
        for wakeup in await self.pending():
            self._agenda.put(wakeup.chat, wakeup.at)

    async def run(self) -> None:
        """Fire what is due, until cancelled."""
        async with trio.open_nursery() as nursery:
            while True:
                self._changed = trio.Event()
                now = self._wall()
                for chat in self._agenda.take_due(now):
                    # Each on its own: one session that is slow to wake delays nobody else.
                    nursery.start_soon(self._fire, chat)
                await self._rest(now)

    async def _rest(self, now: int) -> None:
        """Return when it is time to look again."""
        first = self._agenda.first
        if first is None:
            await self._changed.wait()
            return
        with trio.move_on_after(min(LOOK_SECONDS, (first - now) / 1000)):
            await self._changed.wait()

    def _look_at(self, chat: str, at: int) -> None:
        self._agenda.put(chat, at)
        self._changed.set()

    def _lock(self, chat: str) -> trio.Lock:
        return self._locks.setdefault(chat, trio.Lock())

    # -- firing -----------------------------------------------------------------------------------------

    async def _fire(self, chat: str) -> None:
        """Begin the turn of the chat's wakeup if it has one that is due. Raises nothing: one must not stop all."""
        try:
            async with self._lock(chat):
                with trio.fail_after(FIRE_SECONDS):
                    await self._fire_kept(chat)
        except AhpdError as error:
            _log.warning("a wakeup waits for the next start", chat=chat, why=error.sentence)
        except trio.TooSlowError:
            why = f"its session did not wake within {FIRE_SECONDS:.0f} seconds"
            _log.warning("a wakeup waits for the next start", chat=chat, why=why)
        except Exception:
            _log.exception("a wakeup failed and waits for the next start", chat=chat)

    async def _fire_kept(self, chat: str) -> None:
        wakeup = read(chat, await self._host.kept(chat, KEY))
        if wakeup is None or wakeup.id in self._tried:
            return
        if wakeup.at > self._wall():
            self._look_at(chat, wakeup.at)
            return
        self._tried.add(wakeup.id)
        await self._host.send(
            self._host.principal(wakeup.person),
            chat,
            wakeup.prompt,
            kind="agent",
            meta=wakeup.meta(),
            message_id=wakeup.id,
        )
        # Nothing may wait between these two: see "Exactly once" above.
        await self._host.keep(chat, KEY, None)
        self._tried.discard(wakeup.id)


_running: dict[int, Wakeups] = {}
"""The wakeups of each host of this process that runs, by the identity of the host."""


@asynccontextmanager
async def running(host: HostApi, wall: WallClock | None = None) -> AsyncIterator[None]:
    """Keep wakeups for a host. What fell due before is fired right after this is entered."""
    wakeups = Wakeups(host, wall or wall_clock)
    await wakeups.load()
    _running[id(host)] = wakeups
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wakeups.run)
            yield
            nursery.cancel_scope.cancel()
    finally:
        del _running[id(host)]


def wakeups_of(host: HostApi) -> Wakeups:
    """The wakeups of a host. Raises `ToolError` when it keeps none, as while the plugin is switched off."""
    found = _running.get(id(host))
    if found is None:
        raise ToolError("Wakeups are switched off on this host.")
    return found
