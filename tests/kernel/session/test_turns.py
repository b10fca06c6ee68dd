"""Turns: exactly one ending whoever ends it, what becomes of agents that go wrong, and the messages that wait."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from ahpd.agents import Answer, Confirmation, Decision, Start, Turn
from ahpd.client import AhpClient, answer_text
from ahpd.errors import AgentError, ToolError
from ahpd.testing import open_host
from ahpd.tools import Tool, ToolResult

from ...conftest import (
    IN_MEMORY,
    Json,
    Prompt,
    Stage,
    applied,
    ended,
    message,
    outcome,
    says,
    started,
    turn_running,
    until,
    waits,
)


async def fails(turn: Turn) -> None:
    turn.markdown("half")
    raise AgentError("The model is away.", kind="away", resumable=True)


async def fails_in_a_nursery(turn: Turn) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep_forever)
        nursery.start_soon(fails, turn)


async def crashes(turn: Turn) -> None:
    raise ZeroDivisionError("secret inside")


async def crashes_in_a_nursery(turn: Turn) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(crashes, turn)
        nursery.start_soon(crashes, turn)


async def exits(turn: Turn) -> None:
    raise SystemExit(3)


async def exits_in_a_nursery(turn: Turn) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(exits, turn)


class Own(BaseException):
    """What no `except Exception` stops."""


async def invents(turn: Turn) -> None:
    raise Own


async def interrupts(turn: Turn) -> None:
    raise KeyboardInterrupt


async def refuses(turn: Turn) -> None:
    raise ToolError("Not like this.")


async def crashes_when_cancelled(turn: Turn) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep_forever)
        try:
            await trio.sleep_forever()
        finally:
            raise ZeroDivisionError


async def exits_when_cancelled(turn: Turn) -> None:
    try:
        await trio.sleep_forever()
    finally:
        raise SystemExit


async def speaks_when_cancelled(turn: Turn) -> None:
    try:
        await trio.sleep_forever()
    finally:
        turn.markdown("and another thing")
        turn.notice("by the way")
        turn.tool_started("call-9", "tool")
        turn.usage({"inputTokens": 1})
        turn.activity("still here")


async def silent(turn: Turn) -> None:
    return


async def failed_part(alice: AhpClient, chat: str) -> Json:
    (turn,) = alice.states[chat]["turns"]
    part: Json = turn["responseParts"][-1]
    return part


@pytest.mark.parametrize(
    ("prompt", "state", "ending"),
    [
        (says, "complete", "chat/turnComplete"),
        (silent, "complete", "chat/turnComplete"),
        (fails, "error", "chat/error"),
        (fails_in_a_nursery, "error", "chat/error"),
        (refuses, "error", "chat/error"),
        (crashes, "error", "chat/error"),
        (crashes_in_a_nursery, "error", "chat/error"),
        (exits, "error", "chat/error"),
        (exits_in_a_nursery, "error", "chat/error"),
        (invents, "error", "chat/error"),
        (interrupts, "error", "chat/error"),
    ],
)
async def test_a_turn_ends_once_however_its_agent_does(
    stage: Stage, prompt: Prompt, state: str, ending: str
) -> None:
    stage.cast(prompt, says)
    alice, bob = await stage.client(), await stage.client()
    session, chat = await stage.session(alice)
    other, neighbour = await stage.session(bob, "echo")
    turn = await alice.turn(chat, "hello")
    assert turn["state"] == state
    assert ended(alice, turn["id"]) == [ending]
    assert isinstance(turn["duration"], int)
    assert alice.states[chat]["status"] & 31 == (1 if state == "complete" else 2)
    assert answer_text(await alice.turn(chat, "again")) == "again"
    assert answer_text(await bob.turn(neighbour, "unharmed")) == "unharmed"
    await stage.agrees(alice, session, chat)
    await stage.agrees(bob, other, neighbour)


async def test_a_failure_is_told_in_the_agents_words_and_a_crash_in_ours(stage: Stage) -> None:
    stage.cast(fails)
    alice = await stage.client()
    _, chat = await stage.session(alice)
    await alice.turn(chat, "hello")
    part = await failed_part(alice, chat)
    assert part == {
        "kind": "error",
        "error": {"errorType": "away", "message": "The model is away."},
        "resumable": True,
    }
    assert answer_text(alice.states[chat]["turns"][0]) == "half"


@pytest.mark.parametrize("prompt", [crashes, crashes_in_a_nursery, exits])
async def test_a_crashed_agent_is_closed_and_opened_again_with_the_history(stage: Stage, prompt: Prompt) -> None:
    agent = stage.cast(says, prompt, says)
    alice = await stage.client()
    _, chat = await stage.session(alice)
    await alice.turn(chat, "one")
    assert (await alice.turn(chat, "two"))["state"] == "error"
    await alice.turn(chat, "three")
    first, second = agent.opened
    assert (first.resume, len(first.history)) == (False, 0)
    assert second.resume
    assert [turn["message"]["text"] for turn in second.history] == ["one", "two"]
    assert agent.closed == 1


@pytest.mark.parametrize(
    "prompt",
    [waits, crashes_when_cancelled, exits_when_cancelled, speaks_when_cancelled],
    ids=lambda p: p.__name__,
)
async def test_nothing_follows_a_cancel_whatever_the_agent_does(stage: Stage, prompt: Prompt) -> None:
    stage.cast(prompt, says)
    alice = await stage.client()
    session, chat = await stage.session(alice)
    turn_id = await alice.start_turn(chat, "hello")
    await turn_running(alice, chat)
    await until(lambda: stage.open.host.chats.by_uri[chat].agent)
    await applied(alice, chat, {"type": "chat/turnCancelled", "turnId": turn_id})
    seq = alice.last_seq
    assert answer_text(await alice.turn(chat, "next")) == "next"
    later = [entry["action"] for entry in alice.actions if entry["serverSeq"] > seq]
    assert [action for action in later if action.get("turnId") == turn_id] == []
    assert ended(alice, turn_id) == ["chat/turnCancelled"]
    await stage.agrees(alice, session, chat)


async def test_an_agent_that_is_still_letting_go_is_not_asked_for_the_next_turn() -> None:
    letting_go, may_go = trio.Event(), trio.Event()

    async def lingers(turn: Turn) -> None:
        try:
            await trio.sleep_forever()
        finally:
            letting_go.set()
            with trio.CancelScope(shield=True):
                await may_go.wait()

    async with open_host(IN_MEMORY) as opened:
        stage = Stage(opened)
        agent = stage.cast(lingers, says)
        alice = await stage.client()
        _, chat = await stage.session(alice)
        first = await alice.start_turn(chat, "one")
        await until(lambda: agent.prompting)
        await applied(alice, chat, {"type": "chat/turnCancelled", "turnId": first})
        await letting_go.wait()
        second = await alice.start_turn(chat, "two")
        await turn_running(alice, chat)
        await alice.request("ping")
        assert agent.prompting == 1
        may_go.set()
        assert (await alice.finished(chat, second))["state"] == "complete"
        assert not agent.crowded


@pytest.mark.parametrize("error", [AgentError("No account."), RuntimeError("boom"), SystemExit(1)])
async def test_an_agent_that_does_not_open_fails_the_session_and_nothing_else(
    stage: Stage, error: BaseException
) -> None:
    async def broken(start: Start) -> None:
        raise error

    stage.cast(on_open=broken)
    alice = await stage.client()
    session, chat = await stage.session(alice)
    assert alice.states[session]["lifecycle"] == "failed"
    assert alice.states[session]["creationError"]["errorType"] == "startFailed"
    assert "could not be started" in str(await outcome(alice, chat, started("t1")))
    _, other = await stage.session(alice, "echo")
    assert answer_text(await alice.turn(other, "fine")) == "fine"


async def test_an_agent_that_never_closes_holds_nothing_up(autojump_clock: trio.testing.MockClock) -> None:
    async def never() -> None:
        await trio.sleep_forever()

    async with open_host(IN_MEMORY) as opened:
        stage = Stage(opened)
        stage.cast(on_close=never)
        alice = await stage.client()
        session, _ = await stage.session(alice)
        for number in range(4):
            chat = f"ahp-chat:/{number}"
            await alice.request("createChat", {"channel": session, "chat": chat})
            await alice.subscribe(chat)
            await alice.turn(chat, "open it")
        with trio.fail_after(4):
            await alice.request("disposeSession", {"channel": session})


@pytest.mark.parametrize("error", [RuntimeError("boom"), SystemExit(1)])
async def test_an_agent_that_closes_badly_harms_nobody(stage: Stage, error: BaseException) -> None:
    async def badly() -> None:
        raise error

    agent = stage.cast(on_close=badly)
    alice = await stage.client()
    session, chat = await stage.session(alice)
    await alice.turn(chat, "open")
    await alice.request("disposeSession", {"channel": session})
    assert agent.closed == 1
    _, other = await stage.session(alice, "echo")
    assert answer_text(await alice.turn(other, "fine")) == "fine"


async def test_a_crash_inside_a_session_costs_its_turns_and_it_goes_on(stage: Stage) -> None:
    async def crash() -> None:
        raise RuntimeError("a fault of ours")

    stage.cast(waits, says)
    alice = await stage.client()
    session, chat = await stage.session(alice)
    turn_id = await alice.start_turn(chat, "hello")
    await turn_running(alice, chat)
    nursery = stage.open.host.sessions.by_uri[session].nursery
    assert nursery is not None
    nursery.start_soon(crash)
    assert (await alice.finished(chat, turn_id))["state"] == "cancelled"
    assert answer_text(await alice.turn(chat, "again")) == "again"
    await alice.request("disposeSession", {"channel": session})


async def test_a_disposed_session_ends_its_turn_in_front_of_those_who_watch(stage: Stage) -> None:
    agent = stage.cast(waits)
    alice = await stage.client()
    session, chat = await stage.session(alice)
    turn_id = await alice.start_turn(chat, "hello")
    await until(lambda: agent.prompting)
    await alice.request("disposeSession", {"channel": session})
    assert ended(alice, turn_id) == ["chat/turnCancelled"]
    assert (agent.prompting, agent.closed) == (0, 1)


async def test_a_host_that_stops_ends_every_turn_and_begins_none(stage: Stage) -> None:
    stage.cast(waits)
    alice = await stage.client()
    session, chat = await stage.session(alice)
    turn_id = await alice.start_turn(chat, "hello")
    await turn_running(alice, chat)
    await stage.open.host.quiet()
    assert (await alice.finished(chat, turn_id))["state"] == "cancelled"
    assert "stopping" in str(await outcome(alice, chat, started("t2")))
    queued = {"type": "chat/pendingMessageSet", "kind": "queued", "id": "q", "message": message("later")}
    assert "stopping" in str(await outcome(alice, chat, queued))
    await stage.agrees(alice, session, chat)


# -- what an agent says -------------------------------------------------------------------------------------


async def test_parts_are_opened_before_they_grow_and_kinds_are_kept_apart(stage: Stage) -> None:
    async def talks(turn: Turn) -> None:
        turn.reasoning("let me ")
        turn.reasoning("think")
        turn.markdown("so ")
        turn.markdown("it is")
        turn.notice("look")
        turn.markdown("done")
        turn.usage({"inputTokens": 3})

    stage.cast(talks)
    alice = await stage.client()
    session, chat = await stage.session(alice)
    turn = await alice.turn(chat, "hello")
    kinds = [(part["kind"], part["content"]) for part in turn["responseParts"]]
    assert kinds == [
        ("reasoning", "let me think"),
        ("markdown", "so it is"),
        ("systemNotification", "look"),
        ("markdown", "done"),
    ]
    assert turn["usage"] == {"inputTokens": 3}
    ids = [part["id"] for part in turn["responseParts"] if "id" in part]
    assert len(set(ids)) == len(ids)
    await stage.agrees(alice, session, chat)


async def test_what_no_client_could_be_sent_does_not_poison_the_chat(stage: Stage) -> None:
    async def talks(turn: Turn) -> None:
        turn.markdown("a\udce9b")
        await turn.call_tool("nothing", {"path": "\ud800"})
        turn.tool_started("c", "tool")
        turn.tool_ready("c", "Running")
        turn.tool_finished("c", ToolResult("\udfff", structured={"\ud900": ["\ud800"]}))

    stage.cast(talks, says)
    alice = await stage.client()
    session, chat = await stage.session(alice)
    turn = await alice.turn(chat, "hello")
    assert turn["state"] == "complete"
    assert "a" in answer_text(turn)
    assert answer_text(await alice.turn(chat, "more")) == "more"
    await stage.agrees(alice, session, chat)


async def test_a_call_is_told_from_its_start_to_its_result(stage: Stage) -> None:
    results = []

    async def double(call: Any) -> str:
        return str(call.arguments["n"] * 2)

    async def calls(turn: Turn) -> None:
        results.append(await turn.call_tool("double", {"n": 4}))
        results.append(await turn.call_tool("no_such_tool", {}))
        results.append(await turn.call_tool("mcp__ahp__double", {"n": "x"}))

    stage.cast(calls)
    stage.equip(Tool("double", double, "Doubles.", {"n": {"type": "integer"}}, ["n"], title="Double"))
    alice = await stage.client()
    session, chat = await stage.session(alice)
    turn = await alice.turn(chat, "go")
    good, unknown, bad = (part["toolCall"] for part in turn["responseParts"])
    assert (good["status"], good["success"], good["confirmed"]) == ("completed", True, "not-needed")
    assert (good["displayName"], good["toolInput"], good["pastTenseMessage"]) == (
        "Double",
        '{"n":4}',
        "Ran Double",
    )
    assert good["content"] == [{"type": "text", "text": "8"}]
    assert (unknown["success"], unknown["error"]["message"]) == (False, "No tool named no_such_tool")
    assert bad["success"] is False
    assert bad["toolName"] == "double"
    assert [result.is_error for result in results] == [False, True, True]
    kinds = [entry["action"]["type"] for entry in alice.actions if "toolCall" in entry["action"]["type"]]
    assert kinds == ["chat/toolCallStart", "chat/toolCallDelta", "chat/toolCallReady", "chat/toolCallComplete"] * 3
    await stage.agrees(alice, session, chat)


# -- being asked --------------------------------------------------------------------------------------------


async def test_several_questions_may_be_open_at_once_and_each_gets_its_own_answer(stage: Stage) -> None:
    answers: dict[str, Answer] = {}
    decisions: dict[str, Decision] = {}

    async def asks(turn: Turn) -> None:
        async def ask(name: str) -> None:
            answers[name] = await turn.ask({"id": name, "message": name})

        async def confirm(name: str) -> None:
            turn.tool_started(name, "tool")
            decisions[name] = await turn.confirm(name, Confirmation("Sure?", "Really?"))

        async with trio.open_nursery() as nursery:
            for name in ("a", "b"):
                nursery.start_soon(ask, name)
            for name in ("c", "d"):
                nursery.start_soon(confirm, name)

    stage.cast(asks)
    alice = await stage.client()
    session, chat = await stage.session(alice)
    turn_id = await alice.start_turn(chat, "go")
    await alice.until(lambda: len(alice.states[session].get("inputNeeded", [])) == 4)
    assert alice.states[session]["status"] & 24 == 24
    assert alice.states[chat]["status"] & 24 == 24
    fresh = (await stage.shown(session))[session]
    assert len(fresh["inputNeeded"]) == 4
    for name, response in (("b", "accept"), ("a", "cancel")):
        await applied(alice, chat, {"type": "chat/inputCompleted", "requestId": name, "response": response})
    call: Json = {"type": "chat/toolCallConfirmed", "turnId": turn_id}
    await applied(alice, chat, {**call, "toolCallId": "d", "approved": False, "reason": "denied"})
    await applied(alice, chat, {**call, "toolCallId": "c", "approved": True, "confirmed": "user-action"})
    await alice.finished(chat, turn_id)
    assert {name: answer.response for name, answer in answers.items()} == {"a": "cancel", "b": "accept"}
    assert {name: decision.approved for name, decision in decisions.items()} == {"c": True, "d": False}
    assert "inputNeeded" not in alice.states[session]
    await stage.agrees(alice, session, chat)


@pytest.mark.parametrize("how", ["cancel", "dispose", "crash"])
async def test_a_question_is_settled_with_its_turn(stage: Stage, how: str) -> None:
    async def asks(turn: Turn) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(turn.ask, {"message": "Well?"})
            if how == "crash":
                await until(lambda: alice.states[session].get("inputNeeded"))
                raise RuntimeError("boom")

    stage.cast(asks)
    alice = await stage.client()
    session, chat = await stage.session(alice)
    turn_id = await alice.start_turn(chat, "go")
    if how != "crash":
        await alice.until(lambda: alice.states[session].get("inputNeeded"))
    if how == "cancel":
        await applied(alice, chat, {"type": "chat/turnCancelled", "turnId": turn_id})
    elif how == "dispose":
        await alice.request("disposeSession", {"channel": session})
    await alice.finished(chat, turn_id)
    await alice.request("ping")
    assert "inputNeeded" not in alice.states[session]
    assert alice.states[session]["status"] & 16 == 0


# -- results that count once somebody says so ---------------------------------------------------------------


def asking_about(*results: ToolResult, said: list[bool]) -> Prompt:
    """A prompt that has the results of calls `call-0`, `call-1`... confirmed side by side, told to `said`."""

    async def prompt(turn: Turn) -> None:
        async def check(call_id: str, result: ToolResult) -> None:
            turn.tool_started(call_id, "fetch", display_name="Fetch")
            turn.tool_ready(call_id, "Fetching", "{}")
            said.append(await turn.confirm_result(call_id, result, "Fetched"))

        async with trio.open_nursery() as nursery:
            for number, result in enumerate(results):
                nursery.start_soon(check, f"call-{number}", result)

    return prompt


def calls_of(turn: Json) -> dict[str, Json]:
    """Every tool call of a turn by id."""
    calls = [part["toolCall"] for part in turn["responseParts"] if part["kind"] == "toolCall"]
    return {call["toolCallId"]: call for call in calls}


def judged(turn_id: str, call_id: str, approved: bool) -> Json:
    action = {"type": "chat/toolCallResultConfirmed", "turnId": turn_id, "toolCallId": call_id}
    return {**action, "approved": approved}


async def test_results_wait_for_a_person_and_are_judged_apart(stage: Stage) -> None:
    said: list[bool] = []
    stage.cast(asking_about(ToolResult("secret"), ToolResult("open"), said=said))
    alice = await stage.client()
    session, chat = await stage.session(alice)
    turn_id = await alice.start_turn(chat, "go")
    await alice.until(lambda: len(alice.states[session].get("inputNeeded", [])) == 2)
    needed = alice.states[session]["inputNeeded"]
    assert {entry["kind"] for entry in needed} == {"toolConfirmation"}
    assert {entry["toolCall"]["status"] for entry in needed} == {"pending-result-confirmation"}
    assert {entry["chat"] for entry in needed} == {chat}
    assert alice.states[chat]["status"] & 24 == 24
    held = calls_of(alice.states[chat]["activeTurn"])["call-0"]
    assert (held["success"], held["pastTenseMessage"]) == (True, "Fetched")
    await applied(alice, chat, judged(turn_id, "call-1", True))
    await alice.until(lambda: len(alice.states[session]["inputNeeded"]) == 1)
    assert "not waiting" in str(await outcome(alice, chat, judged(turn_id, "call-1", False)))
    await applied(alice, chat, judged(turn_id, "call-0", False))
    turn = await alice.finished(chat, turn_id)
    assert said == [True, False]
    denied, counted = calls_of(turn)["call-0"], calls_of(turn)["call-1"]
    assert (denied["status"], denied["reason"]) == ("cancelled", "result-denied")
    assert "content" not in denied
    assert (counted["status"], counted["content"][0]["text"]) == ("completed", "open")
    assert "inputNeeded" not in alice.states[session]
    await stage.agrees(alice, session, chat)


@pytest.mark.parametrize("how", ["cancel", "dispose", "return"])
async def test_a_result_nobody_judged_is_settled_with_its_turn(stage: Stage, how: str) -> None:
    said: list[bool] = []
    may_return = trio.Event()

    async def prompt(turn: Turn) -> None:
        judging = asking_about(ToolResult("late"), said=said)
        if how != "return":
            await judging(turn)
        nursery = stage.open.host.sessions.by_uri[session].nursery
        assert nursery is not None
        nursery.start_soon(judging, turn)
        await may_return.wait()

    stage.cast(prompt)
    alice = await stage.client()
    session, chat = await stage.session(alice)
    turn_id = await alice.start_turn(chat, "go")
    await alice.until(lambda: alice.states[session].get("inputNeeded"))
    if how == "cancel":
        await applied(alice, chat, {"type": "chat/turnCancelled", "turnId": turn_id})
    elif how == "dispose":
        await alice.request("disposeSession", {"channel": session})
    may_return.set()
    turn = await alice.finished(chat, turn_id)
    await alice.request("ping")
    assert (calls_of(turn)["call-0"]["status"], calls_of(turn)["call-0"]["reason"]) == ("cancelled", "skipped")
    assert "inputNeeded" not in alice.states[session]
    if how == "return":
        await until(lambda: said)
    assert said == ([False] if how == "return" else [])


async def test_a_result_of_a_call_that_does_not_run_asks_nobody(stage: Stage) -> None:
    said: list[bool] = []

    async def prompt(turn: Turn) -> None:
        said.append(await turn.confirm_result("never", ToolResult("?")))
        turn.tool_started("streaming", "fetch")
        said.append(await turn.confirm_result("streaming", ToolResult("?")))

    stage.cast(prompt)
    alice = await stage.client()
    _, chat = await stage.session(alice)
    await alice.turn(chat, "go")
    assert said == [False, False]
    assert "session/inputNeededSet" not in [entry["action"]["type"] for entry in alice.actions]


@pytest.mark.parametrize("approved", [True, False])
async def test_a_client_may_have_the_result_of_its_own_tool_confirmed(stage: Stage, approved: bool) -> None:
    results: list[ToolResult] = []

    async def prompt(turn: Turn) -> None:
        results.append(await turn.call_tool("alice__fetch", {}))

    stage.cast(prompt)
    alice = await stage.client(client_id="alice")
    session, chat = await stage.session(alice)
    entry = {"clientId": "alice", "tools": [{"name": "fetch"}]}
    await applied(alice, session, {"type": "session/activeClientSet", "activeClient": entry})
    turn_id = await alice.start_turn(chat, "go")
    await alice.until(lambda: alice.states[session].get("inputNeeded"))
    (call_id,) = calls_of(alice.states[chat]["activeTurn"])
    result = {"success": True, "pastTenseMessage": "Fetched", "content": [{"type": "text", "text": "here"}]}
    action = {"type": "chat/toolCallComplete", "turnId": turn_id, "toolCallId": call_id, "result": result}
    await applied(alice, chat, {**action, "requiresResultConfirmation": True})
    await alice.until(
        lambda: [e["kind"] for e in alice.states[session].get("inputNeeded", [])] == ["toolConfirmation"]
    )
    assert results == []
    await applied(alice, chat, judged(turn_id, call_id, approved))
    await alice.finished(chat, turn_id)
    assert [(result.is_error, result.text == "here") for result in results] == [(not approved, approved)]
    assert "inputNeeded" not in alice.states[session]
    await stage.agrees(alice, session, chat)


async def test_an_edited_input_is_what_the_tool_gets(stage: Stage) -> None:
    async def double(call: Any) -> str:
        return str(call.arguments["n"] * 2)

    async def calls(turn: Turn) -> None:
        await turn.call_tool("double", {"n": 1}, Confirmation("Sure?", "Really?", editable=True))

    stage.cast(calls)
    stage.equip(Tool("double", double))
    alice = await stage.client()
    session, chat = await stage.session(alice)
    for edited, success in (('{"n": 21}', True), ("not json", False), ("[1]", False)):
        turn_id = await alice.start_turn(chat, "go")
        needed = (await alice.until(lambda: alice.states[session].get("inputNeeded")))[0]
        call = {"turnId": turn_id, "toolCallId": needed["toolCall"]["toolCallId"], "editedToolInput": edited}
        confirmed = {"type": "chat/toolCallConfirmed", "approved": True, "confirmed": "user-action", **call}
        await applied(alice, chat, confirmed)
        turn = await alice.finished(chat, turn_id)
        (part,) = turn["responseParts"]
        assert part["toolCall"]["success"] is success
        assert part["toolCall"]["toolInput"] == edited
        if success:
            assert part["toolCall"]["content"][0]["text"] == "42"


# -- messages that wait -------------------------------------------------------------------------------------


def pending(kind: str, identifier: str, text: str = "later") -> Json:
    return {"type": "chat/pendingMessageSet", "kind": kind, "id": identifier, "message": message(text)}


async def test_the_queue_drains_in_order_once_a_turn_has_ended_well(stage: Stage) -> None:
    stage.cast(waits, says)
    go = trio.Event()

    async def waits_for_go(turn: Turn) -> None:
        await go.wait()

    stage.cast(waits_for_go, says)
    alice = await stage.client()
    session, chat = await stage.session(alice)
    await alice.start_turn(chat, "first")
    for name in ("a", "b", "c"):
        await applied(alice, chat, pending("queued", name, name))
    await applied(alice, chat, {"type": "chat/queuedMessagesReordered", "order": ["c"]})
    await applied(alice, chat, {"type": "chat/pendingMessageRemoved", "kind": "queued", "id": "a"})
    await applied(alice, chat, pending("queued", "b", "b, changed"))
    go.set()
    await alice.until(lambda: len(alice.states[chat]["turns"]) == 3)
    texts = [turn["message"]["text"] for turn in alice.states[chat]["turns"]]
    assert texts == ["first", "c", "b, changed"]
    starts = [entry["action"] for entry in alice.actions if entry["action"]["type"] == "chat/turnStarted"]
    assert [action.get("queuedMessageId") for action in starts] == [None, "c", "b"]
    assert "queuedMessages" not in alice.states[chat]
    await stage.agrees(alice, session, chat)


@pytest.mark.parametrize("how", ["cancel", "fail"])
async def test_after_a_cancel_or_a_failure_the_queue_waits_to_be_asked_for(stage: Stage, how: str) -> None:
    go = trio.Event()

    async def fails_on_go(turn: Turn) -> None:
        await go.wait()
        raise AgentError("no")

    stage.cast(fails_on_go, says)
    alice = await stage.client()
    _, chat = await stage.session(alice)
    turn_id = await alice.start_turn(chat, "first")
    await applied(alice, chat, pending("queued", "a", "a"))
    if how == "cancel":
        await applied(alice, chat, {"type": "chat/turnCancelled", "turnId": turn_id})
    go.set()
    await alice.finished(chat, turn_id)
    await alice.request("ping")
    assert [entry["id"] for entry in alice.states[chat]["queuedMessages"]] == ["a"]
    assert "activeTurn" not in alice.states[chat]
    await applied(alice, chat, pending("queued", "b", "b"))
    await alice.until(lambda: len(alice.states[chat]["turns"]) == 3)
    assert [turn["message"]["text"] for turn in alice.states[chat]["turns"]] == ["first", "a", "b"]


async def test_a_waiting_message_that_a_client_takes_up_itself_runs_once(stage: Stage) -> None:
    stage.cast(waits, says)
    alice = await stage.client()
    session, chat = await stage.session(alice)
    first = await alice.start_turn(chat, "first")
    await applied(alice, chat, pending("queued", "a", "a"))
    await applied(alice, chat, {"type": "chat/turnCancelled", "turnId": first})
    await applied(alice, chat, started("mine", "a", queuedMessageId="a"))
    await alice.finished(chat, "mine")
    await alice.request("ping")
    assert [turn["message"]["text"] for turn in alice.states[chat]["turns"]] == ["first", "a"]
    assert "queuedMessages" not in alice.states[chat]
    assert stage.open.host.chats.by_uri[chat].queue == {}
    await stage.agrees(alice, session, chat)


async def test_a_message_queued_in_a_free_chat_begins_at_once(stage: Stage) -> None:
    stage.cast(says)
    alice = await stage.client()
    _, chat = await stage.session(alice)
    await applied(alice, chat, pending("queued", "a", "now"))
    await alice.until(lambda: alice.states[chat]["turns"])
    assert answer_text(alice.states[chat]["turns"][0]) == "now"


async def test_steering_is_taken_by_the_running_turn(stage: Stage) -> None:
    async def listens(turn: Turn) -> None:
        turn.markdown("listening ")
        steering = None
        while steering is None:
            await trio.lowlevel.checkpoint()
            steering = turn.take_steering()
        turn.markdown(steering["text"])

    stage.cast(listens)
    alice = await stage.client()
    session, chat = await stage.session(alice)
    turn_id = await alice.start_turn(chat, "go")
    await turn_running(alice, chat)
    await applied(alice, chat, pending("steering", "s", "left"))
    turn = await alice.finished(chat, turn_id)
    assert answer_text(turn) == "listening left"
    assert "steeringMessage" not in alice.states[chat]
    assert len(alice.states[chat]["turns"]) == 1
    assert stage.open.host.chats.by_uri[chat].queue == {}
    await stage.agrees(alice, session, chat)


async def test_steering_nobody_took_becomes_a_turn_of_its_own_before_the_queue(stage: Stage) -> None:
    go = trio.Event()

    async def deaf(turn: Turn) -> None:
        await go.wait()

    stage.cast(deaf, says)
    alice = await stage.client()
    _, chat = await stage.session(alice)
    await alice.start_turn(chat, "first")
    await turn_running(alice, chat)
    await applied(alice, chat, pending("queued", "q", "queued"))
    await applied(alice, chat, pending("steering", "s1", "replaced"))
    await applied(alice, chat, pending("steering", "s2", "steered"))
    go.set()
    await alice.until(lambda: len(alice.states[chat]["turns"]) == 3)
    assert [turn["message"]["text"] for turn in alice.states[chat]["turns"]] == ["first", "steered", "queued"]
    assert stage.open.host.chats.by_uri[chat].queue == {}


async def test_one_id_is_one_waiting_message(stage: Stage) -> None:
    go = trio.Event()

    async def deaf(turn: Turn) -> None:
        await go.wait()

    stage.cast(deaf, says)
    alice = await stage.client()
    session, chat = await stage.session(alice)
    await alice.start_turn(chat, "first")
    await turn_running(alice, chat)
    await applied(alice, chat, pending("queued", "x", "queued"))
    assert "queued message" in str(await outcome(alice, chat, pending("steering", "x")))
    await applied(alice, chat, pending("steering", "y", "steered"))
    assert "steering message" in str(await outcome(alice, chat, pending("queued", "y")))
    go.set()
    await alice.until(lambda: len(alice.states[chat]["turns"]) == 3)
    assert answer_text(await alice.turn(chat, "alive")) == "alive"
    await stage.agrees(alice, session, chat)
