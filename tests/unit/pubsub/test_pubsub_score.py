"""Peer scores: P1 to P7 as one table, decay, retention, new parameters, the sinkhole."""

import random

import pytest
from unit.pubsub.network import Network, Solo, T, message

from gossiplog.errors import LocalProtocolError
from gossiplog.pubsub import GossipsubParams, Outcome, ScoreParams, Thresholds, Topic, TopicScoreParams
from gossiplog.pubsub.events import AppScored, PeerConnected, PeerDisconnected, Subscribe
from gossiplog.pubsub.gossip.score import PeerScores, Scoring
from gossiplog.pubsub.routers.gossipsub import Gossipsub
from gossiplog.pubsub.rpc import Rpc

TOPIC = TopicScoreParams(
    topic_weight=0.5,
    time_in_mesh_weight=1,
    time_in_mesh_cap=10,
    first_deliveries_weight=1,
    first_deliveries_decay=0.9,
    first_deliveries_cap=5,
    mesh_deliveries_weight=-1,
    mesh_deliveries_threshold=4,
    mesh_deliveries_cap=10,
    mesh_deliveries_decay=0.9,
    mesh_deliveries_window_s=0.01,
    mesh_deliveries_activation_s=1,
    mesh_failure_weight=-1,
    mesh_failure_decay=0.9,
    invalid_messages_weight=-1,
    invalid_messages_decay=0.9,
)
PARAMS = ScoreParams(
    default_topic=None,
    topics={T: TOPIC},
    app_specific_weight=2,
    ip_colocation_weight=-1,
    ip_colocation_threshold=1,
    behaviour_weight=-1,
    behaviour_threshold=1,
    behaviour_decay=0.9,
)


def time_in_mesh(scores):
    scores.graft("p", T, 0)
    scores.decay(5)  # P3 has begun as well: (4 - 0)² × 0.5 less


def time_in_mesh_capped(scores):
    scores.graft("p", T, 0)
    scores.decay(50)


def first_deliveries(scores):
    for _ in range(3):
        scores.deliver_first("p", T)


def first_deliveries_capped(scores):
    for _ in range(9):
        scores.deliver_first("p", T)


def first_deliveries_decayed(scores):
    for _ in range(4):
        scores.deliver_first("p", T)
    scores.decay(1)


def mesh_deliveries(scores):
    scores.graft("p", T, 0)
    scores.decay(2)
    scores.deliver_again("p", T, -1)
    scores.deliver_again("p", T, 0.01)
    scores.deliver_again("p", T, 0.02)  # too late to count


def mesh_failure(scores):
    scores.graft("p", T, 0)
    scores.decay(2)
    scores.prune("p", T)


def invalid_messages(scores):
    for _ in range(3):
        scores.reject("p", T)


def app_specific(scores):
    scores.set_app("p", -7)


def ip_colocation(scores):
    for peer in ("p", "q", "r"):
        scores.connect(peer, "10.1.1.1")


def behaviour_below(scores):
    scores.penalise("p", 1)


def behaviour(scores):
    scores.penalise("p", 4)


def other_topic(scores):
    scores.deliver_first("p", Topic("unscored"))
    scores.deliver_again("p", Topic("unscored"), 0)
    scores.reject("p", Topic("unscored"))
    scores.graft("p", Topic("unscored"), 0)
    scores.prune("p", Topic("unscored"))


def stranger(scores):
    scores.set_app("stranger", -7)
    scores.penalise("stranger", 9)
    scores.deliver_first("stranger", T)


@pytest.mark.parametrize(
    ("happens", "score"),
    [
        (time_in_mesh, 0.5 * 5 - 0.5 * 16),
        (time_in_mesh_capped, 0.5 * 10 - 0.5 * 16),
        (first_deliveries, 0.5 * 3),
        (first_deliveries_capped, 0.5 * 5),
        (first_deliveries_decayed, 0.5 * 3.6),
        (mesh_deliveries, 0.5 * 2 - 0.5 * 4),
        (mesh_failure, -0.5 * 16),
        (invalid_messages, -0.5 * 9),
        (app_specific, -14),
        (ip_colocation, -4),
        (behaviour_below, 0),
        (behaviour, -9),
        (other_topic, 0),
        (stranger, 0),
    ],
)
def test_each_part_of_the_score(happens, score):
    scores = PeerScores(PARAMS)
    scores.connect("p", "10.0.0.1")
    happens(scores)
    parts = scores.parts("p")
    assert parts.total == pytest.approx(score)
    total = sum(getattr(parts, name) for name in parts.__dataclass_fields__ if name != "total")
    assert total == pytest.approx(parts.total)
    scores.decay(1e6)
    scores.of("p")


def test_counters_decay_to_zero_and_are_forgotten():
    scores = PeerScores(PARAMS)
    scores.connect("p", None)
    for happens in (first_deliveries, invalid_messages, behaviour):
        happens(scores)
    for second in range(1, 60):
        scores.decay(float(second))
        scores.decay(float(second) + 0.1)  # not yet
    assert scores.of("p") == scores.parts("p").total == 0
    assert not scores._peers["p"].topics


def test_topic_scores_are_capped_together():
    scores = PeerScores(ScoreParams(topics={T: TopicScoreParams(topic_weight=100)}, topic_cap=50))
    scores.connect("p", None)
    scores.deliver_first("p", T)
    assert scores.parts("p").total == 50
    uncapped = PeerScores(ScoreParams(topics={T: TopicScoreParams(topic_weight=100)}, topic_cap=0))
    uncapped.connect("p", None)
    uncapped.deliver_first("p", T)
    assert uncapped.parts("p").total == 100


