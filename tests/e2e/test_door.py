"""Who is let in at the port: the token, the Host and the Origin; and that the token is told to nobody."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ..kernel.wire.conftest import TEXT

if TYPE_CHECKING:
    from .conftest import Daemon, Reachable

SECRET = "correct-horse-battery-staple"
PING = b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}'


async def knock(daemon: Reachable, path: str = "/", *lines: str, host: str = "localhost") -> tuple[int, str]:
    """Ask for a WebSocket; the status, and on a refusal what the body says."""
    peer = await daemon.peer()
    head = [
        f"GET {path} HTTP/1.1",
        f"Host: {host}",
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Version: 13",
        *lines,
    ]
    await peer.send("\r\n".join([*head, "", ""]).encode())
    status, fields = await peer.head()
    if status == 101:
        await peer.frame(TEXT, PING)
        assert (await peer.read_frame())[1] == b'{"jsonrpc":"2.0","id":1,"result":null}'
        return status, ""
    return status, (await peer.take(int(fields["content-length"]))).decode()


async def test_the_token_opens_the_door_and_nothing_else_does(start: Any) -> None:
    daemon: Daemon = await start("--connection-token", SECRET, "--log-level", "debug")
    assert (await knock(daemon))[0] == 401
    for wrong in ("", "x", SECRET[:-1], SECRET + "x", SECRET.upper(), "%00", "%C3%A9"):
        assert (await knock(daemon, f"/?tkn={wrong}"))[0] == 401
        assert (await knock(daemon, "/", f"Authorization: Bearer {wrong}"))[0] == 401
    assert (await knock(daemon, "/", f"Authorization: Basic {SECRET}"))[0] == 401
    assert (await knock(daemon, f"/?tkn={SECRET}"))[0] == 101
    assert (await knock(daemon, f"/any/path?x=1&tkn={SECRET}"))[0] == 101
    assert (await knock(daemon, "/", f"Authorization: Bearer {SECRET}"))[0] == 101
    assert (await knock(daemon, "/", f"authorization: bearer {SECRET}"))[0] == 101
    client = await daemon.client(url=f"{daemon.ws}?tkn={SECRET}")
    session = await client.create_session()
    await client.turn(client.default_chat(session), "/call get_current_session {}")
    assert await daemon.stop() == 0
    assert SECRET not in daemon.log()


async def test_a_refusal_says_what_to_do_and_not_how_near_it_was(start: Any) -> None:
    daemon: Daemon = await start("--connection-token", SECRET)
    _, missing = await knock(daemon)
    assert "tkn" in missing
    said = {(await knock(daemon, f"/?tkn={SECRET[:length]}z"))[1] for length in range(0, len(SECRET), 5)}
    assert len(said) == 1
    assert SECRET[:5] not in said.pop()


async def test_without_a_token_nobody_is_asked_for_one(shared: Reachable) -> None:
    assert (await knock(shared, "/?tkn=whatever"))[0] == 101


@pytest.mark.parametrize(
    "host", ["localhost", "LocalHost", "127.0.0.1", "[::1]", "localhost:9187", "127.0.0.1:1", "[::1]:9187"]
)
async def test_names_of_this_machine_are_answered(shared: Reachable, host: str) -> None:
    assert (await knock(shared, host=host))[0] == 101


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "evil.example:9187",
        "0.0.0.0",
        "",
        "[::1]evil.example",
        "localhost:evil.example",
        "evil@localhost",
        "localhost/evil.example",
        "[localhost]",
        "localhost, evil.example",
    ],
)
async def test_other_names_are_not(shared: Reachable, host: str) -> None:
    assert (await knock(shared, host=host))[0] in (400, 403)


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://localhost:3000", 101),
        ("http://127.0.0.1", 101),
        ("https://[::1]:8443", 101),
        ("https://evil.example", 403),
        ("http://localhost.evil.example", 403),
        ("http://localhost@evil.example", 403),
        ("null", 403),
        ("file://", 403),
        ("", 403),
        ("http://[bad", 403),
        ("//localhost", 403),
        ("localhost", 403),
        ("evil://localhost", 403),
        ("http://[::1]evil.example", 403),
        ("http://localhost:evil.example", 403),
        ("http://evil@localhost", 403),
        ("http://localhost/evil.example", 403),
        ("http://localhost, http://evil.example", 403),
    ],
)
async def test_pages_from_elsewhere_are_refused(shared: Reachable, origin: str, status: int) -> None:
    assert (await knock(shared, "/", f"Origin: {origin}"))[0] == status


async def test_names_and_pages_that_are_listed_are_let_in(start: Any, home: Any) -> None:
    home.root.mkdir()
    (home.root / "config.toml").write_text(
        'allowedHosts = ["agents.example"]\nallowedOrigins = ["https://app.example"]\n'
    )
    daemon: Daemon = await start()
    assert (await knock(daemon, "/", "Origin: https://app.example", host="agents.example:443"))[0] == 101
    assert (await knock(daemon, "/", "Origin: https://app.example.evil", host="agents.example"))[0] == 403
    assert (await knock(daemon, host="other.example"))[0] == 403
