"""A hub that anybody can reach: 50 who mean harm, each in a way of its own, beside 20 who do not."""

from __future__ import annotations

import itertools
import logging
import statistics
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import pytest
import trio
from network_support import TOPIC, eventually, fetch, open_stream

import gossiplog
from gossiplog import Entry, GossipLog
from gossiplog.archive import entry_to_line
from gossiplog.entry import Ed25519Signer
from gossiplog.net.ground.access import Access
from gossiplog.net.ground.admission import HubLimits
from gossiplog.net.hub.server import Hub

pytestmark = pytest.mark.slow

HONEST, HOSTILE = 20, 50
QUIET, BESIDE = 10, 20
"""Entries of each honest client before the others come, and while they are there."""
QUOTA = 40
"""Entries that the hub takes of one writer."""
PAUSE_S = 0.02
"""Of the hostile, who share one event loop with the hub here: it has to be the hub that they keep busy, not the loop."""
SLOWER = 100
"""How many times as long an honest entry may take beside them all, at the most, on a machine that is busy."""
PATIENCE_S = 120.0
BULK = "x" * 2_000
JSON = {"content-type": "application/json"}


def signer(number: int) -> Ed25519Signer:
    return Ed25519Signer.from_seed(number.to_bytes(32))


async def over_quota(hub: Hub, number: int) -> None:
    """An unknown key that pushes 50 entries a second."""
    async with gossiplog.open(":memory:", topic=TOPIC, signer=signer(number)) as log, log.connect(hub.urls[0]):
        for n in itertools.count():
            await log.append({"n": n, "bulk": BULK})
            await trio.sleep(PAUSE_S)


async def replaying(hub: Hub, number: int) -> None:
    """One entry, posted again and again."""
    async with gossiplog.open(":memory:", topic=TOPIC, signer=signer(number)) as log:
        body = entry_to_line(await log.append(BULK))
        while True:
            assert (await fetch(hub, "/api/messages", method="POST", headers=JSON, body=body)).status in (201, 429, 503)
            await trio.sleep(PAUSE_S)


async def wrong_token(hub: Hub, number: int) -> None:
    """Guesses tokens."""
    for n in itertools.count():
        assert (await fetch(hub, f"/api/heads?token={number}-{n}")).status == 401
        await trio.sleep(PAUSE_S)


async def slow(hub: Hub, number: int) -> None:
    """Sends requests by the byte."""
    while True:
        async with await open_stream(hub) as stream:
            try:
                for byte in b"GET /api/clock HTTP/1.1\r\nhost: localhost\r\nx: " + b"y" * 1_000:
                    await stream.send_all(bytes([byte]))
                    await trio.sleep(0.2)
            except trio.BrokenResourceError:
                continue


async def oversized(hub: Hub, number: int) -> None:
    """Sends bodies of more than there may be."""
    head = b"POST /api/messages HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 70000000\r\n\r\n"
    while True:
        async with await open_stream(hub) as stream:
            try:
                await stream.send_all(head + b"[" * 2**20)
                await stream.receive_some()
            except trio.BrokenResourceError:
                pass
        await trio.sleep(PAUSE_S)


WAYS = (over_quota, replaying, wrong_token, slow, oversized)


async def harm(hub: Hub, number: int) -> None:
    """Do one of these for ever; whoever is cut off begins anew."""
    while True:
        with suppress(trio.TooSlowError, trio.BrokenResourceError, OSError):
            await WAYS[number % len(WAYS)](hub, 1_000 + number)


class Stopwatch:
    """How long entries take from an honest client into the hub's log."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._began: dict[bytes, float] = {}
        self._stored: dict[bytes, float] = {}

    def on_commit(self, entries: Sequence[Entry]) -> None:
        self._stored |= {entry.key: trio.current_time() for entry in entries}

    async def write(self, client: GossipLog, count: int) -> None:
        """Append entries, one after the other."""
        for n in range(count):
            began = trio.current_time()
            self._began[(await client.append(n)).key] = began
            await trio.sleep(0.1)

    async def p99_s(self, clients: Sequence[GossipLog], count: int) -> float:
        """Have all clients write, and wait until all of it is stored."""
        self._began.clear()
        async with trio.open_nursery() as nursery:
            for client in clients:
                nursery.start_soon(self.write, client, count)
        with trio.fail_after(PATIENCE_S):
            while not self._began.keys() <= self._stored.keys():
                await trio.sleep(0.02)
        return statistics.quantiles([self._stored[key] - began for key, began in self._began.items()], n=100)[98]


async def until_refused(hub: Hub) -> None:
    """Wait until somebody has come to the quota."""
    verdicts = hub.services[TOPIC].figures.verdicts
    with trio.fail_after(PATIENCE_S):
        while not any(rule in ("quota", "unwelcome") for _, _, rule in verdicts):
            await trio.sleep(0.02)


async def test_honest_clients_are_served_beside_hostile_ones_who_store_no_more_than_their_quota(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    quota = {"entries_per_minute": QUOTA, "entries_per_writer": QUOTA}
    rules = {
        "tokens": {"nobody": "sha256:" + "0" * 64},
        "default": {"anonymous": ["connect", "pull", "push", "post"], "quota": quota},
    }
    limits = HubLimits(access=Access.parse(rules), connections_per_address=1_000)
    watch = Stopwatch()
    async with gossiplog.open(tmp_path / "hub.db", topic=TOPIC, signer=signer(0), durability="normal") as log, AsyncExitStack() as stack:
        stack.enter_context(log.watch_commits(watch.on_commit))
        hub = await stack.enter_async_context(log.listen("127.0.0.1:0", limits=limits))
        honest = [
            await stack.enter_async_context(gossiplog.open(":memory:", topic=TOPIC, signer=signer(number + 1))) for number in range(HONEST)
        ]
        links = [await stack.enter_async_context(client.connect(hub.urls[0])) for client in honest]
        await eventually(lambda: sum(link.is_pushing for link in hub.links()) == HONEST)
        first = {link.peer for link in hub.links()}
        quiet_s = await watch.p99_s(honest, QUIET)
        async with trio.open_nursery() as nursery:
            for number in range(HOSTILE):
                nursery.start_soon(harm, hub, number)
            beside_s = await watch.p99_s(honest, BESIDE)
            await until_refused(hub)
            nursery.cancel_scope.cancel()
        authors = [entry.author async for entry in log.iterate()]
        dids = {signer(number + 1).did for number in range(HONEST)}
        assert {did: authors.count(did) for did in dids} == dict.fromkeys(dids, QUIET + BESIDE)
        assert max(authors.count(did) for did in set(authors) - dids) <= QUOTA
        # Nobody honest was cut off: these are the connections that stood before.
        assert first <= {link.peer for link in hub.links()}
        assert [link.error for link in links] == [None] * HONEST
        with trio.fail_after(PATIENCE_S):
            for client in honest:
                while not dids <= {entry.author async for entry in client.iterate()} or await client.root() != await log.root():
                    await trio.sleep(0.05)
    print(f"p99: {quiet_s * 1_000:.0f} ms, beside {HOSTILE} hostile clients {beside_s * 1_000:.0f} ms")
    assert beside_s < SLOWER * max(quiet_s, 0.05)
    # A loop that they all share may keep the hub from its store for a while.
    assert {record.event for record in caplog.records if record.levelno >= logging.ERROR} <= {"store away"}
    caplog.clear()
