"""How one log's machine is driven."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
import trio
import trio.testing
from broadcast_support import chain

import gossiplog
from gossiplog.broadcast.actions import Action
from gossiplog.broadcast.broadcast import Broadcast
from gossiplog.broadcast.events import Connected, EntriesCommitted, Misbehaved, PeerKind, StartBroadcast
from gossiplog.broadcast.offences import BROKEN_STREAMS_MAX
from gossiplog.net.service.driver import LogDriver
from gossiplog.net.service.peers import ServedPeer, new_bucket
from gossiplog.net.service.pubsub_host import PubsubHost
from gossiplog.pubsub.types import PeerId

TOPIC = "app.example.com"
PLACE = "203.0.113.7"


def driver_of(log: gossiplog.GossipLog, act: Callable[[Action], None]) -> LogDriver:
    host = PubsubHost(PeerId("me"))
    return LogDriver(log, Broadcast(host.shared, TOPIC, Random(1)), act, host.tell)


async def test_a_fault_in_one_action_keeps_none_of_the_others_from_being_carried_out(caplog: pytest.LogCaptureFixture) -> None:
    done: list[Action] = []

    def act(action: Action) -> None:
        done.append(action)
        if len(done) == 1:
            raise ValueError("planted")

    async with gossiplog.open(":memory:", topic=TOPIC) as log:
        driver = driver_of(log, act)
        driver.tell(StartBroadcast(may_foresee=False))
        driver.tell(EntriesCommitted(chain(1)))
        assert len(done) > 1
        assert [record.event for record in caplog.records if record.exc_info] == ["fault in the protocol"]
        before = len(done)
        driver.has_ended = True
        driver.tell(Connected(PeerId("late"), PeerKind.HUB, True, None, None))
        assert len(done) == before


async def test_strangers_from_where_others_offended_wait_and_nobody_else_does(autojump_clock: trio.testing.MockClock) -> None:
    async with gossiplog.open(":memory:", topic=TOPIC) as log:
        driver = driver_of(log, lambda action: None)
        for name in ("offender", "stranger"):
            driver.tell(Connected(PeerId(name), PeerKind.CLIENT, False, None, None, origin=PLACE, is_origin_shared=True))
        driver.tell(Connected(PeerId("from elsewhere"), PeerKind.CLIENT, False, None, None, origin="198.51.100.1"))
        for _ in range(5 * BROKEN_STREAMS_MAX):
            driver.tell(Misbehaved(PeerId("offender"), "no frame"))
        stranger, other = (
            ServedPeer(PeerId(name), PeerKind.CLIENT, new_bucket(0.0), origin)
            for name, origin in (("stranger", PLACE), ("from elsewhere", "198.51.100.1"))
        )
        assert (driver.has_to_wait(stranger, 10), driver.has_to_wait(other, 10)) == (True, False)
        began = trio.current_time()
        await driver.wait_turn(other, 1_000)
        assert trio.current_time() == began
        # Ten at once, then ten a second.
        await driver.wait_turn(stranger, 30)
        assert 1.9 < trio.current_time() - began < 2.1
