"""The command by which a window takes an entry off, in a whole host."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest
from ahpd import Principal
from ahpd.configfile import edit
from ahpd.testing import AhpClient, OpenHost, RequestFailed, open_host

META = "agentHost/sessionArtifacts"
REMOVE = "vscode/removeSessionArtifact"
SAID = "vscode.removeSessionArtifact"
FILES = [{"type": "file", "label": f"Report {n}", "isArtifact": True, "uri": f"file:///{n}.md"} for n in range(2)]


@pytest.fixture
async def opened() -> AsyncIterator[OpenHost]:
    async with open_host(options={"artifacts": {"enabled": True}}) as host:
        yield host


async def recorded(client: AhpClient) -> tuple[str, list[str]]:
    """A session with two entries on its record, and their ids."""
    session = await client.create_session("echo")
    line = f"/call add_artifact_or_reference {json.dumps({'items': FILES})}"
    await client.turn(client.default_chat(session), line)
    return session, [entry["id"] for entry in client.states[session]["_meta"][META]]


async def refused(client: AhpClient, **params: object) -> tuple[int | None, str]:
    with pytest.raises(RequestFailed) as caught:
        await client.request(REMOVE, params)
    return caught.value.code, caught.value.message


async def switch(opened: OpenHost, on: bool) -> None:
    edit(opened.host.config.writable, {("plugins", "artifacts", "enabled"): on})
    await opened.host.reload()


async def test_a_window_takes_an_entry_off_and_everybody_is_told(opened: OpenHost) -> None:
    alice, bob = await opened.client(), await opened.client()
    session, (first, second) = await recorded(alice)
    await bob.subscribe(session)
    assert await bob.request(REMOVE, {"channel": "ahp-root://", "session": session, "artifactId": first}) is None
    for client in (alice, bob):
        await client.until(lambda client=client: len(client.states[session]["_meta"][META]) == 1)  # type: ignore[misc]
        assert client.states[session]["_meta"][META][0]["id"] == second
    await bob.request(REMOVE, {"session": session, "artifactId": second})
    await alice.until(lambda: META not in (alice.states[session].get("_meta") or {}))


async def test_any_name_of_the_session_will_do(opened: OpenHost) -> None:
    client = await opened.client()
    session, ids = await recorded(client)
    other = "ahp-session:/" + session.partition(":/")[2]
    assert await client.request(REMOVE, {"session": other, "artifactId": ids[0]}) is None


async def test_what_cannot_be_taken_off_is_refused(opened: OpenHost) -> None:
    client = await opened.client()
    session, ids = await recorded(client)
    assert await refused(client, session=session, artifactId="x") == (
        -32008,
        "No artifact or reference with id x.",
    )
    assert (await refused(client, session="echo:/none", artifactId=ids[0]))[0] == -32001
    assert await refused(client, session=session) == (-32602, f"{REMOVE}: artifactId is missing")
    assert (await refused(client, session=session, artifactId=3))[0] == -32602
    assert (await refused(client, session="", artifactId=ids[0]))[0] == -32602
    assert len(client.states[session]["_meta"][META]) == 2


async def test_it_asks_for_the_grant(opened: OpenHost) -> None:
    owner = await opened.client()
    session, ids = await recorded(owner)
    guest = await opened.client(principal=Principal("user:gil", "gil", frozenset({"session:read"})))
    assert await refused(guest, session=session, artifactId=ids[0]) == (
        -32009,
        "gil may not session:artifacts here",
    )
    member = await opened.client(principal=Principal("user:mia", "mia", frozenset({"session:write"})))
    assert await member.request(REMOVE, {"session": session, "artifactId": ids[0]}) is None


async def test_it_comes_and_goes_with_the_plugin(opened: OpenHost) -> None:
    async def said() -> object:
        client = await opened.connect()
        return ((await client.initialize()).get("_meta") or {}).get(SAID)

    client = await opened.client()
    session, ids = await recorded(client)
    assert await said() is True
    await switch(opened, False)
    assert await said() is None
    assert await refused(client, session=session, artifactId=ids[0]) == (
        -32601,
        f"This host does not serve {REMOVE}",
    )
    await switch(opened, True)
    assert await said() is True
    assert await client.request(REMOVE, {"session": session, "artifactId": ids[0]}) is None


async def test_nobody_is_served_it_before_the_handshake(opened: OpenHost) -> None:
    client = await opened.connect()
    assert (await refused(client, session="echo:/x", artifactId="y"))[0] == -32601
