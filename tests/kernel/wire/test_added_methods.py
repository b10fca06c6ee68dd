"""Commands that plugins serve: checked, run beside other work, and fenced."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

import msgspec
import pytest
import trio
from ahpd import InvalidParams, Method, MethodCall, NotFound
from ahpd.testing import AhpClient, RequestFailed

from ...conftest import Stage


class Sides(msgspec.Struct, frozen=True):
    sides: int


def even(params: Mapping[str, Any]) -> int:
    if params.get("sides", 1) % 2:
        raise InvalidParams("dice/roll: sides must be even")
    return int(params["sides"])


async def roll(call: MethodCall) -> Any:
    return {"params": repr(call.params), "who": call.principal.name, "client": call.client, "for": call.method}


def serve(stage: Stage, run: Callable[[MethodCall], Awaitable[Any]] = roll, params: Any = Sides) -> None:
    host = stage.open.host
    method = Method("dice/roll", None, params, run)
    host.registry = replace(host.registry, methods={method.name: ("dice", method)})


async def refused(client: AhpClient, **params: Any) -> tuple[int | None, str]:
    with pytest.raises(RequestFailed) as caught:
        await client.request("dice/roll", params)
    return caught.value.code, caught.value.message


async def test_it_is_told_what_was_sent_and_by_whom(stage: Stage) -> None:
    serve(stage)
    client = await stage.client(client_id="c1")
    answer = await client.request("dice/roll", {"sides": 6, "more": True})
    assert answer == {"params": "Sides(sides=6)", "who": "root", "client": "c1", "for": "dice/roll"}
    assert await refused(client, sides="six") == (-32602, "dice/roll: sides must be an integer")


async def test_params_may_be_checked_by_a_function(stage: Stage) -> None:
    serve(stage, params=even)
    client = await stage.client()
    assert (await client.request("dice/roll", {"sides": 6}))["params"] == "6"
    assert await refused(client, sides=5) == (-32602, "dice/roll: sides must be even")


async def test_what_it_raises_on_purpose_is_the_answer(stage: Stage) -> None:
    async def run(call: MethodCall) -> None:
        async with trio.open_nursery():
            raise NotFound("There is no such die.")

    serve(stage, run)
    assert await refused(await stage.client(), sides=6) == (-32008, "There is no such die.")


@pytest.mark.parametrize("fault", [ValueError("oops"), SystemExit(3)])
async def test_anything_else_it_raises_costs_that_request_alone(stage: Stage, fault: BaseException) -> None:
    async def run(call: MethodCall) -> None:
        raise fault

    serve(stage, run)
    client = await stage.client()
    assert await refused(client, sides=6) == (
        -32603,
        "dice/roll failed in the plugin dice; the host's log has the details",
    )
    await client.request("ping")


async def test_an_answer_that_is_no_json_costs_that_request_alone(stage: Stage) -> None:
    async def run(call: MethodCall) -> object:
        return object()

    serve(stage, run)
    client = await stage.client()
    assert (await refused(client, sides=6))[0] == -32603
    await client.request("ping")


async def test_a_slow_one_holds_up_nothing(stage: Stage) -> None:
    rolled = trio.Event()

    async def run(call: MethodCall) -> str:
        await rolled.wait()
        return "rolled"

    serve(stage, run)
    client = await stage.client()
    async with trio.open_nursery() as nursery:
        answers: list[Any] = []

        async def ask() -> None:
            answers.append(await client.request("dice/roll", {"sides": 6}))

        nursery.start_soon(ask)
        await client.request("ping")
        rolled.set()
    assert answers == ["rolled"]
