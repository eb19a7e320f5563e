"""The page in a real browser: what comes from a log stays text, nothing is missed, all of it works at any size, and stays fluid."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from access_support import DIDS, SIGNERS
from chromium import CHROMIUM
from network_support import memory_log
from page_support import FRAME_CPU_S, SIDEWAYS, browsing, frame_cpu_s, opened, resize, served

import gossiplog
from gossiplog import Entry, Reject
from gossiplog.graph import GraphNode, draw_html
from gossiplog.graph.palette import author_hue
from gossiplog.net.hub.server import Hub, listen
from gossiplog.net.service.service import observed
from gossiplog.web import make_http
from gossiplog.web.glass import GlassSettings

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed: `apt-get install chromium`"),
]
VIEWS = ("overview", "network", "log", "way", "simulator")
HOSTILE = [
    "<script>window.pwned = 1</script>",
    "</script><script>window.pwned = 1</script>",
    "</pre><img src=x onerror='window.pwned = 1'>",
    "<svg/onload=window.pwned=1>",
    "<iframe srcdoc='<script>parent.pwned=1</script>'></iframe>",
    "\"><b onmouseover='window.pwned=1'>x</b>",
    "' onfocus='window.pwned=1' autofocus='",
    "<style>*{display:none!important}</style>",
    "<link rel=stylesheet href=//evil.example.com/x.css>",
    "<base href='https://evil.example.com/'>",
    "<meta http-equiv=refresh content='0;url=https://evil.example.com'>",
    "<form action=javascript:window.pwned=1><input type=submit autofocus>",
    "javascript:window.pwned=1",
    "{{constructor.constructor('window.pwned=1')()}}",
    "${window.pwned = 1}",
    "<!--<script>",
    "\u202e\u2066reversed\u2069\u202c",
    "\x00\x1b[31m\x07",
    {"constructor": {"prototype": {"pwned": 1}}, "toString": "<img src=x onerror=window.pwned=1>"},
    {"<img src=x onerror=window.pwned=1>": ["<math><mtext></mtext><mglyph><style><img src=x onerror=window.pwned=1>"]},
]
assert len(HOSTILE) == 20
STRANGERS = (
    "document.querySelectorAll('body script, body img, body iframe, body svg, body style, body link, body base, body meta, body b').length"
)
UNNAMED = """
[...document.querySelectorAll("input, select, button, textarea, canvas[role=img], [role=listbox]")]
    .filter((one) => one.checkVisibility())
    .filter((one) => !(one.textContent.trim() || one.getAttribute("aria-label") || one.labels?.length))
    .map((one) => one.outerHTML)
"""
"""What a screen reader would have no name for."""
PALE = """
(() => {
    const context = Object.assign(document.createElement("canvas"), { width: 1, height: 1 }).getContext("2d", { willReadFrequently: true })
    const seen = (colour) => {
        context.clearRect(0, 0, 1, 1)
        context.fillStyle = colour
        context.fillRect(0, 0, 1, 1)
        return [...context.getImageData(0, 0, 1, 1).data]
    }
    const part = (value) => (value <= 10 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4)
    const luminance = ([r, g, b]) => 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b)
    const ground = (one) => {
        for (; one; one = one.parentElement) {
            const colour = getComputedStyle(one).backgroundColor
            if (seen(colour)[3] > 200) return colour
        }
        return getComputedStyle(document.documentElement).backgroundColor
    }
    return [...document.querySelectorAll("body *")]
        .filter((one) => one.checkVisibility({ opacityProperty: true }) && !one.closest(":disabled"))
        .filter((one) => [...one.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim()))
        .filter((one) => {
            const [dark, light] = [getComputedStyle(one).color, ground(one)].map((colour) => luminance(seen(colour))).sort((a, b) => a - b)
            return (light + 0.05) / (dark + 0.05) < 4.5
        })
        .map((one) => one.outerHTML.slice(0, 120))
})()
"""
"""Text whose contrast is below WCAG's AA."""


