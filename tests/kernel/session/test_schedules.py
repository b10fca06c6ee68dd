"""Whatever clients do in whatever order: what each has folded is what a newcomer is shown."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from ahpd.agents import Confirmation, Turn
from ahpd.client import AhpClient
from ahpd.session.names import ROOT
from ahpd.testing import open_host
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ...conftest import IN_MEMORY, Json, Stage, message, same, started

PEOPLE = ("ana", "bob", "cy")
people = st.sampled_from(PEOPLE)
turn_ids = st.sampled_from(["t1", "t2", "t3", "t4"])
names = st.sampled_from(["a", "b"])
pending = st.sampled_from(["queued", "steering"])

actions = st.one_of(
    turn_ids.map(started),
    turn_ids.map(lambda turn: {"type": "chat/turnCancelled", "turnId": turn}),
    st.none().map(lambda _: {"type": "chat/truncated"}),
    turn_ids.map(lambda turn: {"type": "chat/truncated", "turnId": turn}),
    st.tuples(pending, names).map(
        lambda each: {
            "type": "chat/pendingMessageSet",
            "kind": each[0],
            "id": each[1],
            "message": message(each[1]),
        }
    ),
    st.tuples(pending, names).map(
        lambda each: {"type": "chat/pendingMessageRemoved", "kind": each[0], "id": each[1]}
    ),
    st.just({"type": "chat/queuedMessagesReordered", "order": ["b", "a"]}),
    names.map(lambda name: {"type": "chat/draftChanged", "draft": message(name)}),
    st.booleans().map(lambda on: {"type": "chat/isReadChanged", "isRead": on}),
    st.sampled_from(["accept", "decline"]).map(
        lambda response: {"type": "chat/inputCompleted", "requestId": "q", "response": response}
    ),
    st.tuples(turn_ids, st.booleans()).map(
        lambda each: {
            "type": "chat/toolCallConfirmed",
            "turnId": each[0],
            "toolCallId": "call",
            "approved": each[1],
            **({"confirmed": "user-action"} if each[1] else {"reason": "denied"}),
        }
    ),
)
session_actions = st.one_of(
    names.map(lambda name: {"type": "session/titleChanged", "title": name}),
    st.booleans().map(lambda on: {"type": "session/isArchivedChanged", "isArchived": on}),
    st.sampled_from(["calm", "keen", "wild"]).map(
        lambda mood: {"type": "session/configChanged", "config": {"mood": mood}}
    ),
)
steps = st.one_of(
    st.tuples(st.just("chat"), people, actions),
    st.tuples(st.just("chat"), people, actions),
    st.tuples(st.just("session"), people, session_actions),
    st.tuples(st.sampled_from(["drop", "drop and forget", "leave", "alias"]), people, st.none()),
    st.tuples(st.just("pass"), people, st.none()),
)


async def busy(turn: Turn) -> None:
    """A prompt that says something, asks both kinds of question, and says some more."""
    turn.markdown(turn.text)
    await trio.lowlevel.checkpoint()
    turn.tool_started("call", "tool")
    turn.tool_input("call", "{}")
    await turn.confirm("call", Confirmation("Sure?", "Really?"))
    answer = await turn.ask({"id": "q", "message": "Well?"})
    turn.reasoning(answer.response)
    await trio.lowlevel.checkpoint()
    while steering := turn.take_steering():
        turn.markdown(steering["text"])


class Person:
    """One client that drops its connection now and then and comes back for what it missed."""

    def __init__(self, stage: Stage, name: str, uris: tuple[str, str]) -> None:
        self.stage, self.name, self.uris = stage, name, uris
        self.client: AhpClient

    async def arrive(self) -> None:
        self.client = await self.stage.client(*self.uris, client_id=self.name)

    async def drop(self, *, forgetful: bool) -> None:
        """Lose the connection, perhaps with things unread, and come back."""
        old = self.client
        await old.pipe.aclose()
        await old.until(lambda: True)
        if forgetful:
            await self.arrive()
            return
        self.client = await self.stage.open.connect(self.name)
        self.client.states = {uri: old.states[uri] for uri in (ROOT, *self.uris)}
        self.client._next_seq = old._next_seq
        result = await self.client.reconnect(old.last_seq, ROOT, *self.uris)
        assert result["type"] == "snapshot" or result["missing"] == []

    async def leave(self) -> None:
        """Look away from the chat and come back to it on a new connection."""
        await self.client.notify("unsubscribe", {"channel": self.uris[1]})
        await self.client.request("ping")
        await self.drop(forgetful=False)


async def play(schedule: list[Any], alias: bool) -> None:
    async with open_host(IN_MEMORY) as opened:
        stage = Stage(opened)
        stage.cast(busy)
        maker = await stage.client()
        uri = "ahp-session:/one" if alias else "scripted:/one"
        session = await maker.create_session("scripted", uri)
        uris = (session, maker.default_chat(session))
        crowd = {name: Person(stage, name, uris) for name in PEOPLE}
        for person in crowd.values():
            await person.arrive()
        for what, name, action in schedule:
            person = crowd[name]
            if what in ("chat", "session"):
                await person.client.dispatch(uris[what == "chat"], action)
            elif what == "alias":
                person.uris = ("scripted:/one", (await person.client.subscribe("scripted:/one"))["defaultChat"])
                await person.arrive()
            elif what == "leave":
                await person.leave()
            elif what == "pass":
                await trio.testing.wait_all_tasks_blocked()
            else:
                await person.drop(forgetful=what.endswith("forget"))
        await trio.testing.wait_all_tasks_blocked()
        for person in [*crowd.values(), Person(stage, "maker", uris)]:
            client = maker if person.name == "maker" else person.client
            await client.request("ping")
            shown = await stage.shown(ROOT, *person.uris)
            for each, state in shown.items():
                assert same(client.states[each], state), f"{person.name} {each}"
            seqs = [entry["serverSeq"] for entry in client.actions]
            assert seqs == sorted(set(seqs))
        check_endings(maker.actions)


def check_endings(envelopes: list[Json]) -> None:
    """Every turn that began ended at most once, and nothing was said of it afterwards."""
    running: set[str] = set()
    for entry in envelopes:
        action = entry["action"]
        if "rejectionReason" in entry or not action["type"].startswith("chat/") or "turnId" not in action:
            continue
        kind, turn_id = action["type"], action["turnId"]
        if kind == "chat/turnStarted":
            assert not running
            running.add(turn_id)
        elif kind != "chat/truncated":
            assert turn_id in running, f"{kind} after the end of its turn"
            if kind in ("chat/turnComplete", "chat/turnCancelled", "chat/error"):
                running.remove(turn_id)


schedules = st.lists(steps, max_size=25)


@settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(schedules, st.booleans())
def test_everybody_has_folded_what_a_newcomer_is_shown(schedule: list[Any], alias: bool) -> None:
    trio.run(play, schedule, alias)


@pytest.mark.nightly
@settings(max_examples=10_000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(schedules, st.booleans())
def test_everybody_has_folded_it_all_night(schedule: list[Any], alias: bool) -> None:
    trio.run(play, schedule, alias)
