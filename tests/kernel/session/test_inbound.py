"""Every action a client may dispatch: what is applied, and what is refused for which reason, changing nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
import trio
from ahpd.agents import Confirmation, Turn
from ahpd.client import AhpClient, RequestFailed, answer_text
from ahpd.errors import AgentError
from ahpd.protocol.actions import ACTIONS
from ahpd.session.names import ROOT

from ...conftest import Json, Stage, applied, message, outcome, same, says, started, turn_running, waits

OPTIONS: Sequence[Json] = (
    {"id": "once", "label": "Once", "kind": "approve"},
    {"id": "never", "label": "Never", "kind": "deny"},
)
QUESTIONS = [
    {"kind": "text", "id": "name", "message": "Name?", "required": True},
    {"kind": "single-select", "id": "pick", "message": "Pick", "options": [{"id": "a", "label": "A"}]},
    {"kind": "number", "id": "age", "message": "Age?"},
]


async def asks(turn: Turn) -> None:
    """A prompt that holds a question and a tool call open until it is cancelled."""
    turn.tool_started("mine", "tool", contributor={"kind": "client", "clientId": "alice"})
    turn.tool_ready("mine", "Running")
    turn.tool_started("call", "tool")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(turn.ask, {"id": "q", "message": "Who?", "questions": QUESTIONS})
        nursery.start_soon(turn.confirm, "call", Confirmation("Sure?", "Really?", OPTIONS))
        await trio.sleep_forever()


class Case:
    """A session of alice's with one turn behind it, and another running that asks."""

    def __init__(self, stage: Stage, alice: AhpClient, session: str, chat: str) -> None:
        self.stage, self.alice, self.session, self.chat = stage, alice, session, chat

    async def refused(self, channel: str, action: Json, why: str) -> None:
        """The action is sent back with a reason that says so, and has changed nothing for anybody."""
        before = dict(self.alice.states)
        reason = await outcome(self.alice, channel, action)
        assert reason is not None, f"{action} was applied"
        assert why in reason
        assert same(before, self.alice.states)
        await self.stage.agrees(self.alice, self.session, self.chat)

    async def taken(self, channel: str, action: Json) -> None:
        await applied(self.alice, channel, action)
        await self.stage.agrees(self.alice, self.session, self.chat)


@pytest.fixture
async def case(stage: Stage) -> Case:
    stage.cast(says, asks, says)
    alice = await stage.client(client_id="alice")
    session, chat = await stage.session(alice)
    await alice.dispatch(chat, started("done"))
    await alice.finished(chat, "done")
    await alice.dispatch(chat, started("now"))
    await alice.until(lambda: len(alice.states[session].get("inputNeeded", [])) == 2)
    return Case(stage, alice, session, chat)


def confirmed(approved: bool, **more: Any) -> Json:
    why = {"confirmed": "user-action"} if approved else {"reason": "denied"}
    return {
        "type": "chat/toolCallConfirmed",
        "turnId": "now",
        "toolCallId": "call",
        "approved": approved,
        **why,
        **more,
    }


def completed(response: str, **answers: Any) -> Json:
    return {"type": "chat/inputCompleted", "requestId": "q", "response": response, "answers": answers}


def answer(kind: str, value: Any, state: str = "submitted") -> Json:
    return {"state": state, "value": {"kind": kind, "value": value}}


REPORTED = {"success": True, "pastTenseMessage": "Ran"}
ANOTHER = {**started("another"), "message": {"text": "x", "origin": {"kind": "agent"}}}

