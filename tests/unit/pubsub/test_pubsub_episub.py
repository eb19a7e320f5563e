"""Episub, part by part: views, tree, proximity, dialling."""

import random

import pytest
from unit.pubsub.network import Network, Solo, T, counts, message, of, recipients, said

from gossiplog.errors import LocalProtocolError
from gossiplog.pubsub import EpisubParams, Fate, Outcome, Topic
from gossiplog.pubsub.actions import Connect, Deliver, Disconnect, Probe, Published, SetTimer
from gossiplog.pubsub.episub import Episub
from gossiplog.pubsub.events import (
    AppScored,
    ConnectFailed,
    PeerDisconnected,
    Probed,
    Publish,
    Subscribe,
    TimerFired,
    Unsubscribe,
    Validated,
)
from gossiplog.pubsub.overlay import (
    Disconnected,
    ForwardJoin,
    GetNodes,
    Leaving,
    Neighbor,
    NeighborKind,
    Nodes,
    Shuffle,
    ShuffleReply,
    TreeGraft,
    TreeIHave,
    TreePrune,
    WalkJoin,
)
from gossiplog.pubsub.plumtree import FLUSH, MISSING
from gossiplog.pubsub.proximity import RoundTrips
from gossiplog.pubsub.rpc import Rpc, Subscription

REQUEST, ACCEPT, LINKS = NeighborKind.REQUEST, NeighborKind.ACCEPT, NeighborKind.LINKS


def solo(*peers, **fields):
    driver = Solo(Episub(EpisubParams(**fields), random.Random(1)))
    driver.connect(*peers)
    driver.tell(Subscribe(T))
    return driver


def names(count, prefix="p"):
    return [f"{prefix}{number:02}" for number in range(count)]


def request(random_links=9, peers=(), *, is_random=False, kind=REQUEST):
    return Neighbor(T, kind, is_random, random_links, tuple(peers))


def hear(driver, peer, *messages):
    return driver.say(peer, Rpc(overlay=messages))


def linked(*peers, **fields):
    """A router whose active view is these peers, as far as there is room."""
    driver = solo(*peers, **fields)
    for peer in peers:
        hear(driver, peer, request(0, is_random=True))
    return driver


def overlays(actions, cls, peer=None):
    return [one for rpc in said(actions, peer) for one in rpc.overlay if isinstance(one, cls)]


def view(driver):
    return driver.router.views[T]


def tree(driver):
    return driver.router.trees[T]


# Joining


def test_first_contact_is_asked_for_nodes_and_joins_follow():
    driver = solo("contact")
    assert overlays(driver.actions, GetNodes, "contact") == [GetNodes(T)]
    actions = hear(driver, "contact", Nodes(T, tuple(names(10))))
    assert len(of(actions, Connect)) in (3, 4)
    assert not overlays(hear(driver, "contact", Nodes(T, ("late",))), WalkJoin)


def test_nodes_unasked_are_kept_and_cause_no_join():
    driver = linked("a")
    assert not of(hear(driver, "a", Nodes(T, ("x", "y", "me", "a"))), Connect)
    assert {"x", "y"} <= set(view(driver).passive)
    assert "me" not in view(driver).passive


def test_nodes_from_a_sender_out_of_the_passive_view_joins_through_it():
    driver = solo("contact")
    view(driver).passive.clear()
    assert overlays(hear(driver, "contact", Nodes(T, ())), WalkJoin, "contact") == [WalkJoin(T, "me", 6)]


def test_join_is_accepted_while_there_is_room_and_told_on():
    driver = linked("a")
    driver.connect("new")
    actions = hear(driver, "a", WalkJoin(T, "new", 3))
    assert overlays(actions, Neighbor, "new") == [Neighbor(T, ACCEPT, True, 2, ("a", "new"))]
    assert overlays(actions, ForwardJoin, "a") == [ForwardJoin(T, "new", 3)]


