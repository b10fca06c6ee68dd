"""Shapes: good payloads pass, bad ones are refused with a sentence that names the field."""

import json
import os
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from ahpd.protocol import (
    ACTION_SHAPES,
    ACTIONS,
    PARAM_SHAPES,
    ShapeError,
    client_actions,
    decode_params,
    shapes,
    validate_action,
)

FIXTURES = Path(os.environ.get("AHP_FIXTURES") or Path(__file__).parents[2].parent / "shared" / "ahp")
MESSAGE = {"text": "hi", "origin": {"kind": "user"}}
CALL = {"turnId": "t", "toolCallId": "c"}
STARTED = {"turnId": "t", "startedAt": "2027-03-04T05:06:07.000Z", "message": MESSAGE}
DONE = {**CALL, "result": {"success": True, "pastTenseMessage": {"markdown": "done"}}}

GOOD: list[tuple[str, dict[str, Any]]] = [
    ("root/configChanged", {"config": {"any": {"thing": [1, None]}}}),
    ("session/titleChanged", {"title": ""}),
    ("session/isReadChanged", {"isRead": False}),
    ("session/isArchivedChanged", {"isArchived": True, "novel": 1}),
    ("session/activeClientSet", {"activeClient": {"clientId": "c", "tools": [{"name": "n", "inputSchema": {}}]}}),
    ("session/activeClientRemoved", {"clientId": "c"}),
    ("session/workingDirectorySet", {"directory": "file:///a b"}),
    ("session/workingDirectoryRemoved", {"directory": "vscode-remote://x/y"}),
    ("session/workingDirectoryReplaced", {"directory": "a:b", "replacement": "a:c"}),
    (
        "session/customizationToggled",
        {"id": "x", "enablement": [{"kind": "workspace", "uri": "a:b", "enabled": True}]},
    ),
    ("session/mcpServerStartRequested", {"id": "x"}),
    ("session/mcpServerStopRequested", {"id": "x"}),
    ("session/mcpServerBackgroundRequested", {"id": "x" * 1024}),
    ("session/configChanged", {"config": {}, "replace": True}),
    ("chat/turnStarted", STARTED),
    ("chat/turnStarted", {**STARTED, "startedAt": "2027-03-04T05:06:07.123456+05:30", "queuedMessageId": None}),
    ("chat/turnStarted", {**STARTED, "message": {**MESSAGE, "attachments": [{"type": "future", "label": "l"}]}}),
    (
        "chat/turnStarted",
        {**STARTED, "message": {**MESSAGE, "model": {"id": "m", "config": {"a": 1.5, "b": None}}}},
    ),
    ("chat/turnCancelled", {"turnId": "t", "duration": 1.5}),
    ("chat/turnCancelled", {"turnId": "t"}),
    ("chat/turnResume", {"turnId": "t"}),
    ("chat/toolCallConfirmed", {**CALL, "approved": True, "confirmed": "user-action", "editedToolInput": ""}),
    ("chat/toolCallConfirmed", {**CALL, "approved": False, "reason": "skipped", "userSuggestion": MESSAGE}),
    ("chat/toolCallContentChanged", {**CALL, "content": [{"type": "text", "text": "x"}]}),
    ("chat/toolCallComplete", DONE),
    ("chat/toolCallResultConfirmed", {**CALL, "approved": False}),
    ("chat/pendingMessageSet", {"kind": "queued", "id": "q", "message": MESSAGE}),
    ("chat/pendingMessageRemoved", {"kind": "steering", "id": "q"}),
    ("chat/queuedMessagesReordered", {"order": []}),
    ("chat/draftChanged", {}),
    ("chat/draftChanged", {"draft": None}),
    ("chat/inputAnswerChanged", {"requestId": "r", "questionId": "q"}),
    (
        "chat/inputCompleted",
        {
            "requestId": "r",
            "response": "accept",
            "answers": {
                "a": {"state": "submitted", "value": {"kind": "number", "value": 2}},
                "b": {
                    "state": "draft",
                    "value": {"kind": "selected-many", "value": ["x"], "freeformValues": ["y"]},
                },
                "c": {"state": "skipped"},
                "d": {"state": "submitted", "value": {"kind": "colour", "value": "red"}},
            },
        },
    ),
    ("chat/truncated", {}),
    ("chat/workingDirectorySet", {"directory": "a:b"}),
    ("chat/workingDirectoryRemoved", {"directory": "a:b"}),
    ("chat/isReadChanged", {"isRead": True}),
    ("chat/isArchivedChanged", {"isArchived": False}),
]