REFUSED_ON_CHAT: Sequence[tuple[Json, str]] = (
    (started("another"), "running"),
    (started("done"), "already been started"),
    (started("now"), "already been started"),
    (ANOTHER, "origin user"),
    ({**started("another"), "startedAt": "yesterday"}, "startedAt"),
    ({**started("another"), "message": {"text": "x"}}, "origin"),
    ({"type": "chat/turnCancelled", "turnId": "done"}, "No such turn"),
    ({"type": "chat/turnCancelled"}, "turnId"),
    ({"type": "chat/turnResume", "turnId": "done"}, "resumed"),
    ({"type": "chat/truncated", "turnId": "never"}, "no completed turn"),
    ({"type": "chat/pendingMessageRemoved", "kind": "queued", "id": "x"}, "No queued message"),
    ({"type": "chat/pendingMessageRemoved", "kind": "steering", "id": "x"}, "No steering message"),
    ({"type": "chat/pendingMessageSet", "kind": "sideways", "id": "x", "message": message("x")}, "kind"),
    (
        {"type": "chat/pendingMessageSet", "kind": "queued", "id": "x", "message": ANOTHER["message"]},
        "origin user",
    ),
    ({"type": "chat/workingDirectorySet", "directory": "file:///elsewhere"}, "its session"),
    ({"type": "chat/workingDirectoryRemoved", "directory": "file:///elsewhere"}, "its session"),
    (confirmed(True, toolCallId="none"), "no tool call none"),
    (confirmed(True, toolCallId="mine"), "not waiting"),
    (confirmed(True, turnId="done"), "No such turn"),
    (confirmed(True, selectedOptionId="none"), "no option none"),
    (confirmed(True, selectedOptionId="never"), "does not fit"),
    (confirmed(False, selectedOptionId="once"), "does not fit"),
    ({"type": "chat/toolCallConfirmed", "turnId": "now", "toolCallId": "call", "approved": True}, "confirmed"),
    (
        {"type": "chat/toolCallComplete", "turnId": "now", "toolCallId": "call", "result": REPORTED},
        "Only the client",
    ),
    (
        {"type": "chat/toolCallContentChanged", "turnId": "now", "toolCallId": "call", "content": []},
        "Only the client",
    ),
    ({"type": "chat/toolCallComplete", "turnId": "now", "toolCallId": "mine", "result": {}}, "result"),
    (
        {"type": "chat/toolCallResultConfirmed", "turnId": "now", "toolCallId": "call", "approved": True},
        "not waiting",
    ),
    ({"type": "chat/inputCompleted", "requestId": "none", "response": "accept"}, "No question none"),
    ({"type": "chat/inputCompleted", "requestId": "q", "response": "maybe"}, "response"),
    (completed("accept"), "question name must be answered"),
    (completed("accept", name={"state": "skipped"}), "question name must be answered"),
    (completed("accept", name=answer("number", 4)), "kind text"),
    (completed("accept", name=answer("text", 4)), "value"),
    (completed("accept", name=answer("text", "x"), other=answer("text", "x")), "no question other"),
    ({"type": "chat/inputAnswerChanged", "requestId": "q", "questionId": "none"}, "no question none"),
    ({"type": "chat/inputAnswerChanged", "requestId": "none", "questionId": "name"}, "No question none"),
    ({"type": "chat/delta", "turnId": "now", "partId": "1", "content": "x"}, "the host's to say"),
    ({"type": "chat/turnComplete", "turnId": "now", "duration": 1}, "the host's to say"),
    ({"type": "chat/invented"}, "does not know"),
    ({"type": "session/titleChanged", "title": "x"}, "does not belong"),
)

REFUSED_ON_SESSION: Sequence[tuple[Json, str]] = (
    ({"type": "session/titleChanged", "title": "  "}, "say something"),
    ({"type": "session/titleChanged", "title": "x" * 201}, "at most"),
    ({"type": "session/titleChanged", "title": 7}, "title"),
    ({"type": "session/isReadChanged", "isRead": "yes"}, "isRead"),
    ({"type": "session/isArchivedChanged"}, "isArchived"),
    ({"type": "session/activeClientSet", "activeClient": {"clientId": "bob", "tools": []}}, "for itself"),
    ({"type": "session/activeClientSet", "activeClient": {"clientId": "alice"}}, "tools"),
    ({"type": "session/activeClientRemoved", "clientId": "bob"}, "for itself"),
    ({"type": "session/workingDirectorySet", "directory": "file:///more"}, "works in the directory"),
    ({"type": "session/workingDirectoryRemoved", "directory": "file:///more"}, "works in the directory"),
    ({"type": "session/customizationToggled", "id": "none", "enablement": []}, "no customization none"),
    ({"type": "session/mcpServerStartRequested", "id": "none"}, "no customization none"),
    ({"type": "session/mcpServerStopRequested", "id": "none"}, "no customization none"),
    ({"type": "session/mcpServerBackgroundRequested", "id": "none"}, "no customization none"),
    ({"type": "session/configChanged", "config": {"none": 1}}, "not a setting"),
    ({"type": "session/chatAdded", "summary": {"resource": "ahp-chat:/x"}}, "the host's to say"),
    ({"type": "session/ready"}, "the host's to say"),
    ({"type": "chat/turnCancelled", "turnId": "now"}, "does not belong"),
)


