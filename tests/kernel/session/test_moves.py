"""Moving chats: what moves, where it lands, who hears of it, and that a refused move has moved nothing."""

from __future__ import annotations

from typing import Any

import pytest
from ahpd.client import AhpClient, RequestFailed, answer_text
from ahpd.session.names import ROOT, chat_uri

from ...conftest import Json, Stage, same, says, turn_running, until, waits


async def further(client: AhpClient, session: str, *names: str) -> list[str]:
    """More chats in a session, watched by the client."""
    uris = [chat_uri(name, session) for name in names]
    for uri in uris:
        await client.request("createChat", {"channel": session, "chat": uri})
        await client.subscribe(uri)
    return uris


async def move(client: AhpClient, chat: str, session: str | None = None, **place: Any) -> str:
    """Move a chat, into a session of its own when none is named; the session it is in now."""
    kind = {"kind": "newSession"} if session is None else {"kind": "session", "session": session}
    result = await client.request("moveChat", {"channel": chat, "destination": {**kind, **place}})
    assert set(result) == {"session"}
    return str(result["session"])


def chats(client: AhpClient, session: str) -> list[str]:
    return [entry["resource"] for entry in client.states[session]["chats"]]


def heard(client: AhpClient, session: str, since: int) -> list[str]:
    """What a client was told on a session's channel after a number, by type."""
    told = [each for each in client.actions if each["channel"] == session and each["serverSeq"] > since]
    return [each["action"]["type"].removeprefix("session/") for each in told]


class Two:
    """Two sessions of one agent, each with chats beside its first."""

    def __init__(self, stage: Stage, alice: AhpClient, one: str, two: str) -> None:
        self.stage, self.alice, self.one, self.two = stage, alice, one, two

    async def refused(self, code: int, chat: str, destination: Json) -> str:
        """The move is refused, and nothing has happened to anybody."""
        before, seq = dict(self.alice.states), self.alice.last_seq
        rows = await self.alice.request("listSessions")
        with pytest.raises(RequestFailed) as failure:
            await self.alice.request("moveChat", {"channel": chat, "destination": destination})
        assert failure.value.code == code, failure.value
        assert (await self.alice.request("listSessions")) == rows
        assert self.alice.last_seq == seq
        assert same(before, self.alice.states)
        await self.agrees()
        return failure.value.message

    async def agrees(self) -> None:
        channels = [uri for uri in self.alice.states if uri != ROOT]
        await self.stage.agrees(self.alice, *channels)


@pytest.fixture
async def two(stage: Stage) -> Two:
    stage.cast(says)
    alice = await stage.client()
    one, _ = await stage.session(alice, uri="scripted:/one")
    other, _ = await stage.session(alice, uri="scripted:/two")
    return Two(stage, alice, one, other)


async def test_a_chat_gets_another_place_in_its_session(two: Two) -> None:
    alice = two.alice
    first = alice.default_chat(two.one)
    a, b = await further(alice, two.one, "a", "b")
    seq = alice.last_seq
    assert await move(alice, b, two.one) == two.one
    assert chats(alice, two.one) == [b, first, a]
    assert await move(alice, b, two.one, after=a) == two.one
    assert chats(alice, two.one) == [first, a, b]
    assert await move(alice, b, two.one, after=first) == two.one
    assert chats(alice, two.one) == [first, b, a]
    assert heard(alice, two.one, seq) == ["chatsReordered"] * 3
    for envelope in alice.actions[-3:]:
        assert sorted(envelope["action"]["chats"]) == sorted([first, a, b])
    await two.agrees()
    rows = (await alice.request("listSessions"))["items"]
    row = next(row for row in rows if row["resource"] == two.one)
    assert [chat["resource"] for chat in row["chats"]] == [first, b, a]


async def test_a_place_it_has_already_is_no_news(two: Two) -> None:
    alice = two.alice
    first, (a, _) = alice.default_chat(two.one), await further(alice, two.one, "a", "b")
    seq = alice.last_seq
    assert await move(alice, a, two.one, after=first) == two.one
    await alice.request("ping")
    assert alice.last_seq == seq


