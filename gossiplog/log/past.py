"""Questions that `authorize` and `apply` may ask, also about entries that the transaction has not written yet."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import heappop, heappush
from typing import Any, TypeVar

from ..entry.message import Entry
from ..entry.message_id import decode_id
from ..errors import NotFound
from ..plan import Plan, ask
from .ancestry import AncestorQuery
from .requests import ReadValues

T = TypeVar("T")


def find_entry(key: bytes, new: Mapping[bytes, Entry]) -> Plan[Entry | None]:
    """Return an entry of the log, or of those about to be written; None if it is neither."""
    if key in new:
        return new[key]
    values = yield from ask(ReadValues([key]))
    return Entry(key, values[key]) if key in values else None


def is_ancestor(ancestor: bytes, descendant: bytes, new: Mapping[bytes, Entry]) -> Plan[bool]:
    """Say whether a path leads from one entry through parents to another. The first steps may be among new entries.

    An entry that is neither in the log nor new is no ancestor, and has none. An error instead would make the result depend on the order of
    arrival: all ancestors of an entry arrive before it, so for any other entry the answer is no, whether it has arrived or not.
    """
    if descendant in new:
        return (yield from Behind(new[descendant].parent_keys, new).has(ancestor))
    if ancestor in new:
        # No stored entry has a new one as an ancestor.
        return False
    return (yield from _is_stored_ancestor(ancestor, descendant))


def _is_stored_ancestor(ancestor: bytes, *descendants: bytes) -> Plan[bool]:
    try:
        return bool((yield from AncestorQuery(ancestor, *descendants).run()))
    except NotFound:
        return False


class Behind:
    """Some entries and all their ancestors, such as those that a revocation keeps, or that came before a message with these parents.

    Args:
        entries: Keys of entries in the log, or of those about to be written.
        new: The entries about to be written, by key.
    """

    def __init__(self, entries: Iterable[bytes], new: Mapping[bytes, Entry]) -> None:
        self._new = new
        # The given keys and all new ones among their ancestors; and the first stored ones on each path, ascending.
        self._here = set(entries)
        queue, stored = list(self._here), []
        while queue:
            key = queue.pop()
            if key in new:
                fresh = set(new[key].parent_keys) - self._here
                self._here |= fresh
                queue += fresh
            else:
                stored.append(key)
        self._stored = sorted(stored)

    def has(self, key: bytes) -> Plan[bool]:
        """Say whether an entry is one of these, or an ancestor of one."""
        if key in self._here or key in self._new:
            return key in self._here
        # Keys sort in causal order.
        above = self._stored[bisect_right(self._stored, key) :]
        return bool(above) and (yield from _is_stored_ancestor(key, *above))


class Past:
    """The ancestors of a message. Nothing else can be asked about, because only these are the same on every replica."""

    def __init__(self, parents: Iterable[bytes], new: Mapping[bytes, Entry], run: Callable[[Plan[Any]], Any]) -> None:
        self._parents = tuple(parents)
        self._new = new
        self._run = run

    def is_ancestor(self, a: str, b: str | None = None) -> bool:
        """Say whether `a` is an ancestor of `b`, or without `b`, of the message itself.

        False unless `a` and `b` are both ancestors of the message.
        """
        key = decode_id(a)
        if self.get(a) is None:
            return False
        if b is None:
            return True
        descendant = decode_id(b)
        return self.get(b) is not None and bool(self._run(is_ancestor(key, descendant, self._new)))

    def get(self, id: str) -> Entry | None:
        """Return the entry with this id if it is an ancestor of the message."""
        key = decode_id(id)
        entry: Entry | None = self._run(find_entry(key, self._new))
        return entry if entry is not None and self._run(Behind(self._parents, self._new).has(key)) else None

    def ancestors(self) -> Iterator[Entry]:
        """Iterate over the message's ancestors, highest ids first. Each is read when it is reached."""
        seen = set(self._parents)
        heap: list[tuple[int, bytes]] = []
        for key in seen:
            heappush(heap, (-int.from_bytes(key), key))
        while heap:
            entry: Entry | None = self._run(find_entry(heappop(heap)[1], self._new))
            if entry is None:
                continue
            yield entry
            for key in set(entry.parent_keys) - seen:
                seen.add(key)
                heappush(heap, (-int.from_bytes(key), key))
