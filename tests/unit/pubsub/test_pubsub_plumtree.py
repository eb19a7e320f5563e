"""Episub's trees: pushing, announcing, pruning, grafting, repairing; and publishing."""

import random

import pytest
from unit.pubsub.episub_driver import hear, linked, overlays, request, solo, tree, view
from unit.pubsub.network import Network, Solo, T, counts, message, names, of, recipients, said

from gossiplog.errors import LocalProtocolError
from gossiplog.pubsub import EpisubParams, Fate, Outcome, Topic
from gossiplog.pubsub.actions import Deliver, Published, SetTimer
from gossiplog.pubsub.events import (
    AppScored,
    PeerDisconnected,
    Publish,
    Subscribe,
    TimerFired,
    Unsubscribe,
    Validated,
)
from gossiplog.pubsub.overlay.plumtree import FLUSH, MISSING
from gossiplog.pubsub.routers.episub import Episub
from gossiplog.pubsub.rpc import Nodes, Rpc, TreeGraft, TreeIHave, TreePrune, WalkJoin


def gossip(driver, peer, data, hops=1):
    return driver.say(peer, Rpc((message(data),), hops=hops)) + (
        driver.tell(Validated(message(data).id, Outcome.ACCEPT)) if message(data).id in driver.router.pending else []
    )


def test_message_is_pushed_to_eager_peers_with_one_more_hop():
    driver = linked("a", "b", "c")
    actions = gossip(driver, "a", "m", 3)
    assert recipients(actions, message("m")) == ["b", "c"]
    assert [rpc.hops for rpc in said(actions) if rpc.messages] == [4]
    assert [rpc.hops for rpc in said(gossip(driver, "a", "n", 255)) if rpc.messages] == [255]


def test_duplicate_prunes_its_link_and_prune_makes_lazy():
    driver = linked("a", "b")
    gossip(driver, "a", "m")
    assert overlays(gossip(driver, "b", "m"), TreePrune, "b") == [TreePrune(T)]
    assert (list(tree(driver).eager), list(tree(driver).lazy)) == (["a"], ["b"])
    assert not overlays(gossip(driver, "b", "m"), TreePrune)
    hear(driver, "a", TreePrune(T))
    assert not tree(driver).eager


def test_lazy_peers_are_told_after_the_flush_delay_in_one_rpc():
    driver = linked("a", "b", "c")
    hear(driver, "b", TreePrune(T))
    hear(driver, "c", TreePrune(T))
    gossip(driver, "a", "m", 2)
    gossip(driver, "a", "n", 4)
    actions = driver.run(0.1)
    (rpc,) = [rpc for rpc in said(actions) if any(isinstance(one, TreeIHave) for one in rpc.overlay)]
    assert rpc.overlay == (TreeIHave(T, ((message("m").id, 3), (message("n").id, 5))),)
    assert driver.tell(TimerFired(FLUSH)) == []


def test_missing_message_is_asked_for_on_the_second_touch_and_then_again_of_others():
    driver = linked("a", "b", "c")
    for peer in "abc":
        hear(driver, peer, TreePrune(T))
    hear(driver, "a", TreeIHave(T, ((b"1", 3),)))
    hear(driver, "b", TreeIHave(T, ((b"1", 3), (b"2", 2))))
    hear(driver, "b", TreeIHave(T, ((b"1", 3),)))
    assert not overlays(driver.run(0.5), TreeGraft)
    actions = driver.run(0.5)
    assert overlays(actions, TreeGraft, "a") == [TreeGraft(T, (b"1",))]
    assert overlays(actions, TreeGraft, "b") == [TreeGraft(T, (b"2",))]
    assert "a" in tree(driver).eager
    assert overlays(driver.run(0.5), TreeGraft, "b") == [TreeGraft(T, (b"1", b"2"))]
    assert driver.tell(TimerFired(MISSING)) == []


