"""Applications and the log: when entries are applied, and what happens to those that cannot be applied.

Source: docs/spec/applications.md.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ..entry.message import Entry
from ..entry.message_id import clock_of, decode_id
from ..errors import DecodeError, Reject
from ..plan import Plan, Request, ask
from . import requests
from .ancestry import children
from .application import Application

PAGE = 1_000
"""How many entries are applied at a time."""


class Batch(list[Entry]):
    """The entries for a call of `apply`: a list that notes how far it was read, which tells which entry could not be applied."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        super().__init__(entries)
        self.seen = 0

    def __iter__(self) -> Iterator[Entry]:
        for index, entry in enumerate(super().__iter__(), 1):
            self.seen = max(self.seen, index)
            yield entry

    def __getitem__(self, at):  # type: ignore[no-untyped-def]
        self.seen = max(self.seen, at + 1) if type(at) is int and at >= 0 else len(self)
        return super().__getitem__(at)


@dataclass(frozen=True, slots=True)
class ApplyFailure:
    """An entry that could not be applied, and why."""

    entry: Entry
    error: Exception


class OwnFailure(Exception):
    """An application raised on appends of ours: the transaction is rolled back and repeated without them.

    Attributes:
        errors: Its errors, by the index of the append's piece of work.
    """

    def __init__(self, errors: dict[int, Exception]) -> None:
        super().__init__()
        self.errors = errors


Applying: TypeAlias = Callable[[Application, Batch, Mapping[bytes, Entry]], Request[Exception | None]]
"""Makes a request that calls an application's `apply` as one attempt. If that raises, it is undone, and the answer is the error."""
Shown: TypeAlias = Callable[[Sequence[Entry]], Plan[Sequence[Entry]]]
"""Returns those of some stored entries that an application gets to see."""


