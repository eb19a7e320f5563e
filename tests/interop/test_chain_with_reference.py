"""Lines of servers and clients of both implementations: an entry of any of them arrives at all others without another event to help it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from math import inf

import pytest
import trio
from interop_support import TOPIC, Reference, run_reference
from mesh_interop_support import until
from ports import free_port

import gossiplog
from gossiplog import Ed25519Signer, GossipLog
from gossiplog.codec import pcf
from gossiplog.net.libp2p import Address, PeerKey
from gossiplog.net.mesh import MeshConfig, open_mesh
from gossiplog.net.service import service

pytestmark = pytest.mark.slow

WS = "/ip4/127.0.0.1/tcp/0/ws"
WAIT_S = 60.0


class Place:
    """One log of the line.

    Attributes:
        append: Appends a payload of so many bytes.
        state: Returns how many entries it has, and its root's hash.
    """

    def __init__(self, name: str, append: Callable[[int], Awaitable[object]], state: Callable[[], Awaitable[tuple[int, str]]]) -> None:
        self.name = name
        self.append = append
        self.state = state


def encoded(size: int) -> str:
    return pcf.encode(bytes(size)).hex()


def our_place(name: str, log: GossipLog) -> Place:
    async def state() -> tuple[int, str]:
        return await log.count(), (await log.root()).hash.hex()

    return Place(name, lambda size: log.append(bytes(size)), state)


def hub_place(node: Reference, name: str) -> Place:
    async def state() -> tuple[int, str]:
        found = await node.ask("state", log=name)
        assert found["faults"] == [], (name, found["faults"])
        return found["count"], found["root"]["hash"]

    return Place(name, lambda size: node.ask("append", log=name, payloads=[encoded(size)]), state)


def mesh_place(node: Reference) -> Place:
    async def state() -> tuple[int, str]:
        found = await node.ask("state")
        return found["count"], found["root"]["hash"]

    return Place("reference mesh", lambda size: node.ask("append", seed="09" * 32, payloads=[encoded(size)]), state)


@asynccontextmanager
async def line() -> AsyncIterator[list[Place]]:
    """reference mesh ↔ our mesh peer and hub B (a reference client of it) → reference hub ← our hub C (a reference client of it)."""
    async with AsyncExitStack() as stack:
        nodes = {name: await stack.enter_async_context(run_reference("hub.mjs")) for name in ("hub", "client of B", "client of C")}
        mesh = await stack.enter_async_context(run_reference("mesh.mjs"))
        for number, (name, node) in enumerate(nodes.items(), 1):
            await node.ask("open", log=name, topic=TOPIC, seed=f"{number:02x}" * 32)
        await mesh.ask("open", topic=TOPIC)
        url = f"ws://127.0.0.1:{(port := free_port())}"
        await nodes["hub"].ask("listen", log="hub", port=port)
        logs = {}
        for number, name in enumerate(("B", "C"), 7):
            options = {"signer": Ed25519Signer.from_seed(bytes([number]) * 32), "value_bytes_max": 2**21}
            logs[name] = await stack.enter_async_context(gossiplog.open(":memory:", topic=TOPIC, **options))
        config = MeshConfig(listen=(Address.parse(WS),), walk_s=3600)
        peer = await stack.enter_async_context(open_mesh(logs["B"], PeerKey.generate(), config))
        await mesh.ask("start", listen=[WS])
        await mesh.ask("dial", address=str(peer.host.announced[0]))
        for name, log in logs.items():
            hub = await stack.enter_async_context(log.listen("127.0.0.1:0"))
            link = await stack.enter_async_context(log.connect(url))
            await link.wait_connected()
            await nodes[f"client of {name}"].ask("connect", log=f"client of {name}", url=hub.urls[0])
            neighbours, running = 3 if name == "B" else 2, service.service_of(log)
            assert running is not None
            with trio.fail_after(WAIT_S):
                while sum(each.is_pushing for each in running.links()) < neighbours:
                    await trio.sleep(0.02)
        yield [
            *(our_place(name, log) for name, log in logs.items()),
            *(hub_place(node, name) for name, node in nodes.items()),
            mesh_place(mesh),
        ]


@pytest.mark.parametrize("size", [100, 1_100_000])
async def test_entry_of_any_place_arrives_at_all_others(installed_reference: None, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(service, "Broadcast", partial(service.Broadcast, tell_again_s=inf))
    async with line() as places:
        # The mesh grafts within a heartbeat, and tells what came before once more after three seconds.
        await trio.sleep(3.5)
        for count, place in enumerate(places, 1):
            await place.append(size)
            _, root = await place.state()
            for other in places:

                async def is_equal(other: Place = other, count: int = count, root: str = root) -> bool:
                    return await other.state() == (count, root)

                try:
                    await until(is_equal, WAIT_S)
                except trio.TooSlowError:
                    pytest.fail(f"the entry of {place.name} did not arrive at {other.name}: {await other.state()}, expected {count}")
