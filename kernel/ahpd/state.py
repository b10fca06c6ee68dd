"""The single writer: reduce, number, remember for replay, hand to subscribers. One plain function, no `await`.

Between two checkpoints no other task runs, so the order of everything follows from where `dispatch` is called
and no lock is needed. Channels hold plain JSON dicts that are never changed in place: a snapshot is the dict
itself. Knows nothing of sockets: a subscriber is whatever has `deliver`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import msgspec

from ahpd.errors import AlreadyExists

Json: TypeAlias = dict[str, Any]
Reducer: TypeAlias = Callable[[Json, Json], Json]

REPLAY = 1000
"""Envelopes kept for clients that come back, for the whole host."""
REPLAY_BYTES = 32 * 1024 * 1024
"""What their actions may amount to as JSON: a thousand large ones would be gigabytes."""
LARGE = 4096
"""Bytes from which on an action is kept as JSON alone: in objects and frames it takes many times as much."""

_encode = msgspec.json.Encoder().encode


def sendable(value: Any) -> Any:
    """The value with halves of surrogate pairs replaced, as text read from a file or a terminal may hold."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    if isinstance(value, Mapping):
        return {sendable(key): sendable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [sendable(item) for item in value]
    return value


class Spelling(Protocol):
    """How one client names a session: `out` rewrites held names into its own, `held` the other way."""

    def out(self, value: Any) -> Any: ...

    def held(self, value: Any) -> Any: ...


class Deliverable(Protocol):
    """Something sent to many. `frames` keeps each ready-made form of it: it is encoded once per form."""

    frames: dict[Any, bytes]

    def encode(self, spelling: Spelling | None) -> bytes: ...

    def told(self) -> tuple[str, Json]:
        """The notification itself, its method and its params, in held names."""
        ...


@dataclass(slots=True, eq=False)
class Notice:
    """A notification of a channel that is not an action: told once, never replayed."""

    method: str
    params: Json
    frames: dict[Any, bytes] = field(default_factory=dict)

    def encode(self, spelling: Spelling | None) -> bytes:
        params = self.params if spelling is None else spelling.out(self.params)
        return _encode({"jsonrpc": "2.0", "method": self.method, "params": params})

    def told(self) -> tuple[str, Json]:
        return self.method, self.params


@dataclass(slots=True, eq=False)
class Envelope:
    """One numbered action. With an `audience` it is meant for that one client, now and in a replay."""

    channel: str
    action: Json
    seq: int
    origin: Mapping[str, Any] | None = None
    rejection: str | None = None
    audience: str | None = None
    frames: dict[Any, bytes] = field(default_factory=dict)
    size: int = field(init=False)
    """Bytes of the action as JSON."""
    _encoded: msgspec.Raw = field(init=False)
    _folded: bool = False

    def __post_init__(self) -> None:
        # At once, and before anything is applied: an action that cannot be sent must not become state.
        try:
            self._encoded = msgspec.Raw(_encode(self.action))
        except UnicodeEncodeError:
            self.action = sendable(self.action)
            self._encoded = msgspec.Raw(_encode(self.action))
        self.size = len(memoryview(self._encoded))

    def fold(self) -> None:
        """It has been sent: from now on a large one is the JSON of its action, read again when it is asked for."""
        if self.size > LARGE:
            self.action, self._folded = {}, True
            self.frames.clear()

    def as_json(self) -> Json:
        action = msgspec.json.decode(self._encoded) if self._folded else self.action
        envelope: Json = {"channel": self.channel, "action": action, "serverSeq": self.seq}
        if self.origin is not None:
            envelope["origin"] = self.origin
        if self.rejection is not None:
            envelope["rejectionReason"] = self.rejection
        return envelope

    def encode(self, spelling: Spelling | None) -> bytes:
        """The `action` notification as JSON text, in the names a client uses."""
        params = self.as_json()
        params = {**params, "action": self._encoded} if spelling is None else spelling.out(params)
        return _encode({"jsonrpc": "2.0", "method": "action", "params": params})

    def told(self) -> tuple[str, Json]:
        return "action", self.as_json()


class Subscriber(Protocol):
    """Somebody watching channels. `deliver` must not wait and must not raise."""

    def deliver(self, message: Deliverable, spelling: Spelling | None) -> None: ...


@dataclass(slots=True, eq=False)
class Channel:
    """One channel: its kind, its present state, and who watches it in which spelling."""

    uri: str
    kind: str
    state: Json
    number: int
    """Counts channels: another one under the same URI is another channel."""
    subscribers: dict[Subscriber, Spelling | None] = field(default_factory=dict)
    shown_in_part: bool = False
    """Whether somebody who watches may have been shown only the newest turns of `state`."""


class State:
    """Every channel of a host, and the one counter that orders all of them."""

    def __init__(
        self,
        reducers: Mapping[str, Reducer],
        seq: int = 0,
        replay: int = REPLAY,
        replay_bytes: int = REPLAY_BYTES,
    ) -> None:
        self.seq = seq
        self.journal: Callable[[Channel, Envelope], None] | None = None
        """Told of every action that was applied, before anybody who watches."""
        self.channels: dict[str, Channel] = {}
        self._reducers = dict(reducers)
        self._opened = 0
        self._ring: deque[Envelope] = deque()
        self._most, self._most_bytes = replay, replay_bytes
        self._ring_bytes = 0
        self._forgotten = seq
        """The newest number that can no longer be replayed."""

    def begin_at(self, seq: int) -> None:
        """Go on numbering above `seq`, which earlier runs of this host gave out."""
        self.seq = self._forgotten = seq

    def open(self, uri: str, kind: str, state: Json) -> Channel:
        """Begin a channel. Raises `AlreadyExists`: another one's watchers must not find themselves on this one."""
        if uri in self.channels:
            raise AlreadyExists(f"There is something at {uri} already")
        self._opened += 1
        channel = self.channels[uri] = Channel(uri, kind, state, self._opened)
        return channel

    def close(self, uri: str) -> None:
        self.channels.pop(uri, None)

    def get(self, uri: str) -> Json | None:
        channel = self.channels.get(uri)
        return None if channel is None else channel.state

    def dispatch(self, uri: str, action: Json, origin: Mapping[str, Any] | None = None) -> Envelope:
        """Apply an action to its channel and tell everybody who watches.

        Raises `KeyError` for no channel, `TypeError` for what is no JSON; then nothing has happened.
        """
        channel = self.channels[uri]
        envelope = Envelope(uri, action, 0, origin)
        channel.state = self._reducers[channel.kind](channel.state, envelope.action)
        self._number(envelope)
        if self.journal is not None:
            self.journal(channel, envelope)
        for subscriber, spelling in channel.subscribers.items():
            subscriber.deliver(envelope, spelling)
        return envelope

    def address(
        self,
        uri: str,
        action: Json,
        audience: str,
        origin: Mapping[str, Any] | None = None,
        rejection: str | None = None,
    ) -> Envelope:
        """Number something meant for one client: a refusal, or history only it asked for. Nothing is applied
        and nothing is sent; the caller delivers it, and a replay to that client holds it."""
        return self._number(Envelope(uri, action, 0, origin, rejection, audience))

    def tell(self, uri: str, notice: Notice) -> None:
        """Send a notification to everybody who watches a channel."""
        channel = self.channels.get(uri)
        if channel is not None:
            for subscriber, spelling in channel.subscribers.items():
                subscriber.deliver(notice, spelling)

    def _number(self, envelope: Envelope) -> Envelope:
        self.seq += 1
        envelope.seq = self.seq
        ring = self._ring
        if ring:
            ring[-1].fold()
        ring.append(envelope)
        self._ring_bytes += envelope.size
        while ring and (len(ring) > self._most or self._ring_bytes > self._most_bytes):
            oldest = ring.popleft()
            self._ring_bytes -= oldest.size
            self._forgotten = oldest.seq
        return envelope

    def subscribe(self, uri: str, subscriber: Subscriber, spelling: Spelling | None = None) -> Json:
        """Watch a channel; the snapshot holds all that was dispatched before, and nothing is missed after."""
        channel = self.channels[uri]
        channel.subscribers[subscriber] = spelling
        return {"resource": uri, "state": channel.state, "fromSeq": self.seq}

    def unsubscribe(self, uri: str, subscriber: Subscriber) -> None:
        channel = self.channels.get(uri)
        if channel is not None:
            channel.subscribers.pop(subscriber, None)

    def can_replay(self, after: int) -> bool:
        return self._forgotten <= after <= self.seq

    def missed(self, after: int, channels: Iterable[str], client_id: str) -> list[Envelope]:
        """Everything after a number on the given channels, without what was meant for other clients."""
        wanted = set(channels)
        return [
            envelope
            for envelope in self._ring
            if envelope.seq > after and envelope.channel in wanted and envelope.audience in (None, client_id)
        ]
