"""`create_chat`, `rename_chat`, `archive_chat` and `move_session`: what they do, and every way they say no."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from ahpd import AhpdError, Sender, ToolError

if TYPE_CHECKING:
    from tests.plugins.session_tools.conftest import Caller

FROM_HERE = Sender("echo:/here", "ahp-chat://default/here", "t1")
UNKNOWN = "session must match the URI of a known session (see list_sessions)."
UNKNOWN_CHAT = "chat must be an agent-host-session:// link targeting a known chat."
LINK = "agent-host-session://echo/other"


@pytest.fixture(autouse=True)
def other(caller: Caller) -> None:
    """Another session with a second chat, one that is only listed, and one of another agent."""
    caller.host.add("echo:/other", extra=["c 2"])
    caller.host.add("echo:/listed")
    caller.host.views["echo:/listed"] = replace(caller.host.views["echo:/listed"], live=False)
    caller.host.add("robin:/nest")


async def refuses(caller: Caller, name: str, given: dict[str, Any], rule: str) -> None:
    with pytest.raises(ToolError) as refused:
        await caller.text(name, **given)
    assert str(refused.value) == f"Invalid {name} input: {rule}"
    assert caller.host.asked == []


# create_chat


async def test_a_chat_in_the_calling_session(caller: Caller) -> None:
    answer = await caller.text("create_chat", prompt="Do it")
    assert answer == "Chat created (agent-host-session://echo/here?chat=c%202)."
    assert caller.host.did("create_chat") == [{"session": "echo:/here", "title": None, "model": None}]
    [sent] = caller.host.did("send")
    assert (sent["chat"], sent["text"], sent["sender"]) == ("ahp-chat://c 2/x", "Do it", FROM_HERE)


@pytest.mark.parametrize("named", ["robin:/nest", "agent-host-session://robin/nest"])
async def test_a_chat_in_another_session(caller: Caller, named: str) -> None:
    assert caller.chat is not None
    caller.host.chats[caller.chat] = {"activeTurn": {"message": {"text": "x", "model": {"id": "echo-2"}}}}
    answer = await caller.text("create_chat", session=named, prompt="Do it", title=" A  b ")
    assert answer == "Chat created (agent-host-session://robin/nest?chat=c%202)."
    # Another agent's session does not take over the model of the caller's turn.
    assert caller.host.did("create_chat") == [{"session": "robin:/nest", "title": "A b", "model": None}]


async def test_the_callers_model_goes_along(caller: Caller) -> None:
    assert caller.chat is not None
    caller.host.chats[caller.chat] = {"activeTurn": {"message": {"text": "x", "model": {"id": "echo-2"}}}}
    await caller.text("create_chat", session="echo:/other", prompt="Do it")
    assert caller.host.did("send")[0]["model"] == "echo-2"


async def test_a_chat_from_a_door(caller: Caller) -> None:
    caller.leave()
    await caller.text("create_chat", session="echo:/other", prompt="Do it", model="echo two")
    [sent] = caller.host.did("send")
    assert (sent["sender"], sent["model"]) == (None, "echo-2")


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ({"prompt": ""}, "prompt must be a non-empty string."),
        ({}, "prompt must be a non-empty string."),
        ({"prompt": "x", "session": "echo:/none"}, UNKNOWN),
        ({"prompt": "x", "title": " "}, "title must contain non-whitespace characters."),
        ({"prompt": "x", "title": "x" * 201}, "title must not exceed 200 characters."),
        ({"prompt": "x", "model": "gpt"}, 'model must match an available model id or name for provider "echo".'),
        (
            {"prompt": "x", "session": "robin:/nest", "model": "swift"},
            'model "swift" is ambiguous; use one of these model ids: r-small, r-large.',
        ),
        (
            {"prompt": "x", "model": "r-only"},
            'model "r-only" belongs to provider "robin", but relationship "currentSession" targets provider '
            '"echo".',
        ),
    ],
)
async def test_refusals_of_a_chat(caller: Caller, given: dict[str, Any], rule: str) -> None:
    await refuses(caller, "create_chat", given, rule)


async def test_at_a_door_a_chat_needs_its_session(caller: Caller) -> None:
    caller.leave()
    rule = "no session provided and the current session could not be determined."
    await refuses(caller, "create_chat", {"prompt": "x"}, rule)


async def test_a_chat_in_a_session_nobody_runs(caller: Caller) -> None:
    with pytest.raises(ToolError) as refused:
        await caller.text("create_chat", session="echo:/listed", prompt="x")
    assert str(refused.value) == "echo:/listed is not a session this host is running"


async def test_a_chat_that_cannot_begin_is_not_left(caller: Caller) -> None:
    caller.host.failing["send"] = AhpdError("archived")
    with pytest.raises(AhpdError, match="archived"):
        await caller.text("create_chat", prompt="x")
    assert caller.host.did("dispose_chat") == [{"chat": "ahp-chat://c 2/x"}]


# rename_chat


@pytest.mark.parametrize(
    ("given", "chat"),
    [
        ({}, "ahp-chat://default/here"),
        ({"session": "echo:/here"}, "ahp-chat://default/here"),
        ({"session": "agent-host-session://echo/here?chat=side"}, "ahp-chat://side/here"),
        ({"session": f"{LINK}?chat=c%202"}, "ahp-chat://c 2/other"),
        ({"chat": LINK}, "ahp-chat://default/other"),
        ({"chat": f"{LINK}?chat=c%202"}, "ahp-chat://c 2/other"),
        ({"chat": f"{LINK}?chat=c%202", "session": "echo:/other"}, "ahp-chat://c 2/other"),
    ],
)
async def test_which_chat_is_renamed(caller: Caller, given: dict[str, Any], chat: str) -> None:
    answer = await caller.text("rename_chat", title=" Fix \n login ", **given)
    assert answer == 'Renamed chat to "Fix login".'
    assert caller.host.did("rename") == [{"chat": chat, "title": "Fix login"}]


async def test_without_a_chat_the_calling_one_is_renamed(caller: Caller) -> None:
    caller.chat = "ahp-chat://side/here"
    await caller.text("rename_chat", title="x", session="echo:/here")
    assert caller.host.did("rename") == [{"chat": "ahp-chat://side/here", "title": "x"}]


async def test_an_agents_own_titling(caller: Caller) -> None:
    assert await caller.text("rename_chat", title="x", automatic=True) == "Renaming chat."
    assert caller.host.did("rename") == [{"chat": caller.chat, "title": "x"}]


async def test_where_the_host_titles_automatic_means_nothing(caller: Caller) -> None:
    assert caller.session is not None
    caller.session = replace(caller.session, strategy="deferred")
    assert await caller.text("rename_chat", title="x", automatic=True) == 'Renamed chat to "x".'


@pytest.mark.parametrize(
    ("given", "chat"),
    [
        ({"session": "echo:/other"}, "ahp-chat://default/other"),
        ({"session": f"{LINK}?chat=c%202"}, "ahp-chat://c 2/other"),
        ({"chat": LINK, "automatic": True}, "ahp-chat://default/other"),
    ],
)
async def test_renaming_from_a_door(caller: Caller, given: dict[str, Any], chat: str) -> None:
    caller.leave()
    assert await caller.text("rename_chat", title="x", **given) == 'Renamed chat to "x".'
    assert caller.host.did("rename") == [{"chat": chat, "title": "x"}]


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ({}, "title must be a non-empty string."),
        ({"title": "\t"}, "title must contain non-whitespace characters."),
        ({"title": "x" * 201}, "title must not exceed 200 characters."),
        ({"title": "x", "automatic": "yes"}, "automatic must be a boolean."),
        ({"title": "x", "chat": "echo:/other"}, UNKNOWN_CHAT),
        ({"title": "x", "chat": "agent-host-session://echo/none"}, UNKNOWN_CHAT),
        ({"title": "x", "chat": f"{LINK}?chat=none"}, UNKNOWN_CHAT),
        ({"title": "x", "chat": 5}, "chat must be a non-empty string."),
        ({"title": "x", "chat": LINK, "session": "echo:/here"}, "session must match the owning session of chat."),
        ({"title": "x", "chat": LINK, "session": "echo:/none"}, UNKNOWN),
        ({"title": "x", "session": "echo:/none"}, UNKNOWN),
        ({"title": "x", "session": "echo:/other"}, "session must match the current chat's owning session."),
    ],
)
async def test_refusals_of_renaming(caller: Caller, given: dict[str, Any], rule: str) -> None:
    await refuses(caller, "rename_chat", given, rule)


async def test_at_a_door_there_is_no_calling_chat(caller: Caller) -> None:
    caller.leave()
    rule = "chat must target a known chat, or the tool must run inside that chat."
    await refuses(caller, "rename_chat", {"title": "x"}, rule)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"chat": "agent-host-session://echo/listed"}, "agent-host-session://echo/listed"),
        ({"session": f"{LINK}?chat=none"}, f"{LINK}?chat=none"),
    ],
)
async def test_renaming_a_chat_nobody_runs(caller: Caller, given: dict[str, Any], named: str) -> None:
    with pytest.raises(ToolError) as refused:
        await caller.text("rename_chat", title="x", **given)
    assert str(refused.value) == f"{named} is not a chat this host is running."


# archive_chat


@pytest.mark.parametrize(
    ("named", "target", "answer"),
    [
        ("echo:/other", "echo:/other", f"Archived session ({LINK})."),
        (LINK, "echo:/other", f"Archived session ({LINK})."),
        ("echo:/listed", "echo:/listed", "Archived session (agent-host-session://echo/listed)."),
        (f"{LINK}?chat=c%202", "ahp-chat://c 2/other", f"Archived chat ({LINK}?chat=c%202)."),
    ],
)
async def test_archiving(caller: Caller, named: str, target: str, answer: str) -> None:
    caller.leave()
    assert await caller.text("archive_chat", session=named) == answer
    assert caller.host.did("archive") == [{"target": target, "archived": True}]


async def test_a_default_chat_is_its_session(caller: Caller) -> None:
    view = caller.host.views["echo:/other"]
    caller.host.views["echo:/other"] = replace(view, default_chat="ahp-chat://c 2/other")
    named = f"{LINK}?chat=c%202"
    assert await caller.text("archive_chat", session=named) == f"Archived session ({named})."


async def test_out_of_the_archive(caller: Caller) -> None:
    answer = await caller.text("archive_chat", session="echo:/other", archived=False)
    assert answer == f"Unarchived session ({LINK})."
    assert caller.host.did("archive") == [{"target": "echo:/other", "archived": False}]


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ({}, "session must be a non-empty string."),
        ({"session": "echo:/none"}, UNKNOWN),
        ({"session": "echo:/other", "archived": "no"}, "archived must be a boolean."),
    ],
)
async def test_refusals_of_archiving(caller: Caller, given: dict[str, Any], rule: str) -> None:
    await refuses(caller, "archive_chat", given, rule)


async def test_archiving_a_chat_there_is_not(caller: Caller) -> None:
    with pytest.raises(ToolError, match="is not a chat this host is running"):
        await caller.text("archive_chat", session=f"{LINK}?chat=none")


# move_session

SIDE = "agent-host-session://echo/here?chat=side"


@pytest.fixture
def moves_on(caller: Caller) -> None:
    caller.host.present = {"chatMoves": {"enabled": True}}


@pytest.mark.usefixtures("moves_on")
@pytest.mark.parametrize(
    ("given", "into", "after"),
    [
        ({"into": "echo:/other"}, "echo:/other", None),
        ({"into": LINK, "after": LINK}, "echo:/other", "ahp-chat://default/other"),
        ({"into": LINK, "after": f"{LINK}?chat=c%202"}, "echo:/other", "ahp-chat://c 2/other"),
        ({"into": LINK, "after": "ahp-chat://c 2/other"}, "echo:/other", "ahp-chat://c 2/other"),
        (
            {"into": "echo:/here", "after": "agent-host-session://echo/here"},
            "echo:/here",
            "ahp-chat://default/here",
        ),
    ],
)
async def test_moving(caller: Caller, given: dict[str, Any], into: str, after: str | None) -> None:
    place = into.removeprefix("echo:/")
    answer = await caller.text("move_session", session=SIDE, **given)
    assert answer == f"Moved chat (agent-host-session://echo/{place}?chat=side)."
    [moved] = caller.host.did("move_chat")
    assert moved == {"chat": "ahp-chat://side/here", "into": into, "after": after, "first": False}


@pytest.mark.usefixtures("moves_on")
async def test_a_chat_becomes_a_session(caller: Caller) -> None:
    view = caller.host.views["echo:/here"]
    moved = replace(view, uri="echo:/moved", default_chat="ahp-chat://side/here")
    caller.host.views["echo:/moved"] = moved
    answer = await caller.text("move_session", session=SIDE, relationship="independent")
    assert answer == "Moved chat to a session of its own (agent-host-session://echo/moved)."
    assert caller.host.did("move_chat")[0]["into"] is None


DESTINATION = "a move needs a destination: exactly one of into and relationship."


@pytest.mark.usefixtures("moves_on")
@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ({"session": "echo:/none", "into": LINK}, UNKNOWN),
        ({"session": SIDE}, DESTINATION),
        ({"session": SIDE, "after": LINK}, DESTINATION),
        ({"session": SIDE, "into": LINK, "relationship": "independent"}, DESTINATION),
        ({"session": SIDE, "relationship": "nested"}, 'relationship must be "independent".'),
        ({"session": SIDE, "relationship": "independent", "after": LINK}, "after is only valid with into."),
        (
            {"session": SIDE, "into": "echo:/none"},
            "into must match the URI of a known session (see list_sessions).",
        ),
        ({"session": SIDE, "into": LINK, "after": SIDE}, f"after {SIDE} is not a chat in echo:/other."),
        ({"session": SIDE, "into": LINK, "after": "x"}, "after x is not a chat in echo:/other."),
        (
            {"session": SIDE, "into": LINK, "after": f"{LINK}?chat=none"},
            f"after {LINK}?chat=none is not a chat in echo:/other.",
        ),
    ],
)
async def test_refusals_of_moving(caller: Caller, given: dict[str, Any], rule: str) -> None:
    await refuses(caller, "move_session", given, rule)


@pytest.mark.usefixtures("moves_on")
async def test_moving_a_chat_there_is_not(caller: Caller) -> None:
    with pytest.raises(ToolError, match="is not a chat this host is running"):
        await caller.text("move_session", session=f"{LINK}?chat=none", into="echo:/here")


@pytest.mark.parametrize("present", [{}, {"chatMoves": {}}, {"chatMoves": {"enabled": False}}])
async def test_moving_while_it_is_off(caller: Caller, present: dict[str, Any]) -> None:
    caller.host.present = present
    with pytest.raises(ToolError) as refused:
        await caller.text("move_session", session=SIDE, into=LINK)
    assert str(refused.value) == ("Moving chats is off on this host; the setting chatMoves.enabled turns it on.")
    assert caller.host.asked == []
