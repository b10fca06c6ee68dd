"""The store of a host without one. What all stores have in common is asked in tests/plugins/store_sqlite."""

from __future__ import annotations

from ahpd.memory_store import MemoryStore
from ahpd.ports import PutSession, PutSummary, SessionRow, SessionStore
from trio.testing import assert_checkpoints

ROW = SessionRow("echo:/one", "one", (), None, {"title": "One"})


async def test_it_outlives_nothing_and_makes_nobody_wait() -> None:
    store: SessionStore = MemoryStore()
    await store.open({})
    store.write(PutSession(ROW, {}, {}))
    assert not store.pending
    assert not store.durable
    with assert_checkpoints():
        await store.commit()


async def test_opened_again_it_still_knows_what_it_was_given() -> None:
    store = MemoryStore()
    await store.open({})
    store.write(PutSession(ROW, {}, {}))
    newer = SessionRow("echo:/one", "one", (), None, {"title": "Two"})
    store.write(PutSummary(newer))
    await store.reserve(7)
    await store.reserve(5)
    await store.close()
    opened = await store.open({})
    assert (list(opened.rows), opened.seq, opened.changed) == ([newer], 7, frozenset())


async def test_a_loaded_state_is_not_changed_by_what_happens_next() -> None:
    store = MemoryStore()
    await store.open({"session": lambda state, action: {**state, "n": action["n"]}})
    store.write(PutSession(ROW, {"n": 0}, {}))
    before = await store.load(ROW.uri)
    store.write(PutSession(ROW, {"n": 1}, {}))
    assert before is not None
    assert before.state == {"n": 0}
