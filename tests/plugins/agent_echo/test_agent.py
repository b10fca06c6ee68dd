"""The echo agent as the host sees it: ids, models, settings, and what it remembers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import ahpd_agent_echo
import jsonschema_rs
import pytest
from ahpd import Agent, PastSession, PluginConfig
from ahpd_agent_echo import agent
from ahpd_agent_echo.agent import EchoAgent

if TYPE_CHECKING:
    from tests.plugins.agent_echo.conftest import Stage


def agents(**options: object) -> list[Agent]:
    return list(ahpd_agent_echo.ahpd_agents(PluginConfig("agent-echo", options)))


def test_it_is_an_agent() -> None:
    [echo] = agents(alsoAs=[])
    assert isinstance(echo, Agent)
    assert (echo.provider, echo.display_name) == ("echo", "Echo")
    assert [model.id for model in echo.models()] == ["echo-1", "echo-2"]


def test_it_can_have_more_ids() -> None:
    also = agents(alsoAs=["echo2", "echo", "echo3"])
    assert [(one.provider, one.display_name) for one in also] == [
        ("echo", "Echo"),
        ("echo2", "Echo (echo2)"),
        ("echo3", "Echo (echo3)"),
    ]


def test_the_option_is_declared() -> None:
    [key] = ahpd_agent_echo.ahpd_config_keys()
    assert (key.name, key.default, key.daemon) == ("alsoAs", [], False)
    validator = jsonschema_rs.Draft202012Validator(dict(key.schema))
    assert validator.is_valid(["echo2"])
    assert not validator.is_valid(["Echo 2"])
    assert not validator.is_valid("echo2")


def test_voice_is_a_setting_that_may_change() -> None:
    voice = EchoAgent().settings()["voice"]
    assert voice["enum"] == ["plain", "shouty", "backwards"]
    assert len(voice["enumLabels"]) == 3
    assert voice["default"] == "plain"
    assert voice["sessionMutable"] is True
    assert voice["type"] == "string"
    assert voice["title"]


async def past(echo: EchoAgent) -> list[PastSession]:
    return [one async for one in echo.past()]


async def test_it_remembers_nothing_of_its_own_at_first() -> None:
    assert await past(EchoAgent()) == []


async def test_it_lists_the_sessions_it_opened_newest_first(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    echo, clock = EchoAgent(), iter(f"2026-01-01T00:00:0{second}.000Z" for second in range(9))
    monkeypatch.setattr(agent, "_now", lambda: next(clock))
    first = await echo.open(replace(stage.start(), id="s1"))
    await echo.open(replace(stage.start(), id="s2"))
    await first.prompt(await stage.run("Mend the  door\nand the window"))
    assert [(one.id, one.title) for one in await past(echo)] == [("s1", "Mend the door"), ("s2", "")]
    newest = (await past(echo))[0]
    assert newest.created_at < newest.modified_at
    assert list(newest.working_directories) == ["file:///home/ana"]


async def test_a_resumed_session_keeps_its_title(stage: Stage) -> None:
    echo = EchoAgent()
    history = [{"message": {"text": "First words"}}]
    opened = await echo.open(replace(stage.start(), resume=True, history=history))
    await opened.prompt(await stage.run("Later words"))
    assert [one.title for one in await past(echo)] == ["First words"]


async def test_a_forgotten_session_is_listed_no_more(stage: Stage) -> None:
    echo = EchoAgent()
    await echo.open(stage.start())
    echo.forget("s1")
    echo.forget("s1")
    assert await past(echo) == []


async def test_it_forgets_the_oldest_first(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent, "KEPT", 2)
    echo = EchoAgent()
    for number in range(3):
        await echo.open(replace(stage.start(), id=f"s{number}"))
    assert {one.id for one in await past(echo)} == {"s1", "s2"}
