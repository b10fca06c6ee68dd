"""Rules whose breach no error shows: a client draws nothing, or the wrong thing, and says so to nobody.

One test for each rule that applies to this host, by its number; `docs/protocol.md` lists the others, with why not.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable
from subprocess import PIPE
from typing import Any

import pytest
import trio
from ahpd.access import Principal
from ahpd.agents import Confirmation, Turn
from ahpd.client import AhpClient, RequestFailed, answer_text
from ahpd.errors import AgentError, AhpdError
from ahpd.session.names import ROOT, SessionSpelling, chat_uri, default_chat, encode
from ahpd.testing import open_host
from ahpd.tools import Tool, ToolResult

from ...conftest import (
    Json,
    Stage,
    applied,
    ended,
    message,
    outcome,
    same,
    says,
    started,
    turn_running,
    waits,
)

MEMBERS = {
    "chat/activityChanged": "activity",
    "chat/delta": "turnId partId content",
    "chat/error": "turnId duration part",
    "chat/inputCompleted": "requestId response answers",
    "chat/inputRequested": "turnId request",
    "chat/pendingMessageRemoved": "kind id",
    "chat/pendingMessageSet": "kind id message",
    "chat/reasoning": "turnId partId content",
    "chat/responsePart": "turnId part",
    "chat/toolCallComplete": "turnId toolCallId result",
    "chat/toolCallConfirmed": "turnId toolCallId approved confirmed",
    "chat/toolCallContentChanged": "turnId toolCallId content",
    "chat/toolCallDelta": "turnId toolCallId content",
    "chat/toolCallReady": "turnId toolCallId invocationMessage confirmed toolInput confirmationTitle options",
    "chat/toolCallStart": "turnId toolCallId toolName displayName intention contributor _meta",
    "chat/turnCancelled": "turnId duration",
    "chat/turnComplete": "turnId duration",
    "chat/turnStarted": "turnId startedAt message queuedMessageId",
    "chat/usage": "turnId usage",
    "root/activeSessionsChanged": "activeSessions",
    "session/activeClientRemoved": "clientId",
    "session/activeClientSet": "activeClient",
    "session/chatAdded": "summary",
    "session/chatUpdated": "chat changes",
    "session/inputNeededRemoved": "id",
    "session/inputNeededSet": "request",
    "session/ready": "",
    "session/titleChanged": "title",
}
"""What an action of this host may carry beside its type."""


async def fails(turn: Turn) -> None:
    turn.markdown("half")
    raise AgentError("away", resumable=True)


async def run_tool(turn: Turn) -> None:
    await turn.call_tool(turn.text, {"a": 1})


async def asks_twice(turn: Turn) -> None:
    """A prompt that confirms a call and asks a question at the same time."""
    turn.tool_started("mine", "tool")

    async def confirm() -> None:
        decision = await turn.confirm("mine", Confirmation("Sure?", "Really?"), "{}")
        turn.tool_finished("mine", ToolResult("ran", is_error=not decision.approved))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(confirm)
        nursery.start_soon(turn.ask, {"id": "q", "message": "Who?", "questions": []})


async def everything(turn: Turn) -> None:
    """A prompt that says something of every kind and needs nobody."""
    turn.activity("Looking")
    turn.reasoning("hm ")
    turn.reasoning("yes")
    turn.markdown("one ")
    turn.notice("compacted")
    turn.markdown("two")
    turn.tool_started("good", "look", display_name="Look", intention="to see", meta={"toolKind": "read"})
    turn.tool_input("good", '{"a"')
    turn.tool_ready("good", "Looking at a", '{"a": 1}')
    turn.tool_content("good", [{"type": "text", "text": "so far"}])
    turn.tool_finished("good", ToolResult("seen", structured={"n": 1}))
    turn.tool_started("bad", "look")
    turn.tool_ready("bad", "Looking at b")
    turn.tool_finished("bad", ToolResult("no such thing", is_error=True))
    turn.usage({"inputTokens": 3, "outputTokens": 4})
    turn.activity(None)


async def ran(call: Any) -> ToolResult:
    return ToolResult("done")


def said(client: AhpClient, *kinds: str) -> list[Json]:
    """The actions of these types that a client was sent and that were applied, in order."""
    taken = [each["action"] for each in client.actions if "rejectionReason" not in each]
    return [action for action in taken if not kinds or action["type"] in kinds]


def calls(turn: Json) -> dict[str, Json]:
    parts = [part["toolCall"] for part in turn["responseParts"] if part["kind"] == "toolCall"]
    return {call["toolCallId"]: call for call in parts}


def needed(client: AhpClient, session: str) -> list[Json]:
    found: list[Json] = client.states[session].get("inputNeeded", [])
    return found


def strings(value: Any) -> list[str]:
    """Every string inside a value."""
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for each in inner for text in strings(each)]


async def client_tool(stage: Stage, client: AhpClient, session: str, name: str = "look") -> None:
    """Have a client bring a tool."""
    entry = {"clientId": client.id, "tools": [{"name": name, "inputSchema": {"type": "object"}}]}
    await applied(client, session, {"type": "session/activeClientSet", "activeClient": entry})


async def running_call(client: AhpClient, chat: str) -> Json:
    """The call of the active turn, once it runs."""

    def found() -> Json | None:
        active = client.states[chat].get("activeTurn") or {"responseParts": []}
        return next((call for call in calls(active).values() if call["status"] == "running"), None)

    call: Json = await client.until(found)
    return call


async def asleep(stage: Stage, session: str) -> None:
    """Put a session to sleep, whoever watches."""
    host = stage.open.host
    live = host.sessions.get(session)
    host.dormant.sleep(live)
    await live.closed.wait()


async def refusal(client: AhpClient, method: str, **params: Any) -> RequestFailed:
    with pytest.raises(RequestFailed) as failure:
        await client.request(method, params)
    return failure.value


# -- turns and parts -------------------------------------------------------------------------------


async def test_rule_01_the_turn_is_said_back(stage: Stage) -> None:
    stage.cast()
    alice = await stage.client()
    _, chat = await stage.session(alice)
    seq = await alice.dispatch(chat, started("t"))
    echo = await alice.outcome(seq)
    assert echo["action"] == started("t")
    assert echo["origin"] == {"clientId": alice.id, "clientSeq": seq}


async def test_rule_02_a_running_turn_is_the_active_one_and_moves_when_it_ends(stage: Stage) -> None:
    stage.cast(waits)
    alice = await stage.client()
    _, chat = await stage.session(alice)
    turn_id = await alice.start_turn(chat, "go")
    await turn_running(alice, chat)
    shown = (await stage.shown(chat))[chat]
    assert (shown["activeTurn"]["id"], shown["turns"]) == (turn_id, [])
    await applied(alice, chat, {"type": "chat/turnCancelled", "turnId": turn_id})
    shown = (await stage.shown(chat))[chat]
    assert "activeTurn" not in shown
    assert [turn["id"] for turn in shown["turns"]] == [turn_id]


async def test_rule_03_a_part_is_opened_before_it_grows(stage: Stage) -> None:
    stage.cast(everything)
    alice = await stage.client()
    _, chat = await stage.session(alice)
    await alice.turn(chat, "go")
    opened: set[str] = set()
    for action in said(alice, "chat/responsePart", "chat/delta", "chat/reasoning"):
        if action["type"] == "chat/responsePart":
            opened.add(action["part"].get("id", ""))
        else:
            assert action["partId"] in opened


async def test_rule_04_text_grows_markdown_and_reasoning_grows_reasoning(stage: Stage) -> None:
    stage.cast(everything)
    alice = await stage.client()
    _, chat = await stage.session(alice)
    turn = await alice.turn(chat, "go")
    opened = {action["part"].get("id"): action["part"]["kind"] for action in said(alice, "chat/responsePart")}
    for action in said(alice, "chat/delta", "chat/reasoning"):
        wanted = "markdown" if action["type"] == "chat/delta" else "reasoning"
        assert opened[action["partId"]] == wanted
    assert all(part["content"] for part in turn["responseParts"] if part["kind"] in ("markdown", "reasoning"))


@pytest.mark.parametrize(
    ("prompt", "ending"),
    [(says, "chat/turnComplete"), (fails, "chat/error"), (waits, "chat/turnCancelled")],
    ids=["complete", "error", "cancelled"],
)
async def test_rule_05_a_turn_has_exactly_one_ending(
    stage: Stage, prompt: Callable[[Turn], Awaitable[None]], ending: str
) -> None:
    stage.cast(prompt)
    alice = await stage.client()
    _, chat = await stage.session(alice)
    turn_id = await alice.start_turn(chat, "go")
    if prompt is waits:
        await turn_running(alice, chat)
        await alice.dispatch(chat, {"type": "chat/turnCancelled", "turnId": turn_id})
    await alice.finished(chat, turn_id)
    await alice.request("ping")
    assert ended(alice, turn_id) == [ending]


async def test_rule_06_every_ending_says_how_long_it_took(stage: Stage) -> None:
    stage.cast(says, fails, waits)
    alice = await stage.client()
    _, chat = await stage.session(alice)
    await alice.turn(chat, "a")
    await alice.turn(chat, "b")
    turn_id = await alice.start_turn(chat, "c")
    await turn_running(alice, chat)
    await applied(alice, chat, {"type": "chat/turnCancelled", "turnId": turn_id})  # with none of its own
    endings = said(alice, "chat/turnComplete", "chat/error", "chat/turnCancelled")
    assert [type(action["duration"]) for action in endings] == [int] * 3
    assert all(isinstance(turn["duration"], int) for turn in alice.states[chat]["turns"])


async def test_rule_07_a_queued_message_that_is_taken_up_is_named(stage: Stage) -> None:
    stage.cast(waits, says)
    alice = await stage.client()
    _, chat = await stage.session(alice)
    await alice.start_turn(chat, "first")
    turn = await turn_running(alice, chat)
    queued = {"type": "chat/pendingMessageSet", "kind": "queued", "id": "later", "message": message("later")}
    await applied(alice, chat, queued)
    await applied(alice, chat, {"type": "chat/turnCancelled", "turnId": turn["id"]})
    await applied(alice, chat, {**queued, "id": "now"})  # which also takes up what waited
    await alice.until(lambda: len(alice.states[chat]["turns"]) == 3)
    named = [action.get("queuedMessageId") for action in said(alice, "chat/turnStarted")]
    assert named == [None, "later", "now"]
    assert not alice.states[chat].get("queuedMessages")


async def test_rule_08_a_turn_read_back_equals_the_one_that_was_watched(stage: Stage) -> None:
    stage.cast(everything)
    alice = await stage.client()
    session, chat = await stage.session(alice)
    await alice.turn(chat, "go")
    await alice.request("ping")
    watched = alice.states[chat]
    await asleep(stage, session)
    bob = await stage.client()
    assert same(await bob.subscribe(chat), watched)
    page: list[Json] = []
    await bob.request("fetchTurns", {"channel": chat}, lambda result: page.append(result))
    assert same(said(bob, "chat/turnsLoaded")[0]["turns"], watched["turns"])


# -- tool calls ------------------------------------------------------------------------------------


async def test_rule_09_a_call_or_a_question_opens_its_own_part(stage: Stage) -> None:
    stage.cast(asks_twice)
    alice = await stage.client()
    session, chat = await stage.session(alice)
    await alice.start_turn(chat, "go")
    await alice.until(lambda: len(needed(alice, session)) == 2)
    assert said(alice, "chat/responsePart") == []
    kinds = [part["kind"] for part in alice.states[chat]["activeTurn"]["responseParts"]]
    assert sorted(kinds) == ["inputRequest", "toolCall"]


async def test_rule_10_a_call_that_asks_nobody_says_so_live_and_shown(stage: Stage) -> None:
    stage.cast(everything)
    alice = await stage.client()
    _, chat = await stage.session(alice)
    await alice.turn(chat, "go")
    assert {action["confirmed"] for action in said(alice, "chat/toolCallReady")} == {"not-needed"}
    shown = (await stage.shown(chat))[chat]
    assert {call["confirmed"] for call in calls(shown["turns"][0]).values()} == {"not-needed"}


async def test_rule_11_a_result_is_one_object(stage: Stage) -> None:
    stage.cast(everything)
    alice = await stage.client()
    _, chat = await stage.session(alice)
    await alice.turn(chat, "go")
    for action in said(alice, "chat/toolCallComplete"):
        assert action.keys() == {"type", "turnId", "toolCallId", "result"}
        assert {"success", "pastTenseMessage", "content"} <= action["result"].keys()


async def test_rule_12_a_failed_call_is_completed_without_success(stage: Stage) -> None:
    stage.cast(everything)
    alice = await stage.client()
    _, chat = await stage.session(alice)
    call = calls(await alice.turn(chat, "go"))["bad"]
    assert (call["status"], call["success"]) == ("completed", False)
    assert call["error"] == {"message": "no such thing"}


async def test_rule_13_a_confirmation_is_of_the_agents_own_call(stage: Stage) -> None:
    stage.cast(asks_twice)
    alice = await stage.client()
    session, chat = await stage.session(alice)
    await alice.start_turn(chat, "go")
    await alice.until(lambda: len(needed(alice, session)) == 2)
    (entry,) = [each for each in needed(alice, session) if each["kind"] == "toolConfirmation"]
    assert entry["toolCall"]["toolCallId"] == "mine"
    assert [action["toolCallId"] for action in said(alice, "chat/toolCallReady")] == ["mine"]


async def test_rule_14_what_was_said_of_a_call_is_kept_with_it(stage: Stage) -> None:
    stage.cast(everything)
    alice = await stage.client()
    session, chat = await stage.session(alice)
    await alice.turn(chat, "go")
    await asleep(stage, session)
    bob = await stage.client()
    call = calls((await bob.subscribe(chat))["turns"][0])["good"]
    assert (call["invocationMessage"], call["confirmed"]) == ("Looking at a", "not-needed")
    assert (call["toolInput"], call["intention"]) == ('{"a": 1}', "to see")


async def test_rule_15_what_kind_a_call_is_comes_from_its_agent_or_is_left_out(stage: Stage) -> None:
    stage.cast(everything)
    alice = await stage.client()
    _, chat = await stage.session(alice)
    found = calls(await alice.turn(chat, "go"))
    assert found["good"]["_meta"] == {"toolKind": "read"}
    assert "_meta" not in found["bad"]


async def test_rule_17_a_clients_tool_is_the_clients(stage: Stage) -> None:
    stage.cast(run_tool)
    alice = await stage.client(client_id="alice")
    session, chat = await stage.session(alice)
    await client_tool(stage, alice, session)
    await alice.start_turn(chat, "mcp__ahp__alice__look")
    call = await running_call(alice, chat)
    assert call["contributor"] == {"kind": "client", "clientId": "alice"}
    assert call["toolName"] == "look"


async def test_rule_18_a_call_that_its_client_finished_finishes_once(stage: Stage) -> None:
    stage.cast(run_tool)
    alice = await stage.client(client_id="alice")
    session, chat = await stage.session(alice)
    await client_tool(stage, alice, session)
    turn_id = await alice.start_turn(chat, "alice__look")
    call = await running_call(alice, chat)
    result = {"success": True, "pastTenseMessage": "Looked", "content": [{"type": "text", "text": "seen"}]}
    report = {"turnId": turn_id, "toolCallId": call["toolCallId"], "result": result}
    await applied(alice, chat, {"type": "chat/toolCallComplete", **report})
    turn = await alice.finished(chat, turn_id)
    assert len(said(alice, "chat/toolCallComplete")) == 1
    assert calls(turn)[call["toolCallId"]]["content"] == result["content"]


async def test_rule_19_a_client_that_leaves_fails_its_calls_and_the_turn_goes_on(stage: Stage) -> None:
    stage.cast(run_tool)
    alice, bob = await stage.client(client_id="alice"), await stage.client(client_id="bob")
    session, chat = await stage.session(bob)
    await alice.subscribe(session)
    await client_tool(stage, alice, session)
    turn_id = await bob.start_turn(chat, "alice__look")
    await running_call(bob, chat)
    await alice.notify("unsubscribe", {"channel": session})
    turn = await bob.finished(chat, turn_id)
    (call,) = calls(turn).values()
    assert (turn["state"], call["success"]) == ("complete", False)
    assert needed(bob, session) == []


async def test_rule_20_a_call_is_of_the_client_that_is_there_now(stage: Stage) -> None:
    stage.cast(run_tool)
    alice, bob = await stage.client(client_id="alice"), await stage.client(client_id="bob")
    session, chat = await stage.session(bob)
    await alice.subscribe(session)
    await client_tool(stage, alice, session)
    await applied(alice, session, {"type": "session/activeClientRemoved", "clientId": "alice"})
    await client_tool(stage, bob, session)
    gone = await bob.turn(chat, "alice__look")
    assert [call["success"] for call in calls(gone).values()] == [False]
    await bob.start_turn(chat, "bob__look")
    assert (await running_call(bob, chat))["contributor"]["clientId"] == "bob"


# -- being asked -----------------------------------------------------------------------------------


async def test_rule_21_what_is_needed_is_set_whole_and_removed_by_id(stage: Stage) -> None:
    stage.cast(asks_twice)
    alice = await stage.client()
    session, chat = await stage.session(alice)
    turn_id = await alice.start_turn(chat, "go")
    await alice.until(lambda: len(needed(alice, session)) == 2)
    for action in said(alice, "session/inputNeededSet"):
        assert action.keys() == {"type", "request"}
        assert {"id", "kind", "chat"} <= action["request"].keys()
    await applied(alice, chat, {"type": "chat/turnCancelled", "turnId": turn_id})
    await alice.until(lambda: not needed(alice, session))
    removed = said(alice, "session/inputNeededRemoved")
    assert [action.keys() for action in removed] == [{"type", "id"}] * 2
    assert {action["id"] for action in removed} == {
        action["request"]["id"] for action in said(alice, "session/inputNeededSet")
    }


async def test_rule_22_two_open_questions_are_both_kept_and_answered_apart(stage: Stage) -> None:
    stage.cast(asks_twice)
    alice = await stage.client()
    session, chat = await stage.session(alice)
    turn_id = await alice.start_turn(chat, "go")
    await alice.until(lambda: len(needed(alice, session)) == 2)
    await applied(alice, chat, {"type": "chat/inputCompleted", "requestId": "q", "response": "accept"})
    await alice.until(lambda: [each["kind"] for each in needed(alice, session)] == ["toolConfirmation"])
    answer = {"turnId": turn_id, "toolCallId": "mine", "approved": True, "confirmed": "user-action"}
    await applied(alice, chat, {"type": "chat/toolCallConfirmed", **answer})
    assert (await alice.finished(chat, turn_id))["state"] == "complete"


async def test_rule_23_answers_are_said_back_to_everybody(stage: Stage) -> None:
    stage.cast(asks_twice)
    alice, bob = await stage.client(), await stage.client()
    session, chat = await stage.session(alice)
    await bob.subscribe(chat)
    turn_id = await alice.start_turn(chat, "go")
    await alice.until(lambda: len(needed(alice, session)) == 2)
    answer = {"turnId": turn_id, "toolCallId": "mine", "approved": True, "confirmed": "user-action"}
    await applied(alice, chat, {"type": "chat/toolCallConfirmed", **answer})
    await applied(alice, chat, {"type": "chat/inputCompleted", "requestId": "q", "response": "accept"})
    await bob.finished(chat, turn_id)
    assert len(said(bob, "chat/toolCallConfirmed", "chat/inputCompleted")) == 2


@pytest.mark.parametrize("how", ["cancel", "sleep"])
async def test_rule_24_nothing_goes_on_asking_after_its_turn(stage: Stage, how: str) -> None:
    stage.cast(asks_twice)
    alice = await stage.client()
    session, chat = await stage.session(alice)
    turn_id = await alice.start_turn(chat, "go")
    await alice.until(lambda: len(needed(alice, session)) == 2)
    if how == "cancel":
        await applied(alice, chat, {"type": "chat/turnCancelled", "turnId": turn_id})
    else:
        stage.open.host.turns.cancel(stage.open.host.chats.by_uri[chat])
        await asleep(stage, session)
    shown = (await stage.shown(session))[session]
    assert "inputNeeded" not in shown
    assert [entry["status"] & 31 for entry in shown["chats"]] == [1]


async def test_rule_25_open_questions_are_shown_to_newcomers_and_24_is_more_than_8(stage: Stage) -> None:
    stage.cast(asks_twice)
    alice = await stage.client()
    session, chat = await stage.session(alice)
    await alice.start_turn(chat, "go")
    await alice.until(lambda: len(needed(alice, session)) == 2)
    await alice.request("ping")
    shown = await stage.shown(session, chat)
    assert len(shown[session]["inputNeeded"]) == 2
    assert shown[chat]["status"] & 31 == 24
    row = (await alice.request("listSessions"))["items"][0]
    assert row["status"] & 31 == 24


# -- sequence and fan-out --------------------------------------------------------------------------


async def test_rule_27_what_changes_nothing_is_answered_with_silence(stage: Stage) -> None:
    stage.cast()
    alice = await stage.client()
    session, _ = await stage.session(alice)
    entry = {"type": "session/activeClientSet", "activeClient": {"clientId": alice.id, "tools": []}}
    await applied(alice, session, entry)
    before = len(alice.actions), alice.last_seq
    await alice.dispatch(session, entry)
    await alice.request("ping")
    assert (len(alice.actions), alice.last_seq) == before


async def test_rule_28_a_refusal_goes_to_whoever_asked_alone(stage: Stage) -> None:
    stage.cast()
    alice, bob = await stage.client(), await stage.client()
    session, _ = await stage.session(alice)
    await bob.subscribe(session)
    assert await outcome(alice, session, {"type": "session/titleChanged", "title": ""})
    await bob.request("ping")
    assert [each for each in bob.actions if "rejectionReason" in each] == []
    assert alice.states[session]["title"] == ""


async def test_rule_29_a_snapshot_has_the_fields_that_actions_have(stage: Stage) -> None:
    stage.cast(everything)
    alice = await stage.client()
    session, chat = await stage.session(alice)
    await alice.turn(chat, "go")
    await stage.agrees(alice, ROOT, session, chat)


async def test_rule_30_a_channel_is_watched_once_its_snapshot_exists(stage: Stage) -> None:
    stage.cast()
    alice = await stage.client()
    early = await stage.open.connect("early")
    assert (await early.initialize(ROOT, "scripted:/x"))["snapshots"][1:] == []
    assert (await refusal(early, "subscribe", channel="scripted:/x")).code == -32001
    await stage.session(alice, uri="scripted:/x")
    await applied(alice, "scripted:/x", {"type": "session/titleChanged", "title": "unseen"})
    await early.request("ping")
    assert [each for each in early.actions if each["channel"] == "scripted:/x"] == []
    await early.pipe.aclose()
    again = await stage.open.connect("early")
    result = await again.reconnect(early.last_seq, ROOT, "scripted:/x")
    assert result["type"] == "snapshot"
    assert again.states["scripted:/x"]["title"] == "unseen"


async def test_rule_31_notes_on_a_session_are_said_whole(stage: Stage) -> None:
    stage.cast()
    alice = await stage.client()
    session, _ = await stage.session(alice)
    operations = stage.open.host.operations
    await operations.set_session_meta(session, "one", 1)
    await operations.set_session_meta(session, "two", [2])
    await alice.until(lambda: len(said(alice, "session/metaChanged")) == 2)
    assert said(alice, "session/metaChanged")[-1]["_meta"] == {"one": 1, "two": [2]}
    await operations.set_session_meta(session, "one", None)
    await alice.until(lambda: alice.states[session]["_meta"] == {"two": [2]})


async def test_rule_32_a_list_hears_of_titles_and_status_not_of_text(
    stage: Stage, autojump_clock: trio.testing.MockClock
) -> None:
    async def talks(turn: Turn) -> None:
        for _ in range(50):
            turn.markdown("word ")
            await trio.sleep(0.01)

    stage.cast(talks)
    alice = await stage.client()
    session, chat = await stage.session(alice)
    await alice.turn(chat, "go")
    await trio.sleep(1)
    assert len(said(alice, "chat/delta")) == 50
    for action in said(alice, "session/chatUpdated"):
        assert {"title", "status", "activity"} & action["changes"].keys()
    told = [each["params"] for each in alice.notices if each["method"] == "root/sessionSummaryChanged"]
    assert len(told) <= 3
    assert {params["session"] for params in told} == {session}


async def test_rule_33_notices_are_never_replayed(stage: Stage) -> None:
    stage.cast()
    alice, bob = await stage.client(), await stage.client(client_id="bob")
    await bob.pipe.aclose()
    session, _ = await stage.session(alice)
    await alice.request("disposeSession", {"channel": session})
    again = await stage.open.connect("bob")
    result = await again.reconnect(bob.last_seq, ROOT)
    await again.request("ping")
    assert result["type"] == "replay"
    assert {envelope["action"]["type"].partition("/")[0] for envelope in result["actions"]} <= {"root"}
    assert again.notices == []


async def test_rule_34_a_page_of_turns_comes_on_the_channel(stage: Stage) -> None:
    stage.cast()
    alice = await stage.client()
    _, chat = await stage.session(alice)
    for text in ("a", "b", "c"):
        await alice.turn(chat, text)
    bob = await stage.client()
    cursor = (await bob.subscribe(chat, view={"turns": 1}))["turnsNextCursor"]
    assert await bob.request("fetchTurns", {"channel": chat, "cursor": cursor}) == {}
    assert [turn["message"]["text"] for turn in bob.states[chat]["turns"]] == ["a", "b", "c"]
    assert "turnsNextCursor" not in bob.states[chat]


# -- names -----------------------------------------------------------------------------------------


async def test_rule_35_one_spelling_in_all_that_a_client_is_told(stage: Stage) -> None:
    stage.cast(asks_twice)
    alice = await stage.client()
    mine = "mine:/x"
    session, chat = await stage.session(alice, uri=mine)
    assert (session, chat) == (mine, default_chat(mine))
    await alice.request("createChat", {"channel": mine, "chat": chat_uri("b", mine)})
    await alice.start_turn(chat, "go")
    await alice.until(lambda: len(needed(alice, session)) == 2)
    shown = [await alice.subscribe(mine), await alice.subscribe(chat)]
    told = [each for each in alice.actions if each["channel"] != ROOT]
    held = SessionSpelling("scripted:/x", mine)
    assert same(held.out([shown, told]), [shown, told])
    texts = strings([shown, told])
    assert [text for text in texts if "scripted:/x" in text or encode("scripted:/x") in text] == []


async def test_rule_36_the_first_chats_name_can_be_worked_out(stage: Stage) -> None:
    alice = await stage.client()
    session, chat = await stage.session(alice, "echo", uri="echo:/a-b_c?")
    assert chat == "ahp-chat://default/" + encode(session)
    assert "=" not in chat


async def test_rule_37_the_scheme_of_a_session_is_its_provider(stage: Stage) -> None:
    alice = await stage.client()
    await stage.session(alice, "echo", uri="ahp-session:/x")
    (row,) = (await alice.request("listSessions"))["items"]
    assert (row["resource"], row["provider"]) == ("echo:/x", "echo")
    added = next(each for each in alice.notices if each["method"] == "root/sessionAdded")
    assert added["params"]["summary"]["resource"] == "echo:/x"


async def test_rule_38_what_is_kept_of_a_session_is_kept_under_every_name_of_it(stage: Stage) -> None:
    stage.cast()
    alice = await stage.client()
    mine, chat = await stage.session(alice, uri="mine:/x")
    draft = message("half a th")
    await applied(alice, mine, {"type": "session/isReadChanged", "isRead": True})
    await applied(alice, mine, {"type": "session/configChanged", "config": {"mood": "keen"}})
    await applied(alice, chat, {"type": "chat/draftChanged", "draft": draft})
    for name in ("scripted:/x", "ahp-session:/x"):
        shown = await stage.shown(name, default_chat(name))
        assert shown[name]["status"] & 32
        assert shown[name]["config"]["values"]["mood"] == "keen"
        assert shown[default_chat(name)]["draft"] == draft


async def test_rule_39_an_agent_is_told_the_clients_own_id(stage: Stage) -> None:
    agent = stage.cast()
    alice = await stage.client()
    session, chat = await stage.session(alice, uri="mine:/0f1e")
    await alice.turn(chat, "a")
    await asleep(stage, session)
    await alice.subscribe(chat)
    await alice.turn(chat, "b")
    assert [start.id for start in agent.opened] == ["0f1e", "0f1e"]


async def test_rule_40_a_new_chat_is_announced_with_its_whole_summary(stage: Stage) -> None:
    alice = await stage.client()
    session, _ = await stage.session(alice, "echo")
    chat = chat_uri("b", session)
    await alice.request("createChat", {"channel": session, "chat": chat})
    (action,) = said(alice, "session/chatAdded")
    assert action.keys() == {"type", "summary"}
    assert {"resource", "title", "status", "modifiedAt"} <= action["summary"].keys()
    assert action["summary"]["resource"] == chat


async def test_rule_41_a_changed_row_leaves_out_what_is_fixed_and_says_null_for_what_has_gone(
    stage: Stage, autojump_clock: trio.testing.MockClock
) -> None:
    async def busy(turn: Turn) -> None:
        turn.activity("Looking")
        await trio.sleep(1)
        turn.activity(None)

    stage.cast(busy)
    alice = await stage.client()
    _, chat = await stage.session(alice)
    await alice.turn(chat, "go")
    await trio.sleep(1)
    told = [each["params"]["changes"] for each in alice.notices if each["method"] == "root/sessionSummaryChanged"]
    assert [changes["activity"] for changes in told if "activity" in changes] == ["Looking", None]
    assert all({"resource", "provider", "createdAt"}.isdisjoint(changes) for changes in told)


# -- settings --------------------------------------------------------------------------------------


async def test_rule_45_a_setting_that_is_shown_reaches_whoever_it_is_for(stage: Stage) -> None:
    agent = stage.cast()
    alice = await stage.client()
    session, chat = await stage.session(alice)
    await alice.turn(chat, "a")
    schema = alice.states[session]["config"]["schema"]["properties"]
    for name, value in (("mood", "keen"), ("fixed", 7)):
        change = {"type": "session/configChanged", "config": {name: value}}
        reason = await outcome(alice, session, change)
        assert (reason is None) is bool(schema[name].get("sessionMutable"))
        assert (agent.opened[0].settings[name] == value) is (reason is None)


async def test_rule_47_a_fixed_setting_can_be_changed_until_the_first_turn(stage: Stage) -> None:
    agent = stage.cast()
    alice = await stage.client()
    session, chat = await stage.session(alice)
    assert [dict(start.settings)["fixed"] for start in agent.opened] == [1]
    await applied(alice, session, {"type": "session/configChanged", "config": {"fixed": 7}})
    await alice.turn(chat, "a")
    assert (len(agent.opened), agent.closed) == (2, 1)
    assert agent.opened[-1].settings["fixed"] == 7
    assert await outcome(alice, session, {"type": "session/configChanged", "config": {"fixed": 8}})
    await stage.agrees(alice, session, chat)


async def test_rule_48_a_root_setting_nobody_declared_is_refused(stage: Stage) -> None:
    alice = await stage.client()
    before = alice.states[ROOT]["config"]
    reason = await outcome(alice, ROOT, {"type": "root/configChanged", "config": {"nobody.declared": 1}})
    assert "nobody.declared" in str(reason)
    assert (await alice.subscribe(ROOT))["config"] == before


async def test_rule_51_a_refusal_for_want_of_a_grant_asks_for_nothing(stage: Stage) -> None:
    stage.cast()
    reader = await stage.client(principal=Principal("user:ana", "ana", frozenset({"session:read"})))
    refused = await refusal(reader, "createSession", channel="scripted:/x", provider="scripted")
    assert (refused.code, refused.data) == (-32009, None)


# -- agents and stores -----------------------------------------------------------------------------


async def test_rule_52_a_failed_read_of_a_session_is_not_remembered(stage: Stage) -> None:
    stage.cast()
    alice = await stage.client()
    session, chat = await stage.session(alice)
    await alice.turn(chat, "kept")
    await asleep(stage, session)
    store = stage.open.host.keeper.store
    load, broken = store.load, True

    async def sometimes(uri: str) -> Any:
        if broken:
            raise AhpdError("The disk is away")
        return await load(uri)

    store.load = sometimes  # type: ignore[method-assign]
    bob = await stage.client()
    await refusal(bob, "subscribe", channel=chat)
    broken = False
    assert [answer_text(turn) for turn in (await bob.subscribe(chat))["turns"]] == ["kept"]


async def test_rule_53_a_session_is_announced_when_it_can_be_watched(stage: Stage) -> None:
    let_it = trio.Event()

    async def slow(start: Any) -> None:
        await let_it.wait()

    stage.cast(on_open=slow)
    alice, bob = await stage.client(), await stage.client()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(alice.request, "createSession", {"channel": "scripted:/x", "provider": "scripted"})
        added = await bob.until(lambda: [each for each in bob.notices if each["method"] == "root/sessionAdded"])
    state = await bob.subscribe(added[0]["params"]["summary"]["resource"])
    assert state["lifecycle"] == "creating"
    assert (await bob.subscribe(state["defaultChat"]))["turns"] == []
    let_it.set()
    await bob.until(lambda: bob.states["scripted:/x"]["lifecycle"] == "ready")


async def test_rule_57_what_a_child_is_given_lies_over_the_hosts_environment(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FROM_THE_HOST", "host")
    monkeypatch.setenv("OF_BOTH", "host")
    seen: list[str] = []

    async def spawns(turn: Turn) -> None:
        code = "import os; print(os.environ.get('FROM_THE_HOST'), os.environ.get('OF_BOTH'))"
        start = agent.opened[-1]
        child = await start.run_process([sys.executable, "-c", code], env={"OF_BOTH": "agent"}, stdout=PIPE)
        await child.wait()
        seen.append(child.popen.stdout.read().decode().strip())  # type: ignore[attr-defined]

    agent = stage.cast(spawns)
    alice = await stage.client()
    _, chat = await stage.session(alice)
    assert (await alice.turn(chat, "go"))["state"] == "complete"
    assert seen == ["host agent"]
    assert os.environ["OF_BOTH"] == "host"


# -- frames ----------------------------------------------------------------------------------------


async def test_rule_58_an_action_of_the_hosts_has_no_origin_at_all(stage: Stage) -> None:
    stage.cast(everything)
    alice = await stage.client()
    session, chat = await stage.session(alice)
    await alice.turn(chat, "go")
    await applied(alice, session, {"type": "session/titleChanged", "title": "x"})
    origins = [each["origin"] for each in alice.actions if "origin" in each]
    assert len(origins) == 2
    assert all(origin["clientId"] == alice.id for origin in origins)


async def test_rule_60_no_action_carries_what_is_not_its_own(stage: Stage) -> None:
    stage.cast(everything, asks_twice, fails, waits)
    alice = await stage.client(client_id="alice")
    session, chat = await stage.session(alice)
    await client_tool(stage, alice, session)
    await alice.turn(chat, "go")
    turn_id = await alice.start_turn(chat, "ask")
    await alice.until(lambda: len(needed(alice, session)) == 2)
    answer = {"turnId": turn_id, "toolCallId": "mine", "approved": True, "confirmed": "user-action"}
    await applied(alice, chat, {"type": "chat/toolCallConfirmed", **answer})
    await applied(alice, chat, {"type": "chat/inputCompleted", "requestId": "q", "response": "accept"})
    await alice.finished(chat, turn_id)
    await alice.turn(chat, "fail")
    turn_id = await alice.start_turn(chat, "wait")
    await turn_running(alice, chat)
    queued = {"type": "chat/pendingMessageSet", "kind": "queued", "id": "q", "message": message("q")}
    await applied(alice, chat, queued)
    await applied(alice, chat, {"type": "chat/pendingMessageRemoved", "kind": "queued", "id": "q"})
    await applied(alice, chat, {"type": "chat/turnCancelled", "turnId": turn_id})
    await applied(alice, session, {"type": "session/activeClientRemoved", "clientId": "alice"})
    await alice.request("createChat", {"channel": session, "chat": chat_uri("b", session)})
    for envelope in alice.actions:
        action = envelope["action"]
        assert envelope.keys() <= {"channel", "action", "serverSeq", "origin"}
        assert action.keys() <= {"type", *MEMBERS[action["type"]].split()}, action
    seen = {envelope["action"]["type"] for envelope in alice.actions}
    assert seen >= MEMBERS.keys() - {"session/ready"}


async def test_rule_61_a_method_nobody_serves_is_refused_at_once(stage: Stage) -> None:
    alice = await stage.client()
    for method in ("shutdown", "vscode/removeSessionArtifact", "createTcpConnection", "no/such", ""):
        assert (await refusal(alice, method, channel=ROOT)).code == -32601


async def test_rule_62_models_are_known_before_any_session_and_later_agents_are_told() -> None:
    async with open_host(["session-tools"]) as opened:
        alice = await opened.client()
        assert alice.states[ROOT]["agents"] == []
        stage = Stage(opened)
        before = opened.host.registry
        stage.cast()
        opened.host._apply(before)
        (told,) = await alice.until(lambda: said(alice, "root/agentsChanged"))
        assert [agent["models"] for agent in told["agents"]] == [
            [{"id": "one", "provider": "scripted", "name": "One"}]
        ]
        await stage.agrees(alice, ROOT)


async def test_rule_63_counts_are_numbers_and_lists_are_whole(stage: Stage) -> None:
    stage.cast()
    alice = await stage.client()
    session, chat = await stage.session(alice)
    await alice.turn(chat, "go")
    await alice.request("ping")
    numbers = [action["activeSessions"] for action in said(alice, "root/activeSessionsChanged")]
    assert numbers == [1, 0]
    before = [tool["name"] for tool in alice.states[session].get("serverTools", [])]
    stage.equip(Tool("one_more", ran))
    (told,) = await alice.until(lambda: said(alice, "session/serverToolsChanged"))
    assert [tool["name"] for tool in told["tools"]] == [*before, "one_more"]


async def test_rule_68_nothing_is_invented_about_a_model(stage: Stage) -> None:
    alice = await stage.client()
    (echo,) = alice.states[ROOT]["agents"]
    for model in echo["models"]:
        assert model.keys() == {"id", "provider", "name"}


async def test_rule_69_a_client_with_two_windows_is_there_until_the_last_one_goes(
    stage: Stage, autojump_clock: trio.testing.MockClock
) -> None:
    stage.cast()
    alice = await stage.client()
    one, two = await stage.client(client_id="both"), await stage.client(client_id="both")
    session, _ = await stage.session(alice)
    await one.subscribe(session)
    await two.subscribe(session)
    await client_tool(stage, one, session)

    def present() -> list[str]:
        return [each["clientId"] for each in alice.states[session]["activeClients"]]

    await one.notify("unsubscribe", {"channel": session})
    await one.pipe.aclose()
    await trio.sleep(60)
    assert present() == ["both"]
    await two.pipe.aclose()
    await trio.sleep(20)
    assert present() == ["both"]
    await trio.sleep(20)
    assert present() == []
