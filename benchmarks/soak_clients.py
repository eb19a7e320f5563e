"""The clients of a hub that is watched for long, in processes of their own: some that are timed, others that are honest, such as mean harm.

    python -m benchmarks.soak_clients timed URL TOPIC COUNT PER_SECOND SECONDS...
    python -m benchmarks.soak_clients others URL TOPIC COUNT PER_SECOND
    python -m benchmarks.soak_clients hostile URL TOPIC COUNT PAUSE_S

Each client has a log in memory; honest ones append in turns, so many entries per second together. Of those that are timed the last one
appends nothing: for each phase of so many seconds a line of JSON says how long it took until it had stored an entry. The others go on until
their standard input ends, and then say how much they wrote. Hostile ones go on until they are ended.

Each client would have a machine of its own, where these share one. Whatever is appended, a hostile writer's entries included, 20 clients
verify and store, which takes one interpreter 20 ms, and the processors more than it costs the hub. So few are timed, the others are less
urgent than they and the hub (nice 19), and hostile ones run when nobody else would (SCHED_IDLE). A full collection of garbage stops a
process with many logs in memory for 100 ms and more: what is old is not collected here.
"""

from __future__ import annotations

import gc
import itertools
import json
import os
import statistics
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from urllib.parse import urlsplit

import trio

import gossiplog
from gossiplog import Ed25519Signer, Entry, GossipLog
from gossiplog.archive import entry_to_line
from gossiplog.errors import GossipLogError
from gossiplog.net.hub.client import HubLink

__all__ = ["FIRST_HOSTILE", "WAYS", "signer"]

FIRST_TIMED, FIRST_OTHER, FIRST_HOSTILE = 100, 200, 1_000
"""Numbers of their keys."""

BULK = "x" * 2_000
LESS_URGENT = 19
LIFE_S = 120.0
"""After which a hostile client begins anew, with a log that is empty, so that it is the hub that has to grow or not."""
COLLECT_S = 0.5
SETTLE_S = 5.0
"""What the others appended last has this long to arrive."""
LATE_S = 60.0
"""What has not arrived this long after a phase counts as this late."""


def signer(number: int) -> Ed25519Signer:
    return Ed25519Signer.from_seed(number.to_bytes(32))


class Stopwatch:
    """How long entries take from one client to the next."""

    def __init__(self) -> None:
        self.began: dict[bytes, float] = {}
        self.stored: dict[bytes, float] = {}

    def on_commit(self, entries: Sequence[Entry]) -> None:
        now = trio.current_time()
        for entry in entries:
            if entry.key in self.began:
                # At the one who wrote it, then at all the others: the first of those counts.
                self.stored.setdefault(entry.key, now)

    async def phase(self, writers: Sequence[GossipLog], per_second: float, seconds: float) -> dict[str, float]:
        """Append for a while; return how late the entries were."""
        self.began.clear()
        self.stored.clear()
        start = trio.current_time()
        for n in itertools.count():
            await trio.sleep_until(start + n / per_second)
            began = trio.current_time()
            if began > start + seconds:
                break
            entry = await writers[n % len(writers)].append(value(n))
            self.began[entry.key] = began
        with trio.move_on_after(LATE_S):
            while self.began.keys() - self.stored.keys():
                await trio.sleep(0.05)
        taken = sorted(self.stored.get(key, began + LATE_S) - began for key, began in self.began.items())
        return {
            "entries": len(taken),
            "lost": len(self.began.keys() - self.stored.keys()),
            "p50_ms": 1000 * statistics.median(taken),
            "p99_ms": 1000 * statistics.quantiles(taken, n=100)[98],
            "max_ms": 1000 * taken[-1],
        }


def value(n: int) -> dict[str, object]:
    """Of the `n`th honest entry of a process."""
    return {"n": n, "text": "x" * 100}


async def timed(url: str, topic: str, count: str, per_second: str, *seconds: str) -> None:
    """Append with all but one client, and time the commits of that one."""
    watch = Stopwatch()
    async with connected(url, topic, range(FIRST_TIMED, FIRST_TIMED + int(count))) as (clients, links), trio.open_nursery() as nursery:
        nursery.start_soon(collect_garbage)
        *writers, reader = clients
        with reader.watch_commits(watch.on_commit):
            await watch.phase(writers, float(per_second), 10)
            print("ready", flush=True)
            for each in seconds:
                seen = await watch.phase(writers, float(per_second), float(each))
                print(json.dumps({**seen, "broken": broken(links)}), flush=True)
        nursery.cancel_scope.cancel()


