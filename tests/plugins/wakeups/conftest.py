"""A host that keeps what it is told as the real one does, and a wall clock that a test sets.

The fake keeps three rules of the real host that wakeups lean on: what is written between two commits is kept whole
or not at all, `keep` returns when it is on disk, and a message is not taken twice under one id.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, cast

import pytest
import trio
from ahpd import AhpdError, HostApi, NotFound, Principal, Sender, Sent, ToolCall
from ahpd_wakeups.clock import LOOK_SECONDS, Wakeups, running, wakeups_of
from ahpd_wakeups.tools import TOOLS
from trio.testing import MockClock, wait_all_tasks_blocked

ANA = Principal("user:ana", "ana", frozenset({"session:read", "session:write"}))
CHAT = "ahp-chat://default/one"
HOUR, DAY = 3600, 86400
NOON = 1_780_315_200_000
"""2026-06-01T12:00:00Z."""


class Crash(BaseException):
    """The process is killed here."""


@dataclass(frozen=True)
class Taken:
    """A message the host took."""

    chat: str
    id: str
    text: str
    at: int
    principal: Principal
    state: Literal["sent", "queued"]
    kind: str | None
    meta: Mapping[str, Any]


@dataclass
class Disk:
    """What is left when a process ends."""

    records: dict[str, dict[str, Any]] = field(default_factory=dict)
    taken: list[Taken] = field(default_factory=list)

    def texts(self) -> list[str]:
        return [message.text for message in self.taken]


Write = Callable[[Disk], None]


@dataclass(eq=False)
class FakeHost:
    """What of `ahpd.HostApi` wakeups use, in one process; another one over the same `disk` is the next process.

    `crash_at` names the step at which it is killed, `refuses` what it says to every message. With `splits` every
    message is on disk before `send` returns, which is the worst that can come between it and a `keep`.
    """

    disk: Disk
    now: Callable[[], int]
    busy: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)
    refuses: Exception | None = None
    keeps_fail: Exception | None = None
    wakes: Callable[[], Awaitable[object]] = trio.lowlevel.checkpoint
    """What a session does until it is awake."""
    commits: Callable[[], Awaitable[object]] = trio.lowlevel.checkpoint
    """What the disk does until it has taken everything."""
    splits: bool = False
    crash_at: str | None = None
    sends: int = 0
    known: dict[str | None, Principal] = field(default_factory=lambda: {ANA.id: ANA})
    _queued: list[Write] = field(default_factory=list)

    # -- the store --------------------------------------------------------------------------------------

    async def _commit(self) -> None:
        """Everything queued so far reaches the disk at once."""
        self._at("before the commit")
        await self.commits()
        self.flush()
        self._at("after the commit")

    def flush(self) -> None:
        writes, self._queued = self._queued, []
        for write in writes:
            write(self.disk)

    def _at(self, step: str) -> None:
        if self.crash_at == step:
            raise Crash(step)

    def _seen(self) -> Disk:
        """The disk as it will be: reads see what is queued."""
        seen = Disk({chat: dict(record) for chat, record in self.disk.records.items()}, list(self.disk.taken))
        for write in self._queued:
            write(seen)
        return seen

    # -- what wakeups ask -------------------------------------------------------------------------------

    def principal(self, reference: str | None) -> Principal:
        return self.known.get(reference, Principal(None, "this turn", frozenset({"session:read"})))

    async def kept(self, chat: str, key: str) -> Any | None:
        await trio.lowlevel.checkpoint()
        if chat in self.gone:
            raise NotFound(f"No chat at {chat}")
        return self._seen().records.get(chat, {}).get(key)

    async def keep(self, chat: str, key: str, value: Any | None) -> None:
        if self.keeps_fail is not None:
            raise self.keeps_fail
        text = json.dumps(value)

        def write(disk: Disk) -> None:
            record = disk.records.setdefault(chat, {})
            if value is None:
                record.pop(key, None)
            else:
                record[key] = json.loads(text)

        self._queued.append(write)
        await self._commit()

    async def all_kept(self, key: str) -> Mapping[str, Any]:
        await trio.lowlevel.checkpoint()
        records = self._seen().records
        return {chat: record[key] for chat, record in records.items() if key in record and chat not in self.gone}

    async def send(
        self,
        principal: Principal,
        chat: str,
        text: str,
        *,
        steer: bool = False,
        sender: Sender | None = None,
        model: str | None = None,
        kind: Literal["user", "agent", "systemNotification"] | None = None,
        meta: Mapping[str, Any] | None = None,
        message_id: str | None = None,
    ) -> Sent:
        self.sends += 1
        self._at("before the send")
        await self.wakes()
        if self.refuses is not None:
            raise self.refuses
        if principal.is_nobody:
            raise AhpdError("this turn may not chat:send here")
        assert message_id is not None
        state: Literal["sent", "queued"] = "queued" if chat in self.busy else "sent"
        if any(message.id == message_id for message in self._seen().taken):
            return Sent(message_id, 1, state)
        taken = Taken(chat, message_id, text, self.now(), principal, state, kind, meta or {})
        self._queued.append(lambda disk: disk.taken.append(taken))
        if self.splits:
            await self._commit()
        self._at("after the send")
        return Sent(message_id, 1, state)


@dataclass(eq=False)
class World(trio.abc.Clock):
    """A machine: its disk, its clocks, and the daemon on it, which may be ended and started again.

    It is the clock of the test that asks for it: pytest-trio looks for one among the arguments of a test alone.
    """

    clock: MockClock = field(default_factory=MockClock)
    disk: Disk = field(default_factory=Disk)
    began: int = NOON
    offset: int = 0
    looks: int = 0
    """How often anybody has read the wall clock."""
    host: FakeHost = field(init=False)

    def __post_init__(self) -> None:
        self.host = FakeHost(self.disk, self.now)

    def start_clock(self) -> None:
        self.clock.start_clock()

    def current_time(self) -> float:
        return self.clock.current_time()

    def deadline_to_sleep_time(self, deadline: float) -> float:
        return self.clock.deadline_to_sleep_time(deadline)

    @property
    def api(self) -> HostApi:
        """The host, without the verbs that wakeups have no business with."""
        return cast(HostApi, self.host)

    def now(self) -> int:
        return self.began + round(self.clock.current_time() * 1000) + self.offset

    def _wall(self) -> int:
        self.looks += 1
        return self.now()

    @asynccontextmanager
    async def up(self, **more: Any) -> AsyncIterator[Wakeups]:
        """A daemon, until the block ends. What fell due before has been fired when it begins."""
        self.host = FakeHost(self.disk, self.now, **more)
        async with running(self.api, self._wall):
            await wait_all_tasks_blocked()
            yield wakeups_of(self.api)

    async def passes(self, seconds: float) -> None:
        """Time goes by, and whoever waits for it acts."""
        self.clock.jump(seconds)
        await wait_all_tasks_blocked()

    async def is_set(self, seconds: float) -> None:
        """The wall clock is set, forward or back, and there is time to notice."""
        self.offset += round(seconds * 1000)
        await self.passes(LOOK_SECONDS)

    async def sleeps(self, seconds: float) -> None:
        """The machine is suspended: to the monotonic clock nothing happened."""
        await self.is_set(seconds)

    def call(self, chat: str | None = CHAT, principal: Principal = ANA, **arguments: Any) -> ToolCall:
        return ToolCall("schedule_wakeup", arguments, principal, self.api, None, chat, "t1")

    async def tool(self, chat: str | None = CHAT, principal: Principal = ANA, **arguments: Any) -> str:
        answer = await TOOLS[0].run(self.call(chat, principal, **arguments))
        assert isinstance(answer, str)
        return answer

    @property
    def records(self) -> dict[str, Any]:
        """What is on disk of wakeups, by chat."""
        return {chat: record["wakeup"] for chat, record in self.disk.records.items() if "wakeup" in record}


@pytest.fixture
def world() -> World:
    return World()
