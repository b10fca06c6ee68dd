"""The command line as a person or a script meets it: real processes, exit codes, and what is on which stream."""

from __future__ import annotations

import json
import os
import runpy
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

install: Callable[..., None] = runpy.run_path(str(Path(__file__).with_name("installed.py")))["install"]

GOOD = """
from ahpd import ConfigKey, Tool, hookimpl

async def shout(call):
    return "HEY"

@hookimpl
def ahpd_config_keys():
    return [
        ConfigKey("volume", {"type": "integer", "maximum": 11}, 5, applies="live"),
        ConfigKey("pass", {"type": "string"}, secret=True),
        ConfigKey("shoutLoud", {"type": "boolean"}, False, daemon=True, flag=True),
    ]

@hookimpl
def ahpd_tools():
    return [Tool("shout", shout)]
"""
BROKEN = """
from pathlib import Path
Path(__file__).with_suffix(".mark").touch()
raise RuntimeError("broken on purpose")
"""


class Home:
    """A home of its own, and a folder in which plugins can be installed."""

    def __init__(self, root: Path) -> None:
        self.root, self.site = root / "home", root / "site"
        self.site.mkdir()
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("AHPD_", "XDG_"))}
        self.env = {**kept, "AHPD_HOME": str(self.root), "PYTHONPATH": str(self.site)}

    @property
    def file(self) -> Path:
        return self.root / "config.toml"

    def write(self, text: str) -> None:
        self.root.mkdir(exist_ok=True)
        self.file.write_text(text)

    def ahpd(self, *args: str, **more: Any) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "ahpd", *args]
        return subprocess.run(
            command, env=self.env, capture_output=True, text=True, check=False, timeout=60, **more
        )

    def json(self, *args: str, code: int = 0) -> Any:
        done = self.ahpd(*args, "--json")
        assert done.returncode == code, done.stderr
        return json.loads(done.stdout)

    def refused(self, *args: str, code: int) -> str:
        """The one line that says why; stdout holds nothing."""
        done = self.ahpd(*args)
        assert (done.returncode, done.stdout) == (code, ""), done.stderr
        (line,) = done.stderr.splitlines()
        assert line.startswith("ahpd: ")
        return line

    def rows(self, code: int = 0) -> dict[str, dict[str, Any]]:
        return {row["name"]: row for row in self.json("plugin", "list", code=code)}

    @contextmanager
    def daemon(self, *args: str) -> Iterator[dict[str, Any]]:
        """A running daemon; what it announced."""
        command = [sys.executable, "-m", "ahpd", "--port", "0", "--json", *args]
        process = subprocess.Popen(
            command, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert process.stdout
        assert process.stderr
        said: list[str] = []
        reader = threading.Thread(target=lambda: said.extend(process.stderr or ()))
        reader.start()
        try:
            announced = json.loads(process.stdout.readline() or "{}")
            announced["said"] = said
            yield announced
        finally:
            process.send_signal(signal.SIGTERM)
            code = process.wait(timeout=20)
            reader.join()
            process.stdout.close()
            process.stderr.close()
        assert code == 0, "".join(said)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


# Help and wrong use


def test_help_lists_the_verbs_and_says_what_no_verb_means(home: Home) -> None:
    for args in (("--help",), ("-h",)):
        done = home.ahpd(*args)
        assert done.returncode == 0
        for word in ("run", "plugin", "config", "demo", "ahpd --port 0"):
            assert word in done.stdout
    assert home.ahpd("--version").stdout.startswith("ahpd ")
    assert not home.root.exists(), "asking makes nothing"


def test_help_needs_nothing_heavy(home: Home) -> None:
    code = (
        "import sys\nfrom ahpd.cli import main\nmain(sys.argv[1:])\n"
        "print(sorted({'trio', 'structlog', 'quart', 'hypercorn', 'jsonschema_rs', 'tomlkit'} & set(sys.modules)))"
    )
    for args in (["--help"], ["plugin", "list"]):
        done = subprocess.run(
            [sys.executable, "-c", code, *args], env=home.env, capture_output=True, text=True, check=False
        )
        assert done.stdout.splitlines()[-1] in ("[]", "['jsonschema_rs']"), done.stdout


def test_help_of_run_lists_what_plugins_declare(home: Home) -> None:
    install(home.site, "loud", {"loud": GOOD})
    home.write("[plugins.loud]\nenabled = true\n")
    text = home.ahpd("run", "--help").stdout
    for flag in ("--port", "--path", "--without-connection-token", "--advanced-tools / --no-advanced-tools"):
        assert flag in text
    assert "--shout-loud / --no-shout-loud" in text
    assert "--shout-loud" not in home.ahpd("run", "--no-plugins", "--help").stdout
    home.write("port = 'x\n")
    assert "--port" in home.ahpd("run", "--help").stdout, "help works beside a broken file"


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["bogus"], "no verb bogus"),
        (["plugn"], "did you mean plugin?"),
        (["plugin", "lst"], "did you mean list?"),
        (["--prot", "1"], "--prot"),
        (["run", "extra"], "extra"),
        (["config", "set", "port"], "VALUE"),
        (["--port", "many"], "--port must be an integer between 0 and 65535"),
        (["--port", "70000"], "--port must be an integer between 0 and 65535"),
        (["--connection-token", ""], "--connection-token must be text that is not empty"),
        (["--path", "/nope"], "--path must name a folder that is there; /nope is none"),
        (["--log-format", "xml"], "--log-format must be one of human, json"),
        (["--plugin", "x", "--no-plugins"], "--no-plugins"),
        (["--plugin-option", "nope.x=1"], "nope"),
        (["--plugin-option", "rubbish"], "--plugin-option"),
        (["--config-file", "/nowhere/c.toml"], "/nowhere/c.toml"),
    ],
)
def test_wrong_use_is_one_line_and_2(home: Home, args: list[str], words: str) -> None:
    assert words in home.refused(*args, code=2)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--host", "0.0.0.0"], "--connection-token"),
        (["--without-connection-token", "--connection-token", "abcdef"], "withoutConnectionToken"),
        (["--connection-token-file", "f", "--connection-token", "abcdef"], "connectionTokenFile are both set"),
    ],
)
def test_a_start_that_is_refused_is_one_line_and_1(home: Home, args: list[str], words: str) -> None:
    line = home.refused("--port", "0", *args, code=1)
    assert words in line
    assert "abcdef" not in line


