"""When our syncs with others run. No I/O, no clock."""

from collections import OrderedDict
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple, TypeAlias

from ..limits import Backoff, keep_newest
from .result import Ending, SyncResult
from .source import Source

ACTIVE_MAX = 4
"""Syncs of ours at a time."""
PEERS_MAX = 1_024
"""Peers remembered; the one synced with least recently is forgotten first."""
ABSENT_KEYS_MAX = 20_000
"""Keys remembered of all peers that have left, 3.4 MB: without this limit, each peer that ever connects could leave 10,000 behind."""
FRUITLESS_MAX = 3
"""After this many syncs that brought nothing, although something was announced, the peer has to wait."""
VIOLATION_S = 600.0
"""Seconds for which a peer that broke the protocol is not synced with."""
QUOTA_S = 5.0
"""Seconds before the next sync with a peer whose entries are over a quota of ours, even if some of them were stored. Going on at once would
fetch everything over the quota again for each entry for which there is room."""
CROWDED_ANSWER_S = 1.0
"""Seconds for a source's first answer while more than half of the places are taken; doubled each time that no answer comes."""
_NARROWING_GROWTH = 1.25
"""The growth of the pauses between sessions that only narrow down the keys that a source fails on: 12 of them, enough for one key, take a
minute."""

Peer: TypeAlias = str


class BeginSession(NamedTuple):
    """Begin a session.

    Attributes:
        first_answer_s: Seconds for the first answer; None for the usual limit.
    """

    peer: Peer
    source: Source
    first_answer_s: float | None = None


@dataclass(slots=True)
class _Record:
    """The schedule's knowledge of one peer.

    Attributes:
        has_delivered: Its last session brought entries.
        silences: Sessions in a row in which not a byte came.
        narrowings: Sessions in a row that brought no entry, but narrowed down the keys that the source fails on.
        fruitless: Sessions that brought nothing although something was announced.
    """

    backoff: Backoff
    group: str
    source: Source = field(default_factory=Source)
    not_before: float = 0.0
    has_delivered: bool = False
    silences: int = 0
    narrowings: int = 0
    fruitless: int = 0
    is_present: bool = True
    is_active: bool = False
    is_wanted: bool = False
    retry_at: float | None = None


