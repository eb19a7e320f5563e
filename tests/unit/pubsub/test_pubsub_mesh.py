"""The mesh: joining, leaving, grafting, pruning, backoff, quotas; the second part of the acceptance list."""

import random

import pytest
from unit.pubsub.network import Network, Solo, T, controls, message, of, recipients, said

from gossiplog.errors import LocalProtocolError
from gossiplog.pubsub import Fate, GossipsubParams, MeshsubParams, Outcome, ScoreParams, Thresholds, Topic, TopicScoreParams
from gossiplog.pubsub.actions import Connect, SlowPeer
from gossiplog.pubsub.backoff import Backoff
from gossiplog.pubsub.events import (
    AppScored,
    PeerConnected,
    PeerDisconnected,
    PeerRecordLearned,
    Publish,
    SendFailed,
    Subscribe,
    TimerFired,
    Unsubscribe,
)
from gossiplog.pubsub.gossipsub import Gossipsub
from gossiplog.pubsub.meshsub import HEARTBEAT, Meshsub
from gossiplog.pubsub.rpc import Control, PeerRecord, Prune, Rpc, Subscription

MESHSUB_1_0, FLOODSUB = "/meshsub/1.0.0", "/floodsub/1.0.0"
SCORED = ScoreParams(thresholds=Thresholds(accept_px=5.0))


def solo(**fields):
    return Solo(Gossipsub(GossipsubParams(**fields), random.Random(1)))


def joined(*peers, **fields):
    """A router that is in the topic, with inbound peers that are too."""
    driver = solo(**fields)
    driver.connect(*peers)
    driver.tell(Subscribe(T))
    return driver


def names(count, prefix="p"):
    return [f"{prefix}{number:02}" for number in range(count)]


# Subscriptions


def test_subscriptions_are_announced_on_connection_and_on_change():
    driver = joined("a")
    actions = driver.tell(PeerConnected("b", MESHSUB_1_0, False))
    assert said(actions, "b")[0].subscriptions == (Subscription(T, True),)
    actions = driver.tell(Unsubscribe(T))
    assert all(said(actions, peer)[0].subscriptions == (Subscription(T, False),) for peer in "ab")


def test_nothing_is_announced_while_no_topic_is_joined():
    assert not said(solo().tell(PeerConnected("a", MESHSUB_1_0, False)))


def test_joining_or_leaving_twice_says_nothing():
    driver = joined("a")
    assert driver.tell(Subscribe(T)) == []
    driver.tell(Unsubscribe(T))
    assert driver.tell(Unsubscribe(T)) == []


def test_subscriptions_of_others_are_never_forwarded():
    driver = joined("a", "b")
    assert not said(driver.say("a", Rpc(subscriptions=(Subscription(Topic("new"), True),))))


def test_second_connection_and_unknown_protocol_and_stranger_change_nothing():
    driver = joined("a")
    assert driver.tell(PeerConnected("a", MESHSUB_1_0, True)) == []
    assert driver.tell(PeerConnected("z", "/none/1.0.0", True)) == []
    assert driver.say("stranger", Rpc((message("x"),))) == []
    assert driver.tell(PeerDisconnected("stranger")) == []
    assert driver.tell(SendFailed("stranger", Rpc())) == []
    assert [peer.peer for peer in driver.router.state().peers] == ["a"]


def test_unsubscribing_peer_leaves_mesh_and_topic():
    driver = joined("a", "b")
    driver.say("a", Rpc(subscriptions=(Subscription(T, False), Subscription(Topic("never"), False))))
    assert driver.mesh() == ("b",)
    assert driver.router.state().peers[0].topics == ()


# Joining


def test_join_grafts_d_peers_and_says_so():
    driver = joined(*names(20))
    assert len(driver.mesh()) == 6
    assert len(controls(driver.actions, "graft")) == 6


