"""The whole log under faults: one seed is one network, one history and its faults.

    report = run_check(7)     # raises SeedFailure, which names the seed and the command that replays it

A seed determines the replicas (servers with a router, WebSocket clients, Byzantine ones), their links, the appends, and the faults. After
some seconds all faults end, and then all correct replicas have to agree. `Invariants` watches throughout.

Source: docs/spec/simulator.md, "The whole log under faults".
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from ...broadcast.events import PeerKind
from ...broadcast.pushes import TELL_AGAIN_S
from ...codec import pcf
from ...pubsub import params as pubsub_params
from ...pubsub.registry import make_router
from ...testing.membership import found
from .byzantine import Byzantine, Stranger, Vice, append_answer
from .cheating import random_said
from .disk import Crash, Trouble
from .invariants import Invariants
from .log_on_disk import Validator
from .observer import Violation
from .plan import TOPIC, ReplicaSpec, draw_params, draw_plan, draw_spec
from .replica import SimProcess, SimReplica, signer_of
from .rooms import APART_S, FAN_OUT_SHARE, IN_A_ROW, ROOMS_FIRST, ROOMS_ONE_IN, Rooms
from .world import LinkFaults, SimWorld

R = TypeVar("R", bound=SimReplica)

CALM_S = 30.0
"""Without faults, replicas must agree within this time after the last append, without a new connection."""
HEALED_S = 450.0
"""After faults they must agree within this time: back-offs may have to pass first, up to 375 s with their jitter."""
CUTS_HEALED_MAX = 0.7
"""The largest share of syncs that a server cuts short from then on: a slow client whose every session is cut gets nothing in that time."""
STEP_S = 1.0
PROBES_S = 20.0
"""Entries appended after healing and agreement must be everywhere within this time, without a new connection."""
QUOTA_PROBES_S = 150.0
"""The same time with quotas: a writer may be over its quota, and a client that hides that its sync was cut short is told after a minute."""
PROBES_WITHIN_S = 3.0
PROMISING = ("gossipsub", "choke", "floodsub", "episub")
"""Routers that bring every message to every peer as long as no connection loses anything. Others need a new connection for that."""
GRAFTING = ("gossipsub", "choke")
"""Those of these routers that have a gap: a peer that joins the mesh between two heartbeats gets no message of the time since the first
heartbeat. It was not yet in the mesh to be sent it, and at the second heartbeat it is in the mesh and gets no announcement. A peer that
unchokes us has the same gap. Live nodes tell heads again after `TELL_AGAIN_S`; here such a connection is closed then, and opened again.
"""
HEARTBEAT_S = 1.0
GRAFTED_S = 3.0
"""This long after healing, links are closed for the first time."""
LARGE_BYTES = 500
"""An entry of this size is large enough for IDONTWANT."""
DRAWN: list[Vice] = [vice for vice in Vice if vice is not Vice.FICKLE]
"""The vices drawn for every seed; `FICKLE` is only for long histories."""
ANSWERS_MAX = 40
TROUBLE_S, LATE_S = 4.0, 2.0
"""The longest time that a disk is in trouble, and its largest delay."""
BURST_MAX = 12
"""The most appends during that time. Several come at once, so they share commits, and some commits fail because of one append."""
ELSEWHERE_MAX = 8
MEMBERS_MAX = 12
"""The most changes of members, 3 at least."""
FOUNDERS_SHARE = 0.5
"""The share of logs with members that have three founders, of whom two remove a member together."""
LEAVING_SHARE = 0.1
"""The share of these changes in which a member leaves."""
POISON_SHARE = 0.3
"""The share of answers on which their authors' own applications raise."""
LATE_CLIENTS = 0.5
"""The share of clients of hubs with quotas that first connect in the second half of the history."""
VISIT_S = 6.0
"""A guest comes this long after healing. By then, everything missed because of faults has been made up for."""
SPREADING_S = 5.0
SPREADING = LinkFaults(hang_up=0.04, cut_short=0.5)
"""While a guest's entries spread, syncs break for this long and with these faults, so that postponed syncs have to replace them."""


class SeedFailure(Exception):
    """A seed on which an invariant does not hold."""

    def __init__(self, seed: int, plan: str, reason: str) -> None:
        self.seed = seed
        self.command = f"gossiplog sim check --seed {seed}"
        super().__init__(f"seed {seed} ({plan}): {reason}\nreplay: {self.command}")


