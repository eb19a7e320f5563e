"""Replicas of one log in one process, with real entries and real SQL. A world performs the steps of a history and compares the tables."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

from ..codec import pcf
from ..entry.rules import next_clock
from ..entry.signing import Ed25519Signer, sign_entry
from ..errors import LocalProtocolError, Reject
from ..log.applying import Batch, isolate
from .history import Delivered, History, Step, Written, name_ids, resolve_ids
from .membership import AUTHORS, Judge, Judged, found, say
from .tables import CheckedTransaction, Known, Tables, Unrepeatable
from .watch import watching

if TYPE_CHECKING:
    from ..entry.message import Entry
    from ..log.application import Application

Query: TypeAlias = Callable[..., list[tuple[Any, ...]]]
"""`query(sql, *parameters)`: rows of one replica's tables."""
Invariant: TypeAlias = Callable[[Query], None]
"""Raises if something does not hold of a replica's tables. It must hold after every step."""

_TOPIC = "testing.example.com"
_ROWS_SHOWN = 4
_BATCH = 1_000


@dataclass(frozen=True)
class WorldRules:
    """The application to check, and how.

    Attributes:
        shown: Queries whose rows must agree; if there are none, all rows of all tables must.
        refusals: Exceptions that `apply` raises on purpose, for entries without effect.
        has_members: The log has a policy, so entries may be refused, or become void.
    """

    application: Application
    invariants: Sequence[Invariant] = ()
    shown: Sequence[str] = ()
    refusals: tuple[type[Exception], ...] = (Reject,)
    has_members: bool = False


