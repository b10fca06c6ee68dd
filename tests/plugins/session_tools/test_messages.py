"""`send_message` and `get_session_context`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from ahpd import Conflict, NotFound, Principal, Sender, Sent, ToolError

if TYPE_CHECKING:
    from tests.plugins.session_tools.conftest import Caller

UNKNOWN = "session must match the URI of a known session (see list_sessions)."
FROM_HERE = Sender("echo:/here", "ahp-chat://default/here", "t1")


@pytest.fixture(autouse=True)
def other(caller: Caller) -> None:
    caller.host.add("echo:/other", extra=["c 2"])


@pytest.mark.parametrize(
    ("session", "chat", "link"),
    [
        ("echo:/other", "ahp-chat://default/other", "agent-host-session://echo/other"),
        ("agent-host-session://echo/other", "ahp-chat://default/other", "agent-host-session://echo/other"),
        (
            "AGENT-HOST-SESSION://echo/other?chat=c%202",
            "ahp-chat://c 2/other",
            "agent-host-session://echo/other?chat=c%202",
        ),
        (
            "agent-host-session://echo/here?chat=side",
            "ahp-chat://side/here",
            "agent-host-session://echo/here?chat=side",
        ),
    ],
)
async def test_send(caller: Caller, session: str, chat: str, link: str) -> None:
    result = await caller.result("send_message", session=session, message=" hi ")
    assert result.text == f"Message sent ({link}). messageId m1, revision 1."
    assert result.structured == {"state": "sent", "messageId": "m1", "revision": 1, "openLink": link}
    assert caller.host.asked == [
        ("send", {"chat": chat, "text": " hi ", "steer": False, "sender": FROM_HERE, "model": None})
    ]


@pytest.mark.parametrize("state", ["queued", "steered"])
async def test_what_became_of_it(caller: Caller, state: Any) -> None:
    caller.host.sent = Sent("m2", 1, state)
    text = await caller.text("send_message", session="echo:/other", message="hi", delivery="steer")
    assert text == f"Message {state} (agent-host-session://echo/other). messageId m2, revision 1."
    assert caller.host.asked[0][1]["steer"] is True


async def test_replace(caller: Caller) -> None:
    result = await caller.result(
        "send_message",
        session="echo:/other",
        operation="replace",
        message="better",
        messageId="m1",
        expectedRevision=2,
    )
    assert result.text == "Message replaced (agent-host-session://echo/other). messageId m1, revision 3."
    assert caller.host.asked == [
        (
            "replace",
            {
                "chat": "ahp-chat://default/other",
                "message": "m1",
                "text": "better",
                "expected": 2,
                "by": "ahp-chat://default/here",
            },
        )
    ]


async def test_cancel_needs_no_message(caller: Caller) -> None:
    text = await caller.text(
        "send_message", session="echo:/other", operation="cancel", messageId="m1", expectedRevision=1
    )
    assert text == "Message cancelled (agent-host-session://echo/other). messageId m1, revision 1."


async def test_at_a_door_it_is_the_persons(caller: Caller) -> None:
    caller.leave()
    await caller.text("send_message", session="echo:/here", message="hi")
    await caller.text("send_message", session="echo:/here", operation="cancel", messageId="m1", expectedRevision=1)
    (_, sent), (_, cancelled) = caller.host.asked
    assert sent["sender"] is None
    assert cancelled["by"] == "user:ana"


CHANGE = {
    "session": "echo:/other",
    "operation": "replace",
    "message": "x",
    "messageId": "m",
    "expectedRevision": 1,
}


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ({"session": "echo:/none", "message": "x"}, UNKNOWN),
        ({"session": "robin:/other", "message": "x"}, UNKNOWN),
        ({"session": "agent-host-session://robin/other", "message": "x"}, UNKNOWN),
        ({"session": " ", "message": "x"}, "session must be a non-empty string."),
        ({"message": "x"}, "session must be a non-empty string."),
        ({"session": "echo:/here", "message": "x"}, "refusing to send a message to the current chat."),
        (
            {"session": "agent-host-session://echo/here?chat=default", "message": "x"},
            "refusing to send a message to the current chat.",
        ),
        ({"session": "echo:/other"}, "message must be a non-empty string."),
        ({"session": "echo:/other", "message": "  "}, "message must be a non-empty string."),
        ({"session": "echo:/other", "message": 5}, "message must be a non-empty string."),
        (
            {"session": "echo:/other", "message": "x", "operation": "drop"},
            "operation must be one of send, replace, cancel.",
        ),
        ({"session": "echo:/other", "message": "x", "delivery": 1}, "delivery must be one of queue, steer."),
        ({**CHANGE, "message": ""}, "message must be a non-empty string."),
        ({**CHANGE, "messageId": ""}, "messageId must be a non-empty string."),
        ({**CHANGE, "expectedRevision": 0}, "expectedRevision must be a positive number."),
        ({**CHANGE, "expectedRevision": "1"}, "expectedRevision must be a positive number."),
    ],
)
async def test_refusals(caller: Caller, given: dict[str, Any], rule: str) -> None:
    with pytest.raises(ToolError) as refused:
        await caller.text("send_message", **given)
    assert str(refused.value) == f"Invalid send_message input: {rule}"
    assert caller.host.asked == []


async def test_a_change_needs_its_revision(caller: Caller) -> None:
    with pytest.raises(ToolError, match="expectedRevision must be a positive number"):
        await caller.text("send_message", session="echo:/other", operation="cancel", messageId="m")


@pytest.mark.parametrize("operation", ["replace", "cancel"])
async def test_a_message_that_is_not_there_to_change(caller: Caller, operation: str) -> None:
    caller.host.raises = NotFound("gone")
    with pytest.raises(ToolError) as refused:
        await caller.text("send_message", **{**CHANGE, "operation": operation})
    assert str(refused.value) == (
        "Invalid send_message input: messageId must name a queued message this chat sent."
    )


async def test_a_message_that_moved_on(caller: Caller) -> None:
    caller.host.raises = Conflict("moved on", {"revision": 3})
    with pytest.raises(ToolError) as refused:
        await caller.text("send_message", **CHANGE)
    assert str(refused.value) == (
        "Invalid send_message input: expectedRevision must be the message's current revision (now 3)."
    )


@pytest.mark.parametrize(
    "session", ["echo:/listed", "agent-host-session://echo/listed", "agent-host-session://echo/other?chat=zz"]
)
async def test_a_session_or_chat_nobody_runs(caller: Caller, session: str) -> None:
    caller.host.add("echo:/listed")
    del caller.host.views["echo:/listed"]
    with pytest.raises(ToolError) as refused:
        await caller.text("send_message", session=session, message="x")
    assert str(refused.value) == f"{session} is not a session this host is running"


async def test_what_one_may_not_read_is_not_known(caller: Caller) -> None:
    caller.principal = Principal("user:bo", "bo", frozenset({"session:write"}))
    with pytest.raises(ToolError, match="must match the URI of a known session"):
        await caller.text("send_message", session="echo:/other", message="x")


def turn(text: str, *parts: dict[str, Any], state: str = "complete") -> dict[str, Any]:
    return {"message": {"text": text}, "responseParts": list(parts), "state": state}


def said(text: str) -> dict[str, Any]:
    return {"kind": "markdown", "id": "p", "content": text}


def called(name: str, **more: Any) -> dict[str, Any]:
    return {"kind": "toolCall", "toolCall": {"toolName": name, **more}}


CHAT = "ahp-chat://default/other"


async def test_context(caller: Caller) -> None:
    caller.host.chats[CHAT] = {
        "turns": [
            turn("one", said(" first"), {"kind": "reasoning", "content": "hm"}, said("second ")),
            turn("", state="error"),
        ],
        "activeTurn": {"message": {"text": "three"}, "responseParts": [called("roll")]},
        "turnsNextCursor": "older",
    }
    assert await caller.json("get_session_context", session="echo:/other") == {
        "session": "echo:/other",
        "openLink": "agent-host-session://echo/other",
        "detail": "summary",
        "transcript": [
            {"turn": 1, "state": "complete", "user": "one", "assistant": "first\n\nsecond"},
            {"turn": 2, "state": "error"},
            {"turn": 3, "state": "inProgress", "user": "three"},
        ],
        "hasMoreHistory": True,
        "truncated": False,
    }


@pytest.mark.parametrize(
    ("detail", "user", "assistant", "calls"),
    [
        ("summary", 160, 140, None),
        ("digest", 300, 800, ["roll", "look", "wait"]),
        ("full", 1000, 2000, [{"name": "roll", "input": "i" * 199 + "…"}, {"name": "look"}, {"name": "wait"}]),
    ],
)
async def test_detail(caller: Caller, detail: str, user: int, assistant: int, calls: Any) -> None:
    parts = [
        said("a" * 3000),
        called("roll", toolInput="i" * 201),
        called("look", toolInput={"uri": "x:/y"}),
        called("wait", partialInput="{"),
    ]
    caller.host.chats[CHAT] = {"turns": [turn("u" * 2000, *parts)]}
    answer = await caller.json("get_session_context", session="echo:/other", detail=detail)
    [row] = answer["transcript"]
    assert row["user"] == "u" * (user - 1) + "…"
    assert row["assistant"] == "a" * (assistant - 1) + "…"
    assert row.get("toolCalls") == calls
    assert answer["truncated"] is True


async def test_a_text_that_just_fits_is_whole(caller: Caller) -> None:
    caller.host.chats[CHAT] = {"turns": [turn("ü" * 160, said("a" * 140))]}
    answer = await caller.json("get_session_context", session="echo:/other")
    assert answer["transcript"][0]["user"] == "ü" * 160
    assert answer["truncated"] is False


@pytest.mark.parametrize(("limit", "turns"), [(2, [59, 60]), (2.9, [59, 60]), (1000, list(range(11, 61)))])
async def test_the_newest_turns(caller: Caller, limit: float, turns: list[int]) -> None:
    caller.host.chats[CHAT] = {"turns": [turn(str(number)) for number in range(1, 61)]}
    answer = await caller.json("get_session_context", session="echo:/other", transcriptLimit=limit)
    assert [row["turn"] for row in answer["transcript"]] == turns
    assert answer["transcript"][-1]["user"] == "60"
    assert answer["truncated"] is True
    assert answer["hasMoreHistory"] is False


async def test_ten_turns_unless_asked(caller: Caller) -> None:
    caller.host.chats[CHAT] = {"turns": [turn(str(number)) for number in range(60)]}
    assert len((await caller.json("get_session_context", session="echo:/other"))["transcript"]) == 10


@pytest.mark.parametrize("named", ["c%202", "zz"])
async def test_a_chat_that_is_not_live_is_an_empty_transcript(caller: Caller, named: str) -> None:
    given = f"agent-host-session://echo/other?chat={named}"
    answer = await caller.json("get_session_context", session=given)
    assert answer == {
        "session": "echo:/other",
        "openLink": given,
        "detail": "summary",
        "transcript": [],
        "hasMoreHistory": False,
        "truncated": False,
    }


async def test_a_named_chat(caller: Caller) -> None:
    caller.host.chats["ahp-chat://c 2/other"] = {"turns": [turn("side")]}
    answer = await caller.json("get_session_context", session="agent-host-session://echo/other?chat=c%202")
    assert [row["user"] for row in answer["transcript"]] == ["side"]


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ({"session": "echo:/none"}, UNKNOWN),
        ({"session": "echo:/other", "detail": "all"}, "detail must be one of summary, digest, full."),
        ({"session": "echo:/other", "detail": None}, "detail must be one of summary, digest, full."),
        ({"session": "echo:/other", "transcriptLimit": 0}, "transcriptLimit must be a positive number."),
        ({"session": "echo:/other", "transcriptLimit": 0.5}, "transcriptLimit must be a positive number."),
        ({"session": "echo:/other", "transcriptLimit": "3"}, "transcriptLimit must be a positive number."),
        (
            {"session": "echo:/other", "transcriptLimit": float("inf")},
            "transcriptLimit must be a positive number.",
        ),
    ],
)
async def test_context_refusals(caller: Caller, given: dict[str, Any], rule: str) -> None:
    with pytest.raises(ToolError) as refused:
        await caller.text("get_session_context", **given)
    assert str(refused.value) == f"Invalid get_session_context input: {rule}"
