"""Builders of what a host keeps, the protocol's reducers, and stores that are closed when a test ends."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
from ahpd import AhpdError, Append, Opened, PutChat, PutSession, SessionRow
from ahpd.protocol import reduce_chat, reduce_session
from ahpd_store_sqlite.store import SqliteStore

Json = dict[str, Any]
Open = Callable[..., Awaitable[tuple[SqliteStore, Opened]]]


class Make:
    """What a host would write, small."""

    reducers: ClassVar[Mapping[str, Callable[[Json, Json], Json]]] = {
        "session": reduce_session,
        "chat": reduce_chat,
    }
    session = "echo:/one"
    chat = "ahp-chat://default/one"

    def row(self, uri: str = session, title: str = "One", busy: bool = False) -> SessionRow:
        name = uri.partition("/")[2]
        return SessionRow(uri, name, (f"ahp-session:/{name}",), None, {"resource": uri, "title": title}, busy)

    def put_session(self, uri: str = session, **state: Any) -> PutSession:
        return PutSession(self.row(uri), {"title": "One", "status": 1, "chats": [], **state}, {"owner": None})

    def put_chat(self, *turns: str, uri: str = chat, session: str = session, **rest: Any) -> PutChat:
        state = {"title": "Chat", "status": 1, **rest.pop("state", {})}
        return PutChat(session, uri, state, rest.pop("record", {}), [self.turn(turn) for turn in turns], **rest)

    def turn(self, turn_id: str, text: str = "hello") -> Json:
        part = {"kind": "markdown", "id": f"p-{turn_id}", "content": text}
        return {"id": turn_id, "message": {"text": text}, "responseParts": [part], "state": "complete"}

    def title(self, seq: int, title: str, uri: str = session) -> Append:
        return Append(uri, seq, {"type": "session/titleChanged", "title": title})

    def turn_actions(self, turn_id: str, seq: int, uri: str = chat, text: str = "hi") -> list[Append]:
        """A whole turn, three actions from `seq` on."""
        message = {"text": "?", "origin": {"kind": "user"}}
        part = {"kind": "markdown", "id": f"p-{turn_id}", "content": text}
        actions: list[Json] = [
            {
                "type": "chat/turnStarted",
                "turnId": turn_id,
                "startedAt": "2026-01-01T00:00:00.000Z",
                "message": message,
            },
            {"type": "chat/responsePart", "turnId": turn_id, "part": part},
            {"type": "chat/turnComplete", "turnId": turn_id, "duration": 5},
        ]
        return [Append(uri, seq + at, action) for at, action in enumerate(actions)]


@pytest.fixture(scope="session")
def make() -> Make:
    return Make()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "ahpd.db"


@pytest.fixture
async def open_store(path: Path, make: Make) -> AsyncIterator[Open]:
    """Opens a store at a path; options are those of `SqliteStore`, without its waits between tries."""
    stores: list[SqliteStore] = []

    async def opener(at: Path = path, **options: Any) -> tuple[SqliteStore, Opened]:
        store = SqliteStore(at, **{"pauses": (), **options})
        opened = await store.open(make.reducers)
        stores.append(store)
        return store, opened

    yield opener
    for store in stores:
        try:
            await store.close()
        except AhpdError:
            pass  # the test's own doing


@pytest.fixture
def copy_as_crashed() -> Callable[[Path, Path], Path]:
    """What a machine that dies now would find later: the file and its log, as they are on disk."""

    def copy(path: Path, folder: Path) -> Path:
        folder.mkdir()
        for name in (path.name, f"{path.name}-wal"):
            if (part := path.with_name(name)).exists():
                shutil.copy(part, folder / name)
        return folder / path.name

    return copy


@pytest.fixture
def listing() -> Callable[[Path], Mapping[str, bytes]]:
    """Every file of a folder with its bytes."""
    return lambda folder: {file.name: file.read_bytes() for file in folder.iterdir()}


@pytest.fixture
def integrity() -> Callable[[Path], str]:
    def check(path: Path) -> str:
        connection = sqlite3.connect(path)
        try:
            return str(connection.execute("PRAGMA integrity_check").fetchone()[0])
        finally:
            connection.close()

    return check
