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
| no push stream to a WebSocket client; no entry goes back to a peer that brought it | every action |
| at most 4 syncs, one per peer, and fewer and fewer with a peer that announces entries that do not exist (`pulling`) | every sync |
| no correct replica is rejected, blamed, caught lying, or banned by another | every verdict, sync and ban, samples |
| a lie in a sync is noticed; if correct replicas reconcile, symbols find their difference | the end of each sync |
| new entries are published and pushed at once, to each peer once (`spreading`) | every verdict, acknowledgement and sync; samples |
| two peers reconcile once at a time; a failure is not repeated at once; a wrong sketch misleads only once (`pulling`) | each sync |
| orphans' parents are looked for, and no orphan waits for a decided parent (`waiting`) | samples |
| an invalid entry is an offence; five are a ban, which lasts; no correct peer has a bad score (`reputation`) | verdicts; samples |
| accepted and acknowledged entries are stored; entries refused by a disk are synced for | every verdict and acknowledgement; samples |
| work is committed in order and answered once, with an error only if it is to blame (`writing_invariants`) | every step; samples |
| clients stay within their quotas, and entries within a quota are let in; stored entries are counted (`quotas`) | every verdict; samples |
| the log does not depend on `apply`: entries it raises on are in the log, set aside, and hinder nothing | every recovery, the end |
| entries that the access rule refuses are in no log, and no peer is blamed for them | every commit, verdict, sync and ban, samples |
| entries that do not belong are not stored; void entries follow from the log and are not applied (`cheating`) | every recovery, the end |
| all replicas have the same root and ids | the end |

Source: docs/spec/simulator.md, "The whole log under faults".
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ...access import is_control
from ...broadcast.actions import Action, OpenPush, Push
from ...broadcast.events import PeerKind
from ...entry.message import Entry
from ...entry.message_id import decode_id
from ...entry.validation import Verdict
from ...log.applying import find_applied, read_set_aside
from ...log.requests import ReadCount, ReadHeads, ReadQuarantine
from ...plan import run_plan
from ...pubsub.actions import SendRpc
from ...pubsub.types import MessageId, PeerId
from ...sync.rpc import HEADS_MAX, Event, Insert
from ...sync.wire import decode_event
from ...tree.memory import MemoryTree
from ...tree.node import Node, leaf_hash
from .cheating import judge_anew, read_void
from .checker import Checker, Run
from .law import NAME, Role, find_poison, reference_of, role_of
from .observer import ReplicaObserver
from .pulling import PullingInvariants
from .quotas import QuotaInvariants
from .replica import SimReplica
from .reputation import ReputationInvariants
from .router_invariants import RouterInvariants
from .spreading import SpreadingInvariants
from .telling import TellingInvariants
from .waiting import WaitingInvariants
from .writing_invariants import WritingInvariants


class Invariants:
    """Watches all replicas of a run. It learns from signed and committed entries, never from the code that it checks."""

    def __init__(self) -> None:
        self.run = Run()
        self._law = Law(self.run.genuine)
        self._trees: set[bytes] = set()
        self._checkers: dict[PeerId, tuple[Checker, ...]] = {}
        self._routers: dict[PeerId, RouterInvariants] = {}

    def on_signed(self, entries: Sequence[Entry]) -> None:
        """See `Watch`."""
        self.run.genuine.update((entry.key, entry.value) for entry in entries)

    def on_started(self, replica: SimReplica) -> Sequence[ReplicaObserver]:
        """See `Watch`. Only correct replicas are observed."""
        run = self.run
        if replica.id not in run.correct:
            return ()
        run.keys[replica.id] = set()
        entries = [Entry.decode(value) for value in replica.state.values]
        log, telling = LogInvariants(replica, run, self._trees), TellingInvariants(replica, run)
        routers = self._routers[replica.id] = RouterInvariants(replica, run, self._routers.get(replica.id))
        self._checkers[replica.id] = checkers = (
            log,
            LawInvariants(replica, run, self._law),
            telling,
            SpreadingInvariants(replica, run, telling),
            WaitingInvariants(replica, run, telling),
            WritingInvariants(replica, run),
            ReputationInvariants(replica, run),
            PullingInvariants(replica, run),
            QuotaInvariants(replica, run),
            routers,
        )
        log.on_commit(entries)
        self._law.learn(entries)
        telling.on_commit(entries)
        log.check_kept()
        for checker in checkers:
            checker.check_log()
        return checkers

    def sample(self) -> None:
        """Check all correct replicas while none of them is in the middle of an event."""
        up = [replica for replica in self.run.correct.values() if replica.is_up]
        self.run.states = {replica.id: replica.shared.router.state() for replica in up}
        for replica in up:
            for checker in self._checkers[replica.id]:
                checker.sample()

    def check_limits(self, replica: SimReplica) -> None:
        """Compare the sizes of all containers that peers can feed with their maxima. No correct replica may have an offence, either."""
        for checker in self._checkers[replica.id]:
            checker.check_limits()

    def has_converged(self) -> bool:
        """Return whether the roots of all correct replicas are equal."""
        roots = {replica.state.tree.root for replica in self.run.correct.values()}
        return len(roots) <= 1

    def check_end(self) -> None:
        """Check the invariants of the end."""
        for replica in self.run.correct.values():
            for checker in self._checkers[replica.id]:
                checker.check_log()
                checker.check_limits()
        union: set[bytes] = set().union(*self.run.keys.values())
        for replica in self.run.correct.values():
            for checker in self._checkers[replica.id]:
                checker.check_end(union)


