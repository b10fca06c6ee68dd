"""The tools in a whole host, called by the echo agent, seen by a client that believes only what it is sent."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from ahpd.client import AhpClient
from ahpd.testing import OpenHost, open_host

from tests.plugins.session_tools.repositories import branches, repository
from tests.plugins.session_tools.repositories import worktrees as linked


@pytest.fixture
async def opened() -> AsyncIterator[OpenHost]:
    async with open_host(plugins=["agent-echo", "session-tools"]) as host:
        yield host


class Room:
    """A session of the echo agent and the client that watches it."""

    def __init__(self, client: AhpClient, session: str) -> None:
        self.client, self.session, self.chat = client, session, client.default_chat(session)

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Let the agent call a tool; the turn."""
        turn: dict[str, Any] = await self.client.turn(self.chat, f"/call {tool} {json.dumps(arguments)}")
        return turn

    async def text(self, tool: str, **arguments: Any) -> str:
        """What the tool answered."""
        turn = await self.call(tool, **arguments)
        call = next(part["toolCall"] for part in turn["responseParts"] if part["kind"] == "toolCall")
        return "".join(item["text"] for item in call["content"])

    @property
    def state(self) -> dict[str, Any]:
        found: dict[str, Any] = self.client.states[self.session]
        return found

    @property
    def turns(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.client.states[self.chat]["turns"]
        return found


@pytest.fixture
async def room(opened: OpenHost) -> Room:
    client = await opened.client()
    return Room(client, await client.create_session("echo"))


async def test_the_nine_in_their_order(room: Room) -> None:
    assert [tool["name"] for tool in room.state["serverTools"]] == [
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
    create = next(tool for tool in room.state["serverTools"] if tool["name"] == "create_session")
    assert create["inputSchema"]["properties"]["agent"]["enum"] == ["echo"]


async def test_a_chat_is_opened_and_titled(room: Room) -> None:
    answer = await room.text("create_chat", prompt="hello", title="Side")
    link = answer.removeprefix("Chat created (").removesuffix(").")
    assert await room.text("rename_chat", chat=link, title="Other side") == 'Renamed chat to "Other side".'
    await room.client.until(lambda: [chat["title"] for chat in room.state["chats"]][1:] == ["Other side"])
    context = json.loads(await room.text("get_session_context", session=link))
    assert context["transcript"][0]["user"] == "hello"
    assert await room.text("rename_chat", title="Whole session") == 'Renamed chat to "Whole session".'
    await room.client.until(lambda: room.state["title"] == "Whole session")


async def test_a_session_moves_when_its_turn_has_ended(room: Room, tmp_path: Path) -> None:
    before = room.state["workingDirectories"]
    turn = await room.call("set_workspace", workspaceFolder=str(tmp_path), isolation=False)
    moved = tmp_path.as_uri()
    await room.client.until(lambda: len(room.turns) == 2)
    assert before != [moved] == room.state["workingDirectories"]
    said = [envelope["action"]["type"] for envelope in room.client.actions]
    assert said.index("chat/turnComplete") < said.index("session/workingDirectoryReplaced")
    first, second = room.turns
    assert first["id"] == turn["id"]
    assert second["message"]["origin"] == {"kind": "systemNotification"}
    assert second["message"]["_meta"]["vscode.chat.workspaceContinuation"] is True


async def test_a_session_gets_a_worktree_and_takes_it_along(room: Room, tmp_path: Path) -> None:
    repo = repository(Path(os.path.realpath(tmp_path)) / "repo")
    answer = await room.text(
        "create_session",
        relationship="independent",
        prompt="hello",
        title="Work",
        workspace=str(repo),
        worktree=True,
    )
    link = answer.removeprefix("New session created (").removesuffix(").")
    [tree] = linked(repo)
    [row] = json.loads(await room.text("list_sessions", session=link))["sessions"]
    assert row["workingDirectory"] == tree.as_uri()
    answer = await room.text("delete_session", session=link)
    assert answer == (
        f"Deleted session {row['session']}. Reply with one short sentence confirming the session was deleted."
    )
    assert json.loads(await room.text("list_sessions", session=link))["sessions"] == []
    assert linked(repo) == []
    assert branches(repo) == ["main"]


def texts(value: Any) -> Iterator[str]:
    """Every text anywhere in a value."""
    if isinstance(value, str):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from texts(inner)


UNKNOWN = "session must match the URI of a known session (see list_sessions)."


@pytest.mark.parametrize(
    ("tool", "arguments", "rule"),
    [
        ("create_chat", {}, "prompt must be a non-empty string."),
        ("create_chat", {"prompt": "x", "session": "echo:/none"}, UNKNOWN),
        ("rename_chat", {"title": "x" * 201}, "title must not exceed 200 characters."),
        (
            "rename_chat",
            {"title": "x", "chat": "echo:/x"},
            "chat must be an agent-host-session:// link targeting a known chat.",
        ),
        ("delete_session", {"session": "echo:/none"}, UNKNOWN),
        ("set_workspace", {"workspaceFolder": "/x"}, "isolation must be a boolean."),
        (
            "set_workspace",
            {"workspaceFolder": "x", "isolation": True},
            "workspaceFolder must be an absolute local path or file URI.",
        ),
        (
            "create_session",
            {"prompt": "x", "title": "x", "worktree": True},
            'worktree is only valid when relationship is "independent"; chats in the current session share its '
            "workspace.",
        ),
    ],
)
async def test_a_refusal_reaches_the_agent(room: Room, tool: str, arguments: dict[str, Any], rule: str) -> None:
    assert f"Invalid {tool} input: {rule}" in list(texts(await room.call(tool, **arguments)))


async def test_a_session_may_not_delete_itself(room: Room) -> None:
    turn = await room.call("delete_session", session=room.session)
    assert "Invalid delete_session input: refusing to delete the current session." in list(texts(turn))
