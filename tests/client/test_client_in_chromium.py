"""The browser client in a real Chromium, with a hub of ours that serves it."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from build_client import BUILT
from chromium import CHROMIUM, Browser, Tab
from client_support import deepest_entries
from network_support import eventually, memory_log, signer, until_count
from page_support import browsing, served
from ports import free_port

import gossiplog
from gossiplog import GossipLog
from gossiplog.net.ground.access import Access, hash_token, make_token
from gossiplog.net.ground.admission import HubLimits
from gossiplog.net.hub.server import listen
from gossiplog.web import make_http

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed: `apt-get install chromium`"),
]
TOPIC = "client.example.com"


OPENS = """(async () => {
    window.client = await import("/client.js")
    const signer = await client.signerFromSeed(new Uint8Array(32).fill(NUMBER))
    const apply = async ({ payload }, state) => state.set("sum", ((await state.get("sum")) ?? 0) + (payload?.add ?? 0))
    window.log = await client.open("TOPIC", { apply, ...OPTIONS, signer })
    window.heard = []
    log.subscribe((entries) => heard.push(...entries.map(({ id }) => id)))
})()"""
FILL = """(async () => {
    window.stored = []
    for (let n = 0; n < 1000; n++) {
        try {
            stored.push((await log.append({ n, text: "x".repeat(50_000) })).id)
        } catch (error) {
            return `${error.name}: ${error.message}`
        }
    }
})()"""
WRITES = """void (window.writing = (async () => {
    window.written = []
    window.isOver = false
    while (!isOver) {
        written.push((await log.append({ add: 1 })).id)
        await new Promise((resolve) => setTimeout(resolve, 50))
    }
})())"""
IDS = "(async () => { const ids = []; for await (const { id } of log.iterate()) ids.push(id); return ids })()"


async def open_tab(browser: Browser, port: int, number: int, **options: Any) -> Tab:
    """A tab of the hub's origin, with the client as `client`, and a log as `log`, by default one of its own in IndexedDB."""
    tab = await browser.open(f"http://127.0.0.1:{port}/livez")
    await open_log(tab, number, **{"name": f"log {number}", **options})
    return tab


async def open_log(tab: Tab, number: int, **options: Any) -> None:
    await tab.wait("location.pathname === '/livez' && document.readyState === 'complete'")
    script = OPENS.replace("NUMBER", str(number)).replace("TOPIC", TOPIC).replace("OPTIONS", json.dumps(options))
    await tab.run(script)


async def connect(tab: Tab, url: str) -> None:
    await tab.run(f"(async () => {{ window.link = log.connect({json.dumps(url)}); await link.settled() }})()")


async def append(tab: Tab, payload: Any) -> str:
    id: str = await tab.run(f"log.append({json.dumps(payload)}).then(({{ id }}) => id)")
    return id


async def ids(tab: Tab) -> list[str]:
    found: list[str] = await tab.run(IDS)
    return found


async def ids_of(log: GossipLog) -> list[str]:
    return [entry.id async for entry in log.iterate()]


async def has_all(tab: Tab, log: GossipLog) -> bool:
    return await ids(tab) == await ids_of(log)


@pytest.mark.parametrize("storage", ["memory", "indexeddb"])
async def test_two_tabs_and_python_see_each_other(storage: str, tmp_path: Path) -> None:
    async with memory_log(1, TOPIC) as log, served(log) as hub, browsing(tmp_path) as browser:
        await log.append_many({"n": n} for n in range(30))
        assert all([(await log.insert(entry.value)).accepted for entry in deepest_entries(TOPIC)])
        tabs = [await open_tab(browser, hub.port, number, storage=storage) for number in (2, 3)]
        for tab in tabs:
            await connect(tab, hub.urls[0])
            assert await has_all(tab, log)
        id = await append(tabs[0], {"text": "grüß dich 🌍"})
        await tabs[0].run("link.settled()")
        assert (await log.get(id)).message.payload == {"text": "grüß dich 🌍"}
        await tabs[1].wait(f"heard.includes('{id}')")
        id = (await log.append({"from": "python"})).id
        for tab in tabs:
            await tab.wait(f"heard.includes('{id}')")
            assert await has_all(tab, log)


