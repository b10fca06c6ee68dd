"""A host that holds the `_meta` of sessions, slowly enough for calls to overlap, and a way to call the tools."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
import trio
from ahpd import HostApi, NotFound, Principal, SessionView, Tool, ToolCall
from ahpd_artifacts import ahpd_tools

META = "agentHost/sessionArtifacts"


@dataclass
class FakeHost:
    """As much of an `ahpd.HostApi` as the tools lean on. `writes` is everything that was set, in order."""

    metas: dict[str, dict[str, Any]] = field(default_factory=dict)
    writes: list[tuple[str, str, Any]] = field(default_factory=list)
    raises: Exception | None = None

    def session_meta(self, session: str) -> Mapping[str, Any]:
        if session not in self.metas:
            raise NotFound(f"No session at {session}")
        return self.metas[session]

    async def set_session_meta(self, session: str, key: str, value: Any | None) -> None:
        await trio.lowlevel.checkpoint()
        if self.raises is not None:
            raise self.raises
        self.writes.append((session, key, value))
        self.metas[session] = {**self.metas[session], key: value}


@dataclass
class Caller:
    """Calls the tools in `echo:/here`. A session with no grant at all: they ask for none."""

    host: FakeHost
    tools: Mapping[str, Tool]
    session: str = "echo:/here"

    def call(self, name: str, arguments: Any) -> ToolCall:
        view = SessionView(self.session, "here", "echo", "Here", (), "ahp-chat://c/here", ("ahp-chat://c/here",))
        host = cast(HostApi, self.host)
        return ToolCall(name, arguments, Principal("user:ana", "ana"), host, view, view.default_chat, "t1")

    async def text(self, name: str, arguments: Any = None) -> str:
        answer = await self.tools[name].run(self.call(name, {} if arguments is None else arguments))
        assert isinstance(answer, str)
        return answer

    async def add(self, *items: dict[str, Any]) -> list[str]:
        """The lines `add_artifact_or_reference` answers."""
        return (await self.text("add_artifact_or_reference", {"items": list(items)})).split("\n")

    @property
    def stored(self) -> Any:
        return self.host.metas[self.session].get(META)


@pytest.fixture
def caller() -> Caller:
    host = FakeHost({"echo:/here": {"git": {"branchName": "main"}}, "echo:/other": {}})
    return Caller(host, {tool.name: tool for tool in ahpd_tools()})