def test_lost_message_is_given_up_and_announcers_that_left_are_passed_over():
    driver = linked("a", "b", graft_attempts=2)
    hear(driver, "a", TreeIHave(T, ((b"1", 3), (b"2", 1))))
    hear(driver, "b", TreeIHave(T, ((b"1", 3),)))
    driver.tell(PeerDisconnected("a"))
    assert [one.ids for one in overlays(driver.run(1.2), TreeGraft, "b") if one.ids] == [(b"1",)]
    assert driver.router.state().sizes["missing"] == 1
    driver.run(5)
    assert driver.router.state().sizes["missing"] == 0


def test_peer_that_announces_what_does_not_exist_leaves_room_for_others():
    """As with dials: of the messages that are looked for, a quarter may be named by one peer."""
    driver = linked("liar", "honest", missing_max=8)
    hear(driver, "liar", TreeIHave(T, tuple((b"invented %d" % number, 1) for number in range(100))))
    assert driver.router.state().sizes["missing"] == 2
    hear(driver, "honest", TreeIHave(T, ((b"true", 1),)))
    assert [one.ids for one in overlays(driver.run(1.2), TreeGraft, "honest")] == [(b"true",)]
    # What has come, or is given up, makes room.
    driver.run(8)
    assert driver.router.state().sizes["missing"] == 0
    hear(driver, "liar", TreeIHave(T, ((message("m").id, 1), (b"more", 1), (b"too much", 1))))
    gossip(driver, "honest", "m")
    assert driver.router.state().sizes["missing"] == 1
    hear(driver, "liar", TreeIHave(T, ((b"and more", 1), (b"too much", 1))))
    assert driver.router.state().sizes["missing"] == 2


def test_announcements_are_bounded_and_taken_from_neighbours_only():
    driver = linked(*names(5), missing_max=12, announcers_max=2)
    hear(driver, "p00", TreeIHave(T, tuple((b"%d" % number, 1) for number in range(10))))
    assert driver.router.state().sizes["missing"] == 3
    for peer in names(5):
        hear(driver, peer, TreeIHave(T, ((b"0", 1),)))
    assert len(tree(driver)._missing[b"0"].announcers) == 2
    driver.connect("stranger")
    assert hear(driver, "stranger", TreeIHave(T, ((b"x", 1),))) == []
    gossip(driver, "p00", "m")
    before = driver.router.state().sizes["missing"]
    hear(driver, "p01", TreeIHave(T, ((message("m").id, 1),)))
    assert driver.router.state().sizes["missing"] == before


def test_graft_makes_eager_and_serves_up_to_the_limit():
    driver = linked("a", "b")
    hear(driver, "b", TreePrune(T))
    gossip(driver, "a", "m", 2)
    for times in (1, 2, 3, 3):
        hear(driver, "b", TreeGraft(T, (message("m").id, b"unknown")))
        assert recipients(driver.actions, message("m")).count("b") == times
    assert "b" in tree(driver).eager


def test_new_eager_peer_is_told_what_waits_for_the_flush():
    driver = linked("a", "b")
    hear(driver, "b", TreePrune(T))
    gossip(driver, "a", "m")
    assert overlays(hear(driver, "b", TreeGraft(T, ())), TreeIHave, "b") == [TreeIHave(T, ((message("m").id, 2),))]


def test_far_shorter_announcement_after_the_message_adds_its_link_and_keeps_the_other():
    driver = linked("a", "b", "c", hop_threshold=7)
    hear(driver, "b", TreePrune(T))
    gossip(driver, "a", "m", 10)
    assert not overlays(hear(driver, "b", TreeIHave(T, ((message("m").id, 4),))), TreeGraft)
    actions = hear(driver, "b", TreeIHave(T, ((message("m").id, 3),)))
    assert overlays(actions, TreeGraft, "b") == [TreeGraft(T, ())]
    assert not overlays(actions, TreePrune)
    assert set(tree(driver).eager) == {"a", "b", "c"}
    hear(driver, "c", TreePrune(T))
    assert hear(driver, "c", TreeIHave(T, ((message("m").id, 1),))) == []  # one link is enough


