"""Clients by id: what outlives a socket, so that a client that comes back is the one that left.

A record keeps what `reconnect` does not repeat (the agreed version, what was watched) for five minutes after
the last socket of the client has gone.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import trio

KEPT_SECONDS = 300.0
RECORDS = 10_000
REMEMBERED_SEQS = 4096


@dataclass(slots=True, eq=False)
class Client:
    """One client of the host, however many sockets it has."""

    id: str
    version: str
    info: Mapping[str, Any] | None = None
    capabilities: Mapping[str, Any] = field(default_factory=dict)
    sockets: int = 0
    left_at: float = 0.0
    watched: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By held name: which channel it has been given a snapshot of (`Channel.number`), as of which `serverSeq`."""
    _seen: OrderedDict[int, int] = field(default_factory=OrderedDict)
    generation: int = 0

    def repeats(self, client_seq: int) -> bool:
        """Whether an earlier socket of this client already sent this number: a re-send after a reconnect.

        On one socket numbers say nothing: some clients send every setting with number 0.
        """
        if client_seq <= 0:
            return False
        if self._seen.get(client_seq, self.generation) != self.generation:
            return True
        self._seen[client_seq] = self.generation
        if len(self._seen) > REMEMBERED_SEQS:
            self._seen.popitem(last=False)
        return False

    def start_over(self) -> None:
        """A fresh `initialize` under the same id: its numbers and what it watched begin anew.

        Also when an old socket is still there: a client that crashed comes back before its socket is missed.
        """
        self._seen.clear()
        self.watched.clear()


class Clients:
    """Every client known now."""

    def __init__(self) -> None:
        self._by_id: dict[str, Client] = {}
        self._gone: OrderedDict[str, Client] = OrderedDict()
        """Those without a socket, the longest gone first."""

    def greet(self, client_id: str, version: str) -> Client:
        """The record for a client that initializes."""
        self._forget_old()
        client = self._by_id.get(client_id)
        if client is None:
            client = self._by_id[client_id] = Client(client_id, version)
        else:
            client.start_over()
        client.version = version
        return client

    def known(self, client_id: str) -> Client | None:
        self._forget_old()
        return self._by_id.get(client_id)

    def joined(self, client: Client) -> None:
        client.sockets += 1
        client.generation += 1
        self._gone.pop(client.id, None)

    def left(self, client: Client) -> None:
        client.sockets -= 1
        client.left_at = trio.current_time()
        if not client.sockets:
            self._gone[client.id] = client

    def _forget_old(self) -> None:
        horizon = trio.current_time() - KEPT_SECONDS
        while self._gone:
            client = next(iter(self._gone.values()))
            if client.left_at > horizon and len(self._by_id) < RECORDS:
                break  # the rest left later still
            del self._gone[client.id], self._by_id[client.id]
