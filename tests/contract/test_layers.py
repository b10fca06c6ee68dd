"""Imports go one way, those for types included, and plugins see only what an outsider sees."""

import ast
from pathlib import Path

import ahpd
import pytest

ROOT = Path(__file__).parents[2]
KERNEL = ROOT / "kernel" / "ahpd"
LAYERS: tuple[tuple[str, ...], ...] = (
    ("protocol",),
    ("errors", "log"),
    ("places", "access", "schemas", "masks"),
    ("views",),
    ("tools",),
    ("ports",),
    ("agents", "processes", "configfile", "memory_store"),
    ("hookspecs",),
    ("config", "control"),
    ("plugins",),
    ("registry",),
    ("state", "lineage"),
    ("tooling",),
    ("session",),
    ("wire",),
    ("rootconfig",),
    ("host", "client"),
    ("testing", "serving"),
    ("demo",),
    ("commandline",),
    ("config_verbs", "plugin_verbs", "more_verbs"),
    ("cli",),
    ("__main__",),
)
"""From the bottom up. Modules side by side do not import each other."""
RANK = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}
PLAIN_PROTOCOL = {"msgspec"}
WORDS_OF_THE_PROTOCOL = {"artifacts", "terminals", "files"}
"""Names of plugins that are also grants or fields of the protocol's state."""


def imports_of(file: Path, package: str) -> list[tuple[int, str]]:
    """Every module a file imports, at its top, inside functions and under TYPE_CHECKING: (line, dotted name)."""
    found = []
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}:{node.lineno} imports relatively"
            module = node.module or ""
            if module == package:
                found += [(node.lineno, f"{module}.{alias.name}") for alias in node.names]
            else:
                found.append((node.lineno, module))
    return found


def module_of(file: Path) -> str:
    return file.relative_to(KERNEL).with_suffix("").parts[0]


FILES = sorted(file for file in KERNEL.rglob("*.py") if file != KERNEL / "__init__.py")


def test_every_module_has_a_layer() -> None:
    assert {module_of(file) for file in FILES} == set(RANK)


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(KERNEL)))
def test_imports_go_down(file: Path) -> None:
    own = module_of(file)
    wrong = []
    for line, name in imports_of(file, "ahpd"):
        parts = name.split(".")
        if parts[0] != "ahpd" or parts[1:2] == [own] or name == "ahpd.__version__":
            continue
        wanted = parts[1] if len(parts) > 1 else "ahpd itself"
        if wanted not in RANK or RANK[wanted] >= RANK[own]:
            wrong.append(f"line {line}: {own} may not import {wanted}")
    assert wrong == []


def test_no_circle_inside_a_folder() -> None:
    for folder in ("protocol", "tooling", "session", "wire"):
        edges = {
            file.stem: {
                name.split(".")[2]
                for _, name in imports_of(file, f"ahpd.{folder}")
                if name.startswith(f"ahpd.{folder}.") and file.stem != "__init__"
            }
            for file in (KERNEL / folder).glob("*.py")
        }
        done: set[str] = set()
        while len(done) < len(edges):
            ready = {name for name, needs in edges.items() if name not in done and needs <= done}
            assert ready, f"circle in {folder}: {sorted(set(edges) - done)}"
            done |= ready


def test_the_protocol_needs_nothing_but_the_standard_library_and_msgspec() -> None:
    import sys

    for file in (KERNEL / "protocol").glob("*.py"):
        for line, name in imports_of(file, "ahpd"):
            top = name.split(".")[0]
            allowed = top in sys.stdlib_module_names or top in PLAIN_PROTOCOL or name.startswith("ahpd.protocol")
            assert allowed, f"{file.name}:{line} imports {name}"


PLUGIN_FILES = sorted([*ROOT.glob("plugins/*/*/**/*.py"), *ROOT.glob("examples/*/*.py")])


@pytest.mark.parametrize("file", PLUGIN_FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_plugins_import_public_names_only(file: Path) -> None:
    public = {f"ahpd.{name}" for name in ahpd.__all__} | {"ahpd"}
    own = file.relative_to(ROOT).parts[2] if file.is_relative_to(ROOT / "plugins") else file.stem
    wrong = []
    for line, name in imports_of(file, "ahpd"):
        top = name.split(".")[0]
        if top == "ahpd" and name not in public:
            wrong.append(f"line {line}: {name} is not in ahpd.__all__")
        if top == "structlog":
            wrong.append(f"line {line}: ahpd.Log is what plugins log with, so that secrets are masked")
        if top.startswith("ahpd_") and top != own:
            wrong.append(f"line {line}: {own} may not reach into {top}")
    assert wrong == []


def test_no_kernel_file_spells_a_plugin_name() -> None:
    import tomllib

    named = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["ahpd"]
    names = set(named) - WORDS_OF_THE_PROTOCOL
    for file in KERNEL.rglob("*.py"):
        tree = ast.parse(file.read_text())
        spelled = {
            node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in names
        }
        assert spelled == set(), f"{file} names {spelled}"
