"""A program that builds its own host gives it tools, before and while it runs."""

from collections.abc import AsyncIterator

import ahpd
import pytest
from ahpd import Tool, ToolCall
from ahpd.client import AhpClient, answer_text
from ahpd.errors import PluginError
from ahpd.testing import OpenHost, open_host


async def greet(call: ToolCall) -> str:
    return f"hello {call.arguments.get('name', 'you')}"


GREET = Tool("greet", greet, "Say hello.", {"name": {"type": "string"}})
OTHER = Tool("other", greet, "Say it otherwise.")


@pytest.fixture
async def host() -> AsyncIterator[OpenHost]:
    async with open_host(["agent-echo", "session-tools"]) as running:
        yield running


def offered(client: AhpClient, session: str) -> list[str]:
    return [tool["name"] for tool in client.states[session].get("serverTools", [])]


def changes(client: AhpClient) -> int:
    return sum(each["action"]["type"] == "session/serverToolsChanged" for each in client.actions)


async def test_a_tool_registered_while_it_runs_comes_last_and_can_be_called(host: OpenHost) -> None:
    client = await host.client()
    session = await client.create_session()
    before = offered(client, session)
    host.host.register_tool(GREET)
    await client.until(lambda: offered(client, session) == [*before, "greet"])
    assert changes(client) == 1
    turn = await client.turn(client.default_chat(session), '/call greet {"name": "world"}')
    (part,) = [part for part in turn["responseParts"] if part["kind"] == "toolCall"]
    assert part["toolCall"]["content"] == [{"type": "text", "text": "hello world"}]


async def test_the_whole_set_is_replaced_and_everybody_is_told_once(host: OpenHost) -> None:
    client = await host.client()
    sessions = [await client.create_session() for _ in range(3)]
    host.host.register_tool(GREET)
    host.host.set_tools([OTHER])
    await client.until(lambda: all(offered(client, session) == ["other"] for session in sessions))
    assert changes(client) == 2 * len(sessions)
    host.host.set_tools([])
    await client.until(lambda: all(offered(client, session) == [] for session in sessions))
    told = [each["action"] for each in client.actions if each["action"]["type"] == "session/serverToolsChanged"]
    assert told[-1]["tools"] == []
    turn = await client.turn(client.default_chat(sessions[0]), "/call other {}")
    assert "no tool named other" in answer_text(turn)


async def test_tools_given_before_a_session_are_there_when_it_begins(host: OpenHost) -> None:
    host.host.set_tools([GREET])
    client = await host.client()
    assert offered(client, await client.create_session()) == ["greet"]


async def test_none_at_all_leaves_the_field_away(host: OpenHost) -> None:
    host.host.set_tools([])
    client = await host.client()
    assert "serverTools" not in client.states[await client.create_session()]


@pytest.mark.parametrize("bad", [Tool("no good", greet), Tool("odd", greet, schema={"type": "strng"}), GREET])
async def test_what_cannot_be_offered_is_refused_and_changes_nothing(host: OpenHost, bad: Tool) -> None:
    client = await host.client()
    session = await client.create_session()
    host.host.register_tool(GREET)
    before = [tool.tool.name for tool in host.host.tools]
    with pytest.raises(PluginError):
        host.host.register_tool(bad)
    with pytest.raises(PluginError):
        host.host.set_tools([OTHER, bad, bad])
    assert [tool.tool.name for tool in host.host.tools] == before
    await client.until(lambda: "greet" in offered(client, session))
    assert changes(client) == 1


def test_the_library_names_its_host() -> None:
    from ahpd.host import Host

    assert ahpd.Host is Host
    with pytest.raises(AttributeError):
        _ = ahpd.Hostess
