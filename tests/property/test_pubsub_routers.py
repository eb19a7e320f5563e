"""What holds in every network and against every peer: no double delivery, no echo, symmetric meshes, bounded containers."""

import random
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.pubsub.network import Network, Solo, T, message

from gossiplog.pubsub import (
    ChokeParams,
    EpisubParams,
    FloodsubParams,
    GossipsubParams,
    MeshsubParams,
    Outcome,
    RandomsubParams,
    Rpc,
    ScoreParams,
    Topic,
)
from gossiplog.pubsub.actions import Deliver, SendRpc, Validate
from gossiplog.pubsub.events import PeerConnected, PeerDisconnected, Probed, RpcReceived, SendFailed, Subscribe, Unsubscribe, Validated
from gossiplog.pubsub.registry import ROUTERS, make_router
from gossiplog.pubsub.rpc import (
    Control,
    Extensions,
    ForwardJoin,
    GetNodes,
    IHave,
    Leaving,
    LinkEnded,
    Neighbor,
    NeighborKind,
    Nodes,
    PeerRecord,
    Prune,
    Shuffle,
    ShuffleReply,
    Subscription,
    TreeGraft,
    TreeIHave,
    TreePrune,
    WalkJoin,
)

PARAMS = {
    "floodsub": FloodsubParams(),
    "randomsub": RandomsubParams(),
    "meshsub": MeshsubParams(),
    "gossipsub": GossipsubParams(score=ScoreParams()),
    "choke": ChokeParams(choke_threshold=1, choke_ticks=2, choke_samples_min=1),
    "episub": EpisubParams(),
}
SMALL = {
    "seen_max": 40, "pending_max": 10, "sources_max": 2, "topics_per_peer_max": 5,
}  # fmt: skip
MESHED = SMALL | {"backoffs_max": 4}
GOSSIPING = MESHED | {"mcache_max": 16, "promises_max": 5, "ihave_ids_max": 8, "idontwant_ids_max": 6}
NARROW = {
    "floodsub": FloodsubParams(**SMALL),
    "randomsub": RandomsubParams(**SMALL),
    "meshsub": MeshsubParams(**MESHED),
    "gossipsub": GossipsubParams(**GOSSIPING, score=ScoreParams(retained_max=3)),
    "choke": ChokeParams(**GOSSIPING, choke_threshold=1, choke_ticks=2, choke_samples_min=1),
    "episub": EpisubParams(**SMALL, passive_max=6, active_max=8, dials_max=3, missing_max=7, cache_max=8),
}
MAKERS = {name: partial(make_router, name, PARAMS[name]) for name in ROUTERS}
HOSTILE = {name: partial(make_router, name, NARROW[name]) for name in ROUTERS}


@given(st.sampled_from(sorted(ROUTERS)), st.integers(4, 16), st.integers(2, 6), st.integers(0, 2**32), st.floats(0, 0.3))
@settings(max_examples=60, deadline=None)
def test_no_message_is_delivered_twice_or_sent_back_to_its_source(router, count, degree, seed, loss):
    net = Network(MAKERS[router], count, seed=seed)
    net.connect_some(min(degree, count - 1))
    net.subscribe()
    net.run(4)
    chance = random.Random(seed)
    net.lossy = lambda source, target, rpc: chance.random() < loss
    for number in range(6):
        net.publish(net.names[number % count], f"m{number}")
        net.run(0.2)
    net.run(6)
    for name, delivered in net.delivered.items():
        assert len({one.id for one in delivered}) == len(delivered)
        first_source = {}
        for _, source, target, rpc in net.sent:
            if target == name:
                for one in rpc.messages:
                    first_source.setdefault(one.id, source)
        assert not any(
            one.id.endswith(f"m{number}".encode()) for number in range(6) if net.names[number % count] == name for one in delivered
        )


