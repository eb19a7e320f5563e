"""The scene that the project began with: eight peers, two of them browsers with the reference's client, whose colours part and meet."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from glass_support import way_of

from gossiplog.net.hub.server import listen
from gossiplog.sim.scenario import CastSpec, LatencySpec, Scenario, TopologySpec
from gossiplog.testnet import Testnet as Network
from gossiplog.testnet import open_testnet
from gossiplog.testnet.asking import ask_json
from gossiplog.testnet.site import Site

sys.path.insert(0, str(Path(__file__).parents[1] / "facade"))
from chromium import open_browser

pytestmark = pytest.mark.slow

PATIENCE_S = 120.0
PEERS = "[...document.querySelectorAll('ul.peers button')]"
REFERENCES = (Path(__file__).parents[1] / "interop", Path(__file__).parent)
SCENE = Scenario(
    "scene",
    nodes=8,
    topology=TopologySpec(connect=4),
    latency=LatencySpec(low_s=0.002, high_s=0.020),
    testnet=CastSpec(clients=1, browsers=2),
)


async def until(holds: Callable[[], bool], network: Network) -> None:
    with trio.move_on_after(PATIENCE_S):
        while not holds():
            await trio.sleep(0.05)
    assert holds(), ([(member.name, member.root[:4], member.entries) for member in network.members], network.groups())


async def test_colours_part_and_meet_again_and_an_entry_of_one_click_is_everywhere(installed_browser: None, tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    actions: list[dict[str, Any]] = []
    async with (
        open_testnet(SCENE, tmp_path / "net", references=REFERENCES, tell=actions.append) as network,
        listen((), "127.0.0.1:0", make_http=Site(network).make_http) as hub,
    ):
        place = hub.addresses[0]

        async def do(action: str, **order: Any) -> Any:
            return await ask_json(place, "/api/glass/do", json.dumps({"action": action, **order}).encode())

        async def colours() -> dict[str, str]:
            return {node["name"]: node["root"] for node in await ask_json(place, "/api/glass/nodes")}

        def are_equal(entries: int) -> bool:
            return network.is_converged() and all(member.entries == entries for member in network.members)

        assert [member.kind for member in network.members].count("browser") == 2
        for member in network.members:
            await do("append", node=member.name)
        await until(lambda: are_equal(8), network)
        assert len(set((await colours()).values())) == 1

        # Two groups, each with whoever hangs on its hubs.
        left = {0, 1}
        left |= {member.number for member in network.members if member.kind != "server" and member.dials[0] in left}
        right = set(range(8)) - left
        await do("partition", nodes=sorted(left))
        for side in (left, right):
            for number in sorted(side):
                await do("append", node=number)
        await until(lambda: all(member.entries == 8 + len(left if member.number in left else right) for member in network.members), network)
        parted = await colours()
        assert len(set(parted.values())) == 2
        assert len({parted[network.members[number].name] for number in left}) == 1
        groups = {node["number"]: node["group"] for node in await ask_json(place, "/api/glass/nodes")}
        assert len({groups[number] for number in left}) == len({groups[number] for number in right}) == 1

        await do("heal")
        await until(lambda: are_equal(16), network)
        assert len(set((await colours()).values())) == 1

        # In the page: choose what a click does, click a peer, and look at the entry's way.
        async with open_browser(tmp_path / "watcher") as watcher:
            tab = await watcher.open(f"http://{place[0]}:{place[1]}/#/network")
            with trio.fail_after(PATIENCE_S):
                await tab.wait(f"{PEERS}.length === 8 && !document.querySelector('.controls').hidden")
                await tab.wait(f"new Set({PEERS}.map(peer => peer.firstElementChild.style.getPropertyValue('--colour'))).size === 1")
                await tab.run("document.querySelector('input[name=tool][value=append]').click()")
                await tab.run(f"{PEERS}.find(peer => peer.textContent.includes('server-3')).click()")
            await until(lambda: are_equal(17), network)
            entry = actions[-1]["entry"]
            facts = network.watching.board.facts
            await until(lambda: len([had for had in way_of(entry, facts()) if had.at_s is not None]) == 8, network)
            with trio.fail_after(PATIENCE_S):
                await tab.run(f"location.hash = '#/way/{entry}'")
                await tab.wait("document.querySelectorAll('.way-chart .way-how').length === 8")
            shown = await tab.run("[...document.querySelectorAll('.way-chart .way-how')].map(cell => cell.textContent.match(/[a-z]+/)[0])")
        way = {str(had.node): had for had in way_of(entry, facts())}
        assert sorted(shown) == sorted(had.way for had in way.values())
        assert set(way) == {member.node for member in network.members}
        assert way[network.member("server-3").node].way == "http"
        for member in network.members:
            had = way[member.node]
            if member.name != "server-3":
                assert had.way in ("gossip", "push", "sync", "reconcile"), had
                assert had.peer in way, had
            if member.kind in ("client", "browser"):
                assert had.peer == network.members[member.dials[0]].node
    assert not (tmp_path / "net").exists()
