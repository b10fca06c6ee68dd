"""One client's connection: its handshake, what it watches, and the messages between.

Requests are answered in the order they came, except those that have to wait for something to end; actions
always take effect in the order they came. Knows the protocol's messages and nothing of bytes on a socket.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import trio

from ahpd.access import Principal
from ahpd.errors import AhpdError, InvalidParams, MethodNotFound, Rejected
from ahpd.log import get
from ahpd.ports import Method, MethodCall
from ahpd.protocol import frames
from ahpd.protocol.actions import ACTIONS
from ahpd.protocol.downlevel import Older, older
from ahpd.protocol.shapes import ShapeError, check_action, decode_params
from ahpd.state import Deliverable, Spelling, State
from ahpd.tooling.fence import in_plugin
from ahpd.views import HostApi
from ahpd.wire import gate
from ahpd.wire.clients import Client, Clients

HANDSHAKES = ("initialize", "reconnect")
REGARDLESS = (*HANDSHAKES, "disposeSession")
"""What is served although a session it names cannot be read: the others are there, and it can be got rid of."""
LISTS = ("initialSubscriptions", "subscriptions")
MOST_LISTED = 1_000
"""Channels that a handshake may name: all their snapshots are in one answer."""
WAITING = 64
"""Requests of one connection that may wait for something at once; the next one is read when one is done."""


class Transport(Protocol):
    """Where messages go. `ready` makes a message sendable; equal `form`s may share what it made."""

    form: str

    def ready(self, payload: bytes) -> bytes: ...

    def push(self, made: bytes) -> None: ...


@dataclass(frozen=True, slots=True)
class Target:
    """A channel as a client named it: the held name, its kind, and the spelling the client uses."""

    uri: str
    kind: str
    spelling: Spelling | None


class Later:
    """A handler's answer that is not there yet; it is awaited beside the connection's other work."""

    def __init__(self, answer: Awaitable[Any]) -> None:
        self.answer = answer


class Services(Protocol):
    """What a connection asks of the host."""

    state: State
    clients: Clients

    @property
    def host(self) -> HostApi: ...

    def added(self, method: str) -> tuple[str, Method] | None:
        """A command that a plugin serves now, and the plugin."""
        ...

    def require(self, principal: Principal, grant: str, resource: str = "") -> None: ...

    def find(self, uri: str) -> Target | None: ...

    def sleeps(self, uri: str) -> Any:
        """Whether a channel belongs to a session that is kept and not awake."""
        ...

    async def wake(self, uri: str) -> Any: ...

    async def look_up(self, principal: Principal, channel: str, action: Any) -> None:
        """Read what an action will be judged by, which cannot wait then."""
        ...

    async def serve(self, connection: Connection, method: str, params: Any) -> Any: ...

    def apply(
        self, principal: Principal, target: Target, action: dict[str, Any], origin: Mapping[str, Any]
    ) -> None: ...

    def client_left(self, client: Client) -> None: ...

    def unwatched(self, client: Client, target: Target) -> None:
        """No connection of the client watches that channel any more."""
        ...


class Connection:
    """One connected client. Implements `ahpd.state.Subscriber`."""

    def __init__(self, services: Services, transport: Transport, principal: Principal) -> None:
        self.services, self.principal = services, principal
        self.client: Client | None = None
        self.older: Older | None = None
        """The words of a client that is older than what is held."""
        self.watching: dict[str, Spelling | None] = {}
        self._transport = transport
        self._waiting = trio.CapacityLimiter(WAITING)
        self._log = get("ahpd.connection")

    # -- out --------------------------------------------------------------------------------------------

    def deliver(self, message: Deliverable, spelling: Spelling | None) -> None:
        if self.older is not None:
            self._deliver_older(self.older, message, spelling)
            return
        form = self._transport.form if spelling is None else (self._transport.form, spelling)
        made = message.frames.get(form)
        if made is None:
            made = message.frames[form] = self._transport.ready(message.encode(spelling))
        self._transport.push(made)

    def _deliver_older(self, words: Older, message: Deliverable, spelling: Spelling | None) -> None:
        form = (self._transport.form, spelling, words)
        made = message.frames.get(form)
        if made is None:
            method, params = message.told()
            told = words.notice(method, params)
            if told is not None:
                payload = frames.notification(method, told if spelling is None else spelling.out(told))
                made = self._transport.ready(payload)
            made = message.frames[form] = made or b""
        if made:
            self._transport.push(made)

    def told(self, envelope: dict[str, Any]) -> dict[str, Any] | None:
        """An envelope in this client's version, in held names; None when it is not sent it."""
        return envelope if self.older is None else self.older.envelope(envelope)

    def greeted(self, client: Client) -> None:
        """The handshake is done: whose connection this is, and in which version it is spoken to."""
        self.client, self.older = client, older(client.version)

    def _send(self, payload: bytes) -> None:
        self._transport.push(self._transport.ready(payload))

    # -- in ---------------------------------------------------------------------------------------------

    async def handle(self, raw: bytes, nursery: trio.Nursery) -> None:
        """One message of the client. Never raises for anything a client can send."""
        try:
            message = frames.parse(raw)
        except frames.FrameError as error:
            self._send(frames.error(error.id, error.code, error.message))
            return
        if isinstance(message, frames.Request):
            await self._request(message, nursery)
        elif isinstance(message, frames.Notification):
            await self._wake(message, regardless=True)
            self._notification(message)

    async def _wake(self, message: frames.Request | frames.Notification, *, regardless: bool) -> None:
        """Have sleeping sessions that a message names awake before it is looked at.

        With `regardless`, what cannot be read is not there for whatever is asked of it, and all else is.
        """
        if self.client is None and message.method not in HANDSHAKES:
            return
        for uri in _channels_in(message.params):
            if self.services.sleeps(uri):
                await self._read(self.services.wake(uri), message.method, regardless)
        channel = message.params.get("channel")
        if message.method == "dispatchAction" and isinstance(channel, str):
            reading = self.services.look_up(self.principal, channel, message.params.get("action"))
            await self._read(reading, message.method, regardless)

    async def _read(self, reading: Awaitable[Any], method: str, regardless: bool) -> None:
        try:
            await reading
        except Exception as error:
            if not regardless:
                raise
            if isinstance(error, AhpdError):
                self._log.warning("could not be read", method=method, why=error.sentence)
            else:
                self._log.exception("could not be read", method=method)

    async def _request(self, request: frames.Request, nursery: trio.Nursery) -> None:
        try:
            if request.method in HANDSHAKES:
                _check_listed(request)
            await self._wake(request, regardless=request.method in REGARDLESS)
            answer = await self._serve(request.method, request.params)
            # A plugin's answer may be what JSON cannot say.
            made = None if isinstance(answer, Later) else frames.result(request.id, answer)
        except Exception as error:
            self._refuse(request, error)
            return
        if isinstance(answer, Later):
            await self._waiting.acquire_on_behalf_of(answer)
            nursery.start_soon(self._answer_later, request, answer)
        elif made is not None:
            self._send(made)

    async def _answer_later(self, request: frames.Request, later: Later) -> None:
        try:
            self._send(frames.result(request.id, await later.answer))
        except Exception as error:
            self._refuse(request, error)
        finally:
            self._waiting.release_on_behalf_of(later)

    def _refuse(self, request: frames.Request, error: Exception) -> None:
        if isinstance(error, ShapeError):
            self._send(frames.error(request.id, frames.INVALID_PARAMS, str(error)))
        elif isinstance(error, AhpdError):
            self._send(frames.error(request.id, error.code, error.sentence, error.data))
        else:
            self._log.exception("request failed", method=request.method)
            sentence = f"The host could not do {request.method}; its log has the details"
            self._send(frames.error(request.id, frames.INTERNAL_ERROR, sentence))

    async def _serve(self, method: str, params: Any) -> Any:
        if method == "ping":
            return None
        if self.client is None and method not in HANDSHAKES:
            raise MethodNotFound(f"{method} is not served before initialize")
        if method not in gate.METHODS or method in NOTIFICATIONS:
            return self._serve_added(method, params)
        grant = gate.METHODS[method]
        if grant is not None:
            self.services.require(self.principal, grant)
        return await self.services.serve(self, method, decode_params(method, params))

    def _serve_added(self, method: str, params: Any) -> Later:
        found = self.services.added(method)
        if found is None or self.client is None:
            raise MethodNotFound(f"This host does not serve {method}")
        plugin, added = found
        if added.grant is not None:
            self.services.require(self.principal, added.grant)
        principal, host, client = self.principal, self.services.host, self.client.id

        async def run() -> Any:
            return await added.run(MethodCall(method, added.read(params), principal, host, client))

        return Later(in_plugin(plugin, method, run))

    def _notification(self, message: frames.Notification) -> None:
        handler = NOTIFICATIONS.get(message.method)
        if handler is None or self.client is None:
            return
        try:
            handler(self, decode_params(message.method, message.params))
        except ShapeError as error:
            self._log.debug("notification ignored", method=message.method, why=str(error))
            if message.method == "dispatchAction":
                self._reject_misshapen(message.params, str(error))
        except Exception:
            self._log.exception("notification failed", method=message.method)

    # -- watching ---------------------------------------------------------------------------------------

    def watch(self, named: str, target: Target, turns: int | None = None) -> dict[str, Any]:
        """Subscribe to a channel; its snapshot, in the client's spelling."""
        snapshot = self.attach(target)
        if self.client is not None:
            channel = self.services.state.channels[target.uri]
            self.client.watched[target.uri] = (channel.number, snapshot["fromSeq"])
        state = snapshot["state"] if turns is None else latest_turns(snapshot["state"], turns)
        if state is not snapshot["state"]:
            self.services.state.channels[target.uri].shown_in_part = True
        if self.older is not None:
            state = self.older.state(target.kind, state)
        if target.spelling is not None:
            state = target.spelling.out(state)
        return {"resource": named, "state": state, "fromSeq": snapshot["fromSeq"]}

    def attach(self, target: Target) -> dict[str, Any]:
        """Subscribe to a channel; its snapshot, in held names. Raises `PermissionDenied`."""
        grant = gate.CHANNELS.get(target.kind)
        if grant is not None:
            self.services.require(self.principal, grant, target.uri)
        self.watching[target.uri] = target.spelling
        return self.services.state.subscribe(target.uri, self, target.spelling)

    def shown(self, target: Target, after: int) -> bool:
        """Whether this client holds a state of the channel that what came after a number can be applied to."""
        if self.client is None:
            return False
        number, since = self.client.watched.get(target.uri, (0, 0))
        return number == self.services.state.channels[target.uri].number and since <= after

    def _unsubscribe(self, params: Any) -> None:
        target = self.services.find(params.channel)
        if target is not None and target.uri in self.watching:
            del self.watching[target.uri]
            self.services.state.unsubscribe(target.uri, self)
            if self.client is not None:
                self.client.watched.pop(target.uri, None)  # from here on it misses what happens
                if not self._watched_elsewhere(target.uri):
                    self.services.unwatched(self.client, target)

    def _watched_elsewhere(self, uri: str) -> bool:
        """Whether another connection of this client watches a channel: it may have two windows."""
        watchers = self.services.state.channels[uri].subscribers
        return any(isinstance(each, Connection) and each.client is self.client for each in watchers)

    def gone(self) -> None:
        """The connection has ended."""
        for uri in self.watching:
            self.services.state.unsubscribe(uri, self)
        self.watching.clear()
        if self.client is not None:
            self.services.clients.left(self.client)
            self.services.client_left(self.client)

    # -- actions ----------------------------------------------------------------------------------------

    def _dispatch(self, params: Any) -> None:
        client, action = self.client, params.action
        target = self.services.find(params.channel)
        if target is None or client is None or client.repeats(params.client_seq):
            return
        origin = {"clientId": client.id, "clientSeq": params.client_seq}
        try:
            if target.spelling is not None:
                action = target.spelling.held(action)
            if self.older is not None:
                action = self.older.held(action)
            self._check(target, action)
            self.services.apply(self.principal, target, action, origin)
        except (ShapeError, AhpdError) as error:
            self._reject(target, action, origin, str(error))
        except Exception:
            self._log.exception("action failed", channel=target.uri, action=action.get("type"))
            self._reject(target, action, origin, "The host could not apply this; its log has the details")

    def _reject_misshapen(self, params: Mapping[str, Any], reason: str) -> None:
        """Answer a dispatch that does not even have the shape of one, as far as it says where and by whom."""
        channel, seq, action = params.get("channel"), params.get("clientSeq"), params.get("action")
        target = self.services.find(channel) if isinstance(channel, str) else None
        whole = isinstance(seq, int) and not isinstance(seq, bool) and isinstance(action, dict)
        if target is not None and whole and self.client is not None and isinstance(action, dict):
            origin = {"clientId": self.client.id, "clientSeq": seq}
            self._reject(target, action, origin, reason)

    def _check(self, target: Target, action: dict[str, Any]) -> None:
        kind = action.get("type")
        row = ACTIONS.get(kind) if isinstance(kind, str) else None
        if row is None:
            raise Rejected(f"This host does not know the action {kind!r}")
        if not row.client_may:
            raise Rejected(f"{kind} is the host's to say")
        if row.kind != target.kind:
            raise Rejected(f"{kind} does not belong on a {target.kind} channel")
        check_action(action)
        self.services.require(self.principal, gate.ACTIONS[str(kind)], target.uri)

    def _reject(self, target: Target, action: dict[str, Any], origin: Mapping[str, Any], reason: str) -> None:
        envelope = self.services.state.address(target.uri, action, str(origin["clientId"]), origin, reason)
        self.deliver(envelope, target.spelling)