async def test_a_chat_moves_into_another_session_with_all_it_is(two: Two) -> None:
    alice = two.alice
    first, other = alice.default_chat(two.one), alice.default_chat(two.two)
    (chat,) = await further(alice, two.one, "a")
    await alice.turn(chat, "hello")
    await alice.request("ping")
    before = alice.states[chat]
    entry = next(each for each in alice.states[two.one]["chats"] if each["resource"] == chat)
    seq = alice.last_seq
    assert await move(alice, chat, two.two, after=other) == two.two
    assert chats(alice, two.one) == [first]
    assert chats(alice, two.two) == [other, chat]
    assert alice.states[two.two]["chats"][1] == entry
    assert same(alice.states[chat], before)
    assert heard(alice, two.one, seq) == ["chatRemoved"]
    assert heard(alice, two.two, seq) == ["chatAdded"]
    await two.agrees()


async def test_without_a_place_it_comes_first(two: Two) -> None:
    alice = two.alice
    other, (chat,) = alice.default_chat(two.two), await further(alice, two.one, "a")
    seq = alice.last_seq
    await move(alice, chat, two.two)
    assert chats(alice, two.two) == [chat, other]
    assert heard(alice, two.two, seq) == ["chatAdded", "chatsReordered"]
    assert alice.default_chat(two.two) == other
    await two.agrees()


async def test_it_goes_on_where_it_is_with_what_was_said_before(stage: Stage) -> None:
    agent = stage.cast(says)
    alice = await stage.client()
    one, _ = await stage.session(alice, uri="scripted:/one")
    two, _ = await stage.session(alice, uri="scripted:/two", config={"fixed": 2})
    (chat,) = await further(alice, one, "a")
    await alice.turn(chat, "before")
    await move(alice, chat, two)
    assert answer_text(await alice.turn(chat, "after")) == "after"
    opened = agent.opened[-1]
    assert (opened.session, opened.chat, opened.settings["fixed"]) == (two, chat, 2)
    assert [turn["message"]["text"] for turn in opened.history] == ["before"]
    await stage.agrees(alice, one, two, chat)
    entry = next(each for each in alice.states[two]["chats"] if each["resource"] == chat)
    assert entry["status"] == alice.states[chat]["status"]


async def test_a_chat_moves_into_a_session_of_its_own(two: Two) -> None:
    alice = two.alice
    (chat,) = await further(alice, two.one, "a")
    await alice.turn(chat, "hello")
    origin, turns = alice.states[chat]["origin"], alice.states[chat]["turns"]
    made = await move(alice, chat)
    state = await alice.subscribe(made)
    assert made not in (two.one, two.two)
    assert [entry["resource"] for entry in state["chats"]] == [chat]
    assert (state["defaultChat"], state["title"], state["provider"]) == (chat, "hello", "scripted")
    assert (alice.states[chat]["origin"], alice.states[chat]["turns"]) == (origin, turns)
    assert alice.states[chat]["movable"] is False
    assert chat not in chats(alice, two.one)
    assert answer_text(await alice.turn(chat, "more")) == "more"
    added = [notice["params"]["summary"] for notice in alice.notices if notice["method"] == "root/sessionAdded"]
    assert added[-1]["resource"] == made
    await two.agrees()


async def test_only_what_can_be_moved_says_so(two: Two) -> None:
    alice = two.alice
    (chat,) = await further(alice, two.one, "a")
    assert alice.states[chat]["movable"] is True
    assert "movable" not in alice.states[alice.default_chat(two.one)]
    said = [entry.get("movable", False) for entry in alice.states[two.one]["chats"]]
    assert said == [False, True]
    first = alice.default_chat(two.one)
    await alice.request("disposeChat", {"channel": first})
    del alice.states[first]
    assert alice.default_chat(two.one) == chat
    assert alice.states[chat]["movable"] is False
    assert alice.states[two.one]["chats"][0]["movable"] is False
    await two.refused(-32602, chat, {"kind": "session", "session": two.two})