async def test_a_reload_keeps_everything_and_a_hub_that_was_away_gets_what_it_missed(tmp_path: Path) -> None:
    async with memory_log(1, TOPIC) as log, browsing(tmp_path) as browser:
        async with served(log) as hub:
            port, url = hub.port, hub.urls[0]
            await log.append_many({"add": n} for n in range(50))
            tab = await open_tab(browser, port, 2)
            await connect(tab, url)
        await tab.wait("!link.isConnected")
        offline = [await append(tab, {"add": 1_000}) for _ in range(3)]
        await log.append({"add": 10_000})
        async with served(log, f"127.0.0.1:{port}"):
            await tab.run("link.settled()")
            assert await has_all(tab, log)
            assert set(offline) <= set(await ids_of(log))
            await tab.command("Page.reload")
            await tab.wait("window.log === undefined")
            await open_log(tab, 2, name="log 2")
            assert await has_all(tab, log)
            assert await tab.run("log.state.get('sum')") == sum(range(50)) + 13_000
            assert await tab.run("log.count()") == await log.count() == 54
            await connect(tab, url)
            id = (await log.append({"add": 1})).id
            await tab.wait(f"heard.includes('{id}')")


async def test_tabs_on_one_store_have_one_connection_and_each_takes_over(tmp_path: Path) -> None:
    async with memory_log(1, TOPIC) as log, served(log) as hub, browsing(tmp_path) as browser:
        await log.append_many({"n": n} for n in range(20))
        tabs = [await open_tab(browser, hub.port, number, name="shared") for number in (2, 3, 4)]
        for tab in tabs:
            await connect(tab, hub.urls[0])
            assert await has_all(tab, log)
        assert len(hub.links()) == 1
        await tabs[2].wait("link.isConnected")
        # All three write at once: what is in the store is one chain, as only one tab appends at a time.
        for tab in tabs:
            await tab.run("void (window.written = Promise.all(Array.from({ length: 20 }, (_, n) => log.append({ add: n }))))")
        for tab in tabs:
            await tab.run("written.then(() => link.settled())")
        assert await log.count() == 80
        assert len(await log.heads()) == 1
        for tab in tabs:
            assert await has_all(tab, log)
            await tab.wait("heard.length === 60 || heard.length === 80")
            assert await tab.run("log.state.get('sum')") == 3 * sum(range(20))
        # Each tab is there, by way of the one that has the connection; what is set at once goes out as its end.
        for number, tab in enumerate(tabs):
            sets = f"log.presence.set({{ cursor: [{number}, n] }}, {{ ttl: 60 }})"
            await tab.run(f"(async () => {{ for (let n = 0; n <= 100; n++) {sets} }})()")
        there = {signer(number).did: {"cursor": [number - 2, 100]} for number in (2, 3, 4)}
        await eventually(lambda: log.presence.states == there)
        await log.presence.set({"name": "hub"})
        for tab in tabs:
            await tab.wait(f"Object.keys(log.presence.states).length === 4 && log.presence.states['{signer(1).did}'].name === 'hub'")
        await tabs[1].run("log.presence.leave()")
        await eventually(lambda: signer(3).did not in log.presence.states)
        # The tab with the connection closes.
        await tabs[0].command("Page.close")
        id = await append(tabs[1], {"after": "the first tab"})
        await tabs[1].run("link.settled()")
        assert (await log.get(id)).message.payload == {"after": "the first tab"}
        await tabs[2].wait(f"heard.includes('{id}')")
        assert await tabs[2].run("link.settled().then(() => link.isConnected)")
        await eventually(lambda: log.presence.states.get(signer(4).did) == {"cursor": [2, 100]})


