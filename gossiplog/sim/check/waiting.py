"""Invariants of entries that came before their parents: the parents are looked for, and no entry waits for a parent that is decided.

Source: docs/spec/sync.md, "Orphans".
"""

from __future__ import annotations

from collections.abc import Sequence

from ...entry.message import Entry
from ...entry.validation import Rule, Verdict
from ...pubsub.types import PeerId
from .checker import Checker, Run
from .replica import SimReplica
from .telling import TellingInvariants

LOOKED_FOR_S = 0.1
"""The log is asked about an orphan's parents within this time plus two of its answers: the first may be to the question before."""
DECIDED_S = 2.0
"""An orphan may wait this long, plus four of the log's answers, after all its parents are decided. The entries that a sync brings become
known only when it ends, which a replica may be told late, and after the connection has closed.
"""


class WaitingInvariants(Checker):
    """Follows the orphans that a replica's machine keeps.

    Attributes:
        orphans: The arrival times of orphans whose parents were not looked for yet.
        waiting: All orphans, and since when all their parents are decided; None while one is undecided.
        refused: Keys of entries that the log refuses.
    """

    def __init__(self, replica: SimReplica, run: Run, telling: TellingInvariants) -> None:
        super().__init__(replica, run)
        self._telling = telling
        self.orphans: dict[bytes, float] = {}
        self.waiting: dict[bytes, float | None] = {}
        self.refused: set[bytes] = set()

    def on_verdict(self, source: PeerId, verdict: Verdict) -> None:
        """The entry may be an orphan, or refused."""
        entry = verdict.entry
        if entry is None:
            return
        if verdict.rule == Rule.PARENTS:
            if entry.key not in self.waiting:
                self.orphans[entry.key] = self.now
            self.waiting[entry.key] = None
        elif verdict.rule == Rule.ACCESS:
            self.refused.add(entry.key)

    def on_refused_entries(self, entries: Sequence[Entry]) -> None:
        """Their orphans wait in vain."""
        self.refused.update(entry.key for entry in entries)

    def on_looked_up(self, keys: Sequence[bytes]) -> None:
        """The parents of some orphans are among the keys."""
        if self.orphans:
            for key in [key for key in self.orphans if self._absent_of(key).issubset(keys)]:
                del self.orphans[key]

    def sample(self) -> None:
        """Check that everything due has happened."""
        now, answer_s = self.now, self.replica.spec.answer_s
        for key, since in list(self.orphans.items()):
            if not self._absent_of(key):
                del self.orphans[key]
            elif now - since > LOOKED_FOR_S + 2.1 * answer_s:
                self.fail("an orphan's parents are looked for", f"those of {key.hex()} were not since {since:.3f} s")
        for key, decided_at in list(self.waiting.items()):
            absent = self._absent_of(key)
            if not absent:
                del self.waiting[key]
            elif self._telling.syncing or not all(parent in self.keys or parent in self.refused for parent in absent):
                self.waiting[key] = None
            elif decided_at is None:
                self.waiting[key] = now
            elif now - decided_at > DECIDED_S + 4 * answer_s + self.replica.spec.ending_s:
                self.fail("no orphan waits for decided parents", f"{key.hex()} since {decided_at:.3f} s")

    def _absent_of(self, key: bytes) -> set[bytes]:
        """Return the parents for which the machine has an orphan wait; none if it is no orphan any more."""
        return set(self.replica.machine.spreading.orphans.absent_of(key))
