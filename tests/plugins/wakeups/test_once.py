"""Exactly once: over restarts, refusals, deletions, changes of mind, and a kill at any step."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio
from ahpd import AgentError, PermissionDenied, Principal
from ahpd_wakeups.wakeup import iso
from trio.testing import wait_all_tasks_blocked

from .conftest import ANA, CHAT, DAY, HOUR, NOON, Crash, World

OTHER = "ahp-chat://other/one"


# -- restarts ------------------------------------------------------------------------------------------


async def test_one_that_fell_due_while_down_fires_at_the_start_and_never_again(world: World) -> None:
    async with world.up():
        await world.tool(delaySeconds=60, prompt="look")
    await world.passes(HOUR)
    async with world.up():
        assert world.disk.texts() == ["look"]
    for _ in range(2):
        async with world.up():
            await world.passes(DAY)
    assert world.disk.texts() == ["look"]


async def test_one_that_is_not_due_yet_waits_over_a_restart(world: World) -> None:
    async with world.up():
        await world.tool(delaySeconds=120, prompt="look")
        await world.passes(30)
    await world.passes(30)
    async with world.up():
        await world.passes(59.999)
        assert world.disk.taken == []
        await world.passes(0.001)
        assert world.disk.texts() == ["look"]


async def test_it_acts_as_the_person_who_set_it(world: World) -> None:
    ben = Principal("user:ben", "ben", frozenset({"session:write"}))
    async with world.up():
        await world.tool(principal=ben, delaySeconds=60, prompt="look")
    await world.passes(HOUR)
    promoted = Principal("user:ben", "ben", frozenset({"*:*"}))
    async with world.up(known={ben.id: promoted}):
        assert [message.principal for message in world.disk.taken] == [promoted], "as they are now, not as then"


async def test_what_this_version_cannot_read_is_left_alone(world: World) -> None:
    world.disk.records = {CHAT: {"wakeup": {"at": "tomorrow"}}}
    async with world.up() as wakeups:
        assert await wakeups.pending() == []
        await world.passes(DAY)
        assert world.records == {CHAT: {"at": "tomorrow"}}
        await world.tool(delaySeconds=60, prompt="look")
        await world.passes(60)
    assert world.disk.texts() == ["look"]


# -- refusals ------------------------------------------------------------------------------------------

REFUSALS = [
    PermissionDenied("ana may not chat:send here"),
    AgentError("The agent echo is not enabled"),
    RuntimeError("a bug"),
    ExceptionGroup("bugs", [RuntimeError("a bug")]),
]


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: type(refusal).__name__)
async def test_a_refused_turn_waits_for_the_next_start(world: World, refusal: Exception) -> None:
    async with world.up(refuses=refusal):
        await world.tool(delaySeconds=60, prompt="look")
        await world.tool(OTHER, delaySeconds=120, prompt="other")
        await world.passes(60)
        assert CHAT in world.records
        world.host.refuses = None
        await world.passes(60)
        await world.passes(DAY)
        assert world.disk.texts() == ["other"], "not before the next start, and in nobody else's way"
        assert world.host.sends == 2
    async with world.up():
        assert world.disk.texts() == ["other", "look"]
        assert world.records == {}


async def test_a_person_who_has_not_signed_in_waits_for_the_next_start(world: World) -> None:
    async with world.up():
        await world.tool(delaySeconds=60, prompt="look")
    await world.passes(HOUR)
    async with world.up(known={}):
        assert world.disk.taken == []
    async with world.up():
        assert world.disk.texts() == ["look"]


async def test_one_that_was_refused_may_be_cancelled(world: World) -> None:
    async with world.up(refuses=REFUSALS[0]):
        await world.tool(delaySeconds=60, prompt="look")
        await world.passes(60)
        assert await world.tool(stop=True) == "Wakeup cancelled."
    async with world.up():
        await world.passes(DAY)
    assert world.disk.taken == []


async def test_one_that_was_refused_may_be_replaced(world: World) -> None:
    async with world.up(refuses=REFUSALS[0]):
        await world.tool(delaySeconds=60, prompt="refused")
        await world.passes(60)
        world.host.refuses = None
        await world.tool(delaySeconds=60, prompt="look")
        await world.passes(60)
        assert world.disk.texts() == ["look"]
    async with world.up():
        assert world.disk.texts() == ["look"]


async def test_replacing_a_refused_one_in_vain_does_not_fire_it(world: World) -> None:
    async with world.up(refuses=REFUSALS[0]):
        await world.tool(delaySeconds=60, prompt="refused")
        await world.passes(60)
        world.host.refuses, world.host.keeps_fail = None, PermissionDenied("The disk is full")
        with pytest.raises(PermissionDenied):
            await world.tool(delaySeconds=60, prompt="look")
        world.host.keeps_fail = None
        await world.passes(DAY)
        assert world.disk.taken == []
    async with world.up():
        assert world.disk.texts() == ["refused"]


# -- deletion and changes of mind ----------------------------------------------------------------------


async def test_a_deleted_chat_takes_its_wakeup_along(world: World) -> None:
    async with world.up() as wakeups:
        await world.tool(delaySeconds=60, prompt="look")
        world.disk.records.pop(CHAT)
        world.host.gone.add(CHAT)
        assert await wakeups.pending() == []
        await world.passes(DAY)
        assert world.host.sends == 0


async def test_a_new_chat_of_the_same_name_is_not_woken_by_the_old_ones(world: World) -> None:
    async with world.up():
        await world.tool(delaySeconds=60, prompt="old")
        world.disk.records.pop(CHAT)
        await world.passes(DAY)
        assert world.host.sends == 0


@pytest.mark.parametrize("delay", [60, 300])
async def test_a_call_that_is_cancelled_while_it_is_kept(world: World, delay: int) -> None:
    """The turn was cancelled under the tool: whatever is on disk then is what fires, at its own time."""
    scope = trio.CancelScope()

    async def cancelled() -> None:
        with scope:
            await world.tool(delaySeconds=delay, prompt="cancelled")

    async with world.up(), trio.open_nursery() as nursery:
        await world.tool(delaySeconds=180, prompt="before")
        world.host.commits = trio.sleep_forever
        nursery.start_soon(cancelled)
        await wait_all_tasks_blocked()
        scope.cancel()
        await wait_all_tasks_blocked()
        world.host.commits = trio.lowlevel.checkpoint
        world.host.flush()
        await world.passes(delay - 0.001)
        assert world.disk.taken == []
        await world.passes(0.001)
        await world.passes(DAY)
        assert [(message.text, message.at) for message in world.disk.taken] == [("cancelled", NOON + delay * 1000)]


async def test_a_new_one_that_could_not_be_kept_leaves_the_old_one(world: World) -> None:
    async with world.up():
        await world.tool(delaySeconds=120, prompt="old")
        world.host.keeps_fail = PermissionDenied("The disk is full")
        for delay in (60, 240):
            with pytest.raises(PermissionDenied):
                await world.tool(delaySeconds=delay, prompt="new")
        world.host.keeps_fail = None
        await world.passes(60)
        assert world.disk.taken == []
        await world.passes(60)
        assert world.disk.texts() == ["old"]
        await world.passes(DAY)
    assert world.disk.texts() == ["old"]


async def fires_slowly(world: World, meanwhile: Callable[[], object]) -> None:
    """Let the wakeup come due in a session that takes a while to wake, and do something meanwhile."""
    woken = trio.Event()
    world.host.wakes = woken.wait
    await world.passes(60)
    meanwhile()
    await wait_all_tasks_blocked()
    assert world.disk.taken == []
    woken.set()
    await wait_all_tasks_blocked()


async def test_a_cancel_that_comes_while_it_fires_is_too_late(world: World) -> None:
    said: list[str] = []

    async def stop() -> None:
        said.append(await world.tool(stop=True))

    async with world.up(), trio.open_nursery() as nursery:
        await world.tool(delaySeconds=60, prompt="look")
        await fires_slowly(world, lambda: nursery.start_soon(stop))
        assert said == ["This chat has no wakeup."]
        assert world.disk.texts() == ["look"]


async def test_one_set_while_another_fires_stands_beside_the_turn(world: World) -> None:
    async def again() -> None:
        await world.tool(delaySeconds=60, prompt="again")

    async with world.up(), trio.open_nursery() as nursery:
        await world.tool(delaySeconds=60, prompt="look")
        await fires_slowly(world, lambda: nursery.start_soon(again))
        assert world.disk.texts() == ["look"]
        assert world.records[CHAT]["at"] == NOON + 120_000
        await world.passes(60)
        assert world.disk.texts() == ["look", "again"]


async def test_people_list_and_cancel(world: World) -> None:
    async with world.up(refuses=REFUSALS[0]) as wakeups:
        await world.tool(OTHER, delaySeconds=90, prompt="later")
        await world.tool(delaySeconds=60, prompt="sooner")
        await world.passes(60)
        assert [wakeup.shown() for wakeup in await wakeups.pending()] == [
            {"chat": chat, "due": iso(NOON + due), "set": iso(NOON), "person": ANA.id, "prompt": prompt}
            for chat, due, prompt in ((CHAT, 60_000, "sooner"), (OTHER, 90_000, "later"))
        ]
        assert await wakeups.cancel(OTHER)
        assert not await wakeups.cancel(OTHER)
        world.host.refuses = None
        await world.passes(DAY)
        assert world.host.sends == 1


# -- a kill --------------------------------------------------------------------------------------------


async def killed(world: World, step: str, seconds: float, **more: bool) -> None:
    """A daemon is killed at a step, if it comes to it within `seconds`."""
    try:
        async with world.up(**more):
            world.host.crash_at = step
            await world.passes(seconds)
    except* Crash:
        pass


STEPS = ["before the send", "after the send", "before the commit", "after the commit"]


@pytest.mark.parametrize("splits", [False, True])
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("down", [0, HOUR])
async def test_a_kill_while_it_fires(world: World, step: str, splits: bool, down: float) -> None:
    async with world.up():
        await world.tool(delaySeconds=60, prompt="look")
    await killed(world, step, 60, splits=splits)
    assert bool(world.disk.taken) == (step == "after the commit" or (splits and step == "after the send"))
    await world.passes(down)
    async with world.up():
        assert world.disk.texts() == ["look"]
        assert world.records == {}
    async with world.up():
        await world.passes(DAY)
    assert world.disk.texts() == ["look"]


async def test_without_a_split_message_and_record_reach_the_disk_as_one(world: World) -> None:
    async with world.up():
        await world.tool(delaySeconds=60, prompt="look")
    for step in STEPS:
        await killed(world, step, 60)
        assert bool(world.disk.taken) != bool(world.records)


async def test_nothing_waits_between_the_message_and_the_record(world: World) -> None:
    """A host that commits whenever it can never has one on disk without the other."""
    seen = []

    async def commits() -> None:
        while True:
            world.host.flush()
            seen.append((len(world.disk.taken), len(world.records)))
            await trio.lowlevel.checkpoint()

    async with world.up(), trio.open_nursery() as nursery:
        await world.tool(delaySeconds=60, prompt="look")
        world.clock.jump(60)
        nursery.start_soon(commits)
        while world.records:
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    assert set(seen) <= {(0, 1), (1, 0)}


@pytest.mark.parametrize("step", ["before the commit", "after the commit"])
async def test_a_kill_while_one_is_set(world: World, step: str) -> None:
    with pytest.raises(BaseExceptionGroup) as caught:  # noqa: PT012 - the daemon is what dies
        async with world.up():
            world.host.crash_at = step
            await world.tool(delaySeconds=60, prompt="look")
    assert caught.group_contains(Crash)
    kept = bool(world.records)
    assert kept == (step == "after the commit"), "what was not acknowledged may be there or not"
    async with world.up():
        await world.passes(DAY)
    assert world.disk.texts() == ["look"] * kept


async def test_a_kill_before_the_drop_and_a_stop_after_the_restart(world: World) -> None:
    async with world.up():
        await world.tool(delaySeconds=60, prompt="look")
    await killed(world, "after the send", 60, splits=True)
    async with world.up():
        assert await world.tool(stop=True) == "This chat has no wakeup."
    assert world.disk.texts() == ["look"]
