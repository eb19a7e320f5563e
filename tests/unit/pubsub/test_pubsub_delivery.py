"""Delivery on whole networks, router by router: the first part of the acceptance list."""

import random
from functools import partial

import pytest
from unit.pubsub.network import Network, T, message

from gossiplog.pubsub import (
    ChokeParams,
    EpisubParams,
    Fate,
    FloodsubParams,
    GossipsubParams,
    MeshsubParams,
    Outcome,
    PeerId,
    RandomsubParams,
    Topic,
)
from gossiplog.pubsub.events import Start
from gossiplog.pubsub.registry import ROUTERS, make_router

PARAMS = {
    "floodsub": FloodsubParams(),
    "randomsub": RandomsubParams(D=10),
    "meshsub": MeshsubParams(),
    "gossipsub": GossipsubParams(flood_publish=False),
    "choke": ChokeParams(),
    "episub": EpisubParams(),
}
MAKERS = {name: partial(make_router, name, PARAMS[name]) for name in ROUTERS}


def gossipsub(**fields):
    return lambda rng: make_router("gossipsub", GossipsubParams(**fields), rng)


def assert_everyone_receives(net, published, publisher, names=None):
    expected = set(net.names if names is None else names) - {publisher}
    assert net.receivers(published) == expected
    for name in expected:
        assert [one.id for one in net.delivered[name]].count(published.id) == 1


@pytest.mark.parametrize("router", ROUTERS)
@pytest.mark.parametrize("degree", [3, 10], ids=["sparse", "dense"])
def test_twenty_hosts_receive_every_message_once(router, degree):
    net = Network(MAKERS[router], 20)
    net.connect_some(degree)
    net.subscribe()
    net.run(10)
    for number in range(10):
        publisher = net.names[number]
        published = net.publish(publisher, f"message {number}")
        net.run(5)
        assert_everyone_receives(net, published, publisher)
        assert all(source != target for source, target in net.copies(published))


@pytest.mark.parametrize("router", ROUTERS)
def test_message_crosses_many_hops(router):
    net = Network(MAKERS[router], 6)
    for source, target in zip(net.names, net.names[1:], strict=False):
        net.connect(source, target)
    net.subscribe()
    net.run(10)
    published = net.publish(net.names[0], "to the other end")
    net.run(10)
    assert_everyone_receives(net, published, net.names[0])


