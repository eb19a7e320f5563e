import random

import pytest

from gossiplog.broadcast.actions import AskLog, InsertEntry
from gossiplog.broadcast.events import LogAnswered, PeerKind
from gossiplog.broadcast.intake import _check_key
from gossiplog.codec import pcf
from gossiplog.entry.signing import Ed25519Signer
from gossiplog.log.commit import AppendPayloads, LogRules, commit
from gossiplog.log.requests import ReadCount
from gossiplog.plan import ask, run_plan
from gossiplog.pubsub.params import EpisubParams, FloodsubParams, GossipsubParams
from gossiplog.pubsub.routers.episub import Episub
from gossiplog.pubsub.routers.floodsub import Floodsub
from gossiplog.pubsub.routers.gossipsub import Gossipsub
from gossiplog.pubsub.rpc import Message, Rpc, TreePrune
from gossiplog.pubsub.types import MessageId
from gossiplog.sim.check.byzantine import Byzantine, Vice
from gossiplog.sim.check.disk import Crash, Disk
from gossiplog.sim.check.invariants import Invariants
from gossiplog.sim.check.log_on_disk import Validator
from gossiplog.sim.check.plan import TOPIC, ReplicaSpec
from gossiplog.sim.check.replica import SimProcess, SimReplica
from gossiplog.sim.check.world import LinkFaults, SimWorld
from gossiplog.store.memory.state import MemoryState
from gossiplog.sync.wire import decode_event

SIGNER = Ed25519Signer(bytes(32))


def write_entries(disk: Disk, state: MemoryState, count: int, *, synced: int) -> None:
    for number in range(count):
        writes = []

        def answer(request, writes=writes):
            if type(request).__name__.startswith("Write"):
                writes.append(request)
                return None
            return state.answer(request)

        run_plan(commit([AppendPayloads([pcf.encode(number)], SIGNER)], LogRules(TOPIC), now=0.0), answer)
        disk.begin(writes)
        for request in writes:
            state.write(request)
        disk.write()
        if number < synced:
            disk.sync()


def test_disk_keeps_what_was_written_when_the_process_is_killed():
    disk, state = Disk(), MemoryState()
    write_entries(disk, state, 5, synced=2)
    disk.crash(Crash.KILL, random.Random(1))
    assert disk.recover().values == state.values
    assert disk.recover().tree.root == state.tree.root


def test_disk_loses_only_what_was_not_synced_when_power_is_lost_and_only_from_some_point_on():
    kept = set()
    for seed in range(40):
        disk, state = Disk(), MemoryState()
        write_entries(disk, state, 5, synced=2)
        disk.crash(Crash.POWER, random.Random(seed))
        values = disk.recover().values
        assert values == state.values[: len(values)]
        kept.add(len(values))
    assert kept == {2, 3, 4, 5}


def test_transaction_under_way_survives_a_crash_whole_or_not_at_all():
    kept = set()
    for seed in range(20):
        disk, state = Disk(), MemoryState()
        write_entries(disk, state, 2, synced=2)
        disk.begin([])
        disk.crash(Crash.POWER, random.Random(seed))
        kept.add(len(disk._transactions))
    assert kept == {2, 3} or kept == {2}


class Listener:
    """Somebody at the end of a wire who writes down what arrives."""

    def __init__(self, world: SimWorld, name: str) -> None:
        self.world, self.id, self.is_up, self.heard = world, name, True, []

    def on_connected(self, wire):
        self.wire = wire
        self.heard.append("connected")

    def on_closed(self, wire):
        self.heard.append("closed")

    def on_rpc(self, wire, rpc):
        self.heard.append(rpc.hops)

    def on_stream(self, wire, stream, message):
        self.heard.append(message)


def pair(faults: LinkFaults | None = None) -> tuple[SimWorld, Listener, Listener]:
    world = SimWorld(1, LinkFaults())
    a, b = Listener(world, "a"), Listener(world, "b")
    world.link(a, b, (PeerKind.MESH, PeerKind.MESH))
    world.run(1.0)
    assert (a.heard, b.heard) == (["connected"], ["connected"])
    a.heard.clear()
    b.heard.clear()
    world.faults = faults or LinkFaults()
    return world, a, b