async def test_a_full_store_refuses_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    async with memory_log(1, TOPIC) as log, served(log) as hub, browsing(tmp_path) as browser:
        tab = await open_tab(browser, hub.port, 2)
        origin = f"http://127.0.0.1:{hub.port}"
        await tab.command("Storage.overrideQuotaForOrigin", origin=origin, quotaSize=2_000_000)
        refused = await tab.run(FILL)
        assert refused == "StorageError: the browser's storage is full"
        kept = await ids(tab)
        assert await tab.run("stored") == kept
        await log.append_many({"text": "y" * 10_000, "n": n} for n in range(50))
        await tab.run(f"void (window.link = log.connect({json.dumps(hub.urls[0])}))")
        await tab.wait("link.error?.includes('storage is full')")
        await tab.command("Storage.overrideQuotaForOrigin", origin=origin)
        await tab.run("link.settled()")
        assert await has_all(tab, log)
        assert await log.count() == 50 + len(kept)


async def test_a_store_of_another_topic_is_refused(tmp_path: Path) -> None:
    async with memory_log(1, TOPIC) as log, served(log) as hub, browsing(tmp_path) as browser:
        tab = await open_tab(browser, hub.port, 2)
        opening = "client.open('other.example.com', { name: 'log 2' }).then(() => 'open', (error) => error.message)"
        assert await tab.run(opening) == "open"
        await append(tab, 1)
        assert await tab.run(opening) == 'the store "log 2" has a log of another topic'
        await open_log(tab, 2, name="log 2")


async def test_private_windows_have_a_log_and_no_key_can_be_read(tmp_path: Path) -> None:
    async with memory_log(1, TOPIC) as log, served(log) as hub, browsing(tmp_path) as browser:
        context = (await browser.call("Target.createBrowserContext", {}))["browserContextId"]
        url = f"http://127.0.0.1:{hub.port}/livez"
        target = await browser.call("Target.createTarget", {"url": url, "browserContextId": context})
        tab = Tab(browser, (await browser.call("Target.attachToTarget", {"targetId": target["targetId"], "flatten": True}))["sessionId"])
        await open_log(tab, 2)
        await connect(tab, hub.urls[0])
        await append(tab, {"private": True})
        await tab.run("link.settled()")
        assert await has_all(tab, log)
        dids = await tab.run(
            "Promise.all([client.keptSigner(), client.keptSigner(), client.keptSigner('other')]).then((all) => all.map(({ did }) => did))"
        )
        assert dids[0] == dids[1] != dids[2]
        exported = (
            "client.keptSigner().then(({ pair }) => crypto.subtle.exportKey('pkcs8', pair.privateKey)).then(() => 'read', () => 'refused')"
        )
        assert await tab.run(exported) == "refused"


async def test_a_token_goes_along_and_a_page_is_told_why_it_is_not_let_in(tmp_path: Path) -> None:
    reader, watcher = make_token(), make_token()
    rules = {
        "tokens": {"reader": hash_token(reader), "watcher": hash_token(watcher)},
        "default": {"tokens": {"reader": ["connect", "pull"], "watcher": ["watch"]}},
    }
    limits = HubLimits(access=Access.parse(rules))
    async with memory_log(1, TOPIC) as log, listen([log], "127.0.0.1:0", limits=limits, make_http=make_http) as hub:
        await log.append_many(range(10))
        async with browsing(tmp_path) as browser:
            tab = await open_tab(browser, hub.port, 2)
            for token, reason in ((None, "takes a token"), ("wrong", "not known"), (watcher, "does not allow")):
                await tab.run(f"void (window.link = log.connect('{hub.urls[0]}', {{ token: {json.dumps(token)} ?? undefined }}))")
                await tab.wait(f"link.error?.includes('{reason}')")
                await tab.run("link.close()")
            await tab.run(f"void (window.link = log.connect('{hub.urls[0]}', {{ token: '{reader}' }}))")
            await tab.run("link.settled()")
            assert await has_all(tab, log)
            # It may read, and what it writes stays with it: it is told so.
            id = await append(tab, {"not": "welcome"})
            await tab.wait(f"link.refused.some(({{ ids }}) => ids.includes('{id}'))")
            await tab.run("link.settled()")
            assert id not in await ids_of(log)