def answer(**members: Any) -> dict[str, Any]:
    return {"requestId": "r", "questionId": "q", "answer": members}


BAD: list[tuple[str, dict[str, Any], str]] = [
    ("root/configChanged", {"config": []}, "config must be an object"),
    ("root/configChanged", {"config": {}, "replace": "yes"}, "replace must be true or false"),
    ("session/titleChanged", {"title": 5}, "title must be a string"),
    ("session/titleChanged", {}, "title is missing"),
    ("session/isReadChanged", {"isRead": 1}, "isRead must be true or false"),
    ("session/isArchivedChanged", {"isArchived": None}, "isArchived must be true or false"),
    ("session/activeClientSet", {"activeClient": {"clientId": "c"}}, "activeClient.tools is missing"),
    (
        "session/activeClientSet",
        {"activeClient": {"clientId": "c", "tools": [{}]}},
        "activeClient.tools[0].name is missing",
    ),
    ("session/activeClientRemoved", {"clientId": ""}, "clientId must be a string of length >= 1"),
    ("session/workingDirectorySet", {"directory": "/no/scheme"}, "directory must be a URI with a scheme"),
    ("session/workingDirectorySet", {"directory": ""}, "directory must be a URI with a scheme"),
    ("session/workingDirectoryReplaced", {"directory": "a:b"}, "replacement is missing"),
    ("session/customizationToggled", {"id": "x", "enabled": True}, "enablement is missing"),
    ("session/mcpServerStartRequested", {"id": "x" * 1025}, "id must be a string of length <= 1024"),
    ("session/configChanged", {"config": None}, "config must be an object"),
    ("chat/turnStarted", {**STARTED, "startedAt": 7}, "startedAt must be a string"),
    ("chat/turnStarted", {**STARTED, "startedAt": "tomorrow"}, "startedAt must be an ISO 8601 date"),
    ("chat/turnStarted", {**STARTED, "startedAt": "2027-13-01T00:00:00Z"}, "startedAt must be an ISO 8601 date"),
    ("chat/turnStarted", {**STARTED, "startedAt": "2027-03-04"}, "startedAt must be an ISO 8601 date"),
    ("chat/turnStarted", {**STARTED, "turnId": None}, "turnId must be a string"),
    ("chat/turnStarted", {**STARTED, "message": "hi"}, "message must be an object"),
    ("chat/turnStarted", {**STARTED, "message": {"text": "hi"}}, "message.origin is missing"),
    ("chat/turnStarted", {**STARTED, "message": {"origin": {"kind": "user"}}}, "message.text is missing"),
    (
        "chat/turnStarted",
        {**STARTED, "message": {**MESSAGE, "attachments": {}}},
        "message.attachments must be a list",
    ),
    (
        "chat/turnStarted",
        {**STARTED, "message": {**MESSAGE, "agent": {"uri": "x"}}},
        "message.agent.uri must be a URI",
    ),
    ("chat/turnCancelled", {"turnId": "t", "duration": "1"}, "duration must be a number"),
    ("chat/turnResume", {}, "turnId is missing"),
    ("chat/toolCallConfirmed", {**CALL, "approved": True}, "confirmed is missing"),
    ("chat/toolCallConfirmed", {**CALL, "approved": False}, "reason is missing"),
    (
        "chat/toolCallConfirmed",
        {**CALL, "approved": False, "reason": "bored"},
        "reason has a value that is not allowed",
    ),
    ("chat/toolCallConfirmed", {**CALL, "approved": "true"}, "approved must be true or false"),
    ("chat/toolCallContentChanged", {**CALL, "content": ["x"]}, "content[0] must be an object"),
    (
        "chat/toolCallComplete",
        {**CALL, "result": {"success": 1, "pastTenseMessage": ""}},
        "result.success must be",
    ),
    ("chat/toolCallComplete", {**CALL, "result": {"success": True}}, "result.pastTenseMessage is missing"),
    ("chat/toolCallResultConfirmed", CALL, "approved is missing"),
    (
        "chat/pendingMessageSet",
        {"kind": "later", "id": "q", "message": MESSAGE},
        "kind has a value that is not allowed",
    ),
    ("chat/pendingMessageRemoved", {"kind": "queued"}, "id is missing"),
    ("chat/queuedMessagesReordered", {"order": [""]}, "order[0] must be a string of length >= 1"),
    ("chat/draftChanged", {"draft": {}}, "draft.text is missing"),
    ("chat/inputAnswerChanged", answer(state="maybe"), "answer.state has a value that is not allowed"),
    ("chat/inputAnswerChanged", answer(state="draft"), "answer.value is missing"),
    (
        "chat/inputAnswerChanged",
        answer(state="draft", value={"kind": "number", "value": True}),
        "answer.value.value does not fit an answer of kind 'number'",
    ),
    (
        "chat/inputAnswerChanged",
        answer(state="draft", value={"kind": "boolean", "value": 1}),
        "answer.value.value does not fit an answer of kind 'boolean'",
    ),
    ("chat/inputCompleted", {"requestId": "r", "response": "ok"}, "response has a value that is not allowed"),
    ("chat/truncated", {"turnId": ""}, "turnId must be a string of length >= 1"),
    ("chat/workingDirectoryRemoved", {"directory": 1}, "directory must be a string"),
    ("chat/isReadChanged", {"isRead": "yes"}, "isRead must be true or false"),
    ("chat/isArchivedChanged", {}, "isArchived is missing"),
]