def test_stream_keeps_its_order_and_rpcs_overtake_each_other():
    world, a, b = pair(LinkFaults(jitter_s=0.3))
    for number in range(20):
        world.send(a.wire, a, "s", number)
    world.run(2.0)
    assert b.heard == list(range(20))
    b.heard.clear()
    for number in range(20):
        world.send_rpc(a.wire, a, Rpc(hops=number))
    world.run(3.0)
    assert sorted(b.heard) == list(range(20)) != b.heard


@pytest.mark.parametrize(("faults", "expected"), [(LinkFaults(loss=1.0), 0), (LinkFaults(duplication=1.0), 2), (LinkFaults(full=1.0), 0)])
def test_rpcs_get_lost_doubled_or_do_not_fit(faults, expected):
    world, a, b = pair(faults)
    assert world.send_rpc(a.wire, a, Rpc()) is not bool(faults.full)
    world.run(2.0)
    assert len(b.heard) == expected


def test_broken_stream_is_told_to_both_ends_and_carries_nothing_more():
    world, a, b = pair(LinkFaults(reset=1.0))
    world.send(a.wire, a, "s", 1)
    world.faults = LinkFaults()
    world.send(a.wire, a, "s", 2)
    world.run(2.0)
    assert (a.heard, b.heard) == ([None], [None])


def test_connection_that_hangs_up_is_made_anew():
    world, a, b = pair(LinkFaults(hang_up=1.0))
    world.send(a.wire, a, "s", 1)
    world.run(5.0)
    assert (a.heard, b.heard) == (["closed", "connected"], ["closed", "connected"])


def test_partition_swallows_everything_until_both_ends_give_up_and_dial_again():
    world, a, b = pair()
    world.divide({"a": 1})
    world.send(a.wire, a, "s", 1)
    world.send_rpc(a.wire, a, Rpc())
    world.run(5.0)
    assert (a.heard, b.heard) == (["closed"], ["closed"])
    world.divide({})
    world.run(8.0)
    assert (a.heard, b.heard) == (["closed", "connected"], ["closed", "connected"])


def test_short_partition_goes_unnoticed():
    world, a, b = pair()
    world.divide({"a": 1})
    world.run(2.0)
    world.divide({})
    world.run(9.0)
    assert (a.heard, b.heard) == ([], [])


def test_other_end_of_a_crash_hears_of_it_after_the_latency():
    world, a, b = pair()
    a.is_up = False
    world.drop_all(a)
    assert b.heard == []
    world.run(2.0)
    assert (a.heard, b.heard) == ([], ["closed"])


def test_only_connections_on_which_something_was_lost_are_made_anew():
    world, a, b = pair(LinkFaults(loss=1.0))
    world.redial(lambda wire: wire.has_lost)
    assert (a.heard, b.heard) == ([], [])
    world.send_rpc(a.wire, a, Rpc())
    world.redial(lambda wire: wire.has_lost)
    world.run(9.0)
    assert (a.heard, b.heard) == (["closed", "connected"], ["closed", "connected"])


def test_who_leaves_for_good_is_not_dialled_again():
    world, a, b = pair()
    world.unlink(b)
    world.run(9.0)
    assert (a.heard, b.heard) == (["closed"], ["closed"])


@pytest.mark.parametrize("make_router", [lambda rng: Gossipsub(GossipsubParams(), rng), lambda rng: Episub(EpisubParams(), rng)])
def test_router_keeps_its_limits_and_its_peers_under_spam_and_echoes(make_router):
    world, watch, validator = SimWorld(5, LinkFaults()), Invariants(), Validator()
    replicas = [
        cls(SimProcess(world, ReplicaSpec(number), make_router, 5), ReplicaSpec(number), validator, watch)
        for number, cls in enumerate((SimReplica, SimReplica, Byzantine))
    ]
    watch.run.correct.update({replica.id: replica for replica in replicas[:2]})
    replicas[2].corrupt([Vice.SPAM, Vice.ECHO], watch.run.lied.add)
    for replica in replicas:
        replica.process.start()
    for a, b in ((0, 1), (0, 2), (2, 1)):
        world.link(replicas[a].process, replicas[b].process, (PeerKind.MESH, PeerKind.MESH))
    for second in range(1, 12):
        world.run(float(second))
        replicas[second % 2].append([pcf.encode(second)])
        watch.sample()
        watch.check_limits(replicas[second % 2])
    world.run(14.0)
    assert watch.has_converged() and len(replicas[0].state.values) >= 11


