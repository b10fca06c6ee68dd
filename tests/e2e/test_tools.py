"""The host's own tools over a real socket: every refusal a model can read, to the letter, and every limit.

Each is triggered through the echo agent's `/call` line. Not here, because nothing in a session can trigger them:
refusals over grants (without a user directory everybody is root) and those of tools that only doors have.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest
from ahpd.client import AhpClient, answer_text

from ..conftest import Json, turn_running
from .conftest import Daemon, Home, Reachable, Start

SESSION_TOOLS = [
    "list_sessions",
    "get_current_session",
    "set_workspace",
    "create_session",
    "create_chat",
    "rename_chat",
    "send_message",
    "get_session_context",
    "delete_session",
]
ARTIFACT_TOOLS = ["add_artifact_or_reference", "remove_artifact_or_reference", "list_artifacts_and_references"]
AT_DOORS_ONLY = ["list_agents", "list_models", "archive_chat", "move_session"]

UNKNOWN = "session must match the URI of a known session (see list_sessions)."
TITLE = "t" * 201
START = {"prompt": "hi", "title": "New"}
ALONE = {**START, "relationship": "independent"}
FILE = {"type": "file", "label": "Report", "isArtifact": True, "uri": "file:///r.md"}
LINK = {"type": "issue", "label": "Bug", "isArtifact": False, "link": "https://github.com/a/b/issues/1"}
NO_PATH = (
    "uri must be an absolute URI including its scheme, such as 'file:///path/to/file' — "
    "not a plain file system path."
)
NO_SESSIONS = (
    "sessions and chats created with session-management tools must not be recorded as artifacts or references."
)


def text(name: str) -> str:
    return f"{name} must be a non-empty string."


def flag(name: str) -> str:
    return f"{name} must be a boolean."


def without(entry: Json, name: str) -> Json:
    return {key: value for key, value in entry.items() if key != name}


INPUT: list[tuple[str, Json, str]] = [
    ("list_sessions", {"session": ""}, text("session")),
    ("list_sessions", {"workspace": ""}, text("workspace")),
    ("list_sessions", {"agent": 1}, text("agent")),
    ("list_sessions", {"title": " "}, text("title")),
    ("list_sessions", {"path": None}, text("path")),
    ("list_sessions", {"status": "idle"}, "status must be an array of status names."),
    (
        "list_sessions",
        {"status": ["idle", "gone", "lost"]},
        "unknown status value(s) gone, lost. Valid values: idle, inProgress, inputNeeded, error, archived.",
    ),
    ("list_sessions", {"withChanges": "yes"}, flag("withChanges")),
    ("list_sessions", {"unread": 1}, flag("unread")),
    ("list_sessions", {"withPullRequest": None}, flag("withPullRequest")),
    ("list_sessions", {"includeArchived": "no"}, flag("includeArchived")),
    ("list_sessions", {"createdAfter": 5}, "createdAfter must be an ISO-8601 timestamp string."),
    (
        "list_sessions",
        {"createdBefore": "soon"},
        "createdBefore must be a valid ISO-8601 timestamp (e.g. 2025-01-31T00:00:00Z).",
    ),
    ("list_sessions", {"modifiedAfter": []}, "modifiedAfter must be an ISO-8601 timestamp string."),
    (
        "list_sessions",
        {"modifiedBefore": "2025-13-01"},
        "modifiedBefore must be a valid ISO-8601 timestamp (e.g. 2025-01-31T00:00:00Z).",
    ),
    ("list_sessions", {"limit": 0}, "limit must be a positive number."),
    ("get_session_context", {}, text("session")),
    ("get_session_context", {"session": "echo:/nobody"}, UNKNOWN),
    ("get_session_context", {"session": "HERE", "detail": "all"}, "detail must be one of summary, digest, full."),
    (
        "get_session_context",
        {"session": "HERE", "transcriptLimit": 0},
        "transcriptLimit must be a positive number.",
    ),
    ("send_message", {"message": "hi"}, text("session")),
    ("send_message", {"session": "echo:/nobody", "message": "hi"}, UNKNOWN),
    ("send_message", {"session": "HERE", "message": "hi"}, "refusing to send a message to the current chat."),
    ("send_message", {"session": "OTHER"}, text("message")),
    (
        "send_message",
        {"session": "OTHER", "operation": "undo"},
        "operation must be one of send, replace, cancel.",
    ),
    (
        "send_message",
        {"session": "OTHER", "message": "hi", "delivery": "now"},
        "delivery must be one of queue, steer.",
    ),
    ("send_message", {"session": "OTHER", "message": "hi", "operation": "replace"}, text("messageId")),
    ("send_message", {"session": "OTHER", "operation": "cancel"}, text("messageId")),
    (
        "send_message",
        {"session": "OTHER", "operation": "cancel", "messageId": "x"},
        "expectedRevision must be a positive number.",
    ),
    (
        "send_message",
        {"session": "OTHER", "operation": "cancel", "messageId": "x", "expectedRevision": 1},
        "messageId must name a queued message this chat sent.",
    ),
    (
        "create_session",
        {**START, "relationship": "friend"},
        'relationship must be "currentSession" or "independent".',
    ),
    (
        "create_session",
        {**START, "workspace": "/tmp"},
        'workspace is only valid when relationship is "independent".',
    ),
    ("create_session", {**START, "agent": "echo"}, 'agent is only valid when relationship is "independent".'),
    ("create_session", {**START, "config": {}}, 'config is only valid when relationship is "independent".'),
    (
        "create_session",
        {**START, "worktree": True},
        'worktree is only valid when relationship is "independent"; '
        "chats in the current session share its workspace.",
    ),
    ("create_session", without(START, "prompt"), text("prompt")),
    ("create_session", without(START, "title"), text("title")),
    ("create_session", {**ALONE, "prompt": " "}, text("prompt")),
    ("create_session", {**ALONE, "title": " "}, "title must contain non-whitespace characters."),
    ("create_session", {**ALONE, "title": TITLE}, "title must not exceed 200 characters."),
    ("create_session", {**ALONE, "agent": "nobody"}, "agent must be one of echo."),
    ("create_session", {**ALONE, "model": "huge"}, "model must match an available model id or name."),
    (
        "create_session",
        {**ALONE, "agent": "echo", "model": "huge"},
        'model must match an available model id or name for provider "echo".',
    ),
    (
        "create_session",
        {**START, "model": "huge"},
        'model must match an available model id or name for provider "echo".',
    ),
    ("create_session", {**ALONE, "config": []}, "config must be an object."),
    ("create_session", {**ALONE, "config": {"size": 1}}, "config.size is not a setting of echo."),
    ("create_session", {**ALONE, "worktree": "yes"}, flag("worktree")),
    (
        "create_session",
        {**ALONE, "workspace": "nowhere at all"},
        "workspace must match a unique known project name, project URI, working directory, absolute path, "
        "or valid URI string.",
    ),
    ("create_chat", {}, text("prompt")),
    ("create_chat", {**START, "session": "echo:/nobody"}, UNKNOWN),
    ("create_chat", {**START, "title": TITLE}, "title must not exceed 200 characters."),
    ("create_chat", {**START, "title": "\t"}, "title must contain non-whitespace characters."),
    (
        "create_chat",
        {**START, "model": "huge"},
        'model must match an available model id or name for provider "echo".',
    ),
    ("rename_chat", {}, text("title")),
    ("rename_chat", {"title": " "}, "title must contain non-whitespace characters."),
    ("rename_chat", {"title": TITLE}, "title must not exceed 200 characters."),
    ("rename_chat", {"title": "x", "automatic": "yes"}, flag("automatic")),
    ("rename_chat", {"title": "x", "session": "echo:/nobody"}, UNKNOWN),
    ("rename_chat", {"title": "x", "session": "OTHER"}, "session must match the current chat's owning session."),
    (
        "rename_chat",
        {"title": "x", "chat": "ahp-chat://a/b"},
        "chat must be an agent-host-session:// link targeting a known chat.",
    ),
    (
        "rename_chat",
        {"title": "x", "chat": "OTHER-LINK?chat=none"},
        "chat must be an agent-host-session:// link targeting a known chat.",
    ),
    (
        "rename_chat",
        {"title": "x", "chat": "OTHER-LINK", "session": "HERE"},
        "session must match the owning session of chat.",
    ),
    ("set_workspace", {"isolation": False}, text("workspaceFolder")),
    (
        "set_workspace",
        {"workspaceFolder": "src", "isolation": False},
        "workspaceFolder must be an absolute local path or file URI.",
    ),
    (
        "set_workspace",
        {"workspaceFolder": "file:///src?x", "isolation": False},
        "workspaceFolder must be an absolute local path or file URI.",
    ),
    ("set_workspace", {"workspaceFolder": "/tmp"}, flag("isolation")),
    ("set_workspace", {"workspaceFolder": "/tmp", "isolation": "no"}, flag("isolation")),
    ("delete_session", {}, text("session")),
    ("delete_session", {"session": "echo:/nobody"}, UNKNOWN),
    ("delete_session", {"session": "HERE"}, "refusing to delete the current session."),
    ("add_artifact_or_reference", {}, "items must be a non-empty array."),
    ("add_artifact_or_reference", {"items": []}, "items must be a non-empty array."),
    ("add_artifact_or_reference", {"items": ["x"]}, "items[0] must be an object."),
    (
        "add_artifact_or_reference",
        {"items": [FILE, {**FILE, "type": "poem"}]},
        "items[1].type must be one of pullRequest, issue, commit, website, file, resource.",
    ),
    (
        "add_artifact_or_reference",
        {"items": [without(FILE, "isArtifact")]},
        "items[0].isArtifact must be a boolean — true for an artifact, false for a reference.",
    ),
    ("add_artifact_or_reference", {"items": [{**FILE, "label": " "}]}, text("items[0].label")),
    ("add_artifact_or_reference", {"items": [without(FILE, "uri")]}, text("items[0].uri")),
    ("add_artifact_or_reference", {"items": [without(LINK, "link")]}, text("items[0].link")),
    ("add_artifact_or_reference", {"items": [{**LINK, "type": "commit"}]}, text("items[0].commitHash")),
    ("add_artifact_or_reference", {**without(FILE, "uri")}, text("uri")),
    (
        "add_artifact_or_reference",
        {"items": [{**LINK, "link": "github.com/a"}]},
        "items[0].link must be an absolute http(s) URL.",
    ),
    (
        "add_artifact_or_reference",
        {"items": [{**LINK, "link": "file:///a"}]},
        "items[0].link must be an http(s) URL, but was 'file:'.",
    ),
    ("add_artifact_or_reference", {"items": [{**FILE, "uri": "/a"}]}, f"items[0].{NO_PATH}"),
    ("add_artifact_or_reference", {"items": [{**FILE, "uri": "c:\\a"}]}, f"items[0].{NO_PATH}"),
    ("add_artifact_or_reference", {"items": [{**FILE, "uri": "OTHER-LINK"}]}, NO_SESSIONS),
    ("remove_artifact_or_reference", {}, text("id")),
    ("schedule_wakeup", {"prompt": "x"}, "delaySeconds must be a number from 60 to 2592000."),
    ("schedule_wakeup", {"delaySeconds": 59, "prompt": "x"}, "delaySeconds must be a number from 60 to 2592000."),
    (
        "schedule_wakeup",
        {"delaySeconds": 2592001, "prompt": "x"},
        "delaySeconds must be a number from 60 to 2592000.",
    ),
    ("schedule_wakeup", {"delaySeconds": 60}, text("prompt")),
    ("schedule_wakeup", {"stop": "yes"}, flag("stop")),
]
"""Tool, arguments, and what comes behind `Invalid <tool> input: `. HERE is the calling session, OTHER another."""

SENTENCES: list[tuple[str, Json, str]] = [
    (
        "send_message",
        {"session": "OTHER-LINK?chat=none", "message": "hi"},
        "OTHER-LINK?chat=none is not a session this host is running",
    ),
    (
        "create_session",
        {**ALONE, "workspace": "/", "worktree": True},
        "/ is not a git repository, so it has no worktrees",
    ),
]
"""The same for refusals that are not about what was given."""


@dataclass
class Room:
    """A session that calls tools, and another one."""

    client: AhpClient
    session: str
    other: str

    @property
    def chat(self) -> str:
        return self.client.default_chat(self.session)

    def named(self, value: str) -> str:
        link = f"agent-host-session://echo/{self.other.partition(':/')[2]}"
        return value.replace("OTHER-LINK", link).replace("OTHER", self.other).replace("HERE", self.session)

    async def call(self, tool: str, arguments: Json) -> Json:
        """The finished tool call."""
        [call] = await called(self.client, self.chat, self.named(f"/call {tool} {json.dumps(arguments)}"))
        return call

    async def refused(self, tool: str, arguments: Json) -> str:
        call = await self.call(tool, arguments)
        assert call["success"] is False, words(call)
        return words(call)


async def called(client: AhpClient, chat: str, line: str, times: int = 1) -> list[Json]:
    """The tool calls of one turn, in which a line was said so many times."""
    turn = await client.turn(chat, "\n".join([line] * times), patience=60)
    assert turn["state"] == "complete"
    return [part["toolCall"] for part in turn["responseParts"] if part["kind"] == "toolCall"]


def words(call: Json) -> str:
    return "".join(item["text"] for item in call["content"])


@pytest.fixture
async def room(shared: Reachable) -> Room:
    client = await shared.client()
    return Room(client, await client.create_session(), await client.create_session())


async def test_a_session_is_offered_the_tools_in_the_order_of_the_product(room: Room) -> None:
    offered = [tool["name"] for tool in room.client.states[room.session]["serverTools"]]
    assert offered == [*SESSION_TOOLS, *ARTIFACT_TOOLS, "schedule_wakeup"]
    for tool in AT_DOORS_ONLY:
        turn = await room.client.turn(room.chat, f"/call {tool} {{}}")
        assert answer_text(turn) == f"There is no tool named {tool} here."


async def test_every_refusal_of_input_to_the_letter(room: Room) -> None:
    told = [await room.refused(tool, arguments) for tool, arguments, _ in INPUT]
    assert told == [f"Invalid {tool} input: {rule}" for tool, _, rule in INPUT]
    assert {tool for tool, _, _ in INPUT} == {*SESSION_TOOLS, *ARTIFACT_TOOLS, "schedule_wakeup"} - {
        "get_current_session",
        "list_artifacts_and_references",
    }, "these two take nothing that could be wrong"


async def test_every_other_refusal_to_the_letter(room: Room) -> None:
    for tool, arguments, sentence in SENTENCES:
        assert await room.refused(tool, arguments) == room.named(sentence)


async def test_what_is_an_answer_and_no_refusal(room: Room) -> None:
    answers: dict[str, tuple[Json, str]] = {
        "remove_artifact_or_reference": ({"id": "none"}, "No artifact or reference with id none."),
        "list_artifacts_and_references": ({}, "No artifacts or references recorded for this session."),
        "schedule_wakeup": ({"stop": True}, "This chat has no wakeup."),
        "list_sessions": ({"session": "echo:/nobody"}, '{"sessions":[]}'),
    }
    for tool, (arguments, answer) in answers.items():
        call = await room.call(tool, arguments)
        assert (call["success"], words(call)) == (True, answer)


async def test_a_queued_message_is_changed_at_its_revision_alone(room: Room) -> None:
    client, other = room.client, room.client.default_chat(room.other)
    busy = await client.start_turn(other, "/sleep 600")
    await turn_running(client, other)
    call = await room.call("send_message", {"session": "OTHER", "message": "later"})
    message = words(call).partition("messageId ")[2].partition(",")[0]
    change = {"session": "OTHER", "messageId": message, "expectedRevision": 1}
    assert (await room.call("send_message", {**change, "operation": "replace", "message": "much later"}))[
        "success"
    ]
    stale = "Invalid send_message input: expectedRevision must be the message's current revision (now 2)."
    assert await room.refused("send_message", {**change, "operation": "cancel"}) == stale
    unknown = "Invalid send_message input: messageId must name a queued message this chat sent."
    mine = room.session
    room.session = await client.create_session()
    assert await room.refused("send_message", {**change, "operation": "cancel", "expectedRevision": 2}) == unknown
    room.session = mine
    assert (await room.call("send_message", {**change, "operation": "cancel", "expectedRevision": 2}))["success"]
    await client.dispatch(other, {"type": "chat/turnCancelled", "turnId": busy, "duration": 0})
    await client.finished(other, busy)


TWIN = """
from ahpd import Model, hookimpl
from ahpd_agent_echo.agent import EchoAgent

