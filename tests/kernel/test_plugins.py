"""`ahpd.plugins`: finding, judging without importing, and loading behind a fence."""

from __future__ import annotations

import runpy
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ahpd.config import Config, Overrides
from ahpd.plugins import (
    Discovery,
    Found,
    Loader,
    Status,
    cached,
    discover,
    failure,
    judge,
    read_cache,
    rows,
    told_when_slow,
    unmet,
    write_cache,
)
from ahpd.registry import build

install: Callable[..., None] = runpy.run_path(str(Path(__file__).with_name("installed.py")))["install"]

GOOD = "from ahpd import hookimpl\n@hookimpl\ndef ahpd_tools():\n    return []\n"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("AHPD_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("AHPD_CONFIG", raising=False)
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    before = set(sys.modules)
    yield folder
    for name in set(sys.modules) - before:
        del sys.modules[name]


def loader(*names: str) -> Loader:
    return Loader(Config.load(overrides=Overrides(plugins=names))).load_all()


def status(name: str) -> Status:
    return loader(name).statuses[name]


def test_discovery_reads_metadata_and_imports_nothing(site: Path) -> None:
    install(site, "dist-a", {"plug_a": "raise SystemExit('imported')"}, requires=["ahpd>=0.1", "click"])
    found = discover().found["plug_a"]
    assert found == (Found("plug_a", "plug_a", "dist-a", "1.0", ("ahpd>=0.1",)),)
    assert "plug_a" not in sys.modules


def test_metadata_that_cannot_be_read_costs_itself(site: Path) -> None:
    install(site, "good", {"plug_good": GOOD})
    install(site, "garbled", {"plug_garbled": GOOD})
    (site / "garbled-1.0.dist-info" / "entry_points.txt").write_text("[ahpd]\nno equals sign\n")
    install(site, "nameless", {"plug_nameless": GOOD})
    (site / "nameless-1.0.dist-info" / "METADATA").unlink()
    install(site, "binary", {"plug_binary": GOOD})
    (site / "binary-1.0.dist-info" / "entry_points.txt").write_bytes(b"[ahpd]\n\xff\xfe = x\n")
    discovery = discover()
    assert "plug_good" in discovery.found
    assert {"plug_garbled", "plug_nameless", "plug_binary"}.isdisjoint(discovery.found)
    assert len(discovery.problems) == 3
    assert any("garbled-1.0.dist-info" in problem for problem in discovery.problems)


def test_the_first_distribution_on_the_path_hides_one_of_its_name(site: Path, tmp_path: Path) -> None:
    second = tmp_path / "second"
    second.mkdir()
    install(site, "dist-a", {"plug_a": GOOD}, version="2.0")
    install(second, "dist-a", {"plug_a": GOOD}, version="1.0")
    sys.path.append(str(second))
    try:
        assert [one.version for one in discover().found["plug_a"]] == ["2.0"]
    finally:
        sys.path.remove(str(second))


@pytest.mark.parametrize(
    ("demand", "fits"),
    [
        ("ahpd", True),
        ("ahpd~=1.2", True),
        ("ahpd>=1.0,<2", True),
        ("ahpd==1.2.3", True),
        ("AHPD>1", True),
        ("ahpd[mcp]>=1", True),
        ("ahpd>=2; extra == 'later'", True),
        ("ahpd-helpers>=9", True),
        ("ahpd>=2", False),
        ("ahpd~=1.3", False),
        ("ahpd!=1.2.3", False),
        ("ahpd>=>=1", False),
    ],
)
def test_compatibility_is_the_distributions_own_demand(demand: str, fits: bool) -> None:
    reason = unmet(Found("x", "x", "dist-x", "1", (demand,)), "1.2.3")
    assert (reason is None) is fits
    assert fits or "dist-x" in str(reason)


def test_states_that_need_no_import(site: Path) -> None:
    install(site, "old", {"plug_old": GOOD}, requires=["ahpd<0.0.1"])
    install(site, "one", {"plug_one": GOOD}, points={"same": "plug_one"})
    install(site, "two", {"plug_two": GOOD}, points={"same": "plug_two"})
    config = Config.load(overrides=Overrides(plugins=("plug_old", "same", "plug_odl")))
    discovery = discover()
    states = {name: judge(name, config, discovery) for name in ("plug_old", "same", "plug_odl", "agent-echo")}
    assert [one.state for one in states.values()] == ["incompatible", "error", "missing", "disabled"]
    assert "one 1.0 and two 1.0" in states["same"].reason
    assert "plug_old" in states["plug_odl"].reason
    assert all(one.next for one in states.values())


def test_loading_registers(site: Path) -> None:
    install(site, "dist-a", {"plug_a": GOOD})
    loaded = loader("plug_a")
    assert loaded.statuses == {"plug_a": Status("ready")}
    assert loaded.manager.has_plugin("plug_a")
    assert loaded.load("plug_a") == Status("ready"), "a second time changes nothing"
    loaded.unload("plug_a")
    assert not loaded.manager.has_plugin("plug_a")
    assert loaded.load("plug_a").state == "ready"


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("raise RuntimeError('on import')", "RuntimeError: on import"),
        ("import sys; sys.exit(3)", "SystemExit: 3"),
        ("class Odd(BaseException): pass\nraise Odd", "Odd"),
        ("def (", "SyntaxError"),
        ("import nothing_like_this", "nothing_like_this"),
        (GOOD.replace("def ", "async def "), "ahpd_tools is async"),
        (
            GOOD.replace("@hookimpl", "@hookimpl(wrapper=True)").replace("return []", "yield"),
            "ahpd_tools is a wrapper",
        ),
        (GOOD.replace("ahpd_tools", "ahpd_toolz"), "there is no hook ahpd_toolz; did you mean ahpd_tools?"),
        (GOOD.replace("()", "(config, colour)"), "colour"),
    ],
)
def test_a_broken_plugin_costs_itself(site: Path, source: str, words: str) -> None:
    install(site, "bad", {"plug_bad": source})
    install(site, "good", {"plug_good": GOOD})
    loaded = loader("plug_bad", "plug_good")
    assert loaded.statuses["plug_good"].state == "ready"
    assert loaded.statuses["plug_bad"].state == "error"
    assert words in loaded.statuses["plug_bad"].reason
    assert "ahpd plugin disable plug_bad" in loaded.statuses["plug_bad"].next
    assert not loaded.manager.has_plugin("plug_bad")


