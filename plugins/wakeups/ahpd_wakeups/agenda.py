"""Which chat is to be looked at next. Pure; knows no clock.

Sorted rather than a heap: a chat holds one wakeup, so most changes take an earlier time back, and the list moves
a thousand entries in less than a heap takes to skip what has gone stale.
"""

from __future__ import annotations

from bisect import bisect_left, insort


class Agenda:
    """One time for each chat, in epoch milliseconds, the earliest first."""

    def __init__(self) -> None:
        self._times: dict[str, int] = {}
        self._order: list[tuple[int, str]] = []

    def __len__(self) -> int:
        return len(self._order)

    @property
    def first(self) -> int | None:
        """The earliest time."""
        return self._order[0][0] if self._order else None

    def time(self, chat: str) -> int | None:
        return self._times.get(chat)

    def put(self, chat: str, at: int) -> None:
        """Give the chat this time, and no other."""
        self.drop(chat)
        self._times[chat] = at
        insort(self._order, (at, chat))

    def drop(self, chat: str) -> None:
        at = self._times.pop(chat, None)
        if at is not None:
            del self._order[bisect_left(self._order, (at, chat))]

    def take_due(self, now: int) -> list[str]:
        """The chats whose time has come, earliest first; they are off the agenda then."""
        due = 0
        while due < len(self._order) and self._order[due][0] <= now:
            due += 1
        taken = [chat for _, chat in self._order[:due]]
        del self._order[:due]
        for chat in taken:
            del self._times[chat]
        return taken