class SyncSchedule:
    """One sync at a time per peer, at most one more pending, four in all. A peer that makes no progress waits longer and longer.

    If there are too few places, addresses without a running sync come first; then, every other time, peers that delivered last time; then
    the address whose last turn is the longest ago; and of the addresses that never had one, the oldest and the newest in turn. So no crowd
    can keep others out, whether it came before, keeps coming or delivers a little.

    Each method returns the sessions to begin, in O(peers remembered).

    Attributes:
        wakes_at: When `begin_due` is due; None for never. Too early or too late does no harm.

    Source: docs/spec/sync.md, "Reliable causal broadcast"; docs/spec/limits.md, "invented heads" and "abort loops".
    """

    def __init__(self, random: Random) -> None:
        self._random = random
        self._active = 0
        self._starts = 0
        # The number of the start at which each group last had its turn, the least recent first.
        self._turns: OrderedDict[str, int] = OrderedDict()
        self.wakes_at: float | None = None
        # The peer that has waited longest first.
        self._records: OrderedDict[Peer, _Record] = OrderedDict()

    def __len__(self) -> int:
        """Return how many peers are remembered."""
        return len(self._records)

    def want(self, peer: Peer, group: str | None, now: float) -> list[BeginSession]:
        """Note that a peer has, or says it has, entries that we lack.

        Args:
            group: Shared by the peers of one address; None: the peer has a group of its own.
        """
        record = self._record(peer)
        if record is not None:
            record.group = group or peer
            record.is_present = record.is_wanted = True
        return self.begin_due(now)

    def _record(self, peer: Peer) -> _Record | None:
        record = self._records.get(peer)
        if record is None:
            if len(self._records) >= PEERS_MAX and not self._forget_one():
                return None
            record = self._records[peer] = _Record(Backoff(self._random), peer)
        return record

    def _forget_one(self) -> bool:
        """Forget the peer that has been idle for longest; False if none is."""
        for peer, record in self._records.items():
            if not record.is_active and not record.is_wanted:
                del self._records[peer]
                return True
        return False

    def on_left(self, peer: Peer, now: float) -> list[BeginSession]:
        """Forget that a peer is here. The caller ends a running session with it, and need not report its result."""
        record = self._records.get(peer)
        if record is not None:
            self._active -= record.is_active
            # Its waits are kept: coming back must not be cheaper than waiting.
            record.is_present = record.is_active = record.is_wanted = False
            held = 0
            for each in reversed(self._records.values()):
                if not each.is_present:
                    held += each.source.keys_held
                    if held > ABSENT_KEYS_MAX:
                        each.source.forget_keys()
        return self.begin_due(now)

    def on_ended(self, peer: Peer, result: SyncResult, now: float, *, is_still_missing: bool = True) -> list[BeginSession]:
        """Handle the result of a session.

        Args:
            is_still_missing: We still lack a key that the peer announced. If a key has come in another way, the peer is not blamed.
        """
        record = self._records.get(peer)
        if record is not None and record.is_active:
            record.is_active = False
            self._active -= 1
            self._records.move_to_end(peer)
            self._note_result(record, result, now, is_still_missing=is_still_missing)
        return self.begin_due(now)

    def _note_result(self, record: _Record, result: SyncResult, now: float, *, is_still_missing: bool) -> None:
        record.has_delivered = result.entries > 0 or (record.has_delivered and result.ending is Ending.COMPLETE)
        record.silences = 0 if result.bytes_received or result.ending is Ending.COMPLETE else record.silences + 1
        if result.ending is Ending.VIOLATION:
            record.is_wanted = False
            record.not_before = now + VIOLATION_S
            return
        if result.ending is not Ending.COMPLETE:
            record.is_wanted = True
        record.not_before = now + max(self._delay(record, result, is_still_missing=is_still_missing), result.cooldown_s)
        record.retry_at = record.source.retry_at()

    def _delay(self, record: _Record, result: SyncResult, *, is_still_missing: bool) -> float:
        """Return how long a peer that did not break the protocol has to wait."""
        if result.ending is Ending.QUOTA:
            return QUOTA_S
        if result.entries:
            record.backoff.reset()
            record.fruitless = record.narrowings = 0
        elif result.ending is not Ending.COMPLETE:
            if not result.narrowed:
                return record.backoff.next()
            # Narrowing is worth another try soon, but less and less so, or a peer that fails on everything would keep us busy.
            record.narrowings += 1
            return record.backoff.first_s * min(_NARROWING_GROWTH ** (record.narrowings - 1), record.backoff.most_s)
        elif is_still_missing:
            record.fruitless += 1
            if record.fruitless >= FRUITLESS_MAX:
                return record.backoff.next()
        return 0.0

    def begin_due(self, now: float) -> list[BeginSession]:
        """Begin the sessions whose time has come."""
        ready: list[Peer] = []
        wake: float | None = None
        for peer, record in self._records.items():
            if record.retry_at is not None and record.is_present and now >= max(record.retry_at, record.not_before):
                record.is_wanted, record.retry_at = True, None
            due: float | None = None
            if record.is_active or not record.is_present:
                continue
            if not record.is_wanted:
                due = record.retry_at if record.retry_at is None else max(record.retry_at, record.not_before)
            elif now < record.not_before:
                due = record.not_before
            else:
                ready.append(peer)
            if due is not None and (wake is None or due < wake):
                wake = due
        self.wakes_at = wake
        begun: list[BeginSession] = []
        while ready and self._active < ACTIVE_MAX:
            begun.append(self._start(self._choose(ready)))
        return begun

    def _choose(self, ready: list[Peer]) -> Peer:
        """Remove and return the peer whose turn it is from `ready`, where the one that has waited longest is first."""
        chosen = 0
        if len(ready) > 1:
            # Every other time deliveries do not count, or peers that always deliver a little would keep out the rest.
            is_open = self._starts % 2 == 1
            busy = {record.group for record in self._records.values() if record.is_active}
            ranks: list[tuple[bool, bool, int]] = []
            for peer in ready:
                record = self._records[peer]
                is_known = record.has_delivered and not is_open
                ranks.append((record.group in busy, not is_known, self._turns.get(record.group, 0)))
            first = min(ranks)
            best = [index for index, rank in enumerate(ranks) if rank == first]
            chosen = best[-1] if is_open else best[0]
        return ready.pop(chosen)

    def _start(self, peer: Peer) -> BeginSession:
        record = self._records[peer]
        record.is_active, record.is_wanted = True, False
        self._active += 1
        self._starts += 1
        keep_newest(self._turns, record.group, self._starts, PEERS_MAX)
        is_crowded = 2 * self._active > ACTIVE_MAX
        return BeginSession(peer, record.source, CROWDED_ANSWER_S * 2 ** min(record.silences, 8) if is_crowded else None)
