"""Gossip, IDONTWANT, the spam suite, validation's three results; the third part of the acceptance list."""

import random

import pytest
from unit.pubsub.gossipsub_driver import joined
from unit.pubsub.network import Solo, T, controls, counts, message, names, of, recipients, said

from gossiplog.pubsub import Fate, GossipsubParams, Outcome, ScoreParams, Topic
from gossiplog.pubsub.actions import AnotherSource, Deliver, Published, Validate
from gossiplog.pubsub.cache import MessageCache
from gossiplog.pubsub.events import PeerDisconnected, Publish, RpcReceived, SendFailed, Subscribe, Unsubscribe, Validated
from gossiplog.pubsub.routers.gossipsub import Gossipsub
from gossiplog.pubsub.rpc import IHave, Rpc, Subscription
from gossiplog.pubsub.seen import Seen

MESHSUB_1_1 = "/meshsub/1.1.0"
LARGE = b"x" * 600


def metadata_only(driver):
    return driver.router.state().topics[0].metadata_only


# Gossip


def test_gossip_goes_to_at_least_d_lazy_peers_outside_the_mesh():
    driver = joined(*names(20))
    driver.push("p00", message("m"))
    actions = driver.run(0.2)
    told = [peer for peer in names(20) if controls(actions, "ihave", peer)]
    assert len(told) == 6
    assert not set(told) & set(driver.mesh())


def test_gossip_goes_to_at_most_the_factor_of_many_peers():
    driver = joined(*names(86))
    driver.push("p00", message("m"))
    assert len(controls(driver.run(0.2), "ihave")) == 20


def test_message_is_announced_for_three_heartbeats_and_served_for_five():
    driver = joined(*names(30), D_lazy=30)
    driver.push("p00", message("m"))
    announced = [len(controls(driver.run(1.0), "ihave")) for _ in range(4)]
    assert announced == [24, 24, 24, 0]
    outside = metadata_only(driver)[0]
    assert recipients(driver.control(outside, iwant=(message("m").id,)), message("m"))
    driver.run(2)
    assert driver.control(outside, iwant=(message("m").id,)) == []


def test_ids_in_one_ihave_are_limited():
    driver = joined(*names(10), ihave_ids_max=5)
    for number in range(8):
        driver.push("p00", message(f"m{number}"))
    for ihave in controls(driver.run(0.2), "ihave"):
        assert len(ihave.ids) == len(set(ihave.ids)) == 5


def test_gossip_is_not_sent_to_floodsub_direct_or_badly_scored_peers():
    driver = joined("a", direct_peers=("friend",), score=ScoreParams(ip_colocation_threshold=1), D=1, D_lo=1, D_hi=1, D_score=0, D_out=0)
    driver.connect("flood", protocol="/floodsub/1.0.0")
    driver.connect("friend", "good")
    driver.connect("bad1", "bad2", "bad3", address="10.0.0.1")
    driver.push("a", message("m"))
    actions = driver.run(0.2)
    assert [peer for peer in ("flood", "friend", "good", "bad1") if controls(actions, "ihave", peer)] == ["good"]


def test_gossip_about_fanout_topics_goes_to_other_peers():
    driver = Solo(Gossipsub(GossipsubParams(flood_publish=False), random.Random(1)))
    driver.connect(*names(10))
    driver.tell(Publish(message("outside")))
    fan_out = driver.router.state().topics[0].fan_out
    actions = driver.run(0.2)
    assert {peer for peer in names(10) if controls(actions, "ihave", peer)} == set(names(10)) - set(fan_out)


def test_control_for_one_peer_travels_in_one_rpc():
    driver = joined(*names(12))
    driver.push("p00", message("m"))
    driver.tell(Subscribe(Topic("u")))
    for peer in names(12):
        driver.say(peer, Rpc(subscriptions=(Subscription(Topic("u"), True),)))
    actions = driver.run(0.2)
    for peer in names(12):
        assert len(said(actions, peer)) <= 1
    both = [rpc for rpc in said(actions) if rpc.control and rpc.control.graft and rpc.control.ihave]
    assert both


