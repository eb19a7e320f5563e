"""The routers of the drafts: what they save, and what happens when the other side does not do its part."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest
from unit.pubsub.network import Network, Solo, T, controls, message, recipients, said

from gossiplog.errors import LocalProtocolError
from gossiplog.pubsub import registry
from gossiplog.pubsub.events import PeerDisconnected, Subscribe
from gossiplog.pubsub.rpc import IHave, Rpc
from gossiplog.sim.measure.sizes import rpc_bytes
from gossiplog.sim.routing.run import run_scenario
from gossiplog.sim.scenario import PublishSpec, Scenario

sys.path.insert(0, str(Path(__file__).parents[3]))

from benchmarks.drafts import Lazy, LazyParams, Preamble, PreambleParams, register
from benchmarks.drafts.messages import DraftControl

MANY = ("p00", "p01", "p02", "p03")
LARGE = message(b"x" * 50_000)


def joined(router, *peers):
    driver = Solo(router)
    driver.connect(*peers)
    driver.tell(Subscribe(T))
    for peer in peers:
        driver.control(peer, graft=(T,))
    return driver


def lazy(*peers, **params):
    return joined(Lazy(LazyParams(**{"announce_share": 1.0} | params), random.Random(1)), *peers)


def preamble(*peers, **params):
    return joined(Preamble(PreambleParams(**params), random.Random(1)), *peers)


def drafts(actions, kind, peer=None):
    return [item for rpc in said(actions, peer) if isinstance(rpc.control, DraftControl) for item in getattr(rpc.control, kind)]


def say(driver, peer, **fields):
    return driver.say(peer, Rpc(control=DraftControl(**fields)))


@pytest.mark.parametrize(
    "make", [lambda rng: Lazy(LazyParams(), rng), lambda rng: Preamble(PreambleParams(), rng)], ids=["lazy", "preamble"]
)
def test_drafts_bring_every_message_to_everybody_once_to_the_application(make) -> None:
    network = Network(make, 20)
    network.connect_some(6)
    network.subscribe()
    network.run(3)
    published = [network.publish(name, bytes([n]) * 50_000) for n, name in enumerate(network.names[:5])]
    network.run(20)
    for one in published:
        assert network.receivers(one) | {network.names[published.index(one)]} == set(network.names)
    assert all(len(found) == len({one.id for one in found}) for found in network.delivered.values())


def test_all_routers_run_in_the_simulator_and_what_drafts_add_is_counted_and_weighed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_KNOWN", dict(registry._KNOWN))
    register()
    publish = PublishSpec(messages=3, start_s=3.0, bytes=50_000)
    results = {name: run_scenario(Scenario("small", router=name, nodes=10, publish=publish), 1) for name in registry.router_names()}
    assert {name: result.summary.missed for name, result in results.items()} == dict.fromkeys([*registry.ROUTERS, "lazy", "preamble"], 0)
    assert rpc_bytes(Rpc(control=DraftControl(ineed=(b"12345678",)))) == 13
    assert {"iannounce", "ineed"} <= set(results["lazy"].summary.counters)
    assert {"preamble", "imreceiving"} <= set(results["preamble"].summary.counters)


def test_with_every_copy_announced_none_is_sent_twice() -> None:
    network = Network(lambda rng: Lazy(LazyParams(announce_share=1.0, flood_publish=False, need_timeout_s=5.0), rng), 12)
    network.connect_some(5)
    network.subscribe()
    network.run(3)
    published = network.publish(network.names[0], "m")
    network.run(3)
    targets = [target for _, target in network.copies(published)]
    pushed_by_publisher = sum(source == network.names[0] for source, _ in network.copies(published))
    assert len(set(targets)) == 11
    assert len(targets) - len(set(targets)) <= pushed_by_publisher


def test_announced_message_is_asked_of_one_and_of_the_next_when_that_sends_nothing() -> None:
    driver = lazy(*MANY)
    wanted = message("m")
    assert drafts(say(driver, "p00", iannounce=(wanted.id,)), "ineed", "p00") == [wanted.id]
    assert drafts(say(driver, "p01", iannounce=(wanted.id,)), "ineed") == []
    say(driver, "p02", iannounce=(wanted.id,))
    assert drafts(driver.run(0.4), "ineed") == []
    driver.tell(PeerDisconnected("p01"))
    assert drafts(driver.run(0.2), "ineed", "p02") == [wanted.id]
    driver.push("p02", wanted)
    assert drafts(driver.run(2), "ineed") == []
    assert drafts(say(driver, "p03", iannounce=(wanted.id,)), "ineed") == []


def test_announcement_that_nobody_makes_good_is_forgotten_and_gossip_helps() -> None:
    driver = lazy(*MANY)
    wanted = message("m")
    say(driver, "p00", iannounce=(wanted.id,))
    driver.run(2)
    assert driver.router.needs == {}
    assert controls(driver.control("p01", ihave=(IHave(T, (wanted.id,)),)), "iwant", "p01") == [wanted.id]


def test_need_is_served_as_often_as_a_request_of_gossip() -> None:
    driver = lazy(*MANY)
    driver.push("p00", message("m"))
    served = [recipients(say(driver, "p01", ineed=(message("m").id,)), message("m")) for _ in range(4)]
    assert served == [["p01"]] * 3 + [[]]
    assert say(driver, "p01", ineed=(b"unknown",)) == []


def test_large_message_leaves_one_by_one_behind_its_preamble_and_not_to_who_receives_it() -> None:
    driver = preamble(*MANY, uplink_bytes_s=1e5)
    driver.run(1)
    first = recipients(driver.push("p00", LARGE), LARGE)
    assert len(first) == 1
    waiting, left_out = [peer for peer in MANY[1:] if peer not in first]
    say(driver, left_out, imreceiving=((LARGE.id, 50_000),))
    actions = driver.run(0.6)
    assert recipients(actions, LARGE) == [waiting]
    assert drafts(actions, "preamble", waiting) == [(T, LARGE.id, 50_000)]
    assert recipients(driver.run(5), LARGE) == []


def test_preamble_of_a_mesh_peer_tells_the_others_once_and_holds_requests_back() -> None:
    driver = preamble(*MANY)
    announced = (T, LARGE.id, 50_000)
    assert [len(drafts(say(driver, peer, preamble=(announced,)), "imreceiving")) for peer in ("p00", "p01")] == [1, 0]
    told = [rpc for peer in MANY for rpc in said(driver.actions, peer) if isinstance(rpc.control, DraftControl)]
    assert len(told) == 3
    assert controls(driver.control("p02", ihave=(IHave(T, (LARGE.id,)),)), "iwant") == []
    # What does not come in time is asked of whoever has it.
    assert controls(driver.run(0.6), "iwant", "p02") == [LARGE.id]
    assert driver.router.awaited == driver.router.receiving == {}


def test_preambles_and_announcements_of_one_peer_fill_no_more_than_they_may() -> None:
    first = preamble(*MANY, awaited_max=3)
    second = lazy(*MANY, needs_max=3)
    for number in range(10):
        say(first, "p00", preamble=((T, b"%d" % number, 1),), imreceiving=((b"%d" % number, 1),))
        say(second, "p00", iannounce=(b"%d" % number,))
    for state in (first.router.state(), second.router.state()):
        assert all(size <= state.sizes_max[name] for name, size in state.sizes.items())
    assert (first.router.state().sizes["awaited"], second.router.state().sizes["needs"]) == (3, 3)


def test_wrong_parameters_are_refused() -> None:
    with pytest.raises(LocalProtocolError, match="announce_share"):
        LazyParams(announce_share=1.5)
    with pytest.raises(LocalProtocolError, match="receive_s"):
        PreambleParams(receive_s=0)
