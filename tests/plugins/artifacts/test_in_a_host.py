"""The artifact tools in a whole host: what everybody who watches is told."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest
from ahpd.testing import OpenHost, open_host

META = "agentHost/sessionArtifacts"
FILE = {"type": "file", "label": "Report", "isArtifact": True, "uri": "file:///r.md"}


@pytest.fixture
async def opened() -> AsyncIterator[OpenHost]:
    async with open_host(plugins=["agent-echo", "artifacts"]) as host:
        yield host


async def test_an_artifact_is_told_to_whoever_watches(opened: OpenHost) -> None:
    client = await opened.client()
    session = await client.create_session("echo")
    chat = client.default_chat(session)
    assert [tool["name"] for tool in client.states[session]["serverTools"]] == [
        "add_artifact_or_reference",
        "remove_artifact_or_reference",
        "list_artifacts_and_references",
    ]
    for _ in range(2):
        await client.turn(chat, f"/call add_artifact_or_reference {json.dumps({'items': [FILE]})}")
    [entry] = client.states[session]["_meta"][META]
    assert entry == {"id": entry["id"], **FILE}
    told = [envelope["action"] for envelope in client.actions]
    [changed] = [action for action in told if action["type"] == "session/metaChanged"]
    assert changed["_meta"][META] == [entry]
    await client.turn(chat, f"/call remove_artifact_or_reference {json.dumps({'id': entry['id']})}")
    assert META not in (client.states[session].get("_meta") or {})