class LogInvariants(Checker):
    """Invariants of a replica's entries: what is committed, sent, and stored.

    Args:
        trees: The hashes of the roots of trees that are those of their leaves, shared by all replicas.
    """

    def __init__(self, replica: SimReplica, run: Run, trees: set[bytes]) -> None:
        super().__init__(replica, run)
        self._trees = trees
        self._kept = run.acknowledged.setdefault(replica.id, {})
        # Entries that are forwarded before they are stored, and messages of which it is known that they may be sent.
        self._foreseen: set[bytes] = set()
        self._passed: set[MessageId] = set()

    def on_commit(self, entries: Sequence[Entry]) -> None:
        """Each entry must obey the rules, be new, and come after its parents."""
        for entry in entries:
            self._check_entry(entry)
            self.keys.add(entry.key)
            self._foreseen.discard(entry.key)

    def _check_entry(self, entry: Entry, foreseen: Collection[bytes] = ()) -> None:
        if self.run.genuine.get(entry.key) != entry.value:
            self.fail("entry rules", f"{entry.id} was stored and never signed")
        if entry.key in self.keys:
            self.fail("stored once", f"{entry.id} was stored twice")
        for parent in entry.parent_keys:
            if parent not in self.keys and parent not in foreseen:
                self.fail("parents before children", f"{entry.id} came before its parent {parent.hex()}")

    def check_kept(self) -> None:
        """Check, after a start, that the log has everything that it must keep."""
        for key in self._kept:
            if key not in self.keys:
                self.fail("no acknowledged append lost", f"{key.hex()} is gone after a crash")

    def on_acknowledged(self, entries: Sequence[Entry]) -> None:
        """The entries must be stored, and kept if the log is durable."""
        if not self.keys.issuperset(entry.key for entry in entries):
            self.fail("acknowledged appends are stored", f"of {len(entries)} entries some are not")
        if self.replica.spec.is_durable:
            self._kept.update(dict.fromkeys(entry.key for entry in entries))

    def on_foreseen(self, source: PeerId, entry: Entry) -> None:
        """The entry must be one that will be stored."""
        self._check_entry(entry, self._foreseen)
        self._foreseen.add(entry.key)

    def on_verdict(self, source: PeerId, verdict: Verdict) -> None:
        """An accepted entry must be stored."""
        if verdict.accepted and verdict.entry is not None and verdict.entry.key not in self.keys:
            self.fail("accepted entries are stored", verdict.entry.id)

    # Sent messages

    def on_action(self, action: Action) -> None:
        """What is sent must be committed or foreseen."""
        match action:
            case SendRpc(_, rpc, _):
                for message in rpc.messages:
                    if message.id not in self._passed:
                        self._check_sent(decode_event(message.data))
                        self._passed.add(message.id)
            case Push(_, data):
                event = decode_event(data)
                if isinstance(event, Insert):
                    self._check_sent(event)
                elif len(event.heads) > HEADS_MAX or event.heads != sorted(event.heads) or not self.keys.issuperset(event.heads):
                    self.fail("heads are our own", f"{len(event.heads)} heads pushed, not all of them committed or in order")
            case OpenPush(peer):
                wire = self.replica.wires.get(peer)
                if wire is not None and wire.kind_for(self.replica) is PeerKind.CLIENT:
                    self.fail("no push stream to a client", f"asked for one to {peer}")
            case _:
                pass

    def _check_sent(self, event: Event) -> None:
        if not isinstance(event, Insert) or (event.key not in self.keys and event.key not in self._foreseen):
            self.fail("nothing sent before it is committed", f"{event!r:.60}")

    # States

    def check_log(self) -> None:
        """Compare the stored entries with the commits, and the log's parts with each other."""
        state, keys = self.replica.state, self.keys
        stored = {key: leaf_hash(key, value) for key, value in ((Entry.stored(value).key, value) for value in state.values)}
        leaves = list(state.tree.leaves())
        if set(stored) != keys or state.answer(ReadCount())[0] != len(keys):
            self.fail("committed entries are stored", f"{len(stored)} entries stored, {len(keys)} committed")
        if {leaf.key: leaf.hash for leaf in leaves} != stored or [leaf.key for leaf in leaves] != sorted(keys):
            self.fail("database set = tree set", f"{len(stored)} entries stored, {len(leaves)} leaves")
        parents = {parent for key in keys for parent in Entry(key, self.run.genuine[key]).parent_keys}
        heads = sorted(keys - parents)
        if state.answer(ReadHeads()) != heads:
            self.fail("heads = true sinks", f"{len(state.answer(ReadHeads()))} heads, expected {len(heads)}")
        root = state.tree.root
        if root.hash not in self._trees:
            if MemoryTree.build([Node(0, leaf.key, leaf.hash) for leaf in leaves]).root != root:
                self.fail("the tree is that of its leaves", f"root {root.hash.hex()}")
            self._trees.add(root.hash)

    def check_limits(self) -> None:
        """Compare the sizes of all containers that peers can feed with their maxima. No correct replica may have an offence, either."""
        state = self.replica.machine.state()
        for peer in state.offences:
            if self.run.is_blameless(peer):
                self.fail("no correct replica blamed", f"{peer} has {state.offences[peer]} offences")
        for sizes, sizes_max in ((state.sizes, state.sizes_max), (state.router.sizes, state.router.sizes_max)):
            for name, size in sizes.items():
                if size > sizes_max[name]:
                    self.fail("queues and caches within their limits", f"{name} has {size}, at most {sizes_max[name]}")
        left = [name for name in ("pending", "pushed_per_peer", "asked") if self.replica.is_idle and state.sizes[name]]
        if left or (state.sizes["orphan_bytes"] and not state.sizes["orphans"]):
            self.fail("finished work is forgotten", f"nothing is under way, and {left or 'orphan_bytes'} are {state.sizes}")

    def check_end(self, union: Collection[bytes]) -> None:
        """Check that the replica has all entries, and that nothing acknowledged is lost."""
        for key in self._kept:
            if key not in union:
                self.fail("no acknowledged append lost", f"{key.hex()} is nowhere")
        lacking = len(union) - len(self.keys)
        if lacking:
            self.fail("same root and ids everywhere", f"{lacking} of {len(union)} entries are missing for good")


