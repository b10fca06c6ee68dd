"""Root config: what clients see of the host's settings, and what becomes of what they push."""

from __future__ import annotations

import errno
import fcntl
import os
import runpy
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio
from ahpd import rootconfig
from ahpd.client import AhpClient
from ahpd.config import Config, Overrides
from ahpd.places import Places
from ahpd.plugins import Loader
from ahpd.registry import build
from ahpd.session.names import ROOT
from ahpd.state import State
from ahpd.testing import OpenHost, open_host

from ..conftest import Json, applied, outcome, until

install: Callable[..., None] = runpy.run_path(str(Path(__file__).with_name("installed.py")))["install"]

PLUGIN = """
from ahpd import ConfigKey, Tool, hookimpl

async def run(call):
    return ""

ACCOUNTS = {"type": "object", "additionalProperties": {"type": "object", "properties": {
    "user": {"type": "string"}, "password": {"type": "string", "writeOnly": True}}}}

@hookimpl
def ahpd_config_keys():
    return [
        ConfigKey("apiKey", {"type": "string"}, secret=True, applies="live"),
        ConfigKey("accounts", ACCOUNTS, applies="live"),
        ConfigKey("size", {"type": "integer", "minimum": 1}, 3),
        ConfigKey("vaultServers", ACCOUNTS, daemon=True, in_root=True, applies="session"),
        ConfigKey("worktreesRoot", {"type": "string"}, daemon=True, in_root=True),
        ConfigKey("lists", {"type": "array"}, daemon=True, in_root=True, applies="live"),
        ConfigKey("editor.tabs", {"type": "integer"}, 8, pushed=True),
        ConfigKey("editor.words", {"type": "array", "items": {"type": "string"}}, pushed=True),
        ConfigKey("editor.rules", {"type": "object"}, {}, pushed=True),
    ]

@hookimpl
def ahpd_tools():
    return [Tool("lamp", run)]
"""
OTHER = """
from ahpd import Tool, hookimpl

async def run(call):
    return ""

@hookimpl
def ahpd_tools():
    return [Tool("whistle", run)]
"""
NAMES = ["agent-echo", "session-tools", "rootlamp"]


@pytest.fixture(autouse=True)
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    install(tmp_path / "site", "root-lamp", {"rootlamp": PLUGIN})
    install(tmp_path / "site", "root-whistle", {"rootwhistle": OTHER})
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    yield tmp_path / "site"
    for name in ("rootlamp", "rootwhistle"):
        sys.modules.pop(name, None)


@pytest.fixture
async def host() -> AsyncIterator[OpenHost]:
    options = {"rootlamp": {"enabled": True}, "rootwhistle": {"enabled": False}}
    async with open_host(options=options) as opened:
        yield opened


def config(**values: Any) -> Json:
    return {"type": "root/configChanged", "config": values}


def push(values: Json, **more: Any) -> Json:
    return {"type": "root/configChanged", "config": values, **more}


def values_of(client: AhpClient) -> Json:
    values: Json = client.states[ROOT]["config"]["values"]
    return values


def file_of(host: OpenHost) -> Path:
    return host.host.config.writable


def echoes(client: AhpClient) -> list[Json]:
    return [entry["action"] for entry in client.actions if entry["action"]["type"] == "root/configChanged"]


def tool_changes(client: AhpClient) -> list[str]:
    return [e["channel"] for e in client.actions if e["action"]["type"] == "session/serverToolsChanged"]


async def ready_session(client: AhpClient) -> str:
    session = await client.create_session("echo")
    await client.until(lambda: client.states[session]["lifecycle"] != "creating")
    return session


async def root_of(host: OpenHost) -> Json:
    """The root state as a newcomer is shown it."""
    state: Json = (await host.client()).states[ROOT]
    return state


# What is shown