@contextmanager
def killed_at_the_end(path: Path, port: int) -> Iterator[None]:
    """A server of a log."""
    command = [sys.executable, "-m", "gossiplog", "serve", str(path), "--listen", f"127.0.0.1:{port}", "--origin", "*"]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.kill()
        process.wait()


async def test_a_hub_that_is_killed_again_and_again_costs_no_entry_and_brings_none_twice(tmp_path: Path) -> None:
    port, path = free_port(), tmp_path / "hub.db"
    async with gossiplog.open(path, topic=TOPIC, signer=signer(1)) as log:
        await log.append_many({"n": n} for n in range(3_000))
    async with memory_log(2, "other.example.com") as other, served(other) as page, browsing(tmp_path) as browser:
        tab = await open_tab(browser, page.port, 3)
        await tab.run(f"void (window.link = log.connect('ws://127.0.0.1:{port}'))")
        await tab.run(WRITES)
        for _ in range(3):
            with killed_at_the_end(path, port):
                await tab.wait("link.isConnected")
                await trio.sleep(0.3)
            await tab.wait("!link.isConnected")
        with killed_at_the_end(path, port):
            written = await tab.run("(async () => { window.isOver = true; await writing; await link.settled(); return written })()")
        assert len(written) > 4
        found = await ids(tab)
        assert len(found) == len(set(found)) == await tab.run("log.count()")
        heard = await tab.run("heard")
        assert sorted(heard) == sorted(found)
        async with gossiplog.open(path, topic=TOPIC) as log:
            assert await ids_of(log) == found
            assert set(written) <= set(found)
            assert len(found) == 3_000 + len(written)


JOINS = """(async () => {
    window.client ??= await import("/client.js")
    window.rooms = {}
    window.sockets = 0
    window.WebSocket = class extends WebSocket {
        constructor(url) {
            super(url)
            sockets++
        }
    }
    for (const topic of TOPICS) {
        const signer = await client.signerFromSeed(new Uint8Array(32).fill(NUMBER))
        const log = await client.open(topic, { storage: "STORAGE", signer })
        rooms[topic] = { log, link: log.connect(`ws://${location.host}/${topic}`) }
    }
    for (const { link } of Object.values(rooms)) await link.settled()
})()"""
WRITES_IN_EACH = """(async () => {
    for (const { log, link } of Object.values(rooms)) {
        await log.append("of the page")
        await link.settled()
    }
})()"""


@pytest.mark.parametrize("storage", ["memory", "indexeddb"])
async def test_fifty_logs_of_a_page_have_one_socket_and_a_tab_that_follows_has_one(storage: str, tmp_path: Path) -> None:
    topics = [f"room-{number}.example.com" for number in range(50)]
    async with AsyncExitStack() as stack:
        logs = [await stack.enter_async_context(memory_log(1, topic)) for topic in topics]
        hub = await stack.enter_async_context(listen(logs, "127.0.0.1:0", make_http=make_http))
        browser = await stack.enter_async_context(browsing(tmp_path))
        for log in logs:
            await log.append("of the hub")
        tabs = [await browser.open(f"http://127.0.0.1:{hub.port}/livez") for _ in range(2)]
        for number, tab in enumerate(tabs):
            await tab.wait("location.pathname === '/livez' && document.readyState === 'complete'")
            script = JOINS.replace("TOPICS", json.dumps(topics)).replace("NUMBER", str(number + 2)).replace("STORAGE", storage)
            await tab.run(script)
            await tab.run(WRITES_IN_EACH)
        # Where tabs share a store, the first one has all connections.
        has_its_own = storage == "memory"
        assert await tabs[0].run("sockets") == 1
        assert await tabs[1].run("sockets") == (1 if has_its_own else 0)
        assert len({state.peer for state in hub.links()}) == (2 if has_its_own else 1)
        for log in logs:
            await until_count(log, 3)
        await tabs[0].command("Page.close")
        await tabs[1].run(WRITES_IN_EACH)
        assert await tabs[1].run("sockets") == 1
        for log in logs:
            await until_count(log, 4)


