"""Episub's membership: views, proximity, dialling."""

import pytest
from unit.pubsub.episub_driver import ACCEPT, LINKS, REQUEST, hear, linked, overlays, request, solo, tree, view
from unit.pubsub.network import Network, T, message, names, of, said

from gossiplog.pubsub import EpisubParams, Topic
from gossiplog.pubsub.actions import Connect, Disconnect, Probe
from gossiplog.pubsub.base import RETRY
from gossiplog.pubsub.events import (
    ConnectFailed,
    PeerConnected,
    PeerDisconnected,
    Probed,
    Publish,
    RpcReceived,
    SendFailed,
    TimerFired,
    Unsubscribe,
)
from gossiplog.pubsub.overlay.neighbours import RoundTrips, count_random
from gossiplog.pubsub.protocol_ids import EPISUB
from gossiplog.pubsub.routers.episub import Episub
from gossiplog.pubsub.rpc import (
    ForwardJoin,
    GetNodes,
    Leaving,
    LinkEnded,
    Neighbor,
    Nodes,
    Rpc,
    Shuffle,
    ShuffleReply,
    Subscription,
    TreeIHave,
    TreePrune,
    WalkJoin,
)

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
    assert len(view(driver).active) == 7
    driver.connect("new", outbound=True)
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


def test_joining_peer_is_linked_and_told_on_when_its_connection_stands():
    driver = linked("a")
    assert said(hear(driver, "a", WalkJoin(T, "new", 3))) == []
    assert "new" not in view(driver).active
    actions = driver.tell(PeerConnected("new", EPISUB, True))
    assert overlays(actions, Neighbor, "new") == [Neighbor(T, ACCEPT, True, 2, ("a", "new"))]
    assert overlays(actions, ForwardJoin, "a") == [ForwardJoin(T, "new", 3)]


def test_joining_peer_that_cannot_be_reached_or_speaks_something_else_is_never_linked():
    driver = linked("a")
    hear(driver, "a", *(WalkJoin(T, peer, 3) for peer in ("dead", "flood", "mute")))
    driver.tell(ConnectFailed("dead"))
    driver.tell(PeerConnected("flood", "/floodsub/1.0.0", True))
    assert list(view(driver).joining) == ["mute"]
    driver.run(12.6)
    assert set(view(driver).active) == {"a"}
    assert not view(driver).joining and len(driver.router._dialler) == 0


def test_view_that_filled_while_a_joining_peer_was_dialled_answers_with_nodes():
    driver = linked("a", active_max=7)
    hear(driver, "a", WalkJoin(T, "new", 0))
    for peer in names(6):
        driver.connect(peer)
        hear(driver, peer, request(0, is_random=True))
    assert overlays(driver.tell(PeerConnected("new", EPISUB, True)), Nodes, "new")
    assert len(view(driver).active) == 7


def test_one_peer_that_names_ghosts_leaves_room_for_dialling_others():
    driver = linked("liar", "a", dials_max=16)
    ghosts = names(40, "ghost")
    lies = [lie for ghost in ghosts for lie in (WalkJoin(T, ghost, 0), Shuffle(T, ghost, (), 0))]
    dialled = of(hear(driver, "liar", *lies), Connect)
    assert len(dialled) == 4
    assert len(view(driver).joining) <= 4
    assert of(hear(driver, "a", WalkJoin(T, "new", 0)), Connect) == [Connect("new")]
    for ghost in dialled:
        driver.tell(ConnectFailed(ghost.peer))
    assert set(view(driver).active) == {"liar", "a"}


def test_no_view_ever_holds_one_of_the_ghosts_that_a_liar_names():
    network = Network(lambda rng: Episub(EpisubParams(), rng), 12)
    network.connect_some(4)
    network.subscribe()
    network.run(5)
    honest, ghosts = network.names[1:], names(10, "ghost")
    liar = network.names[0]
    for second in range(20):
        for victim in network.links[liar]:
            network.tell(victim, RpcReceived(liar, Rpc(overlay=tuple(WalkJoin(T, ghost, second % 3) for ghost in ghosts))))
            network.tell(victim, RpcReceived(liar, Rpc(overlay=(Shuffle(T, ghosts[second % 10], tuple(ghosts), 0),))))
        network.run(0.05)
        assert not any(ghost in network.routers[name].views[T].active for name in honest for ghost in ghosts)
        network.run(0.95)
    assert any(one.peer in ghosts for name in honest for one in of(network.events[name], Connect))
    published = network.publish(honest[0], "still here")
    network.run(5)
    assert network.receivers(published) >= set(honest) - {honest[0]}


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