class Law:
    """What the access rule and applications have to do with entries, computed only from signed entries, for all replicas of a run.

    Args:
        genuine: The VALUE of every signed entry, by key, kept by the caller.

    Attributes:
        poison: Keys of entries that cannot be applied.
        authors: The author of each entry.
    """

    def __init__(self, genuine: Mapping[bytes, bytes]) -> None:
        self._genuine = genuine
        self.poison: set[bytes] = set()
        self.authors: dict[bytes, str] = {}
        self._refused: dict[bytes, bool] = {}
        # The last log judged again: the hash of its root, and what came of it. It is a function of the set alone.
        self._judged: tuple[bytes, tuple[list[str], set[bytes]]] = b"", ([], set())

    def learn(self, entries: Sequence[Entry]) -> None:
        """Note the authors of entries and whether they can be applied, wherever they were found."""
        for entry in entries:
            if entry.key not in self.authors:
                self.authors[entry.key] = entry.author
                if find_poison(entry) is not None:
                    self.poison.add(entry.key)

    def judge(self, topic: str, values: Sequence[bytes], root: bytes) -> tuple[list[str], set[bytes]]:
        """Judge the entries of a log with members in the order of their keys: see `judge_anew`."""
        if root != self._judged[0]:
            self._judged = root, judge_anew(topic, values)
        return self._judged[1]

    def is_refused(self, entry: Entry) -> bool:
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


