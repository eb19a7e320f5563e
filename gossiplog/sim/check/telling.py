"""Invariants of heads: they are told in time and up to date, and announced keys are looked up and synced for.

Source: docs/spec/sync.md, "Reliable causal broadcast"; docs/spec/simulator.md, "The whole log under faults".
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ...broadcast.events import PeerKind
from ...entry.message import Entry
from ...pubsub.types import PeerId
from ...sync.result import Ending, SyncResult
from ...sync.rpc import HEADS_MAX
from .replica import SimReplica
from .router_invariants import Fail, PerReplica

TOLD_S = 0.8
"""Heads are told within this time: one read may be under way, and a second follows; each takes up to 0.3 s."""
WANTED_S = 7.0
"""A sync begins within this time while there is room for it: it waits up to 5 s for one that may bring the same, then the log is asked."""
LOOKED_UP_S = 0.1
"""The log is asked about an update within this time plus two of its answers: the first may be to the update before."""
IDLE_S = 0.6
"""A sync begins within this time plus five of the log's answers and two of its commits if there is no other sync to wait for: what has come
and waits for the transaction under way is not synced for.
"""
SYNCS_MAX = 4
REMINDED_S, UNHEARD_S = 6.0, 64.0
"""A peer whose sync was cut short, and that begins no other, is told heads within this time. If the server is slow it learns of the cut
late, and begins another half a second later. If it does not show that it has learnt of the cut, it is told after a minute.
"""


@dataclass(slots=True)
class _Node:
    """The knowledge about one replica since it started.

    Attributes:
        due: For each peer, the least versions of the log to be told, and since when.
        heard: Updates about which the log has not been asked yet.
        cut_short: Correct peers whose syncs were cut short, and when.
    """

    heads: set[bytes] = field(default_factory=set)
    version: int = 0
    versions: dict[tuple[bytes, ...], int] = field(default_factory=dict)
    open: dict[PeerId, None] = field(default_factory=dict)
    due: dict[PeerId, list[tuple[int, float]]] = field(default_factory=dict)
    heard: dict[PeerId, tuple[tuple[bytes, ...], float]] = field(default_factory=dict)
    wanted: dict[PeerId, tuple[dict[bytes, None], float]] = field(default_factory=dict)
    syncing: dict[PeerId, int] = field(default_factory=dict)
    waits_since: float = 0.0
    idle_since: float = 0.0
    cold: set[PeerId] = field(default_factory=set)
    cut_short: dict[PeerId, float] = field(default_factory=dict)


class TellingInvariants(PerReplica[_Node]):
    """Follows the heads of all correct replicas, and the peers to be told.

    Args:
        correct: The replicas that follow the protocol, kept by the caller.
    """

    knows = _Node

    def __init__(self, correct: Mapping[PeerId, SimReplica], fail: Fail) -> None:
        super().__init__(fail)
        self._correct = correct

    def on_commit(self, replica: SimReplica, entries: Iterable[Entry]) -> None:
        """The log has grown."""
        node = self._nodes[replica.id]
        for entry in entries:
            node.heads.difference_update(entry.parent_keys)
            node.heads.add(entry.key)
        node.version += 1
        node.versions[tuple(sorted(node.heads))] = node.version

    # Telling

    def on_push_opened(self, replica: SimReplica, peer: PeerId) -> None:
        """A push stream has opened: the peer is to be told the heads."""
        node = self._nodes[replica.id]
        node.open[peer] = None
        node.due[peer] = [(node.version, replica.world.now)]

    def on_push_closed(self, replica: SimReplica, peer: PeerId) -> None:
        """A push stream has closed."""
        node = self._nodes[replica.id]
        node.open.pop(peer, None)
        node.due.pop(peer, None)

    def on_told(self, replica: SimReplica, peers: Iterable[PeerId], heads: Sequence[bytes]) -> int:
        """Some peers are told heads. Return the log's version with these heads; -1 if there is none."""
        node = self._nodes[replica.id]
        version = node.versions.get(tuple(heads)) if len(heads) < HEADS_MAX else node.version
        for peer in peers:
            self._check_due(replica, node, peer)
            node.cut_short.pop(peer, None)
            # A read for an earlier reason may return older heads than those due by now. The newer heads have to follow.
            node.due[peer] = [due for due in node.due.get(peer, ()) if version is not None and due[0] > version]
        return -1 if version is None else version

    def version(self, replica: SimReplica) -> int:
        """Return the number of a replica's latest commit since it started."""
        return self._nodes[replica.id].version

    def _check_due(self, replica: SimReplica, node: _Node, peer: PeerId) -> None:
        late_s = replica.world.now - min((since for _, since in node.due.get(peer, ())), default=replica.world.now)
        if late_s > TOLD_S:
            self._fail("heads are told as they are", replica, f"{peer} has not been told for {late_s:.1f} s what it should be told")

    # Look-ups and syncs

    def on_update(self, replica: SimReplica, peer: PeerId, heads: Iterable[bytes]) -> None:
        """A peer tells its heads. Its earlier heads need no longer be looked up."""
        node, keys = self._nodes[replica.id], tuple(dict.fromkeys(heads))
        node.heard.pop(peer, None)
        if peer in self._correct and keys:
            node.heard[peer] = keys, replica.world.now

    def on_looked_up(self, replica: SimReplica, keys: Sequence[bytes]) -> None:
        """A replica asks its log about keys. If two peers told the same keys, it answers both."""
        heard, keys = self._nodes[replica.id].heard, tuple(keys)
        for peer in [peer for peer, (heads, _) in heard.items() if heads == keys]:
            del heard[peer]

    def on_announced(self, replica: SimReplica, peer: PeerId, keys: Iterable[bytes], held: Collection[bytes]) -> None:
        """A peer has announced keys, some of which are not held."""
        missing = dict.fromkeys(key for key in keys if key not in held)
        if peer not in self._correct or not missing:
            return
        node = self._nodes[replica.id]
        before, since = node.wanted.get(peer, ({}, 0.0))
        lacked = {key: None for key in before if key not in held}  # no longer wait for entries that came in other ways meanwhile
        node.wanted[peer] = lacked | missing, since if lacked else replica.world.now

    def on_sync_started(self, replica: SimReplica, peer: PeerId, token: int, held: Collection[bytes]) -> None:
        """A sync begins."""
        node = self._nodes[replica.id]
        node.wanted.pop(peer, None)
        self._check_wanted(replica, node, held)
        node.syncing[peer] = token

    def on_synced(self, replica: SimReplica, peer: PeerId, result: SyncResult, token: int) -> None:
        """A sync is over. Others are to be told of the entries it brought; a peer that brought nothing has to wait."""
        node, now = self._nodes[replica.id], replica.world.now
        _note_crowd(node, now)
        is_own = node.syncing.get(peer) == token
        if is_own:
            del node.syncing[peer]
            node.idle_since = now
            if peer in node.wanted:
                node.wanted[peer] = node.wanted[peer][0], now
        if result.entries:
            if is_own:  # a session begun by the peer ends no wait of ours
                if peer in node.cold and peer in node.wanted:  # from now on it need not wait any longer
                    node.wanted[peer] = node.wanted[peer][0], now
                node.cold.discard(peer)
            for other in node.open:
                # If the entries are few, only the mesh is told heads; the other peers are sent the entries.
                if other != peer and (not result.spreads or replica.wires[other].kind_for(replica) is PeerKind.MESH):
                    node.due.setdefault(other, []).append((node.version, now))
        if result.ending is not Ending.COMPLETE or not result.entries:
            node.cold.add(peer)

    def on_cut_short(self, replica: SimReplica, peer: PeerId) -> None:
        """A peer's sync with us was ended before it was complete."""
        if peer in self._correct:
            self._nodes[replica.id].cut_short[peer] = replica.world.now

    def on_sync_begun(self, replica: SimReplica, peer: PeerId) -> None:
        """A peer has begun a sync with us, so it need not be told again."""
        self._nodes[replica.id].cut_short.pop(peer, None)

    def on_closed(self, replica: SimReplica, peer: PeerId) -> None:
        """A connection has closed, with everything that was due on it."""
        node = self._nodes[replica.id]
        node.cut_short.pop(peer, None)
        self.on_push_closed(replica, peer)
        node.wanted.pop(peer, None)
        node.heard.pop(peer, None)
        _note_crowd(node, replica.world.now)
        if node.syncing.pop(peer, None) is not None:
            node.idle_since = replica.world.now

    def sample(self, replica: SimReplica, held: Collection[bytes]) -> None:
        """Check that everything due has happened."""
        node = self._nodes[replica.id]
        for peer in node.due:
            self._check_due(replica, node, peer)
        for peer, since in node.cut_short.items():
            shows = self._correct[peer].spec.hangs_up and not replica.wires[peer].has_lost
            if peer in node.open and replica.world.now - since > (REMINDED_S if shows else UNHEARD_S):
                self._fail("who was cut short is reminded", replica, f"{peer} was at {since:.3f} s, and began no other sync")
        for peer, (_, since) in node.heard.items():
            if replica.world.now - since > LOOKED_UP_S + 2.1 * replica.spec.answer_s:
                self._fail("what is announced is looked up", replica, f"the log was not asked about what {peer} told at {since:.3f} s")
        self._check_wanted(replica, node, held)

    def _check_wanted(self, replica: SimReplica, node: _Node, held: Collection[bytes]) -> None:
        now, idle_s = replica.world.now, IDLE_S + 5 * replica.spec.answer_s + 2 * replica.spec.commit_s
        _note_crowd(node, now)
        for peer, (keys, since) in list(node.wanted.items()):
            missing = [key for key in keys if key not in held]
            is_due = now - max(since, node.waits_since) > WANTED_S or (not node.syncing and now - max(since, node.idle_since) > idle_s)
            if not missing:
                del node.wanted[peer]
            elif is_due and peer not in node.syncing and peer not in node.cold:
                self._fail("what is announced is synced for", replica, f"{peer} has {missing[0].hex()}, and no sync began for it")


def _note_crowd(node: _Node, now: float) -> None:
    """While as many syncs run as may, no other can begin, however long they take."""
    if len(node.syncing) >= SYNCS_MAX:
        node.waits_since = now