def isolate(entries: Sequence[Entry]) -> Generator[Batch, Exception | None, list[ApplyFailure]]:
    """Find the entries that cannot be applied among many that can. Yields each batch to try, in order, and is sent its error.

    How far the batch was read when it raised nearly always tells which entry was at fault. Then a bad entry costs a repetition of those
    before it. If the whole batch had been read, it is halved.
    """
    failures: list[ApplyFailure] = []
    queue = deque([Batch(entries)])
    while queue:
        batch = queue.popleft()
        error = yield batch
        if error is None:
            continue
        seen, tried = batch.seen, list(batch)
        named = _find_named(tried, error)
        if named is not None:
            failures.append(ApplyFailure(tried[named], error))
            parts = [tried[:named], tried[named + 1 :]]
        elif seen == 1 or len(tried) == 1:
            failures.append(ApplyFailure(tried[0], error))
            parts = [tried[1:]]
        elif 0 < seen < len(tried):
            parts = [tried[: seen - 1], tried[seen - 1 :]]
        else:
            parts = [tried[: len(tried) // 2], tried[len(tried) // 2 :]]
        queue.extendleft(Batch(part) for part in reversed(parts) if part)
    return failures


def _find_named(entries: Sequence[Entry], error: Exception) -> int | None:
    """Return the index of the entry that a `Reject` names; None if it names none of these, or is another exception."""
    if not isinstance(error, Reject) or error.id is None:
        return None
    try:
        key = decode_id(error.id)
    except DecodeError:
        return None
    return next((index for index, entry in enumerate(entries) if entry.key == key), None)


def apply_entries(
    application: Application, entries: Sequence[Entry], applying: Applying, now: float, new: Mapping[bytes, Entry]
) -> Plan[list[ApplyFailure]]:
    """Apply entries, and set aside those on which the application raises.

    Args:
        application: Its tables are up to date except for these entries.
        entries: In causal order.
        now: Unix time in seconds, for the records.
        new: Entries that the store may not have written yet, by key.
    """
    if not entries:
        return []
    attempts = isolate(entries)
    try:
        batch = next(attempts)
        while True:
            error = yield from ask(applying(application, batch, new))
            batch = attempts.send(error)
    except StopIteration as stop:
        failures: list[ApplyFailure] = stop.value
    if failures:
        records = [describe(failure, application.name, now) for failure in failures]
        yield from ask(requests.WriteSetAside(application.name, records, []))
    return failures


def describe(failure: ApplyFailure, application: str, now: float) -> requests.SetAside:
    """Make the record of an entry that is set aside."""
    error = failure.error
    reason = error.reason if isinstance(error, Reject) else str(error)
    return requests.SetAside(failure.entry.key, application, type(error).__name__, reason[:_REASON_CHARS], now)


_REASON_CHARS = 1_000


def catch_up(
    application: Application,
    behind: int,
    end: int | None,
    applying: Applying,
    now: float,
    new: Mapping[bytes, Entry],
    shown: Shown,
) -> Plan[tuple[int | None, list[ApplyFailure]]]:
    """Apply a page of the entries that were stored without the application, and store how far its tables are.

    Args:
        behind: The insertion number up to which its tables are up to date.
        end: The last insertion number to apply, below all that this transaction writes; None for all there are.
        applying, now, new: As `apply_entries`.

    Returns:
        The insertion number up to which its tables are now up to date, None if no entry is missing; and the entries that were set aside.
    """
    rows = yield from ask(requests.ReadTail(behind, PAGE))
    entries = [Entry.stored(value) for seq, value in rows if end is None or seq <= end]
    seen = yield from shown(entries)
    failures = yield from apply_entries(application, seen, applying, now, new)
    is_done = len(entries) < len(rows) or not rows
    place = None if is_done else rows[-1][0]
    yield from ask(requests.WriteApplication(requests.Applied(application.name, application.version, place)))
    return place, failures


def leave_behind(running: Mapping[str, int], last: int) -> Plan[dict[str, requests.Applied]]:
    """Note that entries are stored without the applications that this process does not run in the version of their tables.

    Args:
        running: The versions of the applications that it runs, by name.
        last: The insertion number of the last entry before these.

    Returns:
        The state of the applications that it does run in the version of their tables, by name.
    """
    found: dict[str, requests.Applied] = {}
    for applied in (yield from ask(requests.ReadApplications())):
        if running.get(applied.name) == applied.version:
            found[applied.name] = applied
        elif applied.behind is None:
            yield from ask(requests.WriteApplication(applied._replace(behind=last)))
    return found


def find_applied(name: str) -> Plan[requests.Applied | None]:
    """Return the state of one application's tables; None if it has none."""
    return next((applied for applied in (yield from ask(requests.ReadApplications())) if applied.name == name), None)


def expire_tables(running: Mapping[str, int] | None = None) -> Plan[None]:
    """Have applications' tables rebuilt, because they contain entries that were taken out or no longer count.

    Args:
        running: The versions by name of applications that update their tables themselves; none by default.
    """
    for applied in (yield from ask(requests.ReadApplications())):
        if (running or {}).get(applied.name) != applied.version:
            yield from ask(requests.WriteApplication(requests.Applied(applied.name, 0, None)))


def read_set_aside(application: str) -> Plan[list[requests.SetAside]]:
    """Read all entries that one application has set aside, in the order of keys, which is causal."""
    records: list[requests.SetAside] = []
    after: tuple[bytes, str] | None = None
    while page := (yield from ask(requests.ReadSetAside(after, PAGE))):
        records += [record for record in page if record.application == application]
        after = page[-1].key, page[-1].application
    return records


def has_applied_children(keys: Collection[bytes]) -> Plan[bool]:
    """Say whether any of these entries has a child that is not one of them."""
    leaves = yield from ask(requests.ReadLeaves(list(keys)))
    for key, leaf in leaves.items():
        found = yield from children(requests.Position(leaf.branch, clock_of(key)))
        if any(child not in keys for child in found):
            return True
    return False


def retry(application: Application, keys: Sequence[bytes], applying: Applying, now: float, shown: Shown) -> Plan[list[ApplyFailure]]:
    """Apply entries that were set aside, none of which has a descendant that was applied."""
    yield from ask(requests.WriteSetAside(application.name, [], keys))
    failures: list[ApplyFailure] = []
    for low in range(0, len(keys), PAGE):
        part = keys[low : low + PAGE]
        while part:
            # An answer holds what fits a page, but at least one entry.
            values = yield from ask(requests.ReadValues(part))
            entries = [Entry(key, values[key]) for key in part if key in values]
            if not entries:
                break
            failures += yield from apply_entries(application, (yield from shown(entries)), applying, now, {})
            part = [key for key in part if key not in values]
    return failures