@pytest.mark.parametrize(("late_s", "is_added"), [(0.03, True), (0.06, False)])
def test_far_shorter_announcement_adds_its_link_only_if_its_path_may_be_quicker(late_s, is_added):
    driver = linked("a", "b", late_max_s=0.05)
    hear(driver, "b", TreePrune(T))
    gossip(driver, "a", "m", 10)
    driver.run(late_s)
    assert bool(overlays(hear(driver, "b", TreeIHave(T, ((message("m").id, 1),))), TreeGraft)) is is_added


def test_shorter_announcement_changes_nothing_once_the_longer_link_is_pruned():
    driver = linked("a", "b")
    hear(driver, "b", TreePrune(T))
    gossip(driver, "a", "m", 10)
    hear(driver, "a", TreePrune(T))
    assert hear(driver, "b", TreeIHave(T, ((message("m").id, 3),))) == []


def test_earlier_announcement_of_a_shorter_path_adds_its_link_and_keeps_the_other():
    driver = linked("a", "b")
    hear(driver, "b", TreePrune(T))
    hear(driver, "b", TreeIHave(T, ((message("m").id, 2),)))
    actions = gossip(driver, "a", "m", 7)
    assert overlays(actions, TreeGraft, "b") == [TreeGraft(T, ())]
    assert not overlays(actions, TreePrune)
    assert set(tree(driver).eager) == {"a", "b"}


def test_earlier_announcement_of_a_path_not_much_shorter_changes_nothing():
    driver = linked("a", "b")
    hear(driver, "b", TreePrune(T))
    hear(driver, "b", TreeIHave(T, ((message("m").id, 2),)))
    assert not overlays(gossip(driver, "a", "m", 6), TreeGraft)
    assert list(tree(driver).lazy) == ["b"]


def test_announcement_on_an_eager_link_adds_none():
    driver = linked("a", "b")
    hear(driver, "b", TreeIHave(T, ((message("m").id, 2),)))
    assert not overlays(gossip(driver, "a", "m", 9), TreeGraft)


def test_announcement_of_a_message_that_had_to_be_asked_for_adds_no_link():
    driver = linked("a", "b", "c")
    for peer in "bc":
        hear(driver, peer, TreePrune(T))
        hear(driver, peer, TreeIHave(T, ((message("m").id, 2),)))
    assert overlays(driver.run(1), TreeGraft, "b")
    hear(driver, "b", TreePrune(T))
    assert not overlays(gossip(driver, "a", "m", 9), TreeGraft)


def test_duplicate_spares_a_link_that_brought_a_first_copy_lately():
    driver = linked("a", "b", useful_messages=3)
    gossip(driver, "b", "0")
    for data in "12":
        gossip(driver, "a", data)
        assert not overlays(gossip(driver, "b", data), TreePrune)
    gossip(driver, "a", "3")
    assert overlays(gossip(driver, "b", "3"), TreePrune, "b") == [TreePrune(T)]


def test_duplicate_spares_a_link_on_which_we_were_the_first_lately():
    driver = linked("a", "b", useful_messages=2)
    gossip(driver, "a", "0")  # of which b sends no copy: it has it from us
    gossip(driver, "a", "1")
    assert not overlays(gossip(driver, "b", "1"), TreePrune)
    gossip(driver, "a", "2")
    assert overlays(gossip(driver, "b", "2"), TreePrune, "b") == [TreePrune(T)]


def test_use_is_judged_by_the_messages_before_the_duplicate_not_by_those_since():
    driver = linked("a", "b", useful_messages=2)
    for data in "1234":
        gossip(driver, "a", data)
    assert not overlays(gossip(driver, "b", "2"), TreePrune)  # it had 1 from us
    assert not overlays(gossip(driver, "b", "1"), TreePrune)  # so it seemed
    assert overlays(gossip(driver, "b", "3"), TreePrune)


def test_own_message_is_of_use_to_a_peer_that_sends_no_copy_of_it():
    driver = linked("a", "b", useful_messages=2)
    driver.tell(Publish(message("own")))
    gossip(driver, "a", "1")
    assert not overlays(gossip(driver, "b", "1"), TreePrune)