def test_ihave_of_unknown_messages_is_answered_with_iwant():
    driver = joined("a")
    driver.push("a", message("known"))
    actions = driver.control("a", ihave=(IHave(T, (message("known").id, b"new1", b"new2")), IHave(Topic("not ours"), (b"new3",))))
    assert sorted(controls(actions, "iwant", "a")) == [b"new1", b"new2"]
    assert driver.control("a", ihave=(IHave(T, (message("known").id,)),)) == []


# Spam


def test_one_peer_is_served_a_message_once_and_three_times_on_request():
    driver = joined("a", "b")
    driver.push("a", message("m"))
    sent = len(recipients(driver.actions, message("m")))
    for _ in range(10):
        driver.control("b", iwant=(message("m").id,))
    assert len(recipients(driver.actions, message("m"))) - sent == 3
    assert counts(recipients(driver.actions, message("m"))) == {"b": 4}


def test_ihave_spam_is_capped_and_broken_promises_cost():
    driver = joined("spam", score=ScoreParams(), ihave_ids_max=100, ihave_messages_max=10)
    for number in range(20):
        ids = tuple(b"invented %d %d" % (number, index) for index in range(15))
        driver.control("spam", ihave=(IHave(T, ids),))
    assert len(controls(driver.actions, "iwant")) == 100
    driver.run(4.5)
    assert driver.score("spam") < 0
    driver.control("spam", ihave=(IHave(T, (b"again",)),))
    assert not controls(driver.control("spam", ihave=(IHave(T, (b"more",)),)), "iwant")


def test_gossip_rpcs_are_counted_each_heartbeat():
    driver = joined("spam", ihave_messages_max=2)
    asked = [len(controls(driver.control("spam", ihave=(IHave(T, (b"id %d" % number,)),)), "iwant")) for number in range(4)]
    assert asked == [1, 1, 0, 0]
    driver.run(1)
    assert controls(driver.control("spam", ihave=(IHave(T, (b"id 5",)),)), "iwant") == [b"id 5"]


def test_kept_promises_cost_nothing():
    driver = joined("a", score=ScoreParams())
    driver.control("a", ihave=(IHave(T, (message("m").id,)),))
    driver.control("a", ihave=(IHave(T, (message("m").id,)),))
    assert driver.router.gossip.promise_count == 1
    driver.push("a", message("m"))
    driver.run(5)
    assert driver.router.gossip.promise_count == 0
    assert driver.score("a") >= 0


def test_promise_of_a_message_that_we_publish_meanwhile_costs_nothing():
    """A client pushed it to us: its copy by the mesh is no news when it comes."""
    driver = joined("a", "b", score=ScoreParams())
    driver.control("a", ihave=(IHave(T, (message("x").id,)),))
    assert driver.router.gossip.promise_count == 1
    driver.tell(Publish(message("x")))
    assert driver.router.gossip.promise_count == 0
    driver.run(10)
    assert driver.score("a") >= 0


def test_promises_are_tracked_up_to_a_limit_and_each_by_its_own_deadline():
    driver = joined("a", "b", score=ScoreParams(), promises_max=2)
    driver.control("a", ihave=(IHave(T, (b"id",)),))
    driver.run(2)
    driver.control("b", ihave=(IHave(T, (b"id",)),))
    driver.control("b", ihave=(IHave(T, (b"other",)),))
    assert driver.router.gossip.promise_count == 2
    driver.run(2)
    assert driver.router.gossip.promise_count == 1
    driver.run(3)
    assert driver.router.gossip.promise_count == 0


def test_peers_below_the_gossip_threshold_get_and_give_no_gossip():
    driver = joined("a", "bad", score=ScoreParams())
    driver.push("a", message("m"))
    driver.router.scores.penalise("bad", 2)
    assert driver.control("bad", iwant=(message("m").id,)) == []
    assert driver.control("bad", ihave=(IHave(T, (b"new",)),)) == []


def test_invalid_messages_lead_to_the_graylist():
    driver = joined("bad", score=ScoreParams())
    for number in range(20):
        driver.push("bad", message(f"m{number}"), outcome=Outcome.REJECT)
    assert driver.score("bad") < -80
    assert driver.say("bad", Rpc((message("unread"),))) == []
    assert not of(driver.actions, Deliver)


