"""Invariants of heads: they are told in time and up to date, and announced keys are looked up and synced for.

Source: docs/spec/sync.md, "Reliable causal broadcast"; docs/spec/simulator.md, "The whole log under faults".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...broadcast.actions import Action, Push, StartSync
from ...broadcast.events import PeerKind
from ...entry.message import Entry
from ...entry.validation import LATER, Rule, Verdict
from ...pubsub.types import PeerId
from ...sync.result import Ending, SyncResult
from ...sync.rpc import HEADS_MAX, Update
from ...sync.wire import decode_event
from .checker import Checker, Run
from .observer import Stream
from .replica import SimReplica

TOLD_S = 0.8
"""Heads are told within this time: one read may be under way, and a second follows; each takes up to 0.3 s."""
WANTED_S = 7.0
"""While fewer than `SYNCS_MAX` syncs run, a sync begins within this time. It waits up to 5 s for one that may bring the same keys, and then
for an answer of the log.
"""
LOOKED_UP_S = 0.1
"""The log is asked about an update within this time plus two of its answers: the first may be to the update before."""
IDLE_S = 0.6
"""If no other sync runs, one begins within this time plus five of the log's answers and two of its commits. Entries that have come and
wait for the transaction under way are not synced for. A disk in trouble takes longer to commit.
"""
SYNCS_MAX = 4
REMINDED_S, UNHEARD_S = 6.0, 64.0
"""A peer whose sync was cut short, and that begins no other, is told heads within 6 s. If our answers are slow, the peer learns of the cut
late, and begins another sync half a second later. A peer that does not show that it has learnt of the cut is told after a minute.
"""


class TellingInvariants(Checker):
    """Follows the heads of a replica, and the peers to be told.

    Attributes:
        version: The number of commits since the start, of which the first is the whole log.
        versions: The version of the log that has these heads, sorted.
        open: Peers with an open push stream.
        due: For each peer, the least versions of the log to be told, and since when.
        heard: The latest update of each peer about which the log has not been asked yet, and when it came.
        wanted: Announced keys for which no sync with their peer has begun, and since when it may begin.
        syncing: The token of the sync with each peer.
        waits_since: When as many syncs ran as may.
        idle_since: When the last sync ended.
        cold: Peers whose last sync failed or brought nothing: further ones may have to wait.
        cut_short: Correct peers whose syncs were cut short, and when.
    """

    def __init__(self, replica: SimReplica, run: Run) -> None:
        super().__init__(replica, run)
        self.version = 0
        self.versions: dict[tuple[bytes, ...], int] = {}
        self.open: dict[PeerId, None] = {}
        self.due: dict[PeerId, list[tuple[int, float]]] = {}
        self.heard: dict[PeerId, tuple[tuple[bytes, ...], float]] = {}
        self.wanted: dict[PeerId, tuple[dict[bytes, None], float]] = {}
        self.syncing: dict[PeerId, int] = {}
        self.waits_since = self.idle_since = 0.0
        self.cold: set[PeerId] = set()
        self.cut_short: dict[PeerId, float] = {}
        self._heads: set[bytes] = set()

    def on_commit(self, entries: Iterable[Entry]) -> None:
        """Compute the heads of the new version."""
        for entry in entries:
            self._heads.difference_update(entry.parent_keys)
            self._heads.add(entry.key)
        self.version += 1
        self.versions[tuple(sorted(self._heads))] = self.version

    def version_of(self, heads: Sequence[bytes]) -> int:
        """Return the version of the log with these heads, as they are told; -1 if there is none."""
        return self.versions.get(tuple(heads), -1) if len(heads) < HEADS_MAX else self.version

    # Telling

    def on_push_opened(self, peer: PeerId) -> None:
        """The peer is to be told the heads."""
        self.open[peer] = None
        self.due[peer] = [(self.version, self.now)]

    def on_push_closed(self, peer: PeerId) -> None:
        """The peer can be told nothing."""
        self.open.pop(peer, None)
        self.due.pop(peer, None)

    def on_action(self, action: Action) -> None:
        """Peers are told heads, or a sync begins."""
        if isinstance(action, StartSync):
            self.wanted.pop(action.peer, None)
            self._check_wanted()
            self.syncing[action.peer] = action.token
        elif isinstance(action, Push) and isinstance(event := decode_event(action.data), Update):
            version = self.version_of(event.heads)
            for peer in action.peers:
                self._check_due(peer)
                self.cut_short.pop(peer, None)
                # A read for an earlier reason may return older heads than those due by now. The newer heads have to follow.
                self.due[peer] = [due for due in self.due.get(peer, ()) if version >= 0 and due[0] > version]

    def _check_due(self, peer: PeerId) -> None:
        late_s = self.now - min((since for _, since in self.due.get(peer, ())), default=self.now)
        if late_s > TOLD_S:
            self.fail("current heads are told in time", f"{peer} has not been told heads that are due for {late_s:.1f} s")

    # Look-ups and syncs

    def on_pushed(self, peer: PeerId, data: bytes) -> None:
        """A correct peer may have told its heads. Its earlier heads need no longer be looked up."""
        if peer in self.run.correct and isinstance(event := decode_event(data), Update):
            self.heard.pop(peer, None)
            if event.heads:
                self.heard[peer] = tuple(dict.fromkeys(event.heads)), self.now
            self._on_announced(peer, event.heads)

    def on_verdict(self, source: PeerId, verdict: Verdict) -> None:
        """An entry that has to come again is to be synced for."""
        if (verdict.rule == Rule.PARENTS or verdict.rule in LATER) and verdict.entry is not None and source in self.replica.wires:
            self._on_announced(source, [verdict.entry.key])

    def on_looked_up(self, keys: Sequence[bytes]) -> None:
        """If two peers told the same keys, this answers both."""
        keys = tuple(keys)
        self.heard = {peer: (heads, since) for peer, (heads, since) in self.heard.items() if heads != keys}

    def on_synced(self, peer: PeerId, result: SyncResult, stream: Stream, token: int) -> None:
        """Peers are to be told of the entries that the sync brought. A peer whose sync brought nothing has to wait."""
        self._note_crowd()
        is_own = self.syncing.get(peer) == token  # a session begun by the peer ends no wait of ours
        if is_own:
            del self.syncing[peer]
            self.idle_since = self.now
            if peer in self.wanted:
                self.wanted[peer] = self.wanted[peer][0], self.now
        if result.entries:
            if is_own:
                self.cold.discard(peer)
            for other in self.open:
                # If the entries are few, only the mesh is told heads; the other peers are sent the entries.
                if other != peer and (not result.spreads or self.replica.wires[other].kind_for(self.replica) is PeerKind.MESH):
                    self.due.setdefault(other, []).append((self.version, self.now))
        if result.ending is not Ending.COMPLETE or not result.entries:
            self.cold.add(peer)

    def on_cut_short(self, peer: PeerId) -> None:
        """The peer is to be reminded."""
        if peer in self.run.correct:
            self.cut_short[peer] = self.now

    def on_sync_begun(self, peer: PeerId) -> None:
        """The peer need not be reminded."""
        self.cut_short.pop(peer, None)

    def on_closed(self, peer: PeerId) -> None:
        """Nothing is due any more on this connection."""
        self.on_push_closed(peer)
        self.cut_short.pop(peer, None)
        self.wanted.pop(peer, None)
        self.heard.pop(peer, None)
        self._note_crowd()
        if self.syncing.pop(peer, None) is not None:
            self.idle_since = self.now

    def sample(self) -> None:
        """Check that everything due has happened."""
        for peer in self.due:
            self._check_due(peer)
        for peer, since in self.cut_short.items():
            shows = self.run.correct[peer].spec.hangs_up and not self.replica.wires[peer].has_lost
            if peer in self.open and self.now - since > (REMINDED_S if shows else UNHEARD_S):
                self.fail("a peer whose sync was cut short is reminded", f"that of {peer} was at {since:.3f} s, and it began no other")
        for peer, (_, since) in self.heard.items():
            if self.now - since > LOOKED_UP_S + 2.1 * self.replica.spec.answer_s:
                self.fail("announced keys are looked up", f"the log was not asked about the heads that {peer} told at {since:.3f} s")
        self._check_wanted()

    def _on_announced(self, peer: PeerId, keys: Iterable[bytes]) -> None:
        missing = dict.fromkeys(key for key in keys if key not in self.keys)
        if peer not in self.run.correct or not missing:
            return
        before, since = self.wanted.get(peer, ({}, 0.0))
        lacked = {key: None for key in before if key not in self.keys}  # no longer wait for entries that came in other ways meanwhile
        self.wanted[peer] = lacked | missing, since if lacked else self.now

    def _check_wanted(self) -> None:
        commit_s = self.replica.spec.commit_s + self.replica.disk.late_s
        now, idle_s = self.now, IDLE_S + 5 * self.replica.spec.answer_s + 2 * commit_s
        self._note_crowd()
        for peer, (keys, since) in list(self.wanted.items()):
            missing = [key for key in keys if key not in self.keys]
            is_due = now - max(since, self.waits_since) > WANTED_S or (not self.syncing and now - max(since, self.idle_since) > idle_s)
            if not missing:
                del self.wanted[peer]
            elif is_due and peer not in self.syncing and peer not in self.cold:
                self.fail("announced keys are synced for", f"{peer} has {missing[0].hex()}, and no sync began for it")

    def _note_crowd(self) -> None:
        """While as many syncs run as may, no other can begin, however long they take."""
        if len(self.syncing) >= SYNCS_MAX:
            self.waits_since = self.now