async def test_root_is_told_of_both_rows(two: Two) -> None:
    alice = two.alice
    (chat,) = await further(alice, two.one, "a")

    def told(session: str) -> list[str] | None:
        rows = None
        for notice in alice.notices:
            params = notice["params"]
            if notice["method"] == "root/sessionSummaryChanged" and params["session"] == session:
                rows = params["changes"].get("chats", rows)
        return None if rows is None else [row["resource"] for row in rows]

    await alice.until(lambda: chat in (told(two.one) or []))
    await move(alice, chat, two.two)
    await alice.until(lambda: chat in (told(two.two) or []) and chat not in (told(two.one) or []))


@pytest.mark.parametrize("place", ["own", "other", "new"])
async def test_the_first_chat_stays(two: Two, place: str) -> None:
    first = two.alice.default_chat(two.one)
    await further(two.alice, two.one, "a")
    where = {"own": two.one, "other": two.two}.get(place)
    destination = {"kind": "session", "session": where} if where else {"kind": "newSession"}
    assert "first chat" in await two.refused(-32602, first, destination)


@pytest.mark.parametrize("place", ["own", "other", "new"])
async def test_nothing_moves_while_a_turn_runs_in_it(stage: Stage, place: str) -> None:
    stage.cast(waits)
    alice = await stage.client()
    one, _ = await stage.session(alice, uri="scripted:/one")
    other, _ = await stage.session(alice, uri="scripted:/two")
    (chat,) = await further(alice, one, "a")
    await alice.start_turn(chat, "go")
    await turn_running(alice, chat)
    await alice.until(lambda: alice.states[chat]["activeTurn"]["responseParts"])
    await alice.until(lambda: alice.states[chat]["activeTurn"]["responseParts"][0]["content"])
    where = {"own": one, "other": other}.get(place)
    destination = {"kind": "session", "session": where} if where else {"kind": "newSession"}
    assert "turn is running" in await Two(stage, alice, one, other).refused(-32004, chat, destination)


async def test_a_turn_elsewhere_in_the_session_holds_nothing_up(stage: Stage) -> None:
    stage.cast(waits)
    alice = await stage.client()
    one, first = await stage.session(alice, uri="scripted:/one")
    two, _ = await stage.session(alice, uri="scripted:/two")
    (chat,) = await further(alice, one, "a")
    turn_id = await alice.start_turn(first, "go")
    await turn_running(alice, first)
    await move(alice, chat, two)
    assert alice.states[first]["activeTurn"]["id"] == turn_id
    await stage.agrees(alice, one, two)


@pytest.mark.parametrize(
    ("destination", "code"),
    [
        ({"kind": "session", "session": "scripted:/none"}, -32008),
        ({"kind": "session", "session": "scripted:/two", "after": "ahp-chat:/none"}, -32008),
        ({"kind": "session", "session": "scripted:/one", "after": "other's"}, -32602),
        ({"kind": "session", "session": "scripted:/two", "after": "mine"}, -32602),
        ({"kind": "session", "session": "scripted:/one", "after": "itself"}, -32602),
        ({"kind": "session", "session": "scripted:/two", "after": "itself"}, -32602),
        ({"kind": "session"}, -32602),
        ({"kind": "sideways"}, -32602),
        ({}, -32602),
    ],
)
async def test_a_place_that_is_none(two: Two, destination: Json, code: int) -> None:
    alice = two.alice
    (chat,) = await further(alice, two.one, "a")
    names = {"itself": chat, "mine": alice.default_chat(two.one), "other's": alice.default_chat(two.two)}
    if destination.get("after") in names:
        destination = {**destination, "after": names[destination["after"]]}
    await two.refused(code, chat, destination)


async def test_a_chat_that_is_none(two: Two) -> None:
    await two.refused(-32008, chat_uri("none", two.one), {"kind": "newSession"})


async def test_a_session_of_another_agent_takes_none(two: Two) -> None:
    alice = two.alice
    (chat,) = await further(alice, two.one, "a")
    echo, _ = await two.stage.session(alice, "echo")
    assert "echo" in await two.refused(-32602, chat, {"kind": "session", "session": echo})


