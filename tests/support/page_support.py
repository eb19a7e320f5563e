"""The page in a real browser: opened, resized, and measured frame by frame."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path

import trio
from chromium import Browser, Tab, open_browser

from gossiplog import GossipLog
from gossiplog.net.hub.server import Hub, listen
from gossiplog.web import make_http
from gossiplog.web.glass import GlassSettings

DEADLINE_S = 240.0
FRAME_CPU_S = 1 / 30
"""Of the page's main thread: CPU time, so that a machine that is busy with other things makes no frame slower."""
FRAMES = 90
WATCH = """
window.faults = []
addEventListener("error", (event) => faults.push(`${event.message} ${event.filename}:${event.lineno}`))
addEventListener("unhandledrejection", (event) => faults.push(String(event.reason?.stack ?? event.reason)))
addEventListener("securitypolicyviolation", (event) => faults.push(`${event.violatedDirective} ${event.blockedURI}`))
"""
SIDEWAYS = "document.querySelector('#view').scrollWidth - document.querySelector('#view').clientWidth"
"""By how many pixels a view is too wide, which scrolls within the page."""
COUNT_FRAMES = """
new Promise((resolve) => {
    let frames = 0
    const times = []
    const step = () => {
        DO
        times.push(performance.now())
        if (++frames === FRAMES) resolve(times)
        else requestAnimationFrame(step)
    }
    requestAnimationFrame(step)
})
"""


@asynccontextmanager
async def served(log: GossipLog, address: str = "127.0.0.1:0") -> AsyncIterator[Hub]:
    async with listen([log], address, make_http=partial(make_http, glass=GlassSettings(has_page=True))) as hub:
        yield hub


@asynccontextmanager
async def browsing(folder: Path) -> AsyncIterator[Browser]:
    with trio.fail_after(DEADLINE_S):
        async with open_browser(folder / "profile") as browser:
            yield browser


async def opened(browser: Browser, url: str, ready: str = "document.body?.dataset.ready === 'true'") -> Tab:
    tab = await browser.open("about:blank")
    await tab.command("Page.enable")
    await tab.command("Page.addScriptToEvaluateOnNewDocument", source=WATCH)
    await tab.command("Page.navigate", url=url)
    await tab.wait(ready)
    return tab


async def resize(tab: Tab, width: int, height: int = 844) -> None:
    await tab.command("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)


async def frame_cpu_s(tab: Tab, do: str, name: str) -> float:
    """CPU seconds of the main thread for each frame while something goes on; what the wall clock says is printed beside it."""

    async def spent() -> float:
        metrics = (await tab.command("Performance.getMetrics"))["metrics"]
        return next(metric["value"] for metric in metrics if metric["name"] == "TaskDuration")

    await tab.command("Performance.enable", timeDomain="threadTicks")
    before = await spent()
    times = await tab.run(COUNT_FRAMES.replace("DO", do).replace("FRAMES", str(FRAMES)))
    cost = (await spent() - before) / FRAMES
    waits = sorted(later - earlier for earlier, later in pairwise(times))
    record = {
        "frames": name,
        "cpu_ms": round(1000 * cost, 1),
        "per_s": round(1000 * len(waits) / sum(waits), 1),
        "p50_ms": round(waits[len(waits) // 2], 1),
        "p95_ms": round(waits[int(0.95 * len(waits))], 1),
        "max_ms": round(waits[-1], 1),
        "load": round(os.getloadavg()[0], 1),
    }
    print(json.dumps(record), file=sys.stderr)
    return cost