def test_a_reader_that_leaves_costs_no_traceback(home: Home) -> None:
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "ahpd", "plugin", "list"]
    done = subprocess.run(command, env=home.env, stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (1, "")


# Configuration


def test_setting_and_reading(home: Home) -> None:
    assert home.json("config", "get", "port") == 9187
    assert home.json("config", "set", "port", "0") == {"key": "port", "value": 0}
    home.json("config", "set", "allowedHosts", '["a", "b"]')
    home.json("config", "set", "host", "localhost")
    assert home.ahpd("config", "get", "host").stdout == "localhost\n"
    assert home.file.read_text() == 'port = 0\nallowedHosts = ["a", "b"]\nhost = "localhost"\n'
    assert home.file.stat().st_mode & 0o777 == 0o600
    assert home.root.stat().st_mode & 0o777 == 0o700
    assert home.json("config", "unset", "host") == {"key": "host", "changed": True}
    assert home.json("config", "unset", "host") == {"key": "host", "changed": False}
    assert home.json("config", "path") == {"path": str(home.file), "exists": True}
    shown = home.json("config")
    assert shown["config"]["allowedHosts"] == ["a", "b"]
    assert shown["files"] == [str(home.file)]
    assert shown["sources"]["port"] == str(home.file)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("port", "99999", "port must be an integer between 0 and 65535"),
        ("port", "-1", "port must be an integer between 0 and 65535"),
        ("advancedTools", "yes", "advancedTools must be true or false"),
        ("sessionTools", "maybe", "sessionTools must be true or false"),
        ("prot", "1", "did you mean port?"),
        ("port", "null", "unset"),
        ("plugins.agent-echo", "1", "plugins.NAME.KEY"),
        ("plugins.agent-echo.enabled", "1", "plugins.agent-echo.enabled must be true or false"),
        ("plugins.agent-echo.alsoAs", "x", "plugins.agent-echo.alsoAs must be a list of texts"),
        ("plugins.agent-echo.alsoAz", "1", "did you mean alsoAs?"),
    ],
)
def test_a_wrong_value_is_not_written(home: Home, key: str, value: str, words: str) -> None:
    assert words in home.refused("config", "set", key, value, code=2)
    assert not home.file.exists()


