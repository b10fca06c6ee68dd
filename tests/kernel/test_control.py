"""`ahpd.control`: one daemon a home, and a private door that no caller can break."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from ahpd import ControlVerb, control
from ahpd.errors import AhpdError, StartError
from ahpd.places import Places
from ahpd.serving import _verbs


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places.from_environment({"AHPD_HOME": str(tmp_path / "home")})


async def answer(verb: str, args: Mapping[str, Any]) -> Mapping[str, Any]:
    if verb == "boom":
        raise ValueError("a fault")
    if verb == "refused":
        raise AhpdError("not today")
    return {"verb": verb, **args}


def test_one_daemon_a_home(places: Places) -> None:
    assert control.running(places) is None
    with control.claim(places) as publish:
        publish({"pid": 4711, "ws": "ws://h/", "control": "c"})
        record = places.run / "daemon.json"
        assert record.stat().st_mode & 0o777 == 0o600
        found = control.running(places)
        assert found is not None
        assert found["pid"] == 4711
        with pytest.raises(StartError, match=r"pid 4711.*ws://h/"), control.claim(places):
            pass
    assert not record.exists()
    assert control.running(places) is None


def test_the_record_of_a_daemon_that_was_killed_fools_nobody(places: Places) -> None:
    code = (
        "import os, sys; from ahpd import control; from ahpd.places import Places\n"
        "with control.claim(Places.from_environment()) as publish:\n"
        "    publish({'pid': os.getpid()}); os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", code], env={"AHPD_HOME": str(places.config)}, check=False)
    assert (places.run / "daemon.json").exists()
    assert control.running(places) is None
    with control.claim(places):
        assert not (places.run / "daemon.json").exists()


async def test_asking(places: Places) -> None:
    path = control.socket_path(places)
    async with trio.open_nursery() as nursery:
        assert await nursery.start(control.serve, path, answer) == path
        assert path.stat().st_mode & 0o777 == 0o600
        assert path.parent.stat().st_mode & 0o777 == 0o700
        told = await trio.to_thread.run_sync(lambda: control.ask(path, "status", deep={"ä": [1]}))
        assert told == {"verb": "status", "deep": {"ä": [1]}}
        for verb, sentence in (("refused", "not today"), ("boom", "boom failed inside the daemon")):
            with pytest.raises(AhpdError, match=sentence):
                await trio.to_thread.run_sync(control.ask, path, verb)
        with pytest.raises(StartError):
            await control.serve(path, answer)
        nursery.cancel_scope.cancel()
    assert not path.exists()
    with pytest.raises(control.NotRunning):
        control.ask(path, "status")


@pytest.mark.parametrize(
    "sent", [b"\n", b"[]\n", b"{\n", b"\xff\n", b'{"verb": 1, "args": 3}\n', b"[" * 9999 + b"\n"]
)
async def test_what_is_no_request_is_answered(places: Places, sent: bytes) -> None:
    path = control.socket_path(places)
    async with trio.open_nursery() as nursery:
        await nursery.start(control.serve, path, answer)
        stream = await trio.open_unix_socket(str(path))
        await stream.send_all(sent)
        assert json.loads(await stream.receive_some()) == {"ok": False, "error": "that is no request"}
        nursery.cancel_scope.cancel()


async def test_an_endless_request_is_cut_and_others_are_answered(places: Places) -> None:
    path = control.socket_path(places)
    async with trio.open_nursery() as nursery:
        await nursery.start(control.serve, path, answer)
        stream = await trio.open_unix_socket(str(path))
        with pytest.raises(trio.BrokenResourceError):
            await stream.send_all(b"x" * 50_000_000)
        (await trio.open_unix_socket(str(path))).socket.close()
        assert await trio.to_thread.run_sync(control.ask, path, "status") == {"verb": "status"}
        nursery.cancel_scope.cancel()


async def test_a_stale_socket_is_replaced(places: Places) -> None:
    path = control.socket_path(places)
    path.parent.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    async with trio.open_nursery() as nursery:
        await nursery.start(control.serve, path, answer)
        assert await trio.to_thread.run_sync(control.ask, path, "status") == {"verb": "status"}
        nursery.cancel_scope.cancel()


async def test_a_home_too_deep_for_a_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short = Path("/tmp") / f"t{tmp_path.name[-20:]}"
    monkeypatch.setattr("tempfile.tempdir", str(short))
    deep = Places.from_environment({"AHPD_HOME": str(tmp_path / ("deep" * 30))})
    path = control.socket_path(deep)
    try:
        assert len(str(path)) <= control.LONGEST_PATH
        assert path == control.socket_path(deep)
        async with trio.open_nursery() as nursery:
            await nursery.start(control.serve, path, answer)
            assert await trio.to_thread.run_sync(control.ask, path, "status") == {"verb": "status"}
            nursery.cancel_scope.cancel()
        path.parent.chmod(0o755)
        with pytest.raises(StartError, match="not a private folder"):
            control.socket_path(deep)
    finally:
        path.parent.rmdir()
        short.rmdir()


def test_the_client_half_imports_no_trio() -> None:
    code = "import sys, ahpd.control; sys.exit('trio' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# What plugins answer at the door


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (AhpdError("not today"), "not today"),
        (SystemExit(1), "dice/roll failed in the plugin dice; the host's log has the details"),
        (KeyError("x"), "dice/roll failed in the plugin dice; the host's log has the details"),
    ],
)
async def test_a_verb_of_a_plugin_never_takes_the_daemon_along(fault: BaseException, told: str) -> None:
    async def roll(host: Any, args: Mapping[str, Any]) -> Mapping[str, Any]:
        if args.get("well"):
            return {"host": host, "args": dict(args)}
        raise fault

    registry = SimpleNamespace(verbs={"dice/roll": ("dice", ControlVerb("roll", roll))})
    host: Any = SimpleNamespace(registry=registry, operations="operations")
    ask = _verbs(host, trio.Event())
    assert await ask("dice/roll", {"well": True}) == {"host": "operations", "args": {"well": True}}
    with pytest.raises(AhpdError) as caught:
        await ask("dice/roll", {})
    assert caught.value.sentence == told
    with pytest.raises(AhpdError, match="a running ahpd does not know dice/throw"):
        await ask("dice/throw", {})
