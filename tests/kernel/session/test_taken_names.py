"""A name that something has, awake or asleep, is nobody else's; what cannot be read costs itself."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from ahpd.client import RequestFailed
from ahpd.errors import AlreadyExists
from ahpd.session import names
from ahpd.state import State

from ...conftest import Stage, applied, outcome, started
from .test_history import host_in

ONE, OTHER = "echo:/one", "echo:/other"


async def test_a_session_cannot_be_made_where_a_chat_is(stage: Stage) -> None:
    alice = await stage.client()
    await stage.session(alice, "echo", uri=ONE)
    for taken in (OTHER, names.default_chat(OTHER)):
        await alice.request("createChat", {"channel": ONE, "chat": taken})
        for spelled in (OTHER, "ahp-session:/other"):
            with pytest.raises(RequestFailed, match="something at"):
                await alice.request("createSession", {"channel": spelled, "provider": "echo"})
        assert [item["resource"] for item in (await alice.request("listSessions"))["items"]] == [ONE]
        await alice.request("disposeChat", {"channel": taken})
    await alice.request("createSession", {"channel": OTHER, "provider": "echo"})


async def test_a_chat_cannot_be_made_where_something_sleeps(stage: Stage) -> None:
    alice = await stage.client()
    await stage.session(alice, "echo", uri=ONE)
    _, chat = await stage.session(alice, "echo", uri=OTHER)
    await alice.turn(chat, "kept")
    host = stage.open.host
    other = host.sessions.by_uri[OTHER]
    host.dormant.sleep(other)
    await other.closed.wait()
    for taken in (OTHER, chat, "ahp-session:/other"):
        with pytest.raises(RequestFailed, match="is the name of something else already"):
            await alice.request("createChat", {"channel": ONE, "chat": taken})
    assert [turn["message"]["text"] for turn in (await alice.subscribe(chat))["turns"]] == ["kept"]


def test_no_channel_takes_the_place_of_another() -> None:
    state = State({})
    state.open(ONE, "session", {"a": 1})
    with pytest.raises(AlreadyExists, match="something at echo:/one already"):
        state.open(ONE, "chat", {})
    assert state.get(ONE) == {"a": 1}


@pytest.mark.parametrize("table", ["session", "chat"])
async def test_a_session_that_cannot_be_read_costs_itself_and_can_be_disposed_of(
    tmp_path: Path, table: str
) -> None:
    async with host_in(tmp_path) as stage:
        alice = await stage.client()
        _, good = await stage.session(alice, "echo", uri=ONE)
        await stage.session(alice, "echo", uri=OTHER)
    with sqlite3.connect(tmp_path / "data" / "ahpd.db") as database:
        column = "uri" if table == "session" else "session"
        changed = database.execute(f"UPDATE {table} SET state = '{{bad' WHERE {column} = ?", (OTHER,))
        assert changed.rowcount == 1
    database.close()
    async with host_in(tmp_path) as stage:
        alice = await stage.client(OTHER, ONE)
        assert set(alice.states) >= {ONE}
        assert OTHER not in alice.states
        with pytest.raises(RequestFailed, match=r"^-\d+: echo:/other cannot be read; the host's log says why$"):
            await alice.request("subscribe", {"channel": OTHER})
        await alice.notify("unsubscribe", {"channel": OTHER})
        await alice.subscribe(good)
        assert await outcome(alice, good, started("fine")) is None
        await alice.request("disposeSession", {"channel": OTHER})
        assert [item["resource"] for item in (await alice.request("listSessions"))["items"]] == [ONE]
    async with host_in(tmp_path) as stage:
        alice = await stage.client(ONE)
        assert [item["resource"] for item in (await alice.request("listSessions"))["items"]] == [ONE]
        await applied(alice, ONE, {"type": "session/titleChanged", "title": "still there"})