async def test_a_destination_that_sleeps_wakes(two: Two) -> None:
    alice, host = two.alice, two.stage.open.host
    (chat,) = await further(alice, two.one, "a")
    await alice.notify("unsubscribe", {"channel": alice.default_chat(two.two)})
    await alice.notify("unsubscribe", {"channel": two.two})
    await alice.request("ping")
    host.dormant.sleep(host.sessions.get(two.two))
    assert host.sessions.find(two.two) is None
    other = alice.states.pop(two.two)["defaultChat"]
    del alice.states[other]
    assert await move(alice, chat, two.two) == two.two
    await alice.subscribe(two.two)
    assert chats(alice, two.two) == [chat, other]
    await two.agrees()


@pytest.mark.parametrize("own", [False, True])
async def test_a_moved_chat_is_found_after_its_session_has_slept(two: Two, own: bool) -> None:
    alice, host = two.alice, two.stage.open.host
    (chat,) = await further(alice, two.one, "a")
    await alice.turn(chat, "hello")
    session = await move(alice, chat, None if own else two.two)
    for uri in (chat, session, alice.states.get(session, {}).get("defaultChat", chat)):
        await alice.notify("unsubscribe", {"channel": uri})
    await alice.request("ping")
    before = alice.states[chat]
    host.dormant.sleep(host.sessions.get(session))
    assert host.chats.by_uri.get(chat) is None
    await until(lambda: host.dormant.sleeps(chat) == session)
    assert same(await alice.subscribe(chat), before)
    assert answer_text(await alice.turn(chat, "again")) == "again"
    await alice.subscribe(session)
    assert chat in chats(alice, session)
    assert chat not in chats(alice, two.one)
    await two.agrees()


async def test_a_session_that_has_slept_knows_the_order_of_its_chats(two: Two) -> None:
    alice, host = two.alice, two.stage.open.host
    first, (a, b) = alice.default_chat(two.one), await further(alice, two.one, "a", "b")
    await move(alice, b, two.one)
    live = host.sessions.get(two.one)
    host.dormant.sleep(live)
    await live.closed.wait()
    await alice.subscribe(two.one)
    assert chats(alice, two.one) == [b, first, a]
    await move(alice, a, two.one, after=b)
    assert chats(alice, two.one) == [b, a, first]
    for chat in (first, a, b):
        await alice.subscribe(chat)
    await two.agrees()


async def test_a_name_of_its_first_session_still_means_it(stage: Stage) -> None:
    stage.cast(says)
    alice = await stage.client()
    mine, _ = await stage.session(alice, uri="mine:/one")
    two, _ = await stage.session(alice, uri="scripted:/two")
    (chat,) = await further(alice, mine, "a")
    assert await move(alice, chat, two) == two
    assert answer_text(await alice.turn(chat, "here")) == "here"
    await stage.agrees(alice, mine, two, chat)
    host = stage.open.host
    for uri in (mine, alice.default_chat(mine)):
        await alice.notify("unsubscribe", {"channel": uri})
    await alice.request("ping")
    host.dormant.sleep(host.sessions.get(mine))
    assert answer_text(await alice.turn(chat, "still")) == "still"
    await stage.agrees(alice, chat)


async def test_the_answer_names_the_session_as_it_was_asked_for(stage: Stage) -> None:
    stage.cast(says)
    alice = await stage.client()
    one, _ = await stage.session(alice, uri="scripted:/one")
    mine, _ = await stage.session(alice, uri="mine:/two")
    (chat,) = await further(alice, one, "a")
    assert await move(alice, chat, mine) == mine
    assert chat in chats(alice, mine)


async def test_a_turn_that_begins_while_its_session_is_made_wins(two: Two) -> None:
    alice, host = two.alice, two.stage.open.host
    (chat,) = await further(alice, two.one, "a")
    live = host.chats.by_uri[chat]
    create = host.sessions.create

    async def slow(*args: Any, **more: Any) -> Any:
        made = await create(*args, **more)
        live.settling = True
        return made

    host.sessions.create = slow  # type: ignore[method-assign]
    rows = len((await alice.request("listSessions"))["items"])
    with pytest.raises(RequestFailed) as failure:
        await move(alice, chat)
    assert failure.value.code == -32004
    live.settling = False
    assert len((await alice.request("listSessions"))["items"]) == rows
    assert chat in chats(alice, two.one)
    await two.agrees()