def test_join_takes_fanout_peers_first():
    driver = solo(flood_publish=False)
    driver.connect(*names(20))
    driver.tell(Publish(message("outside")))
    fan_out = set(driver.router.state().topics[0].fan_out)
    driver.tell(Subscribe(T))
    assert len(fan_out) == 6
    assert set(driver.mesh()) == fan_out


def test_join_passes_over_backed_off_and_badly_scored_peers():
    driver = joined(*names(3), score=SCORED)
    driver.tell(Unsubscribe(T))
    driver.connect("good", "bad")
    driver.tell(AppScored("bad", -1.0))
    driver.tell(Subscribe(T))
    assert driver.mesh() == ("good",)


def test_fanout_peers_with_a_low_score_are_not_taken_into_the_mesh():
    driver = solo(flood_publish=False, score=SCORED)
    driver.connect("good", "bad")
    driver.tell(Publish(message("outside")))
    driver.tell(AppScored("bad", -1.0))
    driver.tell(Subscribe(T))
    assert driver.mesh() == ("good",)


def test_fanout_peers_below_the_publish_threshold_are_dropped():
    driver = solo(flood_publish=False, score=SCORED)
    driver.connect("good", "bad")
    driver.tell(Publish(message("outside")))
    driver.tell(AppScored("bad", -6.0))
    driver.run(1.2)
    assert driver.router.state().topics[0].fan_out == ("good",)
    fates = dict(driver.tell(Publish(message("again")))[0].fates)
    assert fates == {"good": Fate.FANOUT, "bad": Fate.BELOW_THRESHOLD}


def test_fanout_peer_that_leaves_is_replaced_when_we_publish_again():
    driver = solo(flood_publish=False)
    driver.connect(*names(7))
    driver.tell(Publish(message("outside")))
    fan_out = driver.router.state().topics[0].fan_out
    driver.tell(PeerDisconnected(fan_out[0]))
    driver.tell(Publish(message("again")))
    assert len(driver.router.state().topics[0].fan_out) == 6


# Leaving and backoff


def test_leave_prunes_with_the_unsubscribe_backoff_on_both_sides():
    left, right = joined("peer"), joined("peer")
    actions = left.tell(Unsubscribe(T))
    (prune,) = controls(actions, "prune", "peer")
    assert prune == Prune(T, (), 10)
    right.control("peer", prune=(prune,))
    for driver in (left, right):
        driver.tell(Subscribe(T))
        driver.run(9)
        assert driver.mesh() == ()
        driver.run(4)
        assert driver.mesh() == ("peer",)


def test_prune_backoff_is_obeyed_for_as_long_as_the_peer_asks_within_bounds():
    for asked, waited in ((None, 60), (20, 20), (10**9, 600)):
        driver = joined("peer")
        driver.control("peer", prune=(Prune(T, (), asked),))
        assert driver.mesh() == ()
        driver.run(waited - 1)
        assert driver.mesh() == ()
        driver.run(4)
        assert driver.mesh() == ("peer",)


def test_prune_of_an_unknown_topic_is_passed_over():
    driver = joined("peer")
    driver.control("peer", prune=(Prune(Topic("unknown"), (), 60),))
    assert driver.mesh() == ("peer",)


def test_peers_below_v1_1_are_pruned_without_backoff():
    driver = solo()
    driver.connect("old", protocol=MESHSUB_1_0)
    driver.tell(Subscribe(T))
    assert controls(driver.tell(Unsubscribe(T)), "prune", "old") == [Prune(T)]


def test_backoff_is_bounded_and_never_shortened():
    backoff = Backoff(2)
    backoff.add(T, "a", 10, 0)
    backoff.add(T, "a", 1, 1)
    assert backoff.is_active(T, "a", 9)
    backoff.add(T, "b", 10, 0)
    backoff.add(T, "c", 10, 0)
    assert len(backoff) == 2
    assert not backoff.is_active(T, "a", 1)
    backoff.add(Topic("u"), "a", 1, 0)
    backoff.expire(5)
    assert backoff.is_active(T, "b", 5)
    assert not backoff.is_active(Topic("u"), "a", 0.5)


