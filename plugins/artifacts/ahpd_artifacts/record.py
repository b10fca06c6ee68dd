"""The record of a session: the list under one key of its `_meta`, changed by one call at a time.

A change waits for the disk between reading and writing, so calls of one session, which its chats make side by
side, take turns.
"""

from __future__ import annotations

from uuid import uuid4
from weakref import WeakValueDictionary

import trio
from ahpd import HostApi, SessionView, ToolCall, ToolError

from ahpd_artifacts.entries import Entry, join, lines, read, stored

META = "agentHost/sessionArtifacts"


class Records:
    """The records of a host's sessions, and the three tools that act on the calling one's. The command of a window
    takes entries off by the same way, so that it and the tools take turns."""

    def __init__(self) -> None:
        # A lock goes with the last call that holds or waits for it.
        self._locks: WeakValueDictionary[str, trio.Lock] = WeakValueDictionary()

    async def add(self, call: ToolCall) -> str:
        """Record everything in the call, or nothing. One line for each."""
        wanted = read(call.tool, call.arguments)
        session = _session(call)
        async with self._lock(session.uri):
            before = _entries(call.host, session.uri)
            after, told = before, []
            for entry in wanted:
                joined = join(after, entry, str(uuid4()))
                after = list(joined.entries)
                told.append(joined.line)
            await _keep(call.host, session.uri, before, after)
        return "\n".join(told)

    async def remove(self, call: ToolCall) -> str:
        """Take one entry off the record. Not finding it is an answer, not a failure."""
        given = call.arguments.get("id")
        if not isinstance(given, str) or not given.strip():
            raise ToolError(f"Invalid {call.tool} input: id must be a non-empty string.")
        wanted = given.strip()
        removed = await self.take(call.host, _session(call).uri, wanted)
        if removed is None:
            return f"No artifact or reference with id {wanted}."
        return f"Removed {removed.kind}: {wanted}"

    async def take(self, host: HostApi, session: str, wanted: str) -> Entry | None:
        """Take one entry off a session's record; `None` when no entry has that id."""
        async with self._lock(session):
            before = _entries(host, session)
            removed = next((entry for entry in before if entry.id == wanted), None)
            if removed is not None:
                await _keep(host, session, before, [entry for entry in before if entry is not removed])
        return removed

    async def list(self, call: ToolCall) -> str:
        told = lines(_entries(call.host, _session(call).uri))
        return "\n".join(told) or "No artifacts or references recorded for this session."

    def _lock(self, session: str) -> trio.Lock:
        return self._locks.setdefault(session, trio.Lock())


def _session(call: ToolCall) -> SessionView:
    if call.session is None:
        raise ToolError(f"{call.tool} must run inside a session.")
    return call.session


def _entries(host: HostApi, session: str) -> list[Entry]:
    return stored(host.session_meta(session).get(META))


async def _keep(host: HostApi, session: str, before: list[Entry], after: list[Entry]) -> None:
    if after != before:
        value = [entry.as_json() for entry in after]
        await host.set_session_meta(session, META, value or None)
