"""What the three tools do to the record, what they answer, and what they refuse."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
import trio
from ahpd import AhpdError, ToolError
from ahpd_artifacts import entries
from hypothesis import given, settings
from hypothesis import strategies as st

if TYPE_CHECKING:
    from tests.plugins.artifacts.conftest import Caller

PULL = {"type": "pullRequest", "label": "Fix it", "isArtifact": True, "link": "https://github.com/o/r/pull/1"}
ISSUE = {"type": "issue", "label": "Broken", "isArtifact": False, "link": "https://git.example/o/r/issues/2"}
COMMIT = {
    "type": "commit",
    "label": "c",
    "isArtifact": True,
    "link": "https://x/c/1",
    "commitHash": "abc",
}
FILE = {"type": "file", "label": "Report", "isArtifact": True, "uri": "file:///r.md"}
SITE = {"type": "website", "label": "Docs", "isArtifact": False, "link": "http://docs.example"}
OTHER = {"type": "resource", "label": "Thing", "isArtifact": False, "uri": "thing:1"}
KINDS = (PULL, ISSUE, COMMIT, FILE, SITE, OTHER)


async def test_a_batch(caller: Caller) -> None:
    lines = await caller.add(*KINDS)
    kinds, ids = zip(*(line.rsplit(" ", 1) for line in lines), strict=True)
    artifact, reference = "Added artifact:", "Added reference:"
    assert kinds == (artifact, reference, artifact, artifact, reference, reference)
    assert len({UUID(one) for one in ids}) == 6
    [(session, key, value)] = caller.host.writes
    assert (session, key) == ("echo:/here", "agentHost/sessionArtifacts")
    assert value == [
        {"id": ids[0], **PULL, "isGitHub": True},
        {"id": ids[1], **ISSUE, "isGitHub": False},
        {"id": ids[2], **COMMIT},
        {"id": ids[3], **FILE},
        {"id": ids[4], **SITE},
        {"id": ids[5], **OTHER},
    ]


async def test_one_bare_entry(caller: Caller) -> None:
    answer = await caller.text("add_artifact_or_reference", FILE)
    assert answer == f"Added artifact: {caller.stored[0]['id']}"


async def test_texts_are_trimmed_and_what_a_kind_does_not_need_is_left_out(caller: Caller) -> None:
    await caller.add({**FILE, "label": " Report\n", "uri": " file:///r.md ", "link": "nonsense", "more": 1})
    assert caller.stored == [{"id": caller.stored[0]["id"], **FILE}]


@pytest.mark.parametrize(
    ("link", "is_github"),
    [
        ("https://github.com/o/r/pull/1", True),
        ("https://www.github.com/o/r/pull/1", True),
        ("https://eu.github.com/o/r/pull/1", True),
        ("https://github.corp.example/o/r/pull/1", True),
        ("https://GitHub.com/o/r/pull/1", True),
        ("https://notgithub.com/o/r/pull/1", False),
        ("https://gitlab.com/github.com/1", False),
    ],
)
async def test_what_is_on_github(caller: Caller, link: str, is_github: bool) -> None:
    await caller.add({**PULL, "link": link})
    assert caller.stored[0]["isGitHub"] is is_github


async def test_the_same_thing_again(caller: Caller) -> None:
    [line] = await caller.add(PULL)
    known = line.removeprefix("Added artifact: ")
    again = {**PULL, "label": "Another name", "link": " HTTPS://github.com/O/R/pull/1 "}
    assert await caller.add(again) == [f"Already recorded: {known}"]
    assert await caller.add({**again, "isArtifact": False}) == [f"Already recorded: {known}"]
    assert len(caller.host.writes) == 1
    assert caller.stored[0]["label"] == "Fix it"


async def test_a_reference_is_promoted_where_it_is(caller: Caller) -> None:
    await caller.add(SITE, ISSUE, FILE)
    before = caller.stored
    answer = await caller.add({**ISSUE, "label": "Mine now", "isArtifact": True})
    assert answer == [f"Promoted artifact: {before[1]['id']}"]
    promoted = {**before[1], "label": "Mine now", "isArtifact": True}
    assert caller.stored == [before[0], promoted, before[2]]


async def test_twice_in_one_batch(caller: Caller) -> None:
    first, second, third = await caller.add(ISSUE, ISSUE, {**ISSUE, "isArtifact": True})
    known = first.removeprefix("Added reference: ")
    assert (second, third) == (f"Already recorded: {known}", f"Promoted artifact: {known}")
    assert [entry["isArtifact"] for entry in caller.stored] == [True]


INVALID = "Invalid add_artifact_or_reference input: "
TYPES = "type must be one of pullRequest, issue, commit, website, file, resource."
URI = (
    "uri must be an absolute URI including its scheme, such as 'file:///path/to/file' — not a plain file system "
    "path."
)
FLAG = "isArtifact must be a boolean — true for an artifact, false for a reference."
CHATS = "sessions and chats created with session-management tools must not be recorded as artifacts or references."
WRONG: list[tuple[dict[str, Any], str]] = [
    ({**FILE, "type": "folder"}, TYPES),
    ({**FILE, "type": ["file"]}, TYPES),
    ({**FILE, "isArtifact": "yes"}, FLAG),
    ({**FILE, "isArtifact": None}, FLAG),
    ({**FILE, "label": " "}, "label must be a non-empty string."),
    ({**FILE, "label": 1}, "label must be a non-empty string."),
    ({**FILE, "uri": ""}, "uri must be a non-empty string."),
    ({**PULL, "link": None}, "link must be a non-empty string."),
    ({**COMMIT, "commitHash": " "}, "commitHash must be a non-empty string."),
    ({**ISSUE, "link": "o/r#1"}, "link must be an absolute http(s) URL."),
    ({**ISSUE, "link": "https://"}, "link must be an absolute http(s) URL."),
    ({**ISSUE, "link": "http://[x"}, "link must be an absolute http(s) URL."),
    ({**SITE, "link": "file:///x"}, "link must be an http(s) URL, but was 'file:'."),
    ({**SITE, "link": "javascript:alert(1)"}, "link must be an http(s) URL, but was 'javascript:'."),
    ({**FILE, "uri": "/r.md"}, URI),
    ({**FILE, "uri": "r.md"}, URI),
    ({**FILE, "uri": "C:\\r.md"}, URI),
    ({**FILE, "uri": "file:"}, URI),
]


@pytest.mark.parametrize(("item", "rule"), WRONG)
async def test_refusals(caller: Caller, item: dict[str, Any], rule: str) -> None:
    with pytest.raises(ToolError) as refused:
        await caller.text("add_artifact_or_reference", item)
    assert str(refused.value) == INVALID + rule
    with pytest.raises(ToolError) as refused:
        await caller.add(PULL, item)
    assert str(refused.value) == f"{INVALID}items[1].{rule}"
    assert caller.host.writes == []


@pytest.mark.parametrize("uri", ["agent-host-session://echo/x", "Agent-Host-Session://echo/x?chat=y"])
async def test_sessions_are_no_artifacts(caller: Caller, uri: str) -> None:
    for items in ([{**FILE, "uri": uri}], [SITE, {**OTHER, "uri": uri}]):
        with pytest.raises(ToolError) as refused:
            await caller.add(*items)
        assert str(refused.value) == INVALID + CHATS


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        ([], "expected an object."),
        ("x", "expected an object."),
        ({}, "items must be a non-empty array."),
        ({"items": []}, "items must be a non-empty array."),
        ({"items": FILE}, "items must be a non-empty array."),
        ({"items": None, **FILE}, "items must be a non-empty array."),
        ({"items": [FILE, "x"]}, "items[1] must be an object."),
    ],
)
async def test_refusals_of_a_batch(caller: Caller, arguments: Any, rule: str) -> None:
    with pytest.raises(ToolError) as refused:
        await caller.tools["add_artifact_or_reference"].run(caller.call("add_artifact_or_reference", arguments))
    assert str(refused.value) == INVALID + rule
    assert caller.host.writes == []


async def test_removing(caller: Caller) -> None:
    await caller.add(PULL, ISSUE)
    first, second = (entry["id"] for entry in caller.stored)
    assert await caller.text("remove_artifact_or_reference", {"id": f" {first} "}) == f"Removed artifact: {first}"
    assert [entry["id"] for entry in caller.stored] == [second]
    assert await caller.text("remove_artifact_or_reference", {"id": second}) == f"Removed reference: {second}"
    assert caller.host.writes[-1] == ("echo:/here", "agentHost/sessionArtifacts", None)
    writes = len(caller.host.writes)
    answer = await caller.text("remove_artifact_or_reference", {"id": second})
    assert answer == f"No artifact or reference with id {second}."
    assert len(caller.host.writes) == writes


@pytest.mark.parametrize("arguments", [{}, {"id": ""}, {"id": " "}, {"id": 5}])
async def test_refusals_of_removing(caller: Caller, arguments: dict[str, Any]) -> None:
    with pytest.raises(ToolError) as refused:
        await caller.text("remove_artifact_or_reference", arguments)
    assert str(refused.value) == "Invalid remove_artifact_or_reference input: id must be a non-empty string."


async def test_listing(caller: Caller) -> None:
    nothing = "No artifacts or references recorded for this session."
    assert await caller.text("list_artifacts_and_references") == nothing
    await caller.add(COMMIT, OTHER)
    first, second = (entry["id"] for entry in caller.stored)
    assert await caller.text("list_artifacts_and_references") == (
        f"{first} (commit, artifact) c — https://x/c/1\n{second} (resource, reference) Thing — thing:1"
    )


async def test_what_is_stored_wrongly_is_skipped(caller: Caller) -> None:
    good = {"id": "a", "type": "file", "label": "Old", "uri": "file:///old"}
    wrong: list[Any] = [
        None,
        "x",
        {},
        {**good, "id": ""},
        {**good, "id": 1},
        {**good, "type": "folder"},
        {**good, "label": None},
        {**good, "uri": 5},
        {**good, "isArtifact": "no"},
    ]
    bare = {"id": "b", "type": "issue", "label": "Bare", "isArtifact": False}
    caller.host.metas["echo:/here"]["agentHost/sessionArtifacts"] = [*wrong, good, bare]
    # What says nothing of it is an artifact; what has no place has no place to show.
    listed = "a (file, artifact) Old — file:///old\nb (issue, reference) Bare"
    assert await caller.text("list_artifacts_and_references") == listed


@pytest.mark.parametrize("value", ["text", 5, {"a": 1}])
async def test_a_record_of_another_shape_is_an_empty_one(caller: Caller, value: object) -> None:
    caller.host.metas["echo:/here"]["agentHost/sessionArtifacts"] = value
    assert (await caller.text("list_artifacts_and_references")).startswith("No artifacts")
    await caller.add(FILE)
    assert len(caller.stored) == 1


async def test_chats_of_one_session_take_turns(caller: Caller) -> None:
    async def add(number: int) -> None:
        await caller.add({**FILE, "uri": f"file:///{number}"}, {**FILE, "uri": "file:///same"})

    async with trio.open_nursery() as nursery:
        for number in range(10):
            nursery.start_soon(add, number)
    uris = [entry["uri"] for entry in caller.stored]
    assert len(uris) == len(set(uris)) == 11


async def test_sessions_do_not_wait_for_each_other(caller: Caller) -> None:
    locked, there = trio.Event(), type(caller)(caller.host, caller.tools, "echo:/other")
    slow = caller.host.set_session_meta

    async def set_session_meta(session: str, key: str, value: Any) -> None:
        if session == "echo:/here":
            await locked.wait()
        await slow(session, key, value)

    caller.host.set_session_meta = set_session_meta  # type: ignore[method-assign]
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(caller.add, FILE)
            await there.add(FILE)
            locked.set()
    assert len(caller.stored) == len(there.stored) == 1


async def test_a_record_that_could_not_be_kept_can_be_changed_again(caller: Caller) -> None:
    caller.host.raises = AhpdError("disk full")
    with pytest.raises(AhpdError, match="disk full"):
        await caller.add(FILE)
    caller.host.raises = None
    assert len(await caller.add(FILE)) == 1


ANY = st.builds(
    entries.Entry,
    st.just(""),
    st.sampled_from(entries.TYPES),
    st.text(min_size=1),
    st.booleans(),
    link=st.sampled_from(["https://a/1", "https://A/1 ", "https://b/2"]),
)


@given(st.lists(ANY, max_size=12))
@settings(deadline=None)
def test_joining_keeps_one_of_each_and_never_loses_an_artifact(wanted: list[entries.Entry]) -> None:
    kept: list[entries.Entry] = []
    for number, entry in enumerate(wanted):
        before = kept
        kept = list(entries.join(kept, entry, str(number)).entries)
        assert [old.id for old in kept[: len(before)]] == [old.id for old in before]
        assert all(new.is_artifact or not old.is_artifact for old, new in zip(before, kept, strict=False))
    assert all(not one.is_same(two) for one in kept for two in kept if one is not two)
    assert entries.stored([entry.as_json() for entry in kept]) == kept
