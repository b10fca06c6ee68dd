"""Grants: what is enough for what, and the one function that says no."""

from __future__ import annotations

import pytest
from ahpd.access import KERNEL_SUBJECTS, NOBODY, ROOT, Gatekeeper, Principal, Subject, Subjects
from ahpd.errors import PermissionDenied
from hypothesis import given
from hypothesis import strategies as st

TERMINAL = Subject("terminal", "Terminals", read=("list",), write=("open", "input"))
SUBJECTS = (*KERNEL_SUBJECTS, TERMINAL)
OPERATIONS = [f"{subject.name}:{name}" for subject in SUBJECTS for name in (*subject.read, *subject.write)]
GROUPS = [f"{subject.name}:{group}" for subject in SUBJECTS for group in ("read", "write")]
WIDE = ["*:*", "*:read", "*:write", *(f"{subject.name}:*" for subject in SUBJECTS)]
grants = st.sampled_from([*OPERATIONS, *GROUPS, *WIDE])


def person(*held: str) -> Principal:
    return Principal("user:ana", "ana", frozenset(held))


@pytest.fixture
def gate() -> Gatekeeper:
    return Gatekeeper(Subjects(SUBJECTS))


@pytest.mark.parametrize(
    ("held", "asked"),
    [
        ("session:create", "session:create"),
        ("session:write", "session:create"),
        ("session:write", "chat:send"),
        ("session:write", "chat:write"),
        ("session:read", "chat:turns"),
        ("session:*", "chat:cancel"),
        ("chat:write", "chat:send"),
        ("*:write", "chat:send"),
        ("*:read", "config:settings"),
        ("*:*", "terminal:input"),
        ("*:send", "chat:send"),
        ("other:thing", "other:thing"),
    ],
)
def test_these_are_enough(gate: Gatekeeper, held: str, asked: str) -> None:
    gate.require(person(held), asked)


@pytest.mark.parametrize(
    ("held", "asked"),
    [
        ("session:read", "session:create"),
        ("chat:write", "session:create"),
        ("chat:write", "session:write"),
        ("session:write", "terminal:open"),
        ("session:write", "session:list"),
        ("session:create", "session:dispose"),
        ("session:create", "session:write"),
        ("*:read", "chat:send"),
        ("terminal:list", "session:list"),
        ("session", "session:create"),
        ("*", "session:create"),
        ("other:*", "session:list"),
        ("session:read", "session:nonsense"),
    ],
)
def test_these_are_not_and_the_sentence_names_person_and_grant(gate: Gatekeeper, held: str, asked: str) -> None:
    with pytest.raises(PermissionDenied) as refused:
        gate.require(person(held), asked)
    assert str(refused.value) == f"ana may not {asked} here"


def test_nobody_has_the_read_half_and_root_everything(gate: Gatekeeper) -> None:
    assert NOBODY.is_nobody
    assert [grant for grant in ("session:state", "chat:turns", "chat:send") if gate.holds(NOBODY, grant)] == [
        "session:state",
        "chat:turns",
    ]
    assert all(gate.holds(ROOT, grant) for grant in [*OPERATIONS, "never:declared"])


@given(st.sets(grants), grants, grants)
def test_more_grants_never_take_anything_away(held: set[str], more: str, asked: str) -> None:
    gate = Gatekeeper(Subjects(SUBJECTS))
    if gate.holds(person(*held), asked):
        assert gate.holds(person(*held, more), asked)


@given(st.sets(grants), st.sampled_from(OPERATIONS))
def test_a_group_holds_each_of_its_operations_and_nothing_holds_nothing(held: set[str], asked: str) -> None:
    gate, subjects = Gatekeeper(Subjects(SUBJECTS)), Subjects(SUBJECTS)
    name, _, operation = asked.partition(":")
    group = subjects.by_name[name].group_of(operation)
    assert not gate.holds(person(), asked)
    if gate.holds(person(*held), f"{name}:{group}"):
        assert gate.holds(person(*held), asked)


@given(st.sampled_from(OPERATIONS), st.sampled_from(OPERATIONS))
def test_one_operation_is_never_enough_for_another(held: str, asked: str) -> None:
    assert Gatekeeper(Subjects(SUBJECTS)).holds(person(held), asked) is (held == asked)


def test_only_what_a_subject_declares_is_known() -> None:
    subjects = Subjects(SUBJECTS)
    assert all(subjects.known(grant) for grant in [*OPERATIONS, *GROUPS, "session:*"])
    assert not any(subjects.known(grant) for grant in ("session:fly", "nothing:read", "session", "", ":read"))


def test_subjects_are_shown_with_their_groups() -> None:
    shown = Subjects((TERMINAL,)).as_json()
    assert shown["terminal"]["operations"] == ["list", "open", "input"]
    assert (shown["terminal"]["read"], shown["terminal"]["write"]) == (["list"], ["open", "input"])
