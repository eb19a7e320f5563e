"""What a scan of a log or of files is cut into, which entries of it are wanted, and the options that say so.

A misspelt option is an error: Spark passes on whatever it is given.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pyspark.sql.datasource import InputPartition

from ...arrow.columns import Page, SourceRow, paged
from ...codec.clock import CLOCK_MAX, encode_clock
from ...entry.message_id import decode_id
from ...errors import DecodeError, LocalProtocolError

PARTS_MAX = 10_000
_PLACE = frozenset({"path", "url"})
LOAD_OPTIONS = _PLACE | {
    "columns",
    "partitions",
    "topic",
    "minClock",
    "maxClock",
    "from",
    "to",
    "ids",
    "minSeq",
    "maxSeq",
    "maxBytes",
    "prove",
}
STREAM_OPTIONS = _PLACE | {"columns", "partitions", "topic", "startSeq", "maxRowsPerBatch"}
WRITE_OPTIONS = _PLACE | {"topic", "durability", "schemes", "staging", "quarantine", "counts"}

_INTERNAL = frozenset({"work", "workwith", "since", "until", "paths"})
"""What `read_work` and an export alone give, and what Spark itself adds for `load([…])`."""


class ScanPart(InputPartition):
    """A part of a scan that one task reads; small, and sent to the executor as a pickle."""

    def __init__(self) -> None:
        super().__init__(None)


class FaultPart(ScanPart):
    """What the planning found wrong: `(place, fault)`."""

    def __init__(self, faults: Iterable[tuple[str, str]]) -> None:
        super().__init__()
        self.faults = list(faults)

    def pages(self) -> Iterator[Page]:
        """Yield a row for each."""
        yield from paged(SourceRow(None, None, place=place, fault=fault) for place, fault in self.faults)


class Scan(Protocol):
    """One place that entries can be read from."""

    def parts(self, count: int | None) -> list[ScanPart]:
        """Cut the place into about `count` parts, None for as many as are usual, in key order where it has one; runs on the driver and
        reads no values."""

    def read(self, part: ScanPart) -> Iterator[Page]:
        """Yield a part's rows; runs on an executor. Rows that hold no entry come too."""


class Follower(Protocol):
    """One place that entries can be followed in. `Any` stands for a place in it, a `LogPlace` or a `BucketPlace`."""

    def begin(self, seq: int) -> Any:
        """Return the place before an insertion number."""

    def latest(self, since: Any) -> Any:
        """Return the place at the end, after a look whether what was read up to an earlier place is still so."""

    def within(self, since: Any, latest: Any, target: Any = None, rows_max: int | None = None) -> Any:
        """Return the place that is as far as the latest, but not beyond a target, nor by more rows from an earlier one; that one if there
        is nothing new."""

    def parts(self, since: Any, until: Any, count: int | None) -> Sequence[ScanPart]:
        """Cut what lies between two places into parts; runs on the driver."""

    def read(self, part: ScanPart) -> Iterator[Page]:
        """Yield a part's rows; runs on an executor."""

    def options(self, since: Any, until: Any) -> dict[str, str]:
        """Return the options of a load that reads what lies between two places, and no rows for faults of the latter."""

    def faults(self, place: Any) -> dict[str, str]:
        """Return who is not read on from a place, and why."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which entries are wanted; bounds are keys or the beginnings of keys.

    Attributes:
        topic: Only entries of this topic; of a log, what its topic must be.
        after: Only greater keys.
        before: Only lower keys.
        seq_min: Of a log, only entries inserted at or after this number.
        seq_max: Of a log, only entries inserted at or before it; None for all there are when the scan is planned.
        keys: Only these; None for all.
    """

    topic: str | None = None
    after: bytes | None = None
    before: bytes | None = None
    seq_min: int = 1
    seq_max: int | None = None
    keys: frozenset[bytes] | None = None

    @property
    def is_all(self) -> bool:
        """Whether every key is wanted."""
        return self.after is None and self.before is None and self.keys is None

    def has_key(self, key: bytes) -> bool:
        """Say whether an entry with this key is wanted."""
        if self.keys is not None and key not in self.keys:
            return False
        return (self.after is None or key > self.after) and (self.before is None or key < self.before)


def check_options(given: Iterable[str], known: frozenset[str], what: str) -> None:
    """Refuse options that have no effect.

    Args:
        given: Names in any case: Spark makes them lower.
        known: The names that have an effect.
        what: The owner of the options, for errors.

    Raises:
        LocalProtocolError: One is unknown; the error names it, and the nearest that is known.
    """
    by_lower = {name.lower(): name for name in known}
    for name in given:
        lower = name.lower()
        if lower in by_lower or lower in _INTERNAL:
            continue
        near = difflib.get_close_matches(lower, by_lower, 1)
        hint = f"did you mean {by_lower[near[0]]}?" if near else f"expected one of {', '.join(sorted(known))}"
        raise LocalProtocolError(f"unknown option {name} of {what}; {hint}")


def selection_of(options: Mapping[str, str]) -> Selection:
    """Read a load's options: `topic`, `minClock`, `maxClock`, `from`, `to`, `ids`, `minSeq`, `maxSeq`.

    Raises:
        LocalProtocolError: One of them has a value that makes no sense.
    """
    after = _low(options)
    before = _high(options)
    ids = options.get("ids")
    try:
        keys = None if ids is None else frozenset(decode_id(id.strip()) for id in ids.split(",") if id.strip())
    except DecodeError as error:
        raise LocalProtocolError(f"option ids: {error}") from error
    seq_max = options.get("maxSeq")
    return Selection(
        topic=options.get("topic"),
        after=after,
        before=before,
        seq_min=number_of(options, "minSeq", 1),
        seq_max=None if seq_max is None else number_of(options, "maxSeq", 0),
        keys=keys,
    )


def _low(options: Mapping[str, str]) -> bytes | None:
    """The greater of the two lower bounds: entries after the id `from`, and of clock `minClock` on."""
    bounds = []
    if "from" in options:
        bounds.append(_key(options, "from"))
    if "minClock" in options:
        # The beginning of a key sorts before every key that begins so.
        bounds.append(encode_clock(number_of(options, "minClock", 0)))
    return max(bounds, default=None)


def _high(options: Mapping[str, str]) -> bytes | None:
    """The lower of the two upper bounds: entries up to and including the id `to`, and up to clock `maxClock`."""
    bounds = []
    if "to" in options:
        bounds.append(_key(options, "to") + b"\0")
    if "maxClock" in options and (clock := number_of(options, "maxClock", 0)) < CLOCK_MAX:
        bounds.append(encode_clock(clock + 1))
    return min(bounds, default=None)


def _key(options: Mapping[str, str], name: str) -> bytes:
    try:
        return decode_id(options[name])
    except DecodeError as error:
        raise LocalProtocolError(f"option {name}: {error}") from error


def number_of(options: Mapping[str, str], name: str, least: int) -> int:
    """Read an option that is a number; without it, the least that it may be.

    Raises:
        LocalProtocolError: It is none, or out of range.
    """
    text = options.get(name, str(least))
    if not text.isascii() or not text.isdigit() or not least <= int(text) <= CLOCK_MAX:
        raise LocalProtocolError(f"option {name}: {text!r}, expected a number from {least} to 2^53 − 1")
    return int(text)
