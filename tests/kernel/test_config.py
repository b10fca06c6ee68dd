"""`ahpd.config`, `ahpd.configfile`, `ahpd.places` and `ahpd.schemas`."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ahpd.config import (
    Config,
    Overrides,
    check_binding,
    check_paths,
    flag_of,
    nearest,
    resolve_token,
    split_key,
)
from ahpd.configfile import REMOVE, edit, read_file
from ahpd.errors import ConfigError, StartError
from ahpd.places import Places
from ahpd.ports import ConfigKey
from ahpd.schemas import bad_schema, misfit, phrase, read_value


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Places:
    monkeypatch.setenv("AHPD_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("AHPD_CONFIG", raising=False)
    return Places.from_environment()


def written(places: Places, text: str, name: str = "config.toml") -> Path:
    places.config.mkdir(exist_ok=True)
    path = places.config / name
    path.write_text(text)
    return path


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# Places


def test_home_holds_everything(places: Places, tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert (places.config, places.data, places.run, places.cache) == (
        home,
        home / "data",
        home / "run",
        home / "cache",
    )


def test_without_a_home_the_xdg_folders_are_used() -> None:
    places = Places.from_environment({"HOME": "/h", "XDG_CACHE_HOME": "/c", "XDG_DATA_HOME": "relative"})
    assert places.config == Path("/h/.config/ahpd")
    assert places.data == Path("/h/.local/share/ahpd"), "a relative XDG value counts as none"
    assert places.run == places.data / "run"
    assert places.cache == Path("/c/ahpd")
    assert Places.from_environment({"HOME": "/h", "XDG_RUNTIME_DIR": "/r"}).run == Path("/r/ahpd")


# Layers


def test_defaults(places: Places) -> None:
    config = Config.load()
    assert config.settings["port"] == 9187
    assert config.settings["clientToolTimeoutMs"] == 600_000
    assert config.settings["paths"] == [str(Path.cwd())]
    assert config.enabled_plugins == config.default_plugins
    assert not places.config.exists(), "reading makes nothing"


def test_later_layers_win_objects_meet_and_lists_are_replaced(
    places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = written(places, 'port = 1\nallowedHosts = ["a", "b"]\n[plugins.x]\nenabled = true\none = 1\n')
    second = tmp_path / "more.json"
    second.write_text('{"host": "::1", "allowedHosts": ["c"], "plugins": {"x": {"two": 2}}}')
    monkeypatch.setenv("AHPD_CONFIG", str(second))
    config = Config.load(overrides=Overrides(settings={"port": "3"}))
    assert config.settings["port"] == 3
    assert config.settings["host"] == "::1"
    assert config.settings["allowedHosts"] == ["c"]
    assert config.plugin("x").options == {"one": 1, "two": 2}
    assert config.sources["port"] == "--port"
    assert config.sources["plugins.x.one"] == str(user)
    assert config.sources["plugins.x.two"] == str(second)
    assert config.files == (user, second)


def test_a_named_file_is_read_alone(places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(places, "port = 1\nadvancedTools = true\n")
    monkeypatch.setenv("AHPD_CONFIG", str(tmp_path / "gone.toml"))
    alone = tmp_path / "alone.toml"
    alone.write_text("port = 5\n")
    config = Config.load(overrides=Overrides(config_file=alone))
    assert (config.settings["port"], config.settings["advancedTools"]) == (5, False)


def test_the_second_file_must_exist(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AHPD_CONFIG", "/nowhere/more.toml")
    with pytest.raises(ConfigError, match=r"/nowhere/more\.toml"):
        Config.load()


def test_json_is_read_only_where_there_is_no_toml(places: Places) -> None:
    written(places, '{"port": 7}', "config.json")
    assert Config.load().settings["port"] == 7
    written(places, "port = 8\n")
    assert Config.load().settings["port"] == 8


def test_a_json_file_beside_toml_is_said_to_be_unread(places: Places) -> None:
    toml, other = written(places, "port = 8\n"), written(places, "{}", "config.json")
    (warning,) = Config.load().declare({}).warnings
    assert warning == f"{other} is not read, because {toml} is there; move its settings there and remove it"
    toml.unlink()
    assert Config.load().declare({}).warnings == ()


def test_a_file_that_is_to_be_written_need_not_be_there(places: Places, tmp_path: Path) -> None:
    absent = Overrides(config_file=tmp_path / "new.toml")
    with pytest.raises(ConfigError, match="cannot be read"):
        Config.load(overrides=absent)
    written(places, "port = 1\n")
    config = Config.load(overrides=replace(absent, makes_file=True))
    assert (config.settings["port"], config.files) == (9187, ()), "and the user's own is not read instead"
    (tmp_path / "new.toml").write_text("port = 2\n")
    assert config.reload().settings["port"] == 2


def test_a_file_that_is_none_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.toml")
    with pytest.raises(ConfigError, match="is no regular file"):
        read_file(tmp_path / "config.toml")
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        read_file(tmp_path)


def test_paths_that_are_no_folders(places: Places, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check_paths(Config.load(overrides=Overrides(settings={"paths": (str(tmp_path),)})))
    with pytest.raises(ConfigError, match=r"^--path must name a folder that is there; /nope is none$"):
        check_paths(Config.load(overrides=Overrides(settings={"paths": (str(tmp_path), "/nope")})))
    assert capsys.readouterr().err == ""
    file = written(places, 'paths = ["/nope"]\n')
    check_paths(Config.load())
    assert f"{file}: paths names /nope, which is no folder" in capsys.readouterr().err


def test_paths_in_a_file_begin_at_its_folder(
    places: Places, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    written(places, 'paths = ["work", "/abs"]\nconnectionTokenFile = "../token"\n')
    monkeypatch.chdir(tmp_path)
    config = Config.load()
    assert config.settings["paths"] == [str(places.config / "work"), "/abs"]
    assert config.settings["connectionTokenFile"] == str(places.config.parent / "token")
    typed = Config.load(overrides=Overrides(settings={"paths": ("here",)}))
    assert typed.settings["paths"] == [str(tmp_path / "here")]


# Checking


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("port = 70000", "port must be an integer between 0 and 65535"),
        ('port = "9187"', "port must be an integer between 0 and 65535"),
        ("port = 1.0", "port must be an integer between 0 and 65535"),
        ("port = true", "port must be an integer between 0 and 65535"),
        ("port = nan", "port must be an integer between 0 and 65535"),
        ("advancedTools = 1", "advancedTools must be true or false"),
        ('logFormat = "xml"', "logFormat must be one of human, json"),
        ("host = 2026-01-01", "host must be text"),
        ('allowedHosts = "a"', "allowedHosts must be a list of texts"),
        ("allowedHosts = [1]", "allowedHosts must be a list of texts"),
        ("clientToolTimeoutMs = -1", "clientToolTimeoutMs must be an integer of at least 0"),
        ("plugins = []", "plugins must be a table of plugin names"),
        ("plugins.x = 1", "plugins.x must be a table"),
        ('plugins.x.enabled = "yes"', "plugins.x.enabled must be true or false"),
    ],
)
def test_a_wrong_value_is_one_sentence(places: Places, line: str, sentence: str) -> None:
    path = written(places, line + "\n")
    config = Config.load()
    with pytest.raises(ConfigError) as caught:
        config.check()
    assert caught.value.sentence == f"{path}: {sentence}"


def test_the_sentence_names_the_file_or_the_flag_that_set_the_value(
    places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(places, "port = 1\n")
    second = tmp_path / "b.toml"
    second.write_text("port = -1\n")
    monkeypatch.setenv("AHPD_CONFIG", str(second))
    assert Config.load().problems[0].startswith(f"{second}: port ")
    typed = Config.load(overrides=Overrides(settings={"port": "many"}))
    assert typed.problems == ("--port must be an integer between 0 and 65535",)


def test_a_wrong_value_reads_as_its_default_where_nobody_insists(places: Places) -> None:
    written(places, 'port = "x"\n[plugins.agent-echo]\nenabled = "x"\n')
    config = Config.load()
    assert config.settings["port"] == 9187
    assert config.plugin("agent-echo").host_tools is True
    assert not {"port", "plugins.agent-echo.enabled"} & set(config.sources), "they come from no file"
    assert config.wrong[("port",)].endswith("port must be an integer between 0 and 65535")


KEYS = {
    "dice": (
        ConfigKey("sides", {"type": "integer", "minimum": 2}, 6),
        ConfigKey("box", {"type": "string", "format": "path"}),
        ConfigKey("key", {"type": "string"}, secret=True),
        ConfigKey("diceEverywhere", {"type": "boolean"}, False, daemon=True),
    )
}


def test_an_unknown_key_is_one_warning_with_the_nearest_name(places: Places) -> None:
    path = written(places, "prot = 1\nzzzzz = 2\n[plugins.dice]\nsidez = 3\n[plugins.off]\nwhatever = 1\n")
    config = Config.load()
    assert config.warnings == (), "nobody knows yet what plugins declare"
    first, second, third = config.declare(KEYS).warnings
    assert first.startswith(f"{path}: prot ")
    assert "port" in first
    assert second == f"{path}: zzzzz is not a setting ahpd knows; it is ignored"
    assert third.startswith(f"{path}: plugins.dice.sidez ")
    assert "sides" in third
    assert config.declare(KEYS).problems == ()


def test_keys_of_a_plugin_that_is_off_are_not_called_unknown(places: Places) -> None:
    written(places, "diceEverywhere = true\n")
    assert Config.load().declare({}, {"diceEverywhere"}).warnings == ()


def test_declared_options_are_checked_and_have_defaults(places: Places) -> None:
    path = written(places, '[plugins.dice]\nbox = "b"\nhostTools = false\nrequired = true\n')
    config = Config.load().declare(KEYS)
    settings = config.plugin("dice")
    assert (settings.enabled, settings.host_tools, settings.required) == (False, False, True)
    assert settings.options == {"sides": 6, "box": str(places.config / "b"), "key": None}
    assert config.plugin_config("dice").settings["diceEverywhere"] is False
    written(places, "[plugins.dice]\nsides = 1\n")
    assert config.reload().problems == (f"{path}: plugins.dice.sides must be an integer of at least 2",)


def test_plugin_options_of_the_command_line(places: Places) -> None:
    typed = Overrides(plugins=("dice",), plugin_options=("dice.sides=20", "dice.key=12", "dice.deep.er=[1]"))
    options = Config.load(overrides=typed).declare(KEYS).plugin("dice").options
    assert options["sides"] == 20
    assert options["key"] == "12", "text, because the declared key is text"
    assert options["deep"] == {"er": [1]}
    with pytest.raises(ConfigError, match=r"NAME\.KEY=VALUE"):
        Config.load(overrides=Overrides(plugin_options=("dice",)))


def test_which_plugins_are_on(places: Places) -> None:
    first = Config.load().default_plugins[0]
    written(
        places, f"[plugins.{first}]\nenabled = false\n[plugins.zz]\nenabled = true\n[plugins.aa]\nenabled = true\n"
    )
    config = Config.load()
    assert config.enabled_plugins == (*config.default_plugins[1:], "aa", "zz")
    assert Config.load(overrides=Overrides(plugins=("q",))).enabled_plugins == ("q",)
    assert Config.load(overrides=Overrides(plugins=())).enabled_plugins == ()


def test_names_and_keys_as_typed() -> None:
    assert flag_of("clientToolTimeoutMs") == "--client-tool-timeout-ms"
    assert split_key("plugins.a.b.c", ["a", "a.b"]) == ("plugins", "a.b", "c")
    assert split_key("plugins.x.y") == ("plugins", "x", "y")
    assert nearest("HOTS", ["host", "port"]) == "host"
    assert nearest("zzz", ["host"]) is None


# Schemas


@pytest.mark.parametrize(
    ("text", "schema", "value"),
    [
        ("12", {"type": "integer"}, 12),
        ("12", {"type": "string"}, "12"),
        ("true", None, True),
        ("1.0", None, 1.0),
        ("12345678901234567890123", None, 12345678901234567890123),
        ("1.50", None, "1.50"),
        ("1e3", None, "1e3"),
        ("NaN", None, "NaN"),
        ("a b", {"type": "boolean"}, "a b"),
        ('["x"]', {"type": "array"}, ["x"]),
    ],
)
def test_typed_in_values(text: str, schema: dict[str, Any] | None, value: Any) -> None:
    assert read_value(text, schema) == value


def test_a_misfit_deep_inside_names_the_place() -> None:
    schema = {
        "type": "object",
        "properties": {"http": {"type": "object", "properties": {"port": {"type": "integer"}}}},
    }
    assert misfit({"http": {"port": "x"}}, schema) == (".http.port", "an integer")
    assert misfit({"http": {"port": 1}}, schema) is None
    assert phrase({"type": ["boolean", "null"]}) == "true or false"


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "strng"},
        {"properties": {"a": {"pattern": "("}}},
        {"$ref": "#/nowhere"},
        {"$ref": "https://schemas.example/x.json"},
        {"$schema": "http://json-schema.org/draft-07/schema#"},
        {"minimum": "x"},
        {"enum": {1, 2}},
    ],
)
def test_schemas_that_are_none(schema: dict[str, Any]) -> None:
    assert bad_schema(schema)


# Editing

COMMENTED = """\
# mine
port = 1 # one

