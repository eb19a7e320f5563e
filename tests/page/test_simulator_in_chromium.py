"""Traces in the page: played beside each other, with the trees that episub made, and what real processes did; fluid with 1,000 peers."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from chromium import CHROMIUM, Tab
from page_support import FRAME_CPU_S, browsing, frame_cpu_s, opened, resize

from gossiplog.net.hub.server import listen
from gossiplog.web.glass.trace_site import TraceSite

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed: `apt-get install chromium`"),
]
FIGURES = "[...document.querySelectorAll('.pane')].map((pane) => pane.querySelector('.summary').textContent)"
HEADINGS = "[...document.querySelectorAll('.pane h2')].map((one) => one.textContent)"


async def simulate(scenario: str, trace: Path, *options: str) -> None:
    command = [sys.executable, "-m", "gossiplog", "sim", "run", scenario, "--trace", str(trace), *options]
    await trio.run_process(command, capture_stdout=True, capture_stderr=True)


@asynccontextmanager
async def playing(folder: Path, *traces: Path) -> AsyncIterator[Tab]:
    """The page that `gossiplog sim play` serves, once it has read the traces."""
    async with listen((), "127.0.0.1:0", make_http=TraceSite(traces).make_http) as hub, browsing(folder) as browser:
        tab = await opened(browser, f"http://127.0.0.1:{hub.port}/")
        await resize(tab, 1440, 900)
        await tab.wait(f"{FIGURES}.filter((words) => words !== '').length === {len(traces)}")
        yield tab
        assert await tab.run("window.faults") == []


async def go_to_the_end(tab: Tab) -> None:
    await tab.run(
        "(() => { const slider = document.querySelector('.player input'); slider.value = slider.max; "
        "slider.dispatchEvent(new Event('input')) })()"
    )


async def test_two_routers_are_played_on_one_clock_and_episubs_tree_is_seen(tmp_path: Path) -> None:
    traces = [tmp_path / f"{router}.jsonl" for router in ("gossipsub", "episub")]
    for trace in traces:
        await simulate("dense", trace, "--nodes", "40", "--router", trace.stem, "--set", "publish.messages=20")
    async with playing(tmp_path, *traces) as tab:
        assert await tab.run("[...document.querySelectorAll('nav a')].filter((one) => one.checkVisibility()).length") == 1
        assert [words.split(" · ")[0] for words in await tab.run(HEADINGS)] == ["gossipsub", "episub"]
        await go_to_the_end(tab)
        await tab.wait(f"{FIGURES}.every((words) => words.includes('20 published, 100.0 % delivered'))")
        # A tree sends each message little more than once; a mesh sends it as often as it has links.
        copies = [float(words.split(" copies")[0].split()[-1]) for words in await tab.run(FIGURES)]
        assert 2 * copies[1] < copies[0]
        for number, pane in enumerate(("First trace", "Second trace")):
            await tab.run(
                f"(() => {{ const box = document.querySelector('.pane[aria-label=\"{pane}\"] input[type=number]'); box.value = 7; "
                "box.dispatchEvent(new Event('input')) })()"
            )
            await tab.wait(f"/ [1-9][0-9]* for messages/.test(document.querySelectorAll('.of-chosen')[{number}].textContent)")
        lazy = "Number(document.querySelectorAll('.of-chosen')[1].textContent.match(/, (\\d+) for announcements/)[1])"
        assert await tab.run(lazy) > 0
        await tab.run(
            "(() => { const lines = document.querySelector('[aria-label=Lines]'); lines.value = 'way'; "
            "lines.dispatchEvent(new Event('change')) })()"
        )
        await tab.run("[...document.querySelectorAll('.player button')].find((one) => one.textContent === 'Previous message').click()")
        await tab.wait(f"{FIGURES}.every((words) => words.includes('19 published'))")


async def test_what_real_processes_did_is_played_beside_the_simulation_of_it(tmp_path: Path) -> None:
    simulated, real = tmp_path / "simulated.jsonl", tmp_path / "facts.jsonl"
    await simulate("sparse", simulated, "--nodes", "3", "--set", "topology.connect=2", "--set", "publish.messages=1")
    head = {"scenario": "topic", "router": "gossipsub"}
    facts = [
        {"time_s": 1000.0, "kind": "connect", "node": "A" * 20, "peer": "<b>B</b>"},
        {"time_s": 1001.5, "kind": "deliver", "node": "A" * 20, "message": "m0", "way": "http"},
        {"time_s": 1001.6, "kind": "deliver", "node": "<b>B</b>", "peer": "A" * 20, "message": "m0", "way": "gossip"},
        {"time_s": 1001.4, "kind": "graft", "node": "A" * 20, "peer": "<b>B</b>", "type": "ours"},
        {"time_s": 1001.7, "kind": "root", "node": "<b>B</b>", "message": "abcdef01" * 4, "count": 1},
        {"time_s": 1002.0, "kind": "fault", "node": "testnet", "type": "partition"},
    ]
    lines = [json.dumps({**head, "seq": seq, **fact}) for seq, fact in enumerate(facts)]
    real.write_text("\n".join([*lines, "no fact", ""]))
    async with playing(tmp_path, simulated, real) as tab:
        assert (await tab.run(HEADINGS))[1] == "gossipsub · topic · real processes"
        assert await tab.run("document.querySelectorAll('.pane .hint')[1].textContent") == "1 line could not be read."
        await go_to_the_end(tab)
        await tab.wait(f"{FIGURES}[1].startsWith('2 peers · 1 published, 100.0 % delivered')")
        assert "latency p50 100 ms" in (await tab.run(FIGURES))[1]
        assert "partition" in (await tab.run(FIGURES))[1]


async def test_1000_simulated_peers_are_played_at_30_frames_a_second(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    await simulate("sparse", trace, "--nodes", "1000", "--set", "publish.messages=20")
    async with playing(tmp_path, trace) as tab:
        await tab.run("document.querySelector('[aria-label=Speed]').value = '0.5'")
        await tab.run("document.querySelector('.player button').click()")
        assert await frame_cpu_s(tab, "", "1,000 simulated peers") < FRAME_CPU_S
        await tab.wait("/ [1-9][0-9]* published/.test(document.querySelector('.pane .summary').textContent)")
