"""Measure the browser client in Chromium: a first sync into IndexedDB, appends that the hub acknowledges, memory, opening again.

    python -m benchmarks.browser_client --write browser-client

The hub is in this process, with its log in memory; the page is its own. CPU of the page is that of all of Chromium's processes, as Chromium
counts it. Memory is the JavaScript heap after a collection, and what the page's process has grown by since the client was loaded.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

import gossiplog
from gossiplog.net.hub.server import listen
from gossiplog.web import make_http

from .material import TOPIC, payloads
from .measure import Figure, Goal, Stopwatch, machine, versions, write_results

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/support"))

from chromium import Browser, Tab, open_browser

__all__ = ["main"]

_RESULTS = Path(__file__).parent / "results"
_GOALS_S = {10_000: 5.0, 100_000: 60.0}
_MB = 2**20
_APPENDS = 200
_LOAD = 'import("/client.js").then((module) => void (window.client = module))'
_OPEN = """(async () => {
    const began = performance.now()
    window.log = await client.open(TOPIC, { signer: await client.keptSigner(), storage: "indexeddb" })
    await log.heads()
    return performance.now() - began
})()"""
_CONNECT = "(async () => { window.link = log.connect(URL); await link.settled(); return log.count() })()"
_APPENDED = """(async () => {
    const times = { stored: [], acknowledged: [] }
    for (let n = 0; n < COUNT; n++) {
        const began = performance.now()
        await log.append({ n })
        times.stored.push(performance.now() - began)
        await link.settled()
        times.acknowledged.push(performance.now() - began)
    }
    return times
})()"""


class Measured:
    """A page, and what it and its browser have used so far."""

    def __init__(self, browser: Browser, tab: Tab) -> None:
        self.tab = tab
        self._browser = browser
        self._sizes_before: dict[int, float] = {}

    @staticmethod
    async def open(browser: Browser, port: int) -> Measured:
        tab = await browser.open(f"http://127.0.0.1:{port}/livez")
        await tab.wait("location.pathname === '/livez' && document.readyState === 'complete'")
        measured = Measured(browser, tab)
        await tab.run(_LOAD)
        await tab.command("HeapProfiler.collectGarbage")
        measured._sizes_before = await measured._sizes()
        return measured

    async def cpu_s(self) -> float:
        """User and system seconds of all of the browser's processes."""
        return sum(process["cpuTime"] for process in await self._processes())

    async def heap_mb(self) -> float:
        """The JavaScript heap, after what is of no use is gone."""
        await self.tab.command("HeapProfiler.collectGarbage")
        usage = await self.tab.command("Runtime.getHeapUsage")
        return float(usage["usedSize"] + usage.get("backingStorageSize", 0)) / _MB

    async def grown_mb(self) -> float:
        """By how much the page's process has grown."""
        return max(size - self._sizes_before.get(pid, size) for pid, size in (await self._sizes()).items())

    async def _processes(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = (await self._browser.call("SystemInfo.getProcessInfo", {}))["processInfo"]
        return found

    async def _sizes(self) -> dict[int, float]:
        pids = [process["id"] for process in await self._processes() if process["type"] == "renderer"]
        page = os.sysconf("SC_PAGE_SIZE")
        return {pid: int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * page / _MB for pid in pids}


@asynccontextmanager
async def served(entries: int) -> AsyncIterator[tuple[gossiplog.GossipLog, int, str]]:
    signer = gossiplog.Ed25519Signer.from_seed(bytes(32))
    async with gossiplog.open(":memory:", topic=TOPIC, signer=signer) as log:
        for start in range(0, entries, 1_000):
            await log.append_many(payloads(min(1_000, entries - start), seed=32, first=start))
        await log.sketch()
        async with listen([log], "127.0.0.1:0", make_http=make_http) as hub:
            yield log, hub.port, hub.urls[0]


def _load() -> list[float]:
    return [round(os.getloadavg()[0], 2)]


async def measure(entries: int) -> list[Figure]:
    """Sync a log of so many entries into a new page, append to it, and open it again."""
    figures = []

    def note(name: str, what: str, unit: str, samples: list[float], at_most: float | None = None) -> None:
        goal = None if at_most is None else Goal(at_most=at_most)
        needs_quiet = unit in ("s", "ms") and "CPU" not in what
        figures.append(
            Figure(f"browser-{entries}.{name}", f"{entries:,}: {what}", unit, samples, goal, needs_quiet=needs_quiet, load=_load())
        )
        print(figures[-1], flush=True)

    with tempfile.TemporaryDirectory() as name:
        async with served(entries) as (log, port, url), open_browser(Path(name) / "profile") as browser:
            page = await Measured.open(browser, port)
            await page.tab.run(_OPEN.replace("TOPIC", repr(TOPIC)))
            before = await page.cpu_s()
            with Stopwatch() as hub:
                assert await page.tab.run(_CONNECT.replace("URL", repr(url))) == entries
            note("sync", "first sync", "s", [hub.wall_s], _GOALS_S.get(entries))
            note("sync-cpu", "CPU of the browser in it", "s", [await page.cpu_s() - before])
            note("sync-hub", "CPU of the hub in it", "s", [hub.cpu_s])
            note("grown", "what the page's process has grown by", "MB", [await page.grown_mb()])
            note("heap", "JavaScript heap and its buffers", "MB", [await page.heap_mb()], 60.0)
            times = await page.tab.run(_APPENDED.replace("COUNT", str(_APPENDS)))
            note("append", "an append is stored", "ms", times["stored"])
            note("acknowledged", "an append is acknowledged by the hub", "ms", times["acknowledged"], 10.0)
            assert await log.count() == entries + _APPENDS
            before = await page.cpu_s()
            await page.tab.command("Page.reload")
            await page.tab.wait("window.log === undefined && document.readyState === 'complete'")
            await page.tab.run(_LOAD)
            note("opened", "open again after a reload", "ms", [await page.tab.run(_OPEN.replace("TOPIC", repr(TOPIC)))])
            with Stopwatch() as again:
                await page.tab.run(_CONNECT.replace("URL", repr(url)))
            note("level", "then connect, with nothing missing", "s", [again.wall_s])
            note("level-cpu", "CPU of the browser in both", "s", [await page.cpu_s() - before])
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the browser client in Chromium.")
    parser.add_argument("--sizes", default="10000,100000")
    parser.add_argument("--write", metavar="NAME", help="results/NAME.json and .md")
    options = parser.parse_args()
    figures = [figure for size in options.sizes.split(",") for figure in trio.run(measure, int(size))]
    header = {
        "command": "python -m benchmarks.browser_client " + " ".join(sys.argv[1:]),
        "measured": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "machine": machine(),
        "versions": versions(),
        "settings": "hub's log in memory; headless Chromium, IndexedDB on the disk; one connection on loopback",
    }
    if options.write:
        write_results(_RESULTS / options.write, "The browser client in Chromium", header, figures)


if __name__ == "__main__":
    main()