def test_join_walks_on_from_a_full_view_and_ends_with_its_ttl():
    driver = linked(*names(7))
    (walk,) = overlays(hear(driver, "p00", WalkJoin(T, "new", 3)), WalkJoin)
    assert walk == WalkJoin(T, "new", 2)
    assert of(hear(driver, "p00", WalkJoin(T, "new", 0)), Connect) == [Connect("new")]
    assert len(view(driver).active) == 8
    assert hear(driver, "p00", WalkJoin(T, "me", 3)) == []
    (walk,) = overlays(hear(driver, "p00", WalkJoin(T, "p03", 10**6)), WalkJoin)
    assert walk.ttl == 5
    assert hear(driver, "p00", WalkJoin(T, "p03", 0)) == []


def test_join_into_a_view_at_its_maximum_is_answered_with_nodes():
    driver = linked(*names(7), active_max=7)
    driver.connect("new")
    assert overlays(hear(driver, "p00", WalkJoin(T, "new", 0)), Nodes, "new")
    assert len(view(driver).active) == 7


def test_forward_join_is_remembered_and_walks_until_its_ttl():
    driver = linked("a", "b")
    assert overlays(hear(driver, "a", ForwardJoin(T, "new", 99)), ForwardJoin, "b") == [ForwardJoin(T, "new", 2)]
    assert "new" in view(driver).passive
    assert hear(driver, "a", ForwardJoin(T, "newer", 0)) == []


def test_get_nodes_is_answered_with_both_views_but_the_asker():
    driver = linked("a", "b")
    hear(driver, "a", Nodes(T, ("x",)))
    (nodes,) = overlays(hear(driver, "a", GetNodes(T)), Nodes, "a")
    assert set(nodes.peers) == {"b", "x"}


# Neighbours


def test_request_is_accepted_with_room_or_from_the_needy():
    driver = linked(*names(6))
    driver.connect("a", "b", "c")
    assert overlays(hear(driver, "a", request()), Neighbor, "a")[0].kind is ACCEPT
    assert overlays(hear(driver, "b", request(0)), Neighbor, "b")[0].kind is ACCEPT
    assert of(hear(driver, "c", request()), Probe) == [Probe("c")]
    assert overlays(hear(driver, "a", request()), Neighbor, "a")[0].kind is ACCEPT


def near_links(driver):
    for link in view(driver).active.values():
        link.is_random = False


def test_suitor_that_is_much_nearer_replaces_the_worst_near_link():
    driver = linked(*names(7))
    near_links(driver)
    for number, peer in enumerate(names(7)):
        driver.tell(Probed(peer, 0.1 + number * 0.01))
    driver.connect("near", "far")
    hear(driver, "near", request())
    actions = driver.tell(Probed("near", 0.01))
    assert overlays(actions, Disconnected, "p06") == [Disconnected(T)]
    assert overlays(actions, Neighbor, "near")[0].kind is ACCEPT
    assert of(actions, Disconnect) == [Disconnect("p06")]
    assert "p06" in view(driver).passive
    hear(driver, "far", request())
    assert overlays(driver.tell(Probed("far", 0.15)), Disconnected, "far")
    hear(driver, "far", request())
    assert driver.tell(Probed("far", None)) == []


def test_random_links_are_not_given_up_for_near_ones():
    driver = linked(*names(4), C_near=0)
    for peer in names(4):
        driver.tell(Probed(peer, 0.1))
    driver.connect("near")
    hear(driver, "near", request())
    assert overlays(driver.tell(Probed("near", 0.001)), Disconnected, "near")


def test_surplus_random_links_count_as_near_once_measured():
    driver = linked(*names(7))
    assert view(driver).random_links() == 7
    driver.connect("near")
    hear(driver, "near", request())
    assert overlays(driver.tell(Probed("near", 0.001)), Disconnected, "near")
    for number, peer in enumerate(names(7)):
        driver.tell(Probed(peer, 0.1 + number * 0.01))
    hear(driver, "near", request())
    assert overlays(driver.tell(Probed("near", 0.001)), Disconnected, "p02")
    assert view(driver).random_links() == 4


