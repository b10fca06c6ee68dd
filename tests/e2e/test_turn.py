"""One session, several clients: everybody sees the same, in the same order, also who was away for a while."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ahpd.client import AhpClient, answer_text
from ahpd.protocol.reduce_chat import reduce_chat
from ahpd.protocol.reduce_session import reduce_session

from ..conftest import Json, applied, ended, same

if TYPE_CHECKING:
    from .conftest import Reachable

SCRIPT = (
    "Let us begin",
    "/call get_current_session {}",
    "/call list_sessions {}",
    "/confirm get_current_session {}",
    "/confirm list_sessions {}",
    "/ask Your name?",
    "/ask Your age?",
    "/sleep 600",
)


async def needed(client: AhpClient, session: str, about: str) -> Json:
    """What the session asks for, once that is about this tool or question."""

    def found() -> Json | None:
        for entry in client.states[session].get("inputNeeded", []):
            if about in (entry.get("toolCall", {}).get("toolName"), entry.get("request", {}).get("message")):
                wanted: Json = entry
                return wanted
        return None

    entry: Json = await client.until(found)
    assert client.states[session]["status"] & 24 == 24
    return entry


async def confirm(client: AhpClient, session: str, chat: str, tool: str, approved: bool) -> None:
    entry = await needed(client, session, tool)
    action = {
        "type": "chat/toolCallConfirmed",
        "turnId": entry["turnId"],
        "toolCallId": entry["toolCall"]["toolCallId"],
        "approved": approved,
        **({"confirmed": "user-action"} if approved else {"reason": "denied"}),
    }
    await applied(client, chat, action)


async def reply(client: AhpClient, session: str, chat: str, question: str, response: str, words: str = "") -> None:
    entry = await needed(client, session, question)
    action: Json = {"type": "chat/inputCompleted", "requestId": entry["request"]["id"], "response": response}
    if words:
        action["answers"] = {"answer": {"state": "submitted", "value": {"kind": "text", "value": words}}}
    await applied(client, chat, action)


async def play(alice: AhpClient, bob: AhpClient, session: str, chat: str) -> str:
    """A turn with tool calls, questions to both people and a cancel at its end; its id."""
    turn_id = await alice.start_turn(chat, "\n".join(SCRIPT))
    await confirm(alice, session, chat, "get_current_session", True)
    await confirm(bob, session, chat, "list_sessions", False)
    await reply(bob, session, chat, "Your name?", "accept", "Ana")
    await reply(alice, session, chat, "Your age?", "decline")
    await alice.until(lambda: "declined" in str(alice.states[chat].get("activeTurn")))
    await applied(alice, chat, {"type": "chat/turnCancelled", "turnId": turn_id})
    return turn_id


def folded(base: dict[str, Json], envelopes: list[Json], upto: int) -> dict[str, Json]:
    states = dict(base)
    for envelope in envelopes:
        channel, action = envelope["channel"], envelope["action"]
        if channel in states and envelope["serverSeq"] <= upto and "rejectionReason" not in envelope:
            reduce = reduce_chat if action["type"].startswith("chat/") else reduce_session
            states[channel] = reduce(states[channel], action)
    return states


async def test_all_clients_see_one_turn_alike_and_one_may_come_back_at_any_point(shared: Reachable) -> None:
    alice, bob = await shared.client(), await shared.client()
    session = await alice.create_session()
    chat = alice.default_chat(session)
    await bob.subscribe(session)
    await bob.subscribe(chat)
    carol = await shared.client(session, chat, client_id="carol")
    base, since = {uri: carol.states[uri] for uri in (session, chat)}, carol.last_seq

    turn_id = await play(alice, bob, session, chat)
    for client in (alice, bob, carol):
        turn = await client.finished(chat, turn_id)
        await client.request("ping")

    assert turn["state"] == "cancelled"
    calls = [part["toolCall"] for part in turn["responseParts"] if part["kind"] == "toolCall"]
    assert [call["status"] for call in calls] == ["completed", "completed", "completed", "cancelled"]
    assert [call.get("confirmed") for call in calls] == ["not-needed", "not-needed", "user-action", None]
    questions = [part["response"] for part in turn["responseParts"] if part["kind"] == "inputRequest"]
    assert questions == ["accept", "decline"]
    assert "Ana" in answer_text(turn)
    assert "The question was declined." in answer_text(turn)
    assert ended(alice, turn_id) == ["chat/turnCancelled"]

    mine = [entry for entry in alice.actions if entry["channel"] in (session, chat) and entry["serverSeq"] > since]
    for other in (bob, carol):
        theirs = [entry for entry in other.actions if entry["channel"] in (session, chat)]
        assert same(mine, [entry for entry in theirs if entry["serverSeq"] > since])
        assert same([alice.states[uri] for uri in (session, chat)], [other.states[uri] for uri in (session, chat)])
    seqs = [entry["serverSeq"] for entry in alice.actions]
    assert seqs == sorted(set(seqs))

    await carol.pipe.aclose()
    for seen in [since, *(entry["serverSeq"] for entry in carol.actions)]:
        again = await shared.connect("carol")
        again.states = folded(base, carol.actions, seen)
        result = await again.reconnect(seen, session, chat)
        assert result["type"] == "replay"
        assert result["missing"] == []
        assert same(again.states, {uri: alice.states[uri] for uri in (session, chat)}), seen
        await again.pipe.aclose()


async def test_nothing_follows_a_cancelled_turn(shared: Reachable) -> None:
    alice = await shared.client()
    session = await alice.create_session()
    chat = alice.default_chat(session)
    turn_id = await alice.start_turn(chat, "/stream 100000 1000 20")
    await alice.until(lambda: (alice.states[chat].get("activeTurn") or {}).get("responseParts"))
    await applied(alice, chat, {"type": "chat/turnCancelled", "turnId": turn_id})
    cut = alice.last_seq
    await alice.turn(chat, "and after it")
    later = [entry["action"] for entry in alice.actions if entry["serverSeq"] > cut]
    assert [action for action in later if action.get("turnId") == turn_id] == []
    assert ended(alice, turn_id) == ["chat/turnCancelled"]


async def test_a_second_turn_is_refused_and_the_first_is_untouched(shared: Reachable) -> None:
    alice, bob = await shared.client(), await shared.client()
    session = await alice.create_session()
    chat = alice.default_chat(session)
    await bob.subscribe(chat)
    first = await alice.start_turn(chat, "/stream 40 400 20")
    await bob.until(lambda: bob.states[chat].get("activeTurn"))
    second = await bob.start_turn(chat, "me first")
    refused = await bob.outcome(1)
    assert "running" in refused["rejectionReason"]
    turn = await alice.finished(chat, first)
    assert turn["state"] == "complete"
    assert answer_text(turn).count("@") == 40
    assert all(kept["id"] != second for kept in alice.states[chat]["turns"])


async def test_a_turn_without_its_time_is_refused_and_nothing_wedges(shared: Reachable) -> None:
    alice = await shared.client()
    session = await alice.create_session()
    chat = alice.default_chat(session)
    action = {"type": "chat/turnStarted", "turnId": "t", "message": {"text": "x", "origin": {"kind": "user"}}}
    echo = await alice.outcome(await alice.dispatch(chat, action))
    assert "startedAt" in echo["rejectionReason"]
    assert alice.states[chat]["status"] & 8 == 0
    assert answer_text(await alice.turn(chat, "still here")) == "still here"


async def test_what_only_a_host_may_say_is_refused(shared: Reachable) -> None:
    alice, bob = await shared.client(), await shared.client()
    session = await alice.create_session()
    chat = alice.default_chat(session)
    await alice.until(lambda: alice.states[session]["lifecycle"] == "ready")
    await bob.subscribe(session)
    before = alice.states[session]
    for action in (
        {"type": "session/ready"},
        {"type": "session/serverToolsChanged", "tools": []},
        {"type": "session/defaultChatChanged", "defaultChat": "ahp-chat:/none"},
        {"type": "session/chatAdded", "summary": {"resource": "ahp-chat:/none", "title": "", "status": 1}},
        {"type": "session/activityChanged", "activity": "made up"},
        {"type": "session/titleChanged"},
        {"type": "session/titleChanged", "title": 7},
        {"type": "session/nobodyKnows"},
        {"type": "chat/turnCancelled", "turnId": "none"},
    ):
        echo = await alice.outcome(await alice.dispatch(session, action))
        assert echo["rejectionReason"], action
        assert echo["action"] == action
    assert alice.states[session] == before
    await bob.request("ping")
    assert [entry for entry in bob.actions if entry.get("origin")] == []
    assert answer_text(await alice.turn(chat, "fine")) == "fine"
