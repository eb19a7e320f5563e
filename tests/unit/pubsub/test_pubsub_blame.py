"""Who is charged for what, and who must not be: credit among echoes, promises, replays, refusals, decay by the clock, networks."""

import random

import pytest
from unit.pubsub.gossipsub_driver import joined
from unit.pubsub.network import Solo, T, controls, message, names, of

from gossiplog.errors import LocalProtocolError
from gossiplog.pubsub import GossipsubParams, Outcome, ScoreParams, Topic, TopicScoreParams
from gossiplog.pubsub.actions import Connect, SendRpc
from gossiplog.pubsub.events import PeerConnected, Publish, RpcReceived, Subscribe, Unsubscribe, Validated
from gossiplog.pubsub.gossip.score import PeerScores
from gossiplog.pubsub.routers.gossipsub import Gossipsub
from gossiplog.pubsub.rpc import IHave, PeerRecord, Prune, Rpc, Subscription
from gossiplog.pubsub.wire.rpc_codec import RPC, Wire

WITH_P3 = ScoreParams(default_topic=TopicScoreParams(mesh_deliveries_weight=-1, mesh_deliveries_activation_s=1))
WITH_P4 = ScoreParams(default_topic=TopicScoreParams(invalid_messages_weight=-1))


def test_mesh_peer_is_credited_although_many_strangers_echoed_before_it():
    driver = joined("first", *names(6), score=WITH_P3)
    links = driver.router.mesh.links[T]
    driver.connect(*names(17, "stranger"))
    one = message("m")
    for peer in ("first", *names(17, "stranger"), *names(6)):
        driver.say(peer, Rpc((one,)))
    driver.tell(Validated(one.id, Outcome.ACCEPT))
    counted = {peer: driver.router.scores._peers[peer].topics[T].mesh_deliveries for peer in links}
    assert set(counted.values()) == {1}


def test_promise_is_kept_by_a_message_of_a_topic_that_we_have_left_meanwhile():
    driver = joined("a", score=ScoreParams())
    driver.control("a", ihave=(IHave(T, (message("late").id,)),))
    assert driver.router.gossip.promise_count == 1
    driver.tell(Unsubscribe(T))
    driver.say("a", Rpc((message("late"),)))
    assert driver.router.gossip.promise_count == 0
    driver.run(5)
    assert driver.score("a") >= 0


def test_promise_is_kept_by_a_message_that_there_is_no_room_to_validate():
    driver = joined("a", score=ScoreParams(), pending_max=1)
    driver.control("a", ihave=(IHave(T, (message("late").id,)),))
    driver.say("a", Rpc((message("filling"),)))
    driver.say("a", Rpc((message("late"),)))
    assert driver.router.gossip.promise_count == 0
    driver.run(5)
    assert driver.score("a") >= 0


def test_every_replay_of_an_invalid_message_counts():
    driver = joined("bad", score=WITH_P4)
    driver.push("bad", message("invalid"), outcome=Outcome.REJECT)
    for _ in range(3):
        driver.say("bad", Rpc((message("invalid"),)))
    assert driver.score("bad") == 0.5 * -(4**2)


def test_refused_signature_is_an_invalid_message_of_its_topic():
    driver = joined("bad", score=WITH_P4)
    driver.tell(RpcReceived("bad", Rpc(), (T, T, Topic("elsewhere"))))
    assert driver.score("bad") == 0.5 * -(2**2)


@pytest.mark.parametrize("heartbeat_s", [0.25, 0.7, 1.0, 3.0])
def test_counters_decay_with_the_clock_and_not_with_the_heartbeat(heartbeat_s):
    scores = PeerScores(ScoreParams(behaviour_decay=0.9, decay_to_zero=1e-9))
    scores.connect("p", None)
    scores.decay(100.0)
    scores.penalise("p", 100)
    for beat in range(1, round(21 / heartbeat_s) + 1):
        scores.decay(100 + beat * heartbeat_s)
    assert scores._peers["p"].behaviour == pytest.approx(100 * 0.9**20, rel=0.12)  # one interval more or less


def test_networks_are_exempt_and_what_is_no_network_is_refused():
    scores = PeerScores(ScoreParams(ip_colocation_threshold=1, ip_colocation_exempt=("10.0.0.0/8", "fd00::/8", "192.0.2.1")))
    for number, address in enumerate(["10.1.2.3", "10.1.2.3", "fd12::1", "fd12::1", "192.0.2.1", "192.0.2.1", "192.0.2.2", "192.0.2.2"]):
        scores.connect(f"p{number}", address)
    assert [scores.of(f"p{number}") < 0 for number in range(8)] == [False] * 6 + [True] * 2
    with pytest.raises(LocalProtocolError, match=r"10\.0\.0\.0/99"):
        ScoreParams(ip_colocation_exempt=("10.0.0.0/99",))


def test_bootstrapper_has_no_mesh_and_names_others():
    driver = joined(*names(5), D=0, D_lo=0, D_hi=0, D_score=0, D_out=0, px_enabled=True)
    (prune,) = controls(driver.control("p00", graft=(T,)), "prune")
    assert {record.peer for record in prune.peers} == set(names(5)[1:])
    driver.run(5)
    assert driver.router.mesh.links[T] == {}


