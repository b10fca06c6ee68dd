"""Chats attached to messages: whose may be, and the turn up to which they count from then on."""

from __future__ import annotations

import pytest
from ahpd.access import Principal
from ahpd.client import AhpClient, RequestFailed

from ...conftest import Json, Stage, applied, message, outcome, says, started, turn_running, waits


def attached(uri: str, **more: object) -> Json:
    return {"type": "chat", "label": "That", "resource": uri, **more}


def about(*attachments: Json) -> Json:
    return message("look", attachments=list(attachments))


def queued(*attachments: Json, kind: str = "queued") -> Json:
    return {"type": "chat/pendingMessageSet", "kind": kind, "id": "q", "message": about(*attachments)}


async def two_chats(stage: Stage, client: AhpClient) -> tuple[str, str, str]:
    """A session with two chats, the second with the turns a and b."""
    session, chat = await stage.session(client)
    other = "ahp-chat:/other"
    await client.request("createChat", {"channel": session, "chat": other})
    await client.subscribe(other)
    for name in ("a", "b"):
        await client.dispatch(other, started(name, name))
        await client.finished(other, name)
    return session, chat, other


async def test_an_attached_chat_ends_where_it_ended_when_the_message_was_taken(stage: Stage) -> None:
    stage.cast(says)
    alice, bob = await stage.client(), await stage.client()
    session, chat, other = await two_chats(stage, alice)
    await bob.subscribe(chat)
    file = {"type": "resource", "uri": "file:///a", "label": "a", "endTurn": "its own business"}
    await applied(alice, chat, started("t", message=about(attached(other), file, attached(other, endTurn="a"))))
    await alice.turn(other, "later")
    for client in (alice, bob):
        taken = (await client.finished(chat, "t"))["message"]["attachments"]
        assert taken == [attached(other, endTurn="b"), file, attached(other, endTurn="a")]
        (said,) = [entry["action"] for entry in client.actions if entry["action"].get("turnId") == "t"][:1]
        assert said["message"]["attachments"] == taken
    await stage.agrees(alice, session, chat, other)


async def test_a_chat_without_a_turn_may_be_attached(stage: Stage) -> None:
    stage.cast(says)
    alice = await stage.client()
    _, chat = await stage.session(alice)
    _, empty = await stage.session(alice)
    await applied(alice, chat, started("t", message=about(attached(empty))))
    assert (await alice.finished(chat, "t"))["message"]["attachments"] == [attached(empty)]


@pytest.mark.parametrize("kind", ["queued", "steering"])
async def test_a_waiting_message_is_pinned_when_it_is_queued(stage: Stage, kind: str) -> None:
    stage.cast(says, says, waits, says)
    alice = await stage.client()
    _, chat, other = await two_chats(stage, alice)
    running = await alice.start_turn(chat, "go")
    await turn_running(alice, chat)
    await applied(alice, chat, queued(attached(other), kind=kind))
    pinned = {"id": "q", "message": about(attached(other, endTurn="b"))}
    shown, wanted = ("queuedMessages", [pinned]) if kind == "queued" else ("steeringMessage", pinned)
    assert alice.states[chat][shown] == wanted
    for bad in (attached(other, endTurn="no"), attached("ahp-chat:/none"), attached(other, endTurn="")):
        assert await outcome(alice, chat, queued(bad, kind=kind)) is not None
    assert alice.states[chat][shown] == wanted
    await applied(alice, chat, {"type": "chat/turnCancelled", "turnId": running})


@pytest.mark.parametrize(
    ("attachment", "why"),
    [
        (attached("ahp-chat:/none"), "no chat ahp-chat:/none"),
        (attached("echo:/none"), "no chat"),
        (attached("ahp-chat:/other", endTurn="never"), "no completed turn never"),
        (attached("ahp-chat:/other", endTurn=7), "endTurn"),
        ({"type": "chat", "label": "nothing"}, "resource"),
        ({"type": "resource", "uri": "no uri"}, "uri"),
    ],
)
async def test_what_cannot_be_attached_begins_nothing(stage: Stage, attachment: Json, why: str) -> None:
    stage.cast(says)
    alice = await stage.client()
    session, chat, _ = await two_chats(stage, alice)
    assert why in str(await outcome(alice, chat, started("t", message=about(attachment))))
    assert alice.states[chat]["turns"] == []
    params = {"channel": session, "chat": "ahp-chat:/new", "initialMessage": about(attachment)}
    with pytest.raises(RequestFailed, match=why) as failure:
        await alice.request("createChat", params)
    assert failure.value.code == -32602
    assert len(alice.states[session]["chats"]) == 2


async def test_the_turn_that_runs_is_no_end(stage: Stage) -> None:
    stage.cast(says, says, waits)
    alice = await stage.client()
    _, chat, other = await two_chats(stage, alice)
    running = await alice.start_turn(other, "go")
    await turn_running(alice, other)
    bad = started("t", message=about(attached(other, endTurn=running)))
    assert "no completed turn" in str(await outcome(alice, chat, bad))
    await applied(alice, other, {"type": "chat/turnCancelled", "turnId": running})


async def test_a_new_chats_first_message_is_pinned(stage: Stage) -> None:
    stage.cast(says)
    alice = await stage.client()
    session, _, other = await two_chats(stage, alice)
    params = {"channel": session, "chat": "ahp-chat:/new", "initialMessage": about(attached(other))}
    await alice.request("createChat", params)
    state = await alice.subscribe("ahp-chat:/new")
    turn = (state.get("turns") or [state.get("activeTurn")])[0]
    assert turn["message"]["attachments"] == [attached(other, endTurn="b")]


async def test_a_chat_one_may_not_read_is_none(stage: Stage) -> None:
    stage.cast(says)
    alice = await stage.client()
    _, chat, other = await two_chats(stage, alice)
    writer = Principal("user:eve", "eve", frozenset({"chat:send"}))
    eve = await stage.client(principal=writer)
    assert "no chat" in str(await outcome(eve, chat, started("t", message=about(attached(other)))))


async def test_every_client_is_told_its_own_name_of_an_attached_chat(stage: Stage) -> None:
    stage.cast(says)
    alice, bob = await stage.client(), await stage.client()
    session = await alice.create_session("scripted", "ahp-session:/one")
    chat = alice.default_chat(session)
    await bob.subscribe("scripted:/one")
    held = bob.default_chat("scripted:/one")
    await bob.subscribe(held)
    assert held != chat
    await applied(alice, chat, started("a", "first"))
    await alice.finished(chat, "a")
    await applied(alice, chat, started("t", message=about(attached(chat))))
    for client, name in ((alice, chat), (bob, held)):
        turn = await client.finished(name, "t")
        assert turn["message"]["attachments"] == [attached(name, endTurn="a")]
    await applied(bob, held, started("u", message=about(attached(chat))))
    turn = await bob.finished(held, "u")
    assert turn["message"]["attachments"] == [attached(held, endTurn="t")]
