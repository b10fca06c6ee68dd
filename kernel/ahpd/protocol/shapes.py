"""What a client may send: the params of every command and the payload of every action it may dispatch.

Owns: the shapes, and the sentence that says what is wrong with a payload. Refuses to know: whether the
sender may do it, and whether ids exist. State has no classes here and stays plain JSON.

The gate decodes with these to *check*. Unknown members pass (a newer peer may send them), `null` counts as
absent, and open enumerations keep values nobody has heard of. Params are classes, because operations read
their fields; the payload of an action is only checked and then reduced as it came, so a row of a table does.
"""

import re
from collections.abc import Callable, Mapping
from types import GenericAlias
from typing import Annotated, Any, Final, Literal, TypeVar, get_args

import msgspec
from msgspec import Meta, Struct

from ahpd.protocol.times import read_time

Id = Annotated[str, Meta(min_length=1, max_length=1024)]
Uri = Annotated[str, Meta(max_length=8192, pattern=r"^[A-Za-z][A-Za-z0-9+.\-]*:")]
# The integers that a JavaScript peer can tell apart.
Integer = Annotated[int, Meta(ge=1 - 2**53, le=2**53 - 1)]
Count = Annotated[int, Meta(ge=0, le=2**53 - 1)]
Limit = Annotated[int, Meta(ge=1, le=2**53 - 1)]
Object = dict[str, Any]


class ShapeError(ValueError):
    """A payload of the wrong shape: `field` is its path ("" for all of it), `reason` what is wrong there."""

    def __init__(self, label: str, field: str, reason: str) -> None:
        super().__init__(f"{label}: {field} {reason}" if field else f"{label}: {reason}")
        self.label, self.field, self.reason = label, field, reason


def shape(check: Callable[[Any], None] | None = None, /, **fields: Any) -> Any:
    """A Struct with these wire names and types; a field whose type allows None may be absent.

    `check` sees the decoded Struct and raises ValueError("<field> <what is wrong>").
    """
    rows = [
        (name, wanted, None) if type(None) in get_args(wanted) else (name, wanted)
        for name, wanted in fields.items()
    ]
    namespace = {"__post_init__": check} if check else {}
    return msgspec.defstruct("Payload", rows, frozen=True, kw_only=True, namespace=namespace)


def many(item: Any) -> Any:
    """The type of a list of `item`, for a shape that was made by `shape`."""
    return GenericAlias(list, item)


# -- parts -----------------------------------------------------------------------------------------

Words = str | shape(markdown=str)


def _check_attachment(attachment: Any) -> None:
    if attachment.type == "chat" and attachment.resource is None:
        raise ValueError("resource is missing")


_Attachment = shape(
    _check_attachment, type=Id, label=str | None, uri=Uri | None, resource=Uri | None, endTurn=Id | None
)
_Model = shape(id=Id, config=dict[str, str | int | float | bool | None] | None)
_Tool = shape(
    name=str,
    title=str | None,
    description=str | None,
    inputSchema=Object | None,
    outputSchema=Object | None,
    annotations=Object | None,
)
Message = shape(
    text=str,
    origin=shape(kind=Id),
    attachments=many(_Attachment) | None,
    model=_Model | None,
    agent=shape(uri=Uri) | None,
)
ActiveClient = shape(
    clientId=Id,
    tools=many(_Tool),
    displayName=str | None,
    customizations=many(shape(id=Id, uri=Uri, name=str)) | None,
)
_Outcome = shape(
    success=bool,
    pastTenseMessage=Words,
    content=list[Object] | None,
    structuredContent=Object | None,
    error=shape(message=str, code=str | None) | None,
)

_ANSWER_TYPES: Final[Mapping[str, Any]] = {
    "text": str,
    "number": (int, float),
    "boolean": bool,
    "selected": str,
    "selected-many": list,
}


def _check_value(answer: Any) -> None:
    wanted = _ANSWER_TYPES.get(answer.kind)
    # Python counts a boolean as an integer; the protocol does not.
    fits = isinstance(answer.value, wanted or object) and isinstance(answer.value, bool) == (wanted is bool)
    if wanted and not fits:
        raise ValueError(f"value does not fit an answer of kind {answer.kind!r}")


