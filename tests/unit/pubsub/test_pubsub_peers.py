"""Direct peers, peer exchange, full queues, floodsub peers, readiness."""

import random

import pytest
from unit.pubsub.gossipsub_driver import FLOODSUB, SCORED, joined, solo
from unit.pubsub.network import Network, Solo, T, controls, message, names, of, recipients, said

from gossiplog.errors import LocalProtocolError
from gossiplog.pubsub import Fate, FloodsubParams, GossipsubParams, MeshsubParams, Outcome, RandomsubParams, Topic
from gossiplog.pubsub.actions import Connect, SlowPeer
from gossiplog.pubsub.base import HEARTBEAT
from gossiplog.pubsub.events import (
    AppScored,
    PeerDisconnected,
    PeerRecordLearned,
    Publish,
    SendFailed,
    Subscribe,
    TimerFired,
    Unsubscribe,
)
from gossiplog.pubsub.routers.floodsub import Floodsub
from gossiplog.pubsub.routers.gossipsub import Gossipsub
from gossiplog.pubsub.routers.meshsub import Meshsub
from gossiplog.pubsub.routers.randomsub import Randomsub
from gossiplog.pubsub.rpc import Control, PeerRecord, Prune, Rpc, Subscription

# Direct peers


def test_direct_peers_get_everything_and_are_reconnected():
    driver = joined("friend", *names(8), direct_peers=("friend", "absent"), direct_connect_ticks=5, score=SCORED)
    assert of(driver.actions, Connect) == [Connect("friend"), Connect("absent")]
    driver.tell(AppScored("friend", -100.0))
    assert "friend" in recipients(driver.push("p00", message("forwarded")), message("forwarded"))
    assert recipients(driver.push("friend", message("from a friend")), message("from a friend"))
    fates = dict(driver.tell(Publish(message("own")))[0].fates)
    assert fates["friend"] is Fate.DIRECT
    driver.run(0.2)
    assert "friend" not in driver.router.mesh.links[T]
    assert of(driver.run(5), Connect) == [Connect("absent")]
    driver.tell(PeerDisconnected("friend"))
    assert of(driver.run(5), Connect) == [Connect("friend"), Connect("absent")]


def test_direct_peers_are_not_in_the_fanout():
    driver = solo(flood_publish=False, direct_peers=("friend",))
    driver.connect("friend", "other")
    fates = dict(driver.tell(Publish(message("outside")))[0].fates)
    assert fates == {"friend": Fate.DIRECT, "other": Fate.FANOUT}


# Peer exchange


def test_prune_offers_peers_with_their_records():
    driver = joined(*names(4), px_enabled=True)
    driver.tell(PeerRecordLearned("p01", b"signed"))
    driver.tell(PeerRecordLearned("stranger", b"unknown"))
    actions = driver.tell(Unsubscribe(T))
    (prune,) = controls(actions, "prune", "p00")
    assert {one.peer for one in prune.peers} == {"p01", "p02", "p03"}
    assert PeerRecord("p01", b"signed") in prune.peers
    driver.tell(PeerDisconnected("p01"))
    assert "p01" not in driver.router.exchange._records


def test_offered_peers_are_dialled_up_to_the_limit():
    driver = joined("peer", "known", px_peers=3)
    offered = tuple(PeerRecord(name, b"r") for name in ("known", *names(10)))
    actions = driver.control("peer", prune=(Prune(T, offered, 60),))
    assert len(of(actions, Connect)) == 3
    assert all(action.record == b"r" and action.peer != "known" for action in of(actions, Connect))


def test_peer_exchange_of_a_peer_with_too_low_a_score_is_not_used():
    driver = joined("peer", score=SCORED)
    prune = Prune(T, (PeerRecord("offered"),), 60)
    assert not of(driver.control("peer", prune=(prune,)), Connect)
    driver.tell(AppScored("peer", 1.0))
    assert of(driver.control("peer", prune=(prune,)), Connect) == [Connect("offered", source="peer")]


# Queues


