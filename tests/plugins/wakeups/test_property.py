"""Whatever happens, in whatever order: never twice, never lost, never early."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import trio
from ahpd import PermissionDenied
from ahpd_wakeups.clock import LOOK_SECONDS
from ahpd_wakeups.wakeup import iso
from hypothesis import given, settings
from hypothesis import strategies as st

from .conftest import DAY, Crash, World

CHATS = ("ahp-chat://a/one", "ahp-chat://b/one", "ahp-chat://c/one")
STEPS = ("before the send", "after the send", "before the commit", "after the commit")

chats = st.sampled_from(CHATS)
seconds = st.one_of(st.integers(60, 300), st.integers(60, 30 * DAY), st.floats(60, 300))
spans = st.one_of(st.floats(0, 120), st.integers(0, 300), st.integers(0, 40 * DAY))
operations = st.one_of(
    st.tuples(st.just("set"), chats, seconds),
    st.tuples(st.just("cancel"), chats),
    st.tuples(st.just("pass"), spans),
    st.tuples(st.just("clock"), st.integers(-7200, 7200)),
    st.tuples(st.just("busy"), chats, st.booleans()),
    st.tuples(st.just("refuse"), st.booleans()),
    st.tuples(st.just("delete"), chats),
    st.tuples(st.just("kill at"), st.sampled_from(STEPS)),
)
lives = st.tuples(st.booleans(), spans, st.lists(operations, max_size=12))
"""Of one process: whether its host splits message and record, how long it was down before, what happens in it."""


@dataclass
class Story:
    """What was promised to whom, and what became of it, as somebody outside would write it down."""

    world: World
    due: dict[str, int] = field(default_factory=dict)
    """Every prompt that was asked for and when it is due."""
    current: dict[str, str] = field(default_factory=dict)
    """By chat, the prompt that was promised last and not taken back."""
    void: set[str] = field(default_factory=set)
    """Prompts that must not begin a turn any more."""
    unsure: set[str] = field(default_factory=set)
    """Prompts of calls that were never answered: they may fire, or not."""

    def fired(self) -> list[str]:
        return self.world.disk.texts()

    def retire(self, chat: str) -> None:
        """The chat's wakeup was replaced, cancelled, or deleted with it."""
        prompt = self.current.pop(chat, None)
        if prompt is not None and prompt not in self.fired():
            self.void.add(prompt)

    def check(self) -> None:
        """What must be true at any time."""
        fired = self.fired()
        assert len(fired) == len(set(fired)), "twice"
        for message in self.world.disk.taken:
            assert message.at >= self.due[message.text], "early"
        assert not self.void & set(fired), "fired after it was taken back"

    def check_all_fired(self) -> None:
        for prompt in self.current.values():
            assert prompt in self.unsure or prompt in self.fired(), "lost"

    def check_due_fired(self) -> None:
        """In a process that is well: everything whose time has come has begun its turn."""
        for prompt in self.current.values():
            past = self.due[prompt] + LOOK_SECONDS * 1000 <= self.world.now()
            assert not past or prompt in self.unsure or prompt in self.fired(), "late"


async def act(story: Story, operation: tuple[Any, ...]) -> None:
    world = story.world
    match operation:
        case ("set", chat, delay):
            prompt = f"prompt {len(story.due)}"
            story.due[prompt] = world.now() + round(delay * 1000)
            story.unsure.add(prompt)
            before = story.current.get(chat)
            if before is not None and before not in story.fired():
                story.unsure.add(before)  # until the answer comes, either may be the one that is kept
            assert await world.tool(chat, delaySeconds=delay, prompt=prompt) == (
                f"Wakeup set for {iso(story.due[prompt])}."
            )
            story.retire(chat)
            story.current[chat] = prompt
            story.unsure.discard(prompt)
        case ("cancel", chat):
            before = story.current.get(chat)
            if before is not None and before not in story.fired():
                story.unsure.add(before)
            await world.tool(chat, stop=True)
            story.retire(chat)
        case ("pass", span):
            await world.passes(span)
            await world.passes(LOOK_SECONDS)
        case ("clock", span):
            await world.is_set(span)
        case ("busy", chat, busy):
            (world.host.busy.add if busy else world.host.busy.discard)(chat)
        case ("refuse", refuses):
            world.host.refuses = PermissionDenied("no") if refuses else None
        case ("delete", chat):
            world.disk.records.pop(chat, None)
            story.retire(chat)
        case ("kill at", step):
            world.host.crash_at = step


async def live(story: Story, splits: bool, down: float, happens: list[tuple[Any, ...]]) -> None:
    """One process, from its start to its end or its kill."""
    world = story.world
    await world.passes(down)
    refused = any(operation[0] == "refuse" and operation[1] for operation in happens)
    try:
        async with world.up(splits=splits):
            story.check()
            story.check_due_fired()
            for operation in happens:
                await act(story, operation)
                story.check()
            await world.passes(LOOK_SECONDS)
            if not refused:
                story.check_due_fired()
    except* Crash:
        pass
    story.check()


async def tell(world: World, told: list[tuple[bool, float, list[tuple[Any, ...]]]]) -> None:
    story = Story(world)
    for splits, down, happens in told:
        await live(story, splits, down, happens)
    async with world.up():
        await world.passes(45 * DAY)
        story.check()
        story.check_all_fired()
        assert world.records == {}
    before = story.fired()
    async with world.up():
        await world.passes(45 * DAY)
    assert story.fired() == before


@given(st.lists(lives, min_size=1, max_size=4))
@settings(deadline=None, max_examples=150)
def test_never_twice_never_lost_never_early(told: list[tuple[bool, float, list[tuple[Any, ...]]]]) -> None:
    world = World()
    trio.run(tell, world, told, clock=world)