async def test_nothing_of_a_log_becomes_markup(tmp_path: Path) -> None:
    async with memory_log(1) as log:
        with observed(log, None):
            async with served(log) as hub, browsing(tmp_path) as browser:
                tab = await opened(browser, f"http://127.0.0.1:{hub.port}/#/log")
                await resize(tab, 1440, 900)
                entries = [await log.append(payload) for payload in HOSTILE]
                await tab.wait("document.querySelectorAll('.log-row:not([hidden])').length === 20")
                await tab.wait("[...document.querySelectorAll('.log-row .text')].every((text) => text.textContent !== '')")
                for entry in entries:
                    await tab.run(f"location.hash = '#/log/{entry.id}'")
                    await tab.wait(f"document.querySelector('.details h2')?.textContent === '{entry.id}'")
                shown = await tab.run("document.querySelector('.details .payload').textContent")
                assert "<mglyph>" in shown
                for word in ("<script>", "onerror", "' onfocus='"):
                    await tab.run(
                        "(() => { const box = document.querySelector('.log-tools input'); "
                        f"box.value = {json.dumps(word)}; box.dispatchEvent(new Event('input')) }})()"
                    )
                    await tab.wait("/^[1-9].* found$/.test(document.querySelector('.found h2')?.textContent ?? '')")
                for hash in (
                    "#/way/<img src=x onerror=window.pwned=1>",
                    f"#/way/{entries[2].id}",
                    "#/network/<b>x</b>",
                    "#/log/<b>x</b>",
                    "#/log/%",
                ):
                    await tab.run(f"location.hash = {json.dumps(hash)}")
                    await trio.sleep(0.2)
                assert await tab.run("window.pwned ?? ({}).pwned ?? null") is None
                assert await tab.run(STRANGERS) == 0
                assert "\u202e" not in await tab.run("document.body.textContent")
                assert await tab.run("window.faults") == []


async def test_one_of_thousands_of_logs_is_found_by_typing_a_part_of_its_name(tmp_path: Path) -> None:
    async with gossiplog.shelf(tmp_path / "logs", signer=gossiplog.Ed25519Signer.generate()) as shelf:
        for topic in ("busy:room", "room-7"):
            async with shelf.open(topic, create=True) as log:
                await log.append_many(range(3))
        for number in range(2_000):
            (tmp_path / "logs" / f"other-{number}.db").touch()
        make = partial(make_http, glass=GlassSettings(has_page=True))
        async with (
            listen([], "127.0.0.1:0", shelf=shelf.logs, make_http=make) as hub,
            shelf.open("busy:room"),
            browsing(tmp_path) as browser,
        ):
            tab = await opened(browser, f"http://127.0.0.1:{hub.port}/")
            assert await tab.run("document.title") == "Overview · busy:room"
            search = "const box = document.querySelector('.topic-search'); box.value = 'room-'; box.dispatchEvent(new Event('TYPE'))"
            await tab.run(f"(() => {{ {search.replace('TYPE', 'input')} }})()")
            await tab.wait("[...document.querySelectorAll('#topics option')].map((one) => one.value).join() === 'room-7'")
            for width in (1280, 390):
                await resize(tab, width)
                assert await tab.run(SIDEWAYS) <= 0
                assert await tab.run("document.body.scrollWidth <= innerWidth")
            assert await tab.run(UNNAMED) == []
            await tab.run(f"(() => {{ {search.replace('room-', 'room-7').replace('TYPE', 'change')} }})()")
            await tab.wait("document.body?.dataset.ready === 'true' && document.title === 'Overview · room-7'")
            await tab.wait("document.querySelector('.figures')?.innerText.includes('Entries\\n3')")
            assert "room-7" in hub.services and not await tab.run("window.faults.length")


async def test_a_shelf_without_logs_says_so(tmp_path: Path) -> None:
    async with gossiplog.shelf(tmp_path / "logs") as shelf:
        make = partial(make_http, glass=GlassSettings(has_page=True))
        async with listen([], "127.0.0.1:0", shelf=shelf.logs, make_http=make) as hub, browsing(tmp_path) as browser:
            tab = await opened(browser, f"http://127.0.0.1:{hub.port}/")
            assert "There is no log here yet" in await tab.run("document.querySelector('main').innerText")
            assert "Not Found" not in await tab.run("document.body.innerText")
            assert await tab.run("window.faults") == [] and await tab.run(UNNAMED) == []


