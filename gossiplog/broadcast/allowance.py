"""Which entries a client may bring to a log: whose, and how many.

An entry is charged after it is verified, so that nobody can use up the quota of others, and is refunded if we have it already.
While a client stays over a limit, its entries are refused unverified.
An entry over a limit is ignored and nobody is blamed; if waiting helps, it is fetched again later.

Source: docs/operations.md, "Access".
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from ..entry.message import Entry
from ..entry.validation import Outcome, Rule, Verdict
from ..errors import DecodeError
from ..limits import keep_newest

METERS_MAX = 65_536
MINUTE_S = 60.0
COUNTING_S = 5
"""Seconds after which to ask again while the log is being counted, at 100,000 entries a second."""
_FULL_S = 60
_CHARGED = frozenset({None, Rule.PARENTS, Rule.ACCESS, Rule.QUARANTINED, Rule.STORAGE})
"""Rules of the verdicts on entries that were charged but not stored as new."""
MAY_NOT_PUSH = Verdict(Outcome.IGNORE, Rule.UNWELCOME, "this client may not push")


@dataclass(frozen=True, slots=True)
class Quota:
    """How much clients may bring to one log; None where there is no limit.

    Attributes:
        entries_per_minute: For each writer; a writer that was quiet for a minute may bring as many at once.
        bytes_per_minute: Bytes of VALUE, likewise.
        entries_per_writer: Entries of one writer in total.
        bytes_per_writer: Bytes of VALUE of one writer in total.
        address_entries_per_minute: For all writers behind one address (of IPv6, a /64) together, as keys cost nothing.
        log_bytes: Bytes of VALUE of all entries.
    """

    entries_per_minute: int | None = None
    bytes_per_minute: int | None = None
    entries_per_writer: int | None = None
    bytes_per_writer: int | None = None
    address_entries_per_minute: int | None = None
    log_bytes: int | None = None

    @property
    def counts_totals(self) -> bool:
        """Return whether all entries of the log have to be counted."""
        return not (self.entries_per_writer is self.bytes_per_writer is self.log_bytes is None)


class Wait(NamedTuple):
    """An entry is not accepted now.

    Attributes:
        verdict: IGNORE, with the reason.
        seconds: Seconds after which it may be accepted; None for never.
    """

    verdict: Verdict
    seconds: int | None = None

    @property
    def in_words(self) -> Verdict:
        """Return the verdict, whose reason says when to try again."""
        return self.verdict if self.seconds is None else replace(self.verdict, reason=f"{self.verdict.reason}; again in {self.seconds} s")


class Rules(Protocol):
    """What a server accepts from clients for one log."""

    @property
    def allow(self) -> Collection[str] | None:
        """The dids whose entries are accepted; None for everybody's."""

    @property
    def quota(self) -> Quota:
        """The limits on them."""


class RulesByTopic(Protocol):
    """The rules of a server, which may be replaced at any time."""

    @property
    def full(self) -> str:
        """The reason why no more entries are accepted for any log; empty while there is room."""

    def of(self, topic: str) -> Rules:
        """Return the current rules of a log."""

    def removed(self, topic: str) -> Mapping[str, str]:
        """Return the writers removed by the log's entries, each with its removal; those of one removal share the quota of one writer."""


class _Meter:
    """An amount per minute for each of many names, of which at most a minute's worth is saved."""

    def __init__(self) -> None:
        # The amount left for each name, and when that was.
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait_s(self, name: str, amount: int, most: int, now: float) -> float:
        """Return in how many seconds an amount may be taken. A full meter allows even more than `most`."""
        lacking = min(amount, most) - self._left(name, most, now)
        return max(0.0, lacking * MINUTE_S / most)

    def take(self, name: str, amount: int, most: int, now: float) -> None:
        """Take an amount, or give it back if it is negative."""
        level = min(most, self._left(name, most, now) - amount)
        keep_newest(self._levels, name, (level, now), METERS_MAX)

    def _left(self, name: str, most: int, now: float) -> float:
        level, at = self._levels.get(name, (most, 0.0))
        return min(most, level + (now - at) * most / MINUTE_S)


