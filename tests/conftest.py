"""A host in memory, an agent that does what a test says, and clients that believe only what they are sent."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import trio
from ahpd import Agent, Limit, Model, PastSession, Start, Tool, Turn
from ahpd.agents import described
from ahpd.client import AhpClient
from ahpd.registry import RegisteredTool
from ahpd.testing import OpenHost, open_host

Json = dict[str, Any]
Prompt = Callable[[Turn], Awaitable[None]]


IN_MEMORY = ("session-tools", "agent-echo")
"""The plugins of a test's host. None keeps anything on disk: a clock that jumps does not wait for threads."""


async def until(true: Callable[[], Any], seconds: float = 5) -> Any:
    """Wait, for five seconds at most, until `true()` is; what it said."""
    with trio.fail_after(seconds):
        while not (found := true()):
            await trio.lowlevel.checkpoint()
    return found


def same(one: Any, other: Any) -> bool:
    """Equal as JSON, where 1 is not true and the order of members says nothing."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


async def outcome(client: AhpClient, channel: str, action: Json) -> str | None:
    """Dispatch an action; why it was refused, or `None` when it was applied."""
    echo = await client.outcome(await client.dispatch(channel, action))
    reason: str | None = echo.get("rejectionReason")
    return reason


async def applied(client: AhpClient, channel: str, action: Json) -> None:
    assert await outcome(client, channel, action) is None


async def turn_running(client: AhpClient, chat: str) -> Json:
    """The active turn of a chat, once there is one."""
    found: Json = await client.until(lambda: client.states[chat].get("activeTurn"))
    return found


def ended(client: AhpClient, turn_id: str) -> list[str]:
    """Every ending of a turn that a client was sent."""
    endings = {"chat/turnComplete", "chat/turnCancelled", "chat/error"}
    said = [envelope["action"] for envelope in client.actions if "rejectionReason" not in envelope]
    return [action["type"] for action in said if action["type"] in endings and action.get("turnId") == turn_id]


def message(text: str, **more: Any) -> Json:
    return {"text": text, "origin": {"kind": "user"}, **more}


def started(turn_id: str, text: str = "hello", **more: Any) -> Json:
    """A `chat/turnStarted`."""
    at = {"startedAt": "2026-01-02T03:04:05.678Z", "message": message(text)}
    return {"type": "chat/turnStarted", "turnId": turn_id, **at, **more}


@dataclass
class ScriptedAgent:
    """An `ahpd.Agent` whose turns are the functions a test hands it, one for each prompt, the last for ever."""

    prompts: list[Prompt]
    provider: str = "scripted"
    display_name: str = "Scripted"
    description: str = "Does what a test says."
    mutable: bool = True
    multiple_chats: Mapping[str, Any] = field(default_factory=lambda: {"fork": True, "sideChat": True})
    on_open: Callable[[Start], Awaitable[None]] | None = None
    on_close: Callable[[], Awaitable[None]] | None = None
    opened: list[Start] = field(default_factory=list)
    closed: int = 0
    prompting: int = 0
    crowded: bool = False
    """Whether it was ever asked for a second turn while one was going on."""

    def models(self) -> Sequence[Model]:
        return (Model("one", "One"),)

    def settings(self) -> Mapping[str, Mapping[str, Any]]:
        return {
            "mood": {
                "type": "string",
                "title": "Mood",
                "enum": ["calm", "keen"],
                "default": "calm",
                "sessionMutable": self.mutable,
            },
            "fixed": {"type": "number", "title": "Fixed", "default": 1},
        }

    def capabilities(self) -> Mapping[str, Any]:
        return {"multipleChats": self.multiple_chats}

    async def open(self, start: Start) -> ScriptedSession:
        if self.on_open is not None:
            await self.on_open(start)
        self.opened.append(start)
        return ScriptedSession(self, start)

    async def past(self) -> AsyncIterator[PastSession]:
        return
        yield


@dataclass
class ScriptedSession:
    """An `ahpd.AgentSession`."""

    agent: ScriptedAgent
    start: Start

    async def prompt(self, turn: Turn) -> None:
        prompts = self.agent.prompts
        self.agent.crowded |= self.agent.prompting > 0
        self.agent.prompting += 1
        try:
            await (prompts.pop(0) if len(prompts) > 1 else prompts[0])(turn)
        finally:
            self.agent.prompting -= 1

    async def close(self) -> None:
        self.agent.closed += 1
        if self.agent.on_close is not None:
            await self.agent.on_close()


async def says(turn: Turn) -> None:
    """A prompt: say the message back."""
    turn.markdown(turn.text)
    await trio.lowlevel.checkpoint()


async def waits(turn: Turn) -> None:
    """A prompt: a word, then nothing until the turn is cancelled."""
    turn.markdown("waiting")
    await trio.sleep_forever()


@dataclass
class Stage:
    """A host in memory whose agents and tools a test may add to."""

    open: OpenHost

    def cast(self, *prompts: Prompt, **more: Any) -> ScriptedAgent:
        """Add an agent under `scripted`."""
        agent = ScriptedAgent(list(prompts) or [says], **more)
        as_agent: Agent = agent
        registry = self.open.host.registry
        agents = {**registry.agents, agent.provider: ("tests", as_agent)}
        told = {**described(as_agent), "settings": dict(as_agent.settings())}
        whole = {**registry.described, agent.provider: told}
        self.open.host.registry = replace(registry, agents=agents, described=whole)
        return agent

    def equip(self, *tools: Tool, limits: Sequence[Limit] = ()) -> None:
        """Add tools, and limits for them, as the plugin `tests`."""
        registry = self.open.host.registry
        self.open.host.registry = replace(
            registry,
            tools=(*registry.tools, *(RegisteredTool("tests", tool) for tool in tools)),
            limits=(*registry.limits, *(("tests", limit) for limit in limits)),
        )
        self.open.host.sessions.reoffer()

    async def client(self, *subscriptions: str, client_id: str | None = None, **more: Any) -> AhpClient:
        return await self.open.client(*subscriptions, client_id=client_id, **more)

    async def session(self, client: AhpClient, provider: str = "scripted", **more: Any) -> tuple[str, str]:
        """A new, ready session of `client`, and its default chat; both are watched."""
        session = await client.create_session(provider, **more)
        await client.until(lambda: client.states[session]["lifecycle"] != "creating")
        return session, client.default_chat(session)

    async def shown(self, *uris: str) -> dict[str, Json]:
        """What somebody who comes now is shown of these channels."""
        client = await self.client()
        return {uri: await client.subscribe(uri) for uri in uris}

    async def agrees(self, client: AhpClient, *uris: str) -> None:
        """What a client folded is what a newcomer is shown."""
        await client.request("ping")  # everything that was sent before has arrived
        for uri, state in (await self.shown(*uris)).items():
            assert same(client.states[uri], state), uri


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with open_host(IN_MEMORY) as opened:
        yield Stage(opened)