def test_refused_messages_of_the_wire_are_misbehaviour():
    driver = joined("bad", score=ScoreParams())
    driver.tell(RpcReceived("bad", Rpc(), offences=2))
    assert driver.score("bad") == -40
    plain = joined("bad")
    assert plain.tell(RpcReceived("bad", Rpc(), (T,), 2)) == []


def test_refused_messages_count_beside_an_old_copy_too():
    driver = joined("bad", score=ScoreParams(), is_validating=False)
    driver.push("bad", message("old"))
    before = driver.score("bad")
    driver.tell(RpcReceived("bad", Rpc((message("old"),))))
    assert driver.score("bad") == before
    driver.tell(RpcReceived("bad", Rpc((message("old"),)), offences=2))
    assert driver.score("bad") == before - 40


# IDONTWANT


def test_idontwant_is_sent_to_the_mesh_but_not_to_the_source():
    driver = joined("source", "new1", "new2")
    driver.connect("old", protocol=MESHSUB_1_1)
    driver.control("old", graft=(T,))
    actions = driver.say("source", Rpc((message(LARGE),)))
    assert [peer for peer in sorted(driver.mesh()) if controls(actions, "idontwant", peer)] == ["new1", "new2"]


def test_small_messages_and_copies_cause_no_idontwant():
    driver = joined("a", "b")
    assert not controls(driver.push("a", message("small")), "idontwant")
    driver.push("a", message(LARGE))
    assert driver.push("b", message(LARGE)) == []


def test_unwanted_message_is_not_forwarded_and_not_served():
    driver = joined("a", "b", "c")
    large = message(LARGE)
    driver.control("b", idontwant=(large.id,))
    assert recipients(driver.push("a", large), large) == ["c"]
    assert driver.control("b", iwant=(large.id,)) == []
    assert sorted(recipients(driver.push("a", message("other")), message("other"))) == ["b", "c"]


def test_unwanted_publish_is_reported():
    driver = joined("a", "b")
    large = message(LARGE)
    driver.control("b", idontwant=(large.id,))
    (report,) = of(driver.tell(Publish(large)), Published)
    assert dict(report.fates) == {"a": Fate.MESH, "b": Fate.UNWANTED}


def test_idontwant_is_forgotten_after_three_heartbeats_and_with_the_peer():
    driver = joined("a", "b")
    driver.control("b", idontwant=(b"1",))
    driver.run(1.5)
    driver.control("b", idontwant=(b"2",))
    assert set(driver.router.gossip.unwanted["b"]) == {b"1", b"2"}
    driver.run(1.0)
    assert set(driver.router.gossip.unwanted["b"]) == {b"2"}
    driver.run(2.0)
    assert driver.router.gossip.unwanted == {}
    driver.control("b", idontwant=(b"3",))
    driver.tell(PeerDisconnected("b"))
    assert driver.router.gossip.unwanted == {}


def test_idontwant_spam_is_bounded():
    driver = joined("spam")
    for number in range(30):
        driver.control("spam", idontwant=tuple(b"%d %d" % (number, index) for index in range(100)))
    assert driver.router.state().sizes["unwanted"] == 1000


# Validation


def test_message_is_validated_once_and_forwarded_on_accept_to_those_who_did_not_send_it():
    driver = joined("a", "b", "c", "d")
    one = message("m")
    actions = driver.say("a", Rpc((one,)))
    assert actions == [Validate(one, "a")]
    assert driver.say("b", Rpc((one, one))) == []
    actions = driver.tell(Validated(one.id, Outcome.ACCEPT))
    assert actions[0] == Deliver(one, "a")
    assert sorted(recipients(actions, one)) == ["c", "d"]
    assert driver.tell(Validated(one.id, Outcome.ACCEPT)) == []
    assert driver.say("c", Rpc((one,))) == []


