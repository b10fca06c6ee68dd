"""A host on standard input and output, for the program that started it."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest
import trio
from ahpd.client import AhpClient, Disconnected, answer_text
from ahpd.session.names import ROOT

from ..conftest import ended, turn_running, until
from .conftest import end, gone

if TYPE_CHECKING:
    from .conftest import Home


class Pipes:
    """Implements `ahpd.client.Pipe` on the pipes of a child: a message per line."""

    def __init__(self, process: trio.Process) -> None:
        self.process = process
        self._received = b""

    async def send(self, payload: bytes) -> None:
        assert self.process.stdin is not None
        await self.process.stdin.send_all(payload + b"\n")

    async def receive(self) -> bytes:
        assert self.process.stdout is not None
        while b"\n" not in self._received:
            data = await self.process.stdout.receive_some(65536)
            if not data:
                raise Disconnected(1000)
            self._received += data
        line, _, self._received = self._received.partition(b"\n")
        return line

    async def aclose(self) -> None:
        assert self.process.stdin is not None
        await self.process.stdin.aclose()


@pytest.fixture
async def process(home: Home) -> AsyncIterator[trio.Process]:
    child = await home.open_process("run", "--stdio")
    yield child
    await end(child)


@pytest.fixture
async def client(process: trio.Process) -> AsyncIterator[AhpClient]:
    async with trio.open_nursery() as nursery:
        made = AhpClient(Pipes(process))
        await nursery.start(made.run)
        yield made
        nursery.cancel_scope.cancel()


async def exit_code(process: trio.Process) -> int:
    with trio.fail_after(5):
        return await process.wait()


async def test_a_whole_turn_over_pipes_and_the_end_of_input_is_the_end(
    process: trio.Process, client: AhpClient
) -> None:
    await client.initialize(ROOT)
    session = await client.create_session()
    turn = await client.turn(client.default_chat(session), "hello\n/call get_current_session {}\n/spawn 600")
    assert answer_text(turn).startswith("hello")
    found = re.search(r"Started process (\d+)", answer_text(turn))
    assert found
    assert not gone(int(found[1]))
    await client.pipe.aclose()
    assert await exit_code(process) == 0
    assert gone(int(found[1]))


async def test_what_was_asked_before_the_end_of_input_is_answered(process: trio.Process) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    asked = [{"jsonrpc": "2.0", "id": number, "method": "ping"} for number in range(1000)]
    await process.stdin.send_all(b"".join(json.dumps(each).encode() + b"\n" for each in asked))
    await process.stdin.aclose()
    with trio.fail_after(10):
        said = b"".join([part async for part in process.stdout])
    assert [json.loads(line)["id"] for line in said.splitlines()] == list(range(1000))
    assert await exit_code(process) == 0


async def test_a_signal_ends_it_in_order(process: trio.Process, client: AhpClient) -> None:
    await client.initialize(ROOT)
    session = await client.create_session()
    chat = client.default_chat(session)
    turn_id = await client.start_turn(chat, "/sleep 600")
    await turn_running(client, chat)
    process.send_signal(signal.SIGTERM)
    assert await exit_code(process) == 0
    await until(lambda: client.closed)
    assert ended(client, turn_id) == ["chat/turnCancelled"]


async def test_a_line_that_is_no_json_is_answered_and_empty_ones_are_not(
    process: trio.Process, client: AhpClient
) -> None:
    assert process.stdin is not None
    await process.stdin.send_all(b"\n  \n{nope\n")
    assert await client.request("ping") is None
    assert client.closed is None


async def test_a_parent_that_stops_reading_ends_it(process: trio.Process) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    await process.stdout.aclose()
    await process.stdin.send_all(b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n')
    assert await exit_code(process) == 0
