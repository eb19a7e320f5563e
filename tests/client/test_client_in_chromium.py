"""The browser client in a real Chromium, with a hub of ours that serves it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from chromium import CHROMIUM, Browser, Tab
from network_support import memory_log
from page_support import browsing, served

from gossiplog import GossipLog

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed: `apt-get install chromium`"),
]
TOPIC = "client.example.com"


async def open_tab(browser: Browser, port: int, number: int, **options: Any) -> Tab:
    """A tab of the hub's origin, with the client as `client`, and a log of its own as `log`."""
    tab = await browser.open(f"http://127.0.0.1:{port}/livez")
    await tab.wait("location.pathname === '/livez'")
    await tab.run(
        f"""(async () => {{
            window.client = await import("/client.js")
            const signer = await client.signerFromSeed(new Uint8Array(32).fill({number}))
            window.log = await client.open("{TOPIC}", {{ ...{json.dumps(options)}, signer }})
            window.heard = []
            log.subscribe((entries) => heard.push(...entries.map(({{ id }}) => id)))
        }})()"""
    )
    return tab


async def connect(tab: Tab, url: str) -> None:
    await tab.run(f"(async () => {{ window.link = log.connect({json.dumps(url)}); await link.settled() }})()")


async def append(tab: Tab, payload: Any) -> str:
    id: str = await tab.run(f"log.append({json.dumps(payload)}).then(({{ id }}) => id)")
    return id


async def ids(tab: Tab) -> list[str]:
    found: list[str] = await tab.run(
        "(async () => { const ids = []; for await (const { id } of log.iterate()) ids.push(id); return ids })()"
    )
    return found


async def ids_of(log: GossipLog) -> list[str]:
    return [entry.id async for entry in log.iterate()]


async def test_two_tabs_with_logs_in_memory_and_python_see_each_other(tmp_path: Path) -> None:
    async with memory_log(1, TOPIC) as log, served(log) as hub, browsing(tmp_path) as browser:
        await log.append_many({"n": n} for n in range(30))
        tabs = [await open_tab(browser, hub.port, number) for number in (2, 3)]
        for tab in tabs:
            await connect(tab, hub.urls[0])
            assert await ids(tab) == await ids_of(log)
        id = await append(tabs[0], {"text": "grüß dich 🌍"})
        await tabs[0].run("link.settled()")
        assert (await log.get(id)).message.payload == {"text": "grüß dich 🌍"}
        await tabs[1].wait(f"heard.includes('{id}')")
        id = (await log.append({"from": "python"})).id
        for tab in tabs:
            await tab.wait(f"heard.includes('{id}')")
            assert await ids(tab) == await ids_of(log)
