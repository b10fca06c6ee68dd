"""A request head and the answer no, as the guard, the application and both doors see them.

Pure data: no socket, no framework, no rule about who may come in.
"""

import json
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, unquote

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Scope]]
Send = Callable[[Scope], Awaitable[None]]
ASGIApp = Callable[[Scope, Receive, Send], Awaitable[None]]

Headers = list[tuple[bytes, bytes]]
Peer = tuple[str, int] | None


@dataclass(frozen=True, slots=True)
class Request:
    """``path`` is percent-decoded; of a query parameter that came twice the last one counts."""

    method: str
    target: str
    path: str
    query: Mapping[str, str]
    headers: Headers
    peer: Peer = None

    @classmethod
    def read(cls, method: str, target: str, headers: Headers, peer: Peer) -> "Request":
        path, _, query = target.partition("?")
        if not path.startswith("/") and "://" in path:  # absolute form, RFC 9112 section 3.2.2
            path = "/" + path.partition("://")[2].partition("/")[2]
        return cls(method, target, unquote(path), dict(parse_qsl(query, True)), headers, peer)

    def header(self, name: str) -> str | None:
        """The value of a header; of one that came several times, all joined by commas."""
        wanted = name.lower().encode()
        values = [value for key, value in self.headers if key.lower() == wanted]
        return b", ".join(values).decode("latin-1") if values else None

    def tokens(self, name: str) -> set[str]:
        """The items of a comma-separated header, in lower case."""
        return {word.strip().lower() for word in (self.header(name) or "").split(",")}


@dataclass(frozen=True, slots=True)
class Refusal:
    """No, with a status and one sentence for a person; the connection is closed after it."""

    status: int
    sentence: str
    headers: tuple[tuple[str, str], ...] = ()

    def body(self) -> bytes:
        return json.dumps({"message": self.sentence}).encode()

    def fields(self) -> Headers:
        return [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(self.body())).encode()),
            (b"connection", b"close"),
            *((name.lower().encode(), value.encode("latin-1")) for name, value in self.headers),
        ]


Guard = Callable[[Request], Refusal | None]
