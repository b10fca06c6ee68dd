"""The list of sessions: how a row is added up, pages, and what root's watchers are told, and when."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import trio
from ahpd.client import AhpClient, RequestFailed
from ahpd.session.names import ROOT
from ahpd.testing import open_host

from ...conftest import IN_MEMORY, Json, Stage, applied, message, waits


def notices(client: AhpClient, method: str) -> list[Json]:
    return [notice["params"] for notice in client.notices if notice["method"] == method]


async def rows(client: AhpClient, **params: Any) -> Json:
    page: Json = await client.request("listSessions", {"channel": ROOT, **params})
    return page


def told(client: AhpClient) -> Json:
    """All changes root's watchers were told, laid over each other."""
    laid: Json = {}
    for params in notices(client, "root/sessionSummaryChanged"):
        laid.update(params["changes"])
    return laid


CHATS = ("ahp-chat:/a", "ahp-chat:/b", "ahp-chat:/c")


@pytest.mark.parametrize(
    ("default", "chats", "status", "activity"),
    [
        ("a", [(1, None, 1), (8, "b works", 2), (1, None, 3)], 1, None),
        ("b", [(1, None, 1), (8, "b works", 2), (1, None, 3)], 8, "b works"),
        (None, [(1, None, 1), (8, "b works", 3), (1, None, 2)], 8, "b works"),
        ("a", [(8, "a works", 1), (24, "b asks", 2), (2, "c failed", 3)], 24, "b asks"),
        ("a", [(8, "a works", 1), (1, None, 2), (2, "c failed", 3)], 2, "c failed"),
        ("a", [(24, "a asks", 1), (24, "b asks", 2), (2, "c failed", 3)], 24, "a asks"),
        ("a", [(1 | 32 | 64, None, 1), (1, None, 2), (1, None, 3)], 1, None),
        (None, [], 1, None),
    ],
)
async def test_a_row_adds_up_its_chats(
    stage: Stage,
    default: str | None,
    chats: Sequence[tuple[int, str | None, int]],
    status: int,
    activity: str | None,
) -> None:
    host = stage.open.host
    await stage.session(await stage.client(), "echo")
    (session,) = host.sessions.by_uri.values()
    channel = host.state.channels[session.uri]
    channel.state = {
        **channel.state,
        "defaultChat": default and f"ahp-chat:/{default}",
        "chats": [
            {
                "resource": uri,
                "title": uri[-1],
                "status": bits,
                "modifiedAt": f"2099-01-0{day}T00:00:00.000Z",
                **({"activity": doing} if doing else {}),
            }
            for uri, (bits, doing, day) in zip(CHATS, chats, strict=False)
        ],
    }
    for flags in (0, 32, 64, 96):
        channel.state = {**channel.state, "status": 1 | flags}
        row = host.catalogue.summary(session)
        assert row["status"] == status | flags
        assert row.get("activity") == activity
        assert row["modifiedAt"] == (
            f"2099-01-0{max(day for *_, day in chats)}T00:00:00.000Z" if chats else row["createdAt"]
        )
        assert [chat["resource"] for chat in row["chats"]] == list(CHATS[: len(chats)])
        assert all("modifiedAt" not in chat for chat in row["chats"])


async def test_pages_hold_every_row_once_newest_first(stage: Stage) -> None:
    alice = await stage.client()
    sessions = [(await stage.session(alice, "echo"))[0] for _ in range(7)]
    whole = (await rows(alice))["items"]
    assert sorted(row["resource"] for row in whole) == sorted(sessions)
    assert [row["modifiedAt"] for row in whole] == sorted((row["modifiedAt"] for row in whole), reverse=True)
    seen: list[Json] = []
    cursor: Json = {}
    for size in (3, 3, 1):
        page = await rows(alice, limit=3, **cursor)
        assert len(page["items"]) == size
        seen += page["items"]
        cursor = {"cursor": page.get("nextCursor")}
    assert seen == whole
    assert cursor == {"cursor": None}


async def test_a_cursor_survives_the_row_it_names(stage: Stage) -> None:
    alice = await stage.client()
    for _ in range(4):
        await stage.session(alice, "echo")
    whole = [row["resource"] for row in (await rows(alice))["items"]]
    page = await rows(alice, limit=2)
    await alice.request("disposeSession", {"channel": whole[1]})
    rest = await rows(alice, cursor=page["nextCursor"])
    assert [row["resource"] for row in rest["items"]] == whole[2:]


@pytest.mark.parametrize("cursor", ["", "x", "x y", "2026-01-02T03:04:05.678Z", "never echo:/1"])
async def test_a_cursor_nobody_gave_out_is_refused(stage: Stage, cursor: str) -> None:
    alice = await stage.client()
    with pytest.raises(RequestFailed, match="cursor") as refused:
        await rows(alice, cursor=cursor)
    assert refused.value.code == -32602