def test_graft_and_prune_are_retried_if_they_still_hold():
    driver = joined("a", "b")
    for peer in "ab":
        (rpc,) = [rpc for rpc in said(driver.actions, peer) if rpc.control is not None]
        driver.tell(SendFailed(peer, rpc))
    driver.control("b", prune=(Prune(T, (), 60),))
    actions = driver.run(1.1)
    assert controls(actions, "graft", "a") == [T]
    assert controls(actions, "graft", "b") == []
    assert said(actions, "a")[0].subscriptions == (Subscription(T, True),)
    assert of(actions, SlowPeer) == [SlowPeer("a", 1), SlowPeer("b", 1)]
    driver.tell(SendFailed("a", Rpc(control=Control(prune=(Prune(T),)))))
    driver.tell(SendFailed("b", Rpc(control=Control(prune=(Prune(T),)))))
    actions = driver.run(1.1)
    assert controls(actions, "prune") == [Prune(T)]
    assert controls(actions, "prune", "b") == [Prune(T)]


def test_failed_control_is_piggybacked_on_the_next_message():
    driver = joined(*names(3))
    (rpc,) = said(driver.actions, "p00")
    driver.tell(SendFailed("p00", rpc))
    published = message("carries the graft")
    actions = driver.push("p01", published)
    (sent,) = said(actions, "p00")
    assert sent.messages == (published,)
    assert sent.control.graft == (T,)
    assert sorted(recipients(actions, published)) == ["p00", "p02"]
    assert not controls(driver.run(1.1), "graft", "p00")


def test_message_to_the_only_peer_carries_failed_control_and_a_draft():
    driver = joined("a")
    (rpc,) = said(driver.actions, "a")
    driver.tell(SendFailed("a", rpc))
    driver.router.draft("a").iwant.append(b"id")
    actions = driver.tell(Publish(message("x")))
    (sent,) = said(actions, "a")
    assert (sent.control.graft, sent.control.iwant, len(sent.messages)) == ((T,), (b"id",), 1)


def test_failed_subscription_is_announced_as_it_stands():
    driver = joined("a")
    driver.tell(SendFailed("a", Rpc(subscriptions=(Subscription(T, True),))))
    driver.tell(Unsubscribe(T))
    driver.tell(SendFailed("a", Rpc(subscriptions=(Subscription(T, False),))))
    driver.tell(SendFailed("a", Rpc(subscriptions=(Subscription(T, True),))))
    assert said(driver.run(1.1), "a")[0].subscriptions == (Subscription(T, False),)


def test_failed_gossip_is_not_said_again_and_what_failed_dies_with_the_connection():
    driver = joined("a", "b")
    driver.tell(SendFailed("a", Rpc(control=Control(iwant=(b"x",)))))
    driver.tell(SendFailed("b", Rpc(control=Control(graft=(T,)))))
    driver.tell(PeerDisconnected("b"))
    assert not said(driver.run(1.1))


def test_all_queues_full_delays_and_loses_nothing_for_good():
    net = Network(lambda rng: Gossipsub(GossipsubParams(flood_publish=False), rng), 10)
    net.connect_all()
    net.subscribe()
    net.run(3)
    net.full = {(source, target) for source in net.names for target in net.names}
    published = net.publish(net.names[0], "into full queues")
    net.run(1)
    assert net.receivers(published) == set()
    net.full = set()
    net.run(6)
    assert net.receivers(published) == set(net.names[1:])
    assert any(isinstance(action, SlowPeer) for action in net.events[net.names[0]])
    dropped = [fate for report in net.reports[net.names[0]][1:] for _, fate in report.fates]
    assert set(dropped) == {Fate.DROPPED}


def test_slow_peer_does_not_hold_up_the_others():
    net = Network(lambda rng: Gossipsub(GossipsubParams(), rng), 10)
    net.connect_all()
    net.subscribe()
    net.run(3)
    slow = net.names[9]
    net.full = {(source, slow) for source in net.names}
    published = net.publish(net.names[0], "past the slow one")
    net.run(2)
    assert net.receivers(published) == set(net.names[1:9])
    assert max(peer.dropped for peer in net.routers[net.names[0]].state().peers if peer.peer == slow) > 0