async def test_file_of_a_graph_is_drawn_by_the_same_modules_and_as_safe(tmp_path: Path) -> None:
    nodes = [
        GraphNode(f"{n:032}", (f"{n - 1:032}",) if n else (), n + 1, f"did:key:z6Mk{n % 3}", str(text)) for n, text in enumerate(HOSTILE)
    ]
    (tmp_path / "graph.html").write_text("".join(draw_html(reversed(nodes), title="<b>of a log</b>")), "utf-8")
    async with browsing(tmp_path) as browser:
        tab = await opened(browser, (tmp_path / "graph.html").as_uri() + f"#/log/{3:032}", "document.querySelector('.details h2') !== null")
        assert await tab.run("document.querySelector('.details .payload').textContent") == HOSTILE[3]
        await tab.run("document.querySelector('.details .parents a').click()")
        await tab.wait(f"document.querySelector('.details .payload').textContent === {json.dumps(HOSTILE[2])}")
        await resize(tab, 390)
        await tab.wait("document.querySelectorAll('.log-row:not([hidden])').length > 5 && document.querySelector('.lanes').width > 30")
        assert await tab.run("document.documentElement.scrollWidth") == 390
        assert await tab.run("window.pwned ?? null") is None
        assert await tab.run("window.faults") == []
        colours = "[...document.querySelectorAll('.log-row .dot')].map((dot) => dot.style.getPropertyValue('--colour').split(' ')[2])"
        hues = {str(author_hue(node.author)) for node in nodes}
        assert {colour.rstrip(")") for colour in await tab.run(colours)} - {""} == hues


async def test_every_view_fits_every_size_and_is_reached_by_keyboard(tmp_path: Path) -> None:
    async with memory_log(1) as log:
        with observed(log, None):
            async with served(log) as hub, browsing(tmp_path) as browser:
                await log.append_many(range(50))
                tab = await opened(browser, f"http://127.0.0.1:{hub.port}/")
                for width in (390, 820, 1024, 1440):
                    await resize(tab, width)
                    for number, view in enumerate(VIEWS, 1):
                        await tab.press(str(number))
                        await tab.wait(f"document.querySelector('#view').className === 'view-{view}'")
                        await trio.sleep(0.2)
                        assert await tab.run("document.documentElement.scrollWidth") == width, (view, width)
                        assert await tab.run(SIDEWAYS) <= 0, (view, width)
                        assert await tab.run(UNNAMED) == []
                        for scheme in ("light", "dark"):
                            features = [{"name": "prefers-color-scheme", "value": scheme}]
                            await tab.command("Emulation.setEmulatedMedia", features=features)
                            assert await tab.run(PALE) == [], (view, scheme)
                await tab.press("3")
                await tab.wait("document.querySelectorAll('.log-row:not([hidden])').length > 5")
                await tab.run("document.querySelector('.log-list').focus()")
                for key in ("ArrowDown", "ArrowDown", "p", "Enter"):
                    await tab.press(key)
                oldest = [entry.id async for entry in log.iterate()]
                await tab.wait(f"location.hash === '#/log/{oldest[-4]}'")
                await tab.press("End")
                await tab.press("Enter")
                await tab.wait(f"document.querySelector('.details h2')?.textContent === '{oldest[0]}'")
                await tab.run("location.hash = '#/log?at=20'")
                await tab.wait(f"document.querySelector('.log-row.head .id')?.textContent === '{oldest[19][:12]}'")
                assert await tab.run("window.faults") == []


async def test_nothing_is_missed_while_the_server_is_away(tmp_path: Path) -> None:
    async with memory_log(1) as log, memory_log(2) as other, browsing(tmp_path) as browser:
        with observed(log, None):
            async with served(log) as hub:
                port = hub.port
                tab = await opened(browser, f"http://127.0.0.1:{port}/#/log")
                await log.append_many(range(5))
                await tab.wait("document.querySelector('.log-tools .summary').textContent === '5 entries'")
            await tab.wait("document.querySelector('#status').dataset.state !== 'live'")
            await log.append_many(range(7))
            await log.insert_many([entry.value for entry in await other.append_many(range(3))])
            async with served(log, f"127.0.0.1:{port}"):
                await tab.wait("document.querySelector('.log-tools .summary').textContent === '15 entries'")
                await log.append("live again")
                await tab.wait("document.querySelector('.log-tools .summary').textContent === '16 entries'")
                await tab.wait("document.querySelector('.log-row .text').textContent === '\"live again\"'")


