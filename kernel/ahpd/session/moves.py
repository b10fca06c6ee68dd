"""Moving a chat: to another place in its session, into another session, or into one of its own.

A moved chat keeps its URI, its turns and its origin. All of a move happens in one step of the one writer, or
nothing of it does.
"""

from __future__ import annotations

from uuid import uuid4

from ahpd.errors import AhpdError, InvalidParams, NotFound, TurnInProgress
from ahpd.session.chats import Chats
from ahpd.session.live import LiveChat, LiveSession
from ahpd.session.sessions import Sessions
from ahpd.session.turns import Turns


class Moves:
    """Moves chats of sessions that are awake."""

    def __init__(self, sessions: Sessions, chats: Chats, turns: Turns) -> None:
        self._sessions, self._chats, self._turns = sessions, chats, turns

    def require_movable(self, chat: LiveChat) -> None:
        """Raises `InvalidParams` for a default chat, `TurnInProgress` while a turn runs in it."""
        if self._chats.is_default(chat):
            raise InvalidParams(
                "The first chat of a session cannot be moved; move the others, or the session stays"
            )
        if chat.turn is not None or chat.settling:
            raise TurnInProgress("A turn is running in this chat; it can be moved when the turn has ended")

    def within(self, chat: LiveChat, after: str | None, first: bool) -> None:
        """Another place in the same session."""
        session = chat.session
        order = [uri for uri in session.chats if uri != chat.uri]
        order.insert(self._place(session, chat, order, after, first), chat.uri)
        self._arrange(session, {uri: session.chats[uri] for uri in order})

    def _arrange(self, session: LiveSession, chats: dict[str, LiveChat]) -> None:
        """Put the chats of a session in an order; one they are in already is no news."""
        session.chats = chats
        entries = self._chats.session_state(session)["chats"]
        if [entry["resource"] for entry in entries] != list(chats):
            action = {"type": "session/chatsReordered", "chats": list(chats)}
            self._chats.dispatch_session(session, action)

    @staticmethod
    def _place(session: LiveSession, chat: LiveChat, order: list[str], after: str | None, first: bool) -> int:
        if after is None:
            return 0 if first else len(order)
        if after == chat.uri:
            raise InvalidParams("A chat cannot be placed after itself")
        if after not in order:
            raise InvalidParams(f"{after} is not a chat in {session.uri}")
        return order.index(after) + 1

    def into(self, chat: LiveChat, target: LiveSession, after: str | None, first: bool) -> None:
        """Into another session of the same agent."""
        source = chat.session
        if source.provider != target.provider:
            raise InvalidParams(f"A chat of {source.provider} cannot be moved to a session of {target.provider}")
        place = self._place(target, chat, list(target.chats), after, first)
        entry = self._chats.entry_of(chat)
        self._turns.forget_history(chat)
        del source.chats[chat.uri]
        self._chats.dispatch_session(source, {"type": "session/chatRemoved", "chat": chat.uri})
        chat.session = target
        order = list(target.chats)
        order.insert(place, chat.uri)
        self._chats.dispatch_session(target, {"type": "session/chatAdded", "summary": entry})
        self._arrange(target, {uri: target.chats.get(uri, chat) for uri in order})
        self._chats.adopted(chat)

    async def into_own(self, chat: LiveChat) -> LiveSession:
        """Into a new session whose first chat it becomes."""
        source = chat.session
        state = self._chats.session_state(source)
        session = await self._sessions.create(
            f"ahp-session:/{uuid4()}",
            provider=source.provider,
            working_directories=state.get("workingDirectories", ()),
            config=source.values,
            title=self._chats.title_of(chat),
            owner=source.owner,
            strategy=source.strategy,
        )
        try:
            self._require_there(chat)
            self.require_movable(chat)
        except AhpdError:
            self._sessions.end(session)
            raise
        (placeholder,) = session.chats.values()
        self.into(chat, session, None, first=True)
        self._chats.drop(placeholder)
        return session

    def _require_there(self, chat: LiveChat) -> None:
        """Much may have happened while a session was made for it."""
        if self._chats.by_uri.get(chat.uri) is not chat:
            raise NotFound(f"No chat at {chat.uri}")
