"""`ahpd.registry`: asked one by one, checked, clashes named, frozen."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest
from ahpd import ConfigKey, ControlVerb, Method, Model, Tool, ToolCall, hookimpl
from ahpd.config import Config, Overrides
from ahpd.errors import ConfigError, StartError
from ahpd.plugins import Discovery, Found, Loader, Status, read_cache
from ahpd.registry import Registry, build, changes


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AHPD_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("AHPD_CONFIG", raising=False)


async def run(call: ToolCall) -> str:
    return "ran"


def tool(name: str, **more: Any) -> Tool:
    return Tool(name, run, **more)


class Limit:
    def __init__(self, name: str) -> None:
        self.name = name

    def check(self, call: ToolCall) -> str | None:
        return None

    def charge(self, call: ToolCall) -> None: ...

    def refund(self, call: ToolCall) -> None: ...


class Agent:
    def __init__(self, provider: str) -> None:
        self.provider = self.display_name = self.description = provider

    def models(self) -> list[Any]:
        return []

    def settings(self) -> dict[str, Any]:
        return {}

    def capabilities(self) -> dict[str, Any]:
        return {}

    async def open(self, start: Any) -> Any: ...

    async def past(self) -> Any: ...


def returning(value: Any) -> Callable[..., Any]:
    return lambda: value


def module(**hooks: Any) -> object:
    """A plugin whose hooks return (or, when given something to call, do) what is said here."""
    made = types.ModuleType("made_up")
    for name, value in hooks.items():
        function = value if callable(value) else returning(value)
        setattr(made, f"ahpd_{name}", hookimpl(function))
    return made


def loaded(text: str = "", /, **plugins: object) -> Loader:
    """A loader that holds these modules as if they had been imported from distributions."""
    config = Config.load(overrides=Overrides(plugins=tuple(plugins), plugin_options=tuple(text.split())))
    found = {name: (Found(name, name, f"dist-{name}", "1.0"),) for name in plugins}
    loader = Loader(config, Discovery(found))
    for name, made in plugins.items():
        add(loader, name, made)
    return loader


def add(loader: Loader, name: str, made: object) -> None:
    loader.manager.register(made, name=name)
    loader.modules[name], loader.statuses[name] = made, Status("ready")


def built(**plugins: object) -> Registry:
    loader = loaded(**plugins)
    return build(loader, loader.config)


def names(registry: Registry) -> list[tuple[str, str]]:
    return [(registered.plugin, registered.tool.name) for registered in registry.tools]


def test_everything_is_attributed_and_in_order() -> None:
    registry = built(
        zz=module(tools=[tool("b"), tool("a")], limits=[Limit("l")]),
        aa=module(tools=lambda: (tool(name) for name in ("d", "c")), agents=[Agent("x")]),
    )
    assert names(registry) == [("aa", "d"), ("aa", "c"), ("zz", "b"), ("zz", "a")]
    assert [(plugin, limit.name) for plugin, limit in registry.limits] == [("zz", "l")]
    assert [(provider, plugin) for provider, (plugin, _) in registry.agents.items()] == [("x", "aa")]
    assert registry.problems == {}
    assert [row["provides"]["tools"] for row in registry.rows()] == [["d", "c"], ["b", "a"]]


def test_the_default_list_comes_first() -> None:
    first = Config.load().default_plugins[-1]
    registry = built(**{"aa": module(tools=[tool("a")]), first: module(tools=[tool("z")])})
    assert names(registry) == [(first, "z"), ("aa", "a")]


def test_hooks_get_the_arguments_they_name() -> None:
    def tools(config: Any) -> list[Tool]:
        return [tool(f"{config.name}_{config.options['kind']}_{config.settings['port']}")]

    keys = [ConfigKey("kind", {"type": "string"}, "plain")]
    registry = built(dice=module(tools=tools, config_keys=keys))
    assert names(registry) == [("dice", "dice_plain_9187")]


def boom() -> Any:
    raise RuntimeError("in the hook")


def leave() -> Any:
    raise SystemExit(1)


def halfway() -> Iterator[Tool]:
    yield tool("first")
    raise RuntimeError("halfway")


def endless() -> Iterator[Tool]:
    while True:
        yield tool("again")


async def waiting(call: ToolCall) -> list[Tool]:
    return []


def plain(call: ToolCall) -> str:
    return ""


@pytest.mark.parametrize(
    ("hooks", "words"),
    [
        ({"tools": boom}, "RuntimeError: in the hook"),
        ({"tools": leave}, "SystemExit"),
        ({"tools": halfway}, "halfway"),
        ({"tools": endless}, "more than 1000"),
        ({"limits": boom}, "in the hook"),
        ({"agents": boom}, "in the hook"),
        ({"config_keys": boom}, "in the hook"),
        ({"tools": None}, "ahpd_tools must return a list of Tool, not None"),
        ({"tools": 3}, "not a int"),
        ({"tools": "abc"}, "one item is a str"),
        ({"tools": [Tool]}, "one item is a type"),
        ({"tools": lambda: waiting(None)}, "to await"),  # type: ignore[arg-type]
        ({"limits": [Limit]}, "one item"),
        ({"limits": [object()]}, "one item is a object"),
        ({"agents": [object()]}, "one item is a object"),
        ({"config_keys": [{"name": "x"}]}, "one item is a dict"),
        ({"tools": [tool("two words")]}, "'two words'"),
        ({"tools": [tool("x" * 65)]}, "64"),
        ({"tools": [tool("a"), tool("a")]}, "the tool a twice"),
        ({"tools": [Tool("slow", plain)]}, "slow has a run that is not an async function"),  # type: ignore[arg-type]
        ({"tools": [tool("t", schema={"type": "strng"})]}, "the tool t is not valid: type"),
        ({"tools": [tool("t", schema={"anyOf": [{"type": "object"}]})]}, "anyOf is not allowed"),
        ({"tools": [tool("t", schema={"type": "object", "oneOf": [{}]})]}, "oneOf is not allowed"),
        ({"tools": [tool("t", schema={"type": "array"})]}, "type"),
        ({"tools": [tool("t", schema={})]}, "type"),
        ({"tools": [tool("t", parameters={"n": {"type": "int"}})]}, "properties/n/type"),
        ({"tools": [tool("t", parameters={"n": {"$ref": "http://x.example/"}})]}, "x.example"),
        ({"agents": [Agent("Upper")]}, "'Upper'"),
        ({"agents": [Agent("file")]}, "file"),
        ({"agents": [Agent("ahp-chat")]}, "ahp-chat"),
        ({"agents": [Agent("a"), Agent("a")]}, "the agent a twice"),
        ({"config_keys": [ConfigKey("port", {}, daemon=True)]}, "port is ahpd's own"),
        ({"config_keys": [ConfigKey("enabled", {})]}, "enabled is ahpd's own"),
        ({"config_keys": [ConfigKey("x", {"type": "nothing"})]}, "schema of the setting x"),
        ({"config_keys": [ConfigKey("a b", {})]}, "'a b'"),
    ],
)
def test_a_wrong_declaration_drops_that_plugin_whole(hooks: dict[str, Any], words: str) -> None:
    others: dict[str, Any] = {name: [] for name in ("limits",) if name not in hooks}
    if "tools" not in hooks:
        others["tools"] = [tool("lost_too")]
    registry = built(bad=module(**others, **hooks), good=module(tools=[tool("kept")]))
    assert names(registry) == [("good", "kept")]
    assert registry.statuses["bad"].state == "error"
    assert words in registry.problems["bad"]
    assert not registry.loader.manager.has_plugin("bad")


def test_every_bad_tool_is_named() -> None:
    bad = [tool("one", schema={"anyOf": []}), tool("fine"), tool("two", schema={"type": "strng"})]
    reason = built(bad=module(tools=bad)).problems["bad"]
    assert "the tool one " in reason
    assert "the tool two " in reason
    assert "fine" not in reason


def test_a_missing_option_is_unconfigured() -> None:
    def tools(config: Any) -> list[Tool]:
        config.require("key")
        return []

    status = built(needs=module(tools=tools)).statuses["needs"]
    assert (status.state, status.reason) == ("unconfigured", "plugins.needs.key must be set")
    assert status.next == "ahpd config set plugins.needs.key VALUE"


def test_a_required_plugin_that_is_not_ready_stops_the_start() -> None:
    loader = loaded("bad.required=true", bad=module(tools=boom))
    with pytest.raises(StartError, match=r"plugin bad is required and is error: .*in the hook"):
        build(loader, loader.config)


def test_a_wrong_setting_stops_the_start() -> None:
    keys = [ConfigKey("sides", {"type": "integer"}, 6)]
    loader = loaded("dice.sides=many", dice=module(config_keys=keys))
    with pytest.raises(ConfigError, match=r"plugins.dice.sides must be an integer"):
        build(loader, loader.config)
    assert build(loader, loader.config, strict=False).contributions["dice"].keys == tuple(keys)


# Clashes


def test_a_clash_names_both_and_uses_neither() -> None:
    registry = built(
        one=module(tools=[tool("lookup"), tool("mine")], agents=[Agent("x")]),
        two=module(tools=[tool("lookup"), tool("ours")], agents=[Agent("x"), Agent("y")]),
        three=module(tools=[tool("other")]),
    )
    assert [name for _, name in names(registry)] == ["mine", "other", "ours"]
    assert list(registry.agents) == ["y"]
    for plugin in ("one", "two"):
        assert registry.statuses[plugin].state == "error"
        assert "the tool lookup is declared by one and two; neither is used" in registry.problems[plugin]
        assert "the agent x is declared by one and two" in registry.problems[plugin]
    assert registry.statuses["three"].state == "ready"
    assert registry.rivals == {"one": frozenset({"two"}), "two": frozenset({"one"})}


def test_a_clash_of_settings() -> None:
    shared = ConfigKey("shared", {"type": "boolean"}, True, daemon=True)
    registry = built(
        one=module(config_keys=[shared, ConfigKey("own", {}, 1)]),
        two=module(config_keys=[shared, ConfigKey("own", {}, 2)]),
    )
    assert "shared" not in registry.config.settings
    assert registry.config.plugin("two").options == {"own": 2}, "options are each plugin's own"
    assert set(registry.problems) == {"one", "two"}


def test_a_clash_ends_with_the_other_plugin() -> None:
    loader = loaded(one=module(tools=[tool("lookup")]), two=module(tools=[tool("lookup")]))
    first = build(loader, loader.config)
    loader.unload("two")
    second = build(loader, loader.config, first)
    assert names(second) == [("one", "lookup")]
    assert second.problems == {}


# Again, in a running host


def test_who_stayed_is_not_asked_again() -> None:
    asked: list[str] = []

    def tools() -> list[Tool]:
        asked.append("tools")
        return [tool("kept")]

    def keys() -> list[ConfigKey]:
        asked.append("keys")
        return []

    loader = loaded(one=module(tools=tools, config_keys=keys))
    first = build(loader, loader.config)
    add(loader, "two", module(tools=[tool("new")]))
    second = build(loader, loader.config, first)
    assert asked == ["keys", "tools"]
    assert second.tools[0] == first.tools[0]
    assert second.tools[0].tool is first.tools[0].tool
    done = changes(first, second)
    assert (done["loaded"], done["unloaded"], done["restart"]) == (["two"], [], [])
    assert [row["name"] for row in done["plugins"]] == ["one", "two"]
    loader.unload("one")
    assert changes(second, build(loader, loader.config, second))["unloaded"] == ["one"]
    add(loader, "one", module(tools=tools))
    build(loader, loader.config, second)
    assert asked == ["keys", "tools", "tools"]


def test_changes_say_what_waits_for_a_restart() -> None:
    loader = loaded()
    before = build(loader, loader.config)
    other = Config.load(overrides=Overrides(settings={"port": "1", "advancedTools": True}, plugins=()))
    done = changes(before, build(loader, other, before))
    assert (done["changed"], done["restart"]) == (["port", "advancedTools"], ["port"])


def test_a_plugin_that_is_asked_only_at_a_start_waits_for_the_next_one() -> None:
    keeps = module(session_store=None)
    loader = loaded(keeps=keeps, other=module(tools=[tool("t")]))
    first = build(loader, loader.config)
    for name in ("keeps", "other"):
        loader.unload(name)
    off = build(loader, loader.config, first)
    assert changes(first, off)["restart"] == ["plugins.keeps.enabled"]
    assert changes(off, build(loader, loader.config, off))["restart"] == ["plugins.keeps.enabled"], "still"
    add(loader, "keeps", keeps)
    assert changes(off, build(loader, loader.config, off))["restart"] == [], "as it was at the start again"
    add(loader, "second", module(session_store=None))
    assert changes(off, build(loader, loader.config, off))["restart"] == ["plugins.second.enabled"]


def test_that_a_plugin_waits_for_a_restart_is_logged_once(capsys: pytest.CaptureFixture[str]) -> None:
    loader = loaded(keeps=module(session_store=None))
    first = build(loader, loader.config)
    loader.unload("keeps")
    off = build(loader, loader.config, first)
    off.report(first)
    assert "where sessions are kept changes when ahpd is restarted" in capsys.readouterr().err
    build(loader, loader.config, off).report(off)
    assert capsys.readouterr().err == ""


def test_a_failure_beside_the_host_outlives_a_command_that_only_imports() -> None:
    loader = loaded(slow=module(tools=[tool("t")]))
    running = build(loader, loader.config)
    loader.statuses["slow"] = Status("error", "too slow", "mend it", beside=True)
    build(loader, loader.config, running).remember()
    running.remember(ran=False)
    kept = read_cache(running.config.places)["slow"]
    assert (kept["state"], kept["reason"], kept["provides"]["tools"]) == ("error", "too slow", ["t"])
    running.remember()
    assert read_cache(running.config.places)["slow"]["state"] == "ready", "a daemon tries again"


def test_what_was_learned_is_remembered() -> None:
    keys = [ConfigKey("everywhere", {"type": "boolean"}, False, daemon=True)]
    registry = built(good=module(tools=[tool("t")], config_keys=keys), bad=module(tools=boom))
    registry.remember()
    cache = read_cache(registry.config.places)
    assert cache["good"]["provides"]["tools"] == ["t"]
    assert cache["good"]["keys"][0]["name"] == "everywhere"
    assert (cache["bad"]["state"], cache["bad"]["version"]) == ("error", "1.0")

    registry.config.places.config.mkdir(exist_ok=True)
    registry.config.places.user_file.write_text("everywhere = true\n")
    loader = loaded()
    assert build(loader, loader.config).config.warnings == (), "the key of a plugin that is off"


def test_the_report_says_each_thing_once(capsys: pytest.CaptureFixture[str]) -> None:
    registry = built(bad=module(tools=boom))
    registry.report()
    said = capsys.readouterr().err
    assert "plugin bad" in said
    assert "Traceback" in said
    build(registry.loader, registry.config, registry).report(registry)
    assert capsys.readouterr().err == ""


# Commands of clients


async def serve(call: Any) -> None: ...


def not_async(*arguments: Any) -> Any: ...


async def serve_verb(host: Any, args: Any) -> dict[str, Any]:
    return {}


def method(name: str, **more: Any) -> Method:
    return Method(name, more.pop("grant", None), more.pop("params", dict), more.pop("run", serve), **more)


@pytest.mark.parametrize(
    ("declared", "reason"),
    [
        (
            [method("createSession", params=lambda params: params)],
            "the command createSession is the protocol's own",
        ),
        ([method("no spaces", params=lambda params: params)], "'no spaces' is no name for a command"),
        ([method("x/y", params=lambda params: params)] * 2, "it declares the command x/y twice"),
        ([method("x/y", params=lambda params: params, grant="everything")], "'everything', which is no grant"),
        ([method("x/y", params=lambda params: params, run=print)], "a run that is not an async function"),
        ([method("x/y")], "params of a class that is no msgspec.Struct"),
        ([method("x/y", params=dict.get, capabilities=["x"])], "capabilities that are no mapping"),
        ([method("x/y", params=dict.get, capabilities={"x": object()})], "it is not JSON"),
        ([method("x/y", params=serve)], "neither a Struct nor a plain function"),
        ([tool("x")], "ahpd_methods must return a list of Method; one item is a Tool"),
    ],
)
def test_a_command_that_cannot_be_served_costs_its_plugin(declared: list[Any], reason: str) -> None:
    registry = built(bad=module(methods=lambda: declared), good=module(tools=lambda: [tool("t")]))
    assert reason in registry.statuses["bad"].reason
    assert registry.statuses["bad"].state == "error"
    assert registry.methods == {}
    assert [each.tool.name for each in registry.tools] == ["t"]


def test_two_commands_of_one_name_are_both_lost_and_so_are_two_capabilities() -> None:
    def declares(*methods: Method) -> Any:
        return module(methods=lambda: list(methods))

    one, other = method("x/y", params=lambda params: params), method("x/y", params=lambda params: params)
    mine = method("a/b", params=lambda params: params, capabilities={"x.can": True, "a.can": 1})
    yours = method("c/d", params=lambda params: params, capabilities={"x.can": True})
    registry = built(a=declares(one, mine), b=declares(other, yours))
    assert set(registry.methods) == {"a/b", "c/d"}
    assert registry.capabilities == {"a.can": 1}
    for name in "ab":
        assert "the command x/y is declared by a and b; neither is used" in registry.statuses[name].reason
        assert "the capability x.can is declared by a and b" in registry.statuses[name].reason


# Verbs of the command line, and of the control door


@pytest.mark.parametrize(
    ("hooks", "reason"),
    [
        ({"commands": [click.Command("run")]}, "the verb run is ahpd's own"),
        ({"commands": [click.Command("No Verb")]}, "'No Verb' is no name for a verb"),
        ({"commands": [click.Command("say"), click.Command("say")]}, "it declares the verb say twice"),
        ({"commands": [print]}, "ahpd_commands must return a list of Command"),
        ({"control_verbs": [ControlVerb("a/b", serve_verb)]}, "'a/b' is no name for a control verb"),
        (
            {"control_verbs": [ControlVerb("list", not_async)]},
            "list has a run that is not an async",
        ),
        ({"control_verbs": [ControlVerb("list", serve_verb)] * 2}, "it declares the control verb list twice"),
    ],
)
def test_a_verb_that_cannot_be_had_costs_its_plugin(hooks: dict[str, Any], reason: str) -> None:
    registry = built(bad=module(**hooks), good=module(tools=lambda: [tool("t")]))
    assert reason in registry.statuses["bad"].reason
    assert (registry.commands, registry.verbs) == ({}, {})
    assert names(registry) == [("good", "t")]


def test_control_verbs_carry_the_name_of_their_plugin() -> None:
    verb = ControlVerb("list", serve_verb)
    registry = built(a=module(control_verbs=[verb]), b=module(control_verbs=[verb]))
    assert registry.verbs == {"a/list": ("a", verb), "b/list": ("b", verb)}
    assert registry.problems == {}


# What can be sent


class Told(Agent):
    def __init__(self, **said: Any) -> None:
        super().__init__("x")
        self.said = said

    def _answer(self, question: str, otherwise: Any) -> Any:
        if isinstance(answer := self.said.get(question, otherwise), Exception):
            raise answer
        return answer

    def models(self) -> list[Any]:
        return list(self._answer("models", []))

    def settings(self) -> dict[str, Any]:
        return dict(self._answer("settings", {}))

    def capabilities(self) -> dict[str, Any]:
        return dict(self._answer("capabilities", {}))


@pytest.mark.parametrize(
    ("hooks", "reason"),
    [
        ({"agents": [Told(models=RuntimeError("no models today"))]}, "no models today"),
        (
            {"agents": [Told(models=[Model("m", "M", {"x": object()})])]},
            "what the agent x says of itself is not valid",
        ),
        ({"agents": [Told(settings={"s": {"type": "string", "default": object()}})]}, "it is not JSON"),
        ({"agents": [Told(capabilities={"x": object()})]}, "it is not JSON"),
        ({"tools": [tool("t", annotations={"x": object()})]}, "the definition of the tool t is not valid"),
        ({"config_keys": [ConfigKey("k", {"type": "string"}, object())]}, "the setting k is not valid"),
    ],
)
def test_what_no_client_could_be_sent_costs_its_plugin(hooks: dict[str, Any], reason: str) -> None:
    registry = built(bad=module(**hooks), good=module(agents=[Agent("y")]))
    assert reason in registry.statuses["bad"].reason
    assert [told["provider"] for told in registry.described.values()] == ["y"]


def test_agents_are_asked_once_what_they_say_of_themselves() -> None:
    agent, asked = Told(), []
    agent.models = lambda: asked.append(1) or []  # type: ignore[method-assign, func-returns-value]
    loader = loaded(one=module(agents=[agent]))
    again = build(loader, loader.config, build(loader, loader.config))
    assert asked == [1]
    assert again.described["x"]["settings"] == {}


# Live settings


def test_tools_follow_a_live_key_and_wait_with_the_others() -> None:
    declared = [
        ConfigKey("sides", {"type": "integer"}, 6, applies="live"),
        ConfigKey("name", {"type": "string"}, "die"),
    ]

    def tools(config: Any) -> list[Tool]:
        return [tool(f"{config.options['name']}_{config.options['sides']}")]

    loader = loaded(dice=module(config_keys=declared, tools=tools, limits=[Limit("l")]))
    first = build(loader, loader.config)

    def after(*options: str) -> Registry:
        typed = replace(loader.config.overrides, plugin_options=options)
        return build(loader, replace(loader.config, overrides=typed).reload(), first)

    assert names(after("dice.name=cube")) == [("dice", "die_6")]
    assert after().tools[0].tool is first.tools[0].tool
    both = after("dice.name=cube", "dice.sides=20")
    assert names(both) == [("dice", "die_20")]
    assert both.limits == first.limits
