"""Invariants of correct replicas under all faults, checked during a run and at its end.

| invariant | when |
|---|---|
| parents before children | every commit |
| stored entries obey the entry rules, and none is stored twice | every commit |
| an entry that is sent is committed, or is valid and new with parents committed or sent before | every message sent |
| no acknowledged append is lost | every recovery, the end |
| database and tree hold the same set, the heads are the true sinks, the tree is the one of its leaves | every recovery, the end |
| the right peers are told the current heads; announced keys are looked up and synced for (`telling`) | every push; samples |
| routers keep their obligations to each other (`router_invariants`) | every RPC; samples |
| queues and caches stay within their limits | samples |
| at most 4 syncs, one per peer; no push stream to a WebSocket client; no entry goes back to a peer that brought it | every action |
| no correct replica is rejected, blamed, caught lying, or banned by another | every verdict, sync and ban, samples |
| a lie in a sync is noticed; if correct replicas reconcile, symbols find their difference | the end of each sync |
| new entries are published and pushed at once, to each peer once (`spreading`) | every verdict, acknowledgement and sync; samples |
| two peers reconcile once at a time; a failure is not repeated at once; a wrong sketch misleads only once (`pulling`) | each sync |
| orphans' parents are looked for, and no orphan waits for a decided parent (`waiting`) | samples |
| an invalid entry is an offence; five are a ban, which lasts; no correct peer has a bad score (`reputation`) | verdicts; samples |
| accepted and acknowledged entries are stored; entries refused by a disk are synced for | every verdict and acknowledgement; samples |
| work is committed in order; each piece is answered once, with an error only if the piece is to blame (`writing`) | every step; samples |
| clients stay within their quotas, and entries within a quota are taken; stored entries are counted (`quotas`) | every verdict; samples |
| a peer that announces entries that do not exist is synced with less and less | every sync |
| the log does not depend on `apply`: entries it raises on are in the log, set aside, and hinder nothing | every recovery, the end |
| entries that the access rule refuses are in no log, and no peer is blamed for them | every commit, verdict, sync and ban, samples |
| what does not belong is not stored, what is void follows from the log alone and is not applied (`cheating`) | every recovery, the end |
| all have the same root and ids | the end |

Source: docs/spec/simulator.md, "The whole log under faults".
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Concatenate, NoReturn, ParamSpec

from ...access import is_control
from ...broadcast.actions import Action, Ban, OpenPush, Push, StartSync
from ...broadcast.events import PeerKind
from ...entry.message import Entry
from ...entry.message_id import decode_id
from ...entry.validation import LATER, Outcome, Rule, Verdict
from ...log import writing
from ...log.applying import find_applied, read_set_aside
from ...log.requests import ReadCount, ReadHeads, ReadQuarantine
from ...plan import run_plan
from ...pubsub.actions import SendRpc
from ...pubsub.types import PeerId
from ...pull.serving import CROSSING
from ...reconcile import Reconciled
from ...sync.result import Ending, SyncResult
from ...sync.rpc import HEADS_MAX, Insert, Update
from ...sync.wire import decode_event
from ...tree.memory import MemoryTree
from ...tree.node import Node, leaf_hash
from .cheating import judge_anew, read_void
from .law import NAME, Role, find_poison, reference_of, role_of
from .observer import NO_TOKEN, Stream, Violation
from .pulling import PullingInvariants
from .quotas import QuotaInvariants
from .replica import SimReplica
from .reputation import ReputationInvariants
from .router_invariants import Fail, PerReplica, RouterInvariants
from .spreading import SpreadingInvariants
from .telling import TellingInvariants
from .waiting import WaitingInvariants
from .writing_invariants import WritingInvariants

P = ParamSpec("P")
FRUITLESS_MAX = 7
FRUITLESS_S = 10.0
"""The most complete syncs in a row with one peer that bring nothing, within these seconds. Three may follow each other at once; after that
they are put off by 1, 2, 4 and 8 seconds, which makes six at most. A sync does not count if another peer brought something during it,
because that may be what the sync was for.
"""
REFUSED = ("the store failed", CROSSING)
"""The only reasons for which correct replicas may fall back to merkle sync: logs only grow, and a sketch is large enough."""
FUTILE = re.compile(r"some (\d+) differences, not found in (\d+) symbols")
FUTILE_SYMBOLS, LEAST_SYMBOLS = 4, 128
"""The least symbols per difference, and in total, before a reconciliation is given up."""


class Invariants:
    """Watches all replicas of a run. It learns from signed and committed entries, never from the code that it checks.

    Attributes:
        strangers: Replicas that follow the protocol without the access rule of all others. They must not be blamed either.
        genuine: The VALUE of every entry that was ever properly signed, by key.
        acknowledged: For each correct replica, the keys that it must keep.
    """

    def __init__(self) -> None:
        self.correct: dict[PeerId, SimReplica] = {}
        self.strangers: set[PeerId] = set()
        self.genuine: dict[bytes, bytes] = {}
        self.acknowledged: dict[PeerId, dict[bytes, None]] = {}
        self.lied: set[Stream] = set()
        self._keys: dict[PeerId, set[bytes]] = {}
        self._foreseen: dict[PeerId, set[bytes]] = {}
        self._passed: dict[PeerId, set[bytes]] = {}
        self._syncing: dict[PeerId, dict[PeerId, tuple[int, int]]] = {}  # peer to token and the number of entries at the start
        self._fruitless: dict[tuple[PeerId, PeerId], deque[float]] = {}
        self._trees: set[bytes] = set()
        self.routers = RouterInvariants(self.correct, self._fail)
        self._law = LawInvariants(self.genuine, self._fail)
        self._telling = TellingInvariants(self.correct, self._fail)
        self._spreading = SpreadingInvariants(self._fail)
        self._waiting = WaitingInvariants(self._fail)
        self._writing = WritingInvariants(self._fail)
        self._reputation = ReputationInvariants(self._is_blameless, self._fail)
        self._pulling = PullingInvariants(self._fail, self.correct)
        self._quotas = QuotaInvariants(self._fail)
        spreading = (self._telling, self._spreading, self._waiting, self._writing)
        self._parts: tuple[PerReplica[Any], ...] = (*spreading, self._reputation, self._pulling, self._quotas, self.routers)
        # Events at which only the parts look.
        self.on_refused_entries = self._passed_on(self._law.on_refused, self._waiting.on_refused)
        self.on_connected = self._passed_on(self._quotas.on_connected, self.routers.on_connected)
        self.on_rpc = self._passed_on(lambda replica, peer, rpc: self._reputation.on_heard(replica, peer), self.routers.on_rpc)
        self.on_leaving = self._passed_on(self.routers.on_leaving)
        self.on_refused = self._passed_on(self.routers.on_refused)
        self.on_rpc_handled = self._passed_on(self.routers.on_rpc_handled)
        self.on_push_opened = self._passed_on(self._telling.on_push_opened, self._spreading.on_push_opened)
        self.on_push_closed = self._passed_on(self._telling.on_push_closed, self._spreading.on_push_closed)
        self.on_looked_up = self._passed_on(self._telling.on_looked_up, self._waiting.on_looked_up)
        self.on_parted = self._passed_on(self.routers.on_parted)
        self.on_reconciling = self._passed_on(self._pulling.on_reconciling)
        self.on_let_in = self._passed_on(self._quotas.on_decided)
        self.on_sync_begun = self._passed_on(self._telling.on_sync_begun)
        self.on_cut_short = self._passed_on(self._telling.on_cut_short)

    def _passed_on(self, *parts: Callable[Concatenate[SimReplica, P], None]) -> Callable[Concatenate[SimReplica, P], None]:
        """Make the handler of an event of a correct replica that is passed on to parts."""

        def handle(replica: SimReplica, /, *args: P.args, **options: P.kwargs) -> None:
            if replica.id in self.correct:
                for part in parts:
                    part(replica, *args, **options)

        return handle

    def _fail(self, invariant: str, replica: SimReplica, detail: str) -> NoReturn:
        is_first = replica.topic == next(iter(replica.process.logs))
        raise Violation(invariant, replica.id if is_first else f"{replica.id}, {replica.topic},", replica.world.now, detail)

    # Commits

    def on_signed(self, replica: SimReplica, entries: Sequence[Entry]) -> None:
        """See `ReplicaObserver`."""
        for entry in entries:
            self.genuine[entry.key] = entry.value

    def on_commit(self, replica: SimReplica, entries: Sequence[tuple[int, Entry]]) -> None:
        """See `ReplicaObserver`."""
        if replica.id not in self.correct:
            return
        keys = self._keys[replica.id]
        for _, entry in entries:
            self._check_entry(replica, entry, keys)
            keys.add(entry.key)
            self._foreseen[replica.id].discard(entry.key)
        self._telling.on_commit(replica, [entry for _, entry in entries])
        self._law.on_commit(replica, [entry for _, entry in entries])

    def on_writing(self, replica: SimReplica, step: writing.Event | writing.Action) -> None:
        """See `ReplicaObserver`."""
        if replica.id in self.correct:
            self._writing.on_step(replica, step, self._keys[replica.id])

    def _is_blameless(self, peer: str) -> bool:
        return peer in self.correct or peer in self.strangers

    def _check_entry(self, replica: SimReplica, entry: Entry, keys: set[bytes], foreseen: Collection[bytes] = ()) -> None:
        if self.genuine.get(entry.key) != entry.value:
            self._fail("entry rules", replica, f"{entry.id} was stored and never signed")
        if entry.key in keys:
            self._fail("stored once", replica, f"{entry.id} was stored twice")
        for parent in entry.parent_keys:
            if parent not in keys and parent not in foreseen:
                self._fail("parents before children", replica, f"{entry.id} came before its parent {parent.hex()}")

    def on_acknowledged(self, replica: SimReplica, entries: Sequence[Entry]) -> None:
        """See `ReplicaObserver`."""
        if replica.id not in self.correct:
            return
        if not self._keys[replica.id].issuperset(entry.key for entry in entries):
            self._fail("what is acknowledged is stored", replica, f"of {len(entries)} entries some are not")
        if replica.spec.is_durable:
            self.acknowledged[replica.id].update(dict.fromkeys(entry.key for entry in entries))

    def on_appended(self, replica: SimReplica, entries: Sequence[Entry]) -> None:
        """See `ReplicaObserver`."""
        if replica.id not in self.correct:
            return
        self._spreading.on_new(replica, entries, self._telling.version(replica))
        self._spreading.on_unpublished(replica, entries)

    def on_recovered(self, replica: SimReplica) -> None:
        """See `ReplicaObserver`."""
        if replica.id not in self.correct:
            return
        self._syncing[replica.id] = {}
        self._fruitless = {pair: times for pair, times in self._fruitless.items() if pair[0] != replica.id}
        self._passed[replica.id] = set()
        self._foreseen[replica.id] = set()
        kept = self.acknowledged.setdefault(replica.id, {})
        keys: set[bytes] = set()
        entries = [Entry.decode(value) for value in replica.state.values]
        for entry in entries:
            self._check_entry(replica, entry, keys)
            keys.add(entry.key)
        self._keys[replica.id] = keys
        self._law.learn(entries)
        for part in self._parts:
            part.on_recovered(replica)
        self._telling.on_commit(replica, entries)
        for key in kept:
            if key not in keys:
                self._fail("no acknowledged append lost", replica, f"{key.hex()} is gone after a crash")
        self.check_log(replica)

    # Sent messages

    def on_action(self, replica: SimReplica, action: Action) -> None:
        """See `ReplicaObserver`."""
        if replica.id not in self.correct:
            return
        self.routers.on_action(replica, action)
        self._spreading.on_action(replica, action)
        kind = type(action)
        if kind is SendRpc:
            assert isinstance(action, SendRpc)
            for message in action.rpc.messages:
                if message.id not in self._passed[replica.id]:
                    self._check_committed(replica, message.data)
                    self._passed[replica.id].add(message.id)
        elif kind is Push:
            assert isinstance(action, Push)
            self._check_push(replica, action)
        elif isinstance(action, StartSync):
            self._check_start(replica, action.peer, action.token)
        elif isinstance(action, OpenPush):
            wire = replica.wires.get(action.peer)
            if wire is not None and wire.kind_for(replica) is PeerKind.CLIENT:
                self._fail("no push stream to a client", replica, f"asked for one to {action.peer}")
        elif isinstance(action, Ban):
            if self._is_blameless(action.peer):
                self._fail("no correct replica banned", replica, f"{action.peer}: {action.reason}")
            self._reputation.on_banned(replica, action.peer, action.until)

    def _check_committed(self, replica: SimReplica, data: bytes) -> bytes:
        event = decode_event(data)
        if not isinstance(event, Insert) or (event.key not in self._keys[replica.id] and event.key not in self._foreseen[replica.id]):
            self._fail("nothing sent before it is committed", replica, f"{event!r:.60}")
        assert isinstance(event, Insert)
        return event.key

    def _check_push(self, replica: SimReplica, push: Push) -> None:
        event = decode_event(push.data)
        if not isinstance(event, Insert):
            keys = self._keys[replica.id]
            if len(event.heads) > HEADS_MAX or event.heads != sorted(event.heads) or not keys.issuperset(event.heads):
                self._fail("heads are our own", replica, f"{len(event.heads)} heads pushed, not all of them committed or in order")
            self._spreading.on_told(replica, push.peers, self._telling.on_told(replica, push.peers, event.heads))
            return
        self._check_committed(replica, push.data)

    # Peers

    def on_foreseen(self, replica: SimReplica, source: PeerId, entry: Entry) -> None:
        """See `ReplicaObserver`."""
        if replica.id not in self.correct:
            return
        keys, foreseen = self._keys[replica.id], self._foreseen[replica.id]
        self._check_entry(replica, entry, keys, foreseen)
        foreseen.add(entry.key)
        self._spreading.on_foreseen(replica, entry)
        self._spreading.on_brought(replica, source, entry.key)

    def on_verdict(self, replica: SimReplica, source: PeerId, key: bytes, verdict: Verdict) -> None:
        """See `ReplicaObserver`."""
        if replica.id not in self.correct:
            return
        self._waiting.on_verdict(replica, verdict)
        self._quotas.on_decided(replica, source, [verdict])
        if verdict.entry is not None and verdict.outcome is not Outcome.REJECT:
            self._spreading.on_brought(replica, source, verdict.entry.key)
        if verdict.accepted and verdict.entry is not None:
            if verdict.entry.key not in self._keys[replica.id]:
                self._fail("what is accepted is stored", replica, verdict.entry.id)
            if verdict.is_new:
                self._spreading.on_new(replica, [verdict.entry], self._telling.version(replica))
                if source in replica.wires and replica.wires[source].kind_for(replica) is not PeerKind.MESH:
                    self._spreading.on_unpublished(replica, [verdict.entry])
        elif verdict.outcome is Outcome.REJECT:
            self._reputation.on_rejected(replica, source)
        if (verdict.rule == Rule.PARENTS or verdict.rule in LATER) and verdict.entry is not None and source in replica.wires:
            self._telling.on_announced(replica, source, [verdict.entry.key], self._keys[replica.id])
        if self._is_blameless(source) and verdict.outcome is Outcome.REJECT:
            self._fail("correct replicas send what is valid", replica, f"{source} sent what breaks {verdict.rule}: {verdict.reason}")

    def _check_start(self, replica: SimReplica, peer: PeerId, token: int) -> None:
        running, now = self._syncing[replica.id], replica.local_now()
        if peer in running or len(running) >= 4:
            self._fail("one sync a peer, four in all", replica, f"{peer} besides {sorted(running)}")
        if peer not in replica.wires:
            self._fail("syncs with connected peers", replica, f"{peer} is not connected")
        fruitless = [at for at in self._fruitless.get((replica.id, peer), []) if at > now - FRUITLESS_S]
        if len(fruitless) >= FRUITLESS_MAX:
            self._fail("fruitless syncs are put off", replica, f"{len(fruitless)} with {peer} have brought nothing within {FRUITLESS_S} s")
        running[peer] = token, len(self._keys[replica.id])
        self._telling.on_sync_started(replica, peer, token, self._keys[replica.id])

    def on_pushed(self, replica: SimReplica, peer: PeerId, data: bytes) -> None:
        """See `ReplicaObserver`."""
        if replica.id not in self.correct:
            return
        if peer in self.correct and isinstance(event := decode_event(data), Update):
            self._telling.on_update(replica, peer, event.heads)
            self._telling.on_announced(replica, peer, event.heads, self._keys[replica.id])
        self._spreading.on_pushed(replica, peer, data)

    def on_closed(self, replica: SimReplica, peer: PeerId) -> None:
        """A connection has closed, and the sync on it ends."""
        if replica.id in self.correct:
            self._syncing[replica.id].pop(peer, None)
            self._telling.on_closed(replica, peer)
            self._pulling.on_closed(replica, peer)
            self._spreading.on_push_closed(replica, peer)
            self.routers.on_closed(replica, peer)

    def on_serving(self, replica: SimReplica, peer: PeerId) -> None:
        """See `ReplicaObserver`."""
        if replica.id in self.correct and peer in self.correct:
            self._pulling.on_serving(replica, peer)

    def on_reconciled(self, replica: SimReplica, peer: PeerId, outcome: Reconciled) -> None:
        """See `ReplicaObserver`."""
        if replica.id not in self.correct or peer not in self.correct:
            return
        self._pulling.on_reconciled(replica, peer, outcome)
        if not outcome.fallback or outcome.fallback in REFUSED or self._pulling.is_misled(replica, peer, outcome):
            return
        # Once in some ten thousand sessions two elements are in the same of the first symbols. Then it is right to give up in the end.
        found = FUTILE.match(outcome.fallback)
        differences, symbols = map(int, found.groups()) if found else (0, 0)
        if (
            not found
            or differences > len(self._keys[replica.id] | self._keys[peer])
            or symbols < max(FUTILE_SYMBOLS * differences, LEAST_SYMBOLS)
        ):
            self._fail("correct replicas find their difference", replica, f"with {peer}, by the tree instead: {outcome.fallback}")

    def on_synced(self, replica: SimReplica, peer: PeerId, result: SyncResult, stream: Stream, token: int) -> None:
        """See `ReplicaObserver`."""
        if replica.id not in self.correct:
            return
        count_before = count = len(self._keys[replica.id])
        running = self._syncing[replica.id]
        if peer in running and running[peer][0] == token:
            count_before = running.pop(peer)[1]
        self._telling.on_synced(replica, peer, result, token)
        if token != NO_TOKEN:
            self._pulling.on_pulled(replica, peer, result)
        self._spreading.on_new(replica, result.spreads, self._telling.version(replica), peer)
        if result.rejected or result.ending is Ending.VIOLATION:
            # Breaking the protocol is one offence, whatever else was in the session.
            self._reputation.on_rejected(replica, peer, 1 if result.ending is Ending.VIOLATION else result.rejected)
        pair = (replica.id, peer)
        if result.entries:
            self._fruitless.pop(pair, None)
        elif result.ending is Ending.COMPLETE and peer not in self.correct and count == count_before:
            self._fruitless.setdefault(pair, deque(maxlen=FRUITLESS_MAX)).append(replica.local_now())
        if self._is_blameless(peer) and (result.ending is Ending.VIOLATION or result.rejected):
            self._fail("no correct replica caught lying", replica, f"in a sync {peer} {result.reason or 'sent what is invalid'}")
        if stream in self.lied and result.ending is Ending.COMPLETE:
            self._fail("a lie in a sync is noticed", replica, f"{peer} lied, and the sync went to its end")

    # States

    def check_log(self, replica: SimReplica) -> None:
        """Compare a replica's stored entries with its commits, and its parts with each other. O(entries)."""
        state, keys = replica.state, self._keys[replica.id]
        stored = {key: leaf_hash(key, value) for key, value in ((Entry.stored(value).key, value) for value in state.values)}
        leaves = list(state.tree.leaves())
        if set(stored) != keys or state.answer(ReadCount())[0] != len(keys):
            self._fail("what was committed is stored", replica, f"{len(stored)} entries stored, {len(keys)} committed")
        if {leaf.key: leaf.hash for leaf in leaves} != stored or [leaf.key for leaf in leaves] != sorted(keys):
            self._fail("database set = tree set", replica, f"{len(stored)} entries stored, {len(leaves)} leaves")
        parents = {parent for key in keys for parent in Entry(key, self.genuine[key]).parent_keys}
        heads = sorted(keys - parents)
        if state.answer(ReadHeads()) != heads:
            self._fail("heads = true sinks", replica, f"{len(state.answer(ReadHeads()))} heads, expected {len(heads)}")
        root = state.tree.root
        if root.hash not in self._trees:
            if MemoryTree.build([Node(0, leaf.key, leaf.hash) for leaf in leaves]).root != root:
                self._fail("the tree is that of its leaves", replica, f"root {root.hash.hex()}")
            self._trees.add(root.hash)
        self._law.check_log(replica, list(stored))

    def check_limits(self, replica: SimReplica) -> None:
        """Compare the sizes of all containers that peers can feed with their maxima. No correct replica may have an offence, either."""
        state = replica.machine.state()
        for peer in state.offences:
            if self._is_blameless(peer):
                self._fail("no correct replica blamed", replica, f"{peer} has {state.offences[peer]} offences")
        for sizes, sizes_max in ((state.sizes, state.sizes_max), (state.router.sizes, state.router.sizes_max)):
            for name, size in sizes.items():
                if size > sizes_max[name]:
                    self._fail("queues and caches within their limits", replica, f"{name} has {size}, at most {sizes_max[name]}")
        left = [name for name in ("pending", "pushed_per_peer", "asked") if replica.is_idle and state.sizes[name]]
        if left or (state.sizes["orphan_bytes"] and not state.sizes["orphans"]):
            self._fail("what is over is forgotten", replica, f"nothing is under way, and {left or 'orphan_bytes'} are {state.sizes}")

    def sample(self) -> None:
        """Check all correct replicas while none of them is in the middle of an event."""
        routers = self.routers.sample()
        for replica in self.correct.values():
            if not replica.is_up:
                continue
            self._telling.sample(replica, self._keys[replica.id])
            self._spreading.sample(replica)
            self._writing.sample(replica)
            self._waiting.sample(replica, self._keys[replica.id], is_syncing=bool(self._syncing[replica.id]))
            self._reputation.sample(replica, routers[replica.id])
            self._quotas.sample(replica)
            running = self._syncing[replica.id]
            if len(running) > replica.machine.state().sizes["syncs"]:
                self._fail("a sync is over when it is over", replica, f"with {sorted(running)}: of some it does not know that they run")

    def has_converged(self) -> bool:
        """Return whether the roots of all correct replicas are equal."""
        roots = {replica.state.tree.root for replica in self.correct.values()}
        return len(roots) <= 1

    def check_end(self) -> None:
        """Check the invariants of the end."""
        union: set[bytes] = set()
        for replica in self.correct.values():
            self.check_log(replica)
            self.check_limits(replica)
            union |= self._keys[replica.id]
        for replica in self.correct.values():
            for key in self.acknowledged[replica.id]:
                if key not in union:
                    self._fail("no acknowledged append lost", replica, f"{key.hex()} is nowhere")
            lacking = len(union - self._keys[replica.id])
            if replica.spec.founding:
                self._law.check_members(replica)
            if lacking:
                self._fail("same root and ids everywhere", replica, f"{lacking} of {len(union)} entries are missing for good")


