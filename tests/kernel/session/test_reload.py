"""Settings of the host that change while it runs: by a client, and by hand."""

from __future__ import annotations

import pytest
from ahpd.client import AhpClient
from ahpd.session.names import ROOT
from ahpd.tools import Tool, ToolCall

from ...conftest import Json, Stage, applied, outcome


async def nothing(call: ToolCall) -> str:
    return ""


def tools(client: AhpClient, session: str) -> list[str]:
    return [tool["name"] for tool in client.states[session].get("serverTools", [])]


def changed(client: AhpClient, kind: str) -> list[Json]:
    return [entry["action"] for entry in client.actions if entry["action"]["type"] == kind]


def config(**values: object) -> Json:
    return {"type": "root/configChanged", "config": values}


async def test_a_live_setting_works_in_every_running_session_at_once(stage: Stage) -> None:
    alice, bob = await stage.client(), await stage.client()
    first, _ = await stage.session(alice, "echo")
    second, _ = await stage.session(bob, "echo")
    assert "list_sessions" in tools(alice, first)
    await applied(alice, ROOT, config(sessionTools=False))
    await bob.until(lambda: "list_sessions" not in tools(bob, second))
    await alice.request("ping")
    assert "list_sessions" not in tools(alice, first)
    for client in (alice, bob):
        assert len(changed(client, "session/serverToolsChanged")) == 1
        assert client.states[ROOT]["config"]["values"]["sessionTools"] is False
    await stage.agrees(bob, ROOT, second)
    await applied(bob, ROOT, config(sessionTools=True))
    await alice.until(lambda: "list_sessions" in tools(alice, first))


async def test_a_change_of_a_client_is_kept_in_the_file(stage: Stage) -> None:
    alice = await stage.client()
    await applied(alice, ROOT, config(advancedTools=True))
    host = stage.open.host
    assert "advancedTools = true" in host.config.writable.read_text()
    assert host.config.settings["advancedTools"] is True
    assert await host.reload() == await host.reload()
    assert alice.states[ROOT]["config"]["values"]["advancedTools"] is True


async def test_one_change_is_told_once(stage: Stage) -> None:
    alice, bob = await stage.client(), await stage.client()
    await applied(alice, ROOT, config(advancedTools=True))
    await bob.request("ping")
    assert [action["config"] for action in changed(bob, "root/configChanged")] == [{"advancedTools": True}]


@pytest.mark.parametrize(
    "values",
    [
        {"nobodyDeclared": 1},
        {"connectionToken": "mine"},
        {"advancedTools": "yes"},
        {"advancedTools": True, "nobodyDeclared": 1},
        {"port": "many"},
        {"port": -1},
    ],
)
async def test_what_is_no_setting_or_does_not_fit_is_refused_and_kept_nowhere(stage: Stage, values: Json) -> None:
    alice = await stage.client()
    before, file = alice.states[ROOT], stage.open.host.config.writable.read_text()
    reason = await outcome(alice, ROOT, config(**values))
    assert reason is not None
    assert any(name in reason for name in values)
    assert alice.states[ROOT] == before
    assert stage.open.host.config.writable.read_text() == file
    await stage.agrees(alice, ROOT)


async def test_replacing_takes_nothing_away_that_a_file_holds(stage: Stage) -> None:
    alice = await stage.client()
    await applied(alice, ROOT, config(sessionTools=False))
    await applied(alice, ROOT, {**config(advancedTools=True), "replace": True})
    settings = stage.open.host.config.settings
    assert (settings["sessionTools"], settings["advancedTools"]) == (False, True)
    await stage.agrees(alice, ROOT)


async def test_a_change_by_hand_is_told_when_it_is_read(stage: Stage) -> None:
    alice = await stage.client()
    session, _ = await stage.session(alice, "echo")
    file = stage.open.host.config.writable
    file.write_text("sessionTools = false\n" + file.read_text())
    await stage.open.host.reload()
    await alice.until(lambda: alice.states[ROOT]["config"]["values"]["sessionTools"] is False)
    await alice.until(lambda: "list_sessions" not in tools(alice, session))
    await stage.open.host.reload()
    await alice.request("ping")
    assert len(changed(alice, "root/configChanged")) == 1
    assert len(changed(alice, "session/serverToolsChanged")) == 1
    await stage.agrees(alice, ROOT, session)


async def test_sessions_whose_tools_stay_the_same_hear_nothing(stage: Stage) -> None:
    stage.equip(Tool("only_here", nothing, offered=lambda offer: offer.provider == "scripted"))
    stage.cast()
    alice = await stage.client()
    mine, _ = await stage.session(alice)
    other, _ = await stage.session(alice, "echo")
    assert ("only_here" in tools(alice, mine), "only_here" in tools(alice, other)) == (True, False)
    stage.equip(Tool("and_here", nothing, offered=lambda offer: offer.provider == "scripted"))
    await alice.until(lambda: "and_here" in tools(alice, mine))
    assert [
        entry["channel"] for entry in alice.actions if entry["action"]["type"] == "session/serverToolsChanged"
    ] == [mine]