class Allowance:
    """What all clients of the listeners with the same rules may bring to one log.

    Attributes:
        is_counted: The totals are complete. Until then nothing is accepted if they are limited.
        totals: Entries and bytes of VALUE by writer, in the log or let in and not committed yet.
    """

    def __init__(self, topic: str, rules: RulesByTopic) -> None:
        self.topic = topic
        self.is_counted = False
        self.totals: dict[str, list[int]] = {}
        self._rules_by_topic = rules
        self._entries, self._bytes, self._addresses = _Meter(), _Meter(), _Meter()
        self._log_bytes = 0
        # The removed writers when totals were last needed, and the totals of each removal.
        self._removed: Mapping[str, str] = {}
        self._together: dict[str, list[int]] = {}
        # Keys of entries that were charged to the totals and are not committed yet.
        self._reserved: set[bytes] = set()
        # Keys of entries committed while the log is being read, which may be read as well.
        self._heard: set[bytes] = set()

    @property
    def rules(self) -> Rules:
        """Return the current rules."""
        return self._rules_by_topic.of(self.topic)

    @property
    def is_open(self) -> bool:
        """Return whether there are no limits at all."""
        rules = self.rules
        return rules.allow is None and rules.quota == Quota() and not self._rules_by_topic.full

    # Counting what is in the log

    def on_read(self, entries: Sequence[Entry]) -> None:
        """Count entries that the log held when reading began."""
        for entry in entries:
            if entry.key not in self._heard:
                self._add(entry.envelope.did, len(entry.value))

    def on_all_read(self) -> None:
        """Note that all of them are counted."""
        self._heard.clear()
        self.is_counted = True

    def on_commit(self, entries: Sequence[Entry]) -> None:
        """Count new entries of the log, however they came."""
        if not self.is_counted:
            self._heard.update(entry.key for entry in entries)
        for entry in entries:
            if entry.key in self._reserved:
                self._reserved.discard(entry.key)
            else:
                self._add(entry.envelope.did, len(entry.value))

    # Letting in

    def find_wait(self, entry: Entry, address: str | None, now: float) -> Wait | None:
        """Return why an entry is not accepted now, and how long it would have to wait; None if it is accepted. Charges nothing.

        Args:
            address: The group of addresses that it came from; None if there is no limit for that.
        """
        rules, did, size = self.rules, entry.envelope.did, len(entry.value)
        if rules.allow is not None and did not in rules.allow:
            return Wait(Verdict(Outcome.IGNORE, Rule.UNWELCOME, f"entries of {did} are not taken here", entry))
        if full := self._rules_by_topic.full:
            return Wait(Verdict(Outcome.IGNORE, Rule.QUOTA, full, entry), _FULL_S)
        if rules.quota.counts_totals and not self.is_counted:
            return Wait(Verdict(Outcome.IGNORE, Rule.QUOTA, "what is here already is still being counted", entry), COUNTING_S)
        # An entry that two clients bring at once is charged to the totals once.
        if entry.key not in self._reserved and (reason := self._over(rules.quota, did, size)):
            return Wait(Verdict(Outcome.IGNORE, Rule.UNWELCOME, reason, entry))
        limits = self._limits(rules.quota, did, size, address)
        waits = [(meter.wait_s(name, amount, most, now), what) for meter, name, amount, most, what in limits]
        seconds, what = max(waits, default=(0.0, ""))
        if not seconds:
            return None
        return Wait(Verdict(Outcome.IGNORE, Rule.QUOTA, f"more than {what} a minute", entry), math.ceil(seconds))

    def charge(self, entry: Entry, address: str | None, now: float) -> None:
        """Charge an entry that is let in to its writer and its address."""
        quota, did, size = self.rules.quota, entry.envelope.did, len(entry.value)
        for meter, name, amount, most, _ in self._limits(quota, did, size, address):
            meter.take(name, amount, most, now)
        if quota.counts_totals and entry.key not in self._reserved:
            # Counted before the commit, or all entries of a batch would be within the limit.
            self._reserved.add(entry.key)
            self._add(did, size)

    def refund(self, entry: Entry, address: str | None, now: float) -> None:
        """Undo the charge of an entry that was here already, or could not be stored."""
        for meter, name, amount, most, _ in self._limits(self.rules.quota, entry.envelope.did, len(entry.value), address):
            meter.take(name, -amount, most, now)
        if entry.key in self._reserved:
            self._reserved.discard(entry.key)
            self._add(entry.envelope.did, len(entry.value), -1)

    def _limits(self, quota: Quota, did: str, size: int, address: str | None) -> list[tuple[_Meter, str, int, int, str]]:
        writer = self._rules_by_topic.removed(self.topic).get(did, did)
        limits = [
            (self._entries, writer, 1, quota.entries_per_minute, "entries of one writer"),
            (self._bytes, writer, size, quota.bytes_per_minute, "bytes of one writer"),
            (self._addresses, address or "", 1, quota.address_entries_per_minute if address else None, "entries from one address"),
        ]
        return [(meter, name, amount, most, f"{most:,} {what}") for meter, name, amount, most, what in limits if most is not None]

    def _over(self, quota: Quota, did: str, size: int) -> str | None:
        entries, written = self._total_of(did)
        # The client may be another than the writer: its own entries may only build on this one.
        whose = f"those removed by {self._removed[did]}" if did in self._removed else did
        if quota.entries_per_writer is not None and entries + 1 > quota.entries_per_writer:
            return f"{quota.entries_per_writer:,} entries of {whose} are here, the most that are taken"
        if quota.bytes_per_writer is not None and written + size > quota.bytes_per_writer:
            return f"more than {quota.bytes_per_writer:,} bytes of {whose}"
        if quota.log_bytes is not None and self._log_bytes + size > quota.log_bytes:
            return f"the log would have more than {quota.log_bytes:,} bytes"
        return None

    def _total_of(self, did: str) -> Sequence[int]:
        removed = self._rules_by_topic.removed(self.topic)
        if removed is not self._removed:
            self._removed, self._together = removed, {}
            for writer, (entries, size) in self.totals.items():
                self._add_together(writer, entries, size)
        return self._together.get(removed[did], (0, 0)) if did in removed else self.totals.get(did, (0, 0))

    def _add_together(self, did: str, entries: int, size: int) -> None:
        if did in self._removed:
            total = self._together.setdefault(self._removed[did], [0, 0])
            total[0] += entries
            total[1] += size

    def _add(self, did: str, size: int, sign: int = 1) -> None:
        self._add_together(did, sign, sign * size)
        total = self.totals.setdefault(did, [0, 0])
        total[0] += sign
        total[1] += sign * size
        if total == [0, 0]:
            # Writers of refunded entries would accumulate without end.
            del self.totals[did]
        self._log_bytes += sign * size