def test_suitors_are_bounded():
    driver = linked(*names(7), dials_max=1)
    driver.connect("a", "b")
    hear(driver, "a", request())
    assert overlays(hear(driver, "b", request()), Disconnected, "b")
    driver.run(6)
    assert of(hear(driver, "b", request()), Probe) == [Probe("b")]


def test_unasked_acceptance_counts_as_a_request():
    driver = linked(*names(7))
    driver.connect("pushy")
    assert of(hear(driver, "pushy", request(kind=ACCEPT)), Probe)
    assert "pushy" not in view(driver).active


def test_acceptance_of_a_join_makes_a_link_up_to_the_maximum():
    driver = solo("contact", active_max=7)
    hear(driver, "contact", Nodes(T, ()))
    for peer in names(8):
        driver.connect(peer)
        last = hear(driver, peer, request(kind=ACCEPT, is_random=True))
    assert len(view(driver).active) == 7
    assert overlays(last, Disconnected, "p07")
    assert tree(driver).eager.keys() == set(names(7))


def test_news_from_a_peer_that_is_no_neighbour_is_answered_with_disconnect():
    driver = linked("a")
    driver.connect("ghost")
    assert overlays(hear(driver, "ghost", request(kind=LINKS)), Disconnected, "ghost")
    assert hear(driver, "a", request(5, ("x",), kind=LINKS)) == []
    assert view(driver).active["a"].random_links == 5


def test_neighbor_of_a_topic_we_are_not_in_is_answered_with_disconnect():
    driver = linked("a")
    other = Topic("other")
    assert overlays(hear(driver, "a", Neighbor(other, REQUEST, True, 0, ()), GetNodes(other)), Disconnected) == [Disconnected(other)]


def test_refused_request_leaves_the_peer_in_the_passive_view():
    driver = linked("a")
    hear(driver, "a", Nodes(T, ("x",)))
    driver.connect("x")
    assert overlays(driver.run(2), Neighbor, "x")
    hear(driver, "x", Disconnected(T))
    assert "x" in view(driver).passive
    hear(driver, "a", Disconnected(T))
    assert "a" in view(driver).passive
    assert "a" not in view(driver).active


def test_swap_gives_up_the_worst_link_once_the_better_one_accepts():
    driver = linked(*names(7), improve_ticks=1)
    near_links(driver)
    for peer in names(7):
        driver.tell(Probed(peer, 0.1))
    driver.tell(Probed("p03", 0.9))
    driver.connect("better")
    driver.tell(Probed("better", 0.01))
    assert overlays(driver.run(1.3), Neighbor, "better")[-1].kind is REQUEST
    actions = hear(driver, "better", request(kind=ACCEPT))
    assert overlays(actions, Disconnected, "p03")
    assert "better" in view(driver).active
    assert driver.tell(Probed("unknown", 0.1)) == []


def test_no_swap_for_a_peer_that_is_not_much_nearer():
    driver = linked(*names(7), improve_ticks=1)
    near_links(driver)
    for peer in names(7):
        driver.tell(Probed(peer, 0.1))
    driver.connect("same")
    driver.tell(Probed("same", 0.09))
    assert not [one for one in overlays(driver.run(3), Neighbor, "same") if one.kind is REQUEST]


def test_too_many_links_are_trimmed_where_that_is_safe():
    driver = linked(*names(10))
    for peer in names(4):
        hear(driver, peer, request(9, ("p05", "me"), kind=LINKS))
    driver.run(1.3)
    assert len(view(driver).active) == 7
    assert set(names(10)[4:]) <= set(view(driver).active)


def test_links_between_common_neighbours_go_when_no_neighbour_has_random_links_to_spare():
    driver = linked(*names(10))
    hear(driver, "p00", request(4, ("p05",), kind=LINKS))
    driver.run(1.3)
    assert set(view(driver).active) == set(names(10)) - {"p00"}


def test_links_that_are_not_safe_to_drop_are_kept():
    driver = linked(*names(10))
    driver.run(3)
    assert len(view(driver).active) == 10