class LawInvariants(Checker):
    """Invariants of a replica's application and of the access rule.

    Source: docs/spec/applications.md, "The law".
    """

    def __init__(self, replica: SimReplica, run: Run, law: Law) -> None:
        super().__init__(replica, run)
        self._law = law

    def on_commit(self, entries: Sequence[Entry]) -> None:
        """No entry may be refused. No append may be one on which the replica's own application raises."""
        log, law = self.replica.log, self._law
        law.learn(entries)
        for entry in entries:
            if log.rule is not None and law.is_refused(entry):
                self.fail("entries that the access rule refuses are not stored", f"{entry.id} refers to an entry that is not in its past")
            is_raised_about = log.application is not None and entry.key in law.poison and entry.author == self.replica.signer.did
            # An append is void from the start, and not applied, if the same transaction brings the removal of its author.
            if is_raised_about and not (self.replica.spec.founding and read_void(log.state, [entry.key])):
                self.fail("an append that apply raises on is not stored", entry.id)

    def on_refused_entries(self, entries: Sequence[Entry]) -> None:
        """They must be refused for themselves, not because of a parent."""
        for entry in () if self.replica.spec.founding else entries:
            if not self._law.is_refused(entry):
                self.fail("entries that the access rule allows are not refused", f"{entry.id} of {entry.author}")

    def check_log(self) -> None:
        """Compare the entries that are applied or set aside with those that the log holds, in order of insertion."""
        state, log, law = self.replica.log.state, self.replica.log, self._law
        if run_plan(_first_quarantined(), state.answer):
            self.fail("no entry that apply raises on is quarantined", "the quarantine is not empty")
        applied = run_plan(find_applied(NAME), state.answer)
        if applied is None or (log.application is None and not applied.version):
            # In the second case an entry in the tables has become void, so the next process with the application rebuilds them.
            return
        keys, did = [Entry.stored(value).key for value in state.values], self.replica.signer.did
        if applied.behind is not None and log.application is not None and not log.is_behind:
            self.fail("no application is stopped", f"it has got to {applied.behind} of {len(keys)} entries")
        keys = keys[: applied.behind]
        if self.replica.spec.founding:
            # Neither control entries nor what is void.
            void = read_void(state, keys)
            keys = [key for key in keys if key not in void and not is_control(Entry(key, self.run.genuine[key]))]
        expected = law.poison.intersection(keys)
        if role_of(did) is Role.BROKEN:
            expected.update(key for key in keys if law.authors[key] != did)
        aside = {record.key for record in run_plan(read_set_aside(NAME), state.answer)}
        if aside != expected:
            detail = f"{len(aside)} entries set aside, {len(expected)} cannot be applied"
            self.fail("exactly the entries that cannot be applied are set aside", detail)
        rows, written = state.rows, [key for key in keys if key not in expected]
        if rows != written and not (self.replica.spec.founding and sorted(rows) == sorted(written)):
            detail = f"{len(rows)} rows of {len(written)} entries"
            self.fail("all other entries are applied, once, in their order", detail)

    def check_end(self, union: Collection[bytes]) -> None:
        """If the log has members, judge what it holds once more, in another order, and compare what is void."""
        if not self.replica.spec.founding:
            return
        state = self.replica.state
        refused, void = self._law.judge(self.replica.topic, state.values, state.tree.root.hash)
        if refused:
            self.fail("entries that do not belong are not stored", f"{refused[0]} and {len(refused) - 1} more")
        if (found := read_void(state, [Entry.stored(value).key for value in state.values])) != void:
            self.fail("void entries follow from the log alone", f"{len(found)} are void, {len(void)} in the order of keys")


def _first_quarantined() -> Any:
    return (yield ReadQuarantine(None, 1))