@dataclass(frozen=True, slots=True)
class CheckReport:
    """A description of a seed that passed.

    Attributes:
        nodes: The number of replicas, including Byzantine ones and guests.
        entries: The number of entries that each of them holds in the end.
        until_s: Virtual seconds until they agreed.
    """

    seed: int
    plan: str
    nodes: int
    replicas: int
    entries: int
    events: int
    until_s: float

    def __str__(self) -> str:
        summary = f"seed {self.seed}: {self.plan}: {self.entries} entries on {self.replicas} replicas after {self.until_s:g} s"
        return f"{summary}, {self.events} events"


@dataclass(frozen=True, slots=True)
class SeedOutcome:
    """The outcome of one seed, in a form that can be sent between processes.

    Attributes:
        failure: The invariant that does not hold, and how to replay the run; None if it passed.
    """

    seed: int
    cpu_s: float
    report: CheckReport | None = None
    failure: str | None = None


def run_check(seed: int) -> CheckReport:
    """Run one seed to its end.

    Raises:
        SeedFailure: An invariant does not hold, or something raised.
    """
    run: _Run | None = None
    try:
        run = _Run(seed)
        return run.work()
    except Exception as error:
        # Any exception is a finding about this seed; the cause has its traceback.
        plan = "not drawn" if run is None else str(run.plan)
        reason = str(error) if isinstance(error, Violation) else f"{type(error).__name__}: {error}"
        raise SeedFailure(seed, plan, reason) from error


def check_seed(seed: int) -> SeedOutcome:
    """Run one seed and return its outcome; never raises."""
    started_s = time.process_time()
    try:
        report = run_check(seed)
    except SeedFailure as failure:
        return SeedOutcome(seed, time.process_time() - started_s, failure=str(failure))
    return SeedOutcome(seed, time.process_time() - started_s, report)