class LawInvariants:
    """Invariants of applications and of the access rule, checked only from signed entries.

    Source: docs/spec/applications.md, "The law".

    Args:
        genuine: The VALUE of every signed entry, by key, kept by the caller.
    """

    def __init__(self, genuine: Mapping[bytes, bytes], fail: Fail) -> None:
        self._genuine = genuine
        self._fail = fail
        self._refused: dict[bytes, bool] = {}
        # What came of judging a log anew, by the hash of its root; of the last one.
        self._judged: dict[bytes, tuple[list[str], set[bytes]]] = {}
        self._poison: set[bytes] = set()
        self._authors: dict[bytes, str] = {}

    def on_commit(self, replica: SimReplica, entries: Sequence[Entry]) -> None:
        """Check entries that came into a correct replica's log."""
        log = replica.log
        self.learn(entries)
        for entry in entries:
            if log.rule is not None and self._is_refused(entry):
                self._fail("what the access rule refuses is not stored", replica, f"{entry.id} refers to what is not in its past")
            is_raised_about = log.application is not None and entry.key in self._poison and entry.author == replica.signer.did
            # An append is void from the start, and not applied, if the same transaction brings the removal of its author.
            if is_raised_about and not (replica.spec.founding and read_void(log.state, [entry.key])):
                self._fail("an append that apply raises about is not stored", replica, entry.id)

    def learn(self, entries: Sequence[Entry]) -> None:
        """Note the authors of entries and whether they can be applied, wherever they were found."""
        for entry in entries:
            if entry.key not in self._authors:
                self._authors[entry.key] = entry.author
                if find_poison(entry) is not None:
                    self._poison.add(entry.key)

    def on_refused(self, replica: SimReplica, entries: Sequence[Entry]) -> None:
        """Check entries that a correct replica's access rule itself refused, not because of a parent."""
        for entry in () if replica.spec.founding else entries:
            if not self._is_refused(entry):
                self._fail("what the access rule allows is not refused", replica, f"{entry.id} of {entry.author}")

    def check_log(self, replica: SimReplica, keys: Sequence[bytes]) -> None:
        """Compare the entries that a correct replica has applied or set aside with those it holds, in order of insertion. O(entries)."""
        state = replica.log.state
        if run_plan(_first_quarantined(), state.answer):
            self._fail("nothing that apply raises about is quarantined", replica, "the quarantine is not empty")
        applied = run_plan(find_applied(NAME), state.answer)
        if applied is None or (replica.log.application is None and not applied.version):
            # In the second case the tables are built anew by the next process that has the application: something in them is void.
            return
        if applied.behind is not None and replica.log.application is not None and not replica.log.is_behind:
            self._fail("no application is stopped", replica, f"it has got to {applied.behind} of {len(keys)} entries")
        keys, did = keys[: applied.behind], replica.signer.did
        if replica.spec.founding:
            # Neither control entries nor what is void.
            void = read_void(state, keys)
            keys = [key for key in keys if key not in void and not is_control(Entry(key, self._genuine[key]))]
        expected = self._poison.intersection(keys)
        if role_of(did) is Role.BROKEN:
            expected.update(key for key in keys if self._authors[key] != did)
        aside = {record.key for record in run_plan(read_set_aside(NAME), state.answer)}
        if aside != expected:
            detail = f"{len(aside)} entries set aside, {len(expected)} cannot be applied"
            self._fail("what cannot be applied is set aside, and nothing else", replica, detail)
        rows, written = state.rows, [key for key in keys if key not in expected]
        if rows != written and not (replica.spec.founding and sorted(rows) == sorted(written)):
            detail = f"{len(state.rows)} rows of {len(keys) - len(expected)} entries"
            self._fail("all other entries are applied, once, in their order", replica, detail)

    def check_members(self, replica: SimReplica) -> None:
        """Judge what a correct replica holds once more, in another order, and compare what is void."""
        values, root = replica.state.values, replica.state.tree.root.hash
        if root not in self._judged:
            # The answer is that of the set alone, so replicas with equal trees share it.
            self._judged = {root: judge_anew(replica.spec.topic, values)}
        refused, void = self._judged[root]
        if refused:
            self._fail("what does not belong is not stored", replica, f"{refused[0]} and {len(refused) - 1} more")
        keys = [Entry.stored(value).key for value in values]
        if (found := read_void(replica.log.state, keys)) != void:
            self._fail("what is void follows from the log alone", replica, f"{len(found)} are void, {len(void)} in the order of keys")

    def _is_refused(self, entry: Entry) -> bool:
        """Follow the edges of the graph, one after the other, to the entry referred to."""
        known = self._refused.get(entry.key)
        if known is None:
            reference = reference_of(entry.payload)
            known = self._refused[entry.key] = reference is not None and not self._is_behind(decode_id(reference), entry.parent_keys)
        return known

    def _is_behind(self, key: bytes, parents: Sequence[bytes]) -> bool:
        seen = set(parents)
        queue = list(seen)
        while queue:
            at = queue.pop()
            if at == key:
                return True
            # Keys sort in causal order, so it cannot be an ancestor of a smaller key.
            fresh = {parent for parent in Entry(at, self._genuine[at]).parent_keys if parent >= key} - seen
            seen |= fresh
            queue += fresh
        return False


def _first_quarantined() -> Any:
    return (yield ReadQuarantine(None, 1))
