"""The agenda against a plain dictionary."""

from __future__ import annotations

from ahpd_wakeups.agenda import Agenda
from hypothesis import given
from hypothesis import strategies as st

CHATS = st.sampled_from("abcd")
TIMES = st.integers(0, 20)
STEPS = st.one_of(
    st.tuples(st.just("put"), CHATS, TIMES),
    st.tuples(st.just("drop"), CHATS, TIMES),
    st.tuples(st.just("take"), CHATS, TIMES),
)


@given(st.lists(STEPS, max_size=40))
def test_the_agenda_holds_one_time_for_each_chat(steps: list[tuple[str, str, int]]) -> None:
    agenda, times = Agenda(), dict[str, int]()
    for what, chat, at in steps:
        if what == "put":
            agenda.put(chat, at)
            times[chat] = at
        elif what == "drop":
            agenda.drop(chat)
            times.pop(chat, None)
        else:
            due = sorted((each for each in times if times[each] <= at), key=lambda each: (times[each], each))
            assert agenda.take_due(at) == due
            times = {each: time for each, time in times.items() if each not in due}
        assert agenda.first == min(times.values(), default=None)
        assert len(agenda) == len(times)
        assert all(agenda.time(each) == times.get(each) for each in "abcd")
