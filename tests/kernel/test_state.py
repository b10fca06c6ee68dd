"""The single writer: numbers, the ring, what a replay holds, and what is meant for one client only."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ahpd.session.names import SessionSpelling
from ahpd.state import Deliverable, Envelope, Notice, Spelling, State, sendable
from hypothesis import given
from hypothesis import strategies as st

Json = dict[str, Any]
URI = "test:/a"


def remember(state: Json, action: Json) -> Json:
    return {"seen": [*state["seen"], action["n"]]} if "n" in action else state


class Watcher:
    """A subscriber that keeps what it is handed, as JSON."""

    def __init__(self) -> None:
        self.sent: list[Json] = []

    def deliver(self, message: Deliverable, spelling: Spelling | None) -> None:
        self.sent.append(json.loads(message.encode(spelling)))

    @property
    def seqs(self) -> list[int]:
        return [sent["params"]["serverSeq"] for sent in self.sent]


def opened(replay: int = 1000, *uris: str) -> State:
    state = State({"test": remember}, replay=replay)
    for uri in uris or (URI,):
        state.open(uri, "test", {"seen": []})
    return state


def test_one_counter_numbers_all_channels_without_a_gap() -> None:
    state = opened(1000, URI, "test:/b")
    seqs = [state.dispatch(uri, {"n": 1}).seq for uri in (URI, "test:/b", URI, "test:/b")]
    assert seqs == [1, 2, 3, 4]
    assert state.seq == 4


def test_a_snapshot_holds_what_came_before_and_the_stream_what_comes_after() -> None:
    state, watcher = opened(), Watcher()
    state.dispatch(URI, {"n": 1})
    snapshot = state.subscribe(URI, watcher)
    state.dispatch(URI, {"n": 2})
    assert snapshot == {"resource": URI, "state": {"seen": [1]}, "fromSeq": 1}
    assert watcher.seqs == [2]
    assert state.get(URI) == {"seen": [1, 2]}


def test_subscribing_twice_delivers_once_and_unsubscribing_ends_it() -> None:
    state, watcher = opened(), Watcher()
    state.subscribe(URI, watcher)
    state.subscribe(URI, watcher)
    state.dispatch(URI, {"n": 1})
    state.unsubscribe(URI, watcher)
    state.unsubscribe("test:/none", watcher)
    state.dispatch(URI, {"n": 2})
    assert watcher.seqs == [1]


def test_a_host_made_action_has_no_origin_and_a_clients_has_its_own() -> None:
    state, watcher = opened(), Watcher()
    state.subscribe(URI, watcher)
    state.dispatch(URI, {"n": 1})
    state.dispatch(URI, {"n": 2}, {"clientId": "c", "clientSeq": 7})
    first, second = (sent["params"] for sent in watcher.sent)
    assert first == {"channel": URI, "action": {"n": 1}, "serverSeq": 1}
    assert second["origin"] == {"clientId": "c", "clientSeq": 7}


def test_what_is_meant_for_one_client_is_numbered_applied_nowhere_and_replayed_to_that_client() -> None:
    state, watcher = opened(), Watcher()
    state.subscribe(URI, watcher)
    refusal = state.address(URI, {"n": 1}, "ana", {"clientId": "ana", "clientSeq": 1}, "no")
    state.dispatch(URI, {"n": 2})
    assert refusal.as_json()["rejectionReason"] == "no"
    assert state.get(URI) == {"seen": [2]}
    assert watcher.seqs == [2]
    assert [missed.seq for missed in state.missed(0, [URI], "ana")] == [1, 2]
    assert [missed.seq for missed in state.missed(0, [URI], "bob")] == [2]


@pytest.mark.parametrize(
    ("after", "can"), [(-1, False), (0, False), (1, False), (2, True), (4, True), (5, True), (6, False)]
)
def test_what_can_be_replayed_begins_where_the_ring_does_and_ends_now(after: int, can: bool) -> None:
    state = opened(3)
    for number in range(5):
        state.dispatch(URI, {"n": number})
    assert state.can_replay(after) is can
    if can:
        assert [missed.seq for missed in state.missed(after, [URI], "c")] == list(range(after + 1, 6))


def test_a_state_that_began_at_a_number_cannot_replay_from_before_it() -> None:
    state = State({"test": remember}, seq=100)
    assert state.can_replay(100)
    assert not state.can_replay(99)
    state.open(URI, "test", {"seen": []})
    assert state.dispatch(URI, {"n": 1}).seq == 101


def test_the_ring_is_bounded_in_bytes_as_well_and_says_what_it_forgot() -> None:
    state = State({"test": remember}, replay_bytes=30_000)
    state.open(URI, "test", {"seen": []})
    for _ in range(5):
        state.address(URI, {"type": "x", "junk": "j" * 10_000}, "ana", {"clientId": "ana", "clientSeq": 1}, "no")
    assert [state.can_replay(after) for after in range(6)] == [False, False, False, True, True, True]
    assert [missed.seq for missed in state.missed(3, [URI], "ana")] == [4, 5]
    state.address(URI, {"junk": "j" * 40_000}, "ana")
    assert [state.can_replay(after) for after in (5, 6)] == [False, True]
    state.dispatch(URI, {"n": 1})
    assert [missed.seq for missed in state.missed(6, [URI], "ana")] == [7]


def test_a_large_action_is_kept_as_text_alone_and_replayed_whole() -> None:
    state, watcher = opened(), Watcher()
    state.subscribe(URI, watcher)
    large, small = {"n": 1, "text": "x" * 10_000}, {"n": 2}
    sent = [state.dispatch(URI, dict(action)) for action in (large, small, small)]
    assert [(envelope.action, envelope.as_json()["action"]) for envelope in sent] == [
        ({}, large),
        (small, small),
        (small, small),
    ]
    assert [told["params"] for told in watcher.sent] == [envelope.as_json() for envelope in sent]
    assert json.loads(sent[0].encode(None)) == watcher.sent[0]


@given(st.lists(st.sampled_from(["test:/a", "test:/b", "test:/c"]), max_size=30), st.data())
def test_a_replay_is_exactly_what_was_missed(where: list[str], data: st.DataObject) -> None:
    state = opened(8, "test:/a", "test:/b", "test:/c")
    sent = [(uri, state.dispatch(uri, {"n": number}).seq) for number, uri in enumerate(where)]
    after = data.draw(st.integers(0, state.seq))
    watched = data.draw(st.sets(st.sampled_from(["test:/a", "test:/b"])))
    if state.can_replay(after):
        expected = [seq for uri, seq in sent if uri in watched and seq > after]
        assert [missed.seq for missed in state.missed(after, watched, "c")] == expected
    else:
        assert after < state.seq - 8


def test_another_channel_under_the_same_name_is_another_channel() -> None:
    state, watcher = opened(), Watcher()
    state.subscribe(URI, watcher)
    before = state.channels[URI].number
    state.close(URI)
    assert state.get(URI) is None
    state.open(URI, "test", {"seen": []})
    state.dispatch(URI, {"n": 1})
    assert state.channels[URI].number != before
    assert watcher.sent == []


def test_a_channel_that_is_not_there_is_a_key_error_and_takes_no_number() -> None:
    state = opened()
    with pytest.raises(KeyError):
        state.dispatch("test:/none", {"n": 1})
    state.tell("test:/none", Notice("x", {}))
    assert state.seq == 0


def test_notices_reach_watchers_and_take_no_number() -> None:
    state, watcher = opened(), Watcher()
    state.subscribe(URI, watcher)
    state.tell(URI, Notice("root/progress", {"channel": URI}))
    assert watcher.sent == [{"jsonrpc": "2.0", "method": "root/progress", "params": {"channel": URI}}]
    assert state.seq == 0


@pytest.mark.parametrize("bad", [object(), {"deep": [object()]}, {1j: 2}])
def test_what_is_no_json_is_refused_before_anything_has_happened(bad: object) -> None:
    state, watcher = opened(), Watcher()
    state.subscribe(URI, watcher)
    with pytest.raises(TypeError):
        state.dispatch(URI, {"n": bad})
    assert (state.seq, state.get(URI), watcher.sent) == (0, {"seen": []}, [])


def test_halves_of_characters_are_replaced_so_that_the_state_can_always_be_sent() -> None:
    state, watcher = opened(), Watcher()
    state.subscribe(URI, watcher)
    state.dispatch(URI, {"n": "a\ud800b"})
    assert state.get(URI) == {"seen": ["a\ufffdb"]} or state.get(URI) == {"seen": ["a\ufffd\ufffd\ufffdb"]}
    assert watcher.sent[0]["params"]["action"]["n"] == state.channels[URI].state["seen"][0]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(codec=None)),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(codec=None)), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(json_values)
def test_sendable_can_be_sent_and_leaves_sendable_things_alone(value: Any) -> None:
    made = sendable(value)
    json.dumps(made, ensure_ascii=False).encode()
    assert sendable(made) == made


def test_an_envelope_is_encoded_in_the_names_of_a_client() -> None:
    spelling = SessionSpelling("echo:/1", "mine:/1")
    envelope = Envelope("echo:/1", {"type": "x", "session": "echo:/1", "text": "echo:/1"}, 3)
    told = json.loads(envelope.encode(spelling))["params"]
    assert told == {
        "channel": "mine:/1",
        "serverSeq": 3,
        "action": {"type": "x", "session": "mine:/1", "text": "echo:/1"},
    }
    assert json.loads(envelope.encode(None))["params"]["channel"] == "echo:/1"
