"""Which entries need not wait for our disk before they are passed on.

A valid entry whose parents are all heads of the log is new, or they would be none, and has its parents here. Where no rule of the
application can refuse it, nothing but our own disk can keep it out, and the commit is most of the time that an entry takes through a hub.
So it is passed on while it is stored. Our own entries, what we announce and serve, and what our users see, wait for the commit.

After a crash, or an error of the disk, we may have passed on what we have not. Its author has committed it before, whoever got it from us
got its parents before it, and we get it back as we get all that we missed: by a sync.

Source: docs/spec/sync.md, "Certain entries".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

from ..entry.message import Entry
from ..entry.validation import Verdict

HEADS_MAX = 1_024
"""In a log with more heads than these, entries wait for the commit."""


class CertainEntries:
    """The heads of a log, as they will be once what is under way is stored."""

    def __init__(self) -> None:
        self._heads: set[bytes] | None = None
        self._foreseen: set[bytes] = set()
        # How often each is asked about at this moment that waits for its verdict: it may come twice, the first time without its parents.
        self._waiting: Counter[bytes] = Counter()

    @property
    def is_blind(self) -> bool:
        """Whether it does not know where the log stands; until `learn` it foresees nothing."""
        return self._heads is None

    def learn(self, heads: Collection[bytes]) -> None:
        """Take all heads of the log as of the last `on_commit`. More than 1,024 are not followed."""
        self._heads = set(heads) if len(heads) <= HEADS_MAX else None

    def forget(self) -> None:
        """Foresee nothing until the next `learn`."""
        self._heads = None
        self._foreseen.clear()

    def foresees(self, entry: Entry) -> bool:
        """Say whether a valid entry that is handed to the log now is certain to be accepted as a new one; if so, that counts as done.

        Not if the same entry waits for its verdict already, or a parent does, even if it is stored: it would be passed on after its child.
        """
        parents, heads = entry.parent_keys, self._heads
        if not heads or not parents or not heads.issuperset(parents) or not self._waiting.keys().isdisjoint((entry.key, *parents)):
            self._waiting[entry.key] += 1
            return False
        self._advance(heads, entry)
        self._foreseen.add(entry.key)
        return True

    def on_commit(self, entries: Iterable[Entry]) -> None:
        """Take the new entries of a commit, in their order, wherever they came from."""
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
        """Take the verdict of an entry that was asked about, once it was passed on or not, as that says: one for each time it was asked."""
        if verdict.entry is None:
            return
        key = verdict.entry.key
        if self._waiting[key] > 1:
            self._waiting[key] -= 1
        else:
            del self._waiting[key]
        if key in self._foreseen and not verdict.accepted:
            # All that was built upon it is void.
            self.forget()

    @staticmethod
    def _advance(heads: set[bytes], entry: Entry) -> None:
        heads.difference_update(entry.parent_keys)
        heads.add(entry.key)