def test_ctrl_c_passes_the_fence(site: Path) -> None:
    install(site, "bad", {"plug_bad": "raise KeyboardInterrupt"})
    with pytest.raises(KeyboardInterrupt):
        loader("plug_bad")


def test_an_entry_point_to_nothing(site: Path) -> None:
    install(site, "bad", {"plug_bad": GOOD}, points={"plug": "plug_bad:nothing", "gone": "plug_gone"})
    loaded = loader("plug", "gone")
    assert [one.state for one in loaded.statuses.values()] == ["error", "error"]


def test_one_module_under_two_names(site: Path) -> None:
    install(site, "twice", {"plug_a": GOOD}, points={"first": "plug_a", "second": "plug_a"})
    states = loader("first", "second").statuses
    assert [states["first"].state, states["second"].state] == ["ready", "error"]


def test_a_hook_of_a_plugin_that_is_off_is_waited_for(site: Path) -> None:
    source = GOOD + "\n@hookimpl(optionalhook=True)\ndef ahpd_machines():\n    return []\n"
    install(site, "waits", {"plug_waits": source})
    loaded = loader("plug_waits")
    assert loaded.statuses["plug_waits"].state == "waiting"
    assert "ahpd_machines" in loaded.statuses["plug_waits"].reason
    assert loaded.manager.has_plugin("plug_waits"), "its other hooks work meanwhile"


