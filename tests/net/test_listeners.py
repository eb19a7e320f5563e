"""Several listeners of one log: whoever came by one of them is held to its rules, whatever the others allow."""

from __future__ import annotations

import json
import socket
from contextlib import AsyncExitStack
from typing import Any

import pytest
import trio
from hostile_client import muxed, push, push_stream
from network_support import TOPIC, eventually, fetch, memory_log, signer, until_has
from ports import free_port
from wsproto import ConnectionType, WSConnection
from wsproto.events import Request

from gossiplog import Entry
from gossiplog.archive import entry_to_line
from gossiplog.net.ground.access import Access
from gossiplog.net.ground.admission import Admission, HubLimits
from gossiplog.net.hub.server import Hub, listen
from gossiplog.web import make_http


def rules(**default: Any) -> HubLimits:
    return HubLimits(access=Access.parse({"default": default}))


async def post(hub: Hub, entry: Entry | bytes, path: str = "/api/messages") -> int:
    body = entry if isinstance(entry, bytes) else entry_to_line(entry)
    return (await fetch(hub, path, method="POST", headers={"content-type": "application/json"}, body=body)).status


@pytest.mark.parametrize("is_strict_first", [True, False])
async def test_each_listener_keeps_its_rules_by_push_by_sync_and_by_post(is_strict_first: bool) -> None:
    pair = [rules(allow=[signer(2).did]), rules()]
    first, second = pair if is_strict_first else pair[::-1]
    async with (
        memory_log(1) as log,
        memory_log(2) as friend,
        memory_log(3) as foe,
        log.listen("127.0.0.1:0", limits=first) as one,
        log.listen("127.0.0.1:0", limits=second) as other,
    ):
        strict, lax = (one, other) if is_strict_first else (other, one)
        verdicts = strict.services[TOPIC].figures.verdicts
        pulled = await foe.append("there before, for a sync")
        async with foe.connect(strict.urls[0]), friend.connect(strict.urls[0]):
            await eventually(lambda: len(strict.links()) == 2 and all(link.is_pushing for link in strict.links()))
            await eventually(lambda: verdicts["sync", "ignore", "unwelcome"])
            await foe.append("pushed")
            await until_has(log, [await friend.append("welcome")])
            assert await post(strict, await foe.append("posted")) == 403
            await eventually(lambda: verdicts["push", "ignore", "unwelcome"])
            assert await log.count() == 1
        async with foe.connect(lax.urls[0]):
            await until_has(log, [pulled])
            assert await post(lax, await foe.append("posted to the other")) == 201


async def test_orphan_that_outlives_its_connection_is_judged_by_the_rules_that_it_came_under() -> None:
    changing = rules(allow=[signer(2).did, signer(3).did])
    async with (
        memory_log(1) as log,
        memory_log(2) as friend,
        memory_log(3) as foe,
        log.listen("127.0.0.1:0", limits=changing) as strict,
        log.listen("127.0.0.1:0") as lax,
    ):
        parent = await friend.append("parent")
        await foe.insert(parent.value)
        child = await foe.append("child")
        service = strict.services[TOPIC]
        async with muxed(strict) as connection:
            await push(await push_stream(connection), [child])
            await eventually(lambda: service.machine.state().sizes["orphans"])
        await eventually(lambda: not strict.links())
        changing.access.replace(rules(allow=[signer(2).did]).access)
        assert await post(lax, parent) == 201
        await eventually(lambda: not service.machine.state().sizes["orphans"])
        await eventually(lambda: service.figures.verdicts["push", "ignore", "unwelcome"])
        assert await log.count() == 1
        assert await post(lax, child) == 201


async def test_two_connections_from_one_port_are_two_peers_with_rights_of_their_own() -> None:
    watched = rules(anonymous=["connect", "pull"])
    async with memory_log(1) as log, log.listen("127.0.0.1:0", limits=watched) as strict, log.listen("127.0.0.1:0") as lax:
        service, port = strict.services[TOPIC], free_port()
        async with AsyncExitStack() as stack:
            for hub in (lax, strict):
                raw = socket.socket()
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                raw.bind(("127.0.0.1", port))
                raw.connect(("127.0.0.1", hub.port))
                stream = trio.SocketStream(trio.socket.from_stdlib_socket(raw))
                stack.push_async_callback(stream.aclose)
                await stream.send_all(WSConnection(ConnectionType.CLIENT).send(Request(host="localhost", target="/")))
                # Its name is its own for as long as it is there.
                await eventually(lambda: len(service.peers) == (1 if hub is lax else 2))
            assert {name: "push" in peer.rights for name, peer in service.peers.items()} == {
                f"ws://127.0.0.1:{port}": True,
                f"ws://127.0.0.1:{port}#2": False,
            }
        await eventually(lambda: not service.peers)
        with service.host.named(f"ws://127.0.0.1:{port}") as again:
            assert again == f"ws://127.0.0.1:{port}"


async def test_forgeries_of_an_address_are_counted_once_whatever_the_path_and_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Admission, "is_exempt", lambda self, address: False)
    async with memory_log(1) as log, memory_log(1, "two.example.com") as second, listen([log], "127.0.0.1:0", make_http=make_http) as hub:
        forged = json.loads(entry_to_line(await log.append(1)))
        signature = forged["signature"]["signature"]["/"]
        signature["bytes"] = ("C" if signature["bytes"][0] == "B" else "B") + signature["bytes"][1:]
        body = json.dumps(forged).encode()
        paths = ["/api/messages", f"/{TOPIC}/api/messages"] * 2
        assert [await post(hub, body, path) for path in paths] == [400] * 4
        # The routes are made anew, and whoever posted is the same.
        async with hub.logs.pinned(second):
            assert await post(hub, body, f"/{TOPIC}/api/messages") == 400
            assert [await post(hub, body, f"/{topic}/api/messages") for topic in (TOPIC, "two.example.com")] == [429, 429]