def test_what_is_said_in_the_turn_that_bans_a_peer_goes_nowhere_and_is_no_failure():
    world, watch, validator = SimWorld(1, LinkFaults()), Invariants(), Validator()
    honest, evil = (
        SimReplica(
            SimProcess(world, ReplicaSpec(number), lambda rng: Episub(EpisubParams(), rng), 1), ReplicaSpec(number), validator, watch
        )
        for number in (0, 1)
    )
    watch.run.correct[honest.id] = honest
    honest.process.start()
    evil.process.start()
    world.link(evil.process, honest.process, (PeerKind.MESH, PeerKind.MESH))
    world.run(5.0)
    wire = honest.wires[evil.id]
    for number in range(30):
        honest.append([pcf.encode(number)])
        world.run(world.now + 0.02)
        if evil.id in honest.wires:
            honest.process.on_rpc(
                wire, Rpc(overlay=(TreePrune(TOPIC),))
            )  # what was appended is to be announced to it, once it is made eager
            honest.process.on_rpc(wire, Rpc((Message(MessageId(bytes([number]) * 32), TOPIC, b"\xd6b\x92"),)))
    assert evil.id not in honest.wires


@pytest.mark.parametrize("wait_s", [0.0, 0.3])
def test_log_answers_at_once_or_late_and_always(wait_s):
    world, watch = SimWorld(1, LinkFaults()), Invariants()
    replica = SimReplica(
        SimProcess(world, ReplicaSpec(0, answer_s=wait_s), lambda rng: Floodsub(FloodsubParams(), rng), 1),
        ReplicaSpec(0, answer_s=wait_s),
        Validator(),
        watch,
    )
    told = []
    replica.tell = told.append
    replica.process.start()
    for token in range(20):
        replica.act(AskLog(token, ask(ReadCount())))
    world.run(1.0)
    answered = [event.token for event in told if isinstance(event, LogAnswered)]
    assert sorted(answered) == list(range(20))
    assert (answered == list(range(20))) is (wait_s == 0.0)


def byzantine(*vices: Vice) -> Byzantine:
    world, watch = SimWorld(1, LinkFaults()), Invariants()
    evil = Byzantine(SimProcess(world, ReplicaSpec(0), lambda rng: Floodsub(FloodsubParams(), rng), 1), ReplicaSpec(0), Validator(), watch)
    evil.corrupt(vices, watch.run.lied.add)
    evil.process.start()
    return evil


def check_key(event, verdict):
    return _check_key(InsertEntry(0, event.key, event.value, "n1"), verdict)


def test_every_forgery_breaks_a_rule_and_all_kinds_of_them_do():
    evil = byzantine(Vice.FORGE)
    rules = set()
    for _ in range(100):
        event = decode_event(evil._forge())
        verdict = check_key(event, Validator().decide(event.value))
        assert not verdict.accepted
        rules.add(verdict.rule)
    assert rules == {"clock", "topic", "canonical", "portable", "key", "signature"}


def test_validator_says_what_the_log_says():
    from gossiplog.entry.validation import validate

    evil = byzantine(Vice.FORGE)
    validator = Validator()
    for _ in range(50):
        event = decode_event(evil._forge())
        ours, theirs = check_key(event, validator.decide(event.value)), validate(event.value, topic=TOPIC, key=event.key)
        assert (ours.outcome, ours.rule) == (theirs.outcome, theirs.rule)


def test_liar_is_found_out_by_an_honest_replica():
    world, watch = SimWorld(3, LinkFaults()), Invariants()
    validator = Validator()

    def make(cls, number):
        return cls(
            SimProcess(world, ReplicaSpec(number), lambda rng: Floodsub(FloodsubParams(), rng), 3), ReplicaSpec(number), validator, watch
        )

    honest, liar = make(SimReplica, 0), make(Byzantine, 1)
    watch.run.correct[honest.id] = honest
    liar.corrupt([Vice.LIE], watch.run.lied.add)
    honest.process.start()
    liar.process.start()
    for number in range(20):
        liar.append([pcf.encode(number * 20 + index) for index in range(20)])
    world.run(1.0)
    world.link(honest.process, liar.process, (PeerKind.MESH, PeerKind.MESH))
    world.run(5.0)
    assert watch.run.lied
    assert honest.machine.state().sizes["offenders"] == 1
