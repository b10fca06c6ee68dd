"""What a handshake lists: each channel once, whatever it is called, and not without end."""

from __future__ import annotations

import pytest
from ahpd.client import RequestFailed
from ahpd.session.names import ROOT
from ahpd.wire.connection import MOST_LISTED

from ...conftest import Stage

FUTURE = 10**9
"""A number that no replay begins at, so that states are shown."""


async def test_a_channel_that_is_listed_under_many_names_is_shown_once_under_the_last(stage: Stage) -> None:
    stage.cast()
    ana = await stage.client()
    session, chat = await stage.session(ana)
    listed = [chat, *(f"{chat}/{number}" for number in range(5)), session, session, "echo:/none"]
    bob = await stage.client(*listed)
    assert set(bob.states) == {ROOT, f"{chat}/4", session}
    await bob.pipe.aclose()
    again = await stage.open.connect(bob.id)
    answer = await again.reconnect(FUTURE, *listed)
    assert [each["resource"] for each in answer["snapshots"]] == [f"{chat}/4", session]


async def test_a_replay_holds_an_action_once_however_often_its_channel_is_listed(stage: Stage) -> None:
    stage.cast()
    ana = await stage.client()
    _, chat = await stage.session(ana)
    bob = await stage.client(chat)
    await bob.pipe.aclose()
    await ana.turn(chat, "hello")
    again = await stage.open.connect(bob.id)
    again.states = dict(bob.states)
    listed = [f"{chat}/{number}" for number in range(5)]
    answer = await again.reconnect(bob.last_seq, *listed, chat, "echo:/none", "echo:/none")
    numbers = [each["serverSeq"] for each in answer["actions"]]
    assert numbers == sorted(set(numbers))
    assert {each["channel"] for each in answer["actions"]} == {chat}
    assert answer["missing"] == ["echo:/none"]
    await stage.agrees(again, chat)


async def test_a_handshake_lists_a_thousand_channels_and_no_more(stage: Stage) -> None:
    listed = [f"echo:/{number}" for number in range(MOST_LISTED)]
    ana = await stage.open.connect("ana")
    with pytest.raises(RequestFailed, match="1001 channels; at most 1000") as refused:
        await ana.initialize(ROOT, *listed)
    assert refused.value.code == -32602
    assert (await ana.initialize(*listed))["snapshots"] == []
    again = await stage.open.connect("ana")
    with pytest.raises(RequestFailed, match="subscriptions names 1001 channels"):
        await again.reconnect(0, ROOT, *listed)
    assert (await again.reconnect(FUTURE, *listed))["snapshots"] == []


async def test_a_refusal_of_a_large_action_is_replayed_whole_and_many_are_not_kept(stage: Stage) -> None:
    stage.cast()
    ana = await stage.client()
    session, _ = await stage.session(ana)
    action = {"type": "made/up", "junk": "j" * 1_000_000}
    seqs = [await ana.dispatch(session, action) for _ in range(3)]
    told = [await ana.outcome(seq) for seq in seqs]
    assert [each["action"] for each in told] == [action] * 3
    again = await stage.open.connect(ana.id)
    again.states = dict(ana.states)
    missed = (await again.reconnect(told[0]["serverSeq"] - 1, session))["actions"]
    assert missed[-3:] == told
    for _ in range(40):
        await ana.dispatch(session, action)
    await ana.request("ping")
    third = await stage.open.connect(ana.id)
    assert (await third.reconnect(told[0]["serverSeq"], session))["type"] == "snapshot"