async def test_the_daemons_keys_are_there_and_those_of_its_doors_are_not(host: OpenHost) -> None:
    shown = (await root_of(host))["config"]
    for name in ("port", "host", "paths", "advancedTools", "sessionTools", "deferredTitleGeneration"):
        assert name in shown["schema"]["properties"]
    for name in ("connectionToken", "connectionTokenFile", "clientToolTimeoutMs", "worktreesRoot"):
        assert name not in shown["schema"]["properties"]
    assert shown["schema"]["properties"].keys() >= shown["values"].keys()
    assert shown["values"]["port"] == 9187
    assert shown["values"]["editor.tabs"] == 8
    assert "editor.words" not in shown["values"], "nobody brought one and it has no default"


async def test_every_configured_plugin_is_one_key(host: OpenHost) -> None:
    shown = (await root_of(host))["config"]
    assert shown["values"]["plugins.rootlamp"] == {"enabled": True, "options": {"size": 3}}
    assert shown["values"]["plugins.rootwhistle"] == {"enabled": False, "options": {}}
    assert shown["values"]["plugins.agent-echo"]["options"]["hostTools"] is True
    options = shown["schema"]["properties"]["plugins.rootlamp"]["properties"]["options"]["properties"]
    assert options["size"]["minimum"] == 1
    assert options["apiKey"]["writeOnly"] is True


async def test_a_key_shows_the_file_and_says_when_a_flag_wins() -> None:
    async with open_host(plugins=NAMES, settings={"advancedTools": False}) as host:
        shown = (await root_of(host))["config"]
        assert "which wins" in shown["schema"]["properties"]["plugins.rootlamp"]["description"]
        assert "which wins" not in shown["schema"]["properties"]["advancedTools"]["description"]


def test_a_flag_changes_what_runs_and_not_what_is_shown(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("port = 9300\nadvancedTools = true\n")
    typed = Overrides(settings={"port": "0"}, plugin_options=("rootlamp.size=7",), plugins=("rootlamp",))
    loader = Loader(Config.load(Places.from_environment({"AHPD_HOME": str(tmp_path)}), typed)).load_all()
    registry = build(loader, loader.config)
    shown = rootconfig.RootConfig(State({}), ROOT, registry.config).view(registry)
    assert registry.config.settings["port"] == 0
    assert (shown["values"]["port"], shown["values"]["advancedTools"]) == (9300, True)
    assert shown["values"]["plugins.rootlamp"]["options"]["size"] == 3
    described = {name: each.get("description", "") for name, each in shown["schema"]["properties"].items()}
    assert described["port"].endswith("This run was started with --port, which wins.")
    assert "which wins" not in described["advancedTools"]
    options = shown["schema"]["properties"]["plugins.rootlamp"]["properties"]["options"]["properties"]
    assert "--plugin-option, which wins" in options["size"]["description"]


# What is refused


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"nobodyDeclared": 1}, "nobodyDeclared is not a setting"),
        ({"advancedTools": True, "nobodyDeclared": 1}, "nobodyDeclared"),
        ({"editor.tabs": 2, "nobodyDeclared": 1}, "nobodyDeclared"),
        ({"advancedTools": "yes"}, "advancedTools must be true or false"),
        ({"editor.tabs": 2, "advancedTools": "yes"}, "advancedTools"),
        ({"editor.tabs": "two"}, "editor.tabs must be an integer"),
        ({"editor.words": ["a", 1]}, "editor.words must be a list of texts"),
        ({"port": 70000}, "port must be an integer between 0 and 65535"),
        ({"port": None}, "port must be"),
        ({"connectionToken": "mine"}, "connectionToken is not a setting"),
        ({"worktreesRoot": "/tmp"}, "worktreesRoot is not a setting"),
        ({"plugins.nobody": {"enabled": True}}, "plugins.nobody is not a setting"),
        ({"plugins.rootlamp": True}, "plugins.rootlamp must be a table"),
        ({"plugins.rootlamp": {"enabled": 1}}, "plugins.rootlamp.enabled must be true or false"),
        ({"plugins.rootlamp": {"on": True}}, "plugins.rootlamp.on is not"),
        ({"plugins.rootlamp": {"options": {"size": 0}}}, "plugins.rootlamp.options.size must be an integer of at"),
        ({"plugins.rootlamp": {"options": {"sise": 2}}}, "sise is not an option rootlamp knows"),
        ({"plugins.rootlamp": {"options": []}}, "plugins.rootlamp.options must be a table"),
        ({"plugins.rootwhistle": {"options": {"loud": True}}}, "rootwhistle is not loaded"),
        ({rootconfig.RESTART: False}, "is the host's to say"),
        ({"lists": [None]}, "lists cannot be written to"),
    ],
)
async def test_a_push_is_refused_whole(host: OpenHost, values: Json, named: str) -> None:
    alice = await host.client()
    before, file = alice.states[ROOT], file_of(host).read_text()
    reason = await outcome(alice, ROOT, push(values))
    assert reason is not None
    assert named in reason
    assert alice.states[ROOT] == before == await root_of(host)
    assert file_of(host).read_text() == file
    assert host.host.config.settings["advancedTools"] is False


