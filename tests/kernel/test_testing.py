"""What authors of plugins test with is itself a host like any other."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from ahpd.errors import PluginError
from ahpd.session.names import ROOT
from ahpd.testing import Disconnected, answer_text, open_host

from ..conftest import until


async def test_a_whole_turn_in_memory() -> None:
    async with open_host(plugins=["agent-echo"]) as host:
        client = await host.client()
        session = await client.create_session()
        turn = await client.turn(client.default_chat(session), "hello\n/tools")
        assert answer_text(turn) == "hello\n[]"
        assert [agent["provider"] for agent in client.states[ROOT]["agents"]] == ["echo"]


async def test_settings_and_options_are_in_force() -> None:
    options = {"agent-echo": {"alsoAs": ["parrot"]}}
    async with open_host(settings={"advancedTools": True}, options=options) as host:
        client = await host.client()
        assert client.states[ROOT]["config"]["values"]["advancedTools"] is True
        assert [agent["provider"] for agent in client.states[ROOT]["agents"]] == ["echo", "parrot"]


async def test_without_plugins_there_is_nobody_to_talk_to() -> None:
    async with open_host(plugins=[]) as host:
        client = await host.client()
        assert client.states[ROOT]["agents"] == []
        with pytest.raises(Exception, match="No agent is enabled"):
            await client.create_session(None)


async def test_nothing_is_left_behind_and_nothing_of_the_users_is_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AHPD_HOME", str(tmp_path / "mine"))
    async with open_host() as host:
        home = host.host.config.writable.parent
        assert home.exists()
        await (await host.client()).create_session()
    assert not home.exists()
    assert not (tmp_path / "mine").exists()


async def test_the_end_of_a_host_ends_its_clients_and_sessions() -> None:
    async with open_host() as host:
        client = await host.client()
        session = await client.create_session()
        turn_id = await client.start_turn(client.default_chat(session), "/sleep 600")
        await client.until(lambda: client.states[client.default_chat(session)].get("activeTurn"))
        assert turn_id
    assert client.closed is not None
    with pytest.raises((Disconnected, trio.ClosedResourceError, trio.BrokenResourceError)):
        await client.request("ping")


async def test_one_client_that_leaves_is_missed_by_nobody() -> None:
    async with open_host() as host:
        alice, bob = await host.client(), await host.client()
        session = await alice.create_session()
        chat = alice.default_chat(session)
        await bob.subscribe(chat)
        await bob.pipe.aclose()
        await until(lambda: bob.closed)
        assert answer_text(await alice.turn(chat, "alone")) == "alone"
        watching = host.host.state.channels[chat].subscribers
        assert len(watching) == 1


async def test_a_test_without_its_plugin_fails_at_once() -> None:
    with pytest.raises(PluginError, match="plugin nosuch is not installed here"):
        async with open_host(["agent-echo", "nosuch"]):
            pass
