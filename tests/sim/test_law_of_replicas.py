"""The law of applications in simulated replicas: that the runs have what it is about, and that the checker sees it broken."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from gossiplog.broadcast.events import PeerKind
from gossiplog.codec import pcf
from gossiplog.log.applying import read_set_aside
from gossiplog.plan import run_plan
from gossiplog.pubsub.params import GossipsubParams
from gossiplog.pubsub.routers.gossipsub import Gossipsub
from gossiplog.sim.check.byzantine import Stranger
from gossiplog.sim.check.disk import Crash
from gossiplog.sim.check.invariants import Invariants
from gossiplog.sim.check.law import Role, role_of
from gossiplog.sim.check.log_on_disk import Validator
from gossiplog.sim.check.observer import Violation
from gossiplog.sim.check.plan import ReplicaSpec
from gossiplog.sim.check.replica import SimProcess, SimReplica
from gossiplog.sim.check.tables import WriteRow
from gossiplog.sim.check.world import LinkFaults, SimWorld


class Network:
    """Replicas with every role, one after the other in a chain, and a stranger at their end."""

    def __init__(self, *, has_rule: bool = False) -> None:
        self.watch, self.world, validator = Invariants(), SimWorld(1, LinkFaults()), Validator()

        def make(kind: type[SimReplica], number: int, has_rule: bool) -> SimReplica:
            spec = ReplicaSpec(number, has_rule=has_rule)
            return kind(SimProcess(self.world, spec, lambda rng: Gossipsub(GossipsubParams(), rng), 1), spec, validator, self.watch)

        self.by_role: dict[Role, SimReplica] = {}
        for number in range(100):
            replica = make(SimReplica, number, has_rule)
            self.by_role.setdefault(role_of(replica.signer.did), replica)
        self.replicas = list(self.by_role.values())
        self.stranger = make(Stranger, 100, False)
        self.watch.run.correct.update({replica.id: replica for replica in self.replicas})
        self.watch.run.strangers.add(self.stranger.id)
        self.stranger.until_s = 12.0 if has_rule else -1.0
        nodes = [*self.replicas, self.stranger]
        for node in nodes:
            node.process.start()
        for one, other in pairwise(nodes):
            self.world.link(one.process, other.process, (PeerKind.MESH, PeerKind.MESH))
        self.world.run(5.0)

    def append(self, role: Role, payload: object) -> None:
        self.by_role[role].append([pcf.encode(payload)])
        self.world.run(self.world.now + 3.0)

    def aside(self, role: Role) -> int:
        return len(run_plan(read_set_aside("check"), self.by_role[role].state.answer))

    def check(self) -> None:
        self.watch.sample()
        self.watch.check_end()


def test_poison_is_in_every_log_and_set_aside_by_every_application() -> None:
    network = Network()
    assert set(network.by_role) == set(Role)
    for payload in ({"n": 1}, {"poison": True}, {"n": 2}, b"hello"):
        network.append(Role.ABSENT, payload)
    network.check()
    assert {len(replica.state.values) for replica in network.replicas} == {4}
    assert network.aside(Role.WHOLE) == network.aside(Role.HASTY) == network.aside(Role.CHANGING) >= 2
    assert network.aside(Role.BROKEN) == 4 and network.aside(Role.ABSENT) == 0


def test_append_that_its_own_application_raises_about_is_stored_nowhere() -> None:
    network = Network()
    network.append(Role.WHOLE, {"poison": True})
    network.append(Role.WHOLE, {"n": 1})
    network.check()
    assert {len(replica.state.values) for replica in network.replicas} == {1}


def test_replica_that_was_without_its_application_catches_up() -> None:
    network = Network()
    changing = network.by_role[Role.CHANGING]
    network.append(Role.WHOLE, {"n": 1})
    for n in (2, 3):
        changing.process.crash(Crash.KILL, random.Random(1))
        changing.process.start()
        for other in network.replicas:
            if other is not changing:
                network.world.link(changing.process, other.process, (PeerKind.MESH, PeerKind.MESH))
        network.append(Role.WHOLE, {"n": n})
        network.append(Role.ABSENT, {"poison": n})
        assert (changing.log.application is None) is (n == 2)
        network.check()
    assert len(changing.log.state.rows) + network.aside(Role.CHANGING) == len(changing.state.values) == 5


def test_what_a_stranger_writes_against_the_rule_is_nowhere_else_and_nobody_blames_it() -> None:
    network = Network(has_rule=True)
    for n in range(4):
        network.append(Role.WHOLE, {"n": n})
    network.check()
    assert network.watch.has_converged()
    assert len(network.stranger.state.values) > len(network.replicas[0].state.values)


@pytest.mark.parametrize("is_once", [False, True])
def test_checker_sees_what_is_not_applied_and_what_is_applied_twice(is_once) -> None:
    network = Network()
    network.append(Role.WHOLE, {"n": 1})
    state = network.by_role[Role.WHOLE].log.state
    if is_once:
        state.rows.clear()
    else:
        state.write(WriteRow(state.rows[0]))
    with pytest.raises(Violation, match="applied, once"):
        network.check()
