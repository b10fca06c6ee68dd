"""Session trees: who started whom, and what each tree has spent since this process began.

One truth for every limit of every plugin. Counts live in memory: they bound a runaway, they meter nothing.
Implements the product's "Limits": a tree is a session nothing started and everything grown from it.
"""

from __future__ import annotations

from collections import Counter


class SessionTrees:
    """Parent links by held session URI. A link to a session that is gone still counts."""

    def __init__(self) -> None:
        self._parents: dict[str, str] = {}
        self._spent: Counter[tuple[str, str]] = Counter()

    def link(self, child: str, parent: str) -> None:
        """Record that `parent` started `child`. A link that would close a circle is left out."""
        if child not in self._chain(parent):
            self._parents[child] = parent

    def parent(self, session: str) -> str | None:
        return self._parents.get(session)

    def _chain(self, session: str) -> list[str]:
        chain = [session]
        while (parent := self._parents.get(chain[-1])) is not None:
            chain.append(parent)
        return chain

    def depth(self, session: str) -> int:
        """How many create links sit above the session; 0 for one nothing started."""
        return len(self._chain(session)) - 1

    def root(self, session: str) -> str:
        return self._chain(session)[-1]

    def spent(self, session: str, what: str) -> int:
        """How much of `what` the session's whole tree has spent."""
        return self._spent[self.root(session), what]

    def charge(self, session: str, what: str) -> None:
        self._spent[self.root(session), what] += 1

    def refund(self, session: str, what: str) -> None:
        self._spent[self.root(session), what] -= 1
