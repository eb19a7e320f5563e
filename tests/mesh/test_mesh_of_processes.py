"""Sixteen peers as processes, which know one of them at first: every append reaches all, and crashes under load cost nothing."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from mesh_cluster import Cluster, ClusterPeer, States, is_converged, open_cluster

pytestmark = pytest.mark.slow

PEERS = 16
TARGET = 8


def is_meshed(states: States) -> bool:
    """Everybody has found others than the one that it knew, and is in the mesh with enough of them."""
    return all(state["peers"] >= TARGET // 2 and state["degree"] >= 4 for state in states)


async def append(cluster: Cluster, count: int, interval_s: float) -> None:
    for peer in cluster.peers:
        if peer.is_running:
            await peer.ask("append", count=count, interval_s=interval_s)


async def use(cluster: Cluster) -> None:
    """Append everywhere at once, and see everything arrive everywhere."""
    await cluster.until(is_meshed, wait_s=60)
    await append(cluster, count=10, interval_s=0.2)
    states = await cluster.until(lambda states: is_converged(states, 10 * PEERS), wait_s=60)
    # They found each other, and not the bootstrap peer alone.
    assert sum(state["peers"] for state in states) >= PEERS * TARGET // 2
    latencies = [latency for peer in cluster.peers for latency in await peer.ask("latencies")]
    assert len(latencies) == 10 * PEERS * (PEERS - 1)


async def test_every_append_reaches_all_and_crashes_under_load_cost_nothing(tmp_path: Path) -> None:
    rng = Random(1)
    async with open_cluster(tmp_path, PEERS, "--target", str(TARGET)) as cluster:
        await use(cluster)
        await append(cluster, count=40, interval_s=0.2)
        killed: list[ClusterPeer] = []
        for _ in range(2):
            # Those that come back know the first one alone, so it stays.
            victims = rng.sample(cluster.peers[1:], 4)
            killed += victims
            for peer in victims:
                await peer.kill()
            for peer in victims:
                await cluster.start(peer)
        states = await cluster.until(is_converged, wait_s=90)
        # Whoever was not killed appended all of its own; what a killed one had told anybody is there as well.
        assert states[0]["count"] >= 10 * PEERS + 40 * (PEERS - len(set(killed)))
        assert not any(state["counts"].get("entries rejected") for state in states)


async def test_every_append_reaches_all_by_episub(tmp_path: Path) -> None:
    async with open_cluster(tmp_path, PEERS, "--target", str(TARGET), "--router", "episub") as cluster:
        await use(cluster)
