"""When a wakeup fires: after every delay, over every kind of clock, and at no cost while it waits."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
import trio
from ahpd_wakeups.clock import FIRE_SECONDS, LOOK_SECONDS, wall_clock
from ahpd_wakeups.wakeup import iso
from trio.testing import wait_all_tasks_blocked

from .conftest import CHAT, DAY, HOUR, NOON, World


def late(world: World) -> list[int]:
    """How many milliseconds after its time each fired, in order; a negative number is early."""
    due = [datetime.fromisoformat(message.meta["ahpd.wakeup"]["due"]) for message in world.disk.taken]
    return [message.at - round(at.timestamp() * 1000) for at, message in zip(due, world.disk.taken, strict=True)]


@pytest.mark.parametrize("seconds", [60, 61.5, HOUR, DAY, 30 * DAY])
async def test_it_fires_once_at_its_time(world: World, seconds: float) -> None:
    async with world.up():
        await world.tool(delaySeconds=seconds, prompt="look")
        await world.passes(seconds - 0.001)
        assert world.disk.taken == []
        await world.passes(0.001)
        assert world.disk.texts() == ["look"]
        assert world.records == {}
        await world.passes(60 * DAY)
    assert (world.disk.texts(), late(world)) == (["look"], [0])


async def test_what_its_message_says(world: World) -> None:
    async with world.up():
        await world.tool(delaySeconds=60, prompt=" look \n")
        known = world.records[CHAT]["id"]
        await world.passes(60)
    (message,) = world.disk.taken
    assert (message.chat, message.id, message.text) == (CHAT, known, " look \n")
    assert (message.kind, message.principal.id) == ("agent", "user:ana")
    assert message.meta == {"ahpd.wakeup": {"id": known, "set": iso(NOON), "due": iso(NOON + 60_000)}}


async def test_a_turn_that_runs_when_it_is_due_is_waited_for_by_the_host(world: World) -> None:
    async with world.up(busy={CHAT}):
        await world.tool(delaySeconds=60, prompt="look")
        await world.passes(60)
        assert [message.state for message in world.disk.taken] == ["queued"]
        assert world.records == {}
        world.host.busy.clear()
        await world.passes(DAY)
    async with world.up():
        await world.passes(DAY)
    assert world.disk.texts() == ["look"]


async def test_a_turn_may_set_the_next_one(world: World) -> None:
    async with world.up():
        for number in range(1, 4):
            await world.tool(delaySeconds=60, prompt=f"round {number}")
            await world.passes(60)
    assert world.disk.texts() == ["round 1", "round 2", "round 3"]


# -- clocks --------------------------------------------------------------------------------------------

SWITCHES = [
    ("Europe/Berlin", "2026-03-29T00:59:30+00:00"),
    ("Europe/Berlin", "2026-10-25T00:59:30+00:00"),
    ("America/New_York", "2026-03-08T06:59:30+00:00"),
    ("America/New_York", "2026-11-01T05:59:30+00:00"),
    ("Australia/Lord_Howe", "2026-04-04T14:59:30+00:00"),
    ("Australia/Lord_Howe", "2026-10-03T15:29:30+00:00"),
]
EDGES = [
    ("UTC", "2028-02-28T23:59:30+00:00"),
    ("UTC", "2028-02-29T23:59:30+00:00"),
    ("UTC", "2026-12-31T23:59:30+00:00"),
    ("UTC", "2038-01-19T03:13:30+00:00"),
]


@pytest.fixture
def zone(request: pytest.FixtureRequest) -> Iterator[str]:
    before, name = os.environ.get("TZ"), str(request.param)
    os.environ["TZ"] = name
    time.tzset()
    yield name
    if before is None:
        del os.environ["TZ"]
    else:
        os.environ["TZ"] = before
    time.tzset()


@pytest.mark.parametrize(("zone", "start"), SWITCHES + EDGES, indirect=["zone"])
@pytest.mark.parametrize("seconds", [60, 30 * DAY])
async def test_no_calendar_moves_it(world: World, zone: str, start: str, seconds: int) -> None:
    world.began = round(datetime.fromisoformat(start).timestamp() * 1000)
    began = datetime.fromtimestamp(world.began / 1000, ZoneInfo(zone))
    if zone != "UTC" and seconds == 60:
        after = datetime.fromtimestamp(world.began / 1000 + 60, ZoneInfo(zone))
        assert began.utcoffset() != after.utcoffset(), "the clocks change within this minute"
    async with world.up():
        said = await world.tool(delaySeconds=seconds, prompt="look")
        promised = datetime.fromisoformat(said.removeprefix("Wakeup set for ").removesuffix("."))
        assert (promised - began.astimezone(UTC)).total_seconds() == seconds
        await world.passes(seconds - 0.001)
        assert world.disk.taken == []
        await world.passes(0.001)
        await world.passes(DAY)
    assert late(world) == [0]


@pytest.mark.parametrize("jump", [HOUR, 3 * DAY])
async def test_a_clock_set_forward_past_its_time(world: World, jump: int) -> None:
    async with world.up():
        await world.tool(delaySeconds=60, prompt="look")
        await world.passes(10)
        await world.is_set(jump)
        assert world.disk.texts() == ["look"]
        await world.is_set(-jump)
        await world.passes(DAY)
    assert world.disk.texts() == ["look"]


async def test_a_clock_set_forward_but_not_past_its_time(world: World) -> None:
    async with world.up():
        await world.tool(delaySeconds=2 * HOUR, prompt="look")
        await world.is_set(HOUR)
        await world.passes(HOUR - LOOK_SECONDS - 0.001)
        assert world.disk.taken == []
        await world.passes(0.001)
        await world.passes(DAY)
    assert late(world) == [0]


async def test_a_clock_set_back(world: World) -> None:
    async with world.up():
        await world.tool(delaySeconds=60, prompt="look")
        await world.passes(30)
        await world.is_set(-HOUR)
        await world.passes(30)
        assert world.disk.taken == [], "its time, as anybody reads it from a clock, has not come"
        await world.passes(HOUR - LOOK_SECONDS - 0.001)
        assert world.disk.taken == []
        await world.passes(0.001)
        await world.passes(DAY)
    assert late(world) == [0]


async def test_a_clock_set_back_after_it_has_fired(world: World) -> None:
    async with world.up():
        await world.tool(delaySeconds=60, prompt="look")
        await world.passes(60)
        await world.is_set(-HOUR)
        await world.passes(2 * HOUR)
    assert world.disk.texts() == ["look"]


async def test_a_clock_set_back_between_the_look_and_the_turn(world: World) -> None:
    async with world.up():
        await world.tool(delaySeconds=60, prompt="look")
        world.clock.jump(60)
        # The clock of the machine is read once when it is due, and once more before the turn begins.
        looks = world.looks
        while world.looks == looks:
            await trio.lowlevel.checkpoint()
        world.offset -= HOUR * 1000
        await wait_all_tasks_blocked()
        assert world.disk.taken == []
        await world.passes(HOUR)
        await world.passes(DAY)
    assert late(world) == [0]


@pytest.mark.parametrize("asleep", [HOUR, 3 * DAY])
@pytest.mark.parametrize("delay", [60, 30 * 60, 2 * HOUR])
async def test_a_suspended_machine(world: World, asleep: int, delay: int) -> None:
    async with world.up():
        await world.tool(delaySeconds=delay, prompt="look")
        await world.passes(0.5)
        world.offset += asleep * 1000
        resumed = world.now()
        for _ in range(20):
            await world.passes(0.1)
        if delay < asleep:
            assert [message.at - resumed <= 2000 for message in world.disk.taken] == [True]
        else:
            assert world.disk.taken == []
        await world.passes(delay)
        await world.passes(DAY)
    assert world.disk.texts() == ["look"]
    assert min(late(world)) >= 0


def test_the_wall_clock_counts_milliseconds() -> None:
    assert abs(wall_clock() - time.time() * 1000) < 1000


# -- many ----------------------------------------------------------------------------------------------


async def minute(world: World, pending: int) -> int:
    """How often the clock is read in a minute in which nothing is due."""
    async with world.up():
        for number in range(pending):
            await world.tool(f"ahp-chat://{number}/one", delaySeconds=HOUR + number, prompt="look")
        await wait_all_tasks_blocked()
        before = world.looks
        for _ in range(240):
            await world.passes(0.25)
        return world.looks - before


async def test_a_thousand_cost_what_one_costs(world: World) -> None:
    one = await minute(world, 1)
    world.disk.records.clear()
    assert await minute(world, 1000) == one
    assert one <= 60 / LOOK_SECONDS + 1


async def test_none_cost_nothing(world: World) -> None:
    assert await minute(world, 0) == 0


async def test_one_task_waits_for_a_thousand(world: World) -> None:
    async with world.up():
        before = trio.lowlevel.current_statistics().tasks_living
        for number in range(1000):
            await world.tool(f"ahp-chat://{number}/one", delaySeconds=HOUR + number, prompt="look")
        await wait_all_tasks_blocked()
        assert trio.lowlevel.current_statistics().tasks_living == before


async def test_a_thousand_fire_each_at_its_time(world: World) -> None:
    async with world.up():
        for number in range(1000):
            chat = f"ahp-chat://{number}/one"
            await world.tool(chat, delaySeconds=60 + (number * 7919) % 1000, prompt=chat)
        for _ in range(1100):
            await world.passes(1)
    assert len(world.disk.taken) == len({message.chat for message in world.disk.taken}) == 1000
    assert set(late(world)) == {0}


async def test_a_thousand_that_fell_due_while_down(world: World) -> None:
    async with world.up():
        for number in range(1000):
            await world.tool(f"ahp-chat://{number}/one", delaySeconds=60 + number, prompt="look")
    await world.passes(DAY)
    async with world.up():
        assert len({message.chat for message in world.disk.taken}) == len(world.disk.taken) == 1000


async def test_a_session_that_does_not_wake_delays_nobody(world: World) -> None:
    async with world.up():
        await world.tool(delaySeconds=60, prompt="stuck")
        await world.tool("ahp-chat://other/one", delaySeconds=61, prompt="look")
        world.host.wakes = trio.sleep_forever
        await world.passes(60)
        world.host.wakes = trio.lowlevel.checkpoint
        await world.passes(1)
        assert world.disk.texts() == ["look"]
        await world.passes(FIRE_SECONDS)
        await world.passes(DAY)
        assert world.disk.texts() == ["look"], "what did not wake in time is left for the next start"
    async with world.up():
        assert world.disk.texts() == ["look", "stuck"]
