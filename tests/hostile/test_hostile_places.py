"""Attacks on the places that a hub or a mesh peer has for connections."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
import trio
from network_support import memory_log, until_has

from gossiplog import GossipLog
from gossiplog.errors import GossipLogError
from gossiplog.net import Connection, open_muxed
from gossiplog.net.ground import admission as admission_module
from gossiplog.net.ground.admission import HubLimits
from gossiplog.net.hub.client import open_websocket, parse_url
from gossiplog.net.hub.server import Hub
from gossiplog.net.libp2p import Address, Host, Peering, PeerKey
from gossiplog.net.mesh import MeshConfig, open_mesh
from gossiplog.pubsub.types import PeerId

PLACES = 40
LISTEN = (Address.parse("/ip4/127.0.0.1/tcp/0"),)
PATIENCE_S = 60.0


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission_module, "IDLE_S", 0.2)


@asynccontextmanager
async def idle(hub: Hub) -> AsyncIterator[Connection]:
    websocket = await open_websocket(parse_url(hub.urls[0]))
    async with open_muxed(websocket, is_client=True, peer=PeerId("hub")) as connection:
        yield connection


async def fill(hub: Hub, nursery: trio.Nursery) -> list[Connection]:
    """Take all places, and take them again whenever one is lost."""
    held: list[Connection] = []

    async def hold(task_status: trio.TaskStatus[None]) -> None:
        async with idle(hub) as connection:
            held.append(connection)
            task_status.started()
            await connection.wait_ended()

    for _ in range(PLACES):
        await nursery.start(hold)
    return held


async def test_idle_connections_that_fill_a_hub_give_way_to_an_honest_client() -> None:
    limits = HubLimits(connections_max=PLACES)
    async with memory_log(1) as hub_log, hub_log.listen("127.0.0.1:0", limits=limits) as hub, trio.open_nursery() as nursery:
        await fill(hub, nursery)
        assert hub.admission.open == PLACES
        async with memory_log(2) as honest, honest.connect(hub.urls[0]):
            entry = await honest.append({"from": "honest"})
            with trio.fail_after(PATIENCE_S):
                await until_has(hub_log, [entry])
            assert hub.admission.open <= PLACES
        nursery.cancel_scope.cancel()


async def test_client_that_delivered_is_not_driven_out_by_idle_ones() -> None:
    limits = HubLimits(connections_max=PLACES)
    async with (
        memory_log(1) as hub_log,
        memory_log(2) as honest,
        hub_log.listen("127.0.0.1:0", limits=limits) as hub,
        honest.connect(hub.urls[0]) as link,
        trio.open_nursery() as nursery,
    ):
        with trio.fail_after(PATIENCE_S):
            await until_has(hub_log, [await honest.append(1)])
            for _ in range(3):
                with suppress(GossipLogError):
                    await fill(hub, nursery)
                await trio.sleep(0.3)
            await until_has(hub_log, [await honest.append(2)])
        assert link.attempts == 1
        nursery.cancel_scope.cancel()


async def join(log: GossipLog, attacked: Address) -> None:
    async with open_mesh(log, PeerKey.generate(), MeshConfig(bootstrap=(attacked,), target=1)):
        await trio.sleep_forever()


async def test_idle_connections_that_fill_a_mesh_peer_give_way_to_an_honest_peer() -> None:
    async def keep(peering: Peering) -> None:
        await trio.sleep_forever()

    config = MeshConfig(listen=LISTEN, limits=HubLimits(connections_max=8))
    async with (
        memory_log(1) as log,
        open_mesh(log, PeerKey.generate(), config) as mesh,
        memory_log(2) as honest,
        trio.open_nursery() as nursery,
    ):
        address = mesh.host.addresses[0]

        async def hold(task_status: trio.TaskStatus[None]) -> None:
            async with Host(PeerKey.generate(), serve=keep, handlers={}).listening(()) as host:
                await host.connect(mesh.host.id, [address])
                task_status.started()
                await trio.sleep_forever()

        for _ in range(8):
            await nursery.start(hold)
        entry = await honest.append({"from": "honest"})
        nursery.start_soon(join, honest, address.of(mesh.host.id))
        with trio.fail_after(PATIENCE_S):
            await until_has(log, [entry])
        nursery.cancel_scope.cancel()
