"""A client's tools: offered, reported against it, completed by it alone, and failed when it goes."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
import trio.testing
from ahpd.client import AhpClient
from ahpd.testing import OpenHost, open_host
from trio.testing import MockClock

TOOL = {"name": "openFile", "title": "Open File", "inputSchema": {"type": "object", "properties": {}}}


class Stage:
    """A host, an owner of a tool, somebody else who watches, and a session with its chat."""

    def __init__(self, host: OpenHost, owner: AhpClient, other: AhpClient, session: str) -> None:
        self.host, self.owner, self.other, self.session = host, owner, other, session
        self.chat = owner.default_chat(session)
        self.name = f"{owner.id}__openFile"

    async def announce(self, *tools: dict[str, Any], client: AhpClient | None = None) -> dict[str, Any]:
        client = client or self.owner
        entry = {"clientId": client.id, "tools": list(tools)}
        sent = await client.dispatch(self.session, {"type": "session/activeClientSet", "activeClient": entry})
        return await client.outcome(sent)

    async def begin(self) -> tuple[str, str]:
        """A turn that calls the owner's tool, once the call runs: the turn and the call."""
        turn = await self.owner.start_turn(self.chat, f"/call {self.name} {{}}")
        call = await self.owner.until(lambda: running(self.owner.states[self.chat]))
        return turn, call["toolCallId"]

    async def complete(self, client: AhpClient, turn: str, call: str) -> dict[str, Any]:
        result = {"success": True, "pastTenseMessage": "Opened", "content": [{"type": "text", "text": "open"}]}
        action = {"type": "chat/toolCallComplete", "turnId": turn, "toolCallId": call, "result": result}
        return await client.outcome(await client.dispatch(self.chat, action))


def running(state: dict[str, Any]) -> dict[str, Any] | None:
    for part in (state.get("activeTurn") or {}).get("responseParts", []):
        call: dict[str, Any] = part.get("toolCall") or {}
        if call.get("status") == "running":
            return call
    return None


def only_call(turn: dict[str, Any]) -> dict[str, Any]:
    calls = [part["toolCall"] for part in turn["responseParts"] if part["kind"] == "toolCall"]
    assert len(calls) == 1
    found: dict[str, Any] = calls[0]
    return found


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with open_host(["agent-echo"], settings={"clientToolTimeoutMs": 1500}) as host:
        owner, other = await host.client(client_id="owner"), await host.client(client_id="other")
        session = await owner.create_session()
        await other.subscribe(session)
        await other.subscribe(owner.default_chat(session))
        yield Stage(host, owner, other, session)


async def test_a_clients_tool_is_offered_under_its_name_and_reported_against_it(stage: Stage) -> None:
    await stage.announce(TOOL)
    turn, call = await stage.begin()
    shown = running(stage.owner.states[stage.chat])
    assert shown is not None
    assert shown["contributor"] == {"kind": "client", "clientId": "owner"}
    assert shown["toolName"] == "openFile"
    needed = await stage.owner.until(lambda: stage.owner.states[stage.session].get("inputNeeded"))
    assert [entry["kind"] for entry in needed] == ["toolClientExecution"]
    await stage.complete(stage.owner, turn, call)
    done = only_call(await stage.owner.finished(stage.chat, turn))
    assert done["status"] == "completed"
    assert done["success"] is True
    assert done["content"] == [{"type": "text", "text": "open"}]
    assert "inputNeeded" not in stage.owner.states[stage.session]


async def test_only_its_own_client_may_complete_a_call(stage: Stage) -> None:
    await stage.announce(TOOL)
    turn, call = await stage.begin()
    refused = await stage.complete(stage.other, turn, call)
    assert "Only the client that provides this tool" in refused["rejectionReason"]
    assert running(stage.owner.states[stage.chat]) is not None
    await stage.complete(stage.owner, turn, call)
    await stage.owner.finished(stage.chat, turn)


