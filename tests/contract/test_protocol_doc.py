"""`docs/protocol.md` is what its generator writes, and what it says of the host is so."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest
from ahpd.protocol.actions import ACTIONS
from ahpd.wire import gate

ROOT = Path(__file__).parents[2]
GENERATOR: dict[str, Any] = runpy.run_path(str(ROOT / "docs" / "generate_protocol.py"))
REASONS: dict[str, Any] = GENERATOR["reasons"]()
RULES = 72
SOURCE = "\n".join(
    file.read_text()
    for folder in ("kernel", "plugins")
    for file in sorted((ROOT / folder).rglob("*.py"))
    if "protocol" not in file.relative_to(ROOT).parts
)


def says(name: str) -> bool:
    """Whether something outside the reducers spells an action of the host's."""
    return f'"{name}"' in SOURCE or f'_call("{name.partition("/")[2]}"' in SOURCE


def test_the_page_is_what_the_tables_say() -> None:
    assert (ROOT / "docs" / "protocol.md").read_text("utf-8") == GENERATOR["page"](), (
        "run: python docs/generate_protocol.py"
    )


@pytest.mark.parametrize("number", range(1, RULES + 1))
def test_every_silent_rule_is_tested_or_said_not_to_apply(number: int) -> None:
    assert (number in GENERATOR["tested_rules"]()) != (str(number) in REASONS["rules"])


def test_no_rule_has_a_number_beyond_the_last() -> None:
    named = {*GENERATOR["tested_rules"](), *map(int, REASONS["rules"])}
    assert named == set(range(1, RULES + 1))
    assert set(map(int, REASONS["rule_notes"])) <= set(GENERATOR["tested_rules"]())


def test_no_command_is_served_and_missing() -> None:
    assert REASONS["commands"].keys().isdisjoint(gate.METHODS)
    assert REASONS["command_notes"].keys() <= gate.METHODS.keys()


@pytest.mark.parametrize("name", [name for name, rule in ACTIONS.items() if not rule.client_may])
def test_an_action_of_the_hosts_is_said_somewhere_or_has_a_reason(name: str) -> None:
    assert says(name) != (name in REASONS["unsaid"])


def test_reasons_are_for_actions_there_are() -> None:
    assert set(REASONS["refused"]) <= gate.ACTIONS.keys()
    assert set(REASONS["unsaid"]) <= ACTIONS.keys()
    assert REASONS["families"].keys().isdisjoint(gate.CHANNELS)


@pytest.mark.parametrize("name", GENERATOR["NOTICES"])
def test_what_the_host_is_said_to_send_it_sends(name: str) -> None:
    assert f'"{name}"' in SOURCE
    assert name not in REASONS["notifications"]