def test_secrets_are_not_shown(home: Home) -> None:
    install(home.site, "loud", {"loud": GOOD})
    home.write('connectionToken = "hush-hush"\n[plugins.loud]\npass = "swordfish"\nvolume = 3\n')
    for args in (["config"], ["config", "--json"], ["config", "get", "connectionToken"], ["config", "check"]):
        done = home.ahpd(*args)
        assert "hush-hush" not in done.stdout + done.stderr
        assert "swordfish" not in done.stdout + done.stderr
    assert home.json("config", "get", "connectionToken") == "<set>"
    home.json("plugin", "show", "loud")
    home.json("config", "set", "plugins.loud.enabled", "true")
    assert home.json("config", "get", "plugins.loud.volume") == 3, "declared, and no secret"
    assert home.json("config", "get", "plugins.loud.pass") == "<set>"


def test_check_names_everything_wrong(home: Home) -> None:
    assert home.json("config", "check")["problems"] == []
    home.write('port = "x"\nadvancedTools = 3\nsessionTools = 1\nprot = 1\n')
    found = home.json("config", "check", code=2)
    assert [line.partition(": ")[2].partition(" ")[0] for line in found["problems"]] == [
        "port",
        "advancedTools",
        "sessionTools",
    ]
    assert len(found["warnings"]) == 1


def test_a_malformed_file_is_one_line_and_2_and_stays_as_it_is(home: Home) -> None:
    text = "port = 1\nhost = \n"
    home.write(text)
    for args in (
        ["config"],
        ["config", "set", "port", "2"],
        ["plugin", "list"],
        ["plugin", "disable", "agent-echo"],
        [],
    ):
        line = home.refused(*args, code=2)
        assert str(home.file) in line
        assert "line 2" in line
    assert home.file.read_text() == text


def test_check_of_a_file_that_cannot_be_read_prints_what_is_wrong(home: Home) -> None:
    home.write("port = 1\nhost = \n")
    found = home.json("config", "check", code=2)
    assert "line 2" in found["problems"][0]
    assert found["warnings"] == []


def test_a_wrong_value_is_told_where_settings_are_read(home: Home) -> None:
    home.write('port = "x"\nhost = "localhost"\n')
    for args in (["config", "get", "port"], ["config"]):
        (line,) = home.ahpd(*args).stderr.splitlines()
        assert line.endswith("port must be an integer between 0 and 65535; it is read as if it were not set")
    assert home.ahpd("config", "get", "host").stderr == ""
    assert "port = 9187\n" in home.ahpd("config").stdout
    assert "port" not in home.json("config")["sources"]


def test_a_config_file_that_is_not_there_is_made_by_what_writes_it(home: Home, tmp_path: Path) -> None:
    for args in (["config", "set", "port", "1"], ["plugin", "disable", "agent-echo"]):
        file = tmp_path / args[0] / "new.toml"
        assert home.ahpd(*args, "--config-file", str(file)).returncode == 0
        assert file.stat().st_mode & 0o777 == 0o600
    assert "cannot be read" in home.refused("plugin", "list", "--config-file", "/nowhere/c.toml", code=2)


def test_a_pipe_in_place_of_the_file_holds_nothing_up(home: Home) -> None:
    home.root.mkdir()
    os.mkfifo(home.file)
    for args in (["plugin", "list"], ["config", "set", "port", "1"]):
        assert f"{home.file} is no regular file" in home.refused(*args, code=2)