@pytest.mark.parametrize(("kind", "payload"), GOOD)
def test_a_good_action_passes(kind: str, payload: dict[str, Any]) -> None:
    assert validate_action({"type": kind, **payload}) is None


@pytest.mark.parametrize(("kind", "payload", "sentence"), BAD)
def test_a_bad_action_names_its_field(kind: str, payload: dict[str, Any], sentence: str) -> None:
    assert str(validate_action({"type": kind, **payload})).startswith(f"{kind}: {sentence}")


def test_what_no_client_may_dispatch_has_no_shape() -> None:
    assert validate_action({"type": "chat/delta"}) == "chat/delta: no client may dispatch this action"
    assert validate_action({"type": 5}) == "action: type must be a string"
    assert validate_action([]) == "action: type must be a string"
    assert len(str(validate_action({"type": "x" * 9000}))) < 200


def test_tables_agree() -> None:
    assert set(ACTION_SHAPES) == set(client_actions(ACTIONS))
    assert {kind for kind, _ in GOOD} == set(ACTION_SHAPES)
    assert set(ACTION_SHAPES) - {kind for kind, _, _ in BAD} <= {
        "session/mcpServerStopRequested",
        "session/mcpServerBackgroundRequested",
        "session/workingDirectoryRemoved",
        "chat/workingDirectorySet",
    }, "only shapes that share a row with a tested one go without a bad payload"


MEANT_TO_BE_WRONG = {"a start without an instant keeps modifiedAt"}


def test_actions_of_the_vectors_pass_unless_meant_to_be_wrong() -> None:
    """Whatever changes a state in the reducers' vectors is a payload that a client could have sent."""
    for path in Path(__file__).parent.glob("cases/*.json"):
        for case in json.loads(path.read_text()):
            if case.get("same") or case["description"] in MEANT_TO_BE_WRONG:
                continue
            for action in case["actions"]:
                assert action["type"] not in ACTION_SHAPES or validate_action(action) is None