@pytest.mark.parametrize(
    ("action", "why"), REFUSED_ON_CHAT, ids=lambda each: each.get("type") if isinstance(each, dict) else each
)
async def test_refused_on_a_chat(case: Case, action: Json, why: str) -> None:
    await case.refused(case.chat, action, why)


@pytest.mark.parametrize(
    ("action", "why"), REFUSED_ON_SESSION, ids=lambda each: each.get("type") if isinstance(each, dict) else each
)
async def test_refused_on_a_session(case: Case, action: Json, why: str) -> None:
    await case.refused(case.session, action, why)


@pytest.mark.parametrize(
    "action",
    [
        {"type": "chat/turnCancelled", "turnId": "now"},
        {"type": "chat/truncated", "turnId": "done"},
        {"type": "chat/truncated"},
        {"type": "chat/pendingMessageSet", "kind": "queued", "id": "x", "message": message("x")},
        {"type": "chat/pendingMessageSet", "kind": "steering", "id": "x", "message": message("x")},
        {"type": "chat/queuedMessagesReordered", "order": []},
        {"type": "chat/draftChanged", "draft": message("half a th")},
        {"type": "chat/draftChanged"},
        {"type": "chat/isReadChanged", "isRead": True},
        {"type": "chat/isArchivedChanged", "isArchived": True},
        confirmed(True),
        confirmed(True, selectedOptionId="once"),
        confirmed(False),
        confirmed(False, selectedOptionId="never", reasonMessage="not now"),
        {"type": "chat/toolCallContentChanged", "turnId": "now", "toolCallId": "mine", "content": []},
        {"type": "chat/toolCallComplete", "turnId": "now", "toolCallId": "mine", "result": REPORTED},
        {
            "type": "chat/inputAnswerChanged",
            "requestId": "q",
            "questionId": "name",
            "answer": answer("text", "An", "draft"),
        },
        {"type": "chat/inputAnswerChanged", "requestId": "q", "questionId": "name"},
        completed("accept", name=answer("text", "Ana"), pick=answer("selected", "a"), age=answer("number", 4)),
        completed("accept", name=answer("text", "Ana"), age={"state": "skipped"}),
        completed("decline"),
        completed("cancel"),
    ],
    ids=lambda action: action["type"],
)
async def test_applied_on_a_chat(case: Case, action: Json) -> None:
    await case.taken(case.chat, action)
    assert (
        answer_text(case.alice.states[case.chat]["turns"][0]) == "hello"
        if action.get("turnId") == "done"
        else True
    )


@pytest.mark.parametrize(
    "action",
    [
        {"type": "session/titleChanged", "title": "Mine"},
        {"type": "session/isReadChanged", "isRead": True},
        {"type": "session/isArchivedChanged", "isArchived": True},
        {"type": "session/configChanged", "config": {"mood": "keen"}},
        {"type": "session/activeClientSet", "activeClient": {"clientId": "alice", "tools": []}},
        {"type": "session/activeClientRemoved", "clientId": "alice"},
    ],
    ids=lambda action: action["type"],
)
async def test_applied_on_a_session(case: Case, action: Json) -> None:
    await case.taken(case.session, action)


def test_the_cases_leave_no_action_of_clients_out() -> None:
    tried = {action["type"] for action, _ in (*REFUSED_ON_CHAT, *REFUSED_ON_SESSION)}
    never_refused = {
        "chat/queuedMessagesReordered",
        "chat/draftChanged",
        "chat/isReadChanged",
        "chat/isArchivedChanged",
    }
    elsewhere = {"root/configChanged", "session/workingDirectoryReplaced"}
    assert {name for name, row in ACTIONS.items() if row.client_may} <= tried | never_refused | elsewhere