def test_a_cache_of_wrong_types_is_no_fault(home: Home) -> None:
    home.json("plugin", "show", "agent-echo")
    cache = home.root / "cache" / "plugins.json"
    entry = json.loads(cache.read_text())["plugins"]["agent-echo"]
    for part in ({"provides": 3}, {"keys": [{"nonsense": 1}]}, {"rivals": 7}, {"options": None}):
        cache.write_text(json.dumps({"plugins": {"agent-echo": {**entry, **part}}}))
        for args in (["--help"], ["plugin", "list"], ["config"], ["config", "check"]):
            done = home.ahpd(*args)
            assert done.returncode == 0, done.stderr
            assert "fault" not in done.stderr


def test_a_wrong_value_does_not_stop_the_repair(home: Home) -> None:
    home.write("port = 'x'\n")
    home.json("plugin", "list")
    home.json("plugin", "disable", "agent-echo")
    home.json("config", "set", "port", "1")
    home.json("plugin", "list")


def test_an_unknown_key_is_one_warning_and_the_start_goes_on(home: Home) -> None:
    home.write("prot = 1\n")
    with home.daemon() as daemon:
        assert daemon["event"] == "listening"
    about = [line for line in daemon["said"] if "prot" in line]
    assert len(about) == 1
    assert "did you mean port?" in about[0]


# Plugins


def test_the_list(home: Home) -> None:
    install(home.site, "old", {"old": GOOD}, requires=["ahpd>=99"])
    home.write("[plugins.old]\nenabled = true\n[plugins.gone]\nenabled = true\n")
    done = home.ahpd("plugin", "list")
    assert done.returncode == 1
    head, *lines = done.stdout.splitlines()
    assert head.split() == ["NAME", "STATE", "VERSION", "DISTRIBUTION", "PROVIDES", "NEXT", "STEP"]
    assert ["agent-echo", "ready"] in [line.split()[:2] for line in lines]
    assert [line.split()[:2] for line in lines[-2:]] == [["gone", "missing"], ["old", "incompatible"]]
    assert "needs ahpd >=99" in lines[-1]
    assert "\x1b" not in done.stdout
    (line,) = done.stderr.splitlines()
    assert "gone, old" in line


def test_what_a_plugin_provides_is_unknown_until_it_is_loaded(home: Home) -> None:
    done = home.ahpd("plugin", "list")
    echo = next(line for line in done.stdout.splitlines() if line.startswith("agent-echo"))
    assert echo.split()[4] == "?"
    assert done.stderr == "", "scripts are told nothing"
    ours, terminal = os.openpty()
    command = [sys.executable, "-m", "ahpd", "plugin", "list"]
    told = subprocess.run(command, env=home.env, stdout=terminal, stderr=subprocess.PIPE, text=True, check=True)
    os.close(terminal)
    os.close(ours)
    assert "ahpd plugin show NAME" in told.stderr
    home.ahpd("plugin", "show", "agent-echo")
    echo = next(line for line in home.ahpd("plugin", "list").stdout.splitlines() if line.startswith("agent-echo"))
    assert "1 agent" in echo


def test_a_wrong_switch_is_named_where_plugins_are_shown(home: Home) -> None:
    home.write("[plugins.session-tools]\nenabled = 3\n")
    for shown in (home.rows()["session-tools"], home.json("plugin", "show", "session-tools")):
        assert shown["state"] == "disabled"
        assert shown["reason"].endswith("plugins.session-tools.enabled must be true or false")
    assert home.json("plugin", "enable", "session-tools")["state"] == "ready"
    home.write("[plugins.session-tools]\nhostTools = 3\n")
    for shown in (home.rows(code=1)["session-tools"], home.json("plugin", "show", "session-tools", code=1)):
        assert shown["state"] == "unconfigured"
        assert shown["next"] == "ahpd config unset plugins.session-tools.hostTools"