def test_publisher_of_a_large_message_tells_its_mesh_first_that_it_has_it():
    driver = joined("a", "b")
    actions = of(driver.tell(Publish(message("x" * 1000))), SendRpc)
    assert [bool(action.rpc.messages) for action in actions] == [False, True]
    assert set(actions[0].peers) == {"a", "b"}
    assert actions[0].rpc.control.idontwant == (message("x" * 1000).id,)
    assert not controls(driver.tell(Publish(message("small"))), "idontwant")


def test_repeated_control_messages_are_merged_and_charged():
    prune = {
        "topicID": "t",
        "peers": [b"\x0a\x26" + bytes([0, 36]) + bytes([8, 1, 18, 32]) + random.Random(1).randbytes(32)] * 40,
        "backoff": 9,
    }
    decoded = Wire().decode(RPC.encode({"control": {"prune": [prune] * 1000, "graft": [{"topicID": "t"}] * 1000}}))
    assert decoded.rpc.control.graft == (T,)
    (kept,) = decoded.rpc.control.prune
    assert (kept.topic, kept.backoff_s, len(kept.peers)) == (T, 9, 16)
    driver = joined("flood", score=ScoreParams())
    driver.tell(RpcReceived("flood", decoded.rpc, decoded.refused, decoded.offences))
    assert not driver.router.is_heeded("flood")


def test_graylisted_peer_is_not_heeded_unless_it_is_direct():
    solo = Solo(Gossipsub(GossipsubParams(score=ScoreParams(), direct_peers=("friend",)), random.Random(1)))
    solo.tell(Subscribe(T))
    for peer in ("friend", "bad"):
        solo.tell(PeerConnected(peer, "/meshsub/1.1.0", False))
        solo.tell(RpcReceived(peer, Rpc(), offences=100))
    assert [solo.router.is_heeded(peer) for peer in ("friend", "bad", "stranger")] == [True, False, True]


def test_graylisted_peer_that_leaves_is_let_go_and_nothing_else_of_it_is_heeded():
    driver = joined("bad", score=ScoreParams())
    driver.tell(RpcReceived("bad", Rpc(), offences=100))
    other = Topic("other")
    driver.tell(RpcReceived("bad", Rpc(subscriptions=(Subscription(T, False), Subscription(other, True)))))
    (peer,) = driver.router.state().peers
    assert peer.topics == ()
    assert driver.mesh() == ()


def test_whoever_invents_thousands_of_ids_is_not_asked_again():
    driver = joined("liar", score=ScoreParams(behaviour_threshold=6.0, behaviour_decay=0.99))
    driver.control("liar", ihave=(IHave(T, tuple(b"invented %d" % number for number in range(5000))),))
    driver.run(5)
    assert not controls(driver.control("liar", ihave=(IHave(T, tuple(b"more %d" % number for number in range(50))),)), "iwant")
    assert not driver.router.is_heeded("liar")


def test_graft_and_prune_flood_is_passed_over_and_charged():
    driver = joined("flood", score=ScoreParams(behaviour_threshold=6.0))
    for _ in range(40):
        driver.control("flood", prune=(Prune(T, (), 1),))
    assert driver.score("flood") == -10 * (9 - 6) ** 2  # what came after those nine was not read


def test_peers_offered_by_many_prunes_are_dialled_within_the_limit_of_one_heartbeat():
    driver = joined(*names(3))
    for number in range(10):
        driver.control("p00", prune=(Prune(T, tuple(PeerRecord(f"x{number}-{index}") for index in range(16)), 60),))
    assert len(of(driver.actions, Connect)) == 16


def test_peer_that_serves_what_a_mesh_of_squatters_kept_back_is_grafted():
    driver = joined(*names(12, "squatter"), score=ScoreParams(), repair_peers=2, D_hi=12)
    for squatter in names(12, "squatter"):
        driver.control(squatter, graft=(T,))
    driver.connect("helper", "silent")
    driver.control("helper", graft=(T,))
    assert "helper" not in driver.router.mesh.links[T]
    driver.run(61)  # the backoff of the refused graft
    driver.control("helper", ihave=(IHave(T, (message("m").id,)),))
    driver.push("helper", message("m"))
    driver.run(3)
    assert "helper" in driver.router.mesh.links[T]
    assert "silent" not in driver.router.mesh.links[T]
    assert len(driver.router.mesh.links[T]) <= 12


def test_rotating_gossip_reaches_everybody_outside_the_mesh_in_three_heartbeats():
    for count in (7, 14, 40):
        driver = joined(*names(12, "squatter"), D=12, gossip_factor=0.4, gossip_rotates=True)
        driver.connect(*names(count))
        driver.push("squatter00", message("m"))
        driver.run(3)
        told = {peer for action in of(driver.actions, SendRpc) for peer in action.peers if action.rpc.control and action.rpc.control.ihave}
        assert told >= set(names(count)) - set(driver.mesh())
