"""Who may come in at the port: the connection token, and the Host and Origin that browsers cannot forge.

Asked once per WebSocket upgrade and once per HTTP request, before anything of either is looked at. A page from
elsewhere that makes a browser call this port is stopped here (DNS rebinding, cross-site requests).
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Collection
from ipaddress import ip_address

from ahpd.wire.request import Refusal, Request

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
UNKNOWN_TOKEN = (("www-authenticate", 'Bearer realm="ahpd", error="invalid_token"'),)
AUTHORITY = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^\[\]@:/?#\\\s]+))(?::[0-9]*)?")
"""A name or an address, and a port. Nothing more: what a lenient reading leaves out, somebody else may read."""
PAGE = re.compile(r"https?://(.*?)/?")
NO_TOKEN = (("www-authenticate", 'Bearer realm="ahpd"'),)


class Doorkeeper:
    """Implements `ahpd.wire.request.Guard`."""

    def __init__(
        self,
        token: str | None,
        bound: str = "127.0.0.1",
        hosts: Collection[str] = (),
        origins: Collection[str] = (),
    ) -> None:
        self._token = None if token is None else token.encode()
        self._bound = bound
        self._hosts = {host.lower() for host in hosts}
        self._origins = {origin.lower().rstrip("/") for origin in origins}

    def __call__(self, request: Request) -> Refusal | None:
        return self._wrong_host(request) or self._wrong_origin(request) or self._wrong_token(request)

    def _wrong_host(self, request: Request) -> Refusal | None:
        named = request.header("host")
        if named is None:
            return None  # HTTP/1.0, which no browser speaks
        host = _host_of(named)
        known = host in LOOPBACK_NAMES or host == self._bound.lower() or host in self._hosts
        if (host and known) or named.lower() in self._hosts or (self._is_anywhere() and _is_address(host)):
            return None
        return Refusal(403, f"This host does not answer to {host or 'that name'}; see allowedHosts")

    def _is_anywhere(self) -> bool:
        """Bound to every address: any of them may be meant, and a rebound name is never an address."""
        return self._bound in ("0.0.0.0", "::", "")  # noqa: S104

    def _wrong_origin(self, request: Request) -> Refusal | None:
        origin = request.header("origin")
        if origin is None or origin.lower().rstrip("/") in self._origins:
            return None
        page = PAGE.fullmatch(origin.lower())
        if page is not None and _host_of(page[1]) in LOOPBACK_NAMES:
            return None
        return Refusal(403, f"Pages from {origin} may not use this host; see allowedOrigins")

    def _wrong_token(self, request: Request) -> Refusal | None:
        """HTTP routes ask for credentials of their own; the connection token opens the WebSocket."""
        if self._token is None or "websocket" not in request.tokens("upgrade"):
            return None
        given = _bearer(request) or request.query.get("tkn")
        if given is None:
            return Refusal(401, "A connection token is required: pass it as ?tkn= or as a bearer token", NO_TOKEN)
        if hmac.compare_digest(given.encode("utf-8", "replace"), self._token):
            return None
        return Refusal(401, "That connection token is not this host's", UNKNOWN_TOKEN)


def _bearer(request: Request) -> str | None:
    scheme, _, credential = (request.header("authorization") or "").partition(" ")
    return credential.strip() if scheme.lower() == "bearer" and credential.strip() else None


def _host_of(named: str) -> str:
    """The name in a Host header or an origin, without port and brackets, in lower case; empty when it is none."""
    found = AUTHORITY.fullmatch(named.strip().lower())
    return "" if found is None else found[1] or found[2]


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
