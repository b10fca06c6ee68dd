"""The places for connections: who holds one, and who has to give it up when all are taken.

A connection settles when it becomes a WebSocket, which the guard has let in, or while an HTTP request on it is
answered. Until then it waits, and anybody can have a connection wait: when places are short, those that have
waited longest are closed, so that strangers who say nothing keep nobody out. Knows nothing of sockets.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Protocol

SPARE = 32
"""Refused connections that may be open above the limit, until they have read why."""


class Scope(Protocol):
    """The part of a `trio.CancelScope` that is used here."""

    def cancel(self) -> None: ...


class Slots:
    """Counts connections by what they are doing. Keys are whatever stands for a connection."""

    def __init__(self, most: int, most_http: int) -> None:
        self._most, self._most_http = most, most_http
        self._scopes: dict[Hashable, Scope] = {}
        """Everybody who is connected and was not told to go."""
        self._waiting: dict[Hashable, None] = {}
        """Who may be told to go, the longest waiting first."""
        self._answering: set[Hashable] = set()

    @property
    def settled(self) -> int:
        return len(self._scopes) - len(self._waiting)

    def enter(self, key: Hashable, scope: Scope) -> bool:
        """A connection came; whether there is a place for it. It waits, in either case, until it settles."""
        self._scopes[key], self._waiting[key] = scope, None
        admitted = self.settled < self._most
        if len(self._scopes) > self._most + (0 if admitted else SPARE):
            self._dismiss(next(iter(self._waiting)))
        return admitted

    def settle(self, key: Hashable) -> None:
        """It became a WebSocket."""
        self._waiting.pop(key, None)

    def answer(self, key: Hashable) -> bool:
        """A request came on it; whether it may be answered. HTTP never takes the places of all WebSockets."""
        if key not in self._scopes or len(self._answering) >= self._most_http:
            return False
        self._waiting.pop(key, None)
        self._answering.add(key)
        return True

    def rest(self, key: Hashable) -> None:
        """Its request has been answered; it waits for another one, or to be closed."""
        self._answering.discard(key)
        if key in self._scopes:
            self._waiting.setdefault(key, None)

    def leave(self, key: Hashable) -> None:
        self._scopes.pop(key, None)
        self._waiting.pop(key, None)
        self._answering.discard(key)

    def _dismiss(self, key: Hashable) -> None:
        scope = self._scopes[key]
        self.leave(key)
        scope.cancel()
