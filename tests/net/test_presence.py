"""Presence over real sockets: through a hub, through a chain of hubs and a mesh, with members, and beside those who flood."""

from __future__ import annotations

import time
from typing import Any

import pytest
import trio
from access_support import DIDS, SIGNERS
from mesh_support import TCP, a_peer
from network_support import eventually, memory_log, signer
from presence_support import author

import gossiplog
from gossiplog import GossipLog, Policy
from gossiplog.broadcast.events import PeerKind
from gossiplog.errors import ClosedError, LocalProtocolError
from gossiplog.net.ground.access import Access, LogAccess, Rights
from gossiplog.net.ground.admission import HubLimits
from gossiplog.net.ground.protocol_ids import presence_protocol
from gossiplog.net.hub.client import open_hub_connections, parse_url
from gossiplog.net.service.service import open_service
from gossiplog.presence.messages import sign_statement

ANN, BEN = signer(2).did, signer(3).did


async def shows(log: GossipLog, states: dict[str, dict[str, Any]]) -> None:
    await eventually(lambda: log.presence.states == states)


async def test_clients_of_a_hub_see_each_other_and_who_goes() -> None:
    async with memory_log(1) as log, log.listen("127.0.0.1:0") as hub, memory_log(3) as ben, ben.connect(hub.urls[0]):
        async with memory_log(2) as ann, ann.connect(hub.urls[0]):
            await ann.presence.set({"cursor": 5, "name": "Ann"})
            await shows(ben, {ANN: {"cursor": 5, "name": "Ann"}})
            await ben.presence.set({"typing": True}, ttl_s=60)
            await shows(ann, {ANN: {"cursor": 5, "name": "Ann"}, BEN: {"typing": True}})
            await ann.presence.set({"cursor": None})
            await shows(log, {ANN: {"name": "Ann"}, BEN: {"typing": True}})
            await ben.presence.leave()
            await shows(ann, {ANN: {"name": "Ann"}})
        await shows(ben, {})
    with pytest.raises(ClosedError):
        await ann.presence.set({"cursor": 1})
    async with memory_log(4) as none:
        for arguments in ({"states": {}}, {"states": {"x": 1}, "ttl_s": 61}, {"states": {"x": 1}, "ttl_s": 0}, {"states": {"": 1}}):
            with pytest.raises(LocalProtocolError):
                await none.presence.set(**arguments)


async def test_changes_begin_with_what_is_and_a_slow_reader_gets_the_newest() -> None:
    async with memory_log(1) as log, log.listen("127.0.0.1:0") as hub, memory_log(2) as ann, ann.connect(hub.urls[0]):
        await ann.presence.set({"cursor": 0})
        await shows(log, {ANN: {"cursor": 0}})
        changes = aiter(log.presence)
        first = await anext(changes)
        assert (first.author, first.name, first.value) == (ANN, "cursor", 0)
        for number in range(1, 20):
            await ann.presence.set({"cursor": number}, ttl_s=60)
        await shows(log, {ANN: {"cursor": 19}})
        assert [(change.name, change.value) for change in await changes.next_page()] == [("cursor", 19)]
        await ann.presence.set({"cursor": 19}, ttl_s=0.2)
        with trio.fail_after(60):
            assert (await anext(changes)).value is None
        await ann.presence.set({"cursor": 7}, ttl_s=60)
        await shows(log, {ANN: {"cursor": 7}})
        await ann.presence.set({"cursor": 7}, ttl_s=0.2)
        await shows(log, {})
        with trio.move_on_after(0.1) as waiting:
            await anext(changes)
        assert waiting.cancelled_caught, "what came and went is nothing new"


async def test_a_link_that_is_made_again_brings_the_same_presence_back() -> None:
    async with memory_log(1) as log, log.listen("127.0.0.1:0") as hub, memory_log(2) as ann, memory_log(3) as ben, ben.connect(hub.urls[0]):
        await ann.presence.set({"cursor": 1}, ttl_s=60)
        await ben.presence.set({"cursor": 2}, ttl_s=60)
        for _ in range(2):
            async with ann.connect(hub.urls[0]):
                await shows(ben, {ANN: {"cursor": 1}, BEN: {"cursor": 2}})
                await shows(ann, {ANN: {"cursor": 1}, BEN: {"cursor": 2}})
            await shows(ben, {BEN: {"cursor": 2}})
            await shows(ann, {ANN: {"cursor": 1}})