async def test_a_refusal_is_told_to_nobody_else(host: OpenHost) -> None:
    alice, bob = await host.client(), await host.client()
    assert await outcome(alice, ROOT, config(nobodyDeclared=1))
    await bob.request("ping")
    assert echoes(bob) == []


async def test_a_file_that_cannot_be_written_refuses_the_push(
    host: OpenHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice = await host.client()

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    file = file_of(host).read_text()
    reason = await outcome(alice, ROOT, push({"advancedTools": True, "editor.tabs": 2}))
    assert reason is not None
    assert "advancedTools cannot be changed" in reason
    assert "No space left on device" in reason
    assert values_of(alice)["editor.tabs"] == 8
    assert host.host.config.settings["advancedTools"] is False
    assert file_of(host).read_text() == file
    monkeypatch.undo()
    await applied(alice, ROOT, config(advancedTools=True))


async def test_a_file_that_is_wrong_already_refuses_the_push(host: OpenHost) -> None:
    alice = await host.client()
    file_of(host).write_text("port = 'many'\n")
    reason = await outcome(alice, ROOT, config(advancedTools=True))
    assert reason is not None
    assert "port must be an integer" in reason
    assert file_of(host).read_text() == "port = 'many'\n"


async def test_somebody_elses_lock_holds_the_host_up_no_longer_than_a_moment(host: OpenHost) -> None:
    alice = await host.client()
    descriptor = os.open(file_of(host).parent, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        reason = await outcome(alice, ROOT, config(advancedTools=True))
        assert reason is not None
        assert "another command is writing" in reason
    finally:
        os.close(descriptor)
    await applied(alice, ROOT, config(advancedTools=True))


async def test_a_second_file_that_wins_refuses_the_push(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    second = tmp_path / "second.toml"
    second.write_text("advancedTools = false\n")
    monkeypatch.setenv("AHPD_CONFIG", str(second))
    async with open_host() as host:
        alice = await host.client()
        reason = await outcome(alice, ROOT, config(advancedTools=True))
        assert reason is not None
        assert "second.toml says otherwise" in reason
        assert "advancedTools" not in file_of(host).read_text()
        await applied(alice, ROOT, config(advancedTools=False))


# What is written


async def test_comments_and_what_nobody_knows_stay_in_the_file(host: OpenHost) -> None:
    alice = await host.client()
    written = """# why
advancedTools = false  # not yet
ourOwn = [1, 2]  # somebody else's

[plugins.rootlamp]
enabled = true
# how many
size = 4
"""
    file_of(host).write_text(written)
    await applied(alice, ROOT, push({"advancedTools": True, "plugins.rootlamp": {"options": {"size": 5}}}))
    expected = written.replace("advancedTools = false", "advancedTools = true").replace("size = 4", "size = 5")
    assert file_of(host).read_text() == expected
    assert host.host.config.settings["advancedTools"] is True
    assert values_of(alice)["plugins.rootlamp"]["options"]["size"] == 5


async def test_a_json_file_is_written_as_one(tmp_path: Path) -> None:
    async with open_host() as host:
        file = file_of(host)
        file.unlink()
        file.with_suffix(".json").write_text('{"ourOwn": 1}')
        alice = await host.client()
        await applied(alice, ROOT, config(advancedTools=True))
        assert '"advancedTools": true' in file.with_suffix(".json").read_text()
        assert not file.exists()


async def test_what_changes_nothing_is_echoed_and_not_written(host: OpenHost) -> None:
    alice = await host.client()
    about = file_of(host).stat()
    await applied(alice, ROOT, config(deferredTitleGeneration=False, port=9187, paths=[]))
    assert [action["config"] for action in echoes(alice)] == [
        {"deferredTitleGeneration": False, "port": 9187, "paths": []}
    ]
    assert file_of(host).stat().st_mtime_ns == about.st_mtime_ns


async def test_it_is_on_disk_before_anybody_hears(host: OpenHost, monkeypatch: pytest.MonkeyPatch) -> None:
    alice, order = await host.client(), []
    sync, deliver = os.fsync, host.host.state.dispatch

    def synced(descriptor: int) -> None:
        order.append("disk")
        sync(descriptor)

    def told(*args: Any) -> Any:
        order.append("told")
        return deliver(*args)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(host.host.state, "dispatch", told)
    await applied(alice, ROOT, config(advancedTools=True))
    assert order == ["disk", "disk", "told"], "the file, its folder, then everybody"


# When it holds


async def test_each_session_that_changed_is_told_once_and_no_other(host: OpenHost) -> None:
    alice, bob = await host.client(), await host.client()
    first, second = await ready_session(alice), await ready_session(bob)
    await applied(alice, ROOT, push({"sessionTools": False}))
    await until(lambda: tool_changes(bob))
    await applied(bob, ROOT, push({"sessionTools": False, "editor.tabs": 1}))
    await applied(bob, ROOT, push({"sessionToolsProviders": ["echo"]}))
    await alice.request("ping")
    assert tool_changes(alice) == [first]
    assert tool_changes(bob) == [second]
    await applied(bob, ROOT, push({"sessionTools": True, "sessionToolsProviders": ["somebody"]}))
    await applied(bob, ROOT, push({"sessionToolsProviders": ["echo"]}))
    await alice.request("ping")
    assert tool_changes(alice) == [first, first], "neither push changed a tool but the last"
    kinds = [entry["action"]["type"] for entry in alice.actions if entry["channel"] in (ROOT, first)]
    assert kinds.index("root/configChanged") < kinds.index("session/serverToolsChanged")


async def test_what_waits_for_a_restart_is_written_and_said(host: OpenHost) -> None:
    alice, bob = await host.client(), await host.client()
    assert values_of(bob)[rootconfig.RESTART] is False
    paths = host.host.config.settings["paths"]
    await applied(alice, ROOT, config(port=9200, paths=["/elsewhere"]))
    await bob.until(lambda: values_of(bob)[rootconfig.RESTART] is True)
    assert [action["config"] for action in echoes(bob)] == [
        {"port": 9200, "paths": ["/elsewhere"], rootconfig.RESTART: True}
    ]
    shown = await root_of(host)
    assert shown["_meta"][rootconfig.RESTART] is True
    assert shown["config"]["values"]["port"] == 9200, "as the file has it"
    assert "port = 9200" in file_of(host).read_text()
    assert host.host.config.settings["port"] == 9187, "this run goes on as it began"
    assert host.host.config.settings["paths"] == paths
    await host.host.reload()
    assert host.host.config.settings["port"] == 9187
    await applied(alice, ROOT, config(port=9187, paths=[]))
    await bob.until(lambda: values_of(bob)[rootconfig.RESTART] is False)
    assert rootconfig.RESTART not in (await root_of(host)).get("_meta", {})


async def test_a_plugin_that_decides_at_a_start_alone_waits_for_the_next_one(host: OpenHost) -> None:
    bob = await host.client()
    host.host.root.tell(replace(host.registry, undecided=("rootlamp",)))
    await bob.until(lambda: values_of(bob)[rootconfig.RESTART] is True)
    host.host.root.tell(host.registry)
    await bob.until(lambda: values_of(bob)[rootconfig.RESTART] is False)


async def test_an_option_that_waits_for_a_restart_says_so_too(host: OpenHost) -> None:
    alice = await host.client()
    await applied(alice, ROOT, push({"plugins.rootlamp": {"options": {"apiKey": "k"}}}))
    assert values_of(alice)[rootconfig.RESTART] is False
    await applied(alice, ROOT, push({"plugins.rootlamp": {"options": {"size": 9}}}))
    assert values_of(alice)[rootconfig.RESTART] is True


async def test_a_sessions_key_reaches_the_sessions_opened_later(host: OpenHost) -> None:
    alice = await host.client()
    before = await alice.create_session("echo")
    await applied(alice, ROOT, config(deferredTitleGeneration=True))
    after = await alice.create_session("echo")
    strategies = {uri: host.host.sessions.by_uri[uri].strategy for uri in (before, after)}
    assert strategies == {before: "activeAgent", after: "deferred"}
    assert values_of(alice)[rootconfig.RESTART] is False


async def test_plugins_are_switched_while_the_host_runs(host: OpenHost) -> None:
    alice, bob = await host.client(), await host.client()
    session = await ready_session(alice)

    def offered() -> set[str]:
        return {tool["name"] for tool in alice.states[session].get("serverTools", [])}

    assert "lamp" in offered()
    await applied(alice, ROOT, push({"plugins.rootlamp": {"enabled": False}}))
    await alice.until(lambda: "lamp" not in offered())
    await bob.until(lambda: "editor.tabs" not in values_of(bob))
    assert values_of(bob)["plugins.rootlamp"]["enabled"] is False
    await applied(bob, ROOT, push({"plugins.rootwhistle": {"enabled": True}}))
    await alice.until(lambda: "whistle" in offered())
    assert tool_changes(alice) == [session, session]
    assert "[plugins.rootwhistle]\nenabled = true" in file_of(host).read_text()
    await alice.request("ping")
    assert values_of(alice) == values_of(bob) == (await root_of(host))["config"]["values"]


async def test_a_plugin_that_is_not_installed_is_not_enabled() -> None:
    async with open_host(options={"gone": {"enabled": False}}) as host:
        alice = await host.client()
        reason = await outcome(alice, ROOT, push({"plugins.gone": {"enabled": True}}))
        assert reason is not None
        assert "plugins.gone cannot be enabled: it is missing" in reason


# What clients bring


async def test_what_a_client_brings_is_read_by_all_and_kept_in_no_file(host: OpenHost) -> None:
    alice, bob = await host.client(), await host.client()
    file = file_of(host).read_text()
    await applied(alice, ROOT, push({"editor.tabs": 2, "editor.rules": {"a": 1}}))
    await applied(alice, ROOT, push({"editor.rules": {"b": 2}}))
    await bob.until(lambda: values_of(bob)["editor.rules"] == {"b": 2})
    assert values_of(bob)["editor.tabs"] == 2
    await host.host.reload()
    assert (await root_of(host))["config"]["values"]["editor.tabs"] == 2
    assert file_of(host).read_text() == file
    assert "editor.tabs" not in host.host.config.settings


async def test_a_replacement_takes_back_what_clients_brought_and_nothing_of_the_file(host: OpenHost) -> None:
    alice, bob = await host.client(), await host.client()
    await applied(alice, ROOT, push({"editor.tabs": 2, "editor.words": ["a"], "advancedTools": True}))
    await applied(alice, ROOT, push({"editor.words": ["b"]}, replace=True))
    await bob.until(lambda: values_of(bob).get("editor.words") == ["b"])
    assert values_of(bob)["editor.tabs"] == 8
    assert values_of(bob)["advancedTools"] is True
    assert "advancedTools = true" in file_of(host).read_text()
    await applied(alice, ROOT, push({}, replace=True))
    assert "editor.words" not in values_of(alice)
    assert values_of(alice) == (await root_of(host))["config"]["values"]


async def test_two_clients_at_once_are_taken_in_one_order(host: OpenHost) -> None:
    clients = [await host.client() for _ in range(2)]

    async def hurry(client: AhpClient, start: int) -> None:
        for number in range(start, start + 30):
            await client.dispatch(ROOT, push({"editor.tabs": number, "advancedTools": number % 2 == 0}))

    async with trio.open_nursery() as nursery:
        for index, client in enumerate(clients):
            nursery.start_soon(hurry, client, index * 100)
    await until(lambda: all(len(echoes(client)) == 60 for client in clients))
    seen = [[action["config"]["editor.tabs"] for action in echoes(client)] for client in clients]
    assert seen[0] == seen[1]
    assert sorted(seen[0]) == [*range(30), *range(100, 130)]
    for start in (0, 100):
        assert [number for number in seen[0] if number // 100 * 100 == start] == list(range(start, start + 30))
    assert values_of(clients[0])["editor.tabs"] == seen[0][-1]
    assert host.host.config.settings["advancedTools"] is (seen[0][-1] % 2 == 0)


# Secrets


SECRETS = ("key-one", "key-two", "word-ana", "word-bo", "word-new")


def everything(client: AhpClient) -> str:
    return repr((client.states, client.actions))


async def test_secrets_are_never_sent_and_come_back_as_they_went(host: OpenHost) -> None:
    alice, bob = await host.client(), await host.client()
    accounts = {"ana": {"user": "a", "password": "word-ana"}, "bo": {"user": "b", "password": "word-bo"}}
    options = {"apiKey": "key-one", "accounts": accounts}
    await applied(alice, ROOT, push({"plugins.rootlamp": {"options": options}, "vaultServers": accounts}))
    shown = values_of(alice)["plugins.rootlamp"]["options"]
    assert shown["apiKey"] == "<set>"
    assert shown["accounts"]["ana"] == {"user": "a", "password": "<set>"}
    assert values_of(alice)["vaultServers"]["bo"] == {"user": "b", "password": "<set>"}
    changed = {"ana": {"user": "anna", "password": "<set>"}, "bo": {"password": "word-new"}}
    back = {"apiKey": "<set>", "accounts": changed, "size": 3}
    await applied(bob, ROOT, push({"plugins.rootlamp": {"options": back}, "vaultServers": {"ana": None}}))
    held = host.host.registry.config.held
    assert held(("plugins", "rootlamp", "apiKey")) == "key-one"
    assert held(("plugins", "rootlamp", "accounts")) == {
        "ana": {"user": "anna", "password": "word-ana"},
        "bo": {"user": "b", "password": "word-new"},
    }
    assert held(("vaultServers",)) == {"bo": {"user": "b", "password": "word-bo"}}
    await applied(bob, ROOT, push({"plugins.rootlamp": {"options": {"apiKey": None}}}))
    assert "apiKey" not in file_of(host).read_text()
    assert "apiKey" not in values_of(bob)["plugins.rootlamp"]["options"]
    await alice.request("ping")
    told = everything(alice) + everything(bob) + repr(await root_of(host))
    assert not [secret for secret in SECRETS if secret in told]


async def test_a_wrong_value_beside_a_secret_does_not_say_it(host: OpenHost) -> None:
    alice = await host.client()
    reason = await outcome(alice, ROOT, push({"plugins.rootlamp": {"options": {"apiKey": 12345678}}}))
    assert reason == "plugins.rootlamp.options.apiKey must be text"


async def test_nothing_is_shown_of_a_plugin_that_is_not_loaded() -> None:
    async with open_host(options={"rootwhistle": {"enabled": False, "apiKey": "key-one", "size": 4}}) as host:
        alice = await host.client()
        assert values_of(alice)["plugins.rootwhistle"]["options"] == {"apiKey": "<set>", "size": "<set>"}
        await applied(alice, ROOT, push({"plugins.rootwhistle": {"options": {"apiKey": "<set>"}}}))
        assert "key-one" in file_of(host).read_text()


async def test_an_option_nobody_declares_is_not_shown() -> None:
    async with open_host(options={"rootlamp": {"enabled": True, "apiKye": "key-one"}}) as host:
        assert "key-one" not in repr(await root_of(host))
