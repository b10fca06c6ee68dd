"""Sessions and chats from their beginning to their end: names, forks, pages of turns, and who may."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from ahpd.access import Principal
from ahpd.client import AhpClient, RequestFailed, answer_text
from ahpd.session.names import ROOT, chat_uri
from ahpd.testing import open_host

from ...conftest import (
    IN_MEMORY,
    Json,
    Stage,
    applied,
    message,
    outcome,
    says,
    started,
    turn_running,
    until,
    waits,
)

READER = Principal("user:ana", "ana", frozenset({"session:read", "config:read"}))
STRANGER = Principal("user:sam", "sam", frozenset())


async def refused(client: AhpClient, method: str, **params: Any) -> tuple[int | None, str]:
    with pytest.raises(RequestFailed) as failure:
        await client.request(method, params)
    return failure.value.code, failure.value.message


async def test_a_session_can_be_watched_and_has_its_chat_before_its_agent_is_there(stage: Stage) -> None:
    let_it = trio.Event()

    async def slow(start: Any) -> None:
        await let_it.wait()

    stage.cast(on_open=slow)
    alice = await stage.client()
    session = await alice.create_session("scripted")
    chat = alice.default_chat(session)
    assert alice.states[session]["lifecycle"] == "creating"
    assert [entry["resource"] for entry in alice.states[session]["chats"]] == [chat]
    turn_id = await alice.start_turn(chat, "early")
    await turn_running(alice, chat)
    let_it.set()
    assert answer_text(await alice.finished(chat, turn_id)) == "early"
    await alice.until(lambda: alice.states[session]["lifecycle"] == "ready")
    await stage.agrees(alice, session, chat)


async def test_one_agent_is_opened_although_two_want_it(stage: Stage) -> None:
    agent = stage.cast(says)
    alice = await stage.client()
    session = await alice.create_session("scripted")
    await alice.turn(alice.default_chat(session), "at once")
    assert len(agent.opened) == 1
    start = agent.opened[0]
    assert (start.session, start.chat, start.id) == (
        session,
        alice.default_chat(session),
        session.partition("/")[2],
    )


@pytest.mark.parametrize("again", ["scripted:/x", "ahp-session:/x", "mine:/x"])
async def test_one_name_is_one_session(stage: Stage, again: str) -> None:
    stage.cast(says)
    alice = await stage.client()
    await alice.create_session("scripted", "mine:/x")
    assert (await refused(alice, "createSession", channel=again, provider="scripted"))[0] == -32003
    await alice.request("disposeSession", {"channel": "mine:/x"})
    await alice.create_session("scripted", again)


async def test_a_name_that_came_back_is_not_taken_for_the_old_one(stage: Stage) -> None:
    stage.cast(says)
    alice, bob = await stage.client(), await stage.client(client_id="bob")
    session = await alice.create_session("scripted", "scripted:/x")
    chat = alice.default_chat(session)
    await bob.subscribe(session)
    await bob.subscribe(chat)
    await bob.turn(chat, "old")
    seen = bob.last_seq
    await bob.pipe.aclose()
    await alice.request("disposeSession", {"channel": session})
    await alice.create_session("scripted", "scripted:/x")
    again = await stage.open.connect("bob")
    again.states = dict(bob.states)
    result = await again.reconnect(seen, session, chat)
    assert result["type"] == "snapshot"
    assert again.states[chat]["turns"] == []


async def test_what_was_looked_away_from_is_not_replayed_onto_old_state(stage: Stage) -> None:
    stage.cast(says)
    alice, bob = await stage.client(), await stage.client(client_id="bob")
    session, chat = await stage.session(alice)
    await bob.subscribe(session)
    await bob.subscribe(chat)
    await bob.notify("unsubscribe", {"channel": chat})
    await bob.request("ping")
    await alice.turn(chat, "unseen")
    await applied(alice, session, {"type": "session/titleChanged", "title": "seen"})
    await bob.until(lambda: bob.states[session]["title"] == "seen")
    await bob.pipe.aclose()
    again = await stage.open.connect("bob")
    again.states = dict(bob.states)
    await again.reconnect(bob.last_seq, session, chat)
    await stage.agrees(again, session, chat)


async def test_a_client_that_understates_what_it_saw_gets_nothing_twice(stage: Stage) -> None:
    stage.cast(says)
    alice, bob = await stage.client(), await stage.client(client_id="bob")
    before = bob.last_seq
    _, chat = await stage.session(alice)
    await alice.turn(chat, "hello")
    await bob.subscribe(chat)
    await bob.pipe.aclose()
    again = await stage.open.connect("bob")
    again.states = dict(bob.states)
    await again.reconnect(before, chat)
    await stage.agrees(again, chat)


# -- chats --------------------------------------------------------------------------------------------------


async def forkable(stage: Stage) -> tuple[AhpClient, str, str]:
    stage.cast(says)
    alice = await stage.client()
    session, chat = await stage.session(alice)
    for name in ("a", "b", "c"):
        await alice.dispatch(chat, started(name, name))
        await alice.finished(chat, name)
    return alice, session, chat


async def test_a_fork_holds_the_turns_up_to_its_own(stage: Stage) -> None:
    alice, session, chat = await forkable(stage)
    source = {"kind": "fork", "chat": chat, "turnId": "b"}
    await alice.request("createChat", {"channel": session, "chat": "ahp-chat:/fork", "source": source})
    state = await alice.subscribe("ahp-chat:/fork")
    assert [turn["id"] for turn in state["turns"]] == ["a", "b"]
    assert state["origin"] == source
    await alice.turn("ahp-chat:/fork", "on its own")
    assert [turn["id"] for turn in alice.states[chat]["turns"]] == ["a", "b", "c"]
    agent = stage.open.host.sessions.by_uri[session].agent
    assert [turn["id"] for turn in agent.opened[-1].history] == ["a", "b"]  # type: ignore[union-attr]
    await stage.agrees(alice, session, chat, "ahp-chat:/fork")


async def test_a_side_chat_begins_empty(stage: Stage) -> None:
    alice, session, chat = await forkable(stage)
    source = {"kind": "sideChat", "chat": chat, "turnId": "b", "selection": {"text": "b"}}
    await alice.request("createChat", {"channel": session, "chat": "ahp-chat:/side", "source": source})
    state = await alice.subscribe("ahp-chat:/side")
    assert state["turns"] == []
    assert state["origin"] == source


@pytest.mark.parametrize(
    ("source", "field"),
    [
        ({"kind": "fork", "turnId": "never"}, "source.turnId"),
        ({"kind": "sideChat", "turnId": "never"}, "source.turnId"),
        ({"kind": "copy", "turnId": "a"}, "source.kind"),
        ({"kind": "fork", "turnId": "a", "chat": "ahp-chat:/none"}, "source.chat"),
        ({"kind": "fork"}, "source.turnId"),
        ({"kind": "sideChat", "turnId": "a", "selection": {"text": ""}}, "source.selection.text"),
    ],
)
async def test_what_a_chat_cannot_begin_with_is_named(stage: Stage, source: Json, field: str) -> None:
    alice, session, chat = await forkable(stage)
    params = {"channel": session, "chat": "ahp-chat:/x", "source": {"chat": chat, **source}}
    code, said = await refused(alice, "createChat", **params)
    assert code == -32602
    assert field in said
    assert len(alice.states[session]["chats"]) == 1


async def test_an_agent_that_cannot_fork_is_not_asked_to(stage: Stage) -> None:
    stage.cast(multiple_chats={})
    alice = await stage.client()
    session, chat = await stage.session(alice)
    turn = await alice.turn(chat, "hello")
    source = {"kind": "fork", "chat": chat, "turnId": turn["id"]}
    code, said = await refused(alice, "createChat", channel=session, chat="ahp-chat:/x", source=source)
    assert code == -32602
    assert "source.kind" in said


async def test_a_chat_may_begin_with_a_message_or_not_at_all(stage: Stage) -> None:
    stage.cast(says)
    alice = await stage.client()
    session, chat = await stage.session(alice)
    params = {"channel": session, "chat": "ahp-chat:/x", "initialMessage": message("first words")}
    await alice.request("createChat", params)
    state = await alice.subscribe("ahp-chat:/x")
    await alice.until(lambda: alice.states["ahp-chat:/x"]["turns"])
    assert answer_text(alice.states["ahp-chat:/x"]["turns"][0]) == "first words"
    assert state["title"] == "" or state["title"] == "first words"
    entry = [each for each in alice.states[session]["chats"] if each["resource"] == "ahp-chat:/x"]
    assert entry[0]["title"] == "first words"
    agents = {"text": "x", "origin": {"kind": "agent"}}
    assert (await refused(alice, "createChat", channel=session, chat="ahp-chat:/y", initialMessage=agents))[
        0
    ] == -32602
    await applied(alice, session, {"type": "session/isArchivedChanged", "isArchived": True})
    archived = {"channel": session, "chat": "ahp-chat:/z", "initialMessage": message("x")}
    assert "archive" in (await refused(alice, "createChat", **archived))[1]
    assert len(alice.states[session]["chats"]) == 2
    assert chat == alice.default_chat(session)


async def test_the_last_chat_stays_and_the_default_is_handed_on(stage: Stage) -> None:
    stage.cast(waits)
    alice = await stage.client()
    session, chat = await stage.session(alice)
    assert (await refused(alice, "disposeChat", channel=chat))[0] == -32602
    await alice.request("createChat", {"channel": session, "chat": "ahp-chat:/heir"})
    turn_id = await alice.start_turn(chat, "running")
    await turn_running(alice, chat)
    await alice.request("disposeChat", {"channel": chat})
    assert alice.default_chat(session) == "ahp-chat:/heir"
    assert [each["resource"] for each in alice.states[session]["chats"]] == ["ahp-chat:/heir"]
    assert alice.states[chat]["turns"][-1]["id"] == turn_id
    assert alice.states[chat]["turns"][-1]["state"] == "cancelled"
    assert (await refused(alice, "subscribe", channel="ahp-chat:/none"))[0] == -32001
    follows = chat_uri("default", session)
    state = await alice.subscribe(follows)
    assert state["resource"] == follows
    await alice.start_turn(follows, "to the heir")
    await turn_running(alice, follows)
    await stage.agrees(alice, session, follows)


async def test_naming_the_default_chat_again_is_nothing_new(stage: Stage) -> None:
    stage.cast(says)
    alice = await stage.client()
    session, chat = await stage.session(alice)
    assert await alice.request("createChat", {"channel": session, "chat": chat}) is None
    assert len(alice.states[session]["chats"]) == 1


# -- pages of turns -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("shown", [0, 1, 7, 119, 120, 1000])
async def test_a_long_chat_is_shown_from_its_end_and_read_backwards(stage: Stage, shown: int) -> None:
    stage.cast(says)
    alice = await stage.client()
    _, chat = await stage.session(alice)
    live = stage.open.host.chats.by_uri[chat]
    channel = stage.open.host.state.channels[chat]
    turns = [
        {"id": f"t{n}", "message": message("x"), "responseParts": [], "state": "complete"} for n in range(120)
    ]
    channel.state = {**channel.state, "turns": turns}
    assert live.uri == chat
    bob = await stage.client()
    state = await bob.subscribe(chat, view={"turns": shown})
    assert [turn["id"] for turn in state["turns"]] == [f"t{n}" for n in range(120)][-max(shown, 1) :]
    while cursor := bob.states[chat].get("turnsNextCursor"):
        assert await bob.request("fetchTurns", {"channel": chat, "cursor": cursor}) == {}
    assert bob.states[chat]["turns"] == turns
    await alice.request("ping")
    assert [entry for entry in alice.actions if entry["action"]["type"] == "chat/turnsLoaded"] == []
    code, said = await refused(bob, "fetchTurns", channel=chat, cursor="nobody gave this")
    assert (code, "cursor" in said) == (-32602, True)


# -- who may ------------------------------------------------------------------------------------------------


async def test_a_reader_sees_everything_and_changes_nothing(stage: Stage) -> None:
    stage.cast(waits)
    alice = await stage.client()
    session, chat = await stage.session(alice)
    ana = await stage.client(session, chat, principal=READER)
    turn_id = await alice.start_turn(chat, "hello")
    await turn_running(ana, chat)
    for channel, action, grant in (
        (chat, started("x"), "chat:send"),
        (chat, {"type": "chat/turnCancelled", "turnId": turn_id}, "chat:cancel"),
        (session, {"type": "session/titleChanged", "title": "x"}, "session:rename"),
        (ROOT, {"type": "root/configChanged", "config": {"advancedTools": True}}, "config:change"),
    ):
        assert await outcome(ana, channel, action) == f"ana may not {grant} here"
    for method, params, grant in (
        ("createSession", {"channel": "scripted:/x"}, "session:create"),
        ("disposeSession", {"channel": session}, "session:dispose"),
        ("createChat", {"channel": session, "chat": "ahp-chat:/x"}, "chat:create"),
    ):
        assert await refused(ana, method, **params) == (-32009, f"ana may not {grant} here")
    await stage.agrees(ana, session, chat)
    assert alice.states[chat]["activeTurn"]["id"] == turn_id


async def test_a_stranger_is_shown_nothing_and_is_told_so_cleanly(stage: Stage) -> None:
    stage.cast(says)
    alice = await stage.client()
    session, chat = await stage.session(alice)
    sam = await stage.open.connect("sam", STRANGER)
    result = await sam.initialize(ROOT, session, chat)
    assert [snapshot["resource"] for snapshot in result["snapshots"]] == [ROOT]
    assert (await refused(sam, "subscribe", channel=session))[0] == -32009
    assert (await refused(sam, "listSessions"))[0] == -32009
    await alice.turn(chat, "private")
    await sam.request("ping")
    assert {entry["channel"] for entry in sam.actions} <= {ROOT}
    await sam.pipe.aclose()
    again = await stage.open.connect("sam", STRANGER)
    answer = await again.reconnect(sam.last_seq, ROOT, session)
    assert (answer["type"], answer["missing"]) == ("replay", [session])
    assert {entry["channel"] for entry in answer["actions"]} <= {ROOT}


async def test_disposing_ends_whatever_the_client_does_next() -> None:
    async with open_host(IN_MEMORY) as opened:
        stage = Stage(opened)
        agent = stage.cast(waits)
        alice = await stage.client()
        session, chat = await stage.session(alice)
        await alice.start_turn(chat, "hello")
        await until(lambda: agent.prompting)
        await alice.notify("disposeSession", {"channel": session})
        await alice.request("ping")
        assert agent.prompting == 1, "a notification is no request"
        request = b'{"jsonrpc":"2.0","id":"x","method":"disposeSession","params":{"channel":"%s"}}'
        await alice.pipe.send(request % session.encode())
        await alice.pipe.aclose()
        await until(lambda: agent.closed)
        assert opened.host.sessions.by_uri == {}


@pytest.mark.parametrize("stuck", ["open", "prompt", "close"])
async def test_an_agent_that_shields_itself_is_left_behind(
    stage: Stage, autojump_clock: trio.testing.MockClock, stuck: str
) -> None:
    """Nothing can end such a task; whoever disposes of its session is answered all the same."""
    released = trio.Event()

    async def holds(*_: object) -> None:
        with trio.CancelScope(shield=True):
            await released.wait()

    told = {"on_open": holds} if stuck == "open" else {"on_close": holds} if stuck == "close" else {}
    agent = stage.cast(holds if stuck == "prompt" else says, **told)
    alice = await stage.client()
    session = await alice.create_session("scripted")
    if stuck == "prompt":
        await alice.start_turn(alice.default_chat(session), "hello")
        await until(lambda: agent.prompting)
    elif stuck == "close":
        await alice.turn(alice.default_chat(session), "hello")
    await alice.request("disposeSession", {"channel": session})
    assert (await alice.request("listSessions"))["items"] == []
    released.set()
