"""Which version is agreed, and since when an action may be sent."""

import pytest
from ahpd.protocol import ACTIONS, SUPPORTED, agree, combine, family, read_version


@pytest.mark.parametrize(
    ("offered", "agreed"),
    [
        (["1.0.0", "0.9.0"], "1.0.0"),
        (["0.9.0", "1.0.0"], "1.0.0"),
        (["0.9.0", "0.7.0", "0.6.0", "0.5.2", "0.5.1"], "0.9.0"),
        (["1.0.0", "1.0.3", "1.0.12"], "1.0.12"),
        (["0.9.10", "0.9.9"], "0.9.10"),
        (["1.1.0", "2.0.0", "0.10.0"], None),
        (["1.4.0", "0.9.1"], "0.9.1"),
        (["0.8.0", "0.7.0"], None),
        ([], None),
    ],
)
def test_the_highest_version_in_range_wins(offered: list[str], agreed: str | None) -> None:
    assert agree(offered) == agreed


def test_older_peers_are_served_only_on_request() -> None:
    assert agree(["0.7.0", "0.6.0"], compat=True) == "0.7.0"
    assert agree(["0.7.0", "0.8.1", "0.6.0"], compat=True) == "0.8.1"
    assert agree(["0.6.0"], compat=True) is None
    assert agree(["0.9.0", "0.8.0"], compat=True) == "0.9.0"


@pytest.mark.parametrize(
    "bad", ["", "1", "1.0", "1.0.0.0", "01.0.0", "1.0.0-rc1", "v1.0.0", "1.0.0\n", "\u0661.0.0", "^1.0.0"]
)
def test_a_malformed_entry_is_named_even_beside_good_ones(bad: str) -> None:
    with pytest.raises(ValueError) as failure:
        agree(["1.0.0", bad])
    assert repr(bad) in str(failure.value)


def test_an_entry_that_is_no_string_or_endless_is_malformed() -> None:
    for bad in (1, None, "9" * 5000 + ".0.0"):
        with pytest.raises(ValueError) as failure:
            agree([bad])  # type: ignore[list-item]
        assert len(str(failure.value)) < 120


def test_what_the_host_offers_it_also_takes() -> None:
    assert [agree([each]) for each in SUPPORTED] == list(SUPPORTED)


def test_actions_know_since_when_they_exist() -> None:
    assert ACTIONS["chat/turnResume"].known_to("0.9.0")
    assert not ACTIONS["chat/turnResume"].known_to("0.8.9")
    assert ACTIONS["session/inputNeededSet"].since == (0, 5, 1)
    assert all(rule.known_to("0.9.0") for rule in ACTIONS.values())


def test_the_tables_have_the_rows_of_the_protocol() -> None:
    kinds = [rule.kind for rule in ACTIONS.values()]
    assert {kind: kinds.count(kind) for kind in set(kinds)} == {"root": 4, "session": 30, "chat": 36}
    assert all(name.startswith(f"{rule.kind}/") for name, rule in ACTIONS.items())


def test_a_plugin_adds_a_family_and_cannot_take_a_name() -> None:
    bell = family("bell", host={"1.0.0": "rung"}, client={"0.9.0": "ring mute"})
    assert combine(ACTIONS, bell)["bell/ring"].client_may
    assert not bell["bell/rung"].client_may
    assert bell["bell/mute"].since == read_version("0.9.0")
    with pytest.raises(ValueError, match="bell/mute"):
        combine(bell, bell)
