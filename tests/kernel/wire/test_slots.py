"""Who keeps a place and who has to go, without a socket."""

from __future__ import annotations

from ahpd.wire.slots import SPARE, Slots
from hypothesis import given
from hypothesis import strategies as st


class Told:
    def __init__(self) -> None:
        self.gone = False

    def cancel(self) -> None:
        self.gone = True


def crowd(slots: Slots, count: int) -> list[Told]:
    scopes = [Told() for _ in range(count)]
    for scope in scopes:
        slots.enter(scope, scope)
    return scopes


def test_the_longest_waiting_goes_first_and_the_settled_stay() -> None:
    slots = Slots(3, 2)
    first, second, third = crowd(slots, 3)
    slots.settle(first)
    crowd(slots, 1)
    assert (first.gone, second.gone, third.gone) == (False, True, False)


def test_one_that_was_answered_waits_behind_the_others() -> None:
    slots = Slots(2, 2)
    first, second = crowd(slots, 2)
    assert slots.answer(first)
    slots.rest(first)
    crowd(slots, 1)
    assert (first.gone, second.gone) == (False, True)


def test_answers_leave_places() -> None:
    slots = Slots(3, 1)
    first, second = crowd(slots, 2)
    assert slots.answer(first)
    assert not slots.answer(second)
    slots.rest(first)
    assert slots.answer(second)
    slots.leave(second)
    assert slots.answer(first)


def test_one_that_was_told_to_go_is_given_no_answer() -> None:
    slots = Slots(1, 1)
    first, _ = crowd(slots, 2)
    assert first.gone
    assert not slots.answer(first)
    slots.rest(first)
    slots.settle(first)
    assert slots.settled == 0


def test_refused_ones_are_bounded_too_and_nobody_settled_pays_for_them() -> None:
    slots = Slots(2, 1)
    settled = crowd(slots, 2)
    for each in settled:
        slots.settle(each)
    refused = crowd(slots, SPARE + 5)
    assert [each.gone for each in refused] == [True] * 5 + [False] * SPARE
    assert not any(each.gone for each in settled)
    assert not slots.enter("x", Told())


@given(st.lists(st.tuples(st.sampled_from(["enter", "settle", "answer", "rest", "leave"]), st.integers(0, 20))))
def test_there_are_never_more_than_there_are_places(steps: list[tuple[str, int]]) -> None:
    slots, came, here = Slots(4, 2), list[Told](), set[Told]()
    for what, which in steps:
        if what == "enter":
            scope = Told()
            came.append(scope)
            if slots.enter(scope, scope):
                here.add(scope)
            else:
                slots.leave(scope)
        elif came and came[which % len(came)] in here:
            scope = came[which % len(came)]
            getattr(slots, what)(scope)
            if what == "leave":
                here.discard(scope)
        here = {each for each in here if not each.gone}
        assert len(here) <= 4