class Found(Exception):
    """Ends a history at its first failure. For shrinking, two failures of one kind are the same."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


@dataclass
class _Replica:
    tables: Tables
    known: Known
    numbers: list[int] = field(default_factory=list)
    """The numbers of its entries, in the order of arrival."""
    refused: set[str] = field(default_factory=set)
    """The ids of entries that the application refused."""


@cache
def signer_of(author: int) -> Ed25519Signer:
    """Return the key of an author, which is the same in every history."""
    return Ed25519Signer.from_seed((author + 1).to_bytes(32, "big"))


class HistoryWorld:
    """A history in the making, as a context manager that closes the tables."""

    def __init__(self, rules: WorldRules, replicas: int) -> None:
        self._rules = rules
        self.entries: list[Entry] = []
        self._numbers: dict[str, int] = {}
        self._written: list[Written] = []
        self._steps: list[Step] = []
        self._count = replicas
        self.replicas: list[_Replica] = []
        self.has_members = rules.has_members
        # The first entries of a log with members. Each replica has them; they are not part of the history.
        self._signers = tuple(map(signer_of, range(max(AUTHORS, replicas) + 1)))
        self._founding = found(_TOPIC, self._signers) if rules.has_members else []

    def __enter__(self) -> HistoryWorld:
        return self

    def __exit__(self, *_: object) -> None:
        for replica in self.replicas:
            replica.tables.close()

    @property
    def history(self) -> History:
        """Return what has happened so far."""
        return History(tuple(self._written), tuple(self._steps), self._count)

    def start(self) -> None:
        """Make the replicas, with the application's tables.

        Raises:
            Found: Making the tables fails.
        """
        for number in range(self._count):
            self.replicas.append(self._make_replica(is_reversed=number % 2 == 1))

    def write(self, author: int, parents: Sequence[int], payload: Any) -> int:
        """Make an entry, and return its number. Its payload may contain ids, or names such as `<entry 3>`."""
        named = name_ids(payload, self._numbers)
        keys = sorted({self.entries[parent].key for parent in parents})
        said, topic = resolve_ids(named, [entry.id for entry in self.entries]), _TOPIC
        if self._founding:
            topic, keys = self._founding[0].topic, keys or [self._founding[-1].key]
            dids = [signer.did for signer in self._signers]
            said = say(said, dids[0], dids, [*self._founding, *(self.entries[number] for number in self._ancestors(parents))])
        entry = sign_entry(signer_of(author), topic, next_clock(keys), keys, pcf.encode(said))
        # A log stores equal entries once. Here each has a number of its own, because histories count what was written.
        self._numbers.setdefault(entry.id, len(self.entries))
        self.entries.append(entry)
        self._written.append(Written(author, tuple(parents), named))
        return len(self.entries) - 1

    def heads(self, replica: int) -> list[int]:
        """Return the numbers of a replica's entries without children, ascending."""
        numbers = self.replicas[replica].numbers
        return sorted(set(numbers).difference(*(self._parents(number) for number in numbers)))

    def do(self, step: Step) -> None:
        """Perform one step, and check the invariants of its replica.

        Raises:
            Found: The step fails, or an invariant does not hold.
        """
        self._steps.append(step)
        if isinstance(step, Delivered):
            replica = self.replicas[step.to]
            numbers = self._lacking(replica, step.entries)
            if numbers:
                taken = replica.known.take([self.entries[number] for number in numbers])
                self._commit(replica, lambda tx: self._take(replica, taken, tx), step.aborted_after)
                replica.refused.difference_update(entry.id for entry in taken.lost)
                replica.numbers += [number for number in numbers if self.entries[number].id in replica.known.entries]
        else:
            replica = self.replicas[step.replica]
            self._commit(replica, lambda tx: self._rebuild(replica, tx, step.batch), step.aborted_after)
        for invariant in self._rules.invariants:
            name = getattr(invariant, "__name__", "invariant")
            try:
                invariant(replica.tables.query)
            except Exception as error:
                raise Found(f"invariant {name}", f"{name} does not hold: {self._readable(_last_lines(error))}") from error

    def finish(self) -> None:
        """Deliver all entries to all replicas, and compare their tables with those of a replica that is built from nothing.

        Raises:
            Found: Two tables differ.
        """
        steps = list(self._steps)
        for number in range(len(self.replicas)):
            self.do(Delivered(number, range(len(self.entries))))
        self._steps = steps
        expected = self.rebuilt(is_watched=True)
        for number, replica in enumerate(self.replicas):
            difference = self._compare(expected, replica.tables.contents(self._rules.shown))
            if difference:
                raise Found("tables", f"replica {number} has the same entries and other tables than a rebuild from nothing:\n{difference}")
        if self._rules.application.order_free:
            difference = self._compare(expected, self.rebuilt(is_reversed=True))
            if difference:
                raise Found("order_free", f"the application is order_free, but applied in reverse it gives other tables:\n{difference}")
        if self._rules.application.undo is not None:
            gone = frozenset(entry.id for entry in self.entries[:: len(self.replicas)])
            difference = self._compare(self.rebuilt(without=gone), self.rebuilt(undone=gone))
            if difference:
                raise Found("undo", f"after undo the tables differ from those without the undone entries:\n{difference}")

    def rebuilt(
        self,
        *,
        is_watched: bool = False,
        is_reversed: bool = False,
        without: frozenset[str] = frozenset(),
        undone: frozenset[str] = frozenset(),
    ) -> dict[str, list[str]]:
        """Return the tables that entries make from nothing, applied in the order of ids or in reverse.

        Args:
            without: Ids of entries that the application never gets, as if they had been void on arrival.
            undone: Ids of entries that it has to undo at the end, as if they had become void then.
        """
        oracle = self._make_replica(is_reversed=False)

        def work(tx: CheckedTransaction) -> None:
            refused = self._apply_all(oracle.known, tx, _BATCH, is_reversed=is_reversed, without=without)
            lost = [entry for id, entry in reversed(oracle.known.shown().items()) if id in undone - refused]
            if lost and self._rules.application.undo is not None:
                tx.call(self._rules.application.undo, Batch(lost))

        try:
            oracle.known.take(list({entry.id: entry for entry in self.entries}.values()))
            self._commit(oracle, work, None, is_watched=is_watched)
            return oracle.tables.contents(self._rules.shown)
        finally:
            oracle.tables.close()

    def _make_replica(self, *, is_reversed: bool) -> _Replica:
        known = Known(Judge(self._founding[0].topic) if self._founding else None)
        known.take(self._founding)
        replica = _Replica(Tables(known, is_reversed=is_reversed), known)
        try:
            self._commit(replica, self._reset, None)
        except BaseException:
            replica.tables.close()
            raise
        return replica

    def _lacking(self, replica: _Replica, wanted: Iterable[int]) -> list[int]:
        """Return the wanted entries that a replica lacks, and the ancestors that it lacks, each after its parents."""
        has = set(replica.numbers)
        found: list[int] = []
        waiting = [self._first_of(number) for number in wanted][::-1]
        while waiting:
            number = waiting[-1]
            missing = [parent for parent in self._parents(number) if parent not in has]
            if missing:
                waiting += missing
                continue
            waiting.pop()
            if number not in has:
                has.add(number)
                found.append(number)
        return found

    def _first_of(self, number: int) -> int:
        """Return the smallest number of an equal entry."""
        return self._numbers[self.entries[number].id]

    def _ancestors(self, numbers: Iterable[int]) -> list[int]:
        found: set[int] = set()
        waiting = [self._first_of(number) for number in numbers]
        while waiting:
            number = waiting.pop()
            if number not in found:
                found.add(number)
                waiting += self._parents(number)
        return sorted(found)

    def _parents(self, number: int) -> list[int]:
        return [self._first_of(parent) for parent in self._written[number].parents]

    def _commit(
        self, replica: _Replica, work: Callable[[CheckedTransaction], object], aborted_after: int | None, *, is_watched: bool = False
    ) -> None:
        try:
            with watching() if is_watched else nullcontext():
                replica.tables.commit(work, aborted_after=aborted_after)
        except Unrepeatable as error:
            raise Found(error.what, str(error)) from error

    def _reset(self, tx: CheckedTransaction) -> None:
        if self._rules.application.reset is not None:
            tx.call(self._rules.application.reset)

    def _take(self, replica: _Replica, taken: Judged, tx: CheckedTransaction) -> None:
        """Have the application follow a commit, as a log does: void entries are undone, or the tables are rebuilt."""
        application = self._rules.application
        if (taken.lost and application.undo is None) or (taken.regained and not application.order_free):
            self._rebuild(replica, tx, _BATCH)
            return
        if (lost := [entry for entry in taken.lost if entry.id not in replica.refused]) and application.undo is not None:
            tx.call(application.undo, Batch(lost))
        for entries in filter(None, (taken.regained, taken.shown)):
            replica.refused |= self._apply(entries, tx)

    def _rebuild(self, replica: _Replica, tx: CheckedTransaction, batch: int) -> None:
        self._reset(tx)
        replica.refused = self._apply_all(replica.known, tx, batch)

    def _apply_all(
        self, known: Known, tx: CheckedTransaction, batch: int, *, is_reversed: bool = False, without: frozenset[str] = frozenset()
    ) -> set[str]:
        ordered = [entry for id, entry in known.shown().items() if id not in without]
        if is_reversed:
            ordered.reverse()
        refused: set[str] = set()
        for start in range(0, len(ordered), batch):
            refused |= self._apply(ordered[start : start + batch], tx)
        return refused

    def _apply(self, entries: Sequence[Entry], tx: CheckedTransaction) -> set[str]:
        """Have the application apply entries, as a log does, and return the ids of those that it refused, which have no effect."""
        attempts = isolate(entries)
        try:
            batch = next(attempts)
            while True:
                batch = attempts.send(self._try(batch, tx))
        except StopIteration as stop:
            return {failure.entry.id for failure in stop.value}

    def _try(self, batch: Batch, tx: CheckedTransaction) -> Exception | None:
        try:
            tx.undoing(lambda: tx.call(self._rules.application.apply, batch))
        except self._rules.refusals as refusal:
            return refusal
        except LocalProtocolError:
            raise
        except Exception as error:
            payloads = ", ".join(repr(entry.payload) for entry in batch[:_ROWS_SHOWN])
            text = f"apply raised {type(error).__name__}: {_last_lines(error)}\nwhen it was given {payloads}"
            raise Found(f"apply raised {type(error).__name__}", self._readable(text)) from error
        return None

    def _compare(self, expected: dict[str, list[str]], found: dict[str, list[str]]) -> str:
        lines = []
        for name in sorted({*expected, *found}):
            rebuilt, rows = expected.get(name, []), found.get(name, [])
            if rebuilt != rows:
                lines += [f"  {name}, only in the replica: {row}" for row in _without(rows, rebuilt)]
                lines += [f"  {name}, only in the rebuild: {row}" for row in _without(rebuilt, rows)]
        return self._readable("\n".join(lines))

    def _readable(self, text: str) -> str:
        named: str = name_ids(text, self._numbers)
        return named


def _without(rows: Sequence[str], others: Sequence[str]) -> list[str]:
    left = list(others)
    found = []
    for row in rows:
        if row in left:
            left.remove(row)
        else:
            found.append(row)
    return found[:_ROWS_SHOWN]


def _last_lines(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({frames[-1].name}, line {frames[-1].lineno})" if frames else ""
    return f"{error}{place}"