ROOT_OPTIONAL = ["initialize", "ping", "reconnect", "listSessions", "resolveSessionConfig", "authenticate"]
PARAMS: list[tuple[str, dict[str, Any]]] = [
    ("initialize", {"protocolVersions": ["1.0.0"], "clientId": "c", "clientInfo": {"name": "n"}, "_meta": {}}),
    (
        "initialize",
        {"protocolVersions": ["x"], "clientId": "c", "initialSubscriptions": ["ahp-root:"], "locale": "de"},
    ),
    ("ping", {}),
    ("reconnect", {"clientId": "c", "lastSeenServerSeq": 0, "subscriptions": ["a:b"]}),
    ("reconnect", {"clientId": "c", "subscriptions": [{"channel": "a:b", "lastSeenServerSeq": 4}]}),
    ("subscribe", {"channel": "a:b", "delivery": {"maxLatencyMs": 12.5}, "view": {"turns": 20}, "flowControl": 1}),
    ("unsubscribe", {"channel": "a:b"}),
    ("dispatchAction", {"channel": "a:b", "clientSeq": 2**53 - 1, "action": {"type": "x/y"}}),
    ("listSessions", {"limit": 1, "cursor": "c"}),
    (
        "createSession",
        {"channel": "echo:/1", "config": {}, "activeClient": {"clientId": "c", "tools": []}, "fork": {}},
    ),
    ("disposeSession", {"channel": "a:b"}),
    ("createChat", {"channel": "a:b", "chat": "a:c", "initialMessage": MESSAGE}),
    ("createChat", {"channel": "a:b", "chat": "a:c", "source": {"kind": "fork", "chat": "a:d", "turnId": "t"}}),
    ("disposeChat", {"channel": "a:b"}),
    ("moveChat", {"channel": "a:b", "destination": {"kind": "newSession"}}),
    ("fetchTurns", {"channel": "a:b"}),
    ("completions", {"channel": "a:b", "kind": "userMessage", "text": "@", "offset": 1}),
    ("resolveSessionConfig", {"provider": "p", "workingDirectory": "a:b", "config": {"x": 1}}),
    ("sessionConfigCompletions", {"property": "branch", "query": ""}),
    ("authenticate", {"resource": "https://r.example", "token": "", "scopes": [], "expiresIn": 1}),
]
BAD_PARAMS: list[tuple[str, Any, str]] = [
    ("ping", [], "ping: must be an object"),
    ("ping", {"channel": "nowhere"}, "ping: channel must be a URI with a scheme"),
    ("initialize", {"clientId": "c"}, "initialize: protocolVersions is missing"),
    (
        "initialize",
        {"protocolVersions": [], "clientId": "c"},
        "initialize: protocolVersions must be a list of length >= 1",
    ),
    ("initialize", {"protocolVersions": [1], "clientId": "c"}, "initialize: protocolVersions[0] must be a string"),
    ("reconnect", {"clientId": "c", "subscriptions": ["a:b"]}, "reconnect: lastSeenServerSeq is missing"),
    (
        "reconnect",
        {"clientId": "c", "subscriptions": [], "lastSeenServerSeq": -1},
        "reconnect: lastSeenServerSeq must be",
    ),
    ("subscribe", {}, "subscribe: channel is missing"),
    ("subscribe", {"channel": "a:b", "view": {"turns": True}}, "subscribe: view.turns must be an integer"),
    (
        "dispatchAction",
        {"channel": "a:b", "clientSeq": 2**53, "action": {"type": "x"}},
        "dispatchAction: clientSeq must be",
    ),
    (
        "dispatchAction",
        {"channel": "a:b", "clientSeq": 1, "action": {}},
        "dispatchAction: action.type must be a string",
    ),
    ("listSessions", {"limit": 0}, "listSessions: limit must be an integer >= 1"),
    ("listSessions", {"limit": 1.5}, "listSessions: limit must be an integer"),
    (
        "createSession",
        {"channel": "a:b", "activeClient": {"clientId": "c"}},
        "createSession: activeClient.tools is missing",
    ),
    (
        "createSession",
        {"channel": "a:b", "workingDirectories": ["/x"]},
        "createSession: workingDirectories[0] must be a URI",
    ),
    ("createChat", {"channel": "a:b"}, "createChat: chat is missing"),
    (
        "createChat",
        {"channel": "a:b", "chat": "a:c", "initialMessage": {}},
        "createChat: initialMessage.text is missing",
    ),
    (
        "createChat",
        {
            "channel": "a:b",
            "chat": "a:c",
            "source": {"kind": "x", "chat": "a:d", "turnId": "t", "selection": {"text": ""}},
        },
        "createChat: source.selection.text must be a string of length >= 1",
    ),
    (
        "moveChat",
        {"channel": "a:b", "destination": {"kind": "session"}},
        "moveChat: destination.session is missing",
    ),
    (
        "completions",
        {"channel": "a:b", "kind": "k", "text": "", "offset": -1},
        "completions: offset must be an integer >= 0",
    ),
    (
        "authenticate",
        {"resource": "r", "token": "t", "expiresIn": 0},
        "authenticate: expiresIn must be a number >= 1",
    ),
]


