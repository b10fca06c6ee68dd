"""The promise to strangers: a plugin built, installed and switched on by the documented commands works, and a
broken one costs itself alone.

The wheels are built from `examples/` and installed with a real installer into a fresh environment, which finds
ahpd and its dependencies where this test runs. Nothing is fetched.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import trio
from ahpd.client import answer_text, call_texts, connect

from ..e2e.conftest import first_line

ROOT = Path(__file__).parents[2]


def run(*command: str | Path, **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        list(map(str, command)), capture_output=True, text=True, check=False, timeout=120, **more
    )


class Installation:
    """A fresh environment with ahpd in it, and a home of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.home, self.mark = folder, folder / "home", folder / "imported"
        venv.create(folder / "venv", symlinks=os.name != "nt")
        self.python = folder / "venv" / "bin" / "python"
        version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
        packages = folder / "venv" / "lib" / version / "site-packages"
        # `addsitedir`, not a bare path: ahpd is installed editable here, through a .pth file of its own.
        here = [sysconfig.get_paths()["purelib"], *(p for p in sys.path if p.endswith("site-packages"))]
        lines = [f"import site; site.addsitedir({path!r})" for path in dict.fromkeys(here)]
        (packages / "zz-outer.pth").write_text("\n".join(lines) + "\n")
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("AHPD_", "XDG_", "PYTHON"))
        }
        self.env = {**kept, "AHPD_HOME": str(self.home), "AHPD_BROKEN_MARK": str(self.mark)}

    def install(self, wheel: Path) -> None:
        if find_spec("pip"):
            installer: list[str | Path] = [sys.executable, "-m", "pip", "--python", self.python, "install"]
        else:
            installer = [shutil.which("uv") or "uv", "pip", "install", "--python", self.python]
        done = run(*installer, "--quiet", "--no-index", "--no-deps", wheel)
        assert done.returncode == 0, done.stderr

    def ahpd(self, *args: str) -> subprocess.CompletedProcess[str]:
        return run(self.python, "-m", "ahpd", *args, env=self.env, cwd=self.folder)

    def json(self, *args: str, code: int = 0) -> Any:
        done = self.ahpd(*args, "--json")
        assert done.returncode == code, done.stderr
        return json.loads(done.stdout)

    def row(self, name: str, code: int = 0) -> dict[str, Any]:
        return next(row for row in self.json("plugin", "list", code=code) if row["name"] == name)


@pytest.fixture
def installation(tmp_path: Path) -> Installation:
    return Installation(tmp_path)


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A wheel of each example, by its folder's name. Built from a copy: a build must leave nothing in the tree."""
    made = {}
    for name in ("dice", "broken"):
        folder = tmp_path_factory.mktemp(name)
        source = shutil.copytree(ROOT / "examples" / name, folder / "source")
        done = run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, source)
        assert done.returncode == 0, done.stdout + done.stderr
        (made[name],) = folder.glob("*.whl")
    return made


def test_the_example_is_built_installed_listed_and_switched_on(
    installation: Installation, wheels: dict[str, Path]
) -> None:
    assert all(row["name"] != "dice" for row in installation.json("plugin", "list"))
    installation.install(wheels["dice"])
    row = installation.row("dice")
    assert (row["state"], row["distribution"], row["version"]) == ("disabled", "ahpd-dice", "1.0")
    assert row["next"] == "ahpd plugin enable dice"
    assert installation.json("plugin", "enable", "dice")["state"] == "ready"
    assert installation.row("dice")["state"] == "ready"
    assert installation.json("plugin", "show", "dice")["provides"]["tools"] == ["roll_dice"]
    assert installation.row("dice")["provides"]["tools"] == ["roll_dice"]


async def test_the_example_is_called_in_a_daemon_that_was_running_before(
    installation: Installation, wheels: dict[str, Path]
) -> None:
    installation.install(wheels["dice"])
    argv = [str(installation.python), "-m", "ahpd", "run", "--port", "0", "--json"]
    async with trio.open_nursery() as nursery:
        daemon = await nursery.start(
            partial(trio.run_process, argv, stdin=b"", stdout=subprocess.PIPE, env=installation.env, check=False)
        )
        try:
            address = json.loads(await first_line(daemon))["ws"]
            async with connect(address) as client:
                await client.initialize("ahp-root://")
                session = await client.create_session("echo")
                chat = client.default_chat(session)
                before = answer_text(await client.turn(chat, "/call roll_dice {}"))
                assert "no tool" in before.lower()
                done = await trio.to_thread.run_sync(installation.ahpd, "plugin", "enable", "dice")
                assert (done.returncode, done.stdout) == (0, "plugin dice is enabled, in the running ahpd too\n")
                assert call_texts(await client.turn(chat, '/call roll_dice {"sides": 2}')) in (["1"], ["2"])
        finally:
            daemon.terminate()


