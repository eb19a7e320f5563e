"""Entries that came before their parents: kept for a while, and tried again when the last of their parents comes.

A sync with the peer that brought an orphan usually brings its parents. But that peer may speak only pubsub, or have left, and the router
does not accept the message twice. Without this module such an orphan would stay out even after all its ancestors have come.

Source: docs/spec/sync.md, "Orphans"; docs/spec/limits.md, "parents missing".
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ..entry.message import Entry
from ..entry.validation import Rule
from ..limits import keep_newest
from ..pubsub.types import MessageId, PeerId
from .actions import InsertEntry
from .wanted_syncs import Asker, missing

ORPHANS_MAX = 256
"""Orphans that are kept or being retried. To make room, the oldest one of the peer that brought the most bytes is dropped."""
ORPHANS_BYTES_MAX = 2**20
"""Bytes of all of them."""
PEER_ORPHANS_MAX = 64
"""Orphans kept per peer that brought them. To make room, the peer's oldest one is dropped."""
PEER_BYTES_MAX = 2**18
"""Bytes of one peer's orphans; a larger orphan is not kept."""
MESSAGES_MAX = 4_096
"""Ignored messages that are remembered, to sync with further peers that send them."""
OUT_FOR_GOOD = frozenset({Rule.ACCESS, Rule.QUARANTINED})
"""Rules by which our log refuses an entry for good, whichever peer brings it. It refuses the descendants too, when they are tried."""
_PARENT_BYTES = 128
"""Bytes counted for each missing parent beside its key, so that many invented parents do not cost more memory than values."""


@dataclass(slots=True, eq=False)
class Orphan:
    """One entry whose parents are missing.

    Attributes:
        entry: As it came.
        absent: Keys of the parents that have not come, as far as we know.
        size: Bytes counted towards the limits.
        is_held: No sync has been requested for it, as its parents may be among the entries that are being inserted.
    """

    entry: InsertEntry
    absent: dict[bytes, None]
    size: int
    is_held: bool = True