async def test_a_log_that_a_page_may_not_have_is_refused_alone(tmp_path: Path) -> None:
    """A page is let in and told goodbye, so the connection that its logs wait for may be the refused one's."""
    limits = HubLimits(access=Access.parse({"logs": {"secret": {"anonymous": []}}}))
    async with AsyncExitStack() as stack:
        logs = [await stack.enter_async_context(memory_log(1, topic)) for topic in ("secret", "a", "b")]
        hub = await stack.enter_async_context(listen(logs, "127.0.0.1:0", limits=limits, make_http=make_http))
        browser = await stack.enter_async_context(browsing(tmp_path))
        tab = await browser.open(f"http://127.0.0.1:{hub.port}/livez")
        await tab.wait("location.pathname === '/livez' && document.readyState === 'complete'")
        script = JOINS.replace("TOPICS", json.dumps(["none", "secret", "a", "b"])).replace("NUMBER", "2").replace("STORAGE", "memory")
        await tab.run(f"void {script}")
        await tab.wait("window.rooms?.b !== undefined")
        await tab.run("Promise.all([rooms.a.link.settled(), rooms.b.link.settled()])")
        await tab.wait("rooms.none.link.error?.includes('no log /none') && rooms.secret.link.error?.includes('takes a token')")
        for topic, log in zip(("a", "b"), logs[1:], strict=True):
            await tab.run(f"(async () => {{ await rooms.{topic}.log.append(1); await rooms.{topic}.link.settled() }})()")
            assert await log.count() == 1
            assert await tab.run(f"rooms.{topic}.link.error") is None
        assert len({state.peer for state in hub.links()}) == 1


@contextmanager
def static(folder: Path, port: int) -> Iterator[None]:
    """What `python -m http.server` serves."""
    command = [sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1"]
    process = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.kill()
        process.wait()


async def write_note(tab: Tab, text: str) -> None:
    await tab.run("document.querySelector('input').focus()")
    await tab.type(text)
    await tab.run("document.querySelector('form').requestSubmit()")


async def test_the_page_of_two_files_in_the_guide_works(tmp_path: Path) -> None:
    guide = (Path(__file__).parents[2] / "docs" / "browser.md").read_text()
    page = guide.partition("```html\n")[2].partition("```")[0]
    site, pages = tmp_path / "site", free_port()
    site.mkdir()
    (site / "client.js").write_text(BUILT.read_text())
    limits = HubLimits(origins=frozenset({f"http://127.0.0.1:{pages}"}))
    async with memory_log(1, "notes.example.com") as log, browsing(tmp_path) as browser:
        async with listen([log], "127.0.0.1:0", limits=limits) as hub:
            port = hub.port
            (site / "index.html").write_text(page.replace("127.0.0.1:4000", f"127.0.0.1:{port}"))
            with static(site, pages):
                await trio.to_thread.run_sync(wait_for, pages)
                tab = await browser.open(f"http://127.0.0.1:{pages}/")
                await tab.wait("document.querySelector('output')?.textContent === 'online'")
                await log.append({"text": "from Python <b>"})
                await log.append({"text": 7})
                await tab.wait("document.querySelector('li')?.textContent.endsWith(': from Python <b>')")
                await write_note(tab, "from a page")
                await until_count(log, 3)
                await tab.command("Page.reload")
                await tab.wait("document.querySelectorAll('li').length === 2")
        await tab.wait("document.querySelector('output').textContent.startsWith('offline')")
        await write_note(tab, "while the hub is away")
        async with listen([log], f"127.0.0.1:{port}", limits=limits):
            await until_count(log, 4)
        assert {entry.payload["text"] async for entry in log.iterate()} >= {"from a page", "while the hub is away"}


def wait_for(port: int) -> None:
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            time.sleep(0.02)
