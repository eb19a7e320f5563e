"""Servers in the meshes of many topics: connections, and CPU while nothing happens, beside the same servers in one topic.

    python -m benchmarks.mesh_topics [--peers 8] [--topics 50] [--seconds 30] [--turns 3]

All servers are in this process, on loopback, with logs in memory; each dials the first. Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from contextlib import AsyncExitStack

import trio

import gossiplog
from gossiplog import Ed25519Signer
from gossiplog.net.libp2p import Address, PeerKey
from gossiplog.net.mesh import Mesh, MeshConfig, open_mesh_host, router_of
from gossiplog.net.service.pubsub_host import PubsubHost

_SETTLE_S = 15.0


def main() -> None:
    parser = argparse.ArgumentParser(prog="mesh_topics")
    parser.add_argument("--peers", type=int, default=8)
    parser.add_argument("--topics", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    turns = [[trio.run(_idle, options.peers, topics, options.seconds) for topics in (1, options.topics)] for _ in range(options.turns)]
    one, many = ([turn[index] for turn in turns] for index in (0, 1))
    ratio = statistics.median(run["cpu_share"] for run in many) / statistics.median(run["cpu_share"] for run in one)
    print(json.dumps({"load": os.getloadavg()[0], "one": one, "many": many, "idle_cpu_ratio": ratio}, indent=1))


async def _idle(peers: int, topics: int, seconds: float) -> dict[str, float]:
    """Say what so many servers in so many topics need while nothing is appended."""
    names = [f"room-{number}.example.com" for number in range(topics)]
    async with AsyncExitStack() as stack:
        meshes: list[Mesh] = []
        for _ in range(peers):
            bootstrap = meshes[0].host.announced if meshes else ()
            key, config = PeerKey.generate(), MeshConfig(listen=(Address.parse("/ip4/127.0.0.1/tcp/0"),), bootstrap=bootstrap)
            mesh = await stack.enter_async_context(open_mesh_host(PubsubHost(key.id, router_of(config)), key, config))
            meshes.append(mesh)
            for name in names:
                log = await stack.enter_async_context(gossiplog.open(":memory:", topic=name, signer=Ed25519Signer.generate()))
                await stack.enter_async_context(mesh.joined(log))
        with trio.fail_after(120):
            while not all(_is_settled(mesh, topics, peers) for mesh in meshes):
                await trio.sleep(0.2)
        await trio.sleep(_SETTLE_S)
        began = time.process_time()
        await trio.sleep(seconds)
        used = time.process_time() - began
        return {"topics": topics, "connections": sum(len(mesh.host.peerings) for mesh in meshes) / 2, "cpu_share": used / seconds}


def _is_settled(mesh: Mesh, topics: int, peers: int) -> bool:
    states = mesh.pubsub.shared.router.state().topics
    return len(mesh.host.peers) == peers - 1 and sum(bool(state.full_message) for state in states) == topics


if __name__ == "__main__":
    main()