class Orphans:
    """Keeps orphans, and retries each or requests a sync for it.

    An orphan whose missing parents are all being inserted waits for them; for any other a sync is requested at once. In either case it is
    retried when the last of its parents is stored or refused for good, however that parent came. Nobody is blamed for an orphan.

    Args:
        want: Called with a peer and the keys that it has and we lack.
        retry: Inserts an entry again; the caller reports the outcome to `on_retried`.
        are_coming: Whether all these keys are among the entries that are being inserted.
    """

    def __init__(
        self,
        log: Asker,
        want: Callable[[PeerId, Sequence[bytes]], None],
        retry: Callable[[InsertEntry], None],
        are_coming: Callable[[Iterable[bytes]], bool],
    ) -> None:
        self._ask = log
        self._want = want
        self._retry = retry
        self._are_coming = are_coming
        self._kept: OrderedDict[bytes, Orphan] = OrderedDict()
        self._children: dict[bytes, dict[bytes, None]] = {}
        self._tried: dict[bytes, int] = {}
        self._bytes = 0
        self._unchecked: dict[bytes, None] = {}
        self._is_checking = False
        self._messages: OrderedDict[MessageId, bytes] = OrderedDict()

    def kept(self) -> dict[str, tuple[int, int]]:
        """Return the size and the maximum of each container: orphans, retried ones included, their bytes, and messages."""
        return {
            "orphans": (len(self._kept) + len(self._tried), ORPHANS_MAX),
            "orphan_bytes": (self._bytes, ORPHANS_BYTES_MAX),
            "orphan_messages": (len(self._messages), MESSAGES_MAX),
        }

    def absent_of(self, key: bytes) -> tuple[bytes, ...]:
        """Return the missing parents of an orphan, as far as we know; empty if it is not kept."""
        orphan = self._kept.get(key)
        return () if orphan is None else tuple(orphan.absent)

    def remember(self, message_id: MessageId, key: bytes) -> None:
        """Note the key of the entry in a message that the router was told to ignore."""
        keep_newest(self._messages, message_id, key, MESSAGES_MAX)

    def key_in(self, message_id: MessageId) -> bytes | None:
        """Return the key of the entry in an ignored message; None if the message is not remembered."""
        return self._messages.get(message_id)

    def add(self, entry: InsertEntry, found: Entry) -> None:
        """Keep an entry that was ignored because parents are missing. O(parents), and O(orphans) when there is no room."""
        key, size = entry.key, len(entry.value) + _PARENT_BYTES * len(found.parent_keys)
        if key in self._kept or key in self._tried or not self._make_room(entry.source, size):
            self._want(entry.source, [key])
            return
        orphan = self._kept[key] = Orphan(entry, dict.fromkeys(found.parent_keys), size)
        self._bytes += size
        for parent in orphan.absent:
            self._children.setdefault(parent, {})[key] = None
        self._unchecked[key] = None
        self._check()

    def on_retried(self, key: bytes) -> None:
        """Release an orphan whose retry was decided, whatever the outcome."""
        self._bytes -= self._tried.pop(key, 0)

    def on_decided(self, key: bytes, *, is_settled: bool) -> None:
        """Handle the outcome of any entry that is no longer being inserted. O(1) if no orphan waits for it.

        Args:
            is_settled: The entry is stored, or refused for good: no orphan has to wait for it any longer.
        """
        children = self._children.get(key)
        if children:
            waiting = [self._kept[child] for child in children]
            if is_settled:
                self._on_arrived(key)
            self._want_unless_coming(waiting)

    def on_synced(self) -> None:
        """Look up all missing parents: a sync has stored or quarantined entries, and does not say which."""
        self._unchecked.update(dict.fromkeys(self._kept))
        self._check()

    def _check(self) -> None:
        """Ask the log which parents are missing: one question at a time, for all orphans that have come since the last one."""
        if self._is_checking or not self._unchecked:
            return
        asked = [self._kept[key] for key in self._unchecked]
        self._unchecked = {}
        self._is_checking = True
        parents = list(dict.fromkeys(parent for orphan in asked for parent in orphan.absent))
        self._ask(missing(parents), lambda absent: self._on_checked(asked, parents, absent), None)

    def _on_checked(self, asked: Sequence[Orphan], parents: Sequence[bytes], absent: Sequence[bytes]) -> None:
        self._is_checking = False
        still = set(absent)
        for parent in parents:
            if parent not in still:
                self._on_arrived(parent)
        self._want_unless_coming(asked)
        self._check()

    def _on_arrived(self, parent: bytes) -> None:
        for key in list(self._children.pop(parent, ())):
            orphan = self._kept[key]
            del orphan.absent[parent]
            if not orphan.absent:
                self._drop(orphan)
                self._tried[key] = orphan.size
                self._bytes += orphan.size
                came = orphan.entry
                again = InsertEntry(0, key, came.value, came.source, came.bringer, came.digest, came.opened, is_retried=True)
                self._retry(again)

    def _want_unless_coming(self, orphans: Iterable[Orphan]) -> None:
        for orphan in orphans:
            is_new = orphan.entry.key in self._unchecked
            if orphan.is_held and self._kept.get(orphan.entry.key) is orphan and not is_new and not self._are_coming(orphan.absent):
                orphan.is_held = False
                self._want(orphan.entry.source, [orphan.entry.key])

    def _make_room(self, source: PeerId, size: int) -> bool:
        if size > PEER_BYTES_MAX:
            return False
        own = [orphan for orphan in self._kept.values() if orphan.entry.source == source]
        count, total = len(own), sum(orphan.size for orphan in own)
        for orphan in own:
            if count < PEER_ORPHANS_MAX and total + size <= PEER_BYTES_MAX:
                break
            self._give_up(orphan)
            count, total = count - 1, total - orphan.size
        while len(self._kept) + len(self._tried) >= ORPHANS_MAX or self._bytes + size > ORPHANS_BYTES_MAX:
            if not self._kept:
                return False
            self._give_up(self._oldest_of_the_greediest())
        return True

    def _oldest_of_the_greediest(self) -> Orphan:
        held: dict[PeerId, int] = {}
        for orphan in self._kept.values():
            held[orphan.entry.source] = held.get(orphan.entry.source, 0) + orphan.size
        greediest = max(held, key=held.__getitem__)
        return next(orphan for orphan in self._kept.values() if orphan.entry.source == greediest)

    def _give_up(self, orphan: Orphan) -> None:
        """Drop an orphan, and request a sync for it unless that was done before."""
        self._drop(orphan)
        if orphan.is_held:
            self._want(orphan.entry.source, [orphan.entry.key])

    def _drop(self, orphan: Orphan) -> None:
        del self._kept[orphan.entry.key]
        self._unchecked.pop(orphan.entry.key, None)
        self._bytes -= orphan.size
        for parent in orphan.absent:
            children = self._children[parent]
            del children[orphan.entry.key]
            if not children:
                del self._children[parent]