@dataclass(slots=True, eq=False)
class Bringer:
    """The rules for the entries that one peer brings. An entry keeps its bringer, so these rules hold even after the peer has left.

    Attributes:
        allowance: What clients of its listener may bring; None for a peer that is no client, which we chose and which has no limit.
        address: The group of addresses that its entries are charged to, beside their writers; None for none.
        may_push: It may bring entries at all.
        is_client: It has a lane of its own in the queue; all peers that are no clients share one.
        is_over: Its last entry was over a quota or of an unwelcome writer, so the limits are checked before anything is verified.
    """

    allowance: Allowance | None = None
    address: str | None = None
    may_push: bool = True
    is_client: bool = False
    is_over: bool = False

    def refuse(self, key: bytes, value: bytes, now: float) -> Verdict | None:
        """Refuse an entry before its signature is verified, which costs ten times as much. None if it may be accepted.

        The entry may lie about its writer. Then it gets the refusal due to that writer, under its own key only.
        """
        if not self.may_push:
            return MAY_NOT_PUSH
        if not self.is_over or self.allowance is None or self.allowance.is_open:
            return None
        try:
            entry = Entry.decode(value)
        except DecodeError:
            return None
        if entry.key != key or entry.topic != self.allowance.topic:
            # Verification will reject it.
            return None
        wait = self.allowance.find_wait(entry, self.address, now)
        return None if wait is None else wait.in_words

    def admit(self, verdict: Verdict, now: float) -> Verdict:
        """Check an accepted entry against the limits, and charge it if it is let in. Other verdicts are returned unchanged."""
        allowance, entry = self.allowance, verdict.entry
        if allowance is None or not verdict.accepted or entry is None or allowance.is_open:
            return verdict
        wait = allowance.find_wait(entry, self.address, now)
        if wait is not None:
            return wait.in_words
        allowance.charge(entry, self.address, now)
        return verdict

    def settle(self, verdict: Verdict, now: float) -> None:
        """Handle the outcome: refund an entry that was here already or could not be stored, and note whether a limit was hit."""
        allowance = self.allowance
        if allowance is None:
            return
        if verdict.accepted and verdict.is_new:
            self.is_over = False
        elif verdict.rule in (Rule.UNWELCOME, Rule.QUOTA):
            self.is_over = True
        elif verdict.entry is not None and verdict.rule in _CHARGED and not allowance.is_open:
            allowance.refund(verdict.entry, self.address, now)