def test_silent_neighbour_is_dropped():
    driver = linked("a", silence_ticks=3)
    driver.run(8)
    assert overlays(driver.actions, Disconnected, "a")


def test_unanswered_requests_are_given_up():
    driver = linked("a")
    driver.connect("mute")
    driver.run(2)
    assert "mute" in view(driver)._asked
    driver.run(8)
    assert "mute" not in view(driver).passive


def test_unreachable_peer_is_forgotten_and_the_next_one_asked():
    driver = linked("a")
    hear(driver, "a", Nodes(T, tuple(names(9))))
    (dialled, *_) = of(driver.run(2), Connect)
    driver.tell(ConnectFailed(dialled.peer))
    assert dialled.peer not in view(driver).passive


def test_lost_neighbour_is_replaced_at_once():
    driver = linked("a", "b")
    driver.connect("spare")
    actions = driver.tell(PeerDisconnected("a"))
    assert overlays(actions, Neighbor, "spare")[0].kind is REQUEST
    assert "a" not in view(driver).active
    full = linked(*names(8))
    assert not of(full.tell(PeerDisconnected("p00")), Connect)


def test_node_without_links_seeks_a_contact_again():
    driver = linked("a")
    hear(driver, "a", Nodes(T, ("x",)))
    driver.run(5)
    actions = driver.tell(PeerDisconnected("a"))
    actions += driver.run(5)
    assert any(action.peer == "x" for action in of(driver.actions, Connect))


# Leaving


def test_leaving_says_leave_to_every_neighbour():
    driver = linked("a", "b")
    actions = driver.tell(Unsubscribe(T))
    assert [overlays(actions, Leaving, peer) for peer in "ab"] == [[Leaving(T, "me", 2)]] * 2
    assert driver.router.state().topics == ()


def test_leave_spreads_while_it_removes_somebody_or_its_ttl_lasts():
    driver = linked("a", "b")
    hear(driver, "a", Nodes(T, ("gone",)))
    assert overlays(hear(driver, "a", Leaving(T, "gone", 0)), Leaving, "b") == [Leaving(T, "gone", 0)]
    assert overlays(hear(driver, "a", Leaving(T, "gone", 99)), Leaving, "b") == [Leaving(T, "gone", 1)]
    assert hear(driver, "a", Leaving(T, "gone", 0)) == []


def test_leave_removes_a_neighbour_only_if_it_comes_from_itself():
    driver = linked("a", "b")
    hear(driver, "a", Leaving(T, "b", 0))
    assert "b" in view(driver).active
    actions = hear(driver, "b", Leaving(T, "b", 0))
    assert "b" not in view(driver).active
    assert overlays(actions, Leaving, "a")


def test_peer_that_unsubscribes_or_speaks_floodsub_is_no_member():
    driver = linked("a")
    driver.say("a", Rpc(subscriptions=(Subscription(T, False),)))
    assert not view(driver).active
    driver.connect("flood", protocol="/floodsub/1.0.0")
    assert "flood" not in view(driver).passive
    assert driver.mesh() == ("flood",)
    driver.tell(Unsubscribe(T))
    driver.say("flood", Rpc(subscriptions=(Subscription(T, False),)))


# Shuffling and probing


def test_shuffle_walks_and_its_end_swaps_samples():
    driver = linked("a", "b")
    hear(driver, "a", Nodes(T, ("x", "y")))
    (forwarded,) = overlays(hear(driver, "a", Shuffle(T, "origin", ("q",), 99)), Shuffle, "b")
    assert forwarded == Shuffle(T, "origin", ("q",), 5)
    driver.connect("origin")
    (reply,) = overlays(hear(driver, "a", Shuffle(T, "origin", ("q",), 1)), ShuffleReply, "origin")
    assert len(reply.peers) == 2
    assert "q" in view(driver).passive
    assert hear(driver, "a", Shuffle(T, "me", ("q",), 1)) == []
    hear(driver, "a", ShuffleReply(T, ("z",)))
    assert "z" in view(driver).passive


