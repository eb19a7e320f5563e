"""The mesh: joining, leaving, grafting, pruning, backoff, quotas; the second part of the acceptance list."""

import random

import pytest
from unit.pubsub.gossipsub_driver import FLOODSUB, MESHSUB_1_0, SCORED, joined, solo
from unit.pubsub.network import Network, T, controls, message, names, said

from gossiplog.pubsub import Fate, GossipsubParams, MeshsubParams, ScoreParams, Thresholds, Topic, TopicScoreParams
from gossiplog.pubsub.base import HEARTBEAT
from gossiplog.pubsub.events import (
    AppScored,
    PeerConnected,
    PeerDisconnected,
    Publish,
    SendFailed,
    Subscribe,
    TimerFired,
    Unsubscribe,
)
from gossiplog.pubsub.gossip.mesh import GraftBackoff
from gossiplog.pubsub.routers.gossipsub import Gossipsub
from gossiplog.pubsub.routers.meshsub import Meshsub
from gossiplog.pubsub.rpc import Prune, Rpc, Subscription

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
    backoff = GraftBackoff(2)
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


def test_graft_during_backoff_is_pruned_three_times_and_then_met_with_silence():
    params = ScoreParams(behaviour_weight=-1.0, thresholds=Thresholds(gossip=-10, publish=-20, graylist=-30))
    driver = joined("peer", score=params)
    driver.control("peer", prune=(Prune(T, (), 60),))
    answers = [controls(driver.control("peer", graft=(T,)), "prune") for _ in range(5)]
    assert answers == [[Prune(T, (), 60)]] * 3 + [[], []]
    assert driver.score("peer") == -36.0
    assert driver.mesh() == ()


def test_graft_during_backoff_counts_once_after_the_flood_window_and_twice_within():
    driver = joined("peer", score=ScoreParams(behaviour_weight=-1.0))
    driver.control("peer", prune=(Prune(T, (), 60),))
    driver.control("peer", graft=(T,))
    assert driver.score("peer") == -4.0
    driver.run(20)
    assert driver.score("peer") == 0
    driver.control("peer", graft=(T,))
    assert driver.score("peer") == -1.0


@pytest.mark.parametrize("seconds", [10, 49])
def test_graft_in_a_short_backoff_counts_once(seconds: int):
    driver = joined("peer", score=ScoreParams(behaviour_weight=-1.0))
    driver.control("peer", prune=(Prune(T, (), seconds),))
    driver.control("peer", graft=(T,))
    assert driver.score("peer") == -1.0


def test_peer_with_a_negative_score_is_offered_nobody_when_we_leave():
    driver = joined("good", "better", "bad", score=SCORED, px_enabled=True)
    assert set(driver.mesh()) == {"good", "better", "bad"}
    driver.tell(AppScored("bad", -0.5))
    actions = driver.tell(Unsubscribe(T))
    offered = {
        peer: [record.peer for prune in controls(actions, "prune", peer) for record in prune.peers] for peer in ("good", "better", "bad")
    }
    assert offered == {"good": ["better"], "better": ["good"], "bad": []}


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