[mcpServers.files]   # not known here
command = "x"

[plugins.dice]
sides = 20
"""


def test_an_edit_keeps_comments_order_and_what_it_does_not_understand(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(COMMENTED)
    path.chmod(0o640)
    edit(path, {("plugins", "dice", "enabled"): True, ("port",): 2})
    assert path.read_text() == COMMENTED.replace("port = 1", "port = 2").replace(
        "sides = 20\n", "sides = 20\nenabled = true\n"
    )
    assert mode(path) == 0o640
    edit(path, {("plugins", "dice", "sides"): REMOVE, ("nothing", "there"): REMOVE})
    assert read_file(path)["plugins"] == {"dice": {"enabled": True}}


@pytest.mark.parametrize(
    "before",
    [
        "",
        "plugins.dice.sides = 1\n",
        "[plugins]\ndice = { sides = 1 }\n",
        "[plugins.other]\na = 1\n[x]\nb = 2\n[plugins.third]\nc = 3\n",
        "[plugins]\n# none yet\n",
        "port = 1\r\n[plugins.dice]\r\nsides = 1\r\n",
    ],
)
def test_every_way_to_write_a_table_can_be_edited(tmp_path: Path, before: str) -> None:
    path = tmp_path / "config.toml"
    path.write_bytes(before.encode())
    expected = read_file(path)
    edit(path, {("plugins", "dice", "enabled"): True, ("port",): 3})
    expected.setdefault("plugins", {}).setdefault("dice", {})["enabled"] = True
    assert read_file(path) == expected | {"port": 3}


def test_json_is_edited_too(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"unknown": {"ä": [1]}, "port": 1}')
    edit(path, {("plugins", "dice", "enabled"): False})
    assert json.loads(path.read_text()) == {
        "unknown": {"ä": [1]},
        "port": 1,
        "plugins": {"dice": {"enabled": False}},
    }


def test_a_new_file_is_private(tmp_path: Path) -> None:
    path = tmp_path / "new" / "config.toml"
    edit(path, {("port",): 1})
    assert (mode(path), mode(path.parent)) == (0o600, 0o700)
    assert [item.name for item in path.parent.iterdir()] == ["config.toml"]


def test_a_linked_file_stays_a_link(tmp_path: Path) -> None:
    real, link = tmp_path / "real.toml", tmp_path / "config.toml"
    real.write_text("port = 1\n")
    link.symlink_to(real)
    edit(link, {("port",): 2})
    assert link.is_symlink()
    assert read_file(real) == {"port": 2}


@pytest.mark.parametrize(("name", "text"), [("c.toml", "port = 1\nhost = \n"), ("c.json", '{"port": 1,\n oops}')])
def test_a_malformed_file_is_named_with_its_line_and_never_overwritten(
    tmp_path: Path, name: str, text: str
) -> None:
    path = tmp_path / name
    path.write_text(text)
    for attempt in (lambda: read_file(path), lambda: edit(path, {("port",): 2})):
        with pytest.raises(ConfigError) as caught:
            attempt()
        assert str(path) in caught.value.sentence
        assert "line 2" in caught.value.sentence
    assert path.read_text() == text


@pytest.mark.parametrize("content", [b"\xff\xfe", b"[1]", b"[" * 5000])
def test_files_that_are_no_configuration(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "c.json"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"c\.json"):
        read_file(path)


def test_a_value_in_the_way_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text("plugins = 1\n")
    with pytest.raises(ConfigError, match="plugins must be a table; ahpd config unset plugins takes it out"):
        edit(path, {("plugins", "dice", "enabled"): True})
    assert path.read_text() == "plugins = 1\n"


# The connection token


def test_a_host_others_can_reach_needs_a_word_about_the_token(places: Places) -> None:
    for host in ("0.0.0.0", "::", "example.org", "192.168.1.2"):
        with pytest.raises(StartError, match=host):
            check_binding(Config.load(overrides=Overrides(settings={"host": host})))
        check_binding(Config.load(overrides=Overrides(settings={"host": host, "withoutConnectionToken": True})))
    for host in ("127.0.0.1", "127.9.9.9", "::1", "localhost"):
        check_binding(Config.load(overrides=Overrides(settings={"host": host})))
    both = {"withoutConnectionToken": True, "connectionToken": "secret"}
    with pytest.raises(StartError, match="withoutConnectionToken"):
        check_binding(Config.load(overrides=Overrides(settings=both)))
    both = {"connectionTokenFile": "f", "connectionToken": "secret"}
    with pytest.raises(StartError, match="connectionToken and connectionTokenFile are both set; leave one"):
        check_binding(Config.load(overrides=Overrides(settings=both)))


def test_the_token_file_is_made_once_and_private(places: Places, tmp_path: Path) -> None:
    path = tmp_path / "deep" / "token"
    config = Config.load(overrides=Overrides(settings={"connectionTokenFile": str(path)}))
    token = resolve_token(config)
    assert token is not None
    assert len(token) >= 32
    assert mode(path) == 0o600
    assert resolve_token(config) == token
    path.write_text(" \n")
    with pytest.raises(StartError, match="empty"):
        resolve_token(config)
    assert resolve_token(Config.load()) is None
    assert resolve_token(Config.load(overrides=Overrides(settings={"connectionToken": "12345"}))) == "12345"
