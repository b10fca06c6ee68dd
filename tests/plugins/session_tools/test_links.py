"""Open links: built, read back, and told apart from what only looks like one."""

from __future__ import annotations

import pytest
from ahpd_session_tools.links import Link, chat_id, link, parse
from hypothesis import given
from hypothesis import strategies as st

IDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(lambda text: not text.startswith("/"))


def test_a_session() -> None:
    assert link("claude:/abc") == "agent-host-session://claude/abc"


def test_a_chat() -> None:
    assert link("claude:/abc", "c 2") == "agent-host-session://claude/abc?chat=c%202"


def test_the_default_chat_is_left_out() -> None:
    assert link("claude:/abc", "default") == "agent-host-session://claude/abc"


@given(IDS, IDS)
def test_round_trip(session: str, chat: str) -> None:
    made = parse(link(f"echo:/{session}", chat))
    assert made == Link("echo", session, None if chat == "default" else chat)
    assert made.names(f"echo:/{session}")


@pytest.mark.parametrize("odd", ["a/b", "a?b#c", "100%", "ü ✓", "a&chat=b", "x=y+z", "line\nbreak", "%2F"])
def test_odd_characters(odd: str) -> None:
    assert parse(link(f"echo:/{odd}", odd)) == Link("echo", odd, odd)


def test_the_scheme_has_no_case() -> None:
    assert parse("Agent-Host-Session://echo/a") == Link("echo", "a")


def test_a_turn_is_ignored() -> None:
    assert parse("agent-host-session://echo/a?chat=c%202&turn=t") == Link("echo", "a", "c 2")
    assert parse("agent-host-session://echo/a?turn=t#x") == Link("echo", "a")


@pytest.mark.parametrize("query", ["?chat=%FF", "?chat=", "?chat=default", "?", "?xchat=c"])
def test_no_chat(query: str) -> None:
    assert parse(f"agent-host-session://echo/a{query}") == Link("echo", "a", None)


@pytest.mark.parametrize(
    "text",
    ["", "echo:/a", "agent-host-session:/echo/a", "agent-host-session:///a", "agent-host-session://echo/",
     "agent-host-session://echo", "agent-host-session://echo/%FF", "x agent-host-session://echo/a"],
)  # fmt: skip
def test_not_a_link(text: str) -> None:
    assert parse(text) is None


def test_another_provider_is_another_session() -> None:
    assert not Link("echo", "a").names("robin:/a")


@pytest.mark.parametrize(
    ("chat", "identifier"),
    [
        ("ahp-chat://default/ZWNobzovYQ", "default"),
        ("ahp-chat://c2/ZWNobzovYQ", "c2"),
        ("ahp-chat:/c3", "c3"),
        ("custom:/a/b/c4", "c4"),
        ("custom:c5", "c5"),
    ],
)
def test_chat_ids(chat: str, identifier: str) -> None:
    assert chat_id(chat) == identifier
