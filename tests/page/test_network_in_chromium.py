"""The page of a test network of real processes: what it asks, and how it shows a peer that is down and what one may do."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from chromium import CHROMIUM
from page_support import SIDEWAYS, browsing, opened, resize

from gossiplog.net.hub.server import listen
from gossiplog.sim.scenario import LatencySpec, Scenario, TopologySpec
from gossiplog.testnet import open_testnet
from gossiplog.testnet.site import Site

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed: `apt-get install chromium`"),
]
ASKED = "performance.getEntriesByType('resource').map((one) => new URL(one.name).pathname)"
BUTTONS = "[...document.querySelectorAll('.orders label, .orders button:not([hidden])')]"
ROWS = f"new Set({BUTTONS}.map((one) => Math.round(one.getBoundingClientRect().top / 9))).size"


async def test_page_asks_only_for_what_is_there_and_shows_who_is_down(tmp_path: Path) -> None:
    scenario = Scenario("test", nodes=3, topology=TopologySpec(connect=4), latency=LatencySpec(low_s=0.001, high_s=0.005))
    folder = tmp_path / "network"
    folder.mkdir()
    async with (
        open_testnet(scenario, folder) as network,
        listen((), "127.0.0.1:0", make_http=Site(network).make_http) as hub,
        browsing(tmp_path) as browser,
    ):
        name = network.members[2].name
        await network.kill(network.members[2])
        tab = await opened(browser, f"http://127.0.0.1:{hub.port}/#/network")
        await tab.wait("document.querySelectorAll('.peers .dot.down').length === 1")
        assert await tab.run("document.querySelector('.peers button:has(.down) .peer-name').textContent") == f"{name}, down"
        # It reads every two seconds who is there.
        await tab.wait(f"{ASKED}.filter((path) => path === '/api/glass/nodes').length >= 3")
        await tab.run("location.hash = '#/way/00000000000000000000000000000001'")
        await tab.wait("document.querySelector('#view').className === 'view-way'")
        await trio.sleep(0.5)
        asked = await tab.run(ASKED)
        assert asked.count("/api/peers") <= 1
        assert "/api/aside" not in asked
        await tab.run("location.hash = '#/network'")
        await resize(tab, 390)
        await tab.wait("document.querySelector('.orders')?.checkVisibility()")
        assert await tab.run("document.documentElement.scrollWidth") == 390
        assert await tab.run(SIDEWAYS) <= 0
        assert await tab.run(ROWS) == 1
        assert await tab.run("window.faults") == []
