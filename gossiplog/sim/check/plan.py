"""The plan of a seed, drawn before the run: how many replicas, of what kind, and their faults."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import Any

from ...broadcast.allowance import Quota
from ...entry.message import Entry
from ...pubsub import params as pubsub_params
from ...pubsub.params import CommonParams
from ...sync.limits import ClientLimits
from .world import LinkFaults

TOPIC = "check.example.com"


@dataclass(frozen=True, slots=True)
class ReplicaSpec:
    """The properties of one replica.

    Attributes:
        number: Its number; `n<number>` is its peer id.
        is_durable: Commits are synced before they are acknowledged; otherwise once a second.
        rate: Speed of its clock; 1.0 is exact.
        offset_s: Reading of its clock at virtual time 0.
        answer_s: The longest delay of its log's answers. An answer is from the state before or after the delay.
        ending_s: The longest delay until it notices the end of a sync.
        timer_s: The longest delay of its timers.
        reconciles: It speaks the protocol of reconciliation, and tries it first.
        is_shared: Another process writes to its log as well.
        quota: The quota of its clients; None for a replica without quotas.
        cuts: The share of merkle syncs that it ends early as the server, as servers do when others wait.
        resumes: It resumes a sync that was cut short by itself; otherwise only when it is told heads again.
        hangs_up: It closes its side of a sync that was cut short.
        founding: The first entries of a log with members; empty in a log without.
    """

    number: int
    is_durable: bool = True
    commit_s: float = 0.004
    rate: float = 1.0
    offset_s: float = 0.0
    limits: ClientLimits = field(default_factory=ClientLimits)
    answer_s: float = 0.0
    ending_s: float = 0.0
    timer_s: float = 0.0
    has_rule: bool = False
    reconciles: bool = False
    is_shared: bool = False
    quota: Quota | None = None
    cuts: float = 0.0
    resumes: bool = True
    hangs_up: bool = True
    founding: tuple[Entry, ...] = ()
    topic: str = TOPIC


ANSWER_S, ENDING_S, TIMER_S = 0.3, 4.0, 0.2
"""The largest delays: of a log's answers, of noticing the end of a sync, and of timers."""
SMALL_MESH: dict[str, Any] = {"D": 3, "D_lo": 2, "D_hi": 4, "D_out": 1, "D_score": 2, "prune_backoff_s": 4.0}
LARGE_MESH: dict[str, Any] = {"D": 20, "D_lo": 20, "D_hi": 24, "prune_backoff_s": 4.0}
WORK = 4_000
"""The usual product of replicas and entries, so that large networks have short histories. One seed in ten exceeds it."""
KINDS, STRANGER_SEED, RECONCILE_SEED, LONG_SEED, SHARED_SEED, TROUBLE_SEED, QUOTA_SEED = 10, 6, 2, 3, 7, 8, 5
"""The last digit of a seed chooses a theme. 6: an access rule and a stranger. 2: replicas reconcile. 3: a long history with repeated old
messages and full queues. 7: other processes write to logs. 8: disks refuse transactions, fill up, or are late. 5: hubs have quotas for
their clients and cut syncs short.
"""
MEMBERS_EVERY, MEMBERS_SEED = 50, 44
"""One seed in fifty, which has no other theme, has a log with members, some of whom cheat: 44, 94, 144, …"""
FULL = 0.3
"""The largest share of RPCs and pushes that find a full queue in a long history."""
LONG_S = 40.0
"""The least duration of a long history, longer than anything is kept for heartbeats."""


QUOTA_ENTRY_BYTES = 400
"""The bytes in a quota for each entry in it; one entry in ten has more."""
QUOTA_ENOUGH = 100_000
"""A total that no writer reaches: entries over a total are refused for good, so logs would not become equal."""


@dataclass(slots=True)
class SeedPlan:
    """The choices of a seed that are drawn before the run."""

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
    has_reconciliation: bool
    is_long: bool
    is_shared: bool
    has_disk_trouble: bool
    has_quotas: bool
    has_members: bool
    faults: LinkFaults
    has_link_faults: bool
    notes: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        names = [
            f"{self.servers} server{'s' * (self.servers != 1)} with {self.router}",
            f"{self.clients} client{'s' * (self.clients != 1)}" if self.clients else "",
            f"{self.byzantine} Byzantine" if self.byzantine else "",
            f"{self.entries} entries",
            *(said for name, said in _SAID.items() if getattr(self, name)),
            *self.notes,
        ]
        return ", ".join(name for name in names if name)


_SAID = {
    "has_crashes": "crashes",
    "has_partitions": "partitions",
    "has_skew": "skewed clocks",
    "has_guest": "a guest",
    "has_stranger": "a stranger",
    "has_reconciliation": "reconciliation",
    "is_long": "a long history",
    "is_shared": "other processes",
    "has_disk_trouble": "disks in trouble",
    "has_quotas": "quotas",
    "has_members": "members",
    "has_link_faults": "bad links",
}


