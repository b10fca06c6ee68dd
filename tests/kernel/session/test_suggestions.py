"""Completions: of a setting whose choices are not fixed, and of a message that is being written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import trio
from ahpd.access import Principal
from ahpd.client import RequestFailed
from ahpd.session.names import ROOT

from ...conftest import Json, ScriptedAgent, Stage

FOUND = [{"value": "main", "label": "main"}, {"value": "next", "label": "next", "description": "What comes"}]
ITEM = {
    "insertText": "/plan",
    "attachment": {"type": "simple", "label": "plan", "_meta": {"command": "plan", "more": [1]}},
}


class Suggesting(ScriptedAgent):
    """An agent that suggests, and remembers what it was asked."""

    asked: Json

    async def complete(self, property: str, query: str, settings: Mapping[str, Any]) -> list[Json]:
        self.asked = {"property": property, "query": query, "settings": settings}
        return [item for item in FOUND if query in item["value"]]

    async def completions(self, **named: Any) -> list[Json]:
        self.asked = named
        return [ITEM]


class Thinking(ScriptedAgent):
    """An agent that never comes to an end."""

    async def complete(self, **named: Any) -> list[Json]:
        await trio.sleep_forever()
        return []

    completions = complete


class Broken(ScriptedAgent):
    """An agent that cannot."""

    async def complete(self, **named: Any) -> list[Json]:
        raise KeyError("secret detail")

    completions = complete


def enlist(stage: Stage, kind: type[ScriptedAgent]) -> ScriptedAgent:
    agent = kind(stage.cast().prompts)
    stage.open.host.registry.agents["scripted"] = ("tests", agent)  # type: ignore[index]
    return agent


def setting(name: str, **more: Any) -> Json:
    return {"channel": ROOT, "provider": "scripted", "property": name, **more}


def typed(chat: str, text: str = "/p", kind: str = "userMessage") -> Json:
    return {"channel": chat, "kind": kind, "text": text, "offset": len(text)}


async def test_an_agent_that_suggests_nothing(stage: Stage) -> None:
    stage.cast()
    alice = await stage.client()
    _, chat = await stage.session(alice)
    assert await alice.request("sessionConfigCompletions", setting("mood")) == {"items": []}
    assert await alice.request("completions", typed(chat)) == {"items": []}


@pytest.mark.parametrize("params", [setting("strange"), setting("mood", provider="nobody")])
async def test_a_setting_that_is_none(stage: Stage, params: Json) -> None:
    enlist(stage, Suggesting)
    alice = await stage.client()
    with pytest.raises(RequestFailed) as failure:
        await alice.request("sessionConfigCompletions", params)
    assert failure.value.code == -32602


async def test_a_setting_is_suggested_by_its_agent(stage: Stage) -> None:
    agent = enlist(stage, Suggesting)
    alice = await stage.client()
    config = {"fixed": 3, "mood": "wild", "strange": 1}
    asked = setting("mood", query="ne", config=config)
    assert await alice.request("sessionConfigCompletions", asked) == {"items": FOUND[1:]}
    settings = {"mood": "calm", "fixed": 3}
    assert vars(agent)["asked"] == {"property": "mood", "query": "ne", "settings": settings}
    assert await alice.request("sessionConfigCompletions", setting("mood")) == {"items": FOUND}


async def test_a_message_is_completed_by_its_chats_agent_and_items_come_whole(stage: Stage) -> None:
    agent = enlist(stage, Suggesting)
    alice = await stage.client()
    _, chat = await stage.session(alice, workingDirectories=["file:///here"])
    assert await alice.request("completions", typed(chat)) == {"items": [ITEM]}
    assert vars(agent)["asked"] == {
        "chat": chat,
        "text": "/p",
        "offset": 2,
        "working_directories": ("file:///here",),
    }
    assert await alice.request("completions", typed(chat, kind="other")) == {"items": []}


async def test_a_chat_that_is_none(stage: Stage) -> None:
    alice = await stage.client()
    with pytest.raises(RequestFailed) as failure:
        await alice.request("completions", typed("ahp-chat:/none"))
    assert failure.value.code == -32001


async def test_whoever_may_not_write_is_told_nothing(stage: Stage) -> None:
    enlist(stage, Suggesting)
    alice = await stage.client()
    reader = await stage.client(principal=Principal("user:ana", "ana", frozenset({"session:read"})))
    _, chat = await stage.session(alice)
    with pytest.raises(RequestFailed) as failure:
        await reader.request("completions", typed(chat))
    assert failure.value.code == -32009


async def test_a_slow_agent_holds_nothing_up(stage: Stage, autojump_clock: trio.testing.MockClock) -> None:
    enlist(stage, Thinking)
    alice = await stage.client()
    _, chat = await stage.session(alice)
    answers: list[Json] = []
    async with trio.open_nursery() as nursery:

        async def ask(method: str, params: Json) -> None:
            answers.append(await alice.request(method, params))

        nursery.start_soon(ask, "completions", typed(chat))
        nursery.start_soon(ask, "sessionConfigCompletions", setting("mood"))
        await trio.lowlevel.checkpoint()
        before = trio.current_time()
        await alice.request("ping")
        assert trio.current_time() == before
    assert answers == [{"items": []}] * 2


async def test_a_broken_agent_tells_no_details(stage: Stage) -> None:
    enlist(stage, Broken)
    alice = await stage.client()
    _, chat = await stage.session(alice)
    for method, params in (("completions", typed(chat)), ("sessionConfigCompletions", setting("mood"))):
        with pytest.raises(RequestFailed) as failure:
            await alice.request(method, params)
        assert failure.value.code == -32603
        assert "secret" not in failure.value.message
