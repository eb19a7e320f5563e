"""Measure what a client of the reference, unchanged, costs our hub where ours reconciles, in one run: in Node and in Chromium.

    python -m benchmarks.reconcile_reference --write reconcile-reference

Each client has a log like those of `benchmarks.reconcile` and a hub of its own with another; both sides of each differ in as many entries,
half of them on either side. Bytes are counted by a proxy from the first of the connection until the roots are equal; the entries
themselves are taken off. `npm ci` must have been run in tests/interop and tests/browser, and Chromium be installed.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TypeAlias

import trio

import gossiplog
from gossiplog.entry.message import Entry
from gossiplog.net.hub.client import parse_url
from gossiplog.net.hub.exchange import exchange

from .material import TOPIC
from .measure import Figure, machine, versions, write_results
from .net_line import Line
from .net_reference import Reference, running_reference
from .reconcile import Pair, lined, scattered

__all__ = ["main"]

DIFFERENCES = (0, 1, 100)
WAIT_MS = 600_000
_RESULTS = Path(__file__).parent / "results"
_BATCH = 500


class OurClient:
    """A file."""

    name = "our client"

    def __init__(self, log: gossiplog.GossipLog) -> None:
        self._log = log

    async def insert(self, entries: list[Entry]) -> None:
        await self._log.insert_many([entry.value for entry in entries])

    async def sync(self, url: str, root: bytes) -> None:
        done = await exchange(self._log, parse_url(url))
        assert done.is_equal and (await self._log.root()).hash == root


class NodeClient:
    """The reference on SQLite."""

    name = "the reference in Node"

    def __init__(self, reference: Reference) -> None:
        self._reference = reference

    async def open(self, folder: Path) -> None:
        await self._reference.ask("open", log="node", topic=TOPIC, directory=str(folder / "node"))

    async def insert(self, entries: list[Entry]) -> None:
        await self._reference.insert("node", entries)

    async def sync(self, url: str, root: bytes) -> None:
        await self._reference.ask("connect", log="node", url=url)
        await self._reference.ask("until", log="node", hash=root.hex())
        await self._reference.ask("disconnect", log="node")


class ChromiumClient:
    """The reference on IndexedDB."""

    name = "the reference in Chromium"

    def __init__(self, reference: Reference) -> None:
        self._reference = reference

    async def open(self) -> None:
        await self._reference.ask("tab", tab="tab")
        await self._call("open", name="replica", topic=TOPIC, seed="05" * 32)

    async def insert(self, entries: list[Entry]) -> None:
        for start in range(0, len(entries), _BATCH):
            await self._call("insert", values=[entry.value.hex() for entry in entries[start : start + _BATCH]])

    async def sync(self, url: str, root: bytes) -> None:
        await self._call("connect", url=url)
        state = await self._reference.ask("until", tab="tab", hash=root.hex(), ms=WAIT_MS)
        assert state["hash"] == root.hex()
        await self._call("disconnect")

    async def _call(self, name: str, /, **argument: object) -> None:
        await self._reference.ask("call", tab="tab", name=name, argument=argument)


Client: TypeAlias = OurClient | NodeClient | ChromiumClient


async def settle(line: Line) -> int:
    """The bytes that have passed once none has for a while."""
    passed = -1
    while passed != line.bytes:
        passed = line.bytes
        await trio.sleep(0.5)
    return passed


async def measure_client(client: Client, pair: Pair, differences: list[int]) -> list[Figure]:
    """Sync once for each number of differences; afterwards both sides are equal again."""
    figures = []
    here = await pair.fork("hub.db", [])
    async with gossiplog.open(here, durability="off") as hub_log, lined(hub_log) as (line, url):
        # So that what follows is no client's first, and its hub has its sketch.
        await hub_log.sketch()
        await client.sync(url, (await hub_log.root()).hash)
        for count in differences:
            given, taken = scattered(pair.chain, count // 2, 2), scattered(pair.chain, count - count // 2, 3)
            await client.insert(given)
            await hub_log.insert_many([entry.value for entry in taken])
            root = await _joined(pair, hub_log, given)
            before = await settle(line)
            await client.sync(url, root)
            with trio.fail_after(WAIT_MS / 1_000):
                while (await hub_log.root()).hash != root:
                    await trio.sleep(0.02)
            size = await settle(line) - before - sum(len(entry.value) for entry in [*given, *taken])
            load = [round(os.getloadavg()[0], 2)]
            what = f"{count:,} missing of {len(pair.chain):,}: {client.name}, beside the entries"
            figures.append(Figure(f"{client.name.split()[-1].lower()}-{count}.bytes", what, "B", [float(size)], load=load))
            print(figures[-1], flush=True)
    return figures


async def _joined(pair: Pair, hub_log: gossiplog.GossipLog, given: list[Entry]) -> bytes:
    """The root of what both have together."""
    async with gossiplog.open(await pair.fork("joined.db", []), durability="off") as joined:
        await joined.insert_many([entry.value async for entry in hub_log.iterate()])
        await joined.insert_many([entry.value for entry in given])
        return (await joined.root()).hash


async def measure(size: int, differences: list[int]) -> list[Figure]:
    figures = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pair = Pair(folder)
        await pair.make(size)
        async with gossiplog.open(await pair.fork("client.db", []), durability="off") as log:
            figures += await measure_client(OurClient(log), pair, differences)
        async with running_reference() as node:
            client = NodeClient(node)
            await client.open(folder)
            figures += await measure_client(client, pair, differences)
        async with running_reference("../browser/browser.mjs") as chromium:
            tab = ChromiumClient(chromium)
            await tab.open()
            figures += await measure_client(tab, pair, differences)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure clients of the reference beside ours.")
    parser.add_argument("--size", type=int, default=10_000, help="entries that both sides share")
    parser.add_argument("--differences", default=",".join(map(str, DIFFERENCES)))
    parser.add_argument("--write", metavar="NAME", help="results/NAME.json and .md")
    options = parser.parse_args()
    figures = trio.run(measure, options.size, [int(part) for part in options.differences.split(",")])
    header = {
        "command": "python -m benchmarks.reconcile_reference " + " ".join(sys.argv[1:]),
        "measured": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "machine": machine(),
        "versions": {**versions(), "reference": "@canvas-js/gossiplog 0.13.14"},
        "settings": "our hub on SQLite, durability off; WebSocket through a proxy on loopback that counts, handshakes included",
    }
    if options.write:
        write_results(_RESULTS / options.write, "Our clients and the reference's beside each other", header, figures)


if __name__ == "__main__":
    main()