class Twin(EchoAgent):
    provider = "twin"
    display_name = "Twin"

    def models(self):
        return (Model("twin-1", "Same"), Model("twin-2", "Same"))

@hookimpl
def ahpd_agents():
    return [Twin()]
"""


async def test_refusals_that_need_a_second_agent(home: Home, start: Start) -> None:
    await home.install("twin", TWIN)
    daemon: Daemon = await start()
    client = await daemon.client()
    room = Room(client, await client.create_session(), await client.create_session())
    assert await room.refused("create_session", {**START, "model": "twin-1"}) == (
        'Invalid create_session input: model "twin-1" belongs to provider "twin", '
        'but relationship "currentSession" targets provider "echo".'
    )
    ambiguous = 'model "Same" is ambiguous; use one of these model ids: twin-1, twin-2.'
    for more in ({}, {"agent": "twin"}):
        told = await room.refused("create_session", {**ALONE, **more, "model": "Same"})
        assert told == f"Invalid create_session input: {ambiguous}"
    told = await room.refused("create_session", {**ALONE, "agent": "nobody"})
    assert told == "Invalid create_session input: agent must be one of echo, twin."


# Limits

CREATE = f"/call create_session {json.dumps(ALONE)}"


async def opened(client: AhpClient, call: Json) -> str:
    """The session that a `create_session` made, watched."""
    assert call["success"] is True, words(call)
    session = "echo:/" + words(call).partition("agent-host-session://echo/")[2].partition(")")[0].partition("?")[0]
    await client.subscribe(session)
    await client.subscribe(client.default_chat(session))
    return session


async def test_a_chain_of_sessions_ends_at_the_fourth(room: Room) -> None:
    session = room.session
    for _ in range(3):
        [call] = await called(room.client, room.client.default_chat(session), CREATE)
        session = await opened(room.client, call)
    chat = room.client.default_chat(session)
    [call] = await called(room.client, chat, CREATE)
    assert (call["success"], words(call)) == (
        False,
        "Refusing to create a session: recursion limit reached (max spawn depth 3). "
        "This session was itself created 3 level(s) deep.",
    )
    [call] = await called(room.client, chat, f"/call create_session {json.dumps(START)}")
    assert call["success"] is True, "a chat is not a level deeper"


@pytest.mark.parametrize(
    ("line", "most", "refusal"),
    [
        (
            CREATE,
            50,
            "Refusing to create more than 50 sessions from server tools in this session tree.",
        ),
        (
            f"/call create_chat {json.dumps(START)}",
            50,
            "Refusing to create more than 50 chats from server tools in this session tree.",
        ),
        (
            '/call send_message {"session": "OTHER", "message": "hi"}',
            100,
            "Refusing to send more than 100 messages from server tools in this session tree.",
        ),
    ],
    ids=["sessions", "chats", "messages"],
)
async def test_a_tree_spends_its_own_budget_and_nobody_elses(
    room: Room, line: str, most: int, refusal: str
) -> None:
    client, line = room.client, room.named(line)
    [child] = await called(client, room.chat, CREATE)
    inside = await opened(client, child)
    spent = 1 if line == CREATE else 0
    wrong = line.partition("{")[0] + "{}"
    refused = await called(client, room.chat, wrong, 3)
    assert [call["success"] for call in refused] == [False] * 3, "refused calls are not counted"

    calls = await called(client, room.chat, line, most - spent + 2)
    assert [call["success"] for call in calls] == [True] * (most - spent) + [False] * 2
    assert {words(call) for call in calls[-2:]} == {refusal}
    [call] = await called(client, client.default_chat(inside), line)
    assert words(call) == refusal, "the whole tree has spent it"

    elsewhere = await client.create_session()
    [call] = await called(client, client.default_chat(elsewhere), line)
    assert call["success"] is True, "another tree has its own"


def test_the_table_holds_no_line_twice() -> None:
    lines: list[Any] = [(tool, json.dumps(arguments)) for tool, arguments, _ in INPUT]
    assert len(set(lines)) == len(lines)
