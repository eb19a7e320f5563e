"""Entries that are being inserted, and how each of them came."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ..pubsub.types import MessageId, PeerId
from ..sync.rpc import Insert
from .actions import InsertEntry, SpreadingAction
from .allowance import Bringer
from .peers import LogPeer

ARRIVALS_MAX = 1_024
"""The latest entries whose arrivals are remembered."""
SOURCES_MAX = 8
"""Sources remembered per entry."""


class Pending(NamedTuple):
    """An `InsertEntry` that is under way.

    Attributes:
        digest: SHA-256 of the message it came in.
        opened: The value of `Pushes.opened` when it came.
        message_id: The router's name for that message; None when the entry was pushed.
        pusher: The peer that pushed it; None when the router brought it.
        is_usual: The message is the one that we would have published for this entry.
        spread_at: The value of `Pushes.opened` when the entry was passed on before it was stored; None if it was not.
        is_retried: It is an orphan that is tried again.
    """

    source: PeerId
    key: bytes
    digest: bytes
    bringer: Bringer
    opened: int
    message_id: MessageId | None = None
    pusher: LogPeer | None = None
    is_usual: bool = True
    spread_at: int | None = None
    is_retried: bool = False

    @property
    def is_spread(self) -> bool:
        """Whether the entry was passed on before it was stored."""
        return self.spread_at is not None


@dataclass(slots=True)
class Arrival:
    """How an entry came that is not stored yet, or was stored by something other than its insert.

    Attributes:
        sources: The first peers that brought it, each with its `Pending.opened`: a peer that crashed and came back since may lack it.
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
        self._pending: dict[int, Pending] = {}
        self._arrivals: OrderedDict[bytes, Arrival] = OrderedDict()
        self._tokens = 0

    def __len__(self) -> int:
        return len(self._pending)

    @property
    def arrivals(self) -> int:
        """Return how many arrivals are remembered."""
        return len(self._arrivals)

    def insert(self, event: Insert, pending: Pending) -> None:
        """Have an entry inserted."""
        self._tokens += 1
        self._pending[self._tokens] = pending
        sources = self._arrivals.setdefault(pending.key, Arrival()).sources
        if len(sources) < SOURCES_MAX or pending.source in sources:
            sources[pending.source] = max(pending.opened, sources.get(pending.source, 0))
        if len(self._arrivals) > ARRIVALS_MAX:
            self._arrivals.popitem(last=False)
        self._emit(InsertEntry(self._tokens, event.key, event.value, pending.source, pending.bringer))

    def message_ids(self) -> list[MessageId]:
        """Return the messages on which the router may wait for a verdict."""
        return [pending.message_id for pending in self._pending.values() if pending.message_id is not None]

    def get(self, token: int) -> Pending | None:
        """Return an insert by its token; None if it has ended."""
        return self._pending.get(token)

    def pop(self, token: int) -> Pending | None:
        """Remove an insert that has ended, and return it; None if it had ended before."""
        return self._pending.pop(token, None)

    def note_spread(self, token: int, opened: int) -> None:
        """Note that an entry is passed on before it is stored; see `Pending.spread_at`."""
        self._pending[token] = pending = self._pending[token]._replace(spread_at=opened)
        if (arrival := self._arrivals.get(pending.key)) is not None:
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
        return {pending.key for pending in self._pending.values()}.issuperset(keys)
