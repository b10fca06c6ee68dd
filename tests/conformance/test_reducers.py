"""Reducers against data: the project's own vectors, and the upstream fixtures where they are at hand.

Own vectors are `cases/*.json`, one array per topic. The upstream set is a directory with
`test-cases-0.9/reducers` and `test-cases-1.0/reducers`, named by AHP_FIXTURES. A vector is
`{description, reducer, initial, actions, expected}`; in all of them a `null` member means "absent".
"""

import copy
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ahpd.protocol import ACTIONS, reduce_chat, reduce_root, reduce_session

REDUCERS: dict[str, Callable[[dict[str, Any], dict[str, Any]], dict[str, Any]]] = {
    "root": reduce_root,
    "session": reduce_session,
    "chat": reduce_chat,
}
ROOT = Path(__file__).parents[2]
FIXTURES = Path(os.environ.get("AHP_FIXTURES") or ROOT.parent / "shared" / "ahp")
CASES = Path(__file__).parent / "cases"


def without_nulls(value: Any) -> Any:
    """`value` with null members dropped from every object."""
    if isinstance(value, dict):
        return {key: without_nulls(kept) for key, kept in value.items() if kept is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value


def canonical(state: Any) -> str:
    return json.dumps(without_nulls(state), sort_keys=True, indent=1)


def own_cases() -> Iterator[Any]:
    for path in sorted(CASES.glob("*.json")):
        for case in json.loads(path.read_text()):
            yield pytest.param(case, id=f"{path.stem}: {case['description']}")


def upstream_cases() -> Iterator[Any]:
    for version in ("0.9", "1.0"):
        for path in sorted((FIXTURES / f"test-cases-{version}" / "reducers").glob("*.json")):
            case = json.loads(path.read_text())
            if case["reducer"] in REDUCERS:
                yield pytest.param(case, id=f"{version}/{path.stem}")


def fold(case: dict[str, Any]) -> dict[str, Any]:
    state: dict[str, Any] = case["initial"]
    for action in case["actions"]:
        state = REDUCERS[case["reducer"]](state, action)
    return state


def check(case: dict[str, Any]) -> None:
    before = copy.deepcopy(case)
    after = fold(case)
    # Compared as text: to Python `True == 1`, to a peer they are different values.
    assert canonical(after) == canonical(case["expected"])
    assert case == before, "the input was changed in place"


@pytest.mark.parametrize("case", list(own_cases()))
def test_own_case(case: dict[str, Any]) -> None:
    check(case)
    if case.get("same"):
        assert fold(case) is case["initial"], "an action that changes nothing gives the same object back"


@pytest.mark.parametrize("case", list(upstream_cases()))
def test_upstream_fixture(case: dict[str, Any]) -> None:
    check(case)


def test_own_cases_cover_every_action_type() -> None:
    cases = [case.values[0] for case in own_cases()]
    used = {action["type"] for case in cases for action in case["actions"]}
    assert set(ACTIONS) - used == set()


@pytest.mark.skipif(not FIXTURES.is_dir(), reason=f"no upstream fixtures at {FIXTURES}")
def test_upstream_sets_are_complete() -> None:
    count: dict[str, int] = {}
    for case in upstream_cases():
        version = str(case.id).split("/")[0]
        count[version] = count.get(version, 0) + 1
    assert count.get("0.9", 0) >= 232
    assert count.get("1.0", 0) >= 20
