"""Work that an agent left running beside its turns, as clients are shown it.

An entry lives as long as the agent that reported it is open, at most: nobody else could say when it ends.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import trio

from ahpd.log import get
from ahpd.session.chats import Chats
from ahpd.session.live import LiveChat, now
from ahpd.state import Json
from ahpd.tooling.fence import pass_on


class BackgroundWork:
    """What one opened agent reports; implements `ahpd.agents.Start.background`."""

    def __init__(self, chats: Chats, chat: LiveChat) -> None:
        self._chats, self._chat = chats, chat
        self._running: dict[str, trio.CancelScope] = {}
        """Entries by id, with the scope of what waits for their end."""
        self._began: dict[str, str] = {}
        self._closed = False

    @property
    def goes_on(self) -> bool:
        return bool(self._running)

    def __call__(
        self,
        work_id: str,
        work: Mapping[str, Any] | None,
        until: Callable[[], Awaitable[Any]] | None = None,
    ) -> None:
        if work is None:
            self._remove(work_id)
            return
        nursery = self._chat.session.nursery
        if self._closed or nursery is None or self._chat.uri not in self._chats.by_uri:
            return
        started = self._began.setdefault(work_id, now())
        entry: Json = {"startedAt": started, **work, "id": work_id}
        scope = self._running.get(work_id)
        if scope is None or until is not None:
            if scope is not None:
                scope.cancel()
            scope = self._running[work_id] = trio.CancelScope()
        self._say({"type": "chat/backgroundWorkSet", "work": entry})
        if until is not None:
            nursery.start_soon(self._wait, work_id, scope, until)

    async def _wait(self, work_id: str, scope: trio.CancelScope, until: Callable[[], Awaitable[Any]]) -> None:
        try:
            with scope:
                await until()
        except BaseException as error:
            pass_on(error)
            get("ahpd.turns").exception("background work went wrong", chat=self._chat.uri, work=work_id)
        finally:
            if self._running.get(work_id) is scope:
                self._remove(work_id)

    def _remove(self, work_id: str) -> None:
        scope = self._running.pop(work_id, None)
        self._began.pop(work_id, None)
        if scope is not None:
            scope.cancel()
            self._say({"type": "chat/backgroundWorkRemoved", "id": work_id})

    def _say(self, action: Json) -> None:
        if self._chat.uri in self._chats.by_uri:
            self._chats.dispatch(self._chat, action)

    def close(self) -> None:
        """The agent is let go: nothing it left is shown any more, and nothing it says later is heard."""
        self._closed = True
        for work_id in list(self._running):
            self._remove(work_id)