def test_passive_view_never_exceeds_its_maximum():
    driver = linked("a", passive_max=5)
    for start in range(0, 100, 10):
        hear(driver, "a", Nodes(T, tuple(f"x{number}" for number in range(start, start + 10))))
    assert len(view(driver).passive) == 5


def test_shuffles_and_probes_are_sent_regularly():
    driver = linked("a", "b", shuffle_ticks=2, silence_ticks=50, probe_ticks=2)
    hear(driver, "a", Nodes(T, ("x",)))
    actions = driver.run(10)
    (first, *_) = overlays(actions, Shuffle)
    assert (first.peer, first.ttl) == ("me", 6)
    assert {probe.peer for probe in of(actions, Probe)} >= {"a", "b"}


def test_round_trips_are_smoothed_and_compared():
    rtts = RoundTrips(0.5)
    rtts.add("a", 0.1)
    rtts.add("a", 0.3)
    rtts.add("b", 0.5)
    assert rtts.get("a") == pytest.approx(0.2)
    assert (rtts.nearest(("a", "b", "c")), rtts.farthest(("a", "b", "c"))) == ("a", "b")
    assert rtts.is_closer("a", "b", 0.5)
    assert not rtts.is_closer("a", "c", 0.5)
    rtts.forget("a")
    assert rtts.nearest(("a",)) is rtts.get("a") is None


# Dialling


def test_messages_wait_for_a_dialled_peer_within_bounds():
    driver = linked("a", dials_max=1)
    dialler = driver.router._dialler
    driver.router.out = []
    assert dialler.say("x", GetNodes(T))
    assert all(dialler.say("x", GetNodes(T)) for _ in range(30))
    assert not dialler.say("y", GetNodes(T))
    assert driver.router.out == [Connect("x")]
    driver.connect("x")
    assert len(overlays(driver.actions, GetNodes, "x")) == 16
    assert len(dialler) == 0


def test_request_that_cannot_even_be_dialled_is_not_waited_for():
    driver = linked("a", dials_max=1)
    hear(driver, "a", Nodes(T, tuple(names(9))))
    driver.run(2)
    assert len(view(driver)._asked) == 1


# The tree


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


def test_announcements_are_bounded_and_taken_from_neighbours_only():
    driver = linked(*names(5), missing_max=3, announcers_max=2)
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


def test_far_shorter_announcement_before_the_message_swaps_the_links():
    driver = linked("a", "b")
    hear(driver, "b", TreePrune(T))
    hear(driver, "b", TreeIHave(T, ((message("m").id, 2),)))
    actions = gossip(driver, "a", "m", 10)
    assert overlays(actions, TreeGraft, "b") == [TreeGraft(T, ())]
    assert overlays(actions, TreePrune, "a") == [TreePrune(T)]
    hear(driver, "a", TreeIHave(T, ((message("n").id, 3),)))
    assert not overlays(gossip(driver, "b", "n", 10), TreePrune)


def test_far_shorter_announcement_after_the_message_swaps_the_links():
    driver = linked("a", "b", "c")
    hear(driver, "b", TreePrune(T))
    gossip(driver, "a", "m", 10)
    assert not overlays(hear(driver, "b", TreeIHave(T, ((message("m").id, 3),))), TreeGraft)
    actions = hear(driver, "b", TreeIHave(T, ((message("m").id, 2),)))
    assert overlays(actions, TreeGraft, "b")
    assert overlays(actions, TreePrune, "a")
    assert hear(driver, "c", TreeIHave(T, ((message("m").id, 1),))) == []


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


def test_message_never_goes_back_to_its_origin():
    driver = linked("a", "b")
    one = message("m", origin="b")
    driver.say("a", Rpc((one,)))
    assert recipients(driver.tell(Validated(one.id, Outcome.ACCEPT)), one) == []


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
    "fields", [{"alpha": 1}, {"C_rand": 0}, {"active_max": 3}, {"flush_s": 0}, {"join_ttl": -1}, {"probe_ticks": 0}, {"passive_max": 0}]
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