async def test_only_whoever_asked_hears_a_refusal_also_later(case: Case) -> None:
    bob = await case.stage.client(case.session, client_id="bob")
    await case.refused(case.session, {"type": "session/titleChanged", "title": ""}, "say something")
    await bob.request("ping")
    assert [entry for entry in bob.actions if "rejectionReason" in entry] == []
    seen = case.alice.last_seq - 1
    for client_id, count in (("alice", 1), ("bob", 0)):
        again = await case.stage.open.connect(client_id)
        again.states = {case.session: case.alice.states[case.session]}
        await again.reconnect(seen, case.session)
        assert len([entry for entry in again.actions if "rejectionReason" in entry]) == count


async def test_a_refusal_reaches_a_client_that_does_not_watch(case: Case) -> None:
    bob = await case.stage.client()
    assert "running" in str(await outcome(bob, case.chat, started("another")))
    assert bob.actions[-1]["channel"] == case.chat


async def test_what_has_not_even_a_shape_is_refused_as_far_as_it_can_be(case: Case) -> None:
    alice = case.alice
    await alice.notify("dispatchAction", {"channel": case.chat, "clientSeq": 900, "action": {"no": "type"}})
    assert "action.type" in (await alice.outcome(900))["rejectionReason"]
    before = len(alice.actions)
    for params in (
        {},
        {"channel": case.chat},
        {"channel": case.chat, "clientSeq": "x", "action": {}},
        {"channel": 3},
    ):
        await alice.notify("dispatchAction", params)
    await alice.notify("dispatchAction", {"channel": "echo:/none", "clientSeq": 901, "action": {"type": "x"}})
    await alice.request("ping")
    assert len(alice.actions) == before


async def test_actions_take_effect_in_the_order_they_came(case: Case) -> None:
    for number in range(200):
        await case.alice.dispatch(case.session, {"type": "session/titleChanged", "title": str(number)})
    await case.alice.until(lambda: case.alice.states[case.session]["title"] == "199")
    mine = [entry for entry in case.alice.actions if entry["action"]["type"] == "session/titleChanged"]
    assert [entry["action"]["title"] for entry in mine][-200:] == [str(number) for number in range(200)]
    seqs = [entry["origin"]["clientSeq"] for entry in mine if entry.get("origin")]
    assert seqs == sorted(seqs)


async def test_an_active_client_that_changes_nothing_is_not_news(case: Case) -> None:
    entry = {
        "type": "session/activeClientSet",
        "activeClient": {"clientId": "alice", "tools": [], "displayName": "A"},
    }
    await case.taken(case.session, entry)
    before = case.alice.last_seq
    await case.alice.dispatch(case.session, entry)
    await case.alice.request("ping")
    assert case.alice.last_seq == before
    assert len(case.alice.states[case.session]["activeClients"]) == 1


@pytest.mark.parametrize("where", ["chat", "session"])
async def test_nothing_begins_in_an_archive(stage: Stage, where: str) -> None:
    stage.cast(says)
    alice = await stage.client()
    session, chat = await stage.session(alice)
    channel = chat if where == "chat" else session
    await applied(alice, channel, {"type": f"{where}/isArchivedChanged", "isArchived": True})
    queued = {"type": "chat/pendingMessageSet", "kind": "queued", "id": "x", "message": message("x")}
    for action in (started("t"), queued):
        assert "archive" in str(await outcome(alice, chat, action))
    await applied(alice, channel, {"type": f"{where}/isArchivedChanged", "isArchived": False})
    await applied(alice, chat, started("t"))


async def test_a_failed_turn_is_taken_up_again_with_what_it_had(stage: Stage) -> None:
    resumed = []

    async def fails(turn: Turn) -> None:
        turn.markdown("half ")
        raise AgentError("away", resumable=True)

    async def goes_on(turn: Turn) -> None:
        resumed.append(turn.resumed)
        turn.markdown("whole")

    stage.cast(fails, goes_on)
    alice = await stage.client()
    session, chat = await stage.session(alice)
    turn = await alice.turn(chat, "hello")
    await applied(alice, chat, {"type": "chat/turnResume", "turnId": turn["id"]})
    await alice.until(lambda: "activeTurn" not in alice.states[chat])
    (whole,) = alice.states[chat]["turns"]
    assert whole["state"] == "complete"
    assert resumed == [True]
    assert answer_text(whole) == "half whole"
    ids = [part["id"] for part in whole["responseParts"] if "id" in part]
    assert len(set(ids)) == len(ids)
    assert await outcome(alice, chat, {"type": "chat/turnResume", "turnId": turn["id"]})
    await stage.agrees(alice, session, chat)


