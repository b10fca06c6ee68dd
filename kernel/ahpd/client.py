"""A small AHP client: what the demo speaks with, and what tests of plugins and of the host see through.

It believes only what it is sent: its picture of a channel is the snapshot folded with every action since, by the
protocol's own reducers.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Protocol
from urllib.parse import urlsplit
from uuid import uuid4

import msgspec
import trio
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, CloseConnection, Message, Ping, RejectConnection, Request

from ahpd.protocol.reduce_chat import reduce_chat
from ahpd.protocol.reduce_root import reduce_root
from ahpd.protocol.reduce_session import reduce_session
from ahpd.session.live import now
from ahpd.session.names import ROOT

Json = dict[str, Any]
PATIENCE = 10.0
"""Seconds any wait of this client may take."""
_REDUCERS: Mapping[str, Callable[[Json, Json], Json]] = {
    "root": reduce_root,
    "session": reduce_session,
    "chat": reduce_chat,
}


class RequestFailed(Exception):
    """The host answered a request with an error."""

    def __init__(self, error: Json) -> None:
        super().__init__(f"{error.get('code')}: {error.get('message')}")
        self.code = error.get("code")
        self.message = str(error.get("message"))
        self.data = error.get("data")


class Disconnected(Exception):
    """The connection has ended; `code` is the WebSocket close code, 1006 for none."""

    def __init__(self, code: int, reason: str = "") -> None:
        super().__init__(f"{code} {reason}".strip())
        self.code, self.reason = code, reason


class Pipe(Protocol):
    """Whole messages both ways."""

    async def send(self, payload: bytes) -> None: ...

    async def receive(self) -> bytes:
        """Raises `Disconnected` at the end."""
        ...

    async def aclose(self) -> None: ...


class WebSocketPipe:
    """Implements `Pipe` over a WebSocket on TCP."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self.wire = WSConnection(ConnectionType.CLIENT)
        self._sending = trio.Lock()
        self._messages: list[bytes] = []
        self._parts: list[bytes] = []
        self._end: Disconnected | None = None

    @classmethod
    async def open(cls, url: str, headers: Mapping[str, str] | None = None) -> WebSocketPipe:
        parts = urlsplit(url)
        pipe = cls(await trio.open_tcp_stream(parts.hostname or "127.0.0.1", parts.port or 80))
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        extra = [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
        request = Request(host=parts.netloc, target=target, extra_headers=extra)
        await pipe.stream.send_all(pipe.wire.send(request))
        while True:
            pipe.wire.receive_data(await pipe._read())
            for event in pipe.wire.events():
                if isinstance(event, AcceptConnection):
                    pipe._collect()
                    return pipe
                if isinstance(event, RejectConnection):
                    await pipe.aclose()
                    raise Disconnected(event.status_code, "refused")

    async def _read(self) -> bytes | None:
        try:
            return await self.stream.receive_some(1 << 16) or None
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return None

    async def send(self, payload: bytes) -> None:
        async with self._sending:
            await self.stream.send_all(self.wire.send(Message(payload.decode())))

    async def receive(self) -> bytes:
        while not self._messages:
            if self._end is not None:
                raise self._end
            data = await self._read()
            if data is None:
                raise Disconnected(1006)
            self.wire.receive_data(data)
            await self._answer(self._collect())
        return self._messages.pop(0)

    def _collect(self) -> list[Any]:
        """Keep whole messages; answer what has to be sent back."""
        back: list[Any] = []
        for event in self.wire.events():
            if isinstance(event, Message):
                self._parts.append(event.data.encode() if isinstance(event.data, str) else bytes(event.data))
                if event.message_finished:
                    self._messages.append(b"".join(self._parts))
                    self._parts.clear()
            elif isinstance(event, Ping):
                back.append(event.response())
            elif isinstance(event, CloseConnection):
                back.append(event)
        return back

    async def _answer(self, back: list[Any]) -> None:
        for event in back:
            if isinstance(event, CloseConnection):
                # Raised once everything that came before it has been handed on.
                self._end = Disconnected(int(event.code), event.reason or "")
                await self.aclose()
                return
            async with self._sending:
                await self.stream.send_all(self.wire.send(event))

    async def aclose(self) -> None:
        await trio.aclose_forcefully(self.stream)


class AhpClient:
    """One connection of one client."""

    def __init__(self, pipe: Pipe, client_id: str | None = None) -> None:
        self.pipe = pipe
        self.id = client_id or f"client-{uuid4()}"
        self.states: dict[str, Json] = {}
        """What is known of each watched channel, by the URI it was subscribed under."""
        self.actions: list[Json] = []
        """Every envelope received, in order."""
        self.notices: list[Json] = []
        """Every other notification received."""
        self.last_seq = 0
        self.closed: Disconnected | None = None
        self._answers: dict[int, Json] = {}
        self._at_once: dict[int, Callable[[Json], None]] = {}
        """What to do with the result of a request before the next message is looked at."""
        self._next_id, self._next_seq = 0, 0
        self._news = trio.Event()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Take in what the host sends, until the connection ends."""
        task_status.started()
        try:
            while True:
                self._take(msgspec.json.decode(await self.pipe.receive()))
        except Disconnected as end:
            self.closed = end
        finally:
            self.closed = self.closed or Disconnected(1006)
            self._tell()

    def _tell(self) -> None:
        self._news.set()
        self._news = trio.Event()

    def _take(self, message: Json) -> None:
        if "method" not in message:
            at_once = self._at_once.pop(message["id"], None)
            if at_once is not None and "result" in message:
                at_once(message["result"])
            self._answers[message["id"]] = message
        elif message["method"] == "action":
            self._apply(message["params"])
        else:
            self.notices.append(message)
        self._tell()

    def _apply(self, envelope: Json) -> None:
        self.actions.append(envelope)
        self.last_seq = max(self.last_seq, envelope["serverSeq"])
        state = self.states.get(envelope["channel"])
        if state is not None and "rejectionReason" not in envelope:
            reduce = _REDUCERS.get(envelope["action"]["type"].partition("/")[0])
            if reduce is not None:
                self.states[envelope["channel"]] = reduce(state, envelope["action"])

    async def until(self, true: Callable[[], Any], patience: float = PATIENCE) -> Any:
        """Wait until `true()` is, and answer what it said. Raises `trio.TooSlowError` when it never is."""
        with trio.fail_after(patience):
            while not (found := true()):
                if self.closed is not None:
                    raise self.closed
                await self._news.wait()
        return found

    # -- commands ---------------------------------------------------------------------------------------

    async def request(
        self, method: str, params: Json | None = None, at_once: Callable[[Json], None] | None = None
    ) -> Any:
        """A request's result. Raises `RequestFailed`.

        What follows a snapshot belongs on top of it, and may be read before the caller goes on: `at_once` is
        called with the result before anything that came after it is taken in.
        """
        self._next_id += 1
        mine = self._next_id
        if at_once is not None:
            self._at_once[mine] = at_once
        message = {"jsonrpc": "2.0", "id": mine, "method": method, "params": params or {"channel": ROOT}}
        await self.pipe.send(msgspec.json.encode(message))
        await self.until(lambda: mine in self._answers)
        answer = self._answers.pop(mine)
        if "error" in answer:
            raise RequestFailed(answer["error"])
        return answer["result"]

    async def notify(self, method: str, params: Json) -> None:
        await self.pipe.send(msgspec.json.encode({"jsonrpc": "2.0", "method": method, "params": params}))

    async def initialize(self, *subscriptions: str, versions: tuple[str, ...] = ("1.0.0", "0.9.0")) -> Json:
        params = {
            "channel": ROOT,
            "protocolVersions": list(versions),
            "clientId": self.id,
            "initialSubscriptions": list(subscriptions),
        }
        result: Json = await self.request("initialize", params, self._begin)
        return result

    def _begin(self, result: Json) -> None:
        self.last_seq = max(self.last_seq, result["serverSeq"])
        for snapshot in result["snapshots"]:
            self._show(snapshot)

    async def reconnect(self, last_seen: int, *subscriptions: str) -> Json:
        """Come back as the same client. A replay is folded into what `states` already holds."""
        params = {
            "channel": ROOT,
            "clientId": self.id,
            "lastSeenServerSeq": last_seen,
            "subscriptions": list(subscriptions),
        }
        result: Json = await self.request("reconnect", params, self._catch_up)
        return result

    def _catch_up(self, result: Json) -> None:
        for envelope in result.get("actions", []):
            self._apply(envelope)
        for snapshot in result.get("snapshots", []):
            self._show(snapshot)

    def _show(self, snapshot: Json) -> None:
        self.states[snapshot["resource"]] = snapshot["state"]
        self.last_seq = max(self.last_seq, snapshot["fromSeq"])

    async def subscribe(self, uri: str, **more: Any) -> Json:
        """Watch a channel; its state."""
        await self.request("subscribe", {"channel": uri, **more}, lambda result: self._show(result["snapshot"]))
        return self.states[uri]

    async def dispatch(self, channel: str, action: Json) -> int:
        """Send an action; its `clientSeq`."""
        self._next_seq += 1
        await self.notify("dispatchAction", {"channel": channel, "clientSeq": self._next_seq, "action": action})
        return self._next_seq

    async def outcome(self, client_seq: int) -> Json:
        """The echo of an action of ours: applied, or with its `rejectionReason`."""

        def echo() -> Json | None:
            for envelope in self.actions:
                if envelope.get("origin") == {"clientId": self.id, "clientSeq": client_seq}:
                    return envelope
            return None

        found: Json = await self.until(echo)
        return found

    # -- the usual -------------------------------------------------------------------------------------

    async def create_session(self, provider: str | None = "echo", uri: str | None = None, **more: Any) -> str:
        """A new session that is watched, and whose default chat is; the session's URI."""
        uri = uri or f"{provider or 'ahp-session'}:/{uuid4()}"
        params = {"channel": uri, **({"provider": provider} if provider else {}), **more}
        await self.request("createSession", params)
        await self.subscribe(uri)
        await self.subscribe(self.default_chat(uri))
        return uri

    def default_chat(self, session: str) -> str:
        return str(self.states[session]["defaultChat"])

    async def start_turn(self, chat: str, text: str, **message: Any) -> str:
        """Begin a turn; its id."""
        turn_id = f"turn-{uuid4()}"
        action = {
            "type": "chat/turnStarted",
            "turnId": turn_id,
            "startedAt": now(),
            "message": {"text": text, "origin": {"kind": "user"}, **message},
        }
        await self.dispatch(chat, action)
        return turn_id

    async def finished(self, chat: str, turn_id: str, patience: float = PATIENCE) -> Json:
        """The turn, once it has ended."""

        def ended() -> Json | None:
            for turn in self.states[chat].get("turns", []):
                if turn["id"] == turn_id:
                    found: Json = turn
                    return found
            return None

        turn: Json = await self.until(ended, patience)
        return turn

    async def turn(self, chat: str, text: str, patience: float = PATIENCE) -> Json:
        """Run one turn to its end; the finished `Turn`."""
        return await self.finished(chat, await self.start_turn(chat, text), patience)


def answer_text(turn: Json) -> str:
    """All markdown of a turn, one part after another."""
    return "".join(part["content"] for part in turn["responseParts"] if part["kind"] == "markdown")


def call_texts(turn: Json) -> list[str]:
    """What the tool calls of a turn answered, as text, one after another."""
    calls = [part["toolCall"] for part in turn["responseParts"] if part["kind"] == "toolCall"]
    return ["".join(item.get("text", "") for item in call.get("content") or ()) for call in calls]


@asynccontextmanager
async def connect(
    url: str, client_id: str | None = None, headers: Mapping[str, str] | None = None
) -> AsyncIterator[AhpClient]:
    """A connected client that is listening; `initialize` is left to the caller."""
    client = AhpClient(await WebSocketPipe.open(url, headers), client_id)
    async with trio.open_nursery() as nursery:
        await nursery.start(client.run)
        try:
            yield client
        finally:
            nursery.cancel_scope.cancel()
            with trio.CancelScope(shield=True, deadline=trio.current_time() + 1):
                await client.pipe.aclose()
