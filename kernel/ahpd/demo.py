"""`ahpd demo`: a daemon and a client in one program, and a readable transcript of one session over the socket.

Everything shown was received by a client: nothing is printed from the host's own state.
"""

from __future__ import annotations

import tempfile
from json import dumps
from typing import Any

import trio

from ahpd.client import AhpClient, answer_text, connect
from ahpd.config import Config, Overrides
from ahpd.host import Host
from ahpd.places import Places
from ahpd.serving import RunOptions, serve
from ahpd.session.names import ROOT

WIDTH = 96
SCRIPT = (
    "Hello from the demo",
    "/call get_current_session {}",
    "/call list_sessions {}",
    "/call create_session"
    ' {"relationship": "independent", "title": "A second session", "prompt": "Started by a tool"}',
)


def run(*, once: bool = False, json: bool = False) -> int:
    """Run the demo in a home of its own, so that it meets nobody's daemon and changes nobody's settings.

    With `once` it ends after the transcript, otherwise it serves until interrupted. Answers the exit code.
    """
    with tempfile.TemporaryDirectory(prefix="ahpd-demo-") as folder:
        overrides = Overrides(settings={"port": "0"}, plugins=None)
        config = Config.load(Places.from_environment({"AHPD_HOME": folder}), overrides)
        try:
            trio.run(_demo, Host.from_config(config), once, json)
        except* KeyboardInterrupt:
            pass
    return 0


async def _demo(host: Host, once: bool, as_json: bool) -> None:
    send, receive = trio.open_memory_channel[dict[str, Any]](1)
    stopping = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_serve, host, send, stopping)
        record = await receive.receive()
        lines = await transcript(record["ws"])
        if as_json:
            print(dumps({"ws": record["ws"], "http": record["http"], "transcript": lines}), flush=True)
        else:
            print("\n".join(lines), flush=True)
        if once:
            stopping.set()
        elif not as_json:
            print(f"\nThe daemon is still up at {record['ws']} - end it with Ctrl-C.", flush=True)


async def _serve(host: Host, send: trio.MemorySendChannel[dict[str, Any]], stopping: trio.Event) -> None:
    await serve(host, RunOptions(), send.send_nowait, stopping)


async def transcript(url: str) -> list[str]:
    """Drive one session as a client would, with a second client watching; what they saw, as lines of text."""
    async with connect(url, "alice") as alice, connect(url, "bob") as bob:
        hello = await alice.initialize(ROOT)
        await bob.initialize(ROOT)
        agents = ", ".join(agent["displayName"] for agent in alice.states[ROOT]["agents"])
        told = [
            f"alice  connects to {hello['serverInfo']['name']} {hello['serverInfo']['version']}"
            f" over AHP {hello['protocolVersion']}; agents here: {agents}",
            "bob    connects as well",
        ]
        session = await alice.create_session()
        chat = alice.default_chat(session)
        await bob.subscribe(session)
        await bob.subscribe(chat)
        tools = [tool["name"] for tool in alice.states[session].get("serverTools", [])]
        told += [f"alice  creates {session}", f"host   offers it {', '.join(tools)}", "bob    watches"]
        turn = await alice.turn(chat, "\n".join(SCRIPT))
        await bob.finished(chat, turn["id"])
        told += ["", *(f"alice> {line}" for line in SCRIPT), *_parts(turn), ""]
        told += await _second_session(alice, bob, session)
        told += _what_was_seen(alice, bob, session, chat)
        return told


def _parts(turn: dict[str, Any]) -> list[str]:
    lines = []
    for part in turn["responseParts"]:
        if part["kind"] == "toolCall":
            call = part["toolCall"]
            result = call["content"][0]["text"] if call.get("content") else ""
            lines += [f"  tool {call['toolName']} {call['toolInput']}", f"    -> {_cut(result)}"]
        elif part["kind"] == "markdown":
            lines += [f"  echo {line}" for line in part["content"].splitlines() if line.strip()]
    return lines


def _cut(text: str) -> str:
    return text if len(text) <= WIDTH else text[: WIDTH - 1] + "…"


async def _second_session(alice: AhpClient, bob: AhpClient, first: str) -> list[str]:
    """The session the tool started, watched by both until its own turn has ended."""

    def other() -> str | None:
        for notice in bob.notices:
            if notice["method"] == "root/sessionAdded":
                uri: str = notice["params"]["summary"]["resource"]
                if uri != first:
                    return uri
        return None

    second: str = await bob.until(other)
    await bob.subscribe(second)
    chat = bob.default_chat(second)
    await bob.subscribe(chat)
    done = await bob.until(lambda: bob.states[chat].get("turns"))
    title = bob.states[second]["title"]
    return [
        f"bob    is told of a new session {second} ({title})",
        f"bob    reads its turn: {done[0]['message']['text']!r} answered {answer_text(done[0])!r}",
    ]


def _what_was_seen(alice: AhpClient, bob: AhpClient, session: str, chat: str) -> list[str]:
    mine = [entry for entry in alice.actions if entry["channel"] == chat]
    first = mine[0]["serverSeq"]
    theirs = [entry for entry in bob.actions if entry["channel"] == chat and entry["serverSeq"] >= first]
    same = [entry["serverSeq"] for entry in mine] == [entry["serverSeq"] for entry in theirs]
    equal = alice.states[chat] == bob.states[chat] and alice.states[session] == bob.states[session]
    return [
        "",
        f"alice  saw {len(mine)} actions on the chat, numbers {first} to {mine[-1]['serverSeq']}",
        f"bob    saw {len(theirs)} actions on the chat, {'the same ones' if same else 'NOT the same ones'}",
        f"both   hold {'the same state' if equal else 'DIFFERENT states'} of session and chat",
    ]
