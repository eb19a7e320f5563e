"""Which entries of clients a server takes: of whom, and how many.

An entry is charged once it is verified, so that nobody uses up what is another's, and what turns out to be here already costs nothing.
A client that was over a limit is asked first, and what is still over it is not verified at all.
What is over a limit is ignored, never blamed on who brings it: where waiting helps, it is fetched again later.

Source: docs/operations.md, "Access".
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import trio

from ...entry.message import Entry
from ...entry.validation import Outcome, Rule, Verdict
from ...errors import DecodeError
from ...log.requests import ReadCount, ReadTail
from ...plan import ask
from ...pubsub.types import PeerId
from ...replica.log import Replica
from ..ground.access import Access, LogAccess, Quota
from .ask_log import ask_until_answered

__all__ = ["OUR_CHOICE", "Bringer", "Intake", "Intakes", "Wait"]

_METERS_MAX = 65_536
_DEPARTED_MAX = 4_096
_PAGE = 500
_MINUTE_S = 60.0
_COUNTED_SOON_S = 1.0
_COUNTING_S = 5
"""After which to ask again while the log is being counted: 100,000 entries a second are."""
_CHARGED = frozenset({None, Rule.PARENTS, Rule.ACCESS, Rule.QUARANTINED, Rule.STORAGE})
"""Of what was not stored anew, that which verification had accepted."""


class Wait(NamedTuple):
    """An entry is not taken now.

    Attributes:
        verdict: IGNORE, with the reason.
        seconds: After which it may be; None for never.
    """

    verdict: Verdict
    seconds: int | None

    @property
    def in_words(self) -> Verdict:
        """The verdict, with the time when it may go on."""
        return self.verdict if self.seconds is None else replace(self.verdict, reason=f"{self.verdict.reason}; again in {self.seconds} s")


class _Meter:
    """An allowance for each of many: an amount per minute, of which a minute's worth is saved."""

    def __init__(self) -> None:
        # What is left, and when that was.
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait_s(self, name: str, amount: int, most: int) -> float:
        """Say how many seconds from now so much may be taken; 0 for at once. Whatever is more than the most is taken from a full meter."""
        lacking = min(amount, most) - self._left(name, most)
        return max(0.0, lacking * _MINUTE_S / most)

    def take(self, name: str, amount: int, most: int) -> None:
        """Take so much, or give it back."""
        self._levels[name] = min(most, self._left(name, most) - amount), trio.current_time()
        self._levels.move_to_end(name)
        if len(self._levels) > _METERS_MAX:
            self._levels.popitem(last=False)

    def _left(self, name: str, most: int) -> float:
        level, at = self._levels.get(name, (most, 0.0))
        return min(most, level + (trio.current_time() - at) * most / _MINUTE_S)


