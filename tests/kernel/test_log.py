"""`ahpd.log`: no secret comes out, whatever shape it goes in."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest
from ahpd import log


@pytest.fixture(autouse=True)
def _forget(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(log, "_secrets", set())
    yield
    log.setup()


def last_line(capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    out, err = capsys.readouterr()
    assert out == "", "stdout is somebody's JSON"
    line: dict[str, object] = json.loads(err.splitlines()[-1])
    return line


def test_secrets_are_masked_at_any_depth(capsys: pytest.CaptureFixture[str]) -> None:
    log.setup("json")
    log.register_secret("s3cr3t/value")
    log.get("t").info(
        "sent s3cr3t/value to ws://h/?tkn=abcdef&x=1",
        header="Authorization: Bearer abc.def-1",
        deep={"list": [{"apiKey": "k1", "note": "uses s3cr3t/value"}], "password": ["p1"]},
        quoted="s3cr3t%2Fvalue",
        thing=ValueError("token=hidden1"),
    )
    line = last_line(capsys)
    text = json.dumps(line)
    for secret in ("s3cr3t", "abcdef", "abc.def", "k1", "p1", "hidden1"):
        assert secret not in text
    assert "x=1" in text
    assert line["deep"] == {"list": [{"apiKey": "<set>", "note": "uses <set>"}], "password": "<set>"}


def test_what_is_no_secret_stays(capsys: pytest.CaptureFixture[str]) -> None:
    log.setup("json")
    log.get("t").bind(session="echo:/1").warning("ok", inputTokens=12, connectionTokenFile="/a/b", flag=True)
    line = last_line(capsys)
    assert (line["inputTokens"], line["connectionTokenFile"], line["flag"]) == (12, "/a/b", True)
    assert (line["logger"], line["level"], line["session"]) == ("t", "warning", "echo:/1")


def test_tracebacks_are_masked(capsys: pytest.CaptureFixture[str]) -> None:
    log.setup("json")
    log.register_secret("topsecret")
    try:
        raise RuntimeError("it was topsecret")
    except RuntimeError:
        log.get("t").exception("failed")
    line = last_line(capsys)
    assert "RuntimeError: it was <set>" in str(line["exception"])
    assert "Traceback" in str(line["exception"])


def test_levels_and_human_lines(capsys: pytest.CaptureFixture[str]) -> None:
    log.setup("human", "warning")
    log.get("t").info("quiet")
    log.get("t").error("loud", token="abc")
    err = capsys.readouterr().err
    assert "quiet" not in err
    assert "loud" in err
    assert "abc" not in err


def test_a_closed_stderr_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    log.setup("json")
    monkeypatch.setattr(sys, "stderr", None)
    log.get("t").error("nobody hears this")


def test_importing_it_imports_no_structlog() -> None:
    code = "import sys, ahpd.log; ahpd.log.get('x').bind(a=1); sys.exit('structlog' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
