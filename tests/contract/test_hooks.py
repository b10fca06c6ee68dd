"""Every hook says when it is called and what its failure costs, and the documentation lists these hooks."""

import inspect
import re
from pathlib import Path

import pytest
from ahpd import hookspecs

ROOT = Path(__file__).parents[2]
HOOKS = {name: spec for name, spec in vars(hookspecs).items() if name.startswith("ahpd_")}
DOCS = (ROOT / "docs" / "plugins.md").read_text()
KINDS = {"declare", "decide", "shape", "observe", "live"}


def signature(name: str) -> str:
    parameters = [
        f"{parameter.name}: {parameter.annotation}"
        for parameter in inspect.signature(HOOKS[name]).parameters.values()
    ]
    return f"{name}({', '.join(parameters)}) -> {inspect.signature(HOOKS[name]).return_annotation}"


def test_there_are_hooks() -> None:
    assert HOOKS


@pytest.mark.parametrize("name", HOOKS)
def test_a_hook_says_its_kind_its_time_and_its_failure(name: str) -> None:
    doc = inspect.getdoc(HOOKS[name]) or ""
    kind = re.search(r"^Kind: (\w+)\. Called: \S", doc, re.MULTILINE)
    assert kind is not None, f"{name} has no line 'Kind: ... Called: ...'"
    assert kind[1] in KINDS
    assert re.search(r"^Fails: \S", doc, re.MULTILINE), f"{name} does not say what its failure costs"


@pytest.mark.parametrize("name", HOOKS)
def test_a_hook_names_an_example_that_implements_it(name: str) -> None:
    example = re.search(r"^Example: (\S+)$", inspect.getdoc(HOOKS[name]) or "", re.MULTILINE)
    assert example is not None
    file = ROOT / example[1]
    whole = "".join(each.read_text() for each in file.parent.glob("*.py"))
    assert file.is_file()
    assert f"def {name}(" in whole


@pytest.mark.parametrize("name", HOOKS)
def test_hooks_are_plain_functions(name: str) -> None:
    assert not inspect.iscoroutinefunction(HOOKS[name])


def test_the_documentation_lists_exactly_these_hooks() -> None:
    section = DOCS.split("<!-- hooks:")[1].split("<!-- /hooks -->")[0]
    documented = re.findall(r"^### `(.+)`$", section, re.MULTILINE)
    assert documented == [signature(name) for name in HOOKS]


@pytest.mark.parametrize("name", HOOKS)
def test_the_documentation_shows_an_implementation(name: str) -> None:
    section = DOCS.split(f"### `{name}(")[1].split("###")[0]
    assert f"def {name}(" in section
    assert "@hookimpl" in section