class Intake:
    """Takes entries of clients for one log.

    Args:
        log: Open.
        access: The rules, which may be replaced.

    Attributes:
        counted: Set once everything in the log is counted that totals depend on; never where nothing does.
    """

    def __init__(self, log: Replica, access: Access) -> None:
        self.counted = trio.Event()
        self._log = log
        self._access = access
        self._entries, self._bytes, self._addresses = _Meter(), _Meter(), _Meter()
        self._totals: dict[str, list[int]] = {}
        self._log_bytes = 0
        # What was charged to the totals and is not committed yet, by key.
        self._reserved: set[bytes] = set()
        # Keys of what was committed while the log is read, which may be read as well.
        self._heard: set[bytes] = set()

    @property
    def is_open(self) -> bool:
        """Whether everything is taken."""
        rules = self._rules()
        return rules.allow is None and rules.quota == Quota()

    async def run(self) -> None:
        """Count what is in the log, and what comes, from when anything depends on it. For as long as the log is served."""
        while not self._rules().quota.counts_totals:
            await self._access.replaced.wait()
        with self._log.watch_commits(self._count):
            _, last = await ask_until_answered(self._log, ask(ReadCount(counted=False)))
            seq = 0
            while seq < last and (page := await ask_until_answered(self._log, ask(ReadTail(seq, _PAGE)))):
                for seq, value in page:
                    entry = Entry.stored(value)
                    if seq <= last and entry.key not in self._heard:
                        self._add(entry.envelope.did, len(value))
            self._heard.clear()
            self.counted.set()
            await trio.sleep_forever()

    async def wait_counted(self) -> None:
        """Wait until all is counted that has to be, within a second: nobody is to be refused for a log that is counted at once."""
        if self._rules().quota.counts_totals:
            with trio.move_on_after(_COUNTED_SOON_S):
                await self.counted.wait()

    def admit(self, verdict: Verdict, address: str | None) -> Wait | None:
        """Charge an entry that was verified; say what becomes of it if it is not taken. What is not accepted anyhow is no matter.

        Args:
            verdict: Of the entry.
            address: Where it came from, as a group of addresses; None for a place that has no limit.
        """
        entry = verdict.entry
        if not verdict.accepted or entry is None or self.is_open:
            return None
        wait = self._find_wait(entry, address)
        if wait is not None:
            return wait
        quota, did, size = self._rules().quota, entry.envelope.did, len(entry.value)
        for meter, name, amount, most, _ in self._limits(quota, did, size, address):
            meter.take(name, amount, most)
        if quota.counts_totals and entry.key not in self._reserved:
            # Else all of a batch would be within the limit.
            self._reserved.add(entry.key)
            self._add(did, size)
        return None

    def foresee(self, key: bytes, value: bytes, address: str | None) -> Verdict | None:
        """Refuse an entry before its signature is verified, which costs ten times as much; charge nobody. None where it may be taken.

        Nothing is believed of it: who says falsely whose entry it is has another's refusal for it, under its own key alone.

        Args:
            key: Under which it came.
            value: VALUE.
            address: As for `admit`.
        """
        try:
            entry = Entry.decode(value)
        except DecodeError:
            return None
        if entry.key != key or entry.topic != self._log.topic or self.is_open:
            return None
        wait = self._find_wait(entry, address)
        return None if wait is None else wait.in_words

    def _find_wait(self, entry: Entry, address: str | None) -> Wait | None:
        """Say what an entry would have to wait for."""
        rules, did, size = self._rules(), entry.envelope.did, len(entry.value)
        if rules.allow is not None and did not in rules.allow:
            return _refused(entry, Rule.UNWELCOME, f"entries of {did} are not taken here", None)
        if rules.quota.counts_totals and not self.counted.is_set():
            return _refused(entry, Rule.QUOTA, "what is here already is still being counted", _COUNTING_S)
        # Whoever brings at once what another brings uses up nothing more.
        if entry.key not in self._reserved and (reason := self._over(rules.quota, did, size)):
            return _refused(entry, Rule.UNWELCOME, reason, None)
        limits = self._limits(rules.quota, did, size, address)
        waits = [(meter.wait_s(name, amount, most), what) for meter, name, amount, most, what in limits]
        seconds, what = max(waits, default=(0.0, ""))
        return _refused(entry, Rule.QUOTA, f"more than {what} a minute", math.ceil(seconds)) if seconds else None

    def judge(self, verdict: Verdict, address: str | None) -> Verdict:
        """The same as a verdict."""
        wait = self.admit(verdict, address)
        return verdict if wait is None else wait.in_words

    def settle(self, verdict: Verdict, address: str | None) -> None:
        """Refund an entry that `judge` let pass, and that was here already or could not be stored."""
        if verdict.entry is not None and not verdict.is_new and not self.is_open and verdict.rule in _CHARGED:
            self.refund(verdict.entry, address)

    def refund(self, entry: Entry, address: str | None) -> None:
        """Give back what an entry was charged that was here already, or could not be stored."""
        for meter, name, amount, most, _ in self._limits(self._rules().quota, entry.envelope.did, len(entry.value), address):
            meter.take(name, -amount, most)
        if entry.key in self._reserved:
            self._reserved.discard(entry.key)
            self._add(entry.envelope.did, len(entry.value), -1)

    def _rules(self) -> LogAccess:
        return self._access.of(self._log.topic)

    def _limits(self, quota: Quota, did: str, size: int, address: str | None) -> list[tuple[_Meter, str, int, int, str]]:
        limits = [
            (self._entries, did, 1, quota.entries_per_minute, "entries of one writer"),
            (self._bytes, did, size, quota.bytes_per_minute, "bytes of one writer"),
            (self._addresses, address or "", 1, quota.address_entries_per_minute if address else None, "entries from one address"),
        ]
        return [(meter, name, amount, most, f"{most:,} {what}") for meter, name, amount, most, what in limits if most is not None]

    def _over(self, quota: Quota, did: str, size: int) -> str | None:
        entries, written = self._totals.get(did, (0, 0))
        if quota.entries_per_writer is not None and entries + 1 > quota.entries_per_writer:
            return f"{quota.entries_per_writer:,} entries of one writer are here, the most that are taken"
        if quota.bytes_per_writer is not None and written + size > quota.bytes_per_writer:
            return f"more than {quota.bytes_per_writer:,} bytes of one writer"
        if quota.log_bytes is not None and self._log_bytes + size > quota.log_bytes:
            return f"the log would have more than {quota.log_bytes:,} bytes"
        return None

    def _count(self, entries: Sequence[Entry]) -> None:
        if not self.counted.is_set():
            self._heard.update(entry.key for entry in entries)
        for entry in entries:
            if entry.key in self._reserved:
                self._reserved.discard(entry.key)
            else:
                self._add(entry.envelope.did, len(entry.value))

    def _add(self, did: str, size: int, sign: int = 1) -> None:
        total = self._totals.setdefault(did, [0, 0])
        total[0] += sign
        total[1] += sign * size
        if total == [0, 0]:
            # Of keys that nothing came of there is no end.
            del self._totals[did]
        self._log_bytes += sign * size