def test_exempt_addresses_are_not_counted_and_a_new_address_replaces_the_old():
    scores = PeerScores(PARAMS)
    for peer in ("a", "b", "c"):
        scores.connect(peer, "127.0.0.1")
    assert scores.of("a") == 0
    for peer in ("a", "b", "c"):
        scores.connect(peer, "10.0.0.1")
    assert scores.of("a") == -4
    scores.connect("b", "10.0.0.2")
    assert scores.of("a") == -1


def test_negative_scores_are_retained_and_positive_ones_forgotten():
    scores = PeerScores(ScoreParams(retain_s=10))
    for peer, app in (("bad", -1.0), ("good", 1.0)):
        scores.connect(peer, "10.0.0.9")
        scores.set_app(peer, app)
        scores.deliver_first(peer, T)
        scores.disconnect(peer, 0)
    assert (scores.of("bad"), scores.of("good")) == (-10, 0)
    scores.decay(5)
    scores.connect("bad", None)
    assert scores.of("bad") == -10
    scores.disconnect("bad", 6)
    scores.decay(15)
    assert scores.of("bad") == -10
    scores.decay(16)
    assert scores.of("bad") == 0
    assert scores.retained == 0


def test_retained_scores_are_bounded_and_the_oldest_goes_first():
    scores = PeerScores(ScoreParams(retained_max=2))
    scores.connect("stays", None)
    for peer in ("a", "b", "c"):
        scores.connect(peer, None)
        scores.set_app(peer, -1)
        scores.disconnect(peer, 0)
    assert scores.retained == 2
    assert [scores.of(peer) for peer in ("a", "b", "c")] == [0, -10, -10]


def test_leaving_the_mesh_by_disconnecting_is_counted_as_a_failure():
    scores = PeerScores(PARAMS)
    scores.connect("p", None)
    scores.graft("p", T, 0)
    scores.decay(2)
    scores.disconnect("p", 2)
    assert scores.of("p") == -8


def test_enough_deliveries_leave_no_failure_behind():
    scores = PeerScores(PARAMS)
    scores.connect("p", None)
    scores.graft("p", T, 0)
    scores.decay(2)
    for _ in range(5):
        scores.deliver_first("p", T)
    scores.prune("p", T)
    assert scores.parts("p").mesh_failure == scores.parts("p").mesh_delivery_deficit == 0


def test_copies_within_the_window_count_for_the_mesh():
    driver = Solo(Gossipsub(GossipsubParams(score=PARAMS), random.Random(1)))
    driver.connect("a", "b", "c", "d")
    driver.tell(Subscribe(T))
    driver.say("a", Rpc((message("m"),)))
    driver.say("b", Rpc((message("m"),)))
    driver.push("a", message("other"))
    from gossiplog.pubsub.events import Validated

    driver.tell(Validated(message("m").id, Outcome.ACCEPT))
    driver.say("c", Rpc((message("m"),)))
    driver.now += 0.02
    driver.say("d", Rpc((message("m"),)))
    assert [driver.router.scores._peers[peer].topics[T].mesh_deliveries for peer in "abcd"] == [2, 1, 1, 0]


def test_scores_survive_a_reconnection_through_the_router():
    driver = Solo(Gossipsub(GossipsubParams(score=PARAMS), random.Random(1)))
    driver.connect("bad")
    driver.tell(AppScored("bad", -3.0))
    driver.tell(PeerDisconnected("bad"))
    driver.tell(PeerConnected("bad", "/meshsub/1.2.0", False))
    assert driver.score("bad") == -6


def test_peer_with_a_negative_score_is_a_sinkhole():
    """Nobody grafts, gossips to, or reads a peer below the graylist threshold, and everybody else is served."""
    net = Network(lambda rng: Gossipsub(GossipsubParams(score=ScoreParams(), flood_publish=True), rng), 12)
    net.connect_all()
    bad = net.names[0]
    for name in net.names[1:]:
        net.tell(name, AppScored(bad, -1000.0))
    net.subscribe()
    net.run(5)
    assert all(bad not in net.mesh(name) for name in net.names[1:])
    assert net.receivers(net.publish(bad, "from the sinkhole")) == set()
    published = net.publish(net.names[1], "past the sinkhole")
    net.run(5)
    assert net.receivers(published) == set(net.names[2:])


def test_no_scoring_is_zero_for_everybody():
    scoring = Scoring()
    scoring.penalise("p", 5)
    scoring.graft("p", T, 0)
    scoring.prune("p", T)
    assert scoring.of("p") == 0


@pytest.mark.parametrize(
    ("cls", "fields"),
    [
        (ScoreParams, {"behaviour_weight": 1}),
        (ScoreParams, {"behaviour_decay": 1}),
        (ScoreParams, {"retained_max": 0}),
        (ScoreParams, {"topic_cap": -1}),
        (ScoreParams, {"behaviour_threshold": -1}),
        (ScoreParams, {"ip_colocation_threshold": 0}),
        (Thresholds, {"gossip": 1}),
        (Thresholds, {"accept_px": -1}),
        (TopicScoreParams, {"mesh_deliveries_weight": 1}),
        (TopicScoreParams, {"first_deliveries_decay": 1}),
        (TopicScoreParams, {"mesh_deliveries_threshold": 101}),
        (TopicScoreParams, {"mesh_deliveries_window_s": -1}),
        (TopicScoreParams, {"mesh_deliveries_activation_s": -1}),
        (TopicScoreParams, {"first_deliveries_cap": -1}),
        (TopicScoreParams, {"time_in_mesh_cap": -1}),
    ],
)
def test_score_parameters_that_break_a_rule_are_refused(cls, fields):
    with pytest.raises(LocalProtocolError, match="parameters break the rule"):
        cls(**fields)
