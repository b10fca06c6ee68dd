"""Run by test_kill.py: writes numbered operations for ever and says which of them are acknowledged.

Each of eight chats counts for itself. Every tenth operation puts the chat with a turn of that number, the others
append an action of that number. A line `CHAT NUMBER` is written after the commit that holds it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import trio
from ahpd import Append, PutChat, PutSession, SessionRow
from ahpd.protocol import reduce_chat, reduce_session
from ahpd_store_sqlite.store import SqliteStore

SESSION = "echo:/one"
CHATS = 8


async def count(store: SqliteStore, chat: int, first: int) -> None:
    number = first
    while True:
        if number % 10 == 0:
            turn = {"id": str(number), "text": "x" * 300}
            await store.reserve(number + 9)
            store.write(PutChat(SESSION, f"chat:{chat}", {"title": str(number)}, {"number": number}, [turn]))
        else:
            store.write(Append(f"chat:{chat}", number, {"type": "chat/activityChanged", "activity": "x" * 300}))
        await store.commit()
        os.write(1, f"{chat} {number}\n".encode())
        number += 1


async def main(path: str, first: list[int]) -> None:
    store = SqliteStore(Path(path))
    await store.open({"session": reduce_session, "chat": reduce_chat})
    store.write(PutSession(SessionRow(SESSION, "one", (), None, {"title": "One"}), {"title": "One"}, {}))
    await store.reserve(max(first) + 9)
    async with trio.open_nursery() as nursery:
        for chat in range(CHATS):
            nursery.start_soon(count, store, chat, first[chat])


if __name__ == "__main__":
    trio.run(main, sys.argv[1], [int(number) for number in sys.argv[2:]])
