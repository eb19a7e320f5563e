"""Twenty bugs of the kind that such code has had, each planted by replacing one function for the length of a run.

`python tests/sim/planted_bugs.py [SEEDS]` looks for the first seed that catches each, and prints the list; `seed` below is a small one that
does it soon.
A bug counts as caught when `run_check` fails with it on that seed and passes without it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

from gossiplog.broadcast import intake as intake_module
from gossiplog.broadcast import pushes as pushes_module
from gossiplog.broadcast.certain_entries import CertainEntries
from gossiplog.broadcast.events import PeerKind
from gossiplog.broadcast.peers import LogPeer
from gossiplog.broadcast.pushes import Pushes
from gossiplog.broadcast.spreading import Spreading
from gossiplog.broadcast.wanted_syncs import WantedSyncs
from gossiplog.entry import validation
from gossiplog.entry.validation import Outcome, Rule, Verdict
from gossiplog.log.commit import _Batch
from gossiplog.log.requests import Leaf
from gossiplog.plan import Plan
from gossiplog.sim.check import log_on_disk
from gossiplog.sim.check.check import SeedFailure, run_check
from gossiplog.sim.check.disk import Disk
from gossiplog.store.memory.state import MemoryState
from gossiplog.sync import checked as checked_module
from gossiplog.sync import schedule as schedule_module
from gossiplog.sync.rpc import Insert
from gossiplog.sync.schedule import SyncSchedule
from gossiplog.sync.wire import encode_event
from gossiplog.tree.memory import MemoryTree


@dataclass(frozen=True)
class PlantedBug:
    """Attributes: `seed`, one that catches it, if any; `name`; `what` goes wrong; `plant` puts it in place for a while."""

    seed: int | None
    name: str
    what: str
    plant: Callable[[], AbstractContextManager[None]]

    @property
    def is_quick(self) -> bool:
        """It is caught early, so that every test run can see to it."""
        return self.seed is not None and self.seed < 5


@contextmanager
def replaced(owner: Any, name: str, make: Callable[[Any], Any]) -> Iterator[None]:
    """Replace an attribute, which may be inherited, by what `make` makes of it."""
    is_own = name in owner.__dict__
    original = owner.__dict__[name] if is_own else getattr(owner, name)
    setattr(owner, name, make(original))
    try:
        yield
    finally:
        if is_own:
            setattr(owner, name, original)
        else:
            delattr(owner, name)


def instead(owner: Any, name: str, value: Any) -> Callable[[], AbstractContextManager[None]]:
    return lambda: replaced(owner, name, lambda _: value)


def around(owner: Any, name: str, make: Callable[[Any], Any]) -> Callable[[], AbstractContextManager[None]]:
    return lambda: replaced(owner, name, make)


def nothing(*_: Any, **__: Any) -> None:
    return None


def always(*_: Any) -> bool:
    return True


def insert_orphans(judge: Any) -> Any:
    def broken(self: Any, entry: Any, is_retry: bool) -> Plan[Verdict]:
        verdict: Verdict = yield from judge(self, entry, is_retry)
        if verdict.rule != Rule.PARENTS:
            return verdict
        for parent in entry.parent_keys:
            self._leaves.setdefault(parent, Leaf(0, 0))
        self._tips.setdefault(0, 0)
        return Verdict(Outcome.ACCEPT, entry=entry, is_new=True)

    return broken


def insert_twice(judge: Any) -> Any:
    def broken(self: Any, entry: Any, is_retry: bool) -> Plan[Verdict]:
        verdict: Verdict = yield from judge(self, entry, is_retry)
        return Verdict(Outcome.ACCEPT, entry=entry, is_new=True) if verdict.accepted else verdict

    return broken


def keep_merged_heads(write: Any) -> Any:
    def broken(self: Any) -> Any:
        # Right for one entry at a time, wrong for a batch whose entries merge heads one after the other.
        if len(self._merged) > 3:
            self._merged.popitem()
        return write(self)

    return broken


def forget_a_leaf(apply: Any) -> Any:
    def broken(self: Any, change: Any, put: Any = (), remove: Any = ()) -> None:
        leaves = list(put)
        apply(self, change, leaves[:-1] if len(leaves) > 20 else leaves, remove)

    return broken


def keep_stale_nodes(apply: Any) -> Any:
    def broken(self: Any, change: Any, put: Any = (), remove: Any = ()) -> None:
        apply(self, type(change)(change.root, change.put, []), put, remove)

    return broken


def trust_the_topic(validate: Any) -> Any:
    return lambda value, *, topic: validate(value)


def trust_the_key(_: Any, verdict: Verdict) -> Verdict:
    return verdict


def remember_claimed_key(on_rejected: Any) -> Any:
    def broken(self: Any, pending: Any, verdict: Verdict) -> None:
        self.rejected.add(pending.key)
        on_rejected(self, pending, verdict)

    return broken


def blame_for_orphans(on_orphan: Any) -> Any:
    def broken(self: Any, pending: Any, verdict: Any) -> None:
        on_orphan(self, pending, verdict)
        self._blame(pending.source, "orphan")

    return broken


def push_back_to_source(insert: Any) -> Any:
    return lambda self, data, kinds, owners: insert(self, data, kinds, {})


def keep_pushes_of_clients(self: Any, pending: Any, entry: Any, sources: Any) -> None:
    data = encode_event(Insert(entry.key, entry.value))
    if pending.message_id is not None:
        self._pushes.changes += 1
        self._pushes.insert(data, (PeerKind.CLIENT,), {pending.source: pending.opened})


def open_push_to_everybody(init: Any) -> Any:
    def broken(self: Any, *args: Any) -> None:
        init(self, *args)
        self.opens_push = self.kind is not PeerKind.MESH or self.is_outbound

    return broken


def forget_pending_sync(want: Any) -> Any:
    def broken(self: Any, peer: Any, group: Any, now: float) -> Any:
        record = self._records.get(peer)
        return [] if record is not None and record.is_active else want(self, peer, group, now)

    return broken


def tell_heads_only_while_source_is_here(on_finished: Any) -> Any:
    def broken(self: Any, event: Any) -> None:
        if event.peer in self._peers:
            on_finished(self, event)

    return broken


def lose_last_transaction(recover: Any) -> Any:
    def broken(self: Any) -> MemoryState:
        self._transactions = self._transactions[:-1]
        return recover(self)

    return broken


def keep_slot_of_the_gone(self: Any, peer: Any) -> list[bytes]:
    if self._needs.pop(peer, None) is not None:
        self._undefer()
    return []


def stay_silent_about_other_sources(on_orphan: Any) -> Any:
    def broken(self: Any, pending: Any, verdict: Any) -> None:
        on_orphan(self, pending, verdict)
        self.orphans._messages.clear()

    return broken


PLANTED_BUGS: Sequence[PlantedBug] = (
    PlantedBug(0, "orphans are inserted", "an entry is stored before its parents", around(_Batch, "_judge", insert_orphans)),
    PlantedBug(0, "orphans start no sync", "an orphan is ignored and forgotten", instead(Spreading, "_on_orphan", nothing)),
    PlantedBug(0, "orphans are blamed", "IGNORE counts as REJECT", around(Spreading, "_on_orphan", blame_for_orphans)),
    PlantedBug(
        0,
        "no heads on connect",
        "update(heads) is not sent on a new connection",
        instead(Pushes, "on_opened", lambda self, peer: setattr(peer, "is_push_open", True)),
    ),
    PlantedBug(2, "no heads after sync", "what a sync brought is told to nobody", instead(Pushes, "heads_to_all_but", nothing)),
    PlantedBug(
        13,
        "no heads after a broken sync",
        "what a sync brought before its source left is told to nobody",
        around(Spreading, "_on_sync_finished", tell_heads_only_while_source_is_here),
    ),
    PlantedBug(
        5,
        "pending sync is forgotten",
        "what is announced during a sync is not synced for",
        around(SyncSchedule, "want", forget_pending_sync),
    ),
    PlantedBug(
        2,
        "slot of the gone is kept",
        "a sync with a peer that left occupies its place for ever",
        instead(WantedSyncs, "on_left", keep_slot_of_the_gone),
    ),
    PlantedBug(18, "fruitless syncs go on", "inventing heads costs nothing", instead(schedule_module, "FRUITLESS_MAX", 10**9)),
    PlantedBug(46, "lies go unnoticed", "the children of a node are not checked", instead(checked_module, "check_children", nothing)),
    PlantedBug(0, "server without snapshot", "a session sees the log change", instead(MemoryState, "snapshot", lambda self: self)),
    PlantedBug(
        9,
        "claimed keys are remembered",
        "a forgery under an honest key keeps the honest entry out",
        around(Spreading, "_on_rejected", remember_claimed_key),
    ),
    PlantedBug(
        24,
        "signatures go unchecked",
        "anybody writes in anybody's name",
        instead(validation, "_verify", lambda claim: Verdict(Outcome.ACCEPT, entry=claim.entry)),
    ),
    PlantedBug(36, "topics go unchecked", "entries of another log are taken", around(log_on_disk, "validate", trust_the_topic)),
    PlantedBug(1, "hub echoes", "a client gets back what it pushed", around(Pushes, "insert", push_back_to_source)),
    PlantedBug(7, "hub keeps pushes", "what a client pushed is passed on to nobody", instead(Spreading, "_spread", keep_pushes_of_clients)),
    PlantedBug(1, "push stream to a client", "a hub opens one", around(LogPeer, "__init__", open_push_to_everybody)),
    PlantedBug(19, "fsync is forgotten", "a commit is acknowledged before it is on the disk", instead(Disk, "sync", nothing)),
    PlantedBug(4, "merged heads stay", "a batch that merges many heads leaves one of them", around(_Batch, "write", keep_merged_heads)),
    PlantedBug(0, "stale tree nodes", "nodes that a change removes stay in the tree", around(MemoryTree, "apply", keep_stale_nodes)),
)
"""The twenty that count."""

FURTHER_BUGS: Sequence[PlantedBug] = (
    PlantedBug(1, "entries are inserted twice", "a duplicate is new", around(_Batch, "_judge", insert_twice)),
    PlantedBug(0, "leaf is forgotten", "the last entry of a large batch is not in the tree", around(MemoryTree, "apply", forget_a_leaf)),
    PlantedBug(
        9, "keys go unchecked", "an entry is taken under any key", instead(intake_module, "_check_key", lambda entry, verdict: verdict)
    ),
    PlantedBug(0, "foresight is hope", "what is valid is passed on without its parents", instead(CertainEntries, "foresees", always)),
    PlantedBug(21, "last transaction is lost", "recovery stops one too early", around(Disk, "recover", lose_last_transaction)),
    PlantedBug(
        None,
        "other sources are forgotten",
        "an orphan is fetched from its first source or never",
        around(Spreading, "_on_orphan", stay_silent_about_other_sources),
    ),
    PlantedBug(None, "dropped pushes are lost", "a full queue is not made good for", instead(Pushes, "on_dropped", nothing)),
    PlantedBug(None, "no second update", "what is published while a connection opens is lost", instead(pushes_module, "SETTLE_S", 1e9)),
)
"""More of them, for whoever changes the checker; those without a seed got past the first forty."""


def is_caught(bug: PlantedBug, seed: int) -> SeedFailure | None:
    """Run one seed with the bug in place. A bug that no longer fits the code it replaces proves nothing, so its own error is raised."""
    with bug.plant():
        try:
            run_check(seed)
        except SeedFailure as failure:
            if isinstance(failure.__cause__, AttributeError | TypeError):
                raise failure.__cause__ from None
            return failure
    return None


def first_seed(bug: PlantedBug, seeds: int) -> tuple[int, SeedFailure] | None:
    for seed in range(seeds):
        failure = is_caught(bug, seed)
        if failure is not None:
            return seed, failure
    return None


def look(bugs: Sequence[PlantedBug]) -> None:
    """Print for each bug the first seed that catches it."""
    for bug in bugs:
        found = first_seed(bug, int(sys.argv[1]) if len(sys.argv) > 1 else 300)
        print(f"{bug.name:32} {'NOT CAUGHT' if found is None else f'{found[0]:4}  {str(found[1]).splitlines()[0][:150]}'}", flush=True)


if __name__ == "__main__":
    look((*PLANTED_BUGS, *FURTHER_BUGS))
