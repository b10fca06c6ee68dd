"""Each plugin runs with every other one off, and the kernel with none at all."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from ahpd.session.names import ROOT
from ahpd.testing import AhpClient, RequestFailed, answer_text, open_host

ALL = sorted(
    tomllib.loads(Path(__file__).parents[2].joinpath("pyproject.toml").read_text())["project"]["entry-points"][
        "ahpd"
    ]
)
NO_AGENT = "No agent is enabled here; see ahpd plugin list, then ahpd plugin enable NAME"


async def refused(client: AhpClient, **params: Any) -> str:
    with pytest.raises(RequestFailed) as caught:
        await client.request("createSession", {"channel": "ahp-session:/alone", **params})
    return caught.value.message


async def is_a_working_host(client: AhpClient) -> None:
    """What a host answers whoever its plugins are."""
    await client.request("ping")
    assert (await client.request("listSessions"))["items"] == []
    assert client.states[ROOT]["activeSessions"] == 0


async def test_the_kernel_runs_with_none() -> None:
    async with open_host([]) as opened:
        client = await opened.client()
        await is_a_working_host(client)
        assert client.states[ROOT]["agents"] == []
        assert await refused(client) == NO_AGENT
        assert await refused(client, provider="echo") == NO_AGENT
        await is_a_working_host(client)


@pytest.mark.parametrize("plugin", ALL)
async def test_a_plugin_runs_alone(plugin: str) -> None:
    async with open_host([plugin]) as opened:
        assert opened.registry.problems == {}
        assert list(opened.registry.contributions) == [plugin]
        client = await opened.client()
        await is_a_working_host(client)
        if not client.states[ROOT]["agents"]:
            assert await refused(client) == NO_AGENT
            return
        session = await client.create_session(None)
        await client.until(lambda: client.states[session]["lifecycle"] == "ready")
        assert "serverTools" not in client.states[session]


@pytest.mark.parametrize("plugin", [name for name in ALL if name != "agent-echo"])
async def test_a_plugin_runs_with_an_agent_alone(plugin: str) -> None:
    async with open_host([plugin, "agent-echo"]) as opened:
        assert opened.registry.problems == {}
        client = await opened.client()
        session = await client.create_session()
        turn = await client.turn(client.default_chat(session), "hello")
        assert answer_text(turn) == "hello"
        own = [tool.name for tool in opened.registry.contributions[plugin].tools if tool.scope != "host"]
        assert [tool["name"] for tool in client.states[session].get("serverTools", [])] == own