# GRAFT, in the order of the checks


def test_graft_of_an_unknown_topic_meets_silence():
    driver = joined("peer")
    assert driver.control("peer", graft=(Topic("unknown"),)) == []


def test_graft_while_in_the_mesh_changes_nothing():
    driver = joined("peer")
    assert driver.control("peer", graft=(T,)) == []
    assert driver.mesh() == ("peer",)


def test_graft_from_a_floodsub_peer_is_passed_over():
    driver = joined()
    driver.connect("flood", protocol=FLOODSUB)
    assert driver.control("flood", graft=(T,)) == []
    assert driver.router.state().topics[0].metadata_only == ()


def test_graft_from_a_direct_peer_is_pruned():
    driver = joined("friend", direct_peers=("friend",))
    assert controls(driver.control("friend", graft=(T,)), "prune") == [Prune(T, (), 60)]


def test_graft_during_backoff_is_pruned_three_times_and_then_ignored():
    driver = joined("peer", score=SCORED)
    driver.control("peer", prune=(Prune(T, (), 60),))
    for _ in range(2):
        assert controls(driver.control("peer", graft=(T,)), "prune") == [Prune(T, (), 60)]
    driver.run(15)
    assert driver.mesh() == ()
    for _ in range(3):
        driver.control("peer", graft=(T,))
    assert driver.score("peer") < Thresholds().graylist
    assert driver.control("peer", graft=(T,)) == []


def test_graft_during_backoff_counts_once_after_the_flood_window_and_twice_within():
    driver = joined("peer", score=ScoreParams(behaviour_weight=-1.0))
    driver.control("peer", prune=(Prune(T, (), 60),))
    driver.control("peer", graft=(T,))
    assert driver.score("peer") == -4.0
    driver.run(20)
    assert driver.score("peer") == 0
    driver.control("peer", graft=(T,))
    assert driver.score("peer") == -1.0


def test_graft_with_a_negative_score_is_pruned_and_backed_off():
    driver = joined(score=SCORED)
    driver.connect("bad")
    driver.tell(AppScored("bad", -0.5))
    assert controls(driver.control("bad", graft=(T,)), "prune") == [Prune(T, (), 60)]
    driver.tell(AppScored("bad", 1.0))
    driver.run(5)
    assert driver.mesh() == ()


def test_graft_into_a_full_mesh_is_refused_unless_we_dialled():
    driver = joined()
    driver.connect(*names(12))
    for peer in names(12):
        driver.control(peer, graft=(T,))
    driver.connect("inbound")
    driver.connect("outbound", outbound=True)
    assert controls(driver.control("inbound", graft=(T,)), "prune") == [Prune(T, (), 60)]
    assert driver.control("outbound", graft=(T,)) == []
    assert len(driver.mesh()) == 13


def test_graft_tells_that_the_peer_is_in_the_topic():
    driver = joined()
    driver.connect("peer", topics=())
    driver.control("peer", graft=(T,))
    assert driver.mesh() == ("peer",)
    assert driver.router.state().peers[0].topics == (T,)


# The heartbeat


def test_mesh_addition_below_d_lo():
    driver = joined("a")
    driver.connect(*names(10))
    actions = driver.run(0.2)
    assert len(driver.mesh()) == 6
    assert len(controls(actions, "graft")) == 5


def test_mesh_subtraction_prunes_to_exactly_d():
    driver = joined(*names(13), D_hi=12)
    for peer in names(13):
        driver.control(peer, graft=(T,))
    driver.connect("outbound", outbound=True)
    driver.control("outbound", graft=(T,))
    assert len(driver.mesh()) == 13
    driver.run(0.2)
    assert len(driver.mesh()) == 6
    assert len(controls(driver.actions, "prune")) >= 7