def test_ignored_message_costs_nothing_and_names_every_other_source():
    driver = joined("a", "b", "c", score=ScoreParams())
    one = message("orphan")
    driver.say("a", Rpc((one,)))
    driver.say("b", Rpc((one,)))
    assert driver.tell(Validated(one.id, Outcome.IGNORE)) == [AnotherSource(one.id, T, "b")]
    assert driver.say("c", Rpc((one,))) == [AnotherSource(one.id, T, "c")]
    assert driver.say("c", Rpc((one,))) == []
    assert driver.say("a", Rpc((one,))) == []
    assert all(driver.score(peer) == 0 for peer in "abc")


def test_sources_of_an_ignored_message_are_bounded():
    driver = joined(*names(9), sources_max=3, D=0, D_lo=0, D_hi=0, D_score=0, D_out=0)
    driver.push("p00", message("orphan"), outcome=Outcome.IGNORE)
    for peer in names(9)[1:]:
        driver.say(peer, Rpc((message("orphan"),)))
    assert len(of(driver.actions, AnotherSource)) == 3


def test_rejected_message_penalises_everyone_who_sent_it():
    driver = joined("a", "b", "c", "d", score=ScoreParams())
    one = message("bad")
    driver.say("a", Rpc((one,)))
    driver.say("b", Rpc((one,)))
    assert driver.tell(Validated(one.id, Outcome.REJECT)) == []
    driver.say("c", Rpc((one,)))
    assert [driver.score(peer) < 0 for peer in "abcd"] == [True, True, True, False]


def test_messages_of_topics_we_are_not_in_are_passed_over():
    driver = joined("a")
    elsewhere = message("m", Topic("elsewhere"))
    assert driver.say("a", Rpc((elsewhere,))) == []
    driver.tell(Subscribe(Topic("elsewhere")))
    assert of(driver.say("a", Rpc((elsewhere,))), Validate)


def test_messages_beyond_the_pending_maximum_can_come_again():
    driver = joined("a", "b", pending_max=1)
    driver.say("a", Rpc((message("first"), message("second"))))
    assert len(of(driver.actions, Validate)) == 1
    driver.tell(Validated(message("first").id, Outcome.ACCEPT))
    assert of(driver.say("b", Rpc((message("second"),))), Validate)


@pytest.mark.parametrize("is_scoring", [False, True])
def test_without_validation_messages_are_accepted_at_once(is_scoring):
    from gossiplog.pubsub import TopicScoreParams

    counting = ScoreParams(default_topic=TopicScoreParams(mesh_deliveries_weight=-0.001))
    driver = joined("a", "b", is_validating=False, score=counting if is_scoring else None)
    actions = driver.say("a", Rpc((message("m"),)))
    assert actions[0] == Deliver(message("m"), "a")
    assert recipients(actions, message("m")) == ["b"]
    assert driver.say("b", Rpc((message("m"),))) == []


# Publishing


def test_publish_reports_each_peer_and_a_duplicate_as_such():
    driver = joined(*names(8), flood_publish=False)
    (report,) = of(driver.tell(Publish(message("m"))), Published)
    assert counts(fate for _, fate in report.fates) == {Fate.MESH: 6, Fate.GOSSIP: 2}
    assert driver.tell(Publish(message("m"))) == [Published(message("m").id, T, (), is_duplicate=True)]
    lone = joined()
    assert lone.tell(Publish(message("m"))) == [Published(message("m").id, T, ())]


def test_message_that_was_ignored_is_forwarded_when_we_publish_it():
    driver = joined("a", "b", "c")
    driver.push("a", message("m"), outcome=Outcome.IGNORE)
    actions = driver.tell(Publish(message("m")))
    assert of(actions, Deliver) == [Deliver(message("m"), "a")]
    assert sorted(recipients(actions, message("m"))) == ["b", "c"]
    assert driver.tell(Publish(message("m"))) == [Published(message("m").id, T, (), is_duplicate=True)]


def test_dropped_publish_is_reported_in_a_second_report_and_a_dropped_forward_is_not():
    driver = joined("a", "b")
    driver.tell(Publish(message("own")))
    assert Published(message("own").id, T, (("a", Fate.DROPPED),)) in driver.tell(SendFailed("a", Rpc((message("own"),))))
    driver.push("a", message("theirs"))
    assert not of(driver.tell(SendFailed("b", Rpc((message("theirs"), message("unknown"))))), Published)


