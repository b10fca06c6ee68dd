"""How sessions and chats are named, and the one place where a client's own spelling is turned into ours.

A session is held as `<provider>:/<id>`. A client may have created or opened it under another URI; everything
that client is then sent on the session's channels uses its spelling, and only whole URIs are rewritten: text
that happens to quote one is left alone. Two spellings in one answer make empty panes with no error.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from ahpd.errors import InvalidParams

ROOT = "ahp-root://"
CHAT_SCHEME = "ahp-chat:"
SESSION_SCHEME = "ahp-session:"
PROSE = frozenset(
    {
        "text",
        "content",
        "markdown",
        "title",
        "message",
        "partialInput",
        "toolInput",
        "editedToolInput",
        "invocationMessage",
        "pastTenseMessage",
        "confirmationTitle",
        "description",
        "label",
        "intention",
        "reasonMessage",
        "rejectionReason",
        "activity",
        "value",
        "data",
    }
)
"""Members whose strings are what somebody wrote: never rewritten, not even when they are a URI and nothing else.
Text arrives in pieces, and a piece that was rewritten would not be there in the whole."""


def is_root(uri: str) -> bool:
    """Peers write the root channel with and without its slashes."""
    return uri == ROOT or uri == "ahp-root:" or uri == "ahp-root:/"


def encode(uri: str) -> str:
    return base64.urlsafe_b64encode(uri.encode()).decode().rstrip("=")


def decode(text: str) -> str | None:
    """The URI inside a chat's URI; `None` when it holds none."""
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return None


def session_id(uri: str) -> str:
    """The id inside a session URI. Raises `InvalidParams` when there is none."""
    identifier = uri.partition(":")[2].lstrip("/")
    if not identifier:
        raise InvalidParams(f"channel must be a session URI with an id, such as echo:/<uuid>; got {uri!r}")
    return identifier


def held_name(provider: str, uri: str) -> str:
    return f"{provider}:/{session_id(uri)}"


def default_chat(session: str) -> str:
    return chat_uri("default", session)


def chat_uri(chat_id: str, session: str) -> str:
    return f"ahp-chat://{chat_id}/{encode(session)}"


KEPT_SPELLINGS = 256
LONGEST_KEPT = 1024

_Spelling = TypeVar("_Spelling")


class Spellings(Generic[_Spelling]):
    """The spellings of one session or chat, one object for all who use a name, so that frames can be shared.

    Bounded: whatever is put behind a chat's URI names that chat, so a client can make names up for ever. One that
    was let go of still serves those who watch under it; the next who comes only makes frames of its own.
    """

    __slots__ = ("_by_alias",)

    def __init__(self) -> None:
        self._by_alias: dict[str, _Spelling] = {}

    def of(self, alias: str, make: Callable[[], _Spelling]) -> _Spelling:
        known = self._by_alias.pop(alias, None)
        if known is None:
            known = make()
        if len(alias) <= LONGEST_KEPT:
            self._by_alias[alias] = known  # the last used is the last to go
            if len(self._by_alias) > KEPT_SPELLINGS:
                del self._by_alias[next(iter(self._by_alias))]
        return known


class SessionSpelling:
    """One session as one group of clients names it. Compared by identity, so that frames can be shared."""

    __slots__ = ("_alias", "_alias_code", "_code", "_held", "alias")

    def __init__(self, held: str, alias: str) -> None:
        self._held, self._alias, self.alias = held, alias, alias
        self._code, self._alias_code = encode(held), encode(alias)

    def out(self, value: Any) -> Any:
        """The value with every held name spelled the client's way. The input is not changed."""
        return _rewrite(value, lambda uri: _renamed(uri, self._held, self._alias, self._code, self._alias_code))

    def held(self, value: Any) -> Any:
        """The inverse: what a client sent, in held names."""
        return _rewrite(value, lambda uri: _renamed(uri, self._alias, self._held, self._alias_code, self._code))


class ChatSpelling:
    """One chat as clients name it that opened it under another URI, within their spelling of its session."""

    __slots__ = ("_alias", "_session", "_shown")

    def __init__(self, held: str, alias: str, session: SessionSpelling | None) -> None:
        self._alias, self._session = alias, session
        self._shown: str = held if session is None else session.out(held)

    def out(self, value: Any) -> Any:
        spelled = value if self._session is None else self._session.out(value)
        return _rewrite(spelled, lambda uri: self._alias if uri == self._shown else uri)

    def held(self, value: Any) -> Any:
        shown = _rewrite(value, lambda uri: self._shown if uri == self._alias else uri)
        return shown if self._session is None else self._session.held(shown)


def _rewrite(value: Any, rename: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return rename(value)
    if isinstance(value, dict):
        return {
            key: item if isinstance(item, str) and key in PROSE else _rewrite(item, rename)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [_rewrite(item, rename) for item in value]
    return value


def _renamed(text: str, old: str, new: str, old_code: str, new_code: str) -> str:
    if text.startswith(old):
        rest = text[len(old) :]
        if not rest or (rest[0] == "/" and " " not in rest and "\n" not in rest):
            return new + rest
    elif text.startswith("ahp-chat://") and old_code in text:
        return "/".join(new_code if part == old_code else part for part in text.split("/"))
    return text