async def test_a_row_has_what_newer_clients_want(stage: Stage) -> None:
    alice = await stage.client()
    session, chat = await stage.session(alice, "echo")
    await alice.turn(chat, "Name me please")
    (row,) = (await rows(alice))["items"]
    assert (row["defaultChat"], row["chats"][0]["resource"]) == (chat, chat)
    assert row["title"] == alice.states[session]["title"] == "Name me please"
    assert (row["provider"], row["resource"]) == ("echo", session)
    assert row["workingDirectories"] == alice.states[session]["workingDirectories"]
    assert row["chats"][0]["status"] & 31 == 1


async def test_watchers_of_root_hear_of_the_beginning_and_the_end_and_others_do_not(stage: Stage) -> None:
    alice, bob = await stage.client(), await stage.client()
    await bob.notify("unsubscribe", {"channel": ROOT})
    await bob.request("ping")
    session, _ = await stage.session(alice, "echo")
    await alice.request("disposeSession", {"channel": session})
    await bob.request("ping")
    (added,) = notices(alice, "root/sessionAdded")
    assert added["summary"]["resource"] == session
    assert notices(alice, "root/sessionRemoved") == [{"channel": ROOT, "session": session}]
    assert bob.notices == []


async def test_changes_of_a_moment_are_told_together_as_differences(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with open_host(IN_MEMORY) as opened:
        stage = Stage(opened)
        alice = await stage.client()
        session, chat = await stage.session(alice, "echo")
        await trio.sleep(1)
        alice.notices.clear()
        before = (await rows(alice))["items"][0]
        for number in range(20):
            await applied(alice, session, {"type": "session/titleChanged", "title": f"t{number}"})
        assert notices(alice, "root/sessionSummaryChanged") == []
        await trio.sleep(1)
        assert [params["changes"] for params in notices(alice, "root/sessionSummaryChanged")] == [{"title": "t19"}]
        await alice.turn(chat, "x " * 200)
        await trio.sleep(1)
        after = (await rows(alice))["items"][0]
        changed = {key for key in after if after[key] != before.get(key)}
        assert told(alice).keys() == changed
        assert told(alice).keys().isdisjoint({"resource", "provider", "createdAt"})
        count = len(alice.notices)
        await applied(alice, session, {"type": "session/titleChanged", "title": "t19"})
        await trio.sleep(1)
        assert len(alice.notices) == count


async def test_an_activity_that_ended_is_told_as_null(autojump_clock: trio.testing.MockClock) -> None:
    async def busy(turn: Any) -> None:
        turn.activity("Reading")
        await trio.sleep(10)
        turn.activity(None)

    async with open_host(IN_MEMORY) as opened:
        stage = Stage(opened)
        stage.cast(busy)
        alice = await stage.client()
        _, chat = await stage.session(alice)
        turn_id = await alice.start_turn(chat, "go")
        await trio.sleep(5)
        assert told(alice)["activity"] == "Reading"
        assert told(alice)["status"] & 31 == 8
        await alice.finished(chat, turn_id, patience=60)
        await trio.sleep(5)
        assert told(alice)["activity"] is None
        assert told(alice)["status"] & 31 == 1


async def test_status_is_told_while_a_turn_streams_on(autojump_clock: trio.testing.MockClock) -> None:
    async with open_host(IN_MEMORY) as opened:
        stage = Stage(opened)
        stage.cast(waits)
        alice = await stage.client()
        session, chat = await stage.session(alice)
        await alice.start_turn(chat, "go")
        await trio.sleep(0.5)
        assert told(alice)["status"] & 31 == 8
        assert told(alice)["chats"][0]["status"] & 31 == 8
        await alice.request("disposeSession", {"channel": session})
        await trio.sleep(5)
        assert notices(alice, "root/sessionSummaryChanged")[-1]["changes"]["status"] & 31 == 8


async def test_the_number_of_busy_chats_is_kept(stage: Stage) -> None:
    stage.cast(waits)
    alice = await stage.client()
    first, one = await stage.session(alice)
    _, two = await stage.session(alice)
    await alice.start_turn(one, "go")
    turn = await alice.start_turn(two, "go")
    await alice.until(lambda: alice.states[ROOT]["activeSessions"] == 2)
    await applied(alice, two, {"type": "chat/turnCancelled", "turnId": turn})
    await alice.until(lambda: alice.states[ROOT]["activeSessions"] == 1)
    queued = {"type": "chat/pendingMessageSet", "kind": "queued", "id": "q", "message": message("later")}
    await applied(alice, one, queued)
    await alice.request("disposeSession", {"channel": first})
    await alice.until(lambda: alice.states[ROOT]["activeSessions"] == 0)