def test_own_message_coming_back_is_not_delivered():
    driver = joined("a", "b", score=ScoreParams())
    driver.tell(Publish(message("own")))
    assert driver.say("a", Rpc((message("own"),))) == []


# State


def test_state_shows_peers_topics_scores_and_sizes():
    driver = joined(*names(8), score=ScoreParams(), direct_peers=("p07",))
    driver.push("p00", message("m"))
    state = driver.router.state()
    (topic,) = state.topics
    assert (state.router, topic.topic, topic.is_joined) == ("gossipsub", T, True)
    assert (len(topic.full_message), len(topic.metadata_only)) == (7, 1)
    assert state.peers[7].is_direct
    assert state.peers[0].score.first_deliveries == 0.5
    assert state.sizes["seen"] == state.sizes["mcache"] == 1
    assert set(state.sizes) == set(state.sizes_max)
    assert all(state.sizes[name] <= state.sizes_max[name] for name in state.sizes)
    driver.tell(Unsubscribe(T))
    assert driver.router.state().topics == ()


# The caches


def test_seen_ids_live_for_the_ttl_and_an_eighth():
    seen = Seen(8.0, 100)
    for second in range(40):
        seen.expire(float(second))
        seen.add(b"%d" % second, None, float(second))
        assert all(b"%d" % age in seen.entries for age in range(max(0, second - 7), second))
        assert not any(b"%d" % age in seen.entries for age in range(second - 9))


def test_seen_never_holds_more_than_its_maximum():
    seen = Seen(1000.0, 80)
    for number in range(1000):
        seen.add(b"%d" % number, None, number * 0.1)
        assert len(seen.entries) <= 80
        assert all(b"%d" % recent in seen.entries for recent in range(max(0, number - 60), number))


def test_message_is_new_again_once_it_is_forgotten():
    driver = joined("a")
    driver.push("a", message("m"))
    driver.run(300)
    assert of(driver.say("a", Rpc((message("m"),))), Validate)


def test_verdict_on_a_forgotten_message_still_counts():
    driver = joined("a", "b", seen_max=8)
    driver.say("a", Rpc(tuple(message(f"m{number}") for number in range(20))))
    assert recipients(driver.tell(Validated(message("m0").id, Outcome.ACCEPT)), message("m0")) == ["b"]


def put(cache, one):
    cache.put(one, one)


def test_full_message_cache_forgets_its_oldest_window():
    cache = MessageCache(1, 3, 4, 1_000)
    for number in range(2):
        put(cache, message(f"old {number}"))
    put(cache, message("old 0"))
    cache.shift()
    for number in range(3):
        put(cache, message(f"new {number}"))
    assert len(cache) == 3
    assert cache.get_for(message("old 0").id, "a") == (None, 0)
    assert cache.get_for(message("new 0").id, "a") == (message("new 0"), 1)
    assert cache.window(Topic("unknown")) == []


def test_message_cache_that_is_full_by_bytes_forgets_its_oldest_windows():
    small, large = message("small"), message("l" * 900)
    cache = MessageCache(1, 3, 100, 1_000)
    for name in ("first", "second"):
        put(cache, message(name * 60))
        cache.shift()
    put(cache, small)
    put(cache, large)
    assert [cache.get_for(kept.id, "a")[0] for kept in (message("first" * 60), message("second" * 60), small, large)] == [
        None,
        None,
        small,
        large,
    ]
    for _ in range(3):
        cache.shift()
    put(cache, small)
    put(cache, large)
    assert len(cache) == 2, "what was forgotten is no longer counted"
    put(cache, message("x" * 5_000))
    assert len(cache) == 1, "one that is too large is kept alone"


def test_seen_is_expired_by_traffic_where_there_is_no_heartbeat():
    from gossiplog.pubsub import FloodsubParams
    from gossiplog.pubsub.routers.floodsub import Floodsub

    driver = Solo(Floodsub(FloodsubParams(), random.Random(1)))
    driver.connect("a")
    driver.tell(Subscribe(T))
    driver.push("a", message("m"))
    driver.now = 300.0
    driver.push("a", message("n"))
    assert of(driver.say("a", Rpc((message("m"),))), Validate)