def test_pruning_keeps_outbound_peers_and_the_best():
    driver = joined(score=SCORED, D_hi=12)
    driver.connect(*names(11))
    driver.connect("out1", "out2", outbound=True)
    for peer in (*names(11), "out1", "out2"):
        driver.control(peer, graft=(T,))
    for number, peer in enumerate(names(4)):
        driver.tell(AppScored(peer, 10.0 + number))
    driver.run(0.2)
    assert set(driver.mesh()) >= {"out1", "out2"}
    assert len(set(driver.mesh()) & set(names(4))) >= 2
    assert len(driver.mesh()) == 6


def test_outbound_quota_is_filled_when_too_few_were_dialled():
    driver = joined()
    driver.connect(*names(5))
    driver.run(0.2)
    driver.connect("out1", "out2", "out3", outbound=True)
    driver.run(1)
    assert len(set(driver.mesh()) & {"out1", "out2", "out3"}) == 2


def test_negative_scores_are_dropped_without_peer_exchange():
    driver = joined(*names(6), score=SCORED, px_enabled=True)
    driver.tell(AppScored("p00", -1.0))
    actions = driver.run(0.2)
    assert controls(actions, "prune", "p00") == [Prune(T, (), 60)]
    assert "p00" not in driver.mesh()


def test_opportunistic_grafting_gets_out_of_a_mesh_of_squatters():
    params = ScoreParams(thresholds=Thresholds(opportunistic_graft=1.0), topics={T: TopicScoreParams(topic_weight=1.0)})
    driver = joined(*names(6, "squatter"), score=params, opportunistic_graft_ticks=2)
    driver.connect("honest", "grey")
    driver.push("honest", message("delivered first"), message("and second"))
    driver.run(3)
    assert "honest" in driver.mesh()
    assert "grey" not in driver.mesh()


def test_ten_honest_peers_among_forty_squatters_hold_three_places_in_each_mesh():
    """Squatters take grafts and never forward a message."""
    params = ScoreParams(
        thresholds=Thresholds(gossip=-10, publish=-100, graylist=-10_000, opportunistic_graft=1),
        topics={
            T: TopicScoreParams(
                topic_weight=1,
                first_deliveries_weight=1,
                first_deliveries_decay=0.9997,
                first_deliveries_cap=100,
                mesh_deliveries_weight=-1,
                mesh_deliveries_decay=0.997,
                mesh_deliveries_threshold=5,
                mesh_deliveries_window_s=0.01,
                mesh_deliveries_activation_s=60,
            )
        },
        ip_colocation_weight=0,
    )

    class Squatter(Meshsub):
        def _recipients(self, message, source):
            return []

    net = Network(lambda rng: Gossipsub(GossipsubParams(score=params, prune_backoff_s=5, opportunistic_graft_ticks=3), rng), 10)
    honest = list(net.names)
    for number in range(40):
        net.add(Squatter(MeshsubParams(), random.Random(number)))
    rng = random.Random(7)
    for name in honest:
        for other in rng.sample([one for one in honest if one != name], 5):
            net.connect(name, other)
        for other in net.names[10:]:
            net.connect(other, name)
    net.subscribe()
    net.run(2)
    for number in range(200):
        net.publish(honest[number % 10], f"m{number}")
        net.run(0.25)
    net.run(20)
    for name in honest:
        assert len(set(net.mesh(name)) & set(honest)) >= 3


def test_stale_heartbeat_timer_is_harmless():
    driver = joined("a")
    driver.run(0.2)
    assert driver.tell(TimerFired(HEARTBEAT)) == []
    assert driver.tell(TimerFired("unknown")) == []


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
    assert of(driver.control("peer", prune=(prune,)), Connect) == [Connect("offered")]


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
    published = message("m", origin=driver.mesh()[0])
    actions = driver.push(driver.mesh()[1], published)
    assert set(recipients(actions, published)) == set(driver.mesh()[2:])
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
    assert driver.router.is_ready(T, 1)
    driver.run(1)
    assert driver.router.is_ready(T)
    assert not driver.router.is_ready(T, 7)


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