def _check_listed(request: frames.Request) -> None:
    """Bound the channels of a handshake before any of them is woken."""
    for key in LISTS:
        listed = request.params.get(key)
        if isinstance(listed, list) and len(listed) > MOST_LISTED:
            raise InvalidParams(
                f"{request.method}: {key} names {len(listed)} channels; at most {MOST_LISTED} may be,"
                " subscribe to the others one by one"
            )


def _channels_in(params: Mapping[str, Any]) -> list[str]:
    """The channels a message names, as far as that can be told before it has been checked."""
    named = [params.get("channel")]
    for key in LISTS:
        listed = params.get(key)
        named += listed if isinstance(listed, list) else []
    channels = [each.get("channel") if isinstance(each, dict) else each for each in named]
    return [channel for channel in channels if isinstance(channel, str)]


NOTIFICATIONS: Mapping[str, Callable[[Connection, Any], None]] = {
    "unsubscribe": Connection._unsubscribe,
    "dispatchAction": Connection._dispatch,
}


def latest_turns(state: dict[str, Any], count: int) -> dict[str, Any]:
    """A chat's state with its newest turns only, one at least, and the cursor for the ones before."""
    turns, count = state.get("turns"), max(count, 1)
    if not isinstance(turns, list) or len(turns) <= count:
        return state
    kept = turns[len(turns) - count :]
    return {**state, "turns": kept, "turnsNextCursor": kept[0]["id"]}
