"""The result of a sync."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from ..entry.message import Entry
from ..entry.rules import Rule
from ..entry.validation import UNSUPPORTED, Verdict
from ..errors import RemoteProtocolError
from .source import Source

KEYS_REPORTED_MAX = 1_000
"""Keys named in a result; any more are only counted."""
BROUGHT_MAX, BROUGHT_BYTES_MAX = 64, 64 * 1024
"""New entries that a result keeps: up to about these, sending them to all peers costs less than a sync by each of them."""


class Ending(Enum):
    """How a sync ended."""

    COMPLETE = "complete"
    """Everything in the source was compared; we have it all except for the entries that the result counts."""
    ABORTED = "aborted"
    """The server ended the session for reasons of its own; go on in a new one."""
    CLOSED = "closed"
    """The stream ended too early."""
    TIMED_OUT = "timed_out"
    """An answer did not come in time."""
    LIMIT = "limit"
    """We stopped at a limit of ours: too many nodes held at once, or too many orphans."""
    STORAGE = "storage"
    """Our own store could not store the entries: never the source's fault."""
    QUOTA = "quota"
    """An entry is over a quota of ours; there will be room for it later."""
    VIOLATION = "violation"
    """The source lied or broke the protocol."""

    @classmethod
    def of_later(cls, rule: str | None) -> "Ending":
        """Return how a sync ends when an entry has to come again, by the rule of its verdict."""
        return cls.QUOTA if rule == Rule.QUOTA else cls.STORAGE


class Brought:
    """The new entries of a sync, in order: all of them if they are few, else the first."""

    __slots__ = ("_bytes", "entries")

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self.entries: list[Entry] = []
        self._bytes = 0
        for entry in entries:
            self.add(entry)

    def add(self, entry: Entry) -> None:
        """Keep one more entry if there is room."""
        if len(self.entries) < BROUGHT_MAX and self._bytes + len(entry.value) <= BROUGHT_BYTES_MAX:
            self.entries.append(entry)
            self._bytes += len(entry.value)


@dataclass(slots=True)
class SyncResult:
    """The result of a sync, of one session or several.

    Attributes:
        reason: The reason for the ending, in words; empty after `COMPLETE`.
        entries: Entries that were new here and are stored.
        duplicates: Entries that had meanwhile come in another way.
        quarantined: Entries in our quarantine, or refused by our access rule: not fetched again, or left out on arrival.
        unsupported: Entries beyond our limits, or signed in a way that we do not know; their source is not to blame.
        unsupported_reason: Why the first of them is left out, in words.
        rejected: Entries that no replica may accept; the source's log is damaged or older than the rule.
        rejected_keys: The first of their keys.
        orphans: Entries left out because an ancestor was left out.
        skipped: Entries not asked for, because in the last hour the source could not serve them or sent an invalid value.
        waits: Sequential round trips: the longest chain of requests each sent after the answer to the one before.
        bytes_sent: Bytes written to the stream, framing included.
        sessions: Streams used.
        narrowed: A failure taught us to ask differently next time, so going on is worthwhile even without a new entry.
        cooldown_s: Seconds that the server asked us to wait before the next session.
        brought: The new entries, if they are few.
    """

    ending: Ending = Ending.CLOSED
    reason: str = ""
    entries: int = 0
    duplicates: int = 0
    quarantined: int = 0
    unsupported: int = 0
    unsupported_reason: str = ""
    rejected: int = 0
    rejected_keys: tuple[bytes, ...] = ()
    orphans: int = 0
    skipped: int = 0
    requests: int = 0
    waits: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    sessions: int = 1
    narrowed: bool = False
    cooldown_s: float = 0.0
    brought: Brought = field(default_factory=Brought, compare=False, repr=False)

    @property
    def complete(self) -> bool:
        """Return whether we have all entries of the source, except rejected ones and those in our quarantine."""
        return self.ending is Ending.COMPLETE and not (self.skipped or self.orphans or self.unsupported)

    @property
    def is_resumable(self) -> bool:
        """Return whether another session can go on from here."""
        return self.ending in (Ending.ABORTED, Ending.CLOSED, Ending.TIMED_OUT, Ending.LIMIT)

    @property
    def has_progressed(self) -> bool:
        """Return whether the next session will do something else than this one."""
        return self.entries > 0 or self.narrowed

    def note_stored(self, verdict: Verdict) -> None:
        """Count an entry that is now in the log."""
        assert verdict.entry is not None
        if verdict.is_new:
            self.entries += 1
            self.brought.add(verdict.entry)
        else:
            self.duplicates += 1

    def note_left_out(self, key: bytes, verdict: Verdict, source: Source, now: float, *, rejected_max: int) -> bool:
        """Count an entry that was sent and not stored, and set it aside for a while unless only our own log refuses it.

        Returns:
            Whether its descendants may come without it. Not for an entry in quarantine, which our log remembers; one that our access rule
            refused is forgotten some time.

        Raises:
            RemoteProtocolError: The source has sent more than `rejected_max` entries that no replica may accept.
        """
        if verdict.rule in ("quarantined", "access"):
            self.quarantined += 1
            return verdict.rule == "access"
        source.set_aside(key, now)
        if verdict.rule in UNSUPPORTED:
            self.unsupported += 1
            self.unsupported_reason = self.unsupported_reason or f"{verdict.rule}: {verdict.reason}"
            return True
        self.rejected += 1
        if self.rejected > rejected_max:
            raise RemoteProtocolError(f"more than {rejected_max} invalid entries, the last for {verdict.rule}: {verdict.reason}")
        if len(self.rejected_keys) < KEYS_REPORTED_MAX:
            self.rejected_keys += (key,)
        return True

    @property
    def spreads(self) -> Sequence[Entry]:
        """Return the new entries if they are few enough to be sent to all peers; else none."""
        return self.brought.entries if len(self.brought.entries) == self.entries else ()

    def then(self, later: "SyncResult") -> "SyncResult":
        """Combine with the result of the next session. Fields that cannot be added up are those of the later one."""
        return replace(
            later,
            entries=self.entries + later.entries,
            duplicates=self.duplicates + later.duplicates,
            unsupported=self.unsupported + later.unsupported,
            unsupported_reason=self.unsupported_reason or later.unsupported_reason,
            rejected=self.rejected + later.rejected,
            rejected_keys=(self.rejected_keys + later.rejected_keys)[:KEYS_REPORTED_MAX],
            requests=self.requests + later.requests,
            waits=self.waits + later.waits,
            bytes_sent=self.bytes_sent + later.bytes_sent,
            bytes_received=self.bytes_received + later.bytes_received,
            sessions=self.sessions + later.sessions,
            narrowed=self.narrowed or later.narrowed,
            brought=Brought([*self.brought.entries, *later.brought.entries]),
        )