def test_what_a_plugin_prints_is_not_on_stdout(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    install(site, "talks", {"plug_talks": "print('hello')\n" + GOOD})
    assert status("plug_talks").state == "ready"
    out, err = capsys.readouterr()
    assert (out, err) == ("", "hello\n")


def test_sync_follows_the_configuration(site: Path) -> None:
    install(site, "dist-a", {"plug_a": GOOD})
    install(site, "dist-b", {"plug_b": GOOD})
    loaded = loader("plug_a")
    kept = loaded.modules["plug_a"]
    both = Config.load(overrides=Overrides(plugins=("plug_a", "plug_b", "late")))
    assert loaded.sync(both) == (["plug_b"], [])
    assert loaded.modules["plug_a"] is kept
    install(site, "late", {"late": GOOD})
    assert loaded.sync(both) == (["late"], []), "installed while running"
    assert loaded.sync(Config.load(overrides=Overrides(plugins=("plug_b",)))) == ([], ["late", "plug_a"])
    assert list(loaded.modules) == ["plug_b"]


# The list and its cache


def entry(found: Found, state: str, **more: object) -> dict[str, object]:
    about = {"distribution": found.distribution, "version": found.version, "entryPoint": found.value}
    return {**about, "state": state, "reason": "why", "next": "do", "provides": {"tools": ["t"]}, **more}


def test_rows_show_what_the_last_load_learned(site: Path) -> None:
    found = Found("p", "p", "d", "1")
    discovery = Discovery({"p": (found,)})
    config = Config.load(overrides=Overrides(plugins=("p",)))
    (row,) = rows(config, discovery, {"p": entry(found, "error")})
    assert (row["state"], row["reason"], row["next"]) == ("error", "why", "do")
    assert row["provides"] == {"tools": ["t"], "agents": [], "channels": [], "routes": [], "commands": []}
    assert list(row) == [
        "name",
        "enabled",
        "state",
        "version",
        "distribution",
        "entryPoint",
        "provides",
        "reason",
        "next",
    ]
    newer = Discovery({"p": (Found("p", "p", "d", "2"),)})
    (row,) = rows(config, newer, {"p": entry(found, "error")})
    assert (row["state"], row["reason"], row["provides"]["tools"]) == ("ready", None, [])


def test_an_unconfigured_plugin_is_ready_again_once_its_options_change(site: Path) -> None:
    found = Found("p", "p", "d", "1")
    discovery = Discovery({"p": (found,)})
    config = Config.load(overrides=Overrides(plugins=("p",)))
    missing = {"p": entry(found, "unconfigured", options=[])}
    assert cached("p", config, discovery, missing)["state"] == "unconfigured"
    config = Config.load(overrides=Overrides(plugins=("p",), plugin_options=("p.key=1",)))
    assert cached("p", config, discovery, missing)["state"] == "ready"


def test_defaults_do_not_make_an_unconfigured_plugin_look_mended(site: Path) -> None:
    source = """
from ahpd import ConfigKey, hookimpl
from ahpd.errors import ConfigError

@hookimpl
def ahpd_config_keys():
    return [ConfigKey("size", {"type": "integer"}, 3), ConfigKey("url", {"type": "string"})]

@hookimpl
def ahpd_tools(config):
    raise ConfigError("plugins.needs.url must be set")
"""
    install(site, "needs", {"needs": source})
    on = loader("needs")
    build(on, on.config).remember()
    config = Config.load(overrides=Overrides(plugins=("needs",)))
    (row,) = [row for row in rows(config, discover(), read_cache(config.places)) if row["name"] == "needs"]
    assert (row["state"], row["reason"]) == ("unconfigured", "plugins.needs.url must be set")


@pytest.mark.parametrize(
    ("text", "state", "sentence"),
    [
        ("[plugins.p]\nenabled = 3", "disabled", "plugins.p.enabled must be true or false"),
        ("[plugins.p]\nenabled = true\nrequired = 3", "unconfigured", "plugins.p.required must be true or false"),
        ("plugins = 3", "disabled", "plugins must be a table of plugin names"),
        ("[plugins]\np = 3", "disabled", "plugins.p must be a table"),
    ],
)
def test_a_wrong_table_is_shown_where_plugins_are(site: Path, text: str, state: str, sentence: str) -> None:
    config = Config.load()
    config.places.config.mkdir(parents=True)
    config.places.user_file.write_text(text)
    config = config.reload()
    (row,) = [
        row for row in rows(config, Discovery({"p": (Found("p", "p", "d", "1"),)}), {}) if row["name"] == "p"
    ]
    assert (row["state"], row["reason"]) == (state, f"{config.places.user_file}: {sentence}")


def test_what_failed_beside_the_host_is_not_tried_for_nothing(site: Path) -> None:
    install(site, "slow", {"slow": GOOD})
    on = loader("slow")

    def configured(*options: str, plugins: tuple[str, ...] = ("slow",)) -> Config:
        return Config.load(overrides=Overrides(plugins=plugins, plugin_options=options))

    def fails() -> None:
        on.drop("slow", failure("slow", "it did not begin", beside=True))

    fails()
    assert on.sync(configured()) == ([], [])
    assert on.statuses["slow"].reason == "it did not begin"
    assert on.sync(configured("slow.patience=3")) == (["slow"], []), "its options changed"
    fails()
    assert on.sync(configured("slow.patience=3")) == ([], [])
    on.sync(configured(plugins=()))
    assert on.sync(configured("slow.patience=3")) == (["slow"], []), "it was switched off and on"


def test_a_clash_is_over_once_the_rival_is_off(site: Path) -> None:
    discovery = Discovery({name: (Found(name, name, f"d-{name}", "1"),) for name in ("p", "q")})
    clashing = {"p": entry(discovery.found["p"][0], "error", rivals=["q"])}
    both = Config.load(overrides=Overrides(plugins=("p", "q")))
    assert cached("p", both, discovery, clashing)["state"] == "error"
    assert cached("p", Config.load(overrides=Overrides(plugins=("p",))), discovery, clashing)["state"] == "ready"


def test_a_damaged_cache_is_no_cache(site: Path) -> None:
    config = Config.load()
    write_cache(config.places, {"a": {"state": "ready"}})
    write_cache(config.places, {"b": {"state": "error"}})
    assert set(read_cache(config.places)) == {"a", "b"}
    path = config.places.cache / "plugins.json"
    assert path.stat().st_mode & 0o777 == 0o600
    deep = '{"plugins": ' + "[" * 100_000
    for damage in ("", "[]", '{"plugins": 3}', '{"plugins": {"a": 3}}', "\x00", deep):
        path.write_text(damage)
        assert read_cache(config.places) == {}


@pytest.mark.parametrize(
    "part",
    [
        {"state": "great"},
        {"state": []},
        {"reason": 3},
        {"next": {}},
        {"version": 1},
        {"provides": 3},
        {"provides": {"tools": 3}},
        {"provides": {"commands": [3]}},
        {"keys": 3},
        {"keys": [3]},
        {"keys": [{"name": "x"}]},
        {"keys": [{"name": 3, "schema": {}}]},
        {"keys": [{"name": "x", "schema": {"type": "integer", "items": 3}}]},
        {"keys": [{"name": "x", "schema": {}, "applies": "never"}]},
        {"keys": [{"name": "x", "schema": {}, "more": 1}]},
        {"keys": [{"name": "port", "schema": {}, "daemon": True}]},
        {"options": 3},
        {"rivals": [[]]},
        {"beside": "x"},
    ],
)
def test_an_entry_of_wrong_types_is_left_out(site: Path, part: dict[str, object]) -> None:
    config, found = Config.load(), Found("p", "p", "d", "1")
    write_cache(config.places, {"p": entry(found, "ready"), "q": {**entry(found, "ready"), **part}})
    assert set(read_cache(config.places)) == {"p"}


class Listening:
    """A logger that says when it was told something."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.heard = threading.Event()

    def warning(self, sentence: str, **more: object) -> None:
        self.said.append(sentence)
        self.heard.set()


def test_an_import_that_does_not_end_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    logger = Listening()
    monkeypatch.setattr("ahpd.plugins.SLOW_SECONDS", 0.0)
    monkeypatch.setattr("ahpd.log.get", lambda name: logger)
    with told_when_slow("sleepy"):
        assert logger.heard.wait(5)
    assert logger.said == ["plugin sleepy has been importing for 0 seconds"]