# Meshsub itself


def test_meshsub_forwards_along_the_mesh_and_gossips_nothing():
    driver = Solo(Meshsub(MeshsubParams(), random.Random(1)))
    driver.connect(*names(10))
    driver.tell(Subscribe(T))
    published = message("m")
    actions = driver.push(driver.mesh()[0], published)
    assert set(recipients(actions, published)) == set(driver.mesh()[1:])
    assert not controls(driver.run(3), "ihave")
    fates = [fate for _, fate in driver.tell(Publish(message("own")))[0].fates]
    assert (fates.count(Fate.MESH), fates.count(Fate.GOSSIP)) == (6, 4)
    assert driver.router.state().peers[0].score is None
    driver.tell(AppScored("p00", -5.0))
    driver.router.handle(TimerFired(HEARTBEAT), driver.now)


def test_floodsub_peers_below_the_publish_threshold_are_not_forwarded_to():
    driver = joined("a", score=SCORED)
    driver.connect("flood", protocol=FLOODSUB)
    assert "flood" in recipients(driver.push("a", message("1")), message("1"))
    assert "flood" not in recipients(driver.push("flood", message("back")), message("back"))
    driver.tell(AppScored("flood", -6.0))
    assert "flood" not in recipients(driver.push("a", message("2")), message("2"))
    assert dict(driver.tell(Publish(message("3")))[0].fates)["flood"] is Fate.BELOW_THRESHOLD
    driver.tell(AppScored("flood", 0.0))
    assert dict(driver.tell(Publish(message("4")))[0].fates)["flood"] is Fate.FLOODSUB
    driver.connect("flood2", protocol=FLOODSUB)
    driver.tell(PeerDisconnected("flood"))
    driver.tell(PeerDisconnected("flood2"))
    assert driver.mesh() == ("a",)


def test_readiness_asks_for_d_lo_peers_or_all_there_are():
    driver = solo()
    assert not driver.router.is_ready(T)
    driver.connect("a")
    assert driver.router.is_ready(T)
    driver.tell(Subscribe(T))
    driver.connect(*names(6))
    assert not driver.router.is_ready(T)
    driver.run(1)
    assert driver.router.is_ready(T)


@pytest.mark.parametrize("router", [Floodsub(FloodsubParams(), random.Random(1)), Randomsub(RandomsubParams(), random.Random(1))])
def test_routers_without_a_mesh_are_ready_with_any_peer(router):
    driver = Solo(router)
    assert not router.is_ready(T)
    driver.connect("a", protocol=FLOODSUB)
    assert router.is_ready(T)


def test_accepted_message_of_a_topic_left_meanwhile_is_not_forwarded():
    driver = joined("a", "b")
    driver.say("a", Rpc((message("late"),)))
    driver.tell(Unsubscribe(T))
    from gossiplog.pubsub.events import Validated

    actions = driver.tell(Validated(message("late").id, Outcome.ACCEPT))
    assert recipients(actions, message("late")) == []


@pytest.mark.parametrize(
    "fields",
    [
        {"D_lo": 7},
        {"D_hi": 5},
        {"D_score": 7},
        {"D_out": 4},
        {"heartbeat_s": 0},
        {"prune_backoff_s": 1e9},
        {"seen_ttl_s": 0},
        {"protocols": ()},
        {"fanout_ttl_s": -1},
        {"graft_flood_threshold_s": -1},
        {"iwant_follow_up_s": -1},
        {"idontwant_bytes_min": -1},
        {"idontwant_ticks": 0},
    ],
)
def test_parameters_that_break_a_rule_are_refused(fields):
    with pytest.raises(LocalProtocolError, match="parameters break the rule"):
        GossipsubParams(**fields)


def test_graft_from_a_peer_in_too_many_topics_is_passed_over():
    driver = joined(topics_per_peer_max=2)
    driver.connect("greedy", topics=[Topic(f"u{number}") for number in range(5)])
    assert len(driver.router.state().peers[0].topics) == 2
    assert driver.control("greedy", graft=(T,)) == []
    assert driver.mesh() == ()
