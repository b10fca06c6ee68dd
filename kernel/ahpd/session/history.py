"""Completed turns of chats, those included that are kept and not in memory.

A chat that was woken holds its newest turns only; its cursor leads to the older ones in the store.
"""

from __future__ import annotations

from collections.abc import Sequence

from ahpd.session.chats import Chats
from ahpd.session.live import LiveChat
from ahpd.state import Json

EVERYTHING = 1_000_000
"""Turns in a page that is meant to hold all of them."""
STRIDE = 500
"""Turns that are read at once on the way to an older one."""


class History:
    """Reads turns of chats, wherever they are."""

    def __init__(self, chats: Chats) -> None:
        self._chats = chats

    async def through(self, chat: str, turn_id: str, *, running: bool = False) -> list[Json]:
        """A chat's completed turns up to the named one, oldest first; none when it is not there (any more).

        With `running`, the turn that runs counts too, with as much as it has said by now. The chat may sleep.
        """
        live = self._chats.by_uri.get(chat)
        state = {} if live is None else self._chats.chat_state(live)
        turns, cursor = list(state.get("turns") or []), state.get("turnsNextCursor")
        if running and state.get("activeTurn"):
            turns.append(state["activeTurn"])
        if live is None or cursor is not None:
            turns = [*await self._before(chat, cursor), *turns]
        end = next((at for at, turn in enumerate(turns) if turn["id"] == turn_id), -1)
        return turns[: end + 1]

    async def _before(self, chat: str, cursor: str | None) -> list[Json]:
        try:
            turns, _ = await self._chats.keeper.store.turns(chat, cursor, EVERYTHING)
        except KeyError:
            return []
        return [dict(turn) for turn in turns]

    async def behind(self, chat: LiveChat) -> Sequence[Json]:
        """What a side chat was opened beside: the turns of its source up to the one its origin names."""
        origin = self._chats.chat_state(chat).get("origin") or {}
        if origin.get("kind") != "sideChat":
            return ()
        return tuple(await self.through(str(origin.get("chat")), str(origin.get("turnId")), running=True))

    # -- for actions, whose handlers cannot wait --------------------------------------------------------

    def has(self, chat: LiveChat, turn_id: str) -> bool:
        """Whether a chat has a completed turn, as far as is known without reading: see `learn`."""
        turns = self._chats.chat_state(chat).get("turns") or []
        return turn_id in chat.older_turns or any(turn["id"] == turn_id for turn in turns)

    def latest(self, chat: LiveChat) -> str | None:
        """The id of a chat's newest completed turn."""
        turns = self._chats.chat_state(chat).get("turns") or []
        return str(turns[-1]["id"]) if turns else None

    async def learn(self, chat: LiveChat, turn_id: str) -> bool:
        """Find out whether a chat has a completed turn, so that `has` knows."""
        if not self.has(chat, turn_id) and self._chats.chat_state(chat).get("turnsNextCursor"):
            try:
                await self._chats.keeper.store.turns(chat.uri, turn_id, 1)
            except KeyError:
                return False
            chat.older_turns.add(turn_id)
        return self.has(chat, turn_id)

    async def recall(self, chat: LiveChat, turn_id: str) -> None:
        """Have a kept turn, and all that came after it, in the state of the chat and of everybody who watches.

        An action that names a turn does nothing at a client that does not have it.
        """
        self._show_whole(chat)
        while not self._in_memory(chat, turn_id) and await self.learn(chat, turn_id):
            cursor = self._chats.chat_state(chat).get("turnsNextCursor")
            if cursor is None:
                return
            turns, more = await self._back_to(chat.uri, cursor, turn_id)
            if self._chats.by_uri.get(chat.uri) is not chat:
                return
            if self._chats.chat_state(chat).get("turnsNextCursor") == cursor:  # else it moved meanwhile
                self._load(chat, turns, more)
                return

    def _show_whole(self, chat: LiveChat) -> None:
        """Bring those who were shown a part of what is in memory up to all of it; for the others it is no news."""
        channel = self._chats.state.channels[chat.uri]
        if channel.shown_in_part:
            channel.shown_in_part = False
            self._load(chat, list(channel.state.get("turns") or []), channel.state.get("turnsNextCursor"))

    def _in_memory(self, chat: LiveChat, turn_id: str) -> bool:
        return any(turn["id"] == turn_id for turn in self._chats.chat_state(chat).get("turns") or [])

    async def _back_to(self, chat: str, cursor: str, turn_id: str) -> tuple[list[Json], str | None]:
        """The turns before a cursor, back to a named one at least, and the cursor for those before them."""
        turns: list[Json] = []
        more: str | None = cursor
        while more is not None and all(turn["id"] != turn_id for turn in turns):
            try:
                page, more = await self._chats.keeper.store.turns(chat, more, STRIDE)
            except KeyError:  # cut off meanwhile
                return [], cursor
            turns[:0] = [dict(turn) for turn in page]
        return turns, more

    def _load(self, chat: LiveChat, turns: list[Json], more: str | None) -> None:
        action: Json = {"type": "chat/turnsLoaded", "turns": turns}
        if more is not None:
            action["turnsNextCursor"] = more
        chat.turn_ids.update(turn["id"] for turn in turns)
        self._chats.dispatch(chat, action)