def draw_plan(seed: int, rng: random.Random) -> SeedPlan:
    """Draw the plan of a seed."""
    kind, has_members = seed % KINDS, seed % MEMBERS_EVERY == MEMBERS_SEED
    total = 3 + int(18 * rng.random() ** 2)
    is_calm = rng.random() < 0.15 and not (has_members or kind in (LONG_SEED, TROUBLE_SEED, QUOTA_SEED))
    byzantine = rng.randint(1, max(1, (total - 1) // 3)) if not is_calm and rng.random() < 0.45 else 0
    if has_members or kind == LONG_SEED:
        byzantine = max(1, byzantine)
    correct = max(2, total - byzantine)
    clients = rng.randint(1, correct - 1) if rng.random() < 0.35 else 0
    if kind == QUOTA_SEED:
        clients = max(clients, min(2, correct - 1))
    entries = rng.randint(200, 1_000)
    if rng.random() < 0.9:
        entries = min(entries, max(200, WORK // total))
    has_link_faults = not is_calm and rng.random() < 0.5
    faults = LinkFaults()
    if has_link_faults:
        shares = [share * rng.random() * rng.randrange(2) for share in (0.3, 0.2, 0.3, 0.05, 0.02, 0.005, 0.5, 0.5)]
        faults = LinkFaults(*shares)
    if has_members and seed // MEMBERS_EVERY % 4:
        # Members change as often, and a seed takes half the time.
        entries //= 3
    if kind == LONG_SEED:
        has_link_faults = True
        faults.full = FULL * random.Random(f"full {seed}").random()
    return SeedPlan(
        servers=correct - clients,
        clients=clients,
        byzantine=byzantine,
        entries=entries,
        active_s=6.0 + 10.0 * rng.random() + (LONG_S if kind == LONG_SEED else 0.0),
        router=rng.choices(("gossipsub", "floodsub", "meshsub", "randomsub", "choke", "episub"), (6, 1, 1, 1, 1, 4))[0],
        has_crashes=not is_calm and rng.random() < 0.45,
        has_partitions=not is_calm and rng.random() < 0.4,
        has_skew=rng.random() < 0.4,
        has_guest=not is_calm and rng.random() < 0.2,
        has_stranger=kind == STRANGER_SEED,
        has_reconciliation=kind == RECONCILE_SEED,
        is_long=kind == LONG_SEED,
        is_shared=kind == SHARED_SEED,
        has_disk_trouble=kind == TROUBLE_SEED or (has_members and seed // MEMBERS_EVERY % 3 == 0),
        has_quotas=kind == QUOTA_SEED,
        has_members=has_members,
        faults=faults,
        has_link_faults=has_link_faults,
        notes=["calm"] if is_calm else [],
    )


def draw_params(plan: SeedPlan, rng: random.Random) -> CommonParams:
    """Draw the parameters of a router. Half of the meshes are so small that pruning and gossip matter in networks of this size.

    In long histories the wanted degree is larger than the network, so a peer that ends a link is grafted again and again.
    """
    score = pubsub_params.ScoreParams() if rng.random() < 0.5 else None
    mesh: dict[str, Any] = SMALL_MESH if rng.random() < 0.5 else {}
    if plan.is_long:
        mesh = LARGE_MESH
    params: dict[str, CommonParams] = {
        "gossipsub": pubsub_params.GossipsubParams(score=score, **mesh),
        "floodsub": pubsub_params.FloodsubParams(),
        "meshsub": pubsub_params.MeshsubParams(**mesh),
        "randomsub": pubsub_params.RandomsubParams(),
        "choke": pubsub_params.ChokeParams(choke_threshold=2, choke_ticks=3, D_choke=1, **mesh),
        "episub": pubsub_params.EpisubParams(),
    }
    return params[plan.router]


def draw_spec(plan: SeedPlan, number: int, rng: random.Random) -> ReplicaSpec:
    """Draw the properties of a replica."""
    rate, offset_s = (1.0 + 0.01 * (2 * rng.random() - 1), 1_000.0 * rng.random()) if plan.has_skew else (1.0, 0.0)
    limits = ClientLimits()
    if rng.random() < 0.3:  # it pulls in small steps, so that faults happen in the middle of a pull
        limits = ClientLimits(values_in_flight=rng.randint(1, 3), probes_in_flight=1, batch_entries=rng.choice((10, 50)))
    commit_s = 0.001 + 0.014 * rng.random() if rng.random() < 0.85 else 0.05 + 0.35 * rng.random()
    answer_s, ending_s, timer_s = [most_s * rng.random() * (rng.random() < 0.4) for most_s in (ANSWER_S, ENDING_S, TIMER_S)]
    is_durable, has_rule = rng.random() < 0.7, plan.has_stranger
    is_byzantine = 0 <= number - plan.servers - plan.clients < plan.byzantine
    reconciles = plan.has_reconciliation and not is_byzantine
    is_shared = plan.is_shared and not is_byzantine
    spec = ReplicaSpec(number, is_durable, commit_s, rate, offset_s, limits, answer_s, ending_s, timer_s, has_rule, reconciles, is_shared)
    return _with_quotas(plan, spec, rng) if plan.has_quotas and not is_byzantine else spec


def _with_quotas(plan: SeedPlan, spec: ReplicaSpec, rng: random.Random) -> ReplicaSpec:
    """Give most servers quotas, have them cut syncs short, and let most clients stop at the end of such a sync."""
    if spec.number >= plan.servers:
        slow = ClientLimits(values_in_flight=rng.randint(1, 3), probes_in_flight=1, batch_entries=10)
        return replace(spec, limits=slow, resumes=rng.random() < 0.3, hangs_up=rng.random() < 0.7)
    if rng.random() < 0.2:
        return spec
    # All entries of a writer must get in within the time for healing.
    most = max(20, plan.entries // rng.randint(3, 8))
    quota = Quota(
        entries_per_minute=most,
        bytes_per_minute=most * QUOTA_ENTRY_BYTES if rng.random() < 0.5 else None,
        entries_per_writer=QUOTA_ENOUGH,
        address_entries_per_minute=2 * most if rng.random() < 0.5 else None,
    )
    return replace(spec, quota=quota, cuts=rng.random())