def _check_answer(answer: Any) -> None:
    if answer.state != "skipped" and answer.value is None:
        raise ValueError("value is missing")


_Value = shape(_check_value, kind=Id, value=str | bool | int | float | list[str], freeformValues=list[str] | None)
_Answer = shape(
    _check_answer,
    state=Literal["draft", "submitted", "skipped"],
    value=_Value | None,
    freeformValues=list[str] | None,
)

# -- actions ---------------------------------------------------------------------------------------


def _check_started(turn: Any) -> None:
    if read_time(turn.startedAt) is None:
        raise ValueError("startedAt must be an ISO 8601 date and time with an offset")


def _check_confirmed(call: Any) -> None:
    missing = "confirmed" if call.approved else "reason"
    if getattr(call, missing) is None:
        raise ValueError(f"{missing} is missing")


_CONFIG = shape(config=Object, replace=bool | None)
_IS_READ, _IS_ARCHIVED = shape(isRead=bool), shape(isArchived=bool)
_DIRECTORY = shape(directory=Uri)
_NAMED = shape(id=Id)
_PENDING: Any = Literal["steering", "queued"]
_CALL = {"turnId": Id, "toolCallId": Id}
# How long the host worked is not for a client to know: the host fills the duration in before it echoes.
_DURATION: Any = Annotated[float, Meta(ge=-(2**53), le=2**53)] | None

ACTION_SHAPES: Final[dict[str, type[Struct]]] = {
    "root/configChanged": _CONFIG,
    "session/titleChanged": shape(title=str),
    "session/isReadChanged": _IS_READ,
    "session/isArchivedChanged": _IS_ARCHIVED,
    "session/activeClientSet": shape(activeClient=ActiveClient),
    "session/activeClientRemoved": shape(clientId=Id),
    "session/workingDirectorySet": _DIRECTORY,
    "session/workingDirectoryRemoved": _DIRECTORY,
    "session/workingDirectoryReplaced": shape(directory=Uri, replacement=Uri),
    "session/customizationToggled": shape(id=Id, enablement=many(shape(kind=Id, enabled=bool, uri=Uri | None))),
    "session/mcpServerStartRequested": _NAMED,
    "session/mcpServerStopRequested": _NAMED,
    "session/mcpServerBackgroundRequested": _NAMED,
    "session/configChanged": _CONFIG,
    "chat/turnStarted": shape(
        _check_started, turnId=Id, startedAt=str, message=Message, queuedMessageId=Id | None
    ),
    "chat/turnCancelled": shape(turnId=Id, duration=_DURATION),
    "chat/turnResume": shape(turnId=Id),
    "chat/toolCallConfirmed": shape(
        _check_confirmed,
        **_CALL,
        approved=bool,
        confirmed=Id | None,
        editedToolInput=str | None,
        selectedOptionId=Id | None,
        reason=Literal["denied", "skipped"] | None,
        reasonMessage=Words | None,
        userSuggestion=Message | None,
    ),
    "chat/toolCallContentChanged": shape(**_CALL, content=list[Object]),
    "chat/toolCallComplete": shape(**_CALL, result=_Outcome, requiresResultConfirmation=bool | None),
    "chat/toolCallResultConfirmed": shape(**_CALL, approved=bool),
    "chat/pendingMessageSet": shape(kind=_PENDING, id=Id, message=Message),
    "chat/pendingMessageRemoved": shape(kind=_PENDING, id=Id),
    "chat/queuedMessagesReordered": shape(order=list[Id]),
    "chat/draftChanged": shape(draft=Message | None),
    "chat/inputAnswerChanged": shape(requestId=Id, questionId=Id, answer=_Answer | None),
    "chat/inputCompleted": shape(
        requestId=Id,
        response=Literal["accept", "decline", "cancel"],
        answers=GenericAlias(dict, (Id, _Answer)) | None,
    ),
    "chat/truncated": shape(turnId=Id | None),
    "chat/workingDirectorySet": _DIRECTORY,
    "chat/workingDirectoryRemoved": _DIRECTORY,
    "chat/isReadChanged": _IS_READ,
    "chat/isArchivedChanged": _IS_ARCHIVED,
}

