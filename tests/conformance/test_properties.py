"""Reducers against anything: they never raise, never change their input, and give the same answer twice."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ahpd.protocol import ACTIONS, reduce_chat, reduce_root, reduce_session, time_after
from hypothesis import given
from hypothesis import strategies as st

REDUCERS = {"root": reduce_root, "session": reduce_session, "chat": reduce_chat}
CASES = [case for path in Path(__file__).parent.glob("cases/*.json") for case in json.loads(path.read_text())]

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)
_NAMES = """
id type kind turnId toolCallId content status duration resource chats turns activeTurn responseParts request
answers answer enablement customizations children state config values toolCall message
"""
names = st.sampled_from(_NAMES.split())
garbage = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=4), max_leaves=12
)


@st.composite
def spoiled(draw: st.DrawFn) -> tuple[str, Any, list[Any]]:
    """A vector with one value somewhere in its state or its actions replaced by garbage."""
    case = copy.deepcopy(draw(st.sampled_from(CASES)))
    whole = {"state": case["initial"], "actions": case["actions"]}
    at: Any = whole[draw(st.sampled_from(["state", "actions"]))]
    while isinstance(at, dict | list) and at:
        key = draw(st.sampled_from(sorted(at) if isinstance(at, dict) else list(range(len(at)))))
        if not isinstance(at[key], dict | list) or not at[key] or draw(st.booleans()):
            at[key] = draw(garbage)
            break
        at = at[key]
    return case["reducer"], whole["state"], whole["actions"]


@given(spoiled())
def test_a_spoiled_vector_neither_raises_nor_writes(vector: tuple[str, Any, list[Any]]) -> None:
    reducer, state, actions = vector
    before = copy.deepcopy(vector)
    for action in actions:
        state = REDUCERS[reducer](state, action)
    assert repr(vector) == repr(before)


@given(st.sampled_from(sorted(ACTIONS)), garbage, garbage)
def test_garbage_neither_raises_nor_writes(kind: str, state: Any, payload: Any) -> None:
    action = {**payload, "type": kind} if isinstance(payload, dict) else payload
    before = repr((state, action))
    REDUCERS[kind.split("/")[0]](state, action)
    assert repr((state, action)) == before


@given(st.sampled_from(sorted(REDUCERS)), garbage, garbage)
def test_an_unknown_type_gives_the_same_object_back(name: str, state: Any, payload: Any) -> None:
    reduce = REDUCERS[name]
    assert reduce(state, payload) is state
    assert reduce(state, {"type": payload}) is state
    assert reduce(state, {"type": f"{name}/neverHeardOf", "payload": payload}) is state


@given(st.lists(st.sampled_from(CASES), min_size=1, max_size=6))
def test_a_fold_is_deterministic_and_shares_nothing_it_changes(cases: list[dict[str, Any]]) -> None:
    """Folding actions of any vectors over one state: twice the same result, and every state stays as it was."""
    first = cases[0]
    actions = [action for case in cases if case["reducer"] == first["reducer"] for action in case["actions"]]
    history = [(first["initial"], repr(first["initial"]))]
    for action in actions:
        after = REDUCERS[first["reducer"]](history[-1][0], action)
        history.append((after, repr(after)))
    assert [repr(state) for state, _ in history] == [text for _, text in history]
    again = first["initial"]
    for action in actions:
        again = REDUCERS[first["reducer"]](again, action)
    assert repr(again) == history[-1][1]


@given(st.text(max_size=40), st.floats())
def test_time_arithmetic_never_raises(start: str, milliseconds: float) -> None:
    time_after(start, milliseconds)
    moved = time_after("2027-03-04T05:06:07.000Z", milliseconds)
    assert moved is None or time_after(moved) == moved


@pytest.mark.parametrize("duration", [10**400, -(10**400), float("inf"), float("nan"), True, "1", [], {}])
def test_no_duration_is_too_strange(duration: Any) -> None:
    turn = {"id": "t", "startedAt": "2027-03-04T05:06:07.000Z", "message": {}, "responseParts": []}
    reduce_chat({"activeTurn": turn}, {"type": "chat/turnComplete", "turnId": "t", "duration": duration})


def test_a_delta_copies_only_the_path_it_changes() -> None:
    parts = [{"kind": "markdown", "id": f"p{at}", "content": "x"} for at in range(3)]
    turn = {"id": "t", "message": {"text": "m"}, "responseParts": parts}
    before = {"turns": [{"id": "old"}], "activeTurn": turn, "status": 8}
    after = reduce_chat(before, {"type": "chat/delta", "turnId": "t", "partId": "p2", "content": "y"})
    assert after["turns"] is before["turns"]
    assert after["activeTurn"]["message"] is turn["message"]
    assert after["activeTurn"]["responseParts"][:2] == parts[:2]
    assert all(after["activeTurn"]["responseParts"][at] is parts[at] for at in (0, 1))
    assert after["activeTurn"]["responseParts"][2]["content"] == "xy"


@pytest.mark.parametrize("reduce", list(REDUCERS.values()))
def test_a_state_that_is_no_object_comes_back(reduce: Callable[[Any, Any], Any]) -> None:
    states: list[Any] = [None, [], "x", 4, {}]
    for state in states:
        assert reduce(state, {"type": None}) is state
