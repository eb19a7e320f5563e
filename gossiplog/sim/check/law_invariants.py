"""What must hold of applications and of the access rule in simulated replicas.

Source: docs/spec/applications.md, "The law".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...entry.message import Entry
from ...entry.message_id import decode_id
from ...log.applying import find_applied, read_set_aside
from ...log.requests import ReadQuarantine
from ...plan import run_plan
from .law import NAME, Role, find_poison, reference_of, role_of
from .replica import Replica
from .router_invariants import Fail

__all__ = ["LawInvariants"]


class LawInvariants:
    """What must hold of applications and of the access rule, found out from what was signed alone.

    Args:
        genuine: VALUE of all entries that were signed, by key, kept by the caller.
        fail: Called with what is wrong; it raises.
    """

    def __init__(self, genuine: Mapping[bytes, bytes], fail: Fail) -> None:
        self._genuine = genuine
        self._fail = fail
        self._refused: dict[bytes, bool] = {}
        self._poison: set[bytes] = set()
        self._authors: dict[bytes, str] = {}

    def on_commit(self, replica: Replica, entries: Sequence[Entry]) -> None:
        """Look at what came into a correct replica's log."""
        log = replica.log
        self.learn(entries)
        for entry in entries:
            if log.rule is not None and self._is_refused(entry):
                self._fail("what the access rule refuses is not stored", replica, f"{entry.id} refers to what is not in its past")
            if log.application is not None and entry.key in self._poison and entry.author == replica.signer.did:
                self._fail("an append that apply raises about is not stored", replica, entry.id)

    def learn(self, entries: Sequence[Entry]) -> None:
        """Note whose entries are and whether they can be applied, wherever they were found."""
        for entry in entries:
            if entry.key not in self._authors:
                self._authors[entry.key] = entry.author
                if find_poison(entry) is not None:
                    self._poison.add(entry.key)

    def on_refused(self, replica: Replica, entries: Sequence[Entry]) -> None:
        """Look at what a correct replica's access rule refused itself, not because of a parent."""
        for entry in entries:
            if not self._is_refused(entry):
                self._fail("what the access rule allows is not refused", replica, f"{entry.id} of {entry.author}")

    def check_log(self, replica: Replica, keys: Sequence[bytes]) -> None:
        """Compare what a correct replica has applied and set aside with what it holds, in the order of insertion. O(entries)."""
        state = replica.log.state
        if run_plan(_first_quarantined(), state.answer):
            self._fail("nothing that apply raises about is quarantined", replica, "the quarantine is not empty")
        applied = run_plan(find_applied(NAME), state.answer)
        if applied is None:
            return
        if applied.behind is not None and replica.log.application is not None and not replica.log.is_behind:
            self._fail("no application is stopped", replica, f"it has got to {applied.behind} of {len(keys)} entries")
        keys, did = keys[: applied.behind], replica.signer.did
        expected = self._poison.intersection(keys)
        if role_of(did) is Role.BROKEN:
            expected.update(key for key in keys if self._authors[key] != did)
        aside = {record.key for record in run_plan(read_set_aside(NAME), state.answer)}
        if aside != expected:
            detail = f"{len(aside)} entries set aside, {len(expected)} cannot be applied"
            self._fail("what cannot be applied is set aside, and nothing else", replica, detail)
        if state.rows != [key for key in keys if key not in expected]:
            detail = f"{len(state.rows)} rows of {len(keys) - len(expected)} entries"
            self._fail("all other entries are applied, once, in their order", replica, detail)

    def _is_refused(self, entry: Entry) -> bool:
        """Follow the edges of the graph, one after the other, to what an entry refers to."""
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
            # Keys sort in causal order: below the one that is looked for it cannot be.
            fresh = {parent for parent in Entry(at, self._genuine[at]).parent_keys if parent >= key} - seen
            seen |= fresh
            queue += fresh
        return False


def _first_quarantined() -> Any:
    return (yield ReadQuarantine(None, 1))
