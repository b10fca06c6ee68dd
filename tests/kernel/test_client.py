"""The small client, and what a host remembers of every client between its connections."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from ahpd.client import AhpClient, Disconnected, RequestFailed
from ahpd.session.names import ROOT
from ahpd.testing import open_host
from ahpd.wire.clients import KEPT_SECONDS, RECORDS, REMEMBERED_SEQS, Clients

from ..conftest import IN_MEMORY, Json, Stage, applied

# -- the client ---------------------------------------------------------------------------------------------


class Tape:
    """Implements `ahpd.client.Pipe`: plays prepared messages, all at once, and keeps what is sent."""

    def __init__(self, *messages: Json) -> None:
        self.messages = deque(json.dumps(message).encode() for message in messages)
        self.sent: list[Json] = []
        self.asked = trio.Event()

    async def send(self, payload: bytes) -> None:
        self.sent.append(json.loads(payload))
        self.asked.set()

    async def receive(self) -> bytes:
        await self.asked.wait()
        if not self.messages:
            raise Disconnected(1000)
        return self.messages.popleft()

    async def aclose(self) -> None:
        self.messages.clear()


@asynccontextmanager
async def playing(*messages: Json) -> AsyncIterator[AhpClient]:
    async with trio.open_nursery() as nursery:
        client = AhpClient(Tape(*messages), "me")
        await nursery.start(client.run)
        yield client
        nursery.cancel_scope.cancel()


def title(seq: int, text: str, **more: Any) -> Json:
    action = {"type": "session/titleChanged", "title": text}
    return {"method": "action", "params": {"channel": "echo:/1", "serverSeq": seq, "action": action, **more}}


def snapshot(seq: int, text: str = "shown") -> Json:
    return {"resource": "echo:/1", "state": {"title": text}, "fromSeq": seq}


async def test_what_follows_a_snapshot_at_once_is_laid_over_it() -> None:
    result = {"id": 1, "result": {"snapshot": snapshot(4)}}
    async with playing(title(3, "too early"), result, title(5, "later")) as client:
        await client.subscribe("echo:/1")
        await client.until(lambda: client.states["echo:/1"] == {"title": "later"})
        assert client.last_seq == 5


async def test_a_replay_comes_before_what_is_live() -> None:
    replay = {"type": "replay", "missing": [], "actions": [title(5, "five")["params"], title(6, "six")["params"]]}
    async with playing({"id": 1, "result": replay}, title(7, "seven")) as client:
        client.states["echo:/1"] = {"title": "old"}
        await client.reconnect(4, "echo:/1")
        await client.until(lambda: client.last_seq == 7)
        assert [entry["serverSeq"] for entry in client.actions] == [5, 6, 7]
        assert client.states["echo:/1"] == {"title": "seven"}


async def test_a_state_in_place_of_a_replay_counts_as_seen() -> None:
    result = {"id": 1, "result": {"type": "snapshot", "snapshots": [snapshot(90, "whole")]}}
    async with playing(result) as client:
        await client.reconnect(1, "echo:/1")
        assert client.states["echo:/1"] == {"title": "whole"}
        assert client.last_seq == 90


async def test_a_refused_action_changes_nothing_but_is_seen() -> None:
    refusal = title(2, "no", origin={"clientId": "me", "clientSeq": 1}, rejectionReason="because")
    async with playing({"id": 1, "result": {"snapshot": snapshot(1)}}, refusal) as client:
        await client.subscribe("echo:/1")
        assert (await client.outcome(1))["rejectionReason"] == "because"
        assert client.states["echo:/1"] == {"title": "shown"}
        assert client.last_seq == 2


async def test_an_error_is_raised_with_its_code_and_data() -> None:
    error = {"code": -32005, "message": "no", "data": {"supportedVersions": ["^1.0.0"]}}
    async with playing({"id": 1, "error": error}) as client:
        with pytest.raises(RequestFailed) as failed:
            await client.initialize()
        assert (failed.value.code, failed.value.message, failed.value.data) == (-32005, "no", error["data"])


async def test_the_end_is_raised_to_whoever_waits() -> None:
    async with playing() as client:
        with pytest.raises(Disconnected) as end:
            await client.request("ping")
        assert end.value.code == 1000


async def test_waiting_has_a_bound(autojump_clock: trio.testing.MockClock) -> None:
    async with open_host(IN_MEMORY) as opened:
        client = await opened.client()
        with pytest.raises(trio.TooSlowError):
            await client.until(lambda: False)


# -- what a host remembers ----------------------------------------------------------------------------------


async def test_a_client_is_remembered_for_a_while_after_its_last_connection(
    mock_clock: trio.testing.MockClock,
) -> None:
    clients = Clients()
    client = clients.greet("ana", "1.0.0")
    clients.joined(client)
    clients.joined(client)
    clients.left(client)
    mock_clock.jump(KEPT_SECONDS * 2)
    assert clients.known("ana") is client
    clients.left(client)
    mock_clock.jump(KEPT_SECONDS - 1)
    assert clients.known("ana") is client
    mock_clock.jump(2)
    assert clients.known("ana") is None
    assert clients.greet("ana", "0.9.0") is not client


async def test_one_that_stays_does_not_keep_those_that_left_later(mock_clock: trio.testing.MockClock) -> None:
    clients = Clients()
    for name in ("stays", "leaves", "comes back"):
        clients.joined(clients.greet(name, "1.0.0"))
    for name in ("leaves", "comes back"):
        client = clients.known(name)
        assert client is not None
        clients.left(client)
    again = clients.known("comes back")
    assert again is not None
    clients.joined(again)
    mock_clock.jump(KEPT_SECONDS + 1)
    assert [name for name in ("stays", "leaves", "comes back") if clients.known(name)] == ["stays", "comes back"]


async def test_strangers_do_not_fill_the_memory() -> None:
    clients = Clients()
    kept = clients.greet("kept", "1.0.0")
    clients.joined(kept)
    for number in range(RECORDS + 50):
        stranger = clients.greet(f"stranger-{number}", "1.0.0")
        clients.joined(stranger)
        clients.left(stranger)
    assert clients.known("kept") is kept
    assert clients.known("stranger-0") is None
    assert clients.known(f"stranger-{RECORDS + 49}") is not None


async def test_a_number_counts_once_over_all_connections_but_not_within_one() -> None:
    clients = Clients()
    client = clients.greet("ana", "1.0.0")
    clients.joined(client)
    assert [client.repeats(seq) for seq in (1, 2, 2, 0, 0, -1)] == [False] * 6
    clients.joined(client)  # it comes back, and sends again what it does not know to have arrived
    assert [client.repeats(seq) for seq in (1, 2, 3, 0)] == [True, True, False, False]
    for seq in range(4, REMEMBERED_SEQS + 10):
        assert not client.repeats(seq)
    clients.joined(client)
    assert not client.repeats(1)
    assert client.repeats(REMEMBERED_SEQS)


async def test_what_was_sent_twice_over_a_drop_is_done_once(stage: Stage) -> None:
    ana = await stage.client(client_id="ana")
    session, _ = await stage.session(ana, "echo")
    await applied(ana, session, {"type": "session/titleChanged", "title": "one"})
    await ana.pipe.aclose()
    again = await stage.open.connect("ana")
    again.states = dict(ana.states)
    await again.reconnect(ana.last_seq, session)
    await again.dispatch(session, {"type": "session/titleChanged", "title": "one"})
    await again.request("ping")
    assert again.actions == []
    await applied(again, session, {"type": "session/titleChanged", "title": "two"})


@pytest.mark.parametrize("old_socket", ["gone", "not yet missed"])
async def test_a_client_that_starts_over_counts_anew(stage: Stage, old_socket: str) -> None:
    ana = await stage.client(client_id="ana")
    session, _ = await stage.session(ana, "echo")
    for text in ("one", "two", "three"):
        await applied(ana, session, {"type": "session/titleChanged", "title": text})
    if old_socket == "gone":
        await ana.pipe.aclose()
    again = await stage.client(session, client_id="ana")
    await again.dispatch(session, {"type": "session/titleChanged", "title": "heard"})
    await again.until(lambda: again.states[session]["title"] == "heard")


async def test_a_client_is_known_until_its_time_is_over(autojump_clock: trio.testing.MockClock) -> None:
    async with open_host(IN_MEMORY) as opened:
        stage = Stage(opened)
        for seconds, known in ((KEPT_SECONDS - 10, True), (KEPT_SECONDS + 10, False)):
            ana = await stage.client(client_id="ana")
            await ana.pipe.aclose()
            await trio.sleep(seconds)
            again = await stage.open.connect("ana")
            if known:
                assert (await again.reconnect(ana.last_seq, ROOT))["type"] == "replay"
            else:
                with pytest.raises(RequestFailed) as failed:
                    await again.reconnect(ana.last_seq, ROOT)
                assert failed.value.code == -32008
            await again.pipe.aclose()


async def test_two_windows_of_one_client_both_see_everything(stage: Stage) -> None:
    one, two = await stage.client(client_id="ana"), await stage.client(client_id="ana")
    session, chat = await stage.session(one, "echo")
    await two.subscribe(session)
    await two.subscribe(chat)
    await two.turn(chat, "hello")
    await one.pipe.aclose()
    await two.turn(chat, "still")
    await stage.agrees(two, session, chat)