async def test_asking_about_a_peer_and_what_the_doctor_finds(tmp_path: Path) -> None:
    async with memory_log(1) as log, browsing(tmp_path) as browser:
        with observed(log, None):
            async with served(log) as hub, _many_clients(hub, 1):
                seen = await log.append("seen")
                unknown = "0" * 31 + "1"
                tab = await opened(browser, f"http://127.0.0.1:{hub.port}/#/way/{unknown}")
                await tab.wait("document.querySelector('.why strong')?.textContent === 'Not here, never-heard: '")
                await tab.wait("document.querySelectorAll('.of-peer optgroup[label=Connected] option').length === 1")
                await tab.run(
                    "(() => { const choice = document.querySelector('.of-peer select'); choice.selectedIndex = 1; "
                    "choice.dispatchEvent(new Event('change')) })()"
                )
                await tab.wait(f"location.hash.startsWith('#/way/{unknown}?peer=')")
                await tab.wait("document.querySelector('.why').textContent.startsWith('Not here, ')")
                peer = await tab.run("document.querySelector('.of-peer select').value")
                # A permalink's peer stays chosen, also one that nobody knows.
                await tab.run(f"location.hash = '#/way/{unknown}?peer=<b>gone</b>'")
                await tab.wait("document.querySelector('.of-peer select').value === '<b>gone</b>'")
                await tab.wait("document.querySelector('.why strong')?.textContent === 'Not here, partition: '")
                await tab.run(f"location.hash = '#/way/{unknown}'")
                await tab.wait("document.querySelector('.of-peer select').value === ''")
                assert peer in await tab.run("[...document.querySelectorAll('.of-peer option')].map((one) => one.value)")
                await tab.run(f"location.hash = '#/way/{seen.id}'")
                await tab.wait("document.querySelector('.why').textContent.startsWith('it is here')")
                await tab.press("1")
                await tab.wait("document.querySelector('.doctor summary')?.checkVisibility()")
                found = "[...document.querySelectorAll('.doctor .severity')].map((one) => one.textContent)"
                assert set(await tab.run(found)) <= {"error", "warning", "note", "ok"}
                # Commands stand in a server's words between backticks, and here as code.
                assert "`" not in await tab.run("document.querySelector('.doctor').textContent")
            await tab.run("document.querySelector('.doctor button').click()")
            await tab.wait("document.querySelector('.doctor .summary').textContent.includes('does not answer')")
            assert await tab.run("document.querySelectorAll('.doctor .findings:not(details *) li').length") == 0
            assert await tab.run("window.faults") == []


async def test_commands_are_no_backticks_and_what_is_set_aside_is_marked(tmp_path: Path) -> None:
    def apply(entries: list[Entry], tx: object) -> None:
        for entry in entries:
            if entry.message.payload == "odd":
                raise Reject("it is odd", id=entry.id)

    async with memory_log(1, apply=apply) as log, memory_log(2) as other, browsing(tmp_path) as browser:
        with observed(log, None):
            async with served(log) as hub:
                odd, even = await other.append_many(["odd", "even"])
                await log.insert_many([even.value, odd.value])
                tab = await opened(browser, f"http://127.0.0.1:{hub.port}/#/log/{odd.id}")
                marked = "document.querySelectorAll('.log-row:not([hidden]):has(.aside:not([hidden])) .text')"
                await tab.wait(f"[...{marked}].map((one) => one.textContent).join() === '\"odd\"'")
                await tab.wait("document.querySelector('.log-side .aside')?.checkVisibility()")
                await resize(tab, 390)
                await tab.run("location.hash = '#/log'")
                await tab.wait("document.querySelector('.log-side .hint') !== null")
                assert not await tab.run("document.querySelector('.of-keys').checkVisibility()")
                await resize(tab, 1440, 900)
                assert await tab.run("document.querySelector('.of-keys').checkVisibility()")
                await tab.press("1")
                await tab.wait("document.querySelector('.doctor .advice code')?.textContent === 'gossiplog quarantine ls LOG'")
                assert "`" not in await tab.run("document.body.textContent")
                assert await tab.run("window.faults") == []