def test_duplicate_during_validation_counts_for_the_newest_message():
    driver = linked("a", "b")
    driver.say("a", Rpc((message("m"),)))
    assert overlays(driver.say("b", Rpc((message("m"),))), TreePrune, "b") == [TreePrune(T)]


def test_added_link_may_lose_the_first_races():
    driver = linked("a", "b", useful_messages=2)
    hear(driver, "b", TreePrune(T))
    hear(driver, "b", TreeIHave(T, ((message("0").id, 2),)))
    gossip(driver, "a", "0", 7)
    gossip(driver, "a", "1")
    assert not overlays(gossip(driver, "b", "1"), TreePrune)
    gossip(driver, "a", "2")
    assert overlays(gossip(driver, "b", "2"), TreePrune, "b")


def test_message_of_a_peer_that_is_no_neighbour_leaves_no_trace_in_the_tree():
    driver = linked("a")
    driver.connect("stranger")
    gossip(driver, "stranger", "m")
    assert set(tree(driver)._used) == set()
    gossip(driver, "a", "n")
    driver.tell(PeerDisconnected("a"))
    assert not tree(driver)._used
    assert not tree(driver)._copied


def test_message_from_a_lazy_peer_makes_its_link_eager():
    driver = linked("a", "b")
    hear(driver, "b", TreePrune(T))
    gossip(driver, "b", "m")
    assert "b" in tree(driver).eager


def test_loss_of_an_eager_peer_promotes_the_lazy_ones_and_loss_of_a_lazy_one_does_not():
    driver = linked("a", "b", "c")
    hear(driver, "b", TreePrune(T))
    hear(driver, "c", TreePrune(T))
    assert not overlays(driver.tell(PeerDisconnected("c")), TreeGraft)
    assert overlays(driver.tell(PeerDisconnected("a")), TreeGraft, "b") == [TreeGraft(T, ())]


def test_new_neighbour_is_told_of_recent_messages():
    driver = linked("a")
    gossip(driver, "a", "m", 4)
    driver.connect("new")
    assert overlays(hear(driver, "new", request()), TreeIHave, "new") == [TreeIHave(T, ((message("m").id, 5),))]


def test_cache_is_bounded_by_ticks_and_size():
    driver = linked("a", "b", cache_ticks=3, cache_max=4, seen_max=8)
    for number in range(6):
        gossip(driver, "a", f"m{number}")
        assert driver.router.state().sizes["cache"] <= 4
    hear(driver, "b", TreeGraft(T, (message("m5").id,)))
    driver.run(6)
    assert driver.router.state().sizes["cache"] == 0
    tree(driver).keep(message("again"), Rpc((message("again"),)), None)
    tree(driver).keep(message("again"), Rpc((message("again"),)), None)
    assert driver.router.state().sizes["cache"] == 1


def test_cache_that_is_full_by_bytes_forgets_its_oldest_messages():
    driver = linked("a", "b", cache_bytes_max=1_000)
    gossip(driver, "a", "old" * 200)
    driver.run(2)
    gossip(driver, "a", "new" * 200)
    assert driver.router.state().sizes["cache"] == 1
    hear(driver, "b", TreeGraft(T, (message("old" * 200).id, message("new" * 200).id)))
    assert [one.id for rpc in said(driver.actions, "b") for one in rpc.messages][-1:] == [message("new" * 200).id]


def test_publish_reports_eager_lazy_and_floodsub_peers():
    driver = linked("a", "b")
    driver.connect("flood", protocol="/floodsub/1.0.0")
    hear(driver, "b", TreePrune(T))
    (report,) = of(driver.tell(Publish(message("m"))), Published)
    assert dict(report.fates) == {"a": Fate.MESH, "b": Fate.GOSSIP, "flood": Fate.FLOODSUB}
    assert [rpc.hops for rpc in said(driver.actions, "a") if rpc.messages] == [1]