@pytest.mark.parametrize("name", ["open file", "öffnen", "", "a/b"])
async def test_a_bad_name_is_left_out_and_the_others_are_not(stage: Stage, name: str) -> None:
    await stage.announce({**TOOL, "name": "fine"}, {**TOOL, "name": name})
    turn = await stage.owner.turn(stage.chat, "/tools")
    offered = turn["responseParts"][0]["content"]
    assert "owner__fine" in offered
    assert f'"owner__{name}"' not in offered


async def test_a_client_that_never_answers_fails_the_call_and_a_late_answer_changes_nothing(
    stage: Stage, mock_clock: MockClock
) -> None:
    await stage.announce(TOOL)
    turn, call = await stage.begin()
    mock_clock.jump(1.4)
    assert running(stage.owner.states[stage.chat]) is not None
    mock_clock.jump(0.2)
    done = only_call(await stage.owner.finished(stage.chat, turn))
    assert done["success"] is False
    assert "1500 ms" in done["error"]["message"]
    late = await stage.complete(stage.owner, turn, call)
    assert "rejectionReason" in late


@pytest.mark.parametrize("way", ["removed", "unsubscribed"])
async def test_a_client_that_goes_fails_its_calls_at_once(stage: Stage, way: str) -> None:
    await stage.announce(TOOL)
    turn, _ = await stage.begin()
    if way == "removed":
        action = {"type": "session/activeClientRemoved", "clientId": "owner"}
        await stage.owner.dispatch(stage.session, action)
    else:
        await stage.owner.notify("unsubscribe", {"channel": stage.session})
    done = only_call(await stage.other.finished(stage.chat, turn))
    assert done["success"] is False
    assert "has left" in done["error"]["message"]
    assert stage.other.states[stage.session]["activeClients"] == []
    offered = (await stage.other.turn(stage.chat, "/tools"))["responseParts"][0]["content"]
    assert stage.name not in offered


async def test_a_lost_socket_has_half_a_minute_to_come_back(stage: Stage, mock_clock: MockClock) -> None:
    await stage.announce(TOOL)
    await stage.owner.pipe.aclose()
    await trio.testing.wait_all_tasks_blocked()
    mock_clock.jump(29)
    await trio.testing.wait_all_tasks_blocked()
    assert [entry["clientId"] for entry in stage.other.states[stage.session]["activeClients"]] == ["owner"]
    mock_clock.jump(2)
    await stage.other.until(lambda: stage.other.states[stage.session]["activeClients"] == [])


async def test_one_that_comes_back_in_time_stays(stage: Stage, mock_clock: MockClock) -> None:
    await stage.announce(TOOL)
    seen = stage.owner.last_seq
    await stage.owner.pipe.aclose()
    await trio.testing.wait_all_tasks_blocked()
    back = await stage.host.connect("owner")
    await back.reconnect(seen, stage.session, stage.chat)
    mock_clock.jump(60)
    await trio.testing.wait_all_tasks_blocked()
    assert [entry["clientId"] for entry in stage.other.states[stage.session]["activeClients"]] == ["owner"]


async def test_one_that_does_not_ask_for_the_session_back_is_not_present_in_it(stage: Stage) -> None:
    await stage.announce(TOOL)
    seen = stage.owner.last_seq
    await stage.owner.pipe.aclose()
    await trio.testing.wait_all_tasks_blocked()
    back = await stage.host.connect("owner")
    await back.reconnect(seen)
    await stage.other.until(lambda: stage.other.states[stage.session]["activeClients"] == [])


async def test_an_unchanged_entry_is_not_echoed(stage: Stage) -> None:
    await stage.announce(TOOL)
    before = len(stage.other.actions)
    entry = {"clientId": "owner", "tools": [TOOL]}
    for _ in range(20):
        await stage.owner.dispatch(stage.session, {"type": "session/activeClientSet", "activeClient": entry})
    await stage.owner.request("ping")
    await stage.other.request("ping")
    assert len(stage.other.actions) == before