def test_enable_and_disable(home: Home) -> None:
    install(home.site, "loud", {"loud": GOOD})
    assert home.rows()["loud"]["state"] == "disabled"
    told = home.json("plugin", "enable", "loud")
    assert (told["state"], told["changed"], told["running"]) == ("ready", True, False)
    assert home.rows()["loud"]["state"] == "ready"
    assert home.ahpd("plugin", "enable", "loud").stdout == "plugin loud is enabled already\n"
    assert home.json("plugin", "disable", "loud")["state"] == "disabled"
    assert "loud" in home.refused("plugin", "enable", "luod", code=1)
    assert "loud" in home.refused("plugin", "disable", "luod", code=1)
    assert home.file.read_text() == "[plugins.loud]\nenabled = false\n"


def test_a_file_that_wins_is_named(home: Home, tmp_path: Path) -> None:
    second = tmp_path / "second.toml"
    second.write_text("[plugins.agent-echo]\nenabled = true\n")
    home.env["AHPD_CONFIG"] = str(second)
    assert str(second) in home.refused("plugin", "disable", "agent-echo", code=1)


def test_show_imports_and_refreshes_what_list_shows(home: Home) -> None:
    install(home.site, "loud", {"loud": GOOD})
    shown = home.json("plugin", "show", "loud")
    assert (shown["state"], shown["provides"]["tools"]) == ("disabled", ["shout"])
    assert [key["name"] for key in shown["settings"]] == ["volume", "pass", "shoutLoud"]
    assert home.rows()["loud"]["provides"]["tools"] == ["shout"]
    install(home.site, "bad", {"bad": BROKEN})
    done = home.ahpd("plugin", "show", "bad", "--json")
    assert done.returncode == 1
    assert "broken on purpose" in json.loads(done.stdout)["reason"]
    assert len(done.stderr.splitlines()) == 1
    assert home.rows()["bad"]["state"] == "disabled"


def test_a_broken_plugin_is_never_imported_by_what_repairs(home: Home) -> None:
    install(home.site, "bad", {"bad": BROKEN})
    mark = home.site / "bad.mark"
    home.write("port = 0\n[plugins.bad]\nenabled = true\n")
    for args in (
        ["--help"],
        ["plugin", "list"],
        ["plugin", "disable", "bad"],
        ["plugin", "enable", "bad"],
        ["config"],
        ["config", "get", "port"],
        ["config", "set", "port", "0"],
        ["config", "check"],
        ["config", "path"],
    ):
        assert home.ahpd(*args).returncode == 0, args
        assert not mark.exists(), args
    with home.daemon() as daemon:
        assert daemon["event"] == "listening"
    assert mark.exists()
    assert "broken on purpose" in "".join(daemon["said"])
    mark.unlink()
    row = home.rows(code=1)["bad"]
    assert (row["state"], "broken on purpose" in row["reason"]) == ("error", True)
    assert home.json("plugin", "disable", "bad")["state"] == "disabled"
    assert home.rows()["bad"]["state"] == "disabled"
    assert not mark.exists()


def test_a_required_plugin_that_is_broken_stops_the_start(home: Home) -> None:
    install(home.site, "bad", {"bad": BROKEN})
    home.write("port = 0\n[plugins.bad]\nenabled = true\nrequired = true\n")
    done = home.ahpd()
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("ahpd: plugin bad is required and is error")


def test_a_plugin_that_prints_leaves_stdout_alone(home: Home) -> None:
    install(home.site, "talks", {"talks": "print('hello')\n" + GOOD})
    home.write("[plugins.talks]\nenabled = true\n")
    with home.daemon() as daemon:
        assert daemon["event"] == "listening"


# Beside a running daemon


