"""What every store promises, asked of both: the one in a file and the one in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from ahpd import (
    Append,
    CutTurns,
    DropChat,
    DropSession,
    PutRecord,
    PutSummary,
    SessionStore,
    StoredChat,
)
from ahpd.memory_store import MemoryStore
from ahpd_store_sqlite.store import SqliteStore

if TYPE_CHECKING:
    from .conftest import Make


@pytest.fixture(params=["sqlite", "memory"])
async def store(request: pytest.FixtureRequest, tmp_path: Path, make: Make) -> AsyncIterator[SessionStore]:
    made: SessionStore = (
        SqliteStore(tmp_path / "a.db", tail=3) if request.param == "sqlite" else MemoryStore(tail=3)
    )
    opened = await made.open(make.reducers)
    assert (list(opened.rows), opened.seq, opened.changed) == ([], 0, frozenset())
    yield made
    await made.close()


async def only_chat(store: SessionStore, make: Make) -> StoredChat:
    stored = await store.load(make.session)
    assert stored is not None
    (chat,) = stored.chats
    return chat


async def turn_ids(store: SessionStore, make: Make) -> list[str]:
    return [turn["id"] for turn in (await store.turns(make.chat, None, 1000))[0]]


async def test_a_session_comes_back_as_it_was_put(store: SessionStore, make: Make) -> None:
    store.write(make.put_session(config={"n": 1.5, "none": None, "text": "größer"}))
    store.write(make.put_chat("t1", record={"wakeup": 5}, state={"draft": {"text": "so far"}}))
    await store.commit()
    stored = await store.load(make.session)
    assert stored is not None
    assert (stored.uri, stored.record) == (make.session, {"owner": None})
    assert stored.state["config"] == {"n": 1.5, "none": None, "text": "größer"}
    (chat,) = stored.chats
    assert (chat.uri, chat.record) == (make.chat, {"wakeup": 5})
    assert chat.state == {"title": "Chat", "status": 1, "draft": {"text": "so far"}, "turns": [make.turn("t1")]}


async def test_a_read_sees_what_is_queued(store: SessionStore, make: Make) -> None:
    assert await store.load(make.session) is None
    store.write(make.put_session())
    assert await store.load(make.session) is not None
    assert not store.pending


async def test_a_put_replaces_row_state_and_record(store: SessionStore, make: Make) -> None:
    store.write(make.put_session(title="before"))
    store.write(make.put_session(title="after"))
    stored = await store.load(make.session)
    assert stored is not None
    assert stored.state["title"] == "after"


async def test_actions_are_applied_to_what_was_put(store: SessionStore, make: Make) -> None:
    store.write(make.put_session())
    store.write(make.title(1, "Two"))
    store.write(make.title(2, "Three"))
    stored = await store.load(make.session)
    assert stored is not None
    assert stored.state["title"] == "Three"
    store.write(make.title(3, "Four"))
    stored = await store.load(make.session)
    assert stored is not None
    assert stored.state["title"] == "Four"


async def test_a_put_contains_the_actions_before_it(store: SessionStore, make: Make) -> None:
    store.write(make.put_session())
    store.write(make.title(1, "Two"))
    store.write(make.put_session(title="Put"))
    stored = await store.load(make.session)
    assert stored is not None
    assert stored.state["title"] == "Put"


async def test_newest_turns_are_in_the_state_and_the_others_in_pages(store: SessionStore, make: Make) -> None:
    store.write(make.put_session())
    store.write(make.put_chat(*"abcdefg"))
    chat = await only_chat(store, make)
    assert [turn["id"] for turn in chat.state["turns"]] == ["e", "f", "g"]
    assert chat.state["turnsNextCursor"] == "e"
    page, cursor = await store.turns(make.chat, "e", 3)
    assert ([turn["id"] for turn in page], cursor) == (["b", "c", "d"], "b")
    assert await store.turns(make.chat, "b", 3) == ([make.turn("a")], None)
    assert await store.turns(make.chat, "a", 3) == ([], None)
    page, cursor = await store.turns(make.chat, None, 7)
    assert (len(page), cursor) == (7, None)


async def test_no_cursor_when_all_turns_are_there(store: SessionStore, make: Make) -> None:
    store.write(make.put_session())
    store.write(make.put_chat(*"abc", state={"turnsNextCursor": "left over", "turns": []}))
    chat = await only_chat(store, make)
    assert "turnsNextCursor" not in chat.state
    assert len(chat.state["turns"]) == 3


async def test_a_page_before_a_turn_that_is_not_there(store: SessionStore, make: Make) -> None:
    store.write(make.put_session())
    store.write(make.put_chat("a"))
    with pytest.raises(KeyError):
        await store.turns(make.chat, "nowhere", 5)
    with pytest.raises(KeyError):
        await store.turns("ahp-chat://nowhere", None, 5)


async def test_turns_are_appended_and_known_ones_replaced_in_place(store: SessionStore, make: Make) -> None:
    store.write(make.put_session())
    store.write(make.put_chat("a", "b"))
    store.write(make.put_chat("b", "c"))
    assert await turn_ids(store, make) == ["a", "b", "c"]
    store.write(make.put_chat("x", replace=True))
    assert await turn_ids(store, make) == ["x"]
    store.write(make.put_chat(replace=True))
    assert await turn_ids(store, make) == []


async def test_turns_that_actions_completed_are_kept_once(store: SessionStore, make: Make) -> None:
    store.write(make.put_session())
    store.write(make.put_chat("a"))
    for at in range(4):
        for action in make.turn_actions(f"t{at}", at * 3):
            store.write(action)
    chat = await only_chat(store, make)
    assert [turn["id"] for turn in chat.state["turns"]] == ["t1", "t2", "t3"]
    page, cursor = await store.turns(make.chat, "t1", 5)
    assert ([turn["id"] for turn in page], cursor) == (["a", "t0"], None)
    store.write(make.put_chat("t3", state={"title": "later"}))
    assert await turn_ids(store, make) == ["a", "t0", "t1", "t2", "t3"]


async def test_a_turn_that_is_taken_up_again_runs_or_is_completed_never_both(
    store: SessionStore, make: Make
) -> None:
    store.write(make.put_session())
    failed = make.turn("b")
    failed |= {"state": "error", "responseParts": [{"kind": "error", "resumable": True}]}
    put = make.put_chat("a")
    store.write(type(put)(put.session, put.uri, put.state, put.record, [*put.turns, failed]))
    store.write(Append(make.chat, 1, {"type": "chat/turnResume", "turnId": "b"}))
    chat = await only_chat(store, make)
    assert (chat.state["activeTurn"]["id"], await turn_ids(store, make)) == ("b", ["a"])
    store.write(Append(make.chat, 2, {"type": "chat/turnComplete", "turnId": "b", "duration": 1}))
    assert await turn_ids(store, make) == ["a", "b"]
    store.write(make.put_chat(state={"activeTurn": {"id": "b"}}))
    assert await turn_ids(store, make) == ["a"]


@pytest.mark.parametrize("last", ["a", "d", "f", "g", None])
async def test_a_cut_in_the_journal_reaches_behind_the_newest_turns(
    store: SessionStore, make: Make, last: str | None
) -> None:
    store.write(make.put_session())
    store.write(make.put_chat(*"abcdefg"))
    action: dict[str, Any] = {"type": "chat/truncated"} | ({} if last is None else {"turnId": last})
    store.write(Append(make.chat, 1, action))
    for after in make.turn_actions("new", 2):
        store.write(after)
    kept = "" if last is None else "abcdefg"[: "abcdefg".index(last) + 1]
    assert await turn_ids(store, make) == [*kept, "new"]


@pytest.mark.parametrize(("last", "kept"), [("b", "ab"), ("c", "abc"), (None, ""), ("nowhere", "abc")])
async def test_cut_turns(store: SessionStore, make: Make, last: str | None, kept: str) -> None:
    store.write(make.put_session())
    store.write(make.put_chat(*"abc"))
    store.write(CutTurns(make.chat, last))
    store.write(CutTurns("ahp-chat://nowhere", None))
    assert await turn_ids(store, make) == list(kept)


async def test_a_page_shown_to_a_client_changes_nothing(store: SessionStore, make: Make) -> None:
    store.write(make.put_session())
    store.write(make.put_chat(*"abcd"))
    store.write(Append(make.chat, 1, {"type": "chat/turnsLoaded", "turns": [make.turn("a")]}))
    chat = await only_chat(store, make)
    assert [turn["id"] for turn in chat.state["turns"]] == ["b", "c", "d"]
    assert await turn_ids(store, make) == list("abcd")


async def test_chats_stay_in_the_order_they_were_first_put(store: SessionStore, make: Make) -> None:
    store.write(make.put_session())
    for uri in ("chat:2", "chat:1", "chat:3", "chat:2"):
        store.write(make.put_chat(uri=uri))
    store.write(DropChat("chat:1"))
    store.write(make.put_chat(uri="chat:1"))
    stored = await store.load(make.session)
    assert stored is not None
    assert [chat.uri for chat in stored.chats] == ["chat:2", "chat:3", "chat:1"]


async def test_what_is_dropped_does_not_come_back(store: SessionStore, make: Make) -> None:
    store.write(make.put_session())
    store.write(make.put_session("echo:/two"))
    store.write(make.put_chat("a", record={"k": 1}))
    store.write(make.put_chat("b", uri="chat:two", session="echo:/two", record={"k": 2}))
    store.write(make.title(1, "late"))
    store.write(DropSession(make.session))
    assert await store.load(make.session) is None
    assert await store.records() == {"chat:two": {"k": 2}}
    with pytest.raises(KeyError):
        await store.turns(make.chat, None, 5)
    store.write(make.put_session())
    store.write(make.put_chat())
    stored = await store.load(make.session)
    assert stored is not None
    assert (stored.state["title"], await turn_ids(store, make)) == ("One", [])


async def test_a_row_or_a_record_of_nothing_makes_nothing(store: SessionStore, make: Make) -> None:
    store.write(PutSummary(make.row()))
    store.write(PutRecord(make.chat, {"k": 1}))
    store.write(make.title(1, "late"))
    assert await store.load(make.session) is None
    assert await store.records() == {}


async def test_records_are_those_that_say_something(store: SessionStore, make: Make) -> None:
    store.write(make.put_session())
    store.write(make.put_chat(uri="chat:1", record={"k": 1}))
    store.write(make.put_chat(uri="chat:2"))
    assert await store.records() == {"chat:1": {"k": 1}}
    store.write(PutRecord("chat:1", {}))
    store.write(PutRecord("chat:2", {"k": 2}))
    assert await store.records() == {"chat:2": {"k": 2}}


async def test_nothing_is_pending_after_a_commit(store: SessionStore, make: Make) -> None:
    assert not store.pending
    await store.commit()
    store.write(make.put_session())
    await store.commit()
    await store.reserve(10)
    assert not store.pending
