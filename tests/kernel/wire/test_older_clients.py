"""Clients of 0.7 and 0.8, on a host that was told to serve them: whole sessions, held against their schema."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
from ahpd.agents import Confirmation, Turn
from ahpd.client import AhpClient, RequestFailed, answer_text
from ahpd.errors import AgentError
from ahpd.session.names import ROOT, chat_uri
from ahpd.testing import open_host

from ...conftest import Json, Stage, applied, outcome, says, started, until

OLD = {"0.7.0": ("0.7.0", "0.6.0", "0.5.2", "0.5.1"), "0.8.0": ("0.8.0", "0.7.0")}
SCHEMA = Path(os.environ.get("AHP_FIXTURES") or Path(__file__).parents[4] / "shared" / "ahp") / "schema"
NEVER_REQUIRED = {"ActionEnvelope": "origin", "Turn": "usage", "ActiveTurn": "usage"}
"""Listed as required in the schema, which says so of every member that may be undefined."""
STATES = {"root": "RootState", "session": "SessionState", "chat": "ChatState"}


async def fails(turn: Turn) -> None:
    turn.markdown("half")
    raise AgentError("away", resumable=True)


async def everything(turn: Turn) -> None:
    """A prompt with parts of many kinds."""
    turn.reasoning("hm")
    turn.markdown("text")
    turn.tool_started("call", "tool")
    decision = await turn.confirm("call", Confirmation("Sure?", "Really?"), "{}")
    assert decision.approved
    await turn.ask({"id": "q", "message": "Who?", "questions": []})
    turn.usage({"inputTokens": 1})


@pytest.fixture
async def old_stage() -> AsyncIterator[Stage]:
    async with open_host(settings={"ahpCompat": "0.7"}) as opened:
        yield Stage(opened)


async def old_client(stage: Stage, version: str, client_id: str = "old") -> AhpClient:
    client = await stage.open.connect(client_id)
    result = await client.initialize(ROOT, versions=OLD[version])
    assert result["protocolVersion"] == version
    return client


def actions(client: AhpClient, kind: str) -> list[Json]:
    return [each["action"] for each in client.actions if each["action"]["type"] == kind]


@pytest.fixture(params=list(OLD))
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("setting", [{}, {"ahpCompat": "off"}])
async def test_older_clients_are_served_only_when_that_is_asked_for(setting: Json) -> None:
    async with open_host(settings=setting) as opened:
        client = await opened.connect()
        with pytest.raises(RequestFailed) as failure:
            await client.initialize(versions=OLD["0.7.0"])
        assert failure.value.code == -32005
        assert failure.value.data == {"supportedVersions": ["^1.0.0", "^0.9.0"]}
        assert (await client.initialize(versions=("1.0.0",)))["protocolVersion"] == "1.0.0"


async def test_what_is_older_still_is_told_how_far_back_it_goes(old_stage: Stage) -> None:
    client = await old_stage.open.connect()
    with pytest.raises(RequestFailed) as failure:
        await client.initialize(versions=("0.6.0",))
    assert failure.value.data == {"supportedVersions": ["^1.0.0", "^0.9.0", "^0.8.0", "^0.7.0"]}
    assert (await client.initialize(versions=("0.9.0", "0.7.0")))["protocolVersion"] == "0.9.0"


async def test_an_older_client_runs_a_session(old_stage: Stage, version: str) -> None:
    old = await old_client(old_stage, version)
    session = await old.create_session("echo")
    chat = old.default_chat(session)
    assert answer_text(await old.turn(chat, "hello")) == "hello"
    await applied(old, session, {"type": "session/titleChanged", "title": "Mine"})
    assert (await old.request("listSessions"))["items"][0]["resource"] == session
    await old.request("disposeSession", {"channel": session})


async def test_a_failed_turn_live_and_shown(old_stage: Stage, version: str) -> None:
    old_stage.cast(fails, says)
    old, new = await old_client(old_stage, version), await old_stage.client()
    session, chat = await old_stage.session(new)
    await old.subscribe(chat)
    await new.turn(chat, "hello")
    await old.request("ping")
    (told,) = actions(old, "chat/error")
    assert told.keys() == {"type", "turnId", "duration", "error"}
    (turn,) = (await old.subscribe(chat))["turns"]
    assert turn["error"] == told["error"]
    assert [part["kind"] for part in turn["responseParts"]] == ["markdown"]
    assert new.states[chat]["turns"][0]["responseParts"][-1]["kind"] == "error"
    await applied(new, chat, {"type": "chat/turnResume", "turnId": turn["id"]})
    await new.until(lambda: "activeTurn" not in new.states[chat])
    await old.request("ping")
    assert actions(old, "chat/turnResume") == []
    (turn,) = (await old.subscribe(chat))["turns"]
    assert (turn["state"], "error" in turn) == ("complete", False)
    assert {part["kind"] for part in turn["responseParts"]} == {"markdown"}
    await old_stage.agrees(new, session, chat)


async def test_a_session_that_does_not_start(old_stage: Stage, version: str) -> None:
    let_it = trio.Event()

    async def never(start: Any) -> None:
        await let_it.wait()
        raise AgentError("no key")

    old_stage.cast(on_open=never)
    old = await old_client(old_stage, version)
    session = await old.create_session("scripted")
    let_it.set()
    await old.until(lambda: old.states[session]["lifecycle"] != "creating")
    assert (await old.subscribe(session))["lifecycle"] == "creationFailed"
    assert actions(old, "session/creationFailed")[0]["error"]["message"] == "no key"


async def test_later_actions_are_left_out_also_of_a_replay(old_stage: Stage, version: str) -> None:
    old_stage.cast(fails, says)
    old, new = await old_client(old_stage, version), await old_stage.client()
    session, _ = await old_stage.session(new)
    await old.subscribe(session)
    chat = chat_uri("a", session)
    await new.request("createChat", {"channel": session, "chat": chat})
    await old.subscribe(chat)
    await old.request("ping")
    seen = old.last_seq
    await new.subscribe(chat)
    await new.turn(chat, "hello")
    place = {"kind": "session", "session": session}
    await new.request("moveChat", {"channel": chat, "destination": place})
    await applied(new, chat, {"type": "chat/isReadChanged", "isRead": True})
    await old.request("ping")
    live = [each for each in old.actions if each["serverSeq"] > seen and each["channel"] != ROOT]
    kinds = [each["action"]["type"] for each in live]
    assert {"session/chatsReordered", "chat/isReadChanged"}.isdisjoint(kinds)
    assert {"chat/error", "session/chatUpdated"} <= set(kinds)
    await old.pipe.aclose()
    again = await old_stage.open.connect("old")
    again.states = {session: old.states[session], chat: old.states[chat]}
    result = await again.reconnect(seen, session, chat)
    assert result["type"] == "replay"
    assert result["actions"] == live
    await new.turn(chat, "more")
    await again.until(lambda: actions(again, "chat/turnComplete"))


async def test_a_reconnect_that_cannot_replay_shows_it_in_the_same_words(old_stage: Stage, version: str) -> None:
    old_stage.cast(fails)
    old, new = await old_client(old_stage, version), await old_stage.client()
    _, chat = await old_stage.session(new)
    await old.pipe.aclose()
    await new.turn(chat, "hello")
    again = await old_stage.open.connect("old")
    result = await again.reconnect(0, chat)
    assert result["type"] == "snapshot"
    assert result["snapshots"][0]["state"]["turns"][0]["error"]["message"] == "away"


async def test_a_refusal_of_what_came_later_reaches_who_asked(old_stage: Stage, version: str) -> None:
    old_stage.cast(says)
    old = await old_client(old_stage, version)
    _, chat = await old_stage.session(old)
    assert await outcome(old, chat, {"type": "chat/turnResume", "turnId": "none"})


async def test_a_refused_switch_comes_back_as_it_was_sent(old_stage: Stage) -> None:
    old = await old_client(old_stage, "0.7.0")
    session, _ = await old_stage.session(old, "echo")
    action = {"type": "session/customizationToggled", "id": "none", "enabled": True}
    echo = await old.outcome(await old.dispatch(session, action))
    assert "no customization none" in echo["rejectionReason"]
    assert echo["action"] == action


async def test_a_session_cannot_begin_as_the_fork_of_another(old_stage: Stage, version: str) -> None:
    old = await old_client(old_stage, version)
    session, _ = await old_stage.session(old, "echo")
    with pytest.raises(RequestFailed, match="fork") as failure:
        await old.create_session("echo", fork={"session": session, "turnId": "t"})
    assert failure.value.code == -32602


async def test_older_pages_of_turns(old_stage: Stage, version: str) -> None:
    old_stage.cast(fails)
    old = await old_client(old_stage, version)
    _, chat = await old_stage.session(old)
    for count, name in enumerate(("a", "b"), 1):
        await old.dispatch(chat, started(name))
        await until(lambda count=count: len(actions(old, "chat/error")) == count)  # type: ignore[misc]
    cursor = (await old.subscribe(chat, view={"turns": 1}))["turnsNextCursor"]
    await old.request("fetchTurns", {"channel": chat, "cursor": cursor})
    (page,) = actions(old, "chat/turnsLoaded")
    assert [turn["error"]["message"] for turn in page["turns"]] == ["away"]


async def test_present_clients_share_their_frames_beside_older_ones(old_stage: Stage) -> None:
    old_stage.cast(says)
    new, newer = await old_stage.client(), await old_stage.client()
    _, chat = await old_stage.session(new)
    await newer.subscribe(chat)
    for number, each in enumerate(("0.7.0", "0.7.0", "0.8.0")):
        await (await old_client(old_stage, each, f"old{number}")).subscribe(chat)
    await new.turn(chat, "hello")
    state = old_stage.open.host.state
    forms = [set(envelope.frames) for envelope in state._ring if envelope.channel == chat]
    assert {len(each) for each in forms} == {3}
    assert all("memory" in each for each in forms)


# -- held against the schema of 0.7 ----------------------------------------------------------------


class Schema:
    """The shapes of 0.7, as its own schema has them."""

    def __init__(self) -> None:
        import jsonschema_rs

        self._make = jsonschema_rs.validator_for
        self._files = {name: self._read(name) for name in ("state", "actions")}
        found = self._files["actions"]["$defs"]
        self.actions: dict[str, list[str]] = {}
        for name, shape in found.items():
            kind = shape.get("properties", {}).get("type", {}).get("const")
            if kind is not None and name.endswith("Action"):
                self.actions.setdefault(kind, []).append(name)

    @staticmethod
    def _read(name: str) -> Json:
        schema: Json = json.loads((SCHEMA / f"{name}.schema.json").read_text())
        for shape, member in NEVER_REQUIRED.items():
            if shape in schema["$defs"]:
                required = schema["$defs"][shape]["required"]
                schema["$defs"][shape]["required"] = [each for each in required if each != member]
        return schema

    def complaints(self, file: str, name: str, value: Any) -> Iterator[str]:
        schema = {"$ref": f"#/$defs/{name}", "$defs": self._files[file]["$defs"]}
        for error in self._make(schema).iter_errors(value):
            yield f"{name} {error.instance_path}: {error.message[:300]}"

    def check_action(self, action: Json) -> list[str]:
        """Why an action fits none of the shapes of its type."""
        wrong = [[*self.complaints("actions", name, action)] for name in self.actions.get(action["type"], ())]
        return min(wrong, key=len, default=[f"0.7 has no {action['type']}"])


@pytest.mark.skipif(not SCHEMA.is_dir(), reason="the schema of 0.7 is not at hand")
async def test_all_an_old_client_is_sent_fits_its_schema(old_stage: Stage) -> None:
    schema = Schema()
    old_stage.cast(everything, fails, says)
    old, new = await old_client(old_stage, "0.7.0"), await old_stage.client(client_id="new")
    session, chat = await old_stage.session(old)
    tools = [{"name": "look", "inputSchema": {"type": "object"}}]
    entry = {"clientId": "old", "tools": tools, "displayName": "Old"}
    await applied(old, session, {"type": "session/activeClientSet", "activeClient": entry})
    await old.dispatch(chat, started("one"))
    await old.until(lambda: old.states[session].get("inputNeeded"))
    answer = {"turnId": "one", "toolCallId": "call", "approved": True, "confirmed": "user-action"}
    await applied(old, chat, {"type": "chat/toolCallConfirmed", **answer})
    await old.until(lambda: [each["kind"] for each in old.states[session].get("inputNeeded", [])] == ["chatInput"])
    shown = [await old.subscribe(session), await old.subscribe(chat)]
    await applied(old, chat, {"type": "chat/inputCompleted", "requestId": "q", "response": "accept"})
    await old.finished(chat, "one")
    await new.subscribe(chat)
    await new.turn(chat, "fail")
    await old.request("createChat", {"channel": session, "chat": chat_uri("b", session)})
    await new.request(
        "moveChat",
        {"channel": chat_uri("b", session), "destination": {"kind": "session", "session": session}},
    )
    waiting = {"text": "later", "origin": {"kind": "user"}}
    await applied(old, chat, {"type": "chat/draftChanged", "draft": waiting})
    root = await old.subscribe(ROOT)
    states = [
        ("root", {key: root[key] for key in root if key != "config"}),
        ("session", shown[0]),
        ("chat", shown[1]),
        ("session", await old.subscribe(session)),
        ("chat", await old.subscribe(chat)),
    ]
    wrong = [said for kind, state in states for said in schema.complaints("state", STATES[kind], state)]
    for summary in (await old.request("listSessions"))["items"]:
        wrong += schema.complaints("state", "SessionSummary", summary)
    for envelope in old.actions:
        wrong += schema.check_action(envelope["action"])
        assert envelope.keys() <= {"channel", "action", "serverSeq", "origin", "rejectionReason"}
    assert wrong == [], "\n".join(wrong)
    assert {"chat/error", "session/inputNeededSet", "chat/inputRequested"} <= {
        envelope["action"]["type"] for envelope in old.actions
    }