def test_the_example_has_what_its_page_promises() -> None:
    source = (ROOT / "examples" / "dice" / "ahpd_dice.py").read_text()
    assert "from ahpd import " in source
    assert "ahpd." not in source, "an outsider imports the public names and no module of the kernel"
    code = [line for line in source.splitlines() if line.strip()]
    assert len(code) <= 15


REPAIRS = (
    ("--help",),
    ("run", "--help"),
    ("plugin", "list"),
    ("plugin", "enable", "{}"),
    ("plugin", "disable", "{}"),
    ("config",),
    ("config", "set", "port", "0"),
    ("config", "check"),
)


def test_a_broken_plugin_from_a_wheel(installation: Installation, wheels: dict[str, Path]) -> None:
    installation.install(wheels["broken"])
    installation.install(wheels["dice"])
    for args in REPAIRS:
        done = installation.ahpd(*(part.format("broken") for part in args))
        assert done.returncode == 0, (args, done.stderr)
    installation.json("plugin", "enable", "broken")
    installation.json("plugin", "enable", "dice")
    assert not installation.mark.exists(), "nothing so far had a reason to import it"

    shown = json.loads(installation.ahpd("plugin", "show", "broken", "--json").stdout)
    assert (shown["state"], "broken on purpose" in shown["reason"]) == ("error", True)
    assert installation.mark.read_text() == "imported\n"
    assert installation.row("broken", code=1)["state"] == "error"
    assert installation.row("dice", code=1)["state"] == "ready"
    installation.json("plugin", "disable", "broken")
    assert installation.row("broken")["state"] == "disabled"
    assert installation.mark.read_text() == "imported\n", "still the one import that was asked for"


SIN = """\
import os
with open(os.environ["AHPD_BROKEN_MARK"], "a") as file:
    file.write("imported\\n")
"""
HOOK = "from ahpd import hookimpl\n@hookimpl\ndef ahpd_tools():\n    "


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("raise RuntimeError('on import')", "on import"),
        ("import sys; sys.exit('I quit')", "I quit"),
        ("import sys; sys.exit()", "SystemExit"),
        (HOOK + "raise RuntimeError('in the hook')", "in the hook"),
        (HOOK + "return 3", "ahpd_tools must return a list of Tool"),
        (HOOK.replace("def", "async def") + "return []", "ahpd_tools is async"),
    ],
)
def test_every_way_to_break_costs_the_plugin_alone(installation: Installation, source: str, words: str) -> None:
    packages = next((installation.folder / "venv" / "lib").glob("*/site-packages"))
    made_by_hand(packages, "bad", SIN + source)
    for args in (("plugin", "enable", "bad"), ("plugin", "disable", "bad"), ("plugin", "list"), ("config",)):
        done = installation.ahpd(*args)
        assert (done.returncode, done.stderr) == (0, ""), args
    installation.json("plugin", "enable", "bad")
    assert not installation.mark.exists()
    shown = installation.ahpd("plugin", "show", "bad")
    assert shown.returncode == 1
    assert words in shown.stdout
    assert "Traceback" not in shown.stderr
    assert words in installation.row("bad", code=1)["reason"]
    assert installation.row("session-tools", code=1)["state"] == "ready"


@pytest.mark.parametrize("damage", ["no metadata", "no equals sign", "not text", "no version"])
def test_metadata_that_cannot_be_read(installation: Installation, damage: str) -> None:
    packages = next((installation.folder / "venv" / "lib").glob("*/site-packages"))
    folder = made_by_hand(packages, "bad", SIN)
    if damage == "no metadata":
        (folder / "METADATA").unlink()
    elif damage == "no equals sign":
        (folder / "entry_points.txt").write_text("[ahpd]\nbad\n")
    elif damage == "not text":
        (folder / "entry_points.txt").write_bytes(b"[ahpd]\nbad = \xff\xfe\n")
    else:
        (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: bad\n")
    names = [row["name"] for row in installation.json("plugin", "list")]
    assert "agent-echo" in names
    assert "bad" not in names
    said = installation.ahpd("plugin", "list").stderr
    assert len(said.splitlines()) == 1
    assert folder.name in said
    assert installation.ahpd("plugin", "disable", "agent-echo").returncode == 0
    assert not installation.mark.exists()


def made_by_hand(packages: Path, name: str, source: str) -> Path:
    """A plugin as an installer leaves it, without building it; its metadata folder."""
    folder = packages / f"{name}-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\nRequires-Dist: ahpd\n")
    (folder / "entry_points.txt").write_text(f"[ahpd]\n{name} = ahpd_{name}\n")
    (packages / f"ahpd_{name}.py").write_text(source + "\n")
    return folder
