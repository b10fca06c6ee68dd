"""Names of sessions and chats, and rewriting them for a client that uses another one."""

from __future__ import annotations

from typing import Any

import pytest
from ahpd.errors import InvalidParams
from ahpd.session import names
from ahpd.session.names import PROSE, ChatSpelling, SessionSpelling
from hypothesis import given
from hypothesis import strategies as st

HELD, ALIAS = "echo:/4711", "ahp-session:/4711"
CHAT, ALIAS_CHAT = names.chat_uri("default", HELD), names.chat_uri("default", ALIAS)
spelling = SessionSpelling(HELD, ALIAS)

uris = st.sampled_from(
    [HELD, CHAT, f"{HELD}/annotations", names.chat_uri("c-1", HELD), f"{CHAT}/call-1", "echo:/47"]
)
keys = st.sampled_from(["resource", "chat", "session", "id", "text", "content", "title", "_meta", "anything"])
words = st.sampled_from(["hello", f"see {HELD}", f"{HELD} is it", f"{HELD}\nnext", f"x{HELD}", HELD + "0", ""])
leaves = uris | words | st.integers() | st.booleans() | st.none()
values = st.recursive(leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3))


@given(values)
def test_what_goes_out_comes_back_the_same(value: Any) -> None:
    assert spelling.held(spelling.out(value)) == value


@given(values)
def test_the_input_is_not_changed_and_the_held_name_is_nobodys_to_see(value: Any) -> None:
    before = repr(value)
    out = spelling.out({"resource": HELD, "chat": CHAT, "more": value})
    assert repr(value) == before
    assert (out["resource"], out["chat"]) == (ALIAS, ALIAS_CHAT)


@pytest.mark.parametrize("key", sorted(PROSE))
def test_what_somebody_wrote_is_left_alone_even_when_it_is_a_name(key: str) -> None:
    assert spelling.out({key: HELD}) == {key: HELD}
    assert spelling.out({key: {"uri": HELD}}) == {key: {"uri": ALIAS}}


@pytest.mark.parametrize(
    "text", [f"see {HELD}", f"{HELD} it is", f"{HELD}\n", HELD + "5", f"{HELD}/a b", "echo:/"]
)
def test_only_whole_names_are_rewritten(text: str) -> None:
    assert spelling.out({"uri": text}) == {"uri": text}


def test_lists_of_names_are_rewritten() -> None:
    assert spelling.out({"chats": [CHAT, CHAT]}) == {"chats": [ALIAS_CHAT, ALIAS_CHAT]}


@pytest.mark.parametrize("session", [None, spelling])
def test_a_chat_under_another_name(session: SessionSpelling | None) -> None:
    other = ChatSpelling(CHAT, "ahp-chat:/4711", session)
    value = {"resource": CHAT, "session": HELD, "text": CHAT, "others": [names.chat_uri("b", HELD)]}
    out = other.out(value)
    assert out["resource"] == "ahp-chat:/4711"
    assert out["session"] == (HELD if session is None else ALIAS)
    assert out["text"] == CHAT
    assert other.held(out) == value


@given(st.text(max_size=40))
def test_a_name_inside_a_chats_name_can_be_read_back(text: str) -> None:
    assert names.decode(names.encode(text)) == text
    assert "=" not in names.encode(text)


@given(st.text(max_size=20))
def test_reading_a_name_that_is_none_raises_nothing(text: str) -> None:
    assert isinstance(names.decode(text), str | None)


@pytest.mark.parametrize(
    ("uri", "identifier"), [("echo:/a", "a"), ("x://b", "b"), ("y:c", "c"), ("z:/d/e", "d/e")]
)
def test_the_id_of_a_session(uri: str, identifier: str) -> None:
    assert names.session_id(uri) == identifier
    assert names.held_name("echo", uri) == f"echo:/{identifier}"


@pytest.mark.parametrize("uri", ["echo:/", "echo:", "echo", "", "ahp-root://"])
def test_a_session_without_an_id_is_none(uri: str) -> None:
    with pytest.raises(InvalidParams, match="channel"):
        names.session_id(uri)


def test_root_has_three_spellings() -> None:
    assert all(map(names.is_root, ("ahp-root://", "ahp-root:", "ahp-root:/")))
    assert not any(map(names.is_root, ("ahp-root://x", "ahp-roots:", "")))


def test_names_that_are_made_up_are_not_kept_for_ever() -> None:
    kept = names.Spellings[object]()
    first = kept.of("real", object)
    for number in range(1000):
        kept.of(f"made up {number}", object)
        assert kept.of("real", object) is first
    assert len(kept._by_alias) == names.KEPT_SPELLINGS
    assert kept.of("made up 0", object) is not kept.of("made up 0 again", object)
    assert kept.of("x" * 5000, object) is not kept.of("x" * 5000, object)
