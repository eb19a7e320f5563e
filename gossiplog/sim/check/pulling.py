"""Invariants of pulls: which ones begin, how they end, and what a replica learns from failed ones.

Source: docs/spec/sync.md, "A pull".
"""

from __future__ import annotations

import re
from collections import deque

from ...broadcast.actions import Action, StartSync
from ...pubsub.types import PeerId
from ...pull.serving import CROSSING
from ...reconcile import Reconciled
from ...sync.result import Ending, SyncResult
from .checker import Checker, Run
from .observer import NO_TOKEN, Stream
from .replica import SimReplica

SYNCS_MAX = 4
FRUITLESS_MAX = 7
FRUITLESS_S = 10.0
"""The most complete syncs in a row with one peer that bring nothing, within these seconds. Three may follow each other at once; after that
they are put off by 1, 2, 4 and 8 seconds, which makes six at most. A sync does not count if another peer brought something during it,
because that may be what the sync was for.
"""
TREES_S = 60.0
"""After a failed reconciliation with a peer, only merkle syncs are used with it for at least this long."""
ROUNDING_S = 0.001
WRONG = ("a key is not in the log", "the roots differ, and nothing explains it")
"""The peer's own reason when its sketch is wrong, and our finding from its symbols."""
REFUSED = ("the store failed", CROSSING)
"""The only reasons for which correct replicas may fall back to merkle sync: logs only grow, and a sketch is large enough."""
FUTILE = re.compile(r"some (\d+) differences, not found in (\d+) symbols")
FUTILE_SYMBOLS, LEAST_SYMBOLS = 4, 128
"""The least symbols per difference, and in total, before a reconciliation is given up."""


class PullingInvariants(Checker):
    """Follows a replica's pulls.

    Attributes:
        running: The token of the pull from each peer, and how many entries the log had at its start.
        fruitless: When the last complete pulls from each peer ended that brought nothing, on the replica's clock.
        reconciling: The peers with which it reconciles as the client.
        fell_back: Peers with which reconciliation failed, and when.
        is_doubtful: The replica doubts its own sketch.
    """

    def __init__(self, replica: SimReplica, run: Run) -> None:
        super().__init__(replica, run)
        self.running: dict[PeerId, tuple[int, int]] = {}
        self.fruitless: dict[PeerId, deque[float]] = {}
        self.reconciling: set[PeerId] = set()
        self.fell_back: dict[PeerId, float] = {}
        self.is_doubtful = False

    def on_action(self, action: Action) -> None:
        """A pull may begin."""
        if not isinstance(action, StartSync):
            return
        peer, now = action.peer, self.replica.local_now()
        if peer in self.running or len(self.running) >= SYNCS_MAX:
            self.fail("one sync with each peer, four in all", f"{peer} besides {sorted(self.running)}")
        if peer not in self.replica.wires:
            self.fail("syncs with connected peers", f"{peer} is not connected")
        fruitless = [at for at in self.fruitless.get(peer, ()) if at > now - FRUITLESS_S]
        if len(fruitless) >= FRUITLESS_MAX:
            self.fail("fruitless syncs are put off", f"{len(fruitless)} with {peer} have brought nothing within {FRUITLESS_S} s")
        self.running[peer] = action.token, len(self.keys)

    def on_synced(self, peer: PeerId, result: SyncResult, stream: Stream, token: int) -> None:
        """A pull, or a session that the peer began, is over."""
        count_before = count = len(self.keys)
        if peer in self.running and self.running[peer][0] == token:
            count_before = self.running.pop(peer)[1]
        if token != NO_TOKEN:
            self._on_pulled(peer, result)
        if result.entries:
            self.fruitless.pop(peer, None)
        elif result.ending is Ending.COMPLETE and peer not in self.run.correct and count == count_before:
            self.fruitless.setdefault(peer, deque(maxlen=FRUITLESS_MAX)).append(self.replica.local_now())
        if stream in self.run.lied and result.ending is Ending.COMPLETE:
            self.fail("a lie in a sync is noticed", f"{peer} lied, and the sync went to its end")

    def _on_pulled(self, peer: PeerId, result: SyncResult) -> None:
        self.reconciling.discard(peer)
        if self.is_doubtful and self.replica.syncs.is_spoilt:
            self.fail("a wrong sketch misleads once", f"it was doubted in a session with {peer}, and is kept")
        self.is_doubtful = False
        if result.reason and result.ending is Ending.COMPLETE:
            self.fail("a pull is complete if its last session was", f"with {peer}: {result.reason}")

    def on_closed(self, peer: PeerId) -> None:
        """Everything that ran on the connection ends with it."""
        self.running.pop(peer, None)
        self.reconciling.discard(peer)

    def sample(self) -> None:
        """Check that the machine knows of all pulls that run."""
        if len(self.running) > self.replica.machine.state().sizes["syncs"]:
            self.fail("the machine knows of all syncs that run", f"with {sorted(self.running)}: some are unknown to it")

    # Reconciliations

    def on_reconciling(self, peer: PeerId) -> None:
        """It must not follow a failed one at once."""
        self.reconciling.add(peer)
        since = self.fell_back.get(peer)
        if since is not None and self.replica.local_now() < since + TREES_S - ROUNDING_S:
            waited_s = self.replica.local_now() - since
            self.fail("a failed reconciliation is not tried again at once", f"with {peer} again after {waited_s:.1f} s")

    def on_serving(self, peer: PeerId) -> None:
        """It must not cross one of the replica's own."""
        if peer in self.run.correct and peer in self.reconciling and self.replica.wires[peer].side(self.replica) == 0:
            self.fail("two peers reconcile once at a time", f"{peer} was dialled by us, and is served meanwhile")

    def on_reconciled(self, peer: PeerId, outcome: Reconciled) -> None:
        """Symbols find the difference between correct replicas, unless one of their sketches is wrong."""
        if peer not in self.run.correct:
            return
        self.reconciling.discard(peer)
        if outcome.fallback and outcome.fallback != CROSSING:
            self.fell_back[peer] = self.replica.local_now()
        self.is_doubtful |= outcome.is_doubtful
        if not outcome.fallback or outcome.fallback in REFUSED or self._is_misled(peer, outcome):
            return
        # Once in some ten thousand sessions two elements are in the same of the first symbols. Then it is right to give up in the end.
        found = FUTILE.match(outcome.fallback)
        differences, symbols = map(int, found.groups()) if found else (0, 0)
        has_tried = differences <= len(self.keys | self.run.keys[peer]) and symbols >= max(FUTILE_SYMBOLS * differences, LEAST_SYMBOLS)
        if not found or not has_tried:
            self.fail("correct replicas find their difference", f"with {peer}, by the tree instead: {outcome.fallback}")

    def _is_misled(self, peer: PeerId, outcome: Reconciled) -> bool:
        """Return whether a wrong sketch on either side explains that a reconciliation failed."""
        is_ours_wrong, is_theirs_wrong = self.replica.syncs.was_spoilt, self.run.correct[peer].syncs.was_spoilt
        return (outcome.is_doubtful and is_ours_wrong) or (outcome.fallback in WRONG and is_theirs_wrong)
