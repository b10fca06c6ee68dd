"""Every name a session of this host answers to, whether it is awake or not.

A session is held as `<provider>:/<id>`, is also known under the URI its creator chose, and as `ahp-session:/<id>`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ahpd.session import names


@dataclass(slots=True)
class _Names:
    id: str
    aliases: tuple[str, ...]
    chats: set[str] = field(default_factory=set)


class SessionIndex:
    """Names to held names."""

    def __init__(self) -> None:
        self._held: dict[str, _Names] = {}
        self._aliases: dict[str, str] = {}
        self._by_id: dict[str, str] = {}
        self._chats: dict[str, str] = {}
        """Chats whose URI does not say which session they are in."""

    def add(self, held: str, session_id: str, aliases: Iterable[str] = ()) -> None:
        """The first session of an id keeps it: two agents may each have one of the same."""
        if held in self._held:
            return
        known = self._held[held] = _Names(session_id, tuple(aliases))
        self._by_id.setdefault(session_id, held)
        for alias in known.aliases:
            self._aliases.setdefault(alias, held)

    def remove(self, held: str) -> None:
        known = self._held.pop(held, None)
        if known is None:
            return
        if self._by_id.get(known.id) == held:
            del self._by_id[known.id]
        for alias in known.aliases:
            if self._aliases.get(alias) == held:
                del self._aliases[alias]
        for chat in known.chats:
            self._chats.pop(chat, None)

    def place_chat(self, uri: str, held: str) -> None:
        """A chat is in a session, whatever its URI says."""
        self.forget_chat(uri)
        if self.of_channel(uri) != held:
            self._chats[uri] = held
            self._held[held].chats.add(uri)

    def forget_chat(self, uri: str) -> None:
        held = self._chats.pop(uri, None)
        if held is not None and held in self._held:
            self._held[held].chats.discard(uri)

    def held(self, uri: str) -> str | None:
        """The held name of the session a URI means."""
        if uri in self._held:
            return uri
        found = self._aliases.get(uri)
        if found is None and uri.startswith((names.SESSION_SCHEME, names.CHAT_SCHEME)):
            found = self._by_id.get(uri.partition(":")[2].lstrip("/"))
        return found

    def of_channel(self, uri: str) -> str | None:
        """The held name of the session that a session's or a chat's channel belongs to, as far as a URI tells."""
        if uri in self._chats:
            return self._chats[uri]
        if uri.startswith("ahp-chat://"):
            code = uri.removeprefix("ahp-chat://").partition("/")[2].partition("/")[0]
            inner = names.decode(code)
            return None if inner is None else self.held(inner)
        return self.held(uri)