@given(st.sampled_from(["meshsub", "gossipsub", "choke"]), st.integers(3, 24), st.integers(2, 12), st.integers(0, 2**32))
@settings(max_examples=40, deadline=None)
def test_meshes_are_symmetric_and_within_bounds_in_steady_state(router, count, degree, seed):
    net = Network(MAKERS[router], count, seed=seed)
    net.connect_some(min(degree, count - 1))
    net.subscribe()
    net.run(10)
    for name in net.names:
        mesh = net.routers[name].mesh.links[T]
        assert all(name in net.routers[peer].mesh.links[T] for peer in mesh)
        assert len(mesh) <= 13
        free = [peer for peer in net.links[name] if peer not in mesh and not net.routers[name].mesh.backoff.is_active(T, peer, net.now - 1)]
        assert len(mesh) >= 4 or not free


@given(st.sampled_from(sorted(HOSTILE)), st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_hostile_peers_fill_no_container_beyond_its_maximum(router, seed):
    """Peers say anything at all; the router raises nothing, holds no more than it may, and validates no message twice."""
    rng = random.Random(seed)
    driver = Solo(HOSTILE[router](random.Random(seed)))
    driver.tell(Subscribe(T))
    peers = [f"p{number}" for number in range(12)]
    validated, delivered = [], []
    for _ in range(250):
        event = make_event(rng, peers, driver.router.protocols)
        before = set(driver.router.seen.entries)
        for action in driver.tell(event):
            if isinstance(action, Validate):
                assert action.message.id not in before
                validated.append(action.message.id)
            elif isinstance(action, Deliver):
                delivered.append(action.message.id)
            elif isinstance(action, SendRpc):
                assert action.peers
                assert len(set(action.peers)) == len(action.peers)
                assert all(peer in driver.router.peers for peer in action.peers)
        if rng.random() < 0.2:
            driver.run(rng.random() * 2)
        state = driver.router.state()
        assert set(state.sizes) == set(state.sizes_max)
        for name, size in state.sizes.items():
            assert size <= state.sizes_max[name], name
    assert len(delivered) <= len(validated)


def make_event(rng, peers, protocols):
    peer = rng.choice(peers)
    kind = rng.random()
    if kind < 0.08:
        return PeerConnected(peer, rng.choice(protocols), rng.random() < 0.3, rng.choice([None, "10.0.0.1"]))
    if kind < 0.10:
        return PeerDisconnected(peer)
    if kind < 0.13:
        return rng.choice([Subscribe, Unsubscribe])(rng.choice([T, Topic("u")]))
    if kind < 0.16:
        return SendFailed(peer, make_rpc(rng, peers))
    if kind < 0.20:
        return Probed(peer, rng.choice([None, rng.random()]))
    if kind < 0.35:
        return Validated(message(f"m{rng.randrange(60)}").id, rng.choice(list(Outcome)))
    return RpcReceived(peer, make_rpc(rng, peers), rng.choice([(), (), (T,)]), rng.choice([0, 0, 0, 1]), rng.random() < 0.1)


def make_rpc(rng, peers):
    def some(make, count=12):
        return tuple(make() for _ in range(rng.randrange(count))) if rng.random() < 0.4 else ()

    def topic():
        return rng.choice([T, T, Topic("u"), Topic(f"other {rng.randrange(9)}")])

    def ident():
        return message(f"m{rng.randrange(60)}").id

    def peer():
        return rng.choice([*peers, "me", f"x{rng.randrange(30)}"])

    def group():
        return tuple(peer() for _ in range(rng.randrange(8)))

    def overlay():
        ttl = rng.choice([0, 1, 6, 10**6])
        return rng.choice(
            [
                lambda: GetNodes(topic()),
                lambda: Nodes(topic(), group()),
                lambda: WalkJoin(topic(), peer(), ttl),
                lambda: ForwardJoin(topic(), peer(), ttl),
                lambda: Neighbor(topic(), rng.choice(list(NeighborKind)), rng.random() < 0.5, rng.randrange(9), group()),
                lambda: LinkEnded(topic()),
                lambda: Leaving(topic(), peer(), ttl),
                lambda: Shuffle(topic(), peer(), group(), ttl),
                lambda: ShuffleReply(topic(), group()),
                lambda: TreeIHave(topic(), tuple((ident(), rng.randrange(300)) for _ in range(9))),
                lambda: TreeGraft(topic(), tuple(ident() for _ in range(9))),
                lambda: TreePrune(topic()),
            ]
        )()

    return Rpc(
        some(lambda: message(f"m{rng.randrange(60)}" * rng.choice([1, 300]))),
        some(lambda: Subscription(topic(), rng.random() < 0.7)),
        Control(
            some(lambda: IHave(topic(), tuple(ident() for _ in range(9)))),
            some(ident),
            some(topic),
            some(lambda: Prune(topic(), tuple(PeerRecord(peer()) for _ in range(3)), rng.choice([None, 0, 5, 2**60]))),
            some(ident),
            some(topic),
            some(topic),
            rng.choice([None, None, Extensions(), Extensions(test=True)]),
        ),
        some(overlay),
        rng.randrange(300),
        rng.random() < 0.1,
    )


NUMBERS = [0, 1, *(bound + beyond for bound in (2**7, 2**31, 2**32, 2**53, 2**63) for beyond in (-1, 0, 1)), 2**64 - 1]
NAMES = ["", "x", "me", "mesh", "é" * 200]
IDS = [b"", b"\0", bytes(32), bytes(255), bytes(256)]
ID = message("a").id
LINKS = Neighbor(T, NeighborKind.LINKS, True, 3, ("mesh",))
RPC = Rpc(
    (message("a"),),
    (Subscription(T, True), Subscription(Topic("other"), False)),
    Control(
        (IHave(T, (ID,)),),
        (ID,),
        (T,),
        (Prune(T, (PeerRecord("x", b"record"),), 60),),
        (ID,),
        (T,),
        (T,),
        Extensions(test=True),
    ),
    (
        *(replace(LINKS, kind=kind) for kind in NeighborKind),
        WalkJoin(T, "x", 3),
        ForwardJoin(T, "x", 3),
        Leaving(T, "x", 3),
        Shuffle(T, "x", ("mesh",), 3),
        ShuffleReply(T, ("y",)),
        Nodes(T, ("y",)),
        TreeIHave(T, ((ID, 4),)),
        TreeGraft(T, (ID,)),
    ),
    3,
    True,
)


def bounded(value):
    """The value with each number, name and id in it in turn at each bound, and each list empty or twice as long."""
    if isinstance(value, bool | Enum):
        return
    if isinstance(value, int):
        yield from NUMBERS
    elif isinstance(value, str):
        yield from NAMES
    elif isinstance(value, bytes):
        yield from IDS
    elif isinstance(value, tuple):
        if not (len(value) == 2 and isinstance(value[1], int)):  # a pair
            yield from ((), value + value)
        for index, part in enumerate(value):
            for other in bounded(part):
                yield (*value[:index], other, *value[index + 1 :])
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            for other in bounded(getattr(value, field.name)):
                yield replace(value, **{field.name: other})


@pytest.mark.parametrize("router", sorted(HOSTILE))
def test_a_router_takes_numbers_names_and_ids_at_every_bound(router):
    """Raising nothing, and holding no more than it may."""
    driver = Solo(HOSTILE[router](random.Random(1)))
    driver.tell(Subscribe(T))
    driver.connect("mesh", "other")
    rpcs = list(bounded(RPC))
    assert len(rpcs) > 300
    for number, rpc in enumerate(rpcs):
        driver.say("mesh", rpc)
        if number % 20 == 0:
            driver.run(1.0)
    state = driver.router.state()
    assert all(size <= state.sizes_max[what] for what, size in state.sizes.items())
