"""Invariants of entries that came before their parents: the parents are looked for, and no entry waits for a parent that is decided.

Source: docs/spec/sync.md, "Orphans".
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from ...entry.message import Entry
from ...entry.validation import Rule, Verdict
from .replica import SimReplica
from .router_invariants import PerReplica

LOOKED_FOR_S = 0.1
"""The log is asked about an orphan's parents within this time plus two of its answers: the first may be to the question before."""
DECIDED_S = 2.0
"""An orphan may wait this long, plus four of the log's answers, after all its parents are decided. The entries that a sync brings become
known only when it ends.
"""


@dataclass(slots=True, eq=False)
class _Node:
    """The knowledge about one replica since it started.

    Attributes:
        orphans: The arrival times of orphans whose parents were not looked for yet.
        waiting: All orphans, and since when all their parents are decided; None while one is undecided.
        refused: Keys of entries that the log refuses.
    """

    orphans: dict[bytes, float] = field(default_factory=dict)
    waiting: dict[bytes, float | None] = field(default_factory=dict)
    refused: set[bytes] = field(default_factory=set)


class WaitingInvariants(PerReplica[_Node]):
    """Follows the orphans that the machines of correct replicas keep."""

    knows = _Node

    def on_verdict(self, replica: SimReplica, verdict: Verdict) -> None:
        """An entry was decided upon."""
        node, entry = self._nodes[replica.id], verdict.entry
        if entry is None:
            return
        if verdict.rule == Rule.PARENTS:
            if entry.key not in node.waiting:
                node.orphans[entry.key] = replica.world.now
            node.waiting[entry.key] = None
        elif verdict.rule == Rule.ACCESS:
            node.refused.add(entry.key)

    def on_refused(self, replica: SimReplica, entries: Sequence[Entry]) -> None:
        """The access rule refused entries, wherever they came from."""
        self._nodes[replica.id].refused.update(entry.key for entry in entries)

    def on_looked_up(self, replica: SimReplica, keys: Sequence[bytes]) -> None:
        """A machine asks its log for keys."""
        node = self._nodes[replica.id]
        if node.orphans:
            for key in [key for key in node.orphans if set(replica.machine.spreading.orphans.absent_of(key)).issubset(keys)]:
                del node.orphans[key]

    def sample(self, replica: SimReplica, held: Collection[bytes], *, is_syncing: bool) -> None:
        """Check that everything due has happened."""
        node, now, answer_s = self._nodes[replica.id], replica.world.now, replica.spec.answer_s
        for key, since in list(node.orphans.items()):
            if not replica.machine.spreading.orphans.absent_of(key):
                del node.orphans[key]
            elif now - since > LOOKED_FOR_S + 2.1 * answer_s:
                self._fail("an orphan's parents are looked for", replica, f"those of {key.hex()} were not since {since:.3f} s")
        for key, decided_at in list(node.waiting.items()):
            absent = replica.machine.spreading.orphans.absent_of(key)
            if not absent:
                del node.waiting[key]
            elif is_syncing or not all(parent in held or parent in node.refused for parent in absent):
                node.waiting[key] = None
            elif decided_at is None:
                node.waiting[key] = now
            elif now - decided_at > DECIDED_S + 4 * answer_s:
                self._fail("no orphan waits for what is decided", replica, f"{key.hex()} since {decided_at:.3f} s")
