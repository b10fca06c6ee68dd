"""Reading one line: contract of the echo agent, "a turn runs the message line by line"."""

from __future__ import annotations

import pytest
from ahpd_agent_echo.lines import (
    Ask,
    Bad,
    Command,
    Fail,
    Say,
    Show,
    Sleep,
    Spawn,
    Stream,
    Think,
    UseTool,
    parse,
)


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("hello there", Say("hello there")),
        ("", Say("")),
        ("  indented\r", Say("  indented")),
        ("/etc/passwd is a file", Say("/etc/passwd is a file")),
        ("/callous words", Say("/callous words")),
        ("stream of words 1 2", Say("stream of words 1 2")),
        ("/call roll", UseTool("roll", {}, "call")),
        ('/call roll {"a": [1, 2]}', UseTool("roll", {"a": [1, 2]}, "call")),
        ('  /confirm  mcp__ahp__roll   {"a": 1}  ', UseTool("mcp__ahp__roll", {"a": 1}, "confirm")),
        ("/mcp roll {}", UseTool("roll", {}, "mcp")),
        ("/tools", Show("tools")),
        ("/start", Show("start")),
        ("/think hm, well", Think("hm, well")),
        ("/ask Which one?", Ask("Which one?")),
        ("/sleep 1.5", Sleep(1.5)),
        ("/spawn 300", Spawn("300")),
        ("/stream 3 0 60", Stream(3, 0, 60)),
        ("stream 500 100 60", Stream(500, 100, 60)),
        ("stream 5 2.5 60", Stream(5, 2.5, 60)),
        ("/fail it broke", Fail("it broke")),
        ("/fail", Fail("The echo agent was asked to fail.")),
    ],
)
def test_reads(line: str, command: Command) -> None:
    assert parse(line) == command


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("/call", "/call TOOL JSON"),
        ("/confirm", "/confirm TOOL JSON"),
        ("/mcp", "/mcp TOOL JSON"),
        ("/call roll {", "not JSON"),
        ("/call roll [1]", "must be a JSON object"),
        ("/think", "/think TEXT"),
        ("/ask", "/ask QUESTION"),
        ("/sleep", "/sleep SECONDS"),
        ("/sleep -1", "/sleep SECONDS"),
        ("/sleep nan", "/sleep SECONDS"),
        ("/sleep inf", "/sleep SECONDS"),
        ("/spawn soon", "/spawn SECONDS"),
        ("/stream", "/stream N PERSEC BYTES"),
        ("/stream 1 2", "/stream N PERSEC BYTES"),
        ("/stream 1.5 2 3", "/stream N PERSEC BYTES"),
        ("/stream 1 -2 3", "/stream N PERSEC BYTES"),
        ("/stream 1 2 3 4", "/stream N PERSEC BYTES"),
    ],
)
def test_says_what_is_wrong(line: str, says: str) -> None:
    command = parse(line)
    assert isinstance(command, Bad)
    assert says in command.sentence
