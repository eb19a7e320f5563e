"""Several logs of one process on the network: one router, one connection and one pubsub stream each way for all of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
import trio
from muxer_support import muxed_pair
from network_support import eventually, memory_log, until_has

from gossiplog import GossipLog
from gossiplog.broadcast.events import Misbehaved, PeerKind
from gossiplog.broadcast.offences import BROKEN_STREAMS_MAX
from gossiplog.errors import LocalProtocolError
from gossiplog.net.service.pubsub_host import PubsubHost
from gossiplog.net.service.service import Service, open_service
from gossiplog.net.transport.muxed import Connection, Handler
from gossiplog.pubsub.types import PeerId

TOPICS = ("one.example.com", "two.example.com", "three.example.com")


class Process:
    """A host with a log for each topic."""

    def __init__(self, host: PubsubHost, services: dict[str, Service]) -> None:
        self.host = host
        self.services = services
        self.handlers: dict[str, Handler] = dict(host.handlers)
        for service in services.values():
            self.handlers.update(service.handlers)

    def log(self, topic: str) -> GossipLog:
        log = self.services[topic].log
        assert isinstance(log, GossipLog)
        return log

    def grafted(self) -> set[str]:
        return {state.topic for state in self.host.shared.router.state().topics if state.full_message}


@asynccontextmanager
async def process(number: int, topics: tuple[str, ...] = TOPICS) -> AsyncIterator[Process]:
    host = PubsubHost(PeerId(f"peer {number}"))
    async with host.running(), AsyncExitStack() as stack:
        services = dict[str, Service]()
        for topic in topics:
            log = await stack.enter_async_context(memory_log(number, topic))
            services[topic] = await stack.enter_async_context(open_service(log, host=host))
        yield Process(host, services)


@asynccontextmanager
async def meshed(left: Process, right: Process) -> AsyncIterator[Connection]:
    """Connect two processes, the right one dialling; every log of either uses the one connection."""
    async with muxed_pair(right.handlers, left.handlers) as (dialled, accepted), AsyncExitStack() as stack:
        accepted.peer, dialled.peer = right.host.me, left.host.me
        for here, there, connection in ((left, right, accepted), (right, left, dialled)):
            for topic, service in here.services.items():
                attached = service.attached(
                    connection, PeerKind.MESH, pubsub_protocol=here.host.protocols[0], has_push=topic in there.services
                )
                await stack.enter_async_context(attached)
        yield accepted


async def test_logs_share_a_connection_and_its_pubsub_stream_and_each_hears_of_its_own() -> None:
    async with process(1) as left, process(2) as right, meshed(left, right) as connection:
        await eventually(lambda: left.grafted() == set(TOPICS) == right.grafted())
        opened = connection.streams_accepted + connection.streams_opened
        entries = {topic: [await left.log(topic).append(f"{topic} {n}") for n in range(5)] for topic in TOPICS}
        for topic in TOPICS:
            await until_has(right.log(topic), entries[topic])
            assert right.services[topic].counts["delivered"] == 5
            assert await right.log(topic).count() == 5
            assert right.services[topic].links()[0].counts.get("entries pulled", 0) == 0
        assert connection.streams_accepted + connection.streams_opened == opened
        (peer,) = right.host.peers.values()
        assert [link.streams for link in peer.links] == [1]


async def test_a_log_that_leaves_is_left_alone_and_the_others_go_on() -> None:
    async with process(1) as left, process(2) as right, meshed(left, right):
        await eventually(lambda: left.grafted() == set(TOPICS))
        right.services[TOPICS[0]].stop()
        await eventually(lambda: left.grafted() == set(TOPICS[1:]))
        assert set(right.host.logs) == set(TOPICS[1:])
        await left.log(TOPICS[0]).append("to nobody")
        await until_has(right.log(TOPICS[1]), [await left.log(TOPICS[1]).append("to those who are there")])


async def test_logs_that_the_other_process_has_not_are_no_hindrance() -> None:
    """What one process follows of the other's is told and heard, whatever else either has."""
    async with process(1, TOPICS[:2]) as left, process(2, TOPICS[1:]) as right, meshed(left, right):
        await eventually(lambda: left.grafted() == {TOPICS[1]} == right.grafted())
        await until_has(right.log(TOPICS[1]), [await left.log(TOPICS[1]).append("shared")])
        await left.log(TOPICS[0]).append("of no concern to the other")
        assert right.host.shared.router.state().sizes["pending"] == 0


async def test_a_ban_by_one_log_holds_for_all_and_whoever_knows_the_peer_lets_go_of_it(caplog: pytest.LogCaptureFixture) -> None:
    async with process(1) as left, process(2) as right, meshed(left, right) as connection:
        await eventually(lambda: left.grafted() == set(TOPICS))
        for _ in range(5 * BROKEN_STREAMS_MAX):
            left.services[TOPICS[1]].tell(Misbehaved(right.host.me, "a test"))
        assert all(service.state().kinds == {} for service in left.services.values())
        assert left.host.banned_until(right.host.me) is not None
        with trio.fail_after(60):
            await connection.wait_ended()
        assert [record.event for record in caplog.records].count("peer banned") == 1


async def test_a_log_that_is_on_the_network_joins_no_other_host() -> None:
    async with memory_log(1) as log, open_service(log):
        with pytest.raises(LocalProtocolError, match="on the network already"):
            async with open_service(log, host=PubsubHost()):
                pass