# -- commands --------------------------------------------------------------------------------------

_SELECTION = shape(text=Annotated[str, Meta(min_length=1)], responsePartId=Id | None)


def _check_part(field: str, value: Object | None, wanted: Any) -> None:
    """Check a part that has to stay plain JSON, because it goes into state as it came."""
    if value is not None:
        try:
            decode_as(wanted, value, "")
        except ShapeError as failure:
            raise ValueError(f"{_join(field, failure.field)} {failure.reason}") from None


class RootParams(Struct, frozen=True, rename="camel"):
    """Params of a connection-level command: clients are known to leave `channel` out."""

    channel: Uri = "ahp-root://"


class ChannelParams(Struct, frozen=True, rename="camel"):
    """Params of a command on a channel of its own."""

    channel: Uri


class Implementation(Struct, frozen=True, rename="camel"):
    name: str
    version: str | None = None
    title: str | None = None


class Initialize(RootParams, frozen=True, kw_only=True):
    protocol_versions: Annotated[list[str], Meta(min_length=1, max_length=256)]
    client_id: Id
    client_info: Implementation | None = None
    initial_subscriptions: list[Uri] | None = None
    locale: str | None = None
    capabilities: Object | None = None


class Cursor(Struct, frozen=True, rename="camel"):
    channel: Uri
    last_seen_server_seq: Count


class Reconnect(RootParams, frozen=True, kw_only=True):
    client_id: Id
    subscriptions: list[Uri | Cursor]
    last_seen_server_seq: Count | None = None

    def __post_init__(self) -> None:
        # One number for the connection, or one per channel: without either there is nothing to resume from.
        if self.last_seen_server_seq is None and any(isinstance(each, str) for each in self.subscriptions):
            raise ValueError("lastSeenServerSeq is missing")


class Delivery(Struct, frozen=True, rename="camel"):
    max_latency_ms: Annotated[float, Meta(ge=0)] | None = None


class View(Struct, frozen=True, rename="camel"):
    turns: Count | None = None


class Subscribe(ChannelParams, frozen=True, kw_only=True):
    delivery: Delivery | None = None
    view: View | None = None


class DispatchAction(ChannelParams, frozen=True, kw_only=True):
    client_seq: Integer
    action: Object

    def __post_init__(self) -> None:
        if not isinstance(self.action.get("type"), str):
            raise ValueError("action.type must be a string")


class ListSessions(RootParams, frozen=True, kw_only=True):
    limit: Limit | None = None
    cursor: str | None = None


class CreateSession(ChannelParams, frozen=True, kw_only=True):
    provider: Id | None = None
    working_directories: list[Uri] | None = None
    config: Object | None = None
    active_client: Object | None = None
    progress_token: str | None = None
    fork: Object | None = None

    def __post_init__(self) -> None:
        _check_part("activeClient", self.active_client, ActiveClient)


class ChatSource(Struct, frozen=True, rename="camel"):
    kind: Id
    chat: Uri
    turn_id: Id
    selection: Object | None = None

    def __post_init__(self) -> None:
        _check_part("selection", self.selection, _SELECTION)


class CreateChat(ChannelParams, frozen=True, kw_only=True):
    chat: Uri
    initial_message: Object | None = None
    source: ChatSource | None = None
    working_directories: list[Uri] | None = None

    def __post_init__(self) -> None:
        _check_part("initialMessage", self.initial_message, Message)


class Destination(Struct, frozen=True, rename="camel"):
    kind: Literal["session", "newSession"]
    session: Uri | None = None
    after: Uri | None = None

    def __post_init__(self) -> None:
        if self.kind == "session" and self.session is None:
            raise ValueError("session is missing")


class MoveChat(ChannelParams, frozen=True, kw_only=True):
    destination: Destination


class FetchTurns(ChannelParams, frozen=True, kw_only=True):
    cursor: str | None = None


class Completions(ChannelParams, frozen=True, kw_only=True):
    kind: Id
    text: str
    offset: Count


class ResolveSessionConfig(RootParams, frozen=True, kw_only=True):
    provider: Id | None = None
    working_directory: Uri | None = None
    config: Object | None = None