@pytest.mark.parametrize("router", ROUTERS)
def test_tree_topology_delivers_from_root_and_leaf(router):
    net = Network(MAKERS[router], 10)
    for child in range(1, 10):
        net.connect(net.names[(child - 1) // 2], net.names[child])
    net.subscribe()
    net.run(10)
    for publisher in (net.names[0], net.names[9]):
        published = net.publish(publisher, f"from {publisher}")
        net.run(5)
        assert_everyone_receives(net, published, publisher)


def test_star_topology_with_peer_exchange_gives_more_than_one_connection():
    net = Network(gossipsub(px_enabled=True, D=4, D_lo=3, D_hi=5, D_score=2, D_out=1), 20)
    for name in net.names[1:]:
        net.connect(name, net.names[0])
    net.subscribe()
    net.run(30)
    assert all(len(net.links[name]) > 1 for name in net.names)
    published = net.publish(net.names[7], "through the star")
    net.run(5)
    assert_everyone_receives(net, published, net.names[7])


def test_mixed_network_serves_floodsub_peers():
    net = Network(gossipsub(), 15)
    for _ in range(10):
        net.add(make_router("floodsub", FloodsubParams(), random.Random(len(net.names))))
    net.connect_some(8)
    net.subscribe()
    net.run(10)
    for publisher in (net.names[0], net.names[20]):
        published = net.publish(publisher, f"from {publisher}")
        net.run(5)
        assert_everyone_receives(net, published, publisher)


def test_mixed_network_of_episub_and_floodsub_delivers():
    net = Network(MAKERS["episub"], 8)
    for _ in range(4):
        net.add(make_router("floodsub", FloodsubParams(), random.Random(len(net.names))))
    net.connect_some(5)
    net.subscribe()
    net.run(10)
    for publisher in (net.names[0], net.names[10]):
        published = net.publish(publisher, f"from {publisher}")
        net.run(5)
        assert_everyone_receives(net, published, publisher)


def test_mixed_network_of_randomsub_and_floodsub_delivers():
    net = Network(MAKERS["randomsub"], 8)
    for _ in range(4):
        net.add(make_router("floodsub", FloodsubParams(), random.Random(len(net.names))))
    net.connect_some(5)
    net.subscribe()
    net.run(1)
    published = net.publish(net.names[0], "mixed")
    net.run(5)
    assert_everyone_receives(net, published, net.names[0])
    fates = {fate for _, fate in net.reports[net.names[0]][0].fates}
    assert Fate.FLOOD in fates


def test_fanout_reaches_a_topic_we_are_not_in():
    net = Network(gossipsub(flood_publish=False), 20)
    net.connect_some(10)
    outsider, members = net.names[0], net.names[1:]
    net.subscribe(members)
    net.run(5)
    published = net.publish(outsider, "from outside")
    net.run(5)
    assert_everyone_receives(net, published, outsider, members)
    (state,) = net.routers[outsider].state().topics
    assert (state.is_joined, len(state.fan_out)) == (False, 6)
    assert [fate for _, fate in net.reports[outsider][0].fates].count(Fate.FANOUT) == 6


def test_fanout_is_maintained_when_its_peers_leave_and_others_come():
    net = Network(gossipsub(flood_publish=False), 20)
    net.connect_all()
    outsider, first, second = net.names[0], net.names[1:10], net.names[10:]
    net.subscribe(first)
    net.run(2)
    net.publish(outsider, "to the first")
    net.run(2)
    for name in first:
        net.unsubscribe(name)
    net.run(2)
    net.subscribe(second)
    net.run(3)
    assert set(net.routers[outsider].state().topics[0].fan_out) <= set(second)
    published = net.publish(outsider, "to the second")
    net.run(5)
    assert_everyone_receives(net, published, outsider, second)


def test_fanout_expires_after_its_ttl():
    net = Network(gossipsub(flood_publish=False, fanout_ttl_s=5), 10)
    net.connect_all()
    net.subscribe(net.names[1:])
    net.run(2)
    net.publish(net.names[0], "once")
    net.run(3)
    assert net.routers[net.names[0]].state().topics
    net.run(4)
    assert not net.routers[net.names[0]].state().topics


def test_gossip_brings_a_message_to_peers_outside_the_mesh():
    net = Network(gossipsub(flood_publish=False), 30)
    net.connect_all()
    net.subscribe()
    net.run(5)
    publisher = net.names[0]
    lost = {(publisher, peer) for peer in net.mesh(publisher)}
    published = message("by gossip alone")
    net.lossy = lambda source, target, rpc: (source, target) in lost and bool(rpc.messages)
    net.publish(publisher, published.data)
    net.run(1.5)
    assert net.receivers(published) <= set(net.names)
    net.run(8)
    assert_everyone_receives(net, published, publisher)


def test_flood_publish_goes_to_every_peer_of_the_topic():
    net = Network(gossipsub(flood_publish=True), 30)
    for name in net.names[1:]:
        net.connect(net.names[0], name)
    net.subscribe()
    net.run(5)
    published = net.publish(net.names[0], "to all")
    assert len(net.copies(published)) == 29
    assert {fate for _, fate in net.reports[net.names[0]][0].fates} == {Fate.FLOOD, Fate.MESH}


def test_topics_are_kept_apart():
    net = Network(gossipsub(), 12)
    net.connect_all()
    other = Topic("other")
    net.subscribe(net.names[:6])
    net.subscribe(net.names[6:], other)
    net.run(5)
    published = net.publish(net.names[8], "elsewhere", other)
    net.run(3)
    assert_everyone_receives(net, published, net.names[8], net.names[6:])


def test_rejected_message_stops_at_the_first_hop_and_ignored_one_too():
    for outcome in (Outcome.REJECT, Outcome.IGNORE):
        net = Network(gossipsub(flood_publish=False), 10)
        net.connect_all()
        net.subscribe()
        net.run(3)
        net.validators = {name: lambda _, outcome=outcome: outcome for name in net.names}
        published = net.publish(net.names[0], "not for everyone")
        net.run(3)
        assert net.receivers(published) == set()
        assert {source for source, _ in net.copies(published)} == {net.names[0]}


def test_network_heals_after_half_of_it_dies():
    net = Network(gossipsub(), 30)
    net.connect_some(10)
    net.subscribe()
    net.run(5)
    net.kill(net.names[15:])
    net.run(3)
    published = net.publish(net.names[0], "to the living")
    net.run(5)
    assert_everyone_receives(net, published, net.names[0], net.names[:15])


def test_episub_delivers_every_message_after_half_of_it_dies_at_once():
    net = Network(MAKERS["episub"], 40)
    net.connect_some(5)
    net.subscribe()
    net.run(10)
    net.publish(net.names[0], "before")
    net.run(3)
    net.kill(net.names[20:])
    published = [net.publish(net.names[0], "at once")]
    for number in range(3):
        net.run(1)
        published.append(net.publish(net.names[number], f"after {number}"))
    net.run(20)
    for number, one in enumerate(published):
        assert_everyone_receives(net, one, net.names[max(0, number - 1)], net.names[:20])


def test_simultaneous_join_through_one_contact_gives_one_symmetric_component():
    net = Network(MAKERS["episub"], 60)
    net.subscribe()
    for name in net.names[1:]:
        net.connect(name, net.names[0])
    net.run(30)
    params = EpisubParams()
    views = {name: set(router.views[T].active) for name, router in net.routers.items()}
    net.run(1)
    later = {name: set(router.views[T].active) for name, router in net.routers.items()}
    for name, active in views.items():
        assert params.C_rand <= len(active) <= params.active_max
        assert all(name in views[peer] or name in later[peer] or peer not in later[name] for peer in active)
    reached, frontier = {net.names[0]}, [net.names[0]]
    while frontier:
        frontier = [peer for name in frontier for peer in views[name] if peer not in reached]
        reached.update(frontier)
    assert reached == set(net.names)


def test_late_links_are_choked_and_delivery_stays_whole():
    def make(rng):
        return make_router("choke", ChokeParams(choke_threshold=2, choke_ticks=3, flood_publish=False), rng)

    plain, choked = Network(gossipsub(flood_publish=False), 20), Network(make, 20)
    copies = []
    for net in (plain, choked):
        net.connect_all()
        net.subscribe()
        net.run(3)
        for number in range(60):
            net.publish(net.names[number % 20], f"warm {number}")
            net.run(0.5)
        published = [net.publish(net.names[number], f"measured {number}") for number in range(10)]
        net.run(8)
        for number, one in enumerate(published):
            assert_everyone_receives(net, one, net.names[number])
        copies.append(sum(len(net.copies(one)) for one in published))
    assert copies[1] < 0.9 * copies[0]
    states = [net_router.state().topics[0] for net_router in choked.routers.values()]
    assert any(state.choked for state in states)
    assert any(state.choked_by_us for state in states)


def test_stranger_with_an_unknown_protocol_is_passed_over():
    net = Network(MAKERS["floodsub"], 1)
    router = make_router("randomsub", RandomsubParams(), random.Random(1))
    router.protocols = ("/none",)
    net.add(router)
    net.connect(*net.names)
    assert not net.routers[net.names[0]].state().peers
    net.tell(net.names[0], Start(PeerId("again")))
