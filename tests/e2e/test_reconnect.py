"""Coming back: what was missed arrives once and in order, or the whole state does; never silence."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from ahpd.client import AhpClient, RequestFailed
from ahpd.session.names import ROOT

from ..conftest import applied, same

if TYPE_CHECKING:
    from .conftest import Daemon, Reachable


async def retitle(client: AhpClient, session: str, count: int) -> None:
    for number in range(count):
        await client.dispatch(session, {"type": "session/titleChanged", "title": f"title {number}"})
    await client.until(lambda: client.states[session]["title"] == f"title {count - 1}")


async def ready(client: AhpClient) -> str:
    session = await client.create_session()
    await client.until(lambda: client.states[session]["lifecycle"] == "ready")
    return session


async def test_25_missed_actions_arrive_exactly_once(shared: Reachable) -> None:
    alice = await shared.client()
    session = await ready(alice)
    bob = await shared.client(session, client_id="bob")
    await bob.pipe.aclose()
    await retitle(alice, session, 25)
    again = await shared.connect("bob")
    again.states = dict(bob.states)
    result = await again.reconnect(bob.last_seq, session)
    assert result["type"] == "replay"
    assert [entry["action"]["title"] for entry in result["actions"]] == [f"title {number}" for number in range(25)]
    assert [entry["serverSeq"] for entry in result["actions"]] == list(range(bob.last_seq + 1, bob.last_seq + 26))
    assert same(again.states[session], await (await shared.client()).subscribe(session))
    await applied(alice, session, {"type": "session/titleChanged", "title": "live again"})
    await again.until(lambda: again.states[session]["title"] == "live again")
    assert len(again.actions) == 26


async def test_a_gap_that_is_no_longer_kept_and_one_that_cannot_be_are_answered_with_the_state(
    shared: Reachable,
) -> None:
    alice = await shared.client()
    session = await ready(alice)
    bob = await shared.client(session, client_id="bob")
    await bob.pipe.aclose()
    await retitle(alice, session, 1001)
    for last_seen in (bob.last_seq, alice.last_seq + 1000):
        again = await shared.connect("bob")
        result = await again.reconnect(last_seen, session)
        assert result["type"] == "snapshot"
        assert [snapshot["resource"] for snapshot in result["snapshots"]] == [session]
        assert result["snapshots"][0]["fromSeq"] == alice.last_seq
        assert same(again.states[session], alice.states[session])


async def test_a_number_that_is_none_is_refused_by_name_and_the_connection_goes_on(shared: Reachable) -> None:
    await shared.client(client_id="bob")
    raw = await shared.raw()
    for bad in ("bad", -1, 1.5, None, [1]):
        code, said = await raw.refused("reconnect", clientId="bob", subscriptions=[ROOT], lastSeenServerSeq=bad)
        assert code == -32602
        assert "lastSeenServerSeq" in said
    answer = await raw.ask("reconnect", clientId="bob", subscriptions=[ROOT], lastSeenServerSeq=1)
    assert answer["result"]["type"] in ("replay", "snapshot")


async def test_an_unknown_client_is_told_so_and_may_initialize_at_once(shared: Reachable) -> None:
    stranger = await shared.connect("nobody-knows")
    with pytest.raises(RequestFailed) as refused:
        await stranger.reconnect(3, ROOT)
    assert refused.value.code == -32008
    result = await stranger.initialize(ROOT)
    assert [snapshot["resource"] for snapshot in result["snapshots"]] == [ROOT]


async def test_what_is_gone_is_named_as_missing(shared: Reachable) -> None:
    alice = await shared.client()
    kept, lost = await ready(alice), await ready(alice)
    bob = await shared.client(kept, lost, client_id="bob")
    await bob.pipe.aclose()
    await alice.request("disposeSession", {"channel": lost})
    again = await shared.connect("bob")
    again.states = dict(bob.states)
    result = await again.reconnect(bob.last_seq, kept, lost)
    assert (result["type"], result["missing"]) == ("replay", [lost])


async def test_after_a_restart_a_client_starts_over(daemon: Daemon, start: object) -> None:
    bob = await daemon.client(client_id="bob")
    assert await daemon.stop() == 0
    assert callable(start)
    another: Daemon = await start()
    again = await another.connect("bob")
    with pytest.raises(RequestFailed) as refused:
        await again.reconnect(bob.last_seq, ROOT)
    assert refused.value.code == -32008