@pytest.mark.parametrize(("method", "params"), PARAMS)
def test_good_params_pass(method: str, params: dict[str, Any]) -> None:
    assert isinstance(decode_params(method, params), PARAM_SHAPES[method])


@pytest.mark.parametrize(("method", "params", "sentence"), BAD_PARAMS)
def test_bad_params_name_their_field(method: str, params: Any, sentence: str) -> None:
    with pytest.raises(ShapeError) as failure:
        decode_params(method, params)
    assert str(failure.value).startswith(sentence)


def test_fields_are_read_in_snake_case_and_channel_defaults_to_the_root() -> None:
    params = decode_params("initialize", {"protocolVersions": ["1.0.0"], "clientId": "c"})
    assert isinstance(params, shapes.Initialize)
    assert (params.client_id, params.channel) == ("c", "ahp-root://")
    for method, given in PARAMS:
        if method in ROOT_OPTIONAL:
            assert "channel" not in given
    assert {method for method, _ in PARAMS} == set(PARAM_SHAPES)


def test_an_unknown_command_has_no_params() -> None:
    with pytest.raises(KeyError):
        decode_params("teleport", {})


# -- against the published schema --------------------------------------------------------------------

DIFFERENT = {
    # Connection-level commands: clients are known to leave it out.
    ("initialize", "channel"),
    ("ping", "channel"),
    ("reconnect", "channel"),
    ("listSessions", "channel"),
    ("resolveSessionConfig", "channel"),
    ("sessionConfigCompletions", "channel"),
    ("authenticate", "channel"),
    # A proposal gives one number per subscription instead; the shape asks for one form or the other.
    ("reconnect", "lastSeenServerSeq"),
    # The host measures the turn and fills it in.
    ("chat/turnCancelled", "duration"),
    # The schema is older than the list of decisions.
    ("session/customizationToggled", "enabled"),
    ("session/customizationToggled", "enablement"),
}
SCHEMA = FIXTURES / "schema"


def required(shape: type[msgspec.Struct]) -> set[str]:
    return {field.encode_name for field in msgspec.structs.fields(shape) if field.required}


@pytest.mark.skipif(not SCHEMA.is_dir(), reason=f"no schema at {SCHEMA}")
def test_required_params_agree_with_the_schema() -> None:
    known = json.loads((SCHEMA / "commands.schema.json").read_text())["$defs"]
    checked = 0
    for method, shape in PARAM_SHAPES.items():
        published = known.get(f"{method[0].upper()}{method[1:]}Params")
        if published is not None:
            wanted = set(published.get("required", []))
            assert {(method, name) for name in required(shape) ^ wanted} <= DIFFERENT
            checked += 1
    assert checked == len(PARAM_SHAPES) - 1, "all but moveChat, which is newer than the schema"


@pytest.mark.skipif(not SCHEMA.is_dir(), reason=f"no schema at {SCHEMA}")
def test_required_members_of_actions_agree_with_the_schema() -> None:
    known = json.loads((SCHEMA / "actions.schema.json").read_text())["$defs"]
    published: dict[str, set[str]] = {}
    for entry in known.values():
        kind = entry.get("properties", {}).get("type", {}).get("const")
        if kind is not None:
            wanted = set(entry["required"]) - {"type"}
            published[kind] = published.get(kind, wanted) & wanted
    checked = ACTION_SHAPES.keys() & published.keys()
    for kind in checked:
        assert {(kind, name) for name in required(ACTION_SHAPES[kind]) ^ published[kind]} <= DIFFERENT
    assert len(checked) >= 26


def test_optional_members_take_null() -> None:
    for shape in ACTION_SHAPES.values():
        for field in msgspec.structs.fields(shape):
            assert field.required or type(None) in get_args(field.type)
