"""How one simulated replica is made: its disk, its clock, and how late it is."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...sync.limits import ClientLimits

__all__ = ["ReplicaSpec"]


@dataclass(frozen=True, slots=True)
class ReplicaSpec:
    """How one replica is made.

    Attributes:
        number: Its number; `n<number>` is its peer id.
        is_durable: Commits are synced before they are acknowledged; else once a second.
        commit_s: How long a commit takes.
        rate: How fast its clock runs; 1.0 is right.
        offset_s: What its clock shows at 0.
        limits: Of the syncs in which it pulls.
        answer_s: Its log answers questions up to so much later, with what it held somewhere in between.
        ending_s: It notices the end of a sync up to so much later.
        timer_s: Its timers fire up to so much too late.
        has_rule: It has the access rule.
        reconciles: It speaks the protocol of reconciliation, and tries it first.
        is_shared: Another process writes to its log as well.
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
