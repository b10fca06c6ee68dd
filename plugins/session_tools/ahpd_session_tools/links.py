"""Open links: how a session, or one chat of it, is named so that a person can click it.

`agent-host-session://<provider>/<session id>?chat=<chat id>`, percent-encoded; the chat is left out when it is
the default one. Pure text: whether such a session exists is asked elsewhere.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote, unquote

SCHEME = "agent-host-session"
DEFAULT_CHAT = "default"

# What encodeURIComponent leaves as it is; a path may hold a few more.
_PLAIN = "!'()*"
_PLAIN_IN_PATH = _PLAIN + "/:@$&+,;="

_LINK = re.compile(rf"{SCHEME}://([^/?#]+)/([^?#]*)(?:\?([^#]*))?(?:#.*)?", re.IGNORECASE)
_CHAT = re.compile(r"(?:^|&)chat=([^&]*)")


@dataclass(frozen=True, slots=True)
class Link:
    """What a link names. `chat` is `None` for the session itself, and for its default chat."""

    provider: str
    id: str
    chat: str | None = None

    def names(self, session: str) -> bool:
        """Whether this is the session held as `session`, `<provider>:/<id>`."""
        return (self.provider, self.id) == _parts(session)


def link(session: str, chat: str | None = None) -> str:
    """The open link of the session `<provider>:/<id>`, or of its chat with the id `chat`."""
    provider, identifier = _parts(session)
    base = f"{SCHEME}://{provider}/{quote(identifier, safe=_PLAIN_IN_PATH)}"
    if chat is None or chat == DEFAULT_CHAT:
        return base
    return f"{base}?chat={quote(chat, safe=_PLAIN)}"


def parse(text: str) -> Link | None:
    """The link a text is, `None` when it is none. A chat that cannot be decoded counts as not given."""
    found = _LINK.fullmatch(text)
    if not found:
        return None
    identifier = _decoded(found[2])
    if not identifier:
        return None
    named = _CHAT.search(found[3] or "")
    chat = _decoded(named[1]) if named else None
    return Link(found[1], identifier, None if chat in (None, "", DEFAULT_CHAT) else chat)


def chat_id(chat: str) -> str:
    """A chat URI's id: `id` of `ahp-chat://id/<session>`, the last part of the path of any other URI."""
    _, _, rest = chat.partition(":")
    if rest.startswith("//"):
        return rest[2:].partition("/")[0]
    return rest.rpartition("/")[2]


def _parts(session: str) -> tuple[str, str]:
    provider, _, path = session.partition(":")
    return provider, path.lstrip("/")


def _decoded(text: str) -> str | None:
    """The text without its percent escapes, `None` when they are not UTF-8."""
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        return None
