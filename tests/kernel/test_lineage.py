"""Session trees: links, depths, and one count for a whole tree."""

from itertools import pairwise

from ahpd.lineage import SessionTrees
from hypothesis import given
from hypothesis import strategies as st

NAMES = [f"echo:/{letter}" for letter in "abcdefg"]


def chain(*names: str) -> SessionTrees:
    trees = SessionTrees()
    for parent, child in pairwise(names):
        trees.link(child, parent)
    return trees


def test_depth_counts_the_links_above() -> None:
    trees = chain("a", "b", "c")
    assert [trees.depth(name) for name in ("a", "b", "c", "stranger")] == [0, 1, 2, 0]
    assert trees.parent("c") == "b"
    assert trees.parent("a") is None


def test_a_whole_tree_spends_together_and_another_one_apart() -> None:
    trees = chain("a", "b", "c")
    trees.link("other", "b")
    trees.charge("c", "messages")
    trees.charge("other", "messages")
    trees.charge("a", "sessions")
    assert [trees.spent(name, "messages") for name in ("a", "b", "c", "other")] == [2, 2, 2, 2]
    assert trees.spent("b", "sessions") == 1
    assert trees.spent("stranger", "messages") == 0
    trees.refund("b", "messages")
    assert trees.spent("c", "messages") == 1


def test_a_link_to_what_is_gone_still_counts() -> None:
    trees = chain("gone", "b")
    trees.charge("b", "messages")
    trees.link("c", "gone")
    assert trees.spent("c", "messages") == 1


@given(st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES)), max_size=20))
def test_no_links_ever_close_a_circle(links: list[tuple[str, str]]) -> None:
    trees = SessionTrees()
    for child, parent in links:
        trees.link(child, parent)
    for name in NAMES:
        assert trees.depth(name) < len(NAMES)
        assert trees.root(trees.root(name)) == trees.root(name)