class Bringer(NamedTuple):
    """Under which rules a peer brings entries.

    Attributes:
        intake: Of the listener that it came by; None for no client.
        address: Whose allowance they are taken from, beside their writers'; None for nobody's.
        is_forgotten: It is not known any more how it came.
    """

    intake: Intake | None
    address: str | None
    is_forgotten: bool = False

    def judge(self, verdict: Verdict) -> Verdict:
        """Have the last word on an entry that was verified. See `Intake.judge`."""
        if self.is_forgotten and verdict.accepted:
            return Verdict(Outcome.IGNORE, Rule.UNWELCOME, "it waited for longer than we remember who brought it", verdict.entry)
        return verdict if self.intake is None else self.intake.judge(verdict, self.address)

    def settle(self, verdict: Verdict) -> None:
        """Take the outcome for an entry that was judged. See `Intake.settle`."""
        if self.intake is not None:
            self.intake.settle(verdict, self.address)

    def foresee(self, key: bytes, value: bytes) -> Verdict | None:
        """Refuse an entry before its signature is verified. See `Intake.foresee`."""
        return None if self.intake is None else self.intake.foresee(key, value, self.address)


OUR_CHOICE = Bringer(None, None)
"""Whoever is no client: we chose it, and take what it has."""
_FORGOTTEN = Bringer(None, None, is_forgotten=True)


class Intakes:
    """What the listeners of one log take: those that have the same rules count together.

    Args:
        log: Open.

    Whoever came by one of them is held to its rules, whatever the others allow. An entry may outlive its connection: in the queue, or as
    an orphan. So it is remembered for a while how those came who left.
    """

    def __init__(self, log: Replica) -> None:
        self._log = log
        self._taking: dict[Access, _Taking] = {}
        self._departed: OrderedDict[PeerId, Bringer] = OrderedDict()

    @contextmanager
    def taking(self, access: Access) -> Iterator[Intake]:
        """Take of clients what the rules of a server allow, for the length of a block."""
        taking = self._taking.get(access)
        if taking is None:
            taking = self._taking[access] = _Taking(Intake(self._log, access))
            self._log.tasks.start_soon(taking.run)
        taking.listeners += 1
        try:
            yield taking.intake
        finally:
            taking.listeners -= 1
            if not taking.listeners:
                taking.scope.cancel()
                del self._taking[access]

    def on_left(self, peer: PeerId, bringer: Bringer) -> None:
        """Remember how a peer came that has left."""
        self._departed[peer] = bringer
        self._departed.move_to_end(peer)
        if len(self._departed) > _DEPARTED_MAX:
            self._departed.popitem(last=False)

    def bringer(self, peer: PeerId) -> Bringer:
        """Say how a peer came that has left. Of one that is forgotten nothing is taken: what it brought is brought again by others."""
        return self._departed.get(peer, _FORGOTTEN)


@dataclass(slots=True)
class _Taking:
    """An intake, how many listen with its rules, and the scope that its task is in."""

    intake: Intake
    listeners: int = 0
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)

    async def run(self) -> None:
        with self.scope:
            await self.intake.run()


def _refused(entry: Entry, rule: str, reason: str, seconds: int | None) -> Wait:
    return Wait(Verdict(Outcome.IGNORE, rule, reason, entry), seconds)
