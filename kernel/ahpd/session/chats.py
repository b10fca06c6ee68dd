"""Chats of a session, and keeping what a session and the root list say of a chat in step with the chat itself.

Every change of a chat's state goes through `dispatch` here, so that no caller can forget the other two places.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

from ahpd.errors import AlreadyExists, InvalidParams
from ahpd.session import names
from ahpd.session.catalogue import BUSY, IDLE, Catalogue
from ahpd.session.index import SessionIndex
from ahpd.session.keeper import Keeper
from ahpd.session.live import LiveChat, LiveSession, now
from ahpd.state import Envelope, Json, State

SHARED = ("status", "activity", "modifiedAt", "changes", "interactivity", "movable", "workingDirectories")
"""Fields a chat's state has in common with its entry in the session's catalogue, and that change in the state.
No action changes a chat's title there: the entry has it, and the session when it is the default chat's."""
TITLE_LENGTH = 200
TAIL = 50
"""Turns of a forked chat that are held in memory; older ones are read when they are asked for."""


class Chats:
    """Adds, changes and drops chats of live sessions."""

    def __init__(self, state: State, catalogue: Catalogue, keeper: Keeper, index: SessionIndex) -> None:
        self.state, self.keeper, self._index = state, keeper, index
        self._catalogue = catalogue
        self.by_uri: dict[str, LiveChat] = {}
        self._busy = 0

    def chat_state(self, chat: LiveChat) -> Json:
        return self.state.channels[chat.uri].state

    def session_state(self, session: LiveSession) -> Json:
        return self.state.channels[session.uri].state

    def directories(self, chat: LiveChat) -> list[str]:
        """Where a chat works: in directories of its own, or else in all of its session's."""
        everywhere = list(self.session_state(chat.session).get("workingDirectories") or ())
        own = self.chat_state(chat).get("workingDirectories") or ()
        return [directory for directory in own if directory in everywhere] or everywhere

    def change_directories(
        self, session: LiveSession, action: Json, origin: Mapping[str, Any] | None = None
    ) -> None:
        """Change where a session works. Its chats follow, and their agents open there with their next turn."""
        self.dispatch_session(session, action, origin)
        for chat in session.chats.values():
            chat.stale = True
            self._keep_within(chat, action.get("replacement"))

    def _keep_within(self, chat: LiveChat, replacement: str | None) -> None:
        """Take away the directories of a chat that its session has no more; what replaced one takes its place."""
        everywhere = self.session_state(chat.session).get("workingDirectories") or ()
        for gone in self.chat_state(chat).get("workingDirectories") or ():
            if gone not in everywhere:
                if replacement is not None:
                    self.dispatch(chat, {"type": "chat/workingDirectorySet", "directory": replacement})
                self.dispatch(chat, {"type": "chat/workingDirectoryRemoved", "directory": gone})

    def dispatch(self, chat: LiveChat, action: Json, origin: Mapping[str, Any] | None = None) -> Envelope:
        """Apply an action to a chat, then bring its session's catalogue and the root list up to date."""
        channel = self.state.channels[chat.uri]
        before = channel.state
        envelope = self.state.dispatch(chat.uri, action, origin)
        after = channel.state
        if after is not before:
            self._follow(chat, before, after)
        self.keeper.busy_chat(chat)
        return envelope

    def _follow(self, chat: LiveChat, before: Json, after: Json) -> None:
        changes = {key: after.get(key) for key in SHARED if after.get(key) != before.get(key)}
        if not changes:
            return
        self.update_entry(chat, changes)
        was, is_now = before.get("status", IDLE) & BUSY, after.get("status", IDLE) & BUSY
        if was != is_now and not self._is_busy_beside(chat):
            self._busy += 1 if is_now else -1
            self._tell_busy()

    def _is_busy_beside(self, chat: LiveChat) -> bool:
        """Whether another chat of its session runs a turn: the root counts sessions."""
        others = (other for other in chat.session.chats.values() if other is not chat)
        return any(self.chat_state(other).get("status", IDLE) & BUSY for other in others)

    def update_entry(self, chat: LiveChat, changes: Json) -> None:
        """Change a chat's entry in its session's catalogue."""
        action = {"type": "session/chatUpdated", "chat": chat.uri, "changes": changes}
        self.dispatch_session(chat.session, action)

    def dispatch_session(
        self, session: LiveSession, action: Json, origin: Mapping[str, Any] | None = None
    ) -> Envelope:
        """Apply an action to a session; the root list follows shortly."""
        envelope = self.state.dispatch(session.uri, action, origin)
        self._catalogue.moved(session.uri)
        return envelope

    def _tell_busy(self) -> None:
        action = {"type": "root/activeSessionsChanged", "activeSessions": self._busy}
        self.state.dispatch(names.ROOT, action)

    def new_chat(
        self, session: LiveSession, uri: str, title: str, origin: Json, movable: bool = False
    ) -> tuple[LiveChat, Json]:
        """The record and the channel of a chat, with its catalogue entry; nothing is announced yet."""
        if self.state.get(uri) is not None:
            raise AlreadyExists(f"There is something at {uri} already")
        entry: Json = {"resource": uri, "title": title, "status": IDLE, "modifiedAt": now(), "origin": origin}
        if movable:
            entry["movable"] = True
        chat = LiveChat(uri, session)
        session.chats[uri] = self.by_uri[uri] = chat
        self._index.place_chat(uri, session.uri)
        self.state.open(uri, "chat", {**entry, "turns": []})
        return chat, entry

    def add(
        self,
        session: LiveSession,
        uri: str | None = None,
        title: str = "",
        origin: Json | None = None,
        turns: list[Json] | None = None,
        directories: Sequence[str] = (),
    ) -> LiveChat:
        """A further chat of a session, announced to everybody who watches the session. Raises `AlreadyExists`."""
        uri = uri or names.chat_uri(str(uuid4()), session.uri)
        chat, entry = self.new_chat(session, uri, title, origin or {"kind": "user"}, movable=True)
        channel = self.state.channels[uri]
        if directories:
            entry["workingDirectories"] = list(directories)
            channel.state = {**channel.state, "workingDirectories": list(directories)}
        if turns:
            channel.state = {**channel.state, "turns": turns[-TAIL:]}
            if len(turns) > TAIL:
                channel.state["turnsNextCursor"] = turns[-TAIL]["id"]
            chat.turn_ids.update(turn["id"] for turn in turns)
        self.keeper.chat(chat, tuple(turns or ()))
        self.dispatch_session(session, {"type": "session/chatAdded", "summary": entry})
        return chat

    def revive(self, session: LiveSession, uri: str, state: Json) -> LiveChat:
        """A stored chat as it was last written."""
        chat = session.chats[uri] = self.by_uri[uri] = LiveChat(uri, session)
        self._index.place_chat(uri, session.uri)
        self.state.open(uri, "chat", state)
        chat.turn_ids.update(turn["id"] for turn in state["turns"])
        if state.get("status", IDLE) & BUSY and not self._is_busy_beside(chat):
            self._busy += 1
        return chat

    def drop(self, chat: LiveChat) -> None:
        """Take a chat out of its session. The caller has ended its turn and closed its agent.

        Raises `InvalidParams` for the last one: a session without a chat could never be used again.
        """
        session = chat.session
        if len(session.chats) == 1:
            raise InvalidParams("A session keeps at least one chat; dispose the session instead")
        self.forget(chat)
        self.keeper.drop_chat(chat)
        self._index.forget_chat(chat.uri)
        del session.chats[chat.uri]
        was_default = self.session_state(session).get("defaultChat") == chat.uri
        self.dispatch_session(session, {"type": "session/chatRemoved", "chat": chat.uri})
        if was_default:
            heir = next(iter(session.chats))
            self.dispatch_session(session, {"type": "session/defaultChatChanged", "defaultChat": heir})
            self.dispatch(session.chats[heir], {"type": "chat/movableChanged", "movable": False})

    def forget(self, chat: LiveChat) -> None:
        self.by_uri.pop(chat.uri, None)
        self.state.close(chat.uri)

    def is_default(self, chat: LiveChat) -> bool:
        return bool(self.session_state(chat.session).get("defaultChat") == chat.uri)

    def rename(self, chat: LiveChat, title: str, origin: Mapping[str, Any] | None = None) -> None:
        """Give a chat a title; a session's title is its default chat's."""
        if self.is_default(chat):
            self.dispatch_session(chat.session, {"type": "session/titleChanged", "title": title}, origin)
        else:
            self.update_entry(chat, {"title": title})

    def entry_of(self, chat: LiveChat) -> Json:
        """A chat's entry in its session's catalogue."""
        for entry in self.session_state(chat.session).get("chats", []):
            if entry["resource"] == chat.uri:
                found: Json = entry
                return found
        return {"resource": chat.uri}

    def adopted(self, chat: LiveChat) -> None:
        """A chat has come into another session: where it is found, and kept, follows."""
        self._index.place_chat(chat.uri, chat.session.uri)
        self._keep_within(chat, None)
        self.keeper.chat(chat)

    def title_of(self, chat: LiveChat) -> str:
        state = self.session_state(chat.session)
        return str((state if self.is_default(chat) else self.entry_of(chat)).get("title", ""))

    def name_after(self, chat: LiveChat, text: str) -> None:
        """Title an untitled chat after its first message, so that a list never shows a blank."""
        title = first_line(text)
        if title and not self.title_of(chat):
            self.rename(chat, title)


def first_line(text: str, length: int = 80) -> str:
    """The first line that says something, white space folded, cut to `length` characters."""
    for line in text.splitlines():
        folded = " ".join(line.split())
        if folded:
            return folded if len(folded) <= length else folded[: length - 1].rstrip() + "…"
    return ""