async def test_after_truncating_the_agent_begins_with_the_shorter_history(stage: Stage) -> None:
    agent = stage.cast(says)
    alice = await stage.client()
    session, chat = await stage.session(alice)
    for name in ("a", "b", "c"):
        await alice.dispatch(chat, started(name, name))
        await alice.finished(chat, name)
    for _ in range(20):  # the next turn follows at once, as when a message is edited and sent again
        await alice.dispatch(chat, {"type": "chat/truncated", "turnId": "a"})
        turn_id = await alice.start_turn(chat, "d")
        assert answer_text(await alice.finished(chat, turn_id)) == "d"
        assert [turn["id"] for turn in agent.opened[-1].history] == ["a"]
    assert agent.closed == 20
    await stage.agrees(alice, session, chat)


async def test_directories_of_a_session_whose_agent_takes_several(stage: Stage) -> None:
    alice = await stage.client()
    session, chat = await stage.session(alice, "echo", workingDirectories=["file:///one"])
    await applied(alice, session, {"type": "session/workingDirectorySet", "directory": "file:///two"})
    await applied(alice, chat, {"type": "chat/workingDirectorySet", "directory": "file:///two"})
    first = {"type": "session/workingDirectoryRemoved", "directory": "file:///one"}
    assert "first directory" in str(await outcome(alice, session, first))
    replaced = {"type": "session/workingDirectoryReplaced", "replacement": "file:///three"}
    assert "first directory" in str(await outcome(alice, session, {**replaced, "directory": "file:///one"}))
    await applied(alice, session, {**replaced, "directory": "file:///two"})
    assert alice.states[session]["workingDirectories"] == ["file:///one", "file:///three"]
    await stage.agrees(alice, session, chat)


async def told_directories(alice: AhpClient, chat: str) -> list[str]:
    """Where the agent of an echo chat works."""
    told = json.loads(answer_text(await alice.turn(chat, "/start")))
    directories: list[str] = told["workingDirectories"]
    return directories


async def test_a_chat_works_in_its_own_directories_and_follows_its_session(stage: Stage) -> None:
    alice = await stage.client()
    one, two, three, four = (f"file:///{name}" for name in ("one", "two", "three", "four"))
    session, chat = await stage.session(alice, "echo", workingDirectories=[one, two, one, three])
    assert alice.states[session]["workingDirectories"] == [one, two, three]
    assert await told_directories(alice, chat) == [one, two, three]
    for directory in (two, three):
        await applied(alice, chat, {"type": "chat/workingDirectorySet", "directory": directory})
    await alice.until(lambda: alice.states[session]["chats"][0].get("workingDirectories") == [two, three])
    assert await told_directories(alice, chat) == [two, three]
    replaced = {"type": "session/workingDirectoryReplaced", "directory": two, "replacement": four}
    await applied(alice, session, replaced)
    await applied(alice, session, {"type": "session/workingDirectoryRemoved", "directory": three})
    await alice.until(lambda: alice.states[chat]["workingDirectories"] == [four])
    assert await told_directories(alice, chat) == [four]
    await applied(alice, chat, {"type": "chat/workingDirectoryRemoved", "directory": four})
    assert await told_directories(alice, chat) == [one, four]
    await stage.agrees(alice, session, chat)


async def test_directories_do_not_change_under_a_running_turn(stage: Stage) -> None:
    alice = await stage.client()
    session, chat = await stage.session(alice, "echo", workingDirectories=["file:///one"])
    turn_id = await alice.start_turn(chat, "/ask Well?")
    await turn_running(alice, chat)
    for channel in (session, chat):
        kind = "session" if channel == session else "chat"
        action = {"type": f"{kind}/workingDirectorySet", "directory": "file:///one"}
        assert "A turn is running" in str(await outcome(alice, channel, action))
    await applied(alice, chat, {"type": "chat/turnCancelled", "turnId": turn_id})