def test_whoever_is_accepted_hears_of_that_before_what_was_published_lately():
    driver = linked("a")
    driver.tell(Publish(message("before you came")))
    driver.connect("late", "later")
    for actions in (hear(driver, "late", request()), hear(driver, "later", WalkJoin(T, "later", 0))):
        (rpc,) = [rpc for peer in ("late", "later") for rpc in said(actions, peer)]
        assert [type(one) for one in rpc.overlay] == [Neighbor, TreeIHave]
        assert rpc.overlay[0].kind is ACCEPT


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
    assert overlays(actions, LinkEnded, "p06") == [LinkEnded(T)]
    assert overlays(actions, Neighbor, "near")[0].kind is ACCEPT
    assert of(actions, Disconnect) == [Disconnect("p06")]
    assert "p06" in view(driver).passive
    hear(driver, "far", request())
    assert overlays(driver.tell(Probed("far", 0.15)), LinkEnded, "far")
    hear(driver, "far", request())
    assert driver.tell(Probed("far", None)) == []


def test_random_links_are_not_given_up_for_near_ones():
    driver = linked(*names(4), C_near=0)
    for peer in names(4):
        driver.tell(Probed(peer, 0.1))
    driver.connect("near")
    hear(driver, "near", request())
    assert overlays(driver.tell(Probed("near", 0.001)), LinkEnded, "near")


def test_surplus_random_links_count_as_near_once_measured():
    driver = linked(*names(7))
    assert count_random(view(driver).active) == 7
    driver.connect("near")
    hear(driver, "near", request())
    assert overlays(driver.tell(Probed("near", 0.001)), LinkEnded, "near")
    for number, peer in enumerate(names(7)):
        driver.tell(Probed(peer, 0.1 + number * 0.01))
    hear(driver, "near", request())
    assert overlays(driver.tell(Probed("near", 0.001)), LinkEnded, "p02")
    assert count_random(view(driver).active) == 4


def test_links_of_the_tree_are_not_given_up_for_near_ones():
    driver = linked(*names(7))
    near_links(driver)
    for number, peer in enumerate(names(7)):
        driver.tell(Probed(peer, 0.1 + number * 0.01))
    hear(driver, "p01", TreePrune(T))
    hear(driver, "p02", TreePrune(T))
    view(driver).active["p01"].is_random = True
    driver.connect("near", "nearer")
    hear(driver, "near", request())
    assert overlays(driver.tell(Probed("near", 0.01)), LinkEnded, "p02")
    hear(driver, "nearer", request())
    assert overlays(driver.tell(Probed("nearer", 0.001)), LinkEnded, "nearer")


def test_surplus_links_stay_while_the_tree_uses_them():
    driver = linked(*names(10))
    for peer in names(4):
        hear(driver, peer, request(9, ("p05",), kind=LINKS))
    hear(driver, "p02", TreePrune(T))
    hear(driver, "p03", TreePrune(T))
    driver.run(1.3)
    assert set(view(driver).active) == set(names(10)) - {"p02", "p03"}
    hear(driver, "p01", TreePrune(T))
    driver.run(2.6)
    assert set(view(driver).active) == set(names(10)) - {"p01", "p02", "p03"}


def test_suitors_are_bounded():
    driver = linked(*names(7), dials_max=1)
    driver.connect("a", "b")
    hear(driver, "a", request())
    assert overlays(hear(driver, "b", request()), LinkEnded, "b")
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
    assert overlays(last, LinkEnded, "p07")
    assert tree(driver).eager.keys() == set(names(7))


def test_news_from_a_peer_that_is_no_neighbour_is_answered_with_disconnect():
    driver = linked("a")
    driver.connect("ghost")
    assert overlays(hear(driver, "ghost", request(kind=LINKS)), LinkEnded, "ghost")
    assert hear(driver, "a", request(5, ("x",), kind=LINKS)) == []
    assert view(driver).active["a"].random_links == 5


def test_neighbor_of_a_topic_we_are_not_in_is_answered_with_disconnect():
    driver = linked("a")
    other = Topic("other")
    assert overlays(hear(driver, "a", Neighbor(other, REQUEST, True, 0, ()), GetNodes(other)), LinkEnded) == [LinkEnded(other)]


def test_refused_request_leaves_the_peer_in_the_passive_view():
    driver = linked("a")
    hear(driver, "a", Nodes(T, ("x",)))
    driver.connect("x")
    assert overlays(driver.run(2), Neighbor, "x")
    hear(driver, "x", LinkEnded(T))
    assert "x" in view(driver).passive
    hear(driver, "a", LinkEnded(T))
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
    assert overlays(actions, LinkEnded, "p03")
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
    assert overlays(driver.actions, LinkEnded, "a")


def test_unanswered_requests_are_given_up():
    driver = linked("a")
    driver.connect("mute")
    driver.run(2)
    assert "mute" in view(driver)._asked
    driver.run(8)
    assert "mute" not in view(driver).passive