def test_switching_in_a_running_daemon(home: Home) -> None:
    install(home.site, "loud", {"loud": GOOD})
    install(home.site, "bad", {"bad": BROKEN})
    with home.daemon() as daemon:
        assert daemon["ws"].startswith("ws://127.0.0.1:")
        told = home.json("plugin", "enable", "loud")
        assert (told["state"], told["running"]) == ("ready", True)
        assert home.rows()["loud"]["provides"]["tools"] == ["shout"], "loaded there, remembered here"
        assert "broken on purpose" in home.refused("plugin", "enable", "bad", code=1)
        assert home.rows(code=1)["bad"]["state"] == "error"
        assert home.json("plugin", "disable", "bad")["running"]
        assert home.json("config", "set", "advancedTools", "true")["applies"] == "live"
        assert home.json("config", "set", "port", "1")["applies"] == "restart"
        line = home.refused("--port", "0", code=1)
        assert str(daemon["pid"]) in line
    assert home.json("plugin", "disable", "loud")["running"] is False


def test_where_sessions_are_kept_changes_at_the_next_start(home: Home) -> None:
    with home.daemon():
        told = home.ahpd("plugin", "disable", "store-sqlite").stdout
        assert "restart it for this to take hold" in told
        assert "in the running ahpd too" not in told
        assert home.json("plugin", "disable", "store-sqlite")["restart"] is True, "it still waits"
        assert home.json("config", "set", "plugins.store-sqlite.enabled", "false")["applies"] == "restart"
        assert home.json("plugin", "enable", "store-sqlite")["restart"] is False, "as it was at the start"
        assert home.json("plugin", "disable", "artifacts")["restart"] is False
        home.json("plugin", "disable", "store-sqlite")
    with home.daemon():
        assert home.json("plugin", "disable", "store-sqlite")["restart"] is False
        assert home.json("plugin", "enable", "store-sqlite")["restart"] is True


def test_when_a_setting_takes_hold(home: Home) -> None:
    install(home.site, "loud", {"loud": GOOD})
    with home.daemon():

        def applies(*args: str) -> str:
            when: str = home.json("config", *args)["applies"]
            return when

        assert applies("set", "plugins.loud.volume", "4") == "enable"
        assert applies("set", "plugins.loud.enabled", "true") == "live"
        assert applies("set", "plugins.loud.volume", "5") == "live"
        assert applies("set", "plugins.loud.pass", "x") == "restart"
        assert applies("set", "plugins.loud.required", "true") == "restart"
        assert applies("unset", "plugins.loud.volume") == "live"
        assert "took it" in home.ahpd("config", "set", "plugins.loud.enabled", "false").stdout
        assert applies("unset", "plugins.loud.enabled") == "live"
        home.json("config", "set", "port", "1")
        assert "takes it at its next start" in home.ahpd("config", "unset", "port").stdout
        home.json("config", "set", "advancedTools", "true")
        assert "the running ahpd took it" in home.ahpd("config", "unset", "advancedTools").stdout


def test_a_plugin_switched_as_a_setting_tells_what_became_of_it(home: Home) -> None:
    install(home.site, "bad", {"bad": BROKEN})
    with home.daemon():
        assert "broken on purpose" in home.ahpd("config", "set", "plugins.bad.enabled", "true").stderr


def test_a_daemon_with_plugins_of_its_own(home: Home) -> None:
    install(home.site, "loud", {"loud": GOOD})
    with home.daemon("--plugin", "agent-echo"):
        assert "list of its own" in home.refused("plugin", "enable", "loud", code=1)
        assert "of its own" in home.ahpd("config", "set", "plugins.loud.enabled", "true").stderr


def test_a_daemon_that_reads_another_file_is_said_to_take_nothing(home: Home, tmp_path: Path) -> None:
    install(home.site, "loud", {"loud": GOOD})
    other = str(tmp_path / "other.toml")
    with home.daemon():
        for args in (["plugin", "enable", "loud"], ["config", "set", "advancedTools", "true"]):
            done = home.ahpd(*args, "--config-file", other)
            assert done.returncode == 0
            assert "running" not in done.stdout
            assert done.stderr == f"ahpd: the running ahpd does not read {other} and stays as it is\n"
        assert home.ahpd("plugin", "enable", "loud").stdout.endswith(", in the running ahpd too\n")
    with home.daemon("--config-file", other):
        assert home.json("config", "set", "advancedTools", "false", "--config-file", other)["applies"] == "live"
        assert "does not read" in home.ahpd("config", "set", "advancedTools", "true").stderr