async def test_an_agent_of_one_directory_is_given_the_first(stage: Stage) -> None:
    stage.cast()
    alice = await stage.client()
    session, chat = await stage.session(alice, workingDirectories=["file:///one", "file:///two"])
    assert alice.states[session]["workingDirectories"] == ["file:///one"]
    action = {"type": "chat/workingDirectorySet", "directory": "file:///one"}
    assert "works in the directory" in str(await outcome(alice, chat, action))


async def test_a_new_chat_chooses_among_its_sessions_directories_and_a_fork_has_its_sources(stage: Stage) -> None:
    alice = await stage.client()
    session, _ = await stage.session(alice, "echo", workingDirectories=["file:///one", "file:///two"])
    params: Json = {"channel": session, "chat": "ahp-chat:/own"}
    with pytest.raises(RequestFailed, match="not a directory of the session"):
        await alice.request("createChat", {**params, "workingDirectories": ["file:///elsewhere"]})
    await alice.request("createChat", {**params, "workingDirectories": ["file:///two"]})
    state = await alice.subscribe("ahp-chat:/own")
    entry = alice.states[session]["chats"][1]
    assert state["workingDirectories"] == entry["workingDirectories"] == ["file:///two"]
    assert await told_directories(alice, "ahp-chat:/own") == ["file:///two"]
    source = {"kind": "fork", "chat": "ahp-chat:/own", "turnId": alice.states["ahp-chat:/own"]["turns"][0]["id"]}
    fork = {"channel": session, "chat": "ahp-chat:/fork", "source": source, "workingDirectories": ["file:///one"]}
    await alice.request("createChat", fork)
    state = await alice.subscribe("ahp-chat:/fork")
    assert state["workingDirectories"] == ["file:///two"]
    await stage.agrees(alice, session, "ahp-chat:/own", "ahp-chat:/fork")


async def test_a_burst_of_settings_nobody_declared_is_survived(stage: Stage) -> None:
    alice = await stage.client()
    before = alice.states[ROOT]["config"]
    for name in ("telemetryLevel", "workspaceTrust", "chat.agent.maxRequests", "github.copilot", "proxy"):
        reason = await outcome(alice, ROOT, {"type": "root/configChanged", "config": {name: {"deep": [1]}}})
        assert name in str(reason)
    mixed = {"type": "root/configChanged", "config": {"advancedTools": True, "telemetryLevel": "off"}}
    assert await outcome(alice, ROOT, mixed)
    await alice.notify("setClientManagedSettingsPermissions", {"anything": True})
    assert alice.states[ROOT]["config"] == before
    _, chat = await stage.session(alice, "echo")
    assert answer_text(await alice.turn(chat, "fine")) == "fine"


async def test_a_second_turn_while_one_runs_leaves_the_first_alone(stage: Stage) -> None:
    stage.cast(waits)
    alice, bob = await stage.client(), await stage.client()
    _, chat = await stage.session(alice)
    turn_id = await alice.start_turn(chat, "first")
    await turn_running(alice, chat)
    assert "running" in str(await outcome(bob, chat, started("second")))
    await alice.request("ping")
    assert alice.states[chat]["activeTurn"]["id"] == turn_id


async def test_a_chat_that_moves_works_where_its_new_session_does(stage: Stage) -> None:
    alice = await stage.client()
    session, _ = await stage.session(alice, "echo", workingDirectories=["file:///one", "file:///two"])
    target, _ = await stage.session(alice, "echo", workingDirectories=["file:///one", "file:///three"])
    params = {"channel": session, "chat": "ahp-chat:/own", "workingDirectories": ["file:///two", "file:///one"]}
    await alice.request("createChat", params)
    await alice.subscribe("ahp-chat:/own")
    place = {"kind": "session", "session": target}
    await alice.request("moveChat", {"channel": "ahp-chat:/own", "destination": place})
    assert alice.states["ahp-chat:/own"]["workingDirectories"] == ["file:///one"]
    assert await told_directories(alice, "ahp-chat:/own") == ["file:///one"]
    await stage.agrees(alice, session, target, "ahp-chat:/own")
