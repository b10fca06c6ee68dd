"""`create_session`: a chat here, or a session of its own, and every way it says no."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from ahpd import AhpdError, PermissionDenied, Sender, ToolError

if TYPE_CHECKING:
    from tests.plugins.session_tools.conftest import Caller

BASIC = {"prompt": "Do it", "title": "Work"}
ALONE = {**BASIC, "relationship": "independent"}
FROM_HERE = Sender("echo:/here", "ahp-chat://default/here", "t1")


def made(caller: Caller) -> dict[str, Any]:
    """What `create_session` was asked for."""
    return dict(caller.host.asked)["create_session"]


@pytest.mark.parametrize("more", [{}, {"relationship": "currentSession"}])
async def test_a_chat_here(caller: Caller, more: dict[str, Any]) -> None:
    answer = await caller.text("create_session", prompt=" Do it\n", title=" Much   work ", **more)
    assert answer == "Chat created in the current session (agent-host-session://echo/here?chat=c%202)."
    assert caller.host.asked == [
        ("create_chat", {"session": "echo:/here", "title": "Much work", "model": None}),
        (
            "send",
            {"chat": "ahp-chat://c 2/x", "text": " Do it\n", "steer": False, "sender": FROM_HERE, "model": None},
        ),
    ]


@pytest.mark.parametrize("wanted", ["echo-2", "Echo Two", " echo two "])
async def test_a_chat_here_with_a_model(caller: Caller, wanted: str) -> None:
    await caller.text("create_session", **BASIC, model=wanted)
    assert [given["model"] for _, given in caller.host.asked] == ["echo-2", "echo-2"]


async def test_a_session_of_its_own(caller: Caller) -> None:
    answer = await caller.text("create_session", **ALONE)
    assert answer == "New session created (agent-host-session://echo/new)."
    (first, asked), (second, sent) = caller.host.asked
    assert (first, second) == ("create_session", "send")
    assert asked == {
        "provider": "echo",
        "working_directories": ["file:///home/ana"],
        "config": {"voice": "shouty"},
        "title": "Work",
        "parent": "echo:/here",
        "owner": "user:ana",
    }
    assert sent["chat"] == "ahp-chat://default/echo"
    assert sent["sender"] == FROM_HERE


async def test_the_callers_model_goes_along_with_the_same_agent(caller: Caller) -> None:
    assert caller.chat is not None
    caller.host.chats[caller.chat] = {"activeTurn": {"message": {"text": "x", "model": {"id": "echo-2"}}}}
    for arguments, model in ((BASIC, "echo-2"), (ALONE, "echo-2"), ({**ALONE, "agent": "robin"}, None)):
        await caller.text("create_session", **arguments)
        assert caller.host.asked[-1][1]["model"] == model


async def test_a_model_one_may_not_see_is_not_taken_along(caller: Caller) -> None:
    caller.host.refuses_state = PermissionDenied("ana may not session:read here")
    await caller.text("create_session", **ALONE)
    assert caller.host.asked[-1][1]["model"] is None


async def test_another_agent_starts_with_its_own_settings(caller: Caller) -> None:
    await caller.text("create_session", **ALONE, agent="robin", config={"mood": "glad"})
    assert (made(caller)["provider"], made(caller)["config"]) == ("robin", {"mood": "glad"})


async def test_config_goes_over_the_callers(caller: Caller) -> None:
    await caller.text("create_session", **ALONE, config={"voice": "plain", "speed": 2})
    assert made(caller)["config"] == {"voice": "plain", "speed": 2}


async def test_a_model_brings_its_agent(caller: Caller) -> None:
    await caller.text("create_session", **ALONE, model="Only robin")
    assert made(caller)["provider"] == "robin"
    assert caller.host.asked[-1][1]["model"] == "r-only"


async def test_a_shared_model_is_the_callers_agents(caller: Caller) -> None:
    caller.host.known_agents.insert(0, {"provider": "twin", "models": [{"id": "echo-1", "name": "Echo One"}]})
    await caller.text("create_session", **ALONE, model="echo-1")
    assert made(caller)["provider"] == "echo"


async def test_at_a_door(caller: Caller) -> None:
    caller.leave()
    answer = await caller.text("create_session", **BASIC)
    assert answer == "New session created (agent-host-session://echo/new)."
    assert made(caller) == {
        "provider": "echo",
        "working_directories": [],
        "config": {},
        "title": "Work",
        "parent": None,
        "owner": None,
    }
    assert caller.host.asked[-1][1]["sender"] is None


async def test_at_a_door_there_is_no_current_session(caller: Caller) -> None:
    caller.leave()
    with pytest.raises(ToolError) as refused:
        await caller.text("create_session", **BASIC, relationship="currentSession")
    assert str(refused.value) == (
        'Invalid create_session input: relationship "currentSession" requires an invoking session.'
    )
    await caller.text("create_session", **ALONE)


PROJECT_A = {"uri": "file:///p/a", "displayName": "Alpha"}


@pytest.mark.parametrize(
    ("workspace", "uri"),
    [
        ("alpha", "file:///p/a"),
        ("file:///p/a", "file:///p/a"),
        ("file:///p/a/", "file:///p/a"),
        ("/p/a", "file:///p/a"),
        ("/p/my dir", "file:///p/my%20dir"),
        ("/else/../where#1", "file:///where%231"),
        ("file:///else/x%20y", "file:///else/x%20y"),
        ("vscode-remote://ssh/x", "vscode-remote://ssh/x"),
    ],
)
async def test_workspaces(caller: Caller, workspace: str, uri: str) -> None:
    caller.host.add("echo:/a", project=PROJECT_A, workingDirectories=["file:///p/my%20dir"])
    caller.host.add("echo:/b", project=PROJECT_A)
    await caller.text("create_session", **ALONE, workspace=workspace)
    assert made(caller)["working_directories"] == [uri]


async def test_a_directory_comes_before_a_projects_name(caller: Caller) -> None:
    caller.host.add("echo:/a", project={"uri": "file:///p/other", "displayName": "/p/named"})
    caller.host.add("echo:/b", workingDirectories=["file:///p/named"])
    await caller.text("create_session", **ALONE, workspace="/p/named")
    assert made(caller)["working_directories"] == ["file:///p/named"]


UNKNOWN_WORKSPACE = (
    "workspace must match a unique known project name, project URI, working directory, absolute path, or valid "
    "URI string."
)


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ({"relationship": "child"}, 'relationship must be "currentSession" or "independent".'),
        ({"relationship": None}, 'relationship must be "currentSession" or "independent".'),
        ({"relationship": ["independent"]}, 'relationship must be "currentSession" or "independent".'),
        ({"workspace": "/p"}, 'workspace is only valid when relationship is "independent".'),
        ({"agent": "echo"}, 'agent is only valid when relationship is "independent".'),
        ({"config": {}}, 'config is only valid when relationship is "independent".'),
        (
            {"worktree": False},
            'worktree is only valid when relationship is "independent"; chats in the current session share its '
            "workspace.",
        ),
        ({"prompt": " \n"}, "prompt must be a non-empty string."),
        ({"prompt": None}, "prompt must be a non-empty string."),
        ({"title": ""}, "title must be a non-empty string."),
        ({"title": 3}, "title must be a non-empty string."),
        ({"title": " \t "}, "title must contain non-whitespace characters."),
        ({"title": "x" * 201}, "title must not exceed 200 characters."),
        ({"model": "gpt"}, 'model must match an available model id or name for provider "echo".'),
        ({"model": ""}, "model must be a non-empty string."),
        (
            {"model": "r-only"},
            'model "r-only" belongs to provider "robin", but relationship "currentSession" targets provider '
            '"echo".',
        ),
    ],
)
async def test_refusals_of_a_chat_here(caller: Caller, given: dict[str, Any], rule: str) -> None:
    await refuses(caller, {**BASIC, **given}, rule)


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ({"prompt": ""}, "prompt must be a non-empty string."),
        ({"title": None}, "title must be a non-empty string."),
        ({"workspace": ""}, "workspace must be a non-empty string."),
        ({"workspace": "nowhere"}, UNKNOWN_WORKSPACE),
        ({"worktree": "yes"}, "worktree must be a boolean."),
        ({"worktree": None}, "worktree must be a boolean."),
        ({"workspace": "./x"}, UNKNOWN_WORKSPACE),
        ({"workspace": "C:\\x"}, UNKNOWN_WORKSPACE),
        (
            {"workspace": "twin"},
            'workspace "twin" is ambiguous; use one of these project URIs: file:///t/1, file:///t/2.',
        ),
        ({"agent": "nobody"}, "agent must be one of echo, robin."),
        ({"model": "gpt"}, "model must match an available model id or name."),
        ({"model": "swift"}, 'model "swift" is ambiguous; use one of these model ids: r-small, r-large.'),
        (
            {"model": "echo-1", "agent": "robin"},
            'model must match an available model id or name for provider "robin".',
        ),
        ({"config": []}, "config must be an object."),
        ({"config": {"nope": 1}}, "config.nope is not a setting of echo."),
        ({"config": {"voice": "odd"}}, "config.voice must be one of plain, shouty."),
        ({"config": {"speed": "fast"}}, "config.speed must be a number."),
        ({"config": {"speed": True}}, "config.speed must be a number."),
        ({"config": {"loud": 1}}, "config.loud must be a boolean."),
    ],
)
async def test_refusals_of_an_own_session(caller: Caller, given: dict[str, Any], rule: str) -> None:
    for number in (1, 2):
        caller.host.add(f"echo:/{number}", project={"uri": f"file:///t/{number}", "displayName": "Twin"})
    await refuses(caller, {**ALONE, **given}, rule)


async def refuses(caller: Caller, arguments: dict[str, Any], rule: str) -> None:
    with pytest.raises(ToolError) as refused:
        await caller.text("create_session", **arguments)
    assert str(refused.value) == f"Invalid create_session input: {rule}"
    assert caller.host.asked == []


async def test_no_agent_at_all(caller: Caller) -> None:
    caller.host.known_agents = []
    with pytest.raises(ToolError, match="no agent a session could be started on"):
        await caller.text("create_session", **ALONE)


async def test_a_title_of_200_characters_fits(caller: Caller) -> None:
    await caller.text("create_session", prompt="x", title="é" * 200)
    assert caller.host.asked[0][1]["title"] == "é" * 200


async def test_unknown_properties_are_ignored(caller: Caller) -> None:
    await caller.text("create_session", **BASIC, wheel=True, colour="red")
    assert caller.host.asked[0][0] == "create_chat"


async def test_a_chat_whose_first_message_fails_does_not_stay(caller: Caller) -> None:
    caller.host.failing["send"] = AhpdError("This host is stopping")
    with pytest.raises(AhpdError, match="stopping"):
        await caller.text("create_session", **BASIC)
    assert caller.host.asked[-1] == ("dispose_chat", {"chat": "ahp-chat://c 2/x"})


async def test_a_session_whose_first_message_fails_does_not_stay(caller: Caller) -> None:
    caller.host.failing["send"] = AhpdError("This host is stopping")
    with pytest.raises(AhpdError, match="stopping"):
        await caller.text("create_session", **ALONE)
    assert caller.host.did("delete_session") == [{"session": "echo:/new", "principal": "user:ana"}]


async def test_what_cannot_be_taken_back_does_not_hide_what_failed(caller: Caller) -> None:
    caller.host.failing = {"send": AhpdError("first"), "delete_session": AhpdError("second")}
    with pytest.raises(AhpdError, match="first"):
        await caller.text("create_session", **ALONE)
