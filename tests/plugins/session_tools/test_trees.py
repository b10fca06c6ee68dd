"""Limits over random trees of sessions: never passed, never spent by a refusal, never felt by another tree.

Product page "Tools", section "Limits", with small numbers in place of its large ones. Calls go through the host's
own invoker and its own trees; rounds of calls run side by side.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import trio
from ahpd import AhpdError, Limit, Lineage, OfferedTool, Principal, Sender, Sent, SessionView, ToolCall
from ahpd.access import Gatekeeper
from ahpd.lineage import SessionTrees
from ahpd.tooling.invoke import Invoker
from ahpd_session_tools.limits import CHATS, MAX_DEPTH, MESSAGES, SESSIONS, DepthLimit
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.plugins.session_tools.conftest import ANA, FakeHost, tool

MOST = {"sessions": 3, "chats": 2, "messages": 4}
SMALL: tuple[Limit, ...] = (
    replace(SESSIONS, most=MOST["sessions"]),
    replace(CHATS, most=MOST["chats"]),
    replace(MESSAGES, most=MOST["messages"]),
    DepthLimit(),
)
ROOTS = 3
READER = replace(ANA, grants=frozenset({"session:read"}))

MAKES: dict[str, tuple[str, dict[str, Any], str]] = {
    "session": ("create_session", {"relationship": "independent", "title": "t"}, "sessions"),
    "chat here": ("create_session", {"relationship": "currentSession", "title": "t"}, "chats"),
    "chat there": ("create_chat", {"session": "echo:/target"}, "chats"),
    "message": ("send_message", {"session": "echo:/target"}, "messages"),
    "steer": ("send_message", {"session": "echo:/target", "delivery": "steer"}, "messages"),
}


@dataclass(frozen=True)
class Move:
    """One call: by which session (counted round the ones there are), of what, and how it is meant to go."""

    by: int
    makes: str
    goes: str


MOVES = st.builds(
    Move,
    st.integers(0, 40),
    st.sampled_from(sorted(MAKES)),
    st.sampled_from(["well", "well", "well", "badly", "wrongly", "forbidden"]),
)


@dataclass
class Forest(FakeHost):
    """A host whose sessions have trees, and whose verbs take a moment, so that calls overlap."""

    forest: SessionTrees = field(default_factory=SessionTrees)
    made: int = 0

    @property
    def lineage(self) -> Lineage:
        return self.forest

    async def create_session(self, principal: Principal, **given: Any) -> SessionView:
        await trio.lowlevel.checkpoint()
        self.made += 1
        uri = f"echo:/s{self.made}"
        self.add(uri)
        if given["parent"] is not None:
            self.forest.link(uri, given["parent"])
        return self.views[uri]

    async def delete_session(self, principal: Principal, session: str) -> None:
        del self.views[session]

    async def create_chat(self, principal: Principal, session: str, **given: Any) -> str:
        await trio.lowlevel.checkpoint()
        return "ahp-chat://new/x"

    async def send(
        self,
        principal: Principal,
        chat: str,
        text: str,
        *,
        sender: Sender | None = None,
        **given: Any,
    ) -> Sent:
        await trio.lowlevel.checkpoint()
        if text == "badly":
            raise AhpdError("it went badly")
        return Sent("m", 1, "sent")


class World:
    """A forest, and what a person counting on paper would have counted in it."""

    def __init__(self) -> None:
        self.host = Forest()
        self.host.add("echo:/target")
        for number in range(ROOTS):
            self.host.add(f"echo:/root{number}")
        self.invoker = Invoker(Gatekeeper(), lambda plugin: SMALL)
        self.counted: Counter[tuple[str, str]] = Counter()

    def callers(self) -> list[SessionView]:
        return [view for uri, view in self.host.views.items() if uri != "echo:/target"]

    async def play(self, move: Move) -> None:
        callers = self.callers()
        await self.act(move, callers[move.by % len(callers)])

    async def act(self, move: Move, session: SessionView) -> bool:
        name, arguments, what = MAKES[move.makes]
        text = "" if move.goes == "wrongly" else move.goes
        arguments = {**arguments, "message" if name == "send_message" else "prompt": text}
        principal = READER if move.goes == "forbidden" else ANA
        call = ToolCall(name, arguments, principal, self.host, session, session.default_chat, "t1")
        result = await self.invoker.invoke(OfferedTool(tool(name), "session-tools", None, {}), call)
        if not result.is_error:
            assert move.goes == "well"
            self.counted[self.host.forest.root(session.uri), what] += 1
        return not result.is_error

    def check(self) -> None:
        trees = self.host.forest
        for view in self.callers():
            assert trees.depth(view.uri) <= MAX_DEPTH
            root = trees.root(view.uri)
            for what, most in MOST.items():
                assert trees.spent(view.uri, what) == self.counted[root, what] <= most
        assert trees.spent("echo:/target", "chats") == trees.spent("echo:/target", "messages") == 0


@given(st.lists(st.lists(MOVES, min_size=1, max_size=8), max_size=12))
@settings(deadline=None, max_examples=80)
async def test_no_tree_passes_a_limit_or_pays_for_a_refusal(rounds: Sequence[Sequence[Move]]) -> None:
    world = World()
    for moves in rounds:
        async with trio.open_nursery() as nursery:
            for move in moves:
                nursery.start_soon(world.play, move)
        world.check()


@given(st.lists(MOVES, max_size=40))
@settings(deadline=None, max_examples=60)
async def test_one_after_the_other_what_fits_is_done(moves: Sequence[Move]) -> None:
    world = World()
    for move in moves:
        callers = world.callers()
        session = callers[move.by % len(callers)]
        what = MAKES[move.makes][2]
        trees = world.host.forest
        fits = world.counted[trees.root(session.uri), what] < MOST[what]
        fits &= what != "sessions" or trees.depth(session.uri) < MAX_DEPTH
        assert await world.act(move, session) == (fits and move.goes == "well")
        world.check()


@given(st.sampled_from(sorted(MAKES)), st.integers(1, 12))
@settings(deadline=None, max_examples=30)
async def test_one_tree_can_spend_all_of_it_at_once(makes: str, more: int) -> None:
    world = World()
    what = MAKES[makes][2]
    done = []

    async def one() -> None:
        done.append(await world.act(Move(0, makes, "well"), world.callers()[0]))

    async with trio.open_nursery() as nursery:
        for _ in range(MOST[what] + more):
            nursery.start_soon(one)
    assert sum(done) == MOST[what]
    assert await world.act(Move(1, makes, "well"), world.callers()[1])