async def others(url: str, topic: str, count: str, per_second: str) -> None:
    """Append in turns until nobody listens any more."""
    os.nice(LESS_URGENT)
    appended = Counter[str]()
    async with connected(url, topic, range(FIRST_OTHER, FIRST_OTHER + int(count))) as (clients, links):
        start = trio.current_time()

        async def append() -> None:
            for n in itertools.count():
                await trio.sleep_until(start + n / float(per_second))
                appended[(await clients[n % len(clients)].append(value(n))).author] += 1

        async with trio.open_nursery() as nursery:
            nursery.start_soon(collect_garbage)
            nursery.start_soon(append)
            print("ready", flush=True)
            await trio.to_thread.run_sync(sys.stdin.read)
            nursery.cancel_scope.cancel()
        await trio.sleep(SETTLE_S)
        print(json.dumps({"appended": appended, "broken": broken(links)}), flush=True)


@asynccontextmanager
async def connected(url: str, topic: str, numbers: Iterable[int]) -> AsyncIterator[tuple[list[GossipLog], list[HubLink]]]:
    """Open a log in memory for each of the numbers, connected to the hub."""
    async with AsyncExitStack() as stack:
        logs = [await stack.enter_async_context(gossiplog.open(":memory:", topic=topic, signer=signer(each))) for each in numbers]
        yield logs, [await stack.enter_async_context(log.connect(url)) for log in logs]


def broken(links: Iterable[HubLink]) -> int:
    return sum(link.error is not None for link in links)


async def collect_garbage() -> None:
    """Collect what is young, often, and nothing else."""
    gc.disable()
    while True:
        gc.collect(1)
        await trio.sleep(COLLECT_S)


class Target:
    """The hub, as those see it who mean harm."""

    def __init__(self, url: str, topic: str, pause_s: float) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        assert parts.port is not None
        self.url, self.topic, self.pause_s = url, topic, pause_s
        self.host, self.port = parts.hostname, parts.port

    async def ask(self, head: str, body: bytes = b"") -> bytes:
        """Make one request and return what comes first."""
        async with await trio.open_tcp_stream(self.host, self.port) as stream:
            fields = f"host: {self.host}\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
            await stream.send_all(f"{head} HTTP/1.1\r\n{fields}\r\n".encode() + body)
            return await stream.receive_some()


async def over_quota(hub: Target, number: int) -> None:
    """An unknown key that pushes without end."""
    async with gossiplog.open(":memory:", topic=hub.topic, signer=signer(number)) as log, log.connect(hub.url):
        for n in itertools.count():
            await log.append({"n": n, "bulk": BULK})
            await trio.sleep(hub.pause_s)


async def replaying(hub: Target, number: int) -> None:
    """One entry, posted again and again."""
    async with gossiplog.open(":memory:", topic=hub.topic, signer=signer(number)) as log:
        body = entry_to_line(await log.append(BULK))
    while True:
        await hub.ask("POST /api/messages", body)
        await trio.sleep(hub.pause_s)


async def wrong_token(hub: Target, number: int) -> None:
    """Guesses tokens."""
    for n in itertools.count():
        await hub.ask(f"GET /api/heads?token={number}-{n}")
        await trio.sleep(hub.pause_s)


async def slow(hub: Target, number: int) -> None:
    """Sends a request by the byte."""
    async with await trio.open_tcp_stream(hub.host, hub.port) as stream:
        for byte in b"GET /api/clock HTTP/1.1\r\nhost: localhost\r\nx: " + b"y" * 1_000:
            await stream.send_all(bytes([byte]))
            await trio.sleep(hub.pause_s)


async def oversized(hub: Target, number: int) -> None:
    """Sends a body of more than there may be."""
    while True:
        async with await trio.open_tcp_stream(hub.host, hub.port) as stream:
            head = "POST /api/messages HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 70000000\r\n\r\n"
            await stream.send_all(head.encode() + b"[" * 2**20)
            await stream.receive_some()
        await trio.sleep(hub.pause_s)


async def hanging_up(hub: Target, number: int) -> None:
    """Connects, begins to read the whole log, and goes."""
    async with gossiplog.open(":memory:", topic=hub.topic) as log, log.connect(hub.url):
        await trio.sleep(10 * hub.pause_s)


WAYS = (over_quota, replaying, wrong_token, slow, oversized, hanging_up)


async def harm(hub: Target, number: int) -> None:
    """Do one of these for ever; whoever is cut off, or has done it for long, begins anew."""
    while True:
        try:
            with trio.move_on_after(LIFE_S):
                await WAYS[number % len(WAYS)](hub, FIRST_HOSTILE + number)
        except* (trio.BrokenResourceError, OSError, GossipLogError):
            pass
        await trio.sleep(hub.pause_s)


async def hostile(url: str, topic: str, count: str, pause_s: str) -> None:
    """Do harm until this process is ended."""
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    hub = Target(url, topic, float(pause_s))
    async with trio.open_nursery() as nursery:
        for number in range(int(count)):
            nursery.start_soon(harm, hub, number)
            await trio.sleep(hub.pause_s / 10)


if __name__ == "__main__":
    trio.run({"timed": timed, "others": others, "hostile": hostile}[sys.argv[1]], *sys.argv[2:])
