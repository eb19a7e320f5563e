"""Servers with several logs each, in the meshes of all of them on one connection with each other."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from mesh_support import TCP, a_host, eventually
from network_support import memory_log, signer, until_has

from gossiplog import GossipLog
from gossiplog.errors import LocalProtocolError
from gossiplog.net import mesh as mesh_module
from gossiplog.net.discovery import discovery
from gossiplog.net.ground.protocol_ids import push_protocol
from gossiplog.net.libp2p import Address, PeerKey
from gossiplog.net.libp2p.identify import ask_identity, identify_message
from gossiplog.net.mesh import Mesh, MeshConfig, open_mesh_host, router_of
from gossiplog.net.service.pubsub_host import PubsubHost
from gossiplog.net.service.refusals import STREAMS_A_LOG
from gossiplog.net.transport.yamux import machine as yamux
from gossiplog.tasks.nursery import open_service_nursery

TOPICS = tuple(f"room-{number}.example.com" for number in range(4))


class Server:
    """A mesh, and the logs that take part in it."""

    def __init__(self, number: int, mesh: Mesh, nursery: trio.Nursery) -> None:
        self.number = number
        self.mesh = mesh
        self.logs: dict[str, GossipLog] = {}
        self._nursery = nursery
        self._held: dict[str, tuple[trio.Event, trio.Event]] = {}

    async def join(self, topic: str) -> GossipLog:
        log: GossipLog = await self._nursery.start(self._hold, topic)
        return log

    async def _hold(self, topic: str, task_status: trio.TaskStatus[GossipLog]) -> None:
        leaves, left = self._held[topic] = trio.Event(), trio.Event()
        async with (
            memory_log(self.number, topic) as log,
            self.mesh.joined(log),
        ):
            self.logs[topic] = log
            task_status.started(log)
            await leaves.wait()
        left.set()

    async def leave(self, topic: str) -> None:
        del self.logs[topic]
        leaves, left = self._held.pop(topic)
        leaves.set()
        await left.wait()

    def neighbours(self, topic: str) -> list[Any]:
        return [peer for state in self.mesh.pubsub.shared.router.state().topics if state.topic == topic for peer in state.full_message]


@asynccontextmanager
async def server(number: int, *topics: str, bootstrap: tuple[Address, ...] = (), **config: Any) -> AsyncIterator[Server]:
    key, settings = PeerKey.generate(), MeshConfig(listen=(TCP,), bootstrap=bootstrap, **{"walk_s": 3600, **config})
    async with (
        open_mesh_host(PubsubHost(key.id, router_of(settings)), key, settings) as mesh,
        open_service_nursery() as nursery,
    ):
        made = Server(number, mesh, nursery)
        for topic in topics:
            await made.join(topic)
        yield made
        for topic in list(made.logs):
            await made.leave(topic)


async def test_logs_come_and_go_on_a_connection_that_stays() -> None:
    one, two, three, four = TOPICS
    async with server(1, one, two) as left, server(2, two, three, bootstrap=left.mesh.host.announced) as right:
        await eventually(lambda: left.neighbours(two) and right.neighbours(two))
        (connection,) = (peering.connection for peering in left.mesh.host.peerings)
        await until_has(right.logs[two], [await left.logs[two].append("both have it")])
        for topic, late, early in ((one, right, left), (three, left, right)):
            before = await early.logs[topic].append("from before the other joined")
            log = await late.join(topic)
            await until_has(log, [before])
            await eventually(lambda topic=topic: left.neighbours(topic) and right.neighbours(topic))
            await until_has(early.logs[topic], [await log.append("from after")])
        for each in (left, right):
            await each.join(four)
        await until_has(right.logs[four], [await left.logs[four].append("new on both sides")])
        for each, other in ((right, left), (left, right)):
            await each.leave(one)
            (kept,) = (peering.connection for peering in each.mesh.host.peerings)
            await eventually(lambda kept=kept: not [stream for stream in kept.streams if one in stream.protocol])
            await eventually(lambda other=other: not other.neighbours(one))
            await other.logs[one].append("nobody hears it")
            # Neither may graft the other for a while, which keeps pushes and syncs from nothing.
            again = await each.join(one)
            await until_has(again, [await other.logs[one].append("as before")])
        assert [peering.connection for peering in left.mesh.host.peerings] == [connection]
        assert len(right.mesh.host.peerings) == 1


async def test_presence_of_each_log_is_its_own_and_goes_and_comes_with_it() -> None:
    one, two = TOPICS[:2]
    async with server(1, one, two) as left, server(2, one, two, bootstrap=left.mesh.host.announced) as right:
        me, other = signer(1).did, signer(2).did
        for topic in (one, two):
            await left.logs[topic].presence.set({"at": topic}, ttl_s=60)
            await right.logs[topic].presence.set({"at": topic}, ttl_s=60)
        for each in (left, right):
            for topic in (one, two):
                there = {me: {"at": topic}, other: {"at": topic}}
                await eventually(lambda each=each, topic=topic, there=there: each.logs[topic].presence.states == there)
        await right.leave(one)
        await eventually(lambda: left.logs[one].presence.states == {me: {"at": one}})
        assert set(left.logs[two].presence.states) == {me, other}
        await (await right.join(one)).presence.set({"at": "again"}, ttl_s=60)
        await eventually(lambda: left.logs[one].presence.states == right.logs[one].presence.states)
        assert left.logs[one].presence.states == {me: {"at": one}, other: {"at": "again"}}
        assert len(right.mesh.host.peerings) == 1


async def test_a_server_whose_last_log_leaves_waits_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "_TICK_S", 0.02)
    topic = TOPICS[0]
    async with server(1, topic) as left, server(2, topic, bootstrap=left.mesh.host.announced, walk_s=0.02) as right:
        await eventually(lambda: right.mesh.discovery.walks)
        await right.leave(topic)
        await trio.sleep(0.1)
        log = await right.join(topic)
        await until_has(log, [await left.logs[topic].append("here again")])


async def test_a_log_without_anybody_gets_a_connection_beyond_the_target() -> None:
    one, two = TOPICS[:2]
    async with (
        server(1, one) as first,
        server(2, two) as second,
        server(3, one, two, bootstrap=first.mesh.host.announced, target=1) as third,
    ):
        await eventually(lambda: third.neighbours(one))
        third.mesh.discovery.book.learn(second.mesh.host.id, list(second.mesh.host.announced), teller=None)
        third.mesh.discovery._note_spoken(second.mesh.host.id, [third.mesh.discovery._protocols[1]])
        await eventually(lambda: third.neighbours(two))
        assert len(third.mesh.host.peers) == 2


async def test_each_of_many_logs_has_its_streams_on_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (yamux, mesh_module):
        monkeypatch.setattr(module, "STREAMS_MAX", 12, raising=False)
    topics = [f"room-{number}.example.com" for number in range(24)]
    async with server(1, *topics) as left, server(2, *topics, bootstrap=left.mesh.host.announced) as right:
        for each in (left, right):
            await eventually(lambda each=each: all(peer.push for service in each.mesh.services.values() for peer in service.peers.values()))
        (connection,) = (peering.connection for peering in right.mesh.host.peerings)
        assert connection.muxer.streams_max == 12 + 23 * STREAMS_A_LOG
        for topic in topics[1:]:
            await right.leave(topic)
        await eventually(lambda: connection.muxer.streams_max == 12)


async def test_what_a_server_of_many_logs_says_of_itself_is_read_by_all() -> None:
    """Six ids a topic; rust-libp2p reads one message of 4,096 bytes, go-libp2p ten of 8 KiB and 1,024 ids."""
    key = PeerKey.generate()
    protocols = ["/meshsub/1.1.0", *(f"/canvas/v1/room-{number}.example.com/push" for number in range(2_000))]
    data, lengths, ids = identify_message(key, protocols, (), b"", None), list[int](), 0
    while data:
        length, shift = 0, 0
        while True:
            byte, data = data[0], data[1:]
            length, shift = length | (byte & 127) << shift, shift + 7
            if byte < 128:
                break
        lengths.append(length)
        ids += data[:length].count(b"/push") + data[:length].count(b"/meshsub")
        data = data[length:]
    assert max(lengths) <= 4_096 and len(lengths) == 9 and 600 < ids <= 1_024
    topics = tuple(f"room-{number}.example.com" for number in range(50))
    async with server(1, *topics) as one, a_host() as other:
        connection = await other.connect(one.mesh.host.id, one.mesh.host.announced)
        with trio.fail_after(60):
            said = await ask_identity(connection)
        assert {push_protocol(topic) for topic in topics} <= said.protocols


async def test_entries_made_elsewhere_are_published_to_a_topic_that_is_not_followed(caplog: pytest.LogCaptureFixture) -> None:
    one, two = TOPICS[:2]
    async with (
        memory_log(3, two) as elsewhere,
        memory_log(3, one) as of_one,
        server(1, one) as left,
        server(2, one, two, bootstrap=left.mesh.host.announced) as right,
    ):
        entries = [await elsewhere.append(number) for number in range(4)]
        assert left.mesh.publish(entries[0].value) == 0  # to nobody, as nobody is connected
        await eventually(lambda: left.neighbours(one) and right.neighbours(one))
        await eventually(lambda: two in left.mesh.pubsub.shared.router.state().peers[0].topics)
        with pytest.raises(LocalProtocolError, match="a log here follows"):
            left.mesh.publish((await of_one.append(1)).value)
        with pytest.raises(LocalProtocolError, match="not an entry"):
            left.mesh.publish(entries[1].value[:-1])
        with pytest.raises(LocalProtocolError, match="can be published"):
            left.mesh.publish((await elsewhere.append("x" * 60_000)).value)
        # The first went nowhere, so its children are orphans, which blame nobody.
        for entry in entries[1:3]:
            assert left.mesh.publish(entry.value) == 1
        # They wait there for it, and are taken once it comes, by whatever way.
        await right.logs[two].insert(entries[0].value)
        await until_has(right.logs[two], entries[:3])
        assert left.mesh.publish(entries[3].value) == 1
        await until_has(right.logs[two], entries)
        assert right.mesh.pubsub.shared.blamed.peers.counts() == {}
        assert set(left.mesh.services) == {one}
        # Who joins what it published to takes its fan-out peers along.
        log = await left.join(two)
        await until_has(log, entries)
        await eventually(lambda: left.neighbours(two) and right.neighbours(two))
