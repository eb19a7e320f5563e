"""The whole log under faults: one seed is one network, one history and all that goes wrong in it.

    report = run_check(7)     # raises Failure, which names the seed and the command that replays it

A seed draws the replicas (servers with a router, WebSocket clients, Byzantine ones), their links, who appends when, and the faults;
after some seconds everything is healed, and all correct replicas have to agree. `Invariants` watches all the while.

Source: docs/spec/simulator.md, "The whole log under faults".
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ...broadcast import PeerKind
from ...codec import pcf_encode
from ...pubsub import params as pubsub_params
from ...pubsub.params import CommonParams
from ...pubsub.registry import make_router
from ...sync.limits import ClientLimits
from .byzantine import Byzantine, Vice
from .disk import Crash
from .invariants import Invariants, Violation
from .log_on_disk import Validator
from .replica import Replica
from .replica_spec import ReplicaSpec
from .stranger import Stranger, append_answer
from .world import LinkFaults, World

__all__ = ["CheckReport", "Failure", "SeedOutcome", "check_seed", "run_check"]

CALM_S = 30.0
"""How long replicas that nothing happened to may take to agree after the last append, with no connection made anew."""
HEALED_S = 450.0
"""The same after faults, whose back-offs may still have to pass: up to 375 s with their jitter."""
STEP_S = 1.0
PROBES_S = 20.0
"""How long entries that are appended once all is healed and agreed may take to be everywhere: no connection is made for their sake."""
PROBES_WITHIN_S = 3.0
ANSWER_S, ENDING_S, TIMER_S = 0.3, 4.0, 0.2
"""How late a replica's log may answer it, how late it may notice that a sync is over, and its timers fire."""
SMALL_MESH: dict[str, Any] = {"D": 3, "D_lo": 2, "D_hi": 4, "D_out": 1, "D_score": 2, "prune_backoff_s": 4.0}
PROMISING = ("gossipsub", "choke", "floodsub", "episub")
"""Routers that bring every message to every peer as long as no connection loses anything; the others need a new connection for that."""
WORK = 4_000
"""Replicas times entries, about, so that large networks have short histories; one seed in ten is not bound by it."""
LARGE_BYTES = 500
"""Enough for IDONTWANT to be said of an entry."""
STRANGER_EVERY, STRANGER_SEED = 10, 6
"""One seed in so many, the sixth of them, has an access rule and a stranger; what all others draw does not depend on it."""
ANSWERS_MAX = 40
POISON_SHARE = 0.3
"""Of answers: their authors' own applications raise about them."""
VISIT_S = 6.0
"""How long after everything else a guest comes: what is made up for on new connections and after faults has been by then."""


class Failure(Exception):
    """A seed on which something does not hold.

    Attributes:
        seed: Which.
        command: Replays it.
    """

    def __init__(self, seed: int, plan: str, reason: str) -> None:
        self.seed = seed
        self.command = f"gossiplog sim check --seed {seed}"
        super().__init__(f"seed {seed} ({plan}): {reason}\nreplay: {self.command}")


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What a seed was like that passed.

    Attributes:
        seed: The seed.
        plan: What it drew, in words.
        nodes: Replicas, Byzantine ones and guests included.
        replicas: Correct ones.
        entries: Entries that all of them hold in the end.
        events: Events worked off.
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
    """What became of one seed, in a form that travels between processes.

    Attributes:
        seed: Which.
        cpu_s: CPU seconds that it took.
        report: What it was like; None when it failed.
        failure: What does not hold, and how to replay it; None when it passed.
    """

    seed: int
    cpu_s: float
    report: CheckReport | None = None
    failure: str | None = None


@dataclass(slots=True)
class _Plan:
    """What a seed draws before anything happens."""

    servers: int
    clients: int
    byzantine: int
    entries: int
    active_s: float
    router: str
    has_crashes: bool
    has_partitions: bool
    has_skew: bool
    has_guest: bool
    has_stranger: bool
    faults: LinkFaults
    has_link_faults: bool
    notes: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        names = [
            f"{self.servers} servers with {self.router}",
            f"{self.clients} clients" if self.clients else "",
            f"{self.byzantine} Byzantine" if self.byzantine else "",
            f"{self.entries} entries",
            "crashes" if self.has_crashes else "",
            "partitions" if self.has_partitions else "",
            "skewed clocks" if self.has_skew else "",
            "a guest" if self.has_guest else "",
            "a stranger" if self.has_stranger else "",
            "bad links" if self.has_link_faults else "",
            *self.notes,
        ]
        return ", ".join(name for name in names if name)