async def test_members_and_the_standing_of_an_entry_are_shown_at_every_size(tmp_path: Path) -> None:
    founder, bob, phone = SIGNERS[:3]
    async with (
        gossiplog.open(":memory:", topic="team.example.com", policy=gossiplog.Policy([founder.did]), signer=founder) as log,
        gossiplog.open(":memory:", topic=log.topic, signer=phone) as away,
        browsing(tmp_path) as browser,
    ):
        node = await log.grant(bob.did, "admin")
        device = await log.grant(phone.did, device=True, signer=bob)
        fine = await log.append("fine", signer=bob)
        await away.sync(log)
        void = await away.append("late")
        removal = await log.revoke(device.id, signer=bob)
        await log.sync(away)
        with observed(log, None):
            async with served(log) as hub:
                tab = await opened(browser, f"http://127.0.0.1:{hub.port}/")
                rows = "[...document.querySelectorAll('.members li')]"
                await tab.wait(f"{rows}.length === 3")
                assert "2 now, 1 removed" in await tab.run("document.body.textContent")
                said = await tab.run(f"{rows}.map((row) => row.textContent)")
                assert said == [
                    f"…{founder.did[-8:]} founder",
                    f"…{bob.did[-8:]} admin · {node.id[:12]}",
                    f"…{phone.did[-8:]} write, another device · {device.id[:12]} · removed by {removal.id[:12]}",
                ]
                for width in (390, 820, 1440):
                    await resize(tab, width)
                    for hash, shown in (
                        ("#/overview", "document.querySelector('.members').checkVisibility()"),
                        (f"#/log/{fine.id}", "document.querySelector('.standing')?.textContent.startsWith('Counts as data')"),
                        (f"#/log/{void.id}", "document.querySelector('.standing a:last-child')?.hash === '" + f"#/log/{removal.id}'"),
                    ):
                        await tab.run(f"location.hash = '{hash}'")
                        await tab.wait(shown)
                        assert await tab.run("document.documentElement.scrollWidth") == width
                        assert await tab.run(SIDEWAYS) <= 0
                        assert await tab.run(PALE) == []
                assert "Void as data" in await tab.run("document.querySelector('.standing').textContent")
                marked = "[...document.querySelectorAll('.log-row:not([hidden]):has(.aside:not([hidden]))')]"
                marked += ".map((row) => row.querySelector('.aside').textContent + ' ' + row.querySelector('.text').textContent).join()"
                await tab.wait(f"{marked} === 'void \"late\"'")
                # A removal that comes while somebody looks: what it makes void is marked, and so is the entry that is open.
                await tab.run(f"location.hash = '#/log/{fine.id}'")
                await tab.wait("document.querySelector('.standing')?.textContent.startsWith('Counts as data')")
                await log.revoke(node.id, keep=[])
                await tab.wait("document.querySelector('.standing').textContent.startsWith('Void as data')")
                await tab.wait(f"{marked}.split(',').filter((one) => one.startsWith('void')).length === 4")
                await log.grant(DIDS[3])
                await tab.press("1")
                await tab.wait(f"{rows}.length === 4")
                assert await tab.run("window.faults") == []


async def test_100000_entries_stay_fluid(tmp_path: Path) -> None:
    async with memory_log(1) as log, memory_log(2) as other:
        for number in range(50):
            entries = await log.append_many([{"n": number, "text": "entry"}] * 1_900)
            await log.insert_many([entry.value for entry in await other.append_many([number] * 100)])
            if number % 10 == 9:
                await other.insert_many([entry.value for entry in entries[:1]])
        with observed(log, None):
            async with served(log) as hub, browsing(tmp_path) as browser:
                tab = await opened(browser, f"http://127.0.0.1:{hub.port}/#/log")
                await resize(tab, 1440, 900)
                await tab.wait("document.querySelector('.log-tools .summary').textContent === '100,000 entries'")
                scroll = "const list = document.querySelector('.log-list'); list.scrollTop += 9000 + frames"
                assert await frame_cpu_s(tab, scroll, "100,000 entries scrolled") < FRAME_CPU_S
                await tab.run("document.querySelector('.log-list').scrollTop = 1e9")
                await tab.wait("[...document.querySelectorAll('.log-row')].some((row) => row.ariaPosInSet === '100000')")
                assert await tab.run("window.faults") == []


async def test_200_peers_stay_fluid(tmp_path: Path) -> None:
    async with memory_log(1) as log:
        with observed(log, None):
            async with served(log) as hub, browsing(tmp_path) as browser, trio.open_nursery() as nursery:
                tab = await opened(browser, f"http://127.0.0.1:{hub.port}/#/network")
                await resize(tab, 1440, 900)
                async with _many_clients(hub, 200):
                    nursery.start_soon(_append_forever, log)
                    await tab.wait("document.querySelectorAll('.peers li').length === 201")
                    assert await frame_cpu_s(tab, "", "200 peers, 20 appends a second") < FRAME_CPU_S
                    assert await tab.run("window.faults") == []
                nursery.cancel_scope.cancel()


@asynccontextmanager
async def _many_clients(hub: Hub, count: int) -> AsyncIterator[None]:
    """So many real connections of clients that say nothing."""
    from trio_websocket import open_websocket_url

    async with trio.open_nursery() as nursery:

        async def connect(task_status: trio.TaskStatus[None]) -> None:
            async with open_websocket_url(hub.urls[0]):
                task_status.started()
                await trio.sleep_forever()

        for _ in range(count):
            await nursery.start(connect)
        yield
        nursery.cancel_scope.cancel()


async def _append_forever(log: Any) -> None:
    number = 0
    while True:
        await log.append(number)
        number += 1
        await trio.sleep(0.05)