class _Run:
    """The run of one seed."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(f"check {seed}")
        self.plan = plan = draw_plan(seed, rng)
        self.watch = Invariants()
        self.seed = seed
        self.world = SimWorld(seed, LinkFaults())
        correct, total = plan.servers + plan.clients, plan.servers + plan.clients + plan.byzantine
        signers = tuple(signer_of(seed, number) for number in range(total + plan.has_guest))
        # Correct founders are the first replicas; where there are three, the last of them is Byzantine.
        self.founders = (0, 1, correct) if random.Random(f"founders {seed}").random() < FOUNDERS_SHARE else (0,)
        founding = tuple(found(TOPIC, signers, "admin", self.founders)) if plan.has_members else ()
        self.watch.run.genuine.update({entry.key: entry.value for entry in founding})
        topic = founding[0].topic if founding else TOPIC
        validator = Validator(topic)
        params = draw_params(plan, rng)
        if isinstance(params, pubsub_params.MeshsubParams):
            self.watch.run.mesh = params
        self._rooms_rng = random.Random(f"rooms {seed}")
        self.rooms: Rooms | None = None
        has_rooms = plan.servers > 1 and seed % ROOMS_ONE_IN == ROOMS_FIRST
        if has_rooms and isinstance(params, pubsub_params.GossipsubParams) and self._rooms_rng.random() < FAN_OUT_SHARE:
            params = replace(params, flood_publish=False)
        self._params, self._has_rooms = params, has_rooms
        new_router = partial(make_router, plan.router, params)

        def make(kind: type[R], spec: ReplicaSpec) -> R:
            return kind(SimProcess(self.world, spec, new_router, seed), spec, validator, self.watch)

        self.byzantine: list[Byzantine] = []
        self.replicas: list[SimReplica] = []
        self.guests: list[SimReplica] = []
        self.strangers: list[Stranger] = []
        for number in range(total + plan.has_guest):
            spec = replace(draw_spec(plan, number, rng), founding=founding, topic=topic)
            if number < correct:
                replica = make(SimReplica, spec)
                self.replicas.append(replica)
                self.watch.run.correct[replica.id] = replica
            elif number < total:
                evil = make(Byzantine, spec)
                vices = rng.sample(DRAWN, rng.randint(1, 3))
                if plan.is_long and not self.byzantine:
                    vices = [Vice.REPLAY, Vice.FICKLE]
                evil.corrupt(vices, self.watch.run.lied.add)
                plan.notes.append("+".join(vice.value for vice in vices))
                self.byzantine.append(evil)
            else:
                self.guests.append(make(SimReplica, spec))
        if plan.has_stranger:
            stranger = make(Stranger, ReplicaSpec(total + plan.has_guest))
            stranger.until_s = plan.active_s
            self.strangers.append(stranger)
            self.watch.run.strangers.add(stranger.id)

        plan.notes.extend(["rooms"] * has_rooms)

    def work(self) -> CheckReport:
        """Run the seed to its end."""
        plan, world = self.plan, self.world
        for replica in (*self.replicas, *self.byzantine, *self.strangers):
            replica.process.start()
        self._link()
        if self._has_rooms:
            self.rooms = Rooms(self.replicas[: plan.servers], self._params, self._rooms_rng)
            self.rooms.plan(plan.active_s)
        self._plan_appends()
        self._plan_answers()
        self._plan_faults()
        self._plan_trouble()
        self._plan_other_processes()
        self._plan_members()
        self._plan_wrong_sketches()
        while world.now < plan.active_s:
            self._step()
        self._heal()
        for guest in self.guests:
            self._invite(guest)
        self._await_end(CALM_S if "calm" in plan.notes else HEALED_S)
        if plan.router in PROMISING:
            self._probe()
        entries = len(self.replicas[0].state.values)
        nodes = len(self.replicas) + len(self.byzantine) + len(self.guests)
        return CheckReport(self.seed, str(plan), nodes, len(self.replicas), entries, world.events, world.now)

    def _probe(self) -> None:
        """Append once more now that all is well: past faults must not keep any entry from any replica."""
        rng, world = self.rng, self.world
        for number in range(rng.randint(1, 4)):
            payload = pcf.encode({"probe": number})
            world.after(PROBES_WITHIN_S * rng.random(), self._append, rng.choice(self.replicas), [payload])
        probing_s = PROBES_WITHIN_S
        if self.rooms is not None:
            self.rooms.probe()
            probing_s += IN_A_ROW * APART_S
        self._await_end(QUOTA_PROBES_S if self.plan.has_quotas else PROBES_S, at_least_s=probing_s)

    def _await_end(self, limit_s: float, at_least_s: float = 0.0) -> None:
        """Run until all agree, or at most so many seconds, and check the invariants of the end."""
        started_s = self.world.now
        while (lasted_s := self.world.now - started_s) < at_least_s or (lasted_s < limit_s and not self._is_over()):
            self._step()
        self.watch.check_end()
        if self.rooms is not None:
            self.rooms.check_end()

    def _redial_grafted(self, since_s: float) -> None:
        """Close older connections that carried a GRAFT or an UNCHOKE since a given time; again every `TELL_AGAIN_S`."""
        self.world.redial(lambda wire: wire.opened_at < since_s < wire.grafted_at)
        self.world.after(TELL_AGAIN_S, self._redial_grafted, self.world.now)

    def _step(self) -> None:
        self.world.run(self.world.now + STEP_S)
        self.watch.sample()
        replica = self.rng.choice(self.replicas)
        if replica.is_up:
            self.watch.check_limits(replica)
        if self.rooms is not None:
            self.rooms.sample()

    def _is_over(self) -> bool:
        is_quiet = all(replica.log.is_idle for replica in self.replicas) and not any(guest.is_up for guest in self.guests)
        return is_quiet and self.watch.has_converged() and (self.rooms is None or self.rooms.is_over())

    # The network

    def _link(self) -> None:
        """Link the servers to a connected graph, which stays connected without faulty ones. Clients have one or two correct servers."""
        rng, plan, world = self.rng, self.plan, self.world
        servers, clients = self.replicas[: plan.servers], self.replicas[plan.servers :]
        mesh = (PeerKind.MESH, PeerKind.MESH)
        spoke = (PeerKind.HUB, PeerKind.CLIENT)
        known: set[frozenset[Any]] = set()

        def link(a: SimReplica, b: SimReplica, kinds: tuple[PeerKind, PeerKind]) -> None:
            if a is not b and frozenset((a.id, b.id)) not in known:
                known.add(frozenset((a.id, b.id)))
                world.link(a.process, b.process, kinds)

        is_line = rng.random() < 0.2
        for index in range(1, len(servers)):
            link(servers[index], servers[index - 1 if is_line else rng.randrange(index)], mesh)
        if not is_line:
            for _ in range(rng.randint(0, 3 * len(servers))):
                link(rng.choice(servers), rng.choice(servers), mesh)
        for client in clients:
            for hub in rng.sample(servers, min(len(servers), 1 + (rng.random() < 0.2))):
                if plan.has_quotas and (late := random.Random(f"late {self.seed} {client.id}")).random() < LATE_CLIENTS:
                    # By then the client and its hub have much to exchange.
                    world.at(plan.active_s * (0.5 + 0.5 * late.random()), world.link, client.process, hub.process, spoke)
                else:
                    link(client, hub, spoke)
        for evil in self.byzantine:
            for server in rng.sample(servers, min(len(servers), rng.randint(1, 5))):
                if rng.random() < 0.15:
                    link(evil, server, spoke)
                elif rng.random() < 0.5:
                    link(evil, server, mesh)
                else:
                    link(server, evil, mesh)

    def _plan_appends(self) -> None:
        rng, plan = self.rng, self.plan
        writers = rng.sample(self.replicas, rng.randint(1, len(self.replicas)))
        number = 0
        while number < plan.entries:
            count = 1 if rng.random() < 0.8 else min(rng.randint(2, 12), plan.entries - number)
            padding = "x" * (LARGE_BYTES if rng.random() < 0.1 else 0)
            payloads = [pcf.encode({"n": number + index, "padding": padding}) for index in range(count)]
            self.world.at(0.5 + (plan.active_s - 0.5) * rng.random(), self._append, rng.choice(writers), payloads)
            number += count

    def _plan_answers(self) -> None:
        """Have correct replicas write entries that the access rule has to judge. On some of them, the authors' own applications raise."""
        for stranger in self.strangers:
            rng, until_s = random.Random(f"answers {self.seed}"), stranger.until_s
            for server in rng.sample(self.replicas[: self.plan.servers], min(self.plan.servers, rng.randint(1, 3))):
                self.world.link(stranger.process, server.process, (PeerKind.MESH, PeerKind.MESH))
            for _ in range(rng.randint(10, ANSWERS_MAX)):
                answer = partial(append_answer, rng.choice(self.replicas), rng, is_poison=rng.random() < POISON_SHARE)
                self.world.at(0.5 + (until_s - 0.5) * rng.random(), answer)

    def _append(self, writer: SimReplica, payloads: list[bytes]) -> None:
        if writer.is_up:
            writer.append(payloads)

    # What goes wrong

    def _plan_faults(self) -> None:
        rng, plan, world = self.rng, self.plan, self.world
        if plan.has_link_faults:
            world.at(1.0 + rng.random(), self._spoil_links, plan.faults)
        if plan.has_crashes:
            for _ in range(rng.randint(2, 6)):
                kind = rng.choice(list(Crash))
                at_s = 1.0 + (plan.active_s - 1.0) * rng.random()
                world.at(at_s, self._crash, rng.choice(self.replicas), kind, 0.3 + 3.0 * rng.random())
        if plan.has_partitions:
            for _ in range(rng.randint(1, 2)):
                sides = {replica.id: rng.randrange(2) for replica in (*self.replicas, *self.byzantine)}
                at_s = 1.0 + (plan.active_s - 1.0) * rng.random()
                world.at(at_s, world.divide, sides)
                world.at(at_s + 1.0 + 6.0 * rng.random(), world.divide, {})

    def _plan_trouble(self) -> None:
        """Have some disks fail for a while: refuse transactions or entries, be full, break connections, or be late."""
        if not self.plan.has_disk_trouble:
            return
        rng, world = random.Random(f"trouble {self.seed}"), self.world
        for replica in rng.sample(self.replicas, rng.randint(1, max(1, len(self.replicas) // 2))):
            for _ in range(rng.randint(1, 4)):
                late_s = rng.choice((0.0, LATE_S / 10, LATE_S))
                trouble = rng.choice(
                    (
                        Trouble(0.1, late_s),
                        Trouble(0.5, late_s),
                        Trouble(1.0, late_s),
                        Trouble(0.0, late_s, 0.8),
                        Trouble(0.1, late_s, 0.3, 5),
                    )
                )
                at_s = 1.0 + (self.plan.active_s - 1.0) * rng.random()
                until_s = at_s + TROUBLE_S * rng.random()
                world.at(at_s, replica.disk.suffer, trouble)
                world.at(until_s, replica.disk.suffer, Trouble())
                for number in range(rng.randint(0, BURST_MAX)):
                    payload = {"poison" if rng.random() < POISON_SHARE else "burst": number}
                    world.at(at_s + (until_s - at_s) * rng.choice((0.0, 0.1, 0.5)), self._append, replica, [pcf.encode(payload)])

    def _plan_other_processes(self) -> None:
        """Have other processes append to the logs of some replicas without running their applications."""
        if not self.plan.is_shared:
            return
        rng = random.Random(f"elsewhere {self.seed}")
        for replica in rng.sample(self.replicas, rng.randint(1, len(self.replicas))):
            for _ in range(rng.randint(1, ELSEWHERE_MAX)):
                payloads = [pcf.encode({"elsewhere": rng.random()}) for _ in range(rng.randint(1, 3))]
                self.world.at(0.5 + (self.plan.active_s - 0.5) * rng.random(), replica.append_elsewhere, payloads)

    def _plan_members(self) -> None:
        """Have founders remove members, honest ones too, and let them in again; some leave."""
        rng, plan = random.Random(f"members {self.seed}"), self.plan
        dids = [replica.signer.did for replica in (*self.byzantine, *self.replicas[1:])]
        for _ in range(rng.randint(3, MEMBERS_MAX) if plan.has_members else 0):
            # At least half of the changes are about Byzantine members.
            among = dids if rng.random() < 0.5 else dids[: plan.byzantine]
            self.world.at(1.0 + (plan.active_s - 1.0) * rng.random(), self._say_of_members, rng, among)

    def _say_of_members(self, rng: random.Random, dids: Sequence[str]) -> None:
        leaves = rng.random() < LEAVING_SHARE
        says = rng.choice(self.replicas[1:] if leaves else self.replicas[: max(1, len(self.founders) - 1)])
        if says.is_up and says.log.membership is not None:
            did = says.signer.did
            says.append([random_said(rng, says.state, did, [did] if leaves else [each for each in dids if each != did])])

    def _plan_wrong_sketches(self) -> None:
        """Have the sketches of some replicas name an entry that their logs do not have."""
        if not self.plan.has_reconciliation:
            return
        rng = random.Random(f"sketches {self.seed}")
        for replica in rng.sample(self.replicas, rng.randint(0, max(1, len(self.replicas) // 3))):
            self.world.at(0.5 + (self.plan.active_s - 0.5) * rng.random(), self._spoil_sketch, replica)

    @staticmethod
    def _spoil_sketch(replica: SimReplica) -> None:
        if replica.is_up:
            replica.syncs.spoil()

    def _spoil_links(self, faults: LinkFaults) -> None:
        self.world.faults = faults

    def _crash(self, replica: SimReplica, kind: Crash, downtime_s: float) -> None:
        if replica.is_up:
            replica.process.crash(kind, self.rng)
            self.world.after(downtime_s, self._restart, replica)

    def _restart(self, replica: SimReplica) -> None:
        if not replica.is_up:
            replica.process.start()

    def _invite(self, guest: SimReplica) -> None:
        """Let a replica with a history of its own join briefly. It leaves for good, most likely while others pull from it."""
        rng, world = self.rng, self.world
        guest.process.start()
        for index in range(rng.randint(5, 20)):
            guest.append([pcf.encode({"guest": index * 10 + number}) for number in range(10)])
        host = rng.choice(self.replicas[: self.plan.servers])
        kinds = (PeerKind.MESH, PeerKind.MESH) if rng.random() < 0.5 else (PeerKind.HUB, PeerKind.CLIENT)
        world.after(VISIT_S, world.link, guest.process, host.process, kinds)
        world.after(VISIT_S + 0.2 + 1.2 * rng.random(), guest.process.leave)
        if random.Random(f"spreading {self.seed}").random() < 0.7:
            world.after(VISIT_S, self._spoil_links, SPREADING)
            world.after(VISIT_S + SPREADING_S, self._spoil_links, LinkFaults())

    def _heal(self) -> None:
        """End all faults. Connections that silently lost something are closed and opened again, as time-outs would do.

        The same happens to all connections if the router promises nothing to peers outside the mesh or not drawn. All other
        connections stay: missing entries have to reach a replica on the connections that it has.
        """
        world = self.world
        world.faults = LinkFaults()
        world.divide({})
        for replica in self.replicas:
            replica.disk.suffer(Trouble())
        for evil in self.byzantine:
            evil.process.leave()
        for replica in self.replicas:
            replica.spec = replace(replica.spec, cuts=min(replica.spec.cuts, CUTS_HEALED_MAX))
            self._restart(replica)
        if self.rooms is not None:
            self.rooms.heal()
        if self.plan.router in PROMISING:
            world.redial(lambda wire: wire.has_lost or wire.has_dropped)
            if self.plan.router in GRAFTING:
                world.after(GRAFTED_S, self._redial_grafted, self.plan.active_s - HEARTBEAT_S)
        else:
            world.redial(lambda _: True)
