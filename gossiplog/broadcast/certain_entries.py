"""Entries that may be passed on before our own disk has stored them.

If all parents of a valid entry are heads of the log, the parents are here and the entry is new, or its parents would not be heads. Without
an access rule, only our own disk can keep it out. The commit is most of the delay of an entry through a hub, so the entry is passed on
while it is being stored. Our own entries wait for the commit, as do the heads that we tell, the syncs that we serve and our users.

After a crash, or an error of the disk, we may have passed on an entry that we do not have. Its author has committed it, each peer that got
it from us got its parents first, and a later sync brings it back to us.

Source: docs/spec/sync.md, "Certain entries".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

from ..entry.message import Entry
from ..entry.validation import Verdict

HEADS_MAX = 1_024
"""In a log with more heads than this, all entries wait for the commit."""


class CertainEntries:
    """The heads of a log, as they will be once the foreseen entries are stored."""

    def __init__(self) -> None:
        self._heads: set[bytes] | None = None
        self._foreseen: set[bytes] = set()
        # The other entries that wait for a verdict, by key: one may come twice, the first time without its parents.
        self._waiting: Counter[bytes] = Counter()

    @property
    def is_blind(self) -> bool:
        """Return whether the log's heads are unknown; nothing is foreseen until `learn`."""
        return self._heads is None

    def learn(self, heads: Collection[bytes]) -> None:
        """Set all heads of the log, as of the last `on_commit`. More than 1,024 are not followed."""
        self._heads = set(heads) if len(heads) <= HEADS_MAX else None

    def forget(self) -> None:
        """Foresee nothing until the next `learn`."""
        self._heads = None
        self._foreseen.clear()

    def foresees(self, entry: Entry) -> bool:
        """Return whether a valid entry that is handed to the log now is certain to be accepted as new. If so, it becomes a head.

        Never if the entry or one of its parents waits for a verdict, even if it is stored: a parent must not be passed on after its child.
        """
        parents, heads = entry.parent_keys, self._heads
        if not heads or not parents or not heads.issuperset(parents) or not self._waiting.keys().isdisjoint((entry.key, *parents)):
            self._waiting[entry.key] += 1
            return False
        self._advance(heads, entry)
        self._foreseen.add(entry.key)
        return True

    def on_commit(self, entries: Iterable[Entry]) -> None:
        """Update the heads by the new entries of a commit, in order, wherever they came from."""
        if self._heads is None:
            return
        for entry in entries:
            if entry.key in self._foreseen:
                self._foreseen.remove(entry.key)
            else:
                self._advance(self._heads, entry)
        if len(self._heads) > HEADS_MAX:
            self.forget()

    def on_decided(self, verdict: Verdict) -> None:
        """Handle the verdict of an entry after it was passed on or not; once for each call of `foresees`."""
        if verdict.entry is None:
            return
        key = verdict.entry.key
        if self._waiting[key] > 1:
            self._waiting[key] -= 1
        else:
            del self._waiting[key]
        if key in self._foreseen and not verdict.accepted:
            # Entries foreseen on top of it may not be stored either.
            self.forget()

    @staticmethod
    def _advance(heads: set[bytes], entry: Entry) -> None:
        heads.difference_update(entry.parent_keys)
        heads.add(entry.key)
