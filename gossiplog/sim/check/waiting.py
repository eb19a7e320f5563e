"""What must hold of entries that came before their parents: these are looked for, and nothing waits for what is decided.

Source: docs/spec/sync.md, "Orphans".
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ...entry.message import Entry
from ...entry.validation import Rule, Verdict
from ...pubsub.types import PeerId
from .replica import SimReplica
from .router_invariants import Fail

__all__ = ["WaitingInvariants"]

LOOKED_FOR_S = 0.1
"""Within what time the log is asked about an orphan's parents, and as long as it takes for two answers: one to the question before."""
DECIDED_S = 2.0
"""How long an orphan may wait whose parents are all decided, and as long as it takes for four answers. The end of a sync says what it
brought, and not before.
"""


class _Node:
    """What is known of one replica since it started.

    Attributes:
        orphans: When each came that was not looked for yet.
        waiting: All that came without their parents, and since when no parent of theirs is undecided; None: one is.
        refused: What has no place in the log.
    """

    __slots__ = ("orphans", "refused", "waiting")

    def __init__(self) -> None:
        self.orphans: dict[bytes, float] = {}
        self.waiting: dict[bytes, float | None] = {}
        self.refused: set[bytes] = set()


class WaitingInvariants:
    """Follows the orphans of all correct replicas, as far as their machines keep them.

    Args:
        fail: Called with what is wrong; it raises.
    """

    def __init__(self, fail: Fail) -> None:
        self._fail = fail
        self._nodes: dict[PeerId, _Node] = {}

    def on_recovered(self, replica: SimReplica) -> None:
        """A replica has started, and keeps nothing."""
        self._nodes[replica.id] = _Node()

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
        """A machine has its log looked through."""
        node = self._nodes[replica.id]
        if node.orphans:
            for key in [key for key in node.orphans if set(replica.machine.spreading.orphans.absent_of(key)).issubset(keys)]:
                del node.orphans[key]

    def sample(self, replica: SimReplica, held: Collection[bytes], *, is_syncing: bool) -> None:
        """Look for what should have happened by now."""
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
