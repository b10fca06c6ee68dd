"""Fan-out and round trips of any AHP host on loopback, seen from a process of its own.

python benchmarks/fanout.py ws://127.0.0.1:9187/ --subscribers 100 --deltas 1000 --ping 32
"""

from __future__ import annotations

import argparse
import re
import time
from urllib.parse import urlsplit

import trio
from ahpd.client import AhpClient, WebSocketPipe, connect

STAMP = re.compile(rb"\[(\d+)@([\d.]+)\]")


class Watcher:
    """A subscriber that counts stamps in raw bytes, so that the load costs less than what it measures."""

    def __init__(self, pipe: WebSocketPipe) -> None:
        self.pipe = pipe
        self.delays: list[float] = []
        self.first = self.last = 0.0

    async def run(self, deltas: int) -> None:
        kept = b""
        while len(self.delays) < deltas:
            data = await self.pipe.stream.receive_some(1 << 18)
            if not data:
                return
            arrived = time.time() * 1000
            block = kept + data
            end = 0
            for match in STAMP.finditer(block):
                self.delays.append(arrived - float(match[2]))
                end = match.end()
            kept = block[max(end, len(block) - 64) :]
            self.last = time.perf_counter()
            self.first = self.first or self.last


async def watcher(url: str, chat: str) -> Watcher:
    pipe = await WebSocketPipe.open(url)
    client = AhpClient(pipe)
    async with trio.open_nursery() as nursery:
        await nursery.start(client.run)
        await client.initialize()
        await client.subscribe(chat)
        nursery.cancel_scope.cancel()
    return Watcher(pipe)


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


async def fan_out(url: str, provider: str, subscribers: int, never_read: int, deltas: int) -> None:
    async with connect(url) as publisher:
        await publisher.initialize()
        session = await publisher.create_session(provider)
        chat = publisher.default_chat(session)
        silent = [await watcher(url, chat) for _ in range(never_read)]
        watchers = [await watcher(url, chat) for _ in range(subscribers)]
        async with trio.open_nursery() as nursery:
            for each in watchers:
                nursery.start_soon(each.run, deltas)
            await publisher.start_turn(chat, f"stream {deltas} 0 60")
        delays = [delay for each in watchers for delay in each.delays]
        span = max(each.last for each in watchers) - min(each.first for each in watchers)
        print(
            f"fan-out to {subscribers} ({never_read} more never read): {len(delays) / span:,.0f} deliveries/s,"
            f" on the way p50 {percentile(delays, 0.5):.1f} ms, p99 {percentile(delays, 0.99):.1f} ms"
        )
        for each in [*watchers, *silent]:
            await each.pipe.aclose()


async def ping(url: str, connections: int, seconds: float) -> None:
    done = 0

    async def one(client: AhpClient, until: float) -> None:
        nonlocal done
        while trio.current_time() < until:
            await client.request("ping")
            done += 1

    async with trio.open_nursery() as nursery:
        clients = []
        for _ in range(connections):
            client = AhpClient(await WebSocketPipe.open(url))
            await nursery.start(client.run)
            clients.append(client)
        began = trio.current_time()
        async with trio.open_nursery() as load:
            for client in clients:
                load.start_soon(one, client, began + seconds)
        print(f"ping on {connections} connections: {done / (trio.current_time() - began):,.0f} round trips/s")
        nursery.cancel_scope.cancel()


async def main(options: argparse.Namespace) -> None:
    if urlsplit(options.url).hostname not in ("127.0.0.1", "localhost", "::1"):
        raise SystemExit("loopback addresses only")
    await fan_out(options.url, options.provider, options.subscribers, options.never_reads, options.deltas)
    if options.ping:
        await ping(options.url, options.ping, options.seconds)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--provider", default="echo")
    parser.add_argument("--subscribers", type=int, default=100)
    parser.add_argument("--never-reads", type=int, default=0)
    parser.add_argument("--deltas", type=int, default=1000)
    parser.add_argument("--ping", type=int, default=0, help="connections that ping as fast as they are answered")
    parser.add_argument("--seconds", type=float, default=3.0)
    trio.run(main, parser.parse_args())