def test_flags_of_plugins_and_their_options_reach_the_run(home: Home) -> None:
    install(home.site, "loud", {"loud": GOOD})
    with home.daemon(
        "--plugin", "loud", "--shout-loud", "--plugin-option", "loud.volume=11", "--connection-token", "t0ken-x"
    ):
        record = (home.root / "run" / "daemon.json").read_text()
        assert "t0ken-x" not in record
    assert "plugins.loud.volume must be" in home.refused(
        "--plugin", "loud", "--plugin-option", "loud.volume=12", code=2
    )
    assert not (home.root / "run" / "daemon.json").exists()


# Verbs of plugins

SAYS = """
import click
from ahpd import AhpdError, hookimpl

@click.command("say")
@click.argument("what")
def say(what):
    if what == "no":
        raise AhpdError("no is no word")
    click.echo(what)

@hookimpl
def ahpd_commands():
    return [say]
"""


def test_a_verb_of_a_plugin_is_run_and_remembered(home: Home) -> None:
    install(home.site, "ahpd-says", {"says": SAYS})
    home.ahpd("plugin", "enable", "says")
    assert "Commands of plugins" not in home.ahpd("--help").stdout, "nothing was learned yet"
    done = home.ahpd("say", "hello")
    assert (done.returncode, done.stdout, done.stderr) == (0, "hello\n", "")
    assert home.refused("say", "no", code=1) == "ahpd: no is no word"
    assert "Of the plugin says." in home.ahpd("--help").stdout
    assert home.rows()["says"]["provides"]["commands"] == ["say"]
    assert home.refused("sya", "x", code=2) == "ahpd: there is no verb sya; did you mean say?"
    home.ahpd("plugin", "disable", "says")
    assert "which is off; ahpd plugin enable says" in home.refused("say", "hello", code=1)
    assert "Of the plugin says." not in home.ahpd("--help").stdout


def test_a_broken_plugin_breaks_no_verb_of_ahpds_and_none_of_another_plugin(home: Home) -> None:
    install(home.site, "ahpd-says", {"says": SAYS})
    install(home.site, "ahpd-broken", {"broken": BROKEN})
    home.ahpd("plugin", "enable", "says")
    home.ahpd("plugin", "enable", "broken")
    mark = home.site / "broken.mark"
    mark.unlink(missing_ok=True)
    for args in (["--help"], ["config", "get"], ["plugin", "--help"]):
        assert home.ahpd(*args).returncode == 0
        assert not mark.exists()
    assert home.ahpd("say", "hello").stdout == "hello\n"
    mark.unlink()
    assert home.ahpd("say", "hello").stdout == "hello\n"
    assert not mark.exists(), "only the plugin that is known to have the verb is loaded"
    (home.site / "says.py").write_text("raise RuntimeError('broken later')")
    assert "plugin says: it raised RuntimeError: broken later" in home.refused("say", "hello", code=1)


def test_two_plugins_with_one_verb_and_one_that_takes_a_verb_of_ahpds(home: Home) -> None:
    install(home.site, "ahpd-says", {"says": SAYS})
    install(home.site, "ahpd-talks", {"talks": SAYS})
    install(home.site, "ahpd-takes", {"takes": SAYS.replace('"say"', '"config"')})
    for name in ("says", "talks", "takes"):
        home.ahpd("plugin", "enable", name)
    assert "no verb say" in home.refused("say", "hello", code=2)
    shown = home.rows(code=1)
    assert "the verb say is declared by says and talks; neither is used" in shown["says"]["reason"]
    assert "the verb config is ahpd's own" in shown["takes"]["reason"]
    assert home.ahpd("config", "get").returncode == 0
    home.ahpd("plugin", "disable", "talks")
    assert home.ahpd("say", "hello").stdout == "hello\n"


def test_every_verb_of_ahpds_is_reserved() -> None:
    from ahpd.cli import cli
    from ahpd.registry import KERNEL_VERBS

    assert set(cli.commands) <= KERNEL_VERBS