def run_check(seed: int) -> CheckReport:
    """Run one seed to its end.

    Raises:
        Failure: An invariant does not hold, or something raised.
    """
    run = _Run(seed)
    try:
        return run.work()
    except Violation as violation:
        raise Failure(seed, str(run.plan), str(violation)) from violation
    except Exception as error:
        # Whatever a bug raises is a finding about this seed; the cause has its traceback.
        raise Failure(seed, str(run.plan), f"{type(error).__name__}: {error}") from error


def check_seed(seed: int) -> SeedOutcome:
    """Run one seed and say what became of it; raises nothing."""
    started_s = time.process_time()
    try:
        report = run_check(seed)
    except Failure as failure:
        return SeedOutcome(seed, time.process_time() - started_s, failure=str(failure))
    return SeedOutcome(seed, time.process_time() - started_s, report)


def _draw_plan(rng: random.Random, *, has_stranger: bool) -> _Plan:
    total = 3 + int(18 * rng.random() ** 2)
    is_calm = rng.random() < 0.15
    byzantine = rng.randint(1, max(1, (total - 1) // 3)) if not is_calm and rng.random() < 0.45 else 0
    correct = max(2, total - byzantine)
    clients = rng.randint(1, correct - 1) if rng.random() < 0.35 else 0
    entries = rng.randint(200, 1_000)
    if rng.random() < 0.9:
        entries = min(entries, max(200, WORK // total))
    has_link_faults = not is_calm and rng.random() < 0.5
    faults = LinkFaults()
    if has_link_faults:
        shares = [share * rng.random() * rng.randrange(2) for share in (0.3, 0.2, 0.3, 0.05, 0.02, 0.005, 0.5, 0.5)]
        faults = LinkFaults(*shares)
    return _Plan(
        servers=correct - clients,
        clients=clients,
        byzantine=byzantine,
        entries=entries,
        active_s=6.0 + 10.0 * rng.random(),
        router=rng.choices(("gossipsub", "floodsub", "meshsub", "randomsub", "choke", "episub"), (6, 1, 1, 1, 1, 4))[0],
        has_crashes=not is_calm and rng.random() < 0.45,
        has_partitions=not is_calm and rng.random() < 0.4,
        has_skew=rng.random() < 0.4,
        has_guest=not is_calm and rng.random() < 0.2,
        has_stranger=has_stranger,
        faults=faults,
        has_link_faults=has_link_faults,
        notes=["calm"] if is_calm else [],
    )


def _draw_params(name: str, rng: random.Random) -> CommonParams:
    """Parameters of a router; half of the meshes are so small that they are pruned in networks of this size, and gossip matters."""
    score = pubsub_params.ScoreParams() if rng.random() < 0.5 else None
    mesh: dict[str, Any] = SMALL_MESH if rng.random() < 0.5 else {}
    params: dict[str, CommonParams] = {
        "gossipsub": pubsub_params.GossipsubParams(score=score, **mesh),
        "floodsub": pubsub_params.FloodsubParams(),
        "meshsub": pubsub_params.MeshsubParams(**mesh),
        "randomsub": pubsub_params.RandomsubParams(),
        "choke": pubsub_params.ChokeParams(choke_threshold=2, choke_ticks=3, **mesh),
        "episub": pubsub_params.EpisubParams(),
    }
    return params[name]


class _Run:
    """One seed under way."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(f"check {seed}")
        self.plan = plan = _draw_plan(rng, has_stranger=seed % STRANGER_EVERY == STRANGER_SEED)
        self.watch = Invariants()
        self.seed = seed
        self.world = World(seed, LinkFaults())
        validator = Validator()
        params = _draw_params(plan.router, rng)
        if isinstance(params, pubsub_params.MeshsubParams):
            self.watch.routers.mesh = params
        new_router = partial(make_router, plan.router, params)
        self.byzantine: list[Byzantine] = []
        self.replicas: list[Replica] = []
        self.guests: list[Replica] = []
        self.strangers: list[Stranger] = []
        correct, total = plan.servers + plan.clients, plan.servers + plan.clients + plan.byzantine
        for number in range(total + plan.has_guest):
            spec = self._spec(number)
            if number < correct:
                replica = Replica(self.world, spec, new_router, validator, self.watch, seed)
                self.replicas.append(replica)
                self.watch.correct[replica.id] = replica
            elif number < total:
                evil = Byzantine(self.world, spec, new_router, validator, self.watch, seed)
                vices = rng.sample(list(Vice), rng.randint(1, 3))
                evil.corrupt(vices, self.watch.lied.add)
                plan.notes.append("+".join(vice.value for vice in vices))
                self.byzantine.append(evil)
            else:
                self.guests.append(Replica(self.world, spec, new_router, validator, self.watch, seed))
        if plan.has_stranger:
            stranger = Stranger(self.world, ReplicaSpec(total + plan.has_guest), new_router, validator, self.watch, seed)
            stranger.until_s = plan.active_s
            self.strangers.append(stranger)
            self.watch.strangers.add(stranger.id)

    def _spec(self, number: int) -> ReplicaSpec:
        rng = self.rng
        rate, offset_s = (1.0 + 0.01 * (2 * rng.random() - 1), 1_000.0 * rng.random()) if self.plan.has_skew else (1.0, 0.0)
        limits = ClientLimits()
        if rng.random() < 0.3:  # it pulls in small steps, so that whatever goes wrong finds it half way
            limits = ClientLimits(values_in_flight=rng.randint(1, 3), probes_in_flight=1, batch_entries=rng.choice((10, 50)))
        commit_s = 0.001 + 0.014 * rng.random() if rng.random() < 0.85 else 0.05 + 0.35 * rng.random()
        answer_s, ending_s, timer_s = [most_s * rng.random() * (rng.random() < 0.4) for most_s in (ANSWER_S, ENDING_S, TIMER_S)]
        is_durable, has_rule = rng.random() < 0.7, self.plan.has_stranger
        return ReplicaSpec(number, is_durable, commit_s, rate, offset_s, limits, answer_s, ending_s, timer_s, has_rule)

    def work(self) -> CheckReport:
        """Let everything happen."""
        plan, world = self.plan, self.world
        for replica in (*self.replicas, *self.byzantine, *self.strangers):
            replica.start()
        self._link()
        self._plan_appends()
        self._plan_answers()
        self._plan_faults()
        while world.now < plan.active_s:
            self._step()
        self._heal()
        for guest in self.guests:
            self._invite(guest)
        limit_s = world.now + (CALM_S if "calm" in plan.notes else HEALED_S)
        while not self._is_over() and world.now < limit_s:
            self._step()
        self.watch.check_end()
        self._probe()
        entries = len(self.replicas[0].state.values)
        nodes = len(self.replicas) + len(self.byzantine) + len(self.guests)
        return CheckReport(self.seed, str(plan), nodes, len(self.replicas), entries, world.events, world.now)

    def _probe(self) -> None:
        """Append once more, now that all is well: what the network has been through must not keep anything from anybody.

        Routers that promise nothing are let off.
        """
        if self.plan.router not in PROMISING:
            return
        rng, world = self.rng, self.world
        for number in range(rng.randint(1, 4)):
            payload = pcf_encode.encode({"probe": number})
            world.after(PROBES_WITHIN_S * rng.random(), self._append, rng.choice(self.replicas), [payload])
        limit_s = world.now + PROBES_S
        self._run_for(PROBES_WITHIN_S)
        while not self._is_over() and world.now < limit_s:
            self._step()
        self.watch.check_end()

    def _run_for(self, seconds: float) -> None:
        until_s = self.world.now + seconds
        while self.world.now < until_s:
            self._step()

    def _step(self) -> None:
        self.world.run(self.world.now + STEP_S)
        self.watch.sample()
        replica = self.rng.choice(self.replicas)
        if replica.is_up:
            self.watch.check_limits(replica)

    def _is_over(self) -> bool:
        is_quiet = all(replica.log.is_idle for replica in self.replicas) and not any(guest.is_up for guest in self.guests)
        return is_quiet and self.watch.has_converged()

    # The network

    def _link(self) -> None:
        """Servers form a connected graph, correct ones alone too; clients hang on one or two correct servers."""
        rng, plan, world = self.rng, self.plan, self.world
        servers, clients = self.replicas[: plan.servers], self.replicas[plan.servers :]
        mesh = (PeerKind.MESH, PeerKind.MESH)
        spoke = (PeerKind.HUB, PeerKind.CLIENT)
        known: set[frozenset[Any]] = set()

        def link(a: Replica, b: Replica, kinds: tuple[PeerKind, PeerKind]) -> None:
            if a is not b and frozenset((a.id, b.id)) not in known:
                known.add(frozenset((a.id, b.id)))
                world.link(a, b, kinds)

        is_line = rng.random() < 0.2
        for index in range(1, len(servers)):
            link(servers[index], servers[index - 1 if is_line else rng.randrange(index)], mesh)
        if not is_line:
            for _ in range(rng.randint(0, 3 * len(servers))):
                link(rng.choice(servers), rng.choice(servers), mesh)
        for client in clients:
            for hub in rng.sample(servers, min(len(servers), 1 + (rng.random() < 0.2))):
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
            payloads = [pcf_encode.encode({"n": number + index, "padding": padding}) for index in range(count)]
            self.world.at(0.5 + (plan.active_s - 0.5) * rng.random(), self._append, rng.choice(writers), payloads)
            number += count

    def _plan_answers(self) -> None:
        """Have correct replicas write what the access rule has to look at, some of it such that their own applications raise."""
        for stranger in self.strangers:
            rng, until_s = random.Random(f"answers {self.seed}"), stranger.until_s
            for server in rng.sample(self.replicas[: self.plan.servers], min(self.plan.servers, rng.randint(1, 3))):
                self.world.link(stranger, server, (PeerKind.MESH, PeerKind.MESH))
            for _ in range(rng.randint(10, ANSWERS_MAX)):
                answer = partial(append_answer, rng.choice(self.replicas), rng, is_poison=rng.random() < POISON_SHARE)
                self.world.at(0.5 + (until_s - 0.5) * rng.random(), answer)

    def _append(self, writer: Replica, payloads: list[bytes]) -> None:
        if writer.is_up:
            writer.append(payloads)

    # What goes wrong

    def _plan_faults(self) -> None:
        rng, plan, world = self.rng, self.plan, self.world
        if plan.has_link_faults:
            world.at(1.0 + rng.random(), self._spoil_links)
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

    def _spoil_links(self) -> None:
        self.world.faults = self.plan.faults

    def _crash(self, replica: Replica, kind: Crash, downtime_s: float) -> None:
        if replica.is_up:
            replica.crash(kind, self.rng)
            self.world.after(downtime_s, self._restart, replica)

    def _restart(self, replica: Replica) -> None:
        if not replica.is_up:
            replica.start()

    def _invite(self, guest: Replica) -> None:
        """Let somebody with a history of its own come by and leave for good, most likely while it is being pulled from."""
        rng, world = self.rng, self.world
        guest.start()
        for index in range(rng.randint(5, 20)):
            guest.append([pcf_encode.encode({"guest": index * 10 + number}) for number in range(10)])
        host = rng.choice(self.replicas[: self.plan.servers])
        kinds = (PeerKind.MESH, PeerKind.MESH) if rng.random() < 0.5 else (PeerKind.HUB, PeerKind.CLIENT)
        world.after(VISIT_S, world.link, guest, host, kinds)
        world.after(VISIT_S + 0.2 + 1.2 * rng.random(), guest.leave)

    def _heal(self) -> None:
        """Take all faults away. Connections on which something got lost without a word are made anew, as time-outs would.

        So are all those of routers that promise nothing to peers who were not in the mesh, or not drawn. No others: what a replica
        misses has to reach it on the connections that it has.
        """
        world = self.world
        world.faults = LinkFaults()
        world.divide({})
        for evil in self.byzantine:
            evil.leave()
        for replica in self.replicas:
            self._restart(replica)
        if self.plan.router in PROMISING:
            world.redial_lossy()
        else:
            world.redial_all()
