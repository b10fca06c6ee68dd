"""What a connection answers to frames, versions and params, good and bad."""

from __future__ import annotations

import json
import resource
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from ahpd.session.names import ROOT

if TYPE_CHECKING:
    from .conftest import Daemon, Raw, Reachable


async def hello(raw: Raw, *versions: Any, **more: Any) -> dict[str, Any]:
    return await raw.ask("initialize", protocolVersions=list(versions), clientId="c", **more)


async def test_the_highest_version_that_is_served_is_chosen_and_others_are_refused_in_words(
    shared: Reachable,
) -> None:
    raw = await shared.raw()
    error = (await hello(raw, "0.7.0", "2.0.0"))["error"]
    assert error["code"] == -32005
    assert error["data"]["supportedVersions"] == ["^1.0.0", "^0.9.0"]
    assert "0.7.0" in error["message"]
    answer = await hello(raw, "0.7.0", "0.9.0", "1.0.3", "1.0.0", "3.1.4")
    assert answer["result"]["protocolVersion"] == "1.0.3"


@pytest.mark.parametrize("bad", ["abc", "1.0", "", "^0.9.0", "01.0.0", "1.0.0-rc1"])
async def test_a_malformed_version_is_a_wrong_param(shared: Reachable, bad: str) -> None:
    raw = await shared.raw()
    error = (await hello(raw, "1.0.0", bad))["error"]
    assert error["code"] == -32602
    assert "protocolVersions" in error["message"]
    assert "result" in await hello(raw, "1.0.0")


async def test_a_second_initialize_or_reconnect_is_no_valid_request(shared: Reachable) -> None:
    raw = await shared.raw()
    await hello(raw, "1.0.0")
    assert (await hello(raw, "1.0.0"))["error"]["code"] == -32600
    again = await raw.ask("reconnect", clientId="c", subscriptions=[], lastSeenServerSeq=0)
    assert again["error"]["code"] == -32600
    assert "result" in await raw.ask("listSessions", channel=ROOT)


async def test_before_initialize_only_a_ping_is_served(shared: Reachable) -> None:
    raw = await shared.raw()
    assert await raw.ask("ping") == {"jsonrpc": "2.0", "id": 1, "result": None}
    for method in ("listSessions", "subscribe", "createSession", "dispatchAction", "nonsense"):
        code, _ = await raw.refused(method, channel=ROOT)
        assert code == -32601
    assert "result" in await hello(raw, "1.0.0")


@pytest.mark.parametrize(
    "method", ["shutdown", "vscode/collectAgentHostDebugLogs", "createTcpConnection", "", "__init__"]
)
async def test_an_unknown_method_is_said_to_be_unknown(shared: Reachable, method: str) -> None:
    raw = await shared.raw()
    await hello(raw, "1.0.0")
    assert (await raw.refused(method))[0] == -32601


async def test_notifications_as_requests_are_unknown_and_unknown_notifications_are_nothing(
    shared: Reachable,
) -> None:
    raw = await shared.raw()
    await hello(raw, "1.0.0")
    assert (await raw.refused("unsubscribe", channel=ROOT))[0] == -32601
    assert (await raw.refused("dispatchAction", channel=ROOT, clientSeq=1, action={"type": "x"}))[0] == -32601
    await raw.pipe.send(b'{"jsonrpc": "2.0", "method": "setClientManagedSettingsPermissions", "params": {}}')
    assert (await raw.ask("ping"))["result"] is None


