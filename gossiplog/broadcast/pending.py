"""Entries that are being inserted, and how each of them came."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from ..pubsub.types import MessageId, PeerId
from .actions import InsertEntry, SpreadingAction

ARRIVALS_MAX = 1_024
"""The latest entries whose arrivals are remembered."""
SOURCES_MAX = 8
"""Sources remembered per entry."""


@dataclass(slots=True)
class Arrival:
    """How an entry came that is not stored yet, or was stored by something other than its insert.

    Attributes:
        sources: The first peers that brought it, each with its `InsertEntry.opened`: a peer that crashed and came back since may lack it.
        is_spread: The entry was passed on.
    """

    sources: dict[PeerId, int] = field(default_factory=dict)
    is_spread: bool = False


class PendingInserts:
    """The inserts under way, by token, and how their entries came, by key.

    A sync or a POST may store an entry while it is being inserted. The insert then finds it not new, before or after the sync ends.
    `take_arrival` returns the peers that have such an entry already, for the caller that passes it on.
    """

    def __init__(self, emit: Callable[[SpreadingAction], None]) -> None:
        self._emit = emit
        self._pending: dict[int, InsertEntry] = {}
        self._arrivals: OrderedDict[bytes, Arrival] = OrderedDict()
        self._tokens = 0

    def __len__(self) -> int:
        return len(self._pending)

    @property
    def arrivals(self) -> int:
        """Return how many arrivals are remembered."""
        return len(self._arrivals)

    def insert(self, entry: InsertEntry) -> None:
        """Have an entry inserted."""
        self._tokens += 1
        entry.token = self._tokens
        self._pending[entry.token] = entry
        sources = self._arrivals.setdefault(entry.key, Arrival()).sources
        if len(sources) < SOURCES_MAX or entry.source in sources:
            sources[entry.source] = max(entry.opened, sources.get(entry.source, 0))
        if len(self._arrivals) > ARRIVALS_MAX:
            self._arrivals.popitem(last=False)
        self._emit(entry)

    def message_ids(self) -> list[MessageId]:
        """Return the messages on which the router may wait for a verdict."""
        return [entry.message_id for entry in self._pending.values() if entry.message_id is not None]

    def has(self, entry: InsertEntry) -> bool:
        """Return whether an insert is under way."""
        return entry.token in self._pending

    def end(self, entry: InsertEntry) -> bool:
        """Note that an insert has ended; return False if it had ended before."""
        return self._pending.pop(entry.token, None) is not None

    def note_spread(self, entry: InsertEntry, opened: int) -> None:
        """Note that an entry is passed on before it is stored; see `InsertEntry.spread_at`."""
        entry.spread_at = opened
        if (arrival := self._arrivals.get(entry.key)) is not None:
            arrival.is_spread = True

    def sources(self, key: bytes) -> Mapping[PeerId, int]:
        """Return the peers that brought an entry that is not stored yet; see `Arrival.sources`."""
        arrival = self._arrivals.get(key)
        return {} if arrival is None else arrival.sources

    def take_arrival(self, key: bytes) -> Arrival | None:
        """Remove and return how a stored entry came; None if no peer brought it. Keys are those claimed by the peers."""
        return self._arrivals.pop(key, None)

    def are_coming(self, keys: Iterable[bytes]) -> bool:
        """Return whether all of these are being inserted, if the keys claimed by peers are true. O(inserts under way)."""
        return {entry.key for entry in self._pending.values()}.issuperset(keys)