async def test_it_goes_through_hubs_and_a_mesh_and_only_where_it_is_used() -> None:
    async with a_peer(listen=(TCP,)) as one:
        first = one.host.addresses[0]
        async with a_peer(first, listen=(TCP,)) as two, a_peer(first, listen=(TCP,)) as three:
            logs = [mesh.service.log for mesh in (one, two, three)]
            await eventually(lambda: all(len(mesh.service.peers) >= 1 for mesh in (one, two, three)))
            assert all(presence_protocol(logs[0].topic) not in mesh.service.traffic() for mesh in (one, two, three))
            async with (
                logs[1].listen("127.0.0.1:0") as hub,
                logs[2].listen("127.0.0.1:0") as other,
                memory_log(2, logs[0].topic) as ann,
                memory_log(3, logs[0].topic) as ben,
                ann.connect(hub.urls[0]),
                ben.connect(other.urls[0]),
            ):
                assert ben.presence.states == {}
                await ann.presence.set({"cursor": 5}, ttl_s=60)
                await shows(ben, {ANN: {"cursor": 5}})
                await shows(logs[0], {ANN: {"cursor": 5}})
                await ann.presence.leave()
                await shows(ben, {})


async def test_members_alone_are_heard_and_readers_among_them() -> None:
    policy = Policy([DIDS[0]])
    access = Access(default=LogAccess(anonymous=Rights({"connect", "pull"})))
    async with (
        gossiplog.open(":memory:", topic="team.example.com", policy=policy, signer=SIGNERS[0]) as log,
        log.listen("127.0.0.1:0", limits=HubLimits(access=access)) as hub,
        gossiplog.open(":memory:", topic=log.topic, signer=SIGNERS[1]) as reader,
        reader.connect(hub.urls[0]),
    ):
        await reader.presence.set({"cursor": 1}, ttl_s=60)
        await log.presence.set({"cursor": 0}, ttl_s=60)
        await eventually(lambda: DIDS[0] in reader.presence.states)
        assert DIDS[1] not in log.presence.states
        node = await log.grant(DIDS[1], "read")
        await trio.testing.wait_all_tasks_blocked(0.05)
        await reader.presence.set({"cursor": 2}, ttl_s=60)
        await eventually(lambda: log.presence.states.get(DIDS[1]) == {"cursor": 2})
        await log.revoke(node.id)
        await shows(log, {DIDS[0]: {"cursor": 0}})


async def test_without_members_who_may_not_push_hears_and_says_nothing() -> None:
    access = Access(default=LogAccess(anonymous=Rights({"connect", "pull"})))
    async with (
        memory_log(1) as log,
        log.listen("127.0.0.1:0", limits=HubLimits(access=access)) as hub,
        memory_log(2) as ann,
        ann.connect(hub.urls[0]),
    ):
        await ann.presence.set({"cursor": 1}, ttl_s=60)
        await log.presence.set({"cursor": 0}, ttl_s=60)
        await eventually(lambda: signer(1).did in ann.presence.states)
        assert log.presence.states == {signer(1).did: {"cursor": 0}}


async def test_floods_and_forgeries_cost_their_sender_and_five_ban_it() -> None:
    async with (
        memory_log(1) as log,
        log.listen("127.0.0.1:0") as hub,
        memory_log(3) as ben,
        ben.connect(hub.urls[0]),
        memory_log(9) as hostile,
        open_service(hostile) as service,
        open_hub_connections() as connections,
        connections.used(hostile.topic, service.handlers, parse_url(hub.urls[0])) as place,
        service.attached(place.muxed, PeerKind.HUB),
    ):
        protocol = presence_protocol(log.topic)
        await ben.presence.set({"cursor": 1}, ttl_s=60)
        await shows(log, {BEN: {"cursor": 1}})
        now_ms = int(1_000 * time.time())
        good, later = (sign_statement(author(7), bytes(8), log.topic, now_ms + number, {"x": 1}, 1_000) for number in range(2))
        forged = [later.frame(0)[:-1] + bytes([number]) for number in (2, 3)]
        frames = [*forged, b"\x05hello", b"\xff\xff\xff\x01", good.frame(0) * 3_000]
        for data in frames:
            stream = await place.muxed.open_stream([protocol])
            with pytest.raises(gossiplog.GossipLogError), trio.fail_after(60):
                await stream.send_all(data)
                while await stream.receive_some():
                    pass
                raise gossiplog.GossipLogError
        with trio.fail_after(60):
            await place.muxed.wait_ended()
        await ben.presence.set({"cursor": 2}, ttl_s=60)
        await shows(log, {BEN: {"cursor": 2}})