@pytest.mark.parametrize(
    ("method", "params", "field"),
    [
        ("initialize", {"clientId": "c"}, "protocolVersions"),
        ("initialize", {"protocolVersions": ["1.0.0"]}, "clientId"),
        ("initialize", {"protocolVersions": "1.0.0", "clientId": "c"}, "protocolVersions"),
        ("initialize", {"protocolVersions": [], "clientId": "c"}, "protocolVersions"),
        ("subscribe", {}, "channel"),
        ("subscribe", {"channel": 7}, "channel"),
        ("subscribe", {"channel": "no scheme"}, "channel"),
        ("createSession", {"channel": "echo:/"}, "channel"),
        ("createSession", {"channel": "ahp-root://"}, "channel"),
        ("createSession", {"channel": "ahp-chat:/x"}, "channel"),
        ("createSession", {"channel": "echo:/wrong", "config": {"voice": "hoarse"}}, "config.voice"),
        ("createSession", {"channel": "echo:/wrong", "activeClient": {"tools": []}}, "activeClient.clientId"),
        ("createChat", {"channel": "echo:/x"}, "chat"),
        ("listSessions", {"limit": 0}, "limit"),
        ("listSessions", {"limit": "many"}, "limit"),
        ("listSessions", {"cursor": "made up"}, "cursor"),
        ("listSessions", {"cursor": "zz echo:/x"}, "cursor"),
        ("fetchTurns", {"channel": "x:/y", "cursor": 1}, "cursor"),
        ("resolveSessionConfig", {"provider": "nobody"}, "provider"),
    ],
)
async def test_a_wrong_param_is_named_and_nothing_of_the_inside_is_shown(
    shared: Reachable, method: str, params: dict[str, Any], field: str
) -> None:
    raw = await shared.raw()
    if method != "initialize":
        await hello(raw, "1.0.0")
    code, said = await raw.refused(method, **params)
    assert code == -32602
    assert field in said
    assert "Traceback" not in said
    assert ".py" not in said
    assert str(shared.home.root) not in said


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("subscribe", {"channel": "echo:/none"}, -32001),
        ("subscribe", {"channel": "ahp-session:/none"}, -32001),
        ("subscribe", {"channel": "ahp-chat://default/bm9uZQ"}, -32001),
        ("subscribe", {"channel": "ahp-terminal:/none"}, -32008),
        ("fetchTurns", {"channel": "ahp-chat:/none"}, -32001),
        ("createSession", {"channel": "x:/y", "provider": "nobody"}, -32002),
        ("disposeSession", {"channel": "echo:/none"}, -32001),
        ("createChat", {"channel": "echo:/none", "chat": "ahp-chat:/a"}, -32001),
        ("disposeChat", {"channel": "ahp-chat:/none"}, -32001),
    ],
)
async def test_what_is_not_there_has_its_code(
    shared: Reachable, method: str, params: dict[str, Any], code: int
) -> None:
    raw = await shared.raw()
    await hello(raw, "1.0.0")
    assert (await raw.refused(method, **params))[0] == code


@pytest.mark.parametrize(
    "junk", [b"{nope", b"", b"[1, 2", b"\x00", b'{"jsonrpc": "2.0", "id": 1, "method": "ping"']
)
async def test_no_json_is_a_parse_error_and_the_connection_goes_on(shared: Reachable, junk: bytes) -> None:
    raw = await shared.raw()
    answer = await raw.say(junk)
    assert (answer["id"], answer["error"]["code"]) == (None, -32700)
    assert "result" in await hello(raw, "1.0.0")
    assert (await raw.say(junk))["error"]["code"] == -32700
    assert (await raw.ask("ping"))["result"] is None


async def test_deep_json_is_refused_and_the_connection_goes_on(shared: Reachable) -> None:
    raw = await shared.raw()
    deep = b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"a": ' + b"[" * 5000 + b"]" * 5000 + b"}}"
    assert (await raw.say(deep))["error"]["code"] == -32700
    assert (await raw.ask("ping"))["result"] is None


async def test_ids_may_be_numbers_or_strings(shared: Reachable) -> None:
    raw = await shared.raw()
    for given in (0, -5, "seven", 2**40):
        answer = await raw.say(json.dumps({"jsonrpc": "2.0", "id": given, "method": "ping"}).encode())
        assert answer == {"jsonrpc": "2.0", "id": given, "result": None}


async def test_a_session_that_was_disposed_is_gone_for_the_very_next_request(shared: Reachable) -> None:
    raw = await shared.raw()
    await hello(raw, "1.0.0")
    session = f"echo:/{uuid4()}"
    await raw.ask("createSession", channel=session, provider="echo")
    assert (await raw.refused("createSession", channel=session, provider="echo"))[0] == -32003
    dispose = {"jsonrpc": "2.0", "id": 2, "method": "disposeSession", "params": {"channel": session}}
    await raw.pipe.send(json.dumps(dispose).encode())
    answers = [await raw.say({"jsonrpc": "2.0", "id": 3, "method": "listSessions"})]
    answers.append(json.loads(await raw.pipe.receive()))
    disposed, listed = sorted(answers, key=lambda answer: int(answer["id"]))
    assert disposed["result"] is None
    assert session not in [row["resource"] for row in listed["result"]["items"]]
    assert "result" in await raw.ask("createSession", channel=session, provider="echo")


async def test_a_daemon_takes_the_descriptors_it_may_have(start: Any) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        daemon: Daemon = await start()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE)[0] > 256
    assert await daemon.stop() == 0