class SessionConfigCompletions(ResolveSessionConfig, frozen=True, kw_only=True):
    property: Id
    query: str | None = None


class Authenticate(RootParams, frozen=True, kw_only=True):
    resource: Id
    token: str
    scopes: list[str] | None = None
    expires_in: Annotated[float, Meta(ge=1)] | None = None


PARAM_SHAPES: Final[dict[str, type[Struct]]] = {
    "initialize": Initialize,
    "ping": RootParams,
    "reconnect": Reconnect,
    "subscribe": Subscribe,
    "unsubscribe": ChannelParams,
    "dispatchAction": DispatchAction,
    "listSessions": ListSessions,
    "createSession": CreateSession,
    "disposeSession": ChannelParams,
    "createChat": CreateChat,
    "disposeChat": ChannelParams,
    "moveChat": MoveChat,
    "fetchTurns": FetchTurns,
    "completions": Completions,
    "resolveSessionConfig": ResolveSessionConfig,
    "sessionConfigCompletions": SessionConfigCompletions,
    "authenticate": Authenticate,
}

# -- checking --------------------------------------------------------------------------------------

_NAMES: Final[Mapping[str, str]] = {
    "str": "a string",
    "int": "an integer",
    "float": "a number",
    "bool": "true or false",
    "object": "an object",
    "array": "a list",
    "null": "null",
}
_MISSING = re.compile(r"Object missing required field `([^`]+)`")
_EXPECTED = re.compile(r"Expected `([^`]+)`(.*)", re.DOTALL)

S = TypeVar("S", bound=Struct)


def decode_as(wanted: type[S], value: object, label: str) -> S:
    """`value` as a `wanted`; ShapeError, starting with `label`, if it does not fit. Also for plugins."""
    try:
        return msgspec.convert(value, wanted)
    except msgspec.ValidationError as failure:
        raise ShapeError(label, *_explain(str(failure))) from None


def decode_params(method: str, params: object, shapes: Mapping[str, type[Struct]] = PARAM_SHAPES) -> Struct:
    """The params of a command as its shape. ShapeError names the field; KeyError means no such command."""
    return decode_as(shapes[method], params, method)


def check_action(action: object, shapes: Mapping[str, type[Struct]] = ACTION_SHAPES) -> None:
    """ShapeError, naming the field, unless `action` is of the shape that its type wants."""
    kind = action.get("type") if isinstance(action, dict) else None
    if not isinstance(kind, str):
        raise ShapeError("action", "type", "must be a string")
    if kind not in shapes:
        raise ShapeError(kind[:80], "", "no client may dispatch this action")
    decode_as(shapes[kind], action, kind)


def validate_action(action: object, shapes: Mapping[str, type[Struct]] = ACTION_SHAPES) -> str | None:
    """The sentence that says what is wrong with a client's action, or None."""
    try:
        check_action(action, shapes)
    except ShapeError as failure:
        return str(failure)
    return None


def _explain(message: str) -> tuple[str, str]:
    """Field and reason from a decoder's message such as "Expected `str`, got `int` - at `$.title`"."""
    what, at, where = message.rpartition(" - at `")
    what, path = (what, where[:-1].removeprefix("key` in `")[1:].removeprefix(".")) if at else (message, "")
    if missing := _MISSING.fullmatch(what):
        return _join(path, missing[1]), "is missing"
    if expected := _EXPECTED.fullmatch(what):
        return path, _expectation(expected[1], expected[2])
    if what.startswith("Invalid enum value"):
        return path, "has a value that is not allowed"
    # What is left are the sentences of the checks above: a field, then what is wrong with it.
    field, _, reason = what.partition(" ")
    return _join(path, field), reason


def _expectation(wanted: str, rest: str) -> str:
    if "matching regex" in rest:
        return "must be a URI with a scheme"
    names = [_NAMES.get(name, name) for name in wanted.split(" | ") if name != "null"]
    return f"must be {' or '.join(names or ['null'])}{'' if rest.startswith(',') else rest}"


def _join(path: str, field: str) -> str:
    return f"{path}.{field}" if path and field else path or field