def test_alone_asks_a_connected_member_whose_answer_was_lost():
    """Nothing else would ever bring two members together that are connected and have given each other up."""
    driver = solo("lossy", request_ticks=2)
    driver.run(12)
    assert not view(driver).passive
    asked = len(overlays(driver.actions, GetNodes, "lossy"))
    driver.run(6)
    assert len(overlays(driver.actions, GetNodes, "lossy")) > asked
    assert overlays(hear(driver, "lossy", Nodes(T, ())), WalkJoin, "lossy")
    hear(driver, "lossy", request(kind=ACCEPT))
    assert list(view(driver).active) == ["lossy"]


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


@pytest.mark.parametrize("ttl", [1, 99])
def test_leave_that_a_liar_says_of_us_is_not_told_on_as_if_it_were_ours(ttl):
    driver = linked("a", "b", "liar")
    assert hear(driver, "liar", Leaving(T, "me", ttl)) == []
    assert set(view(driver).active) == {"a", "b", "liar"}


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
    rtts.pop("a")
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


def test_connection_that_served_its_turn_is_let_go_and_its_peer_stays_a_member():
    driver = linked(*names(7))
    hear(driver, "p00", Shuffle(T, "origin", (), 1))
    driver.connect("origin", outbound=True)
    released = [action.peer for action in of(driver.run(8), Disconnect)]
    assert released == ["origin"]
    driver.tell(PeerDisconnected("origin"))
    assert "origin" in view(driver).passive


def test_dialled_neighbour_is_kept_until_it_is_none():
    driver = linked("a")
    hear(driver, "a", WalkJoin(T, "new", 0))
    driver.connect("new", outbound=True)
    assert not of(driver.run(8), Disconnect)
    hear(driver, "new", LinkEnded(T))
    driver.tell(PeerDisconnected("new"))
    assert not of(driver.run(8), Disconnect)


# Full queues


def refuse_links(driver, peer, topic=T):
    """Have a peer that we know no link of tell of one, and our answer meet a full queue."""
    driver.say(peer, Rpc(overlay=(Neighbor(topic, LINKS, False, 0, ()),)))
    driver.tell(SendFailed(peer, Rpc(overlay=(LinkEnded(topic),))))


def test_disconnect_that_met_a_full_queue_is_said_again_once():
    driver = solo("a")
    refuse_links(driver, "a")
    refuse_links(driver, "a")
    assert overlays(driver.tell(TimerFired(RETRY)), LinkEnded, "a") == [LinkEnded(T)]
    assert overlays(driver.tell(TimerFired(RETRY)), LinkEnded, "a") == []


def test_disconnect_is_not_said_again_to_a_neighbour_nor_of_a_topic_that_is_not_ours():
    driver = solo("a")
    refuse_links(driver, "a")
    hear(driver, "a", request(0, is_random=True))
    assert list(view(driver).active) == ["a"]
    refuse_links(driver, "a", Topic("never"))
    assert overlays(driver.tell(TimerFired(RETRY)), LinkEnded, "a") == []
    assert driver.router._failed == {}


def test_links_that_met_a_full_queue_are_said_again_at_the_next_heartbeat_to_that_neighbour_alone():
    driver = linked("a", "b", links_ticks=1_000)
    driver.run(3)
    driver.tell(SendFailed("a", Rpc(overlay=(Neighbor(T, LINKS, False, 0, ()),))))
    actions = driver.run(4)
    assert [said.kind for said in overlays(actions, Neighbor, "a")] == [LINKS]
    assert overlays(actions, Neighbor, "b") == []


def test_links_from_a_peer_that_was_asked_are_its_acceptance_that_met_a_full_queue():
    asker, asked = solo("b", C_rand=1), solo("a")
    hear(asker, "b", Nodes(T, ()))
    (walk,) = overlays(asker.actions, WalkJoin, "b")
    (accept,) = overlays(hear(asked, "a", WalkJoin(T, "a", 0)), Neighbor, "a")
    assert walk.peer == "me" and accept.kind is ACCEPT
    asked.tell(SendFailed("a", Rpc(overlay=(accept,))))
    (links,) = overlays(asked.run(1.3), Neighbor, "a")
    assert links.kind is LINKS and links.is_random
    assert overlays(hear(asker, "b", links), LinkEnded) == []
    assert view(asker).active["b"].is_random


def test_links_from_a_peer_that_was_requested_are_its_acceptance_and_later_ones_are_not():
    driver = linked("a", request_ticks=2)
    driver.connect("b", "c")
    driver.run(1.3)
    assert [said.kind for said in overlays(driver.actions, Neighbor, "b")] == [REQUEST]
    hear(driver, "b", request(kind=LINKS))
    assert "b" in view(driver).active
    driver.run(6)
    assert overlays(hear(driver, "c", request(kind=LINKS)), LinkEnded, "c") and "c" not in view(driver).active
