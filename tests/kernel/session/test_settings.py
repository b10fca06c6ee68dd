"""A session's settings: defaults, what fits, and what a running session lets be changed."""

from __future__ import annotations

from typing import Any

import pytest
from ahpd.client import RequestFailed
from ahpd.errors import InvalidParams, Rejected
from ahpd.session.names import ROOT
from ahpd.session.settings import check_change, resolve, settle, unfit

from ...conftest import Stage, applied, outcome

PROPERTIES: dict[str, Any] = {
    "mood": {"type": "string", "enum": ["calm", "keen"], "default": "calm", "sessionMutable": True},
    "size": {"type": "number", "default": 1},
    "loud": {"type": "boolean", "sessionMutable": True},
    "tags": {"type": "array"},
    "more": {"type": "object"},
}


def test_defaults_are_overlaid_and_strange_keys_left_out() -> None:
    assert settle(PROPERTIES, {"size": 2.5, "strange": 1}) == {"mood": "calm", "size": 2.5}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("mood", "wild"),
        ("mood", 3),
        ("mood", None),
        ("size", "1"),
        ("size", True),
        ("loud", 1),
        ("loud", "true"),
        ("tags", "a"),
        ("more", []),
    ],
)
def test_a_value_that_does_not_fit_is_named_and_falls_back_while_a_picker_is_filled(name: str, value: Any) -> None:
    with pytest.raises(InvalidParams, match=f"config.{name}"):
        settle(PROPERTIES, {name: value})
    assert resolve(PROPERTIES, {name: value, "size": 1}) == {"mood": "calm", "size": 1}
    assert unfit(name, PROPERTIES[name], value)


@pytest.mark.parametrize(
    ("name", "value"), [("mood", "keen"), ("size", 0), ("size", 1.5), ("loud", False), ("tags", []), ("more", {})]
)
def test_a_value_that_fits(name: str, value: Any) -> None:
    assert settle(PROPERTIES, {name: value})[name] == value
    assert resolve(PROPERTIES, {name: value})[name] == value


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"strange": 1}, "not a setting"),
        ({"size": 2}, "fixed"),
        ({"mood": "wild"}, "calm, keen"),
        ({"loud": 1}, "boolean"),
        ({"mood": "keen", "size": 2}, "fixed"),
    ],
)
def test_what_a_running_session_does_not_take(changed: dict[str, Any], why: str) -> None:
    with pytest.raises(Rejected, match=why):
        check_change(PROPERTIES, changed)


async def test_an_agent_sees_a_change_at_once_and_a_refused_one_never(stage: Stage) -> None:
    agent = stage.cast()
    alice = await stage.client()
    session, chat = await stage.session(alice, config={"fixed": 7, "strange": 1})
    await alice.turn(chat, "open")
    settings = agent.opened[0].settings
    assert dict(settings) == {"mood": "calm", "fixed": 7}
    await applied(alice, session, {"type": "session/configChanged", "config": {"mood": "keen"}})
    assert settings["mood"] == "keen"
    for config in ({"fixed": 8}, {"mood": "wild"}, {"strange": 1}, {"mood": "calm", "fixed": 8}):
        assert await outcome(alice, session, {"type": "session/configChanged", "config": config})
    replaced = {"type": "session/configChanged", "config": {"mood": "calm"}, "replace": True}
    assert await outcome(alice, session, replaced)
    assert dict(settings) == {"mood": "keen", "fixed": 7}
    assert alice.states[session]["config"]["values"] == {"mood": "keen", "fixed": 7}
    await stage.agrees(alice, session)
    with pytest.raises(TypeError):
        settings["mood"] = "calm"  # type: ignore[index]


async def test_the_settings_of_a_session_to_be(stage: Stage) -> None:
    stage.cast()
    alice = await stage.client()
    params = {"channel": ROOT, "provider": "scripted", "config": {"mood": "wild", "fixed": 3, "strange": True}}
    resolved = await alice.request("resolveSessionConfig", params)
    assert resolved["values"] == {"mood": "calm", "fixed": 3}
    assert set(resolved["schema"]["properties"]) == {"mood", "fixed"}
    with pytest.raises(RequestFailed, match=r"config\.mood"):
        await alice.create_session("scripted", config={"mood": "wild"})
    assert (await alice.request("listSessions"))["items"] == []


@pytest.mark.parametrize("what", ["settings", "capabilities"])
@pytest.mark.parametrize(
    "fault", [RuntimeError("secret"), SystemExit(3), BaseException(), 7, {"x": {"y": object()}}]
)
async def test_an_agent_that_cannot_say_what_it_takes_costs_only_its_own_sessions(
    stage: Stage, what: str, fault: Any
) -> None:
    def answer() -> Any:
        if isinstance(fault, BaseException):
            raise fault
        return fault

    agent = stage.cast()
    alice = await stage.client()
    setattr(agent, what, answer)
    if what == "settings" or not isinstance(fault, dict):
        with pytest.raises(RequestFailed, match=f"Asking for {what} failed in the agent scripted"):
            await alice.create_session("scripted")
        assert stage.open.host.sessions.by_uri == {}
    await stage.session(alice, "echo")
