"""A session and its chats under names of a client's own: one spelling per subscription, and text is left alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from ahpd.client import AhpClient, RequestFailed, answer_text
from ahpd.session.names import PROSE, ROOT, chat_uri, encode

from ..conftest import Json, applied, same

if TYPE_CHECKING:
    from .conftest import Daemon


def names_in(value: Any, key: str = "") -> Iterator[str]:
    """Every string that is not somebody's text."""
    if isinstance(value, str) and key not in PROSE:
        yield value
    for name, item in value.items() if isinstance(value, dict) else ():
        yield from names_in(item, name)
    for item in value if isinstance(value, list) else ():
        yield from names_in(item, key)


def spells(client: AhpClient, channel: str, name: str, *never: str) -> None:
    """All a client was sent on a channel says `name`, and none of the others."""
    sent = [entry for entry in client.actions if entry["channel"] == channel]
    found = list(names_in([client.states[channel], sent]))
    assert any(name in each for each in found), f"{channel} never says {name}"
    for other in never:
        assert [each for each in found if other in each] == []


async def listed(client: AhpClient) -> list[Json]:
    items: list[Json] = (await client.request("listSessions"))["items"]
    return items


async def test_each_client_sees_its_own_spelling_and_the_list_the_held_one(daemon: Daemon) -> None:
    alice, bob = await daemon.client(), await daemon.client()
    identifier = str(uuid4())
    alias, held = f"ahp-session:/{identifier}", f"echo:/{identifier}"
    await alice.create_session("echo", alias)
    (row,) = await listed(alice)
    assert (row["resource"], row["provider"]) == (held, "echo")
    assert row["defaultChat"] == row["chats"][0]["resource"] == chat_uri("default", held)
    assert bob.notices[0]["params"]["summary"]["resource"] == held

    mine, theirs = alice.default_chat(alias), chat_uri("default", held)
    assert mine == chat_uri("default", alias)
    await bob.subscribe(held)
    await bob.subscribe(theirs)
    turn_id = await alice.start_turn(
        mine, f"{held} and {alias}\n/call get_current_session {{}}\n{held}\n/ask Well?"
    )
    await alice.until(lambda: alice.states[alias].get("inputNeeded"))
    needed = alice.states[alias]["inputNeeded"][0]
    assert needed["chat"] == mine
    answer = {"type": "chat/inputCompleted", "requestId": needed["request"]["id"], "response": "decline"}
    await applied(alice, mine, answer)
    turn = await alice.finished(mine, turn_id)
    await bob.finished(theirs, turn_id)
    await bob.request("ping")

    spells(alice, alias, mine, held, encode(held))
    spells(alice, mine, mine, held, encode(held))
    spells(bob, held, theirs, alias, encode(alias))
    spells(bob, theirs, theirs, alias, encode(alias))
    for client, session, chat in ((alice, alias, mine), (bob, held, theirs)):
        fresh = await daemon.client(session, chat)
        assert same([fresh.states[session], fresh.states[chat]], [client.states[session], client.states[chat]])
    assert turn["message"]["text"].startswith(f"{held} and {alias}")
    assert answer_text(turn).startswith(f"{held} and {alias}")
    (call,) = [part["toolCall"] for part in turn["responseParts"] if part["kind"] == "toolCall"]
    assert held in call["content"][0]["text"]
    assert alias not in call["content"][0]["text"]


async def test_a_chat_opened_under_another_name_is_followed_under_that_name(daemon: Daemon) -> None:
    alice = await daemon.client()
    session = await alice.create_session()
    chat, identifier = alice.default_chat(session), session.partition("/")[2]
    for alias in (f"ahp-chat:/{identifier}", chat_uri("default", f"ahp-session:/{identifier}")):
        bob = await daemon.client()
        state = await bob.subscribe(alias)
        assert state["resource"] == alias
        turn = await bob.turn(alias, f"said under {alias}")
        assert answer_text(turn) == f"said under {alias}"
        assert {entry["channel"] for entry in bob.actions if entry["action"]["type"][:5] == "chat/"} == {alias}
        fresh = await daemon.client(alias)
        assert same(bob.states[alias], fresh.states[alias])
    assert len(alice.states[chat]["turns"]) == 2


async def test_a_replay_is_spelled_the_clients_way(daemon: Daemon) -> None:
    alice = await daemon.client()
    identifier = str(uuid4())
    alias = f"ahp-session:/{identifier}"
    await alice.create_session("echo", alias)
    await alice.until(lambda: alice.states[alias]["lifecycle"] == "ready")
    chat = alice.default_chat(alias)
    bob = await daemon.client(alias, chat, client_id="bob")
    await bob.pipe.aclose()
    await alice.turn(chat, f"echo:/{identifier}")
    again = await daemon.connect("bob")
    again.states = dict(bob.states)
    await again.reconnect(bob.last_seq, alias, chat)
    assert same([again.states[alias], again.states[chat]], [alice.states[alias], alice.states[chat]])
    assert {entry["channel"] for entry in again.actions} == {alias, chat}


async def test_further_chats_may_be_named_by_the_client(daemon: Daemon) -> None:
    alice = await daemon.client()
    session = await alice.create_session()
    own = f"ahp-chat:/{uuid4()}"
    assert await alice.request("createChat", {"channel": session, "chat": own}) is None
    await alice.subscribe(own)
    assert answer_text(await alice.turn(own, "in my chat")) == "in my chat"
    await alice.until(lambda: [chat["resource"] for chat in alice.states[session]["chats"]][1:] == [own])
    await alice.request("disposeChat", {"channel": own})
    await alice.until(lambda: len(alice.states[session]["chats"]) == 1)


async def test_no_chat_may_take_the_name_of_something_else(daemon: Daemon) -> None:
    alice, bob = await daemon.client(), await daemon.client()
    session = await alice.create_session()
    other = await bob.create_session()
    for taken in (
        ROOT,
        "ahp-root:",
        session,
        other,
        f"ahp-session:/{other.partition('/')[2]}",
        bob.default_chat(other),
    ):
        with pytest.raises(RequestFailed) as refused:
            await alice.request("createChat", {"channel": session, "chat": taken})
        assert refused.value.code == -32602, taken
    await bob.turn(bob.default_chat(other), "unharmed")
    assert bob.states[ROOT]["activeSessions"] == 0
    assert len(await listed(alice)) == 2
