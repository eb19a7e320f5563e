"""Simulated disks that refuse and are late, and other processes that write to the same log."""

from __future__ import annotations

import pytest

from gossiplog.broadcast.actions import Ban
from gossiplog.broadcast.events import PeerKind
from gossiplog.codec import pcf
from gossiplog.pubsub.params import FloodsubParams
from gossiplog.pubsub.routers.floodsub import Floodsub
from gossiplog.pubsub.rpc import Rpc
from gossiplog.sim.check.disk import Trouble
from gossiplog.sim.check.invariants import Invariants
from gossiplog.sim.check.law import Role, role_of
from gossiplog.sim.check.log_on_disk import Validator
from gossiplog.sim.check.observer import Violation
from gossiplog.sim.check.plan import ReplicaSpec
from gossiplog.sim.check.replica import SimProcess, SimReplica
from gossiplog.sim.check.reputation import ReputationInvariants
from gossiplog.sim.check.world import LinkFaults, SimWorld


class Network:
    """Two linked replicas, the first with a right application; it has clients if `kinds` say so."""

    def __init__(self, kinds: tuple[PeerKind, PeerKind] = (PeerKind.MESH, PeerKind.MESH), *, is_shared: bool = False) -> None:
        self.watch, self.world, validator = Invariants(), SimWorld(1, LinkFaults()), Validator()

        def make(number: int) -> SimReplica:
            spec = ReplicaSpec(number, is_shared=is_shared)
            return SimReplica(SimProcess(self.world, spec, lambda rng: Floodsub(FloodsubParams(), rng), 1), spec, validator, self.watch)

        self.first = next(replica for replica in map(make, range(100)) if role_of(replica.signer.did) is Role.WHOLE)
        self.second = make(100)
        for replica in (self.first, self.second):
            self.watch.run.correct[replica.id] = replica
            replica.process.start()
        self.world.link(self.second.process, self.first.process, kinds)
        self.run(5)

    def run(self, seconds: int) -> None:
        for _ in range(seconds):
            self.world.run(self.world.now + 1.0)
            self.watch.sample()

    def append(self, replica: SimReplica, payload: object) -> None:
        replica.append([pcf.encode(payload)])

    @property
    def counts(self) -> tuple[int, int]:
        return len(self.first.state.values), len(self.second.state.values)


@pytest.mark.parametrize("kinds", [(PeerKind.MESH, PeerKind.MESH), (PeerKind.HUB, PeerKind.CLIENT)])
def test_what_a_full_disk_refused_is_fetched_when_there_is_room(kinds: tuple[PeerKind, PeerKind]) -> None:
    network = Network(kinds)
    network.first.disk.trouble = Trouble(refused=1.0)
    network.append(network.second, "theirs")
    network.append(network.first, "ours")
    network.run(3)
    # Of an append that failed nothing is kept, and nobody hears of it.
    assert network.counts == (0, 1)
    network.first.disk.trouble = Trouble()
    network.run(20)
    assert network.counts == (1, 1)
    network.watch.check_end()


def test_late_disk_answers_late() -> None:
    network = Network()
    network.first.disk.trouble = Trouble(late_s=1_000.0)
    network.append(network.second, "theirs")
    network.run(2)
    assert network.counts == (0, 1) and not network.first.log.is_idle


def test_application_catches_up_with_other_processes_within_a_commit() -> None:
    network = Network(is_shared=True)
    network.first.append_elsewhere([pcf.encode(payload) for payload in ("a", "b")])
    network.run(2)
    assert network.counts == (2, 2)
    assert network.first.log.is_behind and network.first.log.state.rows == []
    network.watch.check_end()
    network.append(network.first, "c")
    network.run(2)
    assert not network.first.log.is_behind and len(network.first.log.state.rows) == 3
    network.watch.check_end()


def test_other_process_waits_for_a_transaction() -> None:
    network = Network(is_shared=True)
    network.append(network.first, "ours")
    network.world.run(network.world.now)  # its transaction begins when others have had their turn
    assert not network.first.log.is_idle
    network.first.append_elsewhere([pcf.encode("theirs")])
    assert network.counts == (0, 0)
    network.run(2)
    assert network.counts == (2, 2)


def test_offender_that_is_not_banned_is_noticed() -> None:
    network = Network()
    reputation = next(observer for observer in network.first.observers if isinstance(observer, ReputationInvariants))
    for _ in range(4):
        reputation.on_offence("evil")
    with pytest.raises(Violation, match="an invalid entry is an offence"):
        network.watch.sample()
    reputation.on_offence("evil")
    with pytest.raises(Violation, match="offenders are banned"):
        network.watch.sample()
    now = network.first.local_now()
    reputation.on_action(Ban("evil", now + 600.0, "lies"))
    network.watch.sample()
    with pytest.raises(Violation, match="listened to"):
        reputation.on_rpc("evil", Rpc())
    with pytest.raises(Violation, match="a ban lasts"):
        reputation.on_action(Ban("other", now + 599.0, "lies"))