def test_publish_without_eager_peers_goes_to_some_members():
    driver = Solo(Episub(EpisubParams(), random.Random(1)))
    driver.connect(*names(9))
    (report,) = of(driver.tell(Publish(message("m"))), Published)
    assert counts(fate for _, fate in report.fates) == {Fate.FANOUT: 4, Fate.GOSSIP: 5}
    assert driver.router.is_ready(T)


def test_message_of_a_topic_left_meanwhile_is_delivered_and_goes_no_further():
    driver = linked("a", "b")
    driver.say("a", Rpc((message("m"),)))
    driver.tell(Unsubscribe(T))
    actions = driver.tell(Validated(message("m").id, Outcome.ACCEPT))
    assert of(actions, Deliver)
    assert not recipients(actions, message("m"))
    driver.tell(Subscribe(T))
    driver.tell(Unsubscribe(T))
    assert driver.say("a", Rpc((message("m"),))) == []


def test_readiness_counts_links():
    driver = solo()
    assert not driver.router.is_ready(T)
    driver = linked(*names(4))
    assert driver.router.is_ready(T)
    assert driver.router.is_ready(Topic("other")) is False
    assert driver.tell(AppScored("p00", 1.0)) == []
    assert driver.tell(TimerFired("heartbeat")) == []


def test_state_shows_both_views_and_stays_within_its_maxima():
    net = Network(lambda rng: Episub(EpisubParams(), rng), 20)
    net.connect_some(4)
    net.subscribe()
    net.run(20)
    for name in net.names:
        state = net.routers[name].state()
        assert len(state.topics[0].full_message) + len(state.topics[0].metadata_only) >= 4
        assert state.topics[0].passive
        assert all(state.sizes[key] <= state.sizes_max[key] for key in state.sizes_max)


def test_one_timer_serves_all_topics():
    driver = linked("a")
    driver.tell(Subscribe(Topic("u")))
    actions = driver.tell(Publish(message("m"))) + driver.tell(Publish(message("n", Topic("u"))))
    assert len([action for action in of(actions, SetTimer) if action.token == FLUSH]) == 1


@pytest.mark.parametrize(
    "fields",
    [
        {"alpha": 1},
        {"C_rand": 0},
        {"active_max": 3},
        {"flush_s": 0},
        {"late_max_s": -0.1},
        {"join_ttl": -1},
        {"probe_ticks": 0},
        {"passive_max": 0},
        {"useful_messages": 0},
        {"recent_ticks": -1},
        {"recent_max": -1},
        {"k_active": -1},
        {"k_passive": -1},
        {"retransmissions": -1},
        {"hop_threshold": -1},
        {"early_hop_threshold": -1},
        {"cache_bytes_max": 0},
    ],
)
def test_episub_parameters_that_break_a_rule_are_refused(fields):
    with pytest.raises(LocalProtocolError, match="parameters break the rule"):
        EpisubParams(**fields)


def test_floodsub_peers_never_get_into_a_view():
    driver = linked("a")
    hear(driver, "a", Nodes(T, ("flood",)))
    driver.connect("flood", protocol="/floodsub/1.0.0")
    assert "flood" not in view(driver).passive
    hear(driver, "a", WalkJoin(T, "flood", 0), Nodes(T, ("flood",)))
    assert hear(driver, "flood", request(0)) == []
    assert set(view(driver).active) == {"a"}
    assert "flood" not in view(driver).passive


def test_flush_of_one_topic_says_nothing_in_another():
    driver = linked("a", "b")
    driver.tell(Subscribe(Topic("u")))
    hear(driver, "b", TreePrune(T))
    gossip(driver, "a", "m")
    assert {one.topic for one in overlays(driver.run(0.1), TreeIHave)} == {T}


def test_floodsub_peer_that_was_there_before_we_joined_is_no_contact():
    driver = Solo(Episub(EpisubParams(), random.Random(1)))
    driver.connect("flood", protocol="/floodsub/1.0.0")
    driver.tell(Subscribe(T))
    assert not view(driver).passive
