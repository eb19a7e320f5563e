"""What simulated replicas do becomes facts by the same mapping as in a live service, for they drive the same machine."""

from __future__ import annotations

from itertools import pairwise

import pytest
from glass_support import way_of

from gossiplog.broadcast.events import PeerKind
from gossiplog.codec import pcf
from gossiplog.glass import Ring, Witness
from gossiplog.glass.fact import KINDS, WAYS
from gossiplog.pubsub.params import EpisubParams, GossipsubParams
from gossiplog.pubsub.routers.episub import Episub
from gossiplog.pubsub.routers.gossipsub import Gossipsub
from gossiplog.sim.check.invariants import Invariants
from gossiplog.sim.check.log_on_disk import Validator
from gossiplog.sim.check.plan import TOPIC, ReplicaSpec
from gossiplog.sim.check.replica import SimProcess, SimReplica
from gossiplog.sim.check.world import LinkFaults, SimWorld


def witness(replica: SimReplica, world: SimWorld, ring: Ring, router: str) -> None:
    """Have a replica's facts told to a ring."""
    replica.process.see = Witness(ring, replica.id, TOPIC, router, lambda: world.now).on_event


@pytest.mark.parametrize(
    ("router", "make"),
    [("gossipsub", lambda rng: Gossipsub(GossipsubParams(), rng)), ("episub", lambda rng: Episub(EpisubParams(), rng))],
)
def test_facts_of_simulated_replicas_tell_each_entrys_way(router, make) -> None:
    world, watch, validator, ring = SimWorld(3, LinkFaults()), Invariants(), Validator(), Ring()
    replicas = [SimReplica(SimProcess(world, ReplicaSpec(number), make, 3), ReplicaSpec(number), validator, watch) for number in range(4)]
    watch.run.correct.update({replica.id: replica for replica in replicas})
    for replica in replicas:
        witness(replica, world, ring, router)
        replica.process.start()
    # A chain: what the first appends crosses all links.
    for left, right in pairwise(replicas):
        world.link(left.process, right.process, (PeerKind.MESH, PeerKind.MESH))
    world.run(15.0)
    for number in range(5):
        replicas[0].append([pcf.encode(number)])
        world.run(world.now + 2)
    world.run(world.now + 20)
    facts = ring.facts()
    assert watch.has_converged()
    assert {fact.kind for fact in facts} <= KINDS and {fact.way for fact in facts} - {None} <= set(WAYS)
    assert [fact.node for fact in facts if fact.kind == "start"] == [replica.id for replica in replicas]
    published = [fact.message for fact in facts if fact.kind == "publish"]
    assert len(published) == len(replicas[3].state.values) == 5
    for id in published:
        way = way_of(id, facts)
        assert [had.node for had in way] == [replica.id for replica in replicas]
        assert way[0].way == "append"
        for before, had in pairwise(way):
            assert had.way == "gossip" and had.peer == before.node
            assert had.at_s is not None and before.at_s is not None and had.at_s > before.at_s
            assert ("message", had.node) in before.sent
    grafted = {frozenset((fact.node, fact.peer)) for fact in facts if fact.kind == "graft"}
    if router == "gossipsub":
        assert grafted == {frozenset((left.id, right.id)) for left, right in pairwise(replicas)}
