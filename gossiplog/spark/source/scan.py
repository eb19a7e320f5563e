"""Scans and followers, which entries of a scan are wanted, and the options that select them.

A misspelt option is an error here, since Spark passes on any option.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pyspark.sql.datasource import InputPartition

from ...arrow.columns import Page, SourceRow, paged
from ...codec.clock import CLOCK_MAX, encode_clock
from ...codec.digits import read_digits
from ...entry.message_id import decode_id
from ...errors import DecodeError, LocalProtocolError

PARTS_MAX = 10_000
_PLACE = frozenset({"path", "url"})
_WANTED = frozenset({"topic", "minClock", "maxClock", "from", "to", "ids", "minSeq", "maxSeq"})
LOAD_OPTIONS = _PLACE | _WANTED | {"columns", "partitions", "maxBytes", "prove"}
STREAM_OPTIONS = _PLACE | {"columns", "partitions", "topic", "startSeq", "maxRowsPerBatch"}
WRITE_OPTIONS = _PLACE | {"topic", "durability", "schemes", "staging", "quarantine", "counts"}

_INTERNAL = frozenset({"work", "workwith", "since", "until", "paths"})
"""Options that only `read_work` and an export give, and `paths`, which Spark adds for `load([…])`."""


@dataclass(frozen=True)
class ScanPart(InputPartition):
    """A part of a scan that one task reads. It is small, as it is pickled and sent to the executor."""


@dataclass(frozen=True)
class FaultPart(ScanPart):
    """Faults found while planning: `(place, fault)`."""

    faults: Sequence[tuple[str, str]]

    def pages(self) -> Iterator[Page]:
        """Yield a row for each fault."""
        yield from paged(SourceRow(None, None, place=place, fault=fault) for place, fault in self.faults)


class Scan(Protocol):
    """A place that entries can be read from."""

    def parts(self, count: int | None) -> list[ScanPart]:
        """Cut the place into about `count` parts, None for a usual number, in key order where it has one. Runs on the driver, and reads
        no values."""

    def read(self, part: ScanPart) -> Iterator[Page]:
        """Yield a part's rows, those without an entry too. Runs on an executor."""


class Follower(Scan, Protocol):
    """A log or a bucket whose new entries can be followed. `Any` stands for a place in it, a `LogPlace` or a `BucketPlace`."""

    def begin(self, seq: int) -> Any:
        """Return the place before an insertion number."""

    def latest(self, since: Any) -> Any:
        """Return the place at the end, after checking that the entries up to an earlier place are still there."""

    def within(self, since: Any, latest: Any, target: Any = None, rows_max: int | None = None) -> Any:
        """Return the latest place, but no further than a target, and at most `rows_max` rows further than an earlier place; the earlier
        place if there is nothing new."""

    def reachable(self, since: Any, until: Any) -> Any:
        """Return a place as far as everything from an earlier place on can be read now."""

    def between(self, since: Any, until: Any, count: int | None) -> Sequence[ScanPart]:
        """Cut the entries between two places into parts. Runs on the driver."""

    def options(self, since: Any, until: Any) -> dict[str, str]:
        """Return the options of a load that reads the entries between two places, without rows for the later place's faults."""

    def faults(self, place: Any) -> dict[str, str]:
        """Return the publishers that are not read further from a place, and why."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which entries are wanted; bounds are keys or the beginnings of keys.

    Attributes:
        topic: Only entries of this topic. A log must have it as a whole.
        after: Only greater keys.
        before: Only lower keys.
        seq_min: Of a log, only entries inserted at or after this number.
        seq_max: Of a log, only entries inserted at or before this number; None for all when the scan is planned.
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
        given: Names in any case, as Spark makes them lower-case.
        known: The names that have an effect.
        what: The owner of the options, for errors.

    Raises:
        LocalProtocolError: One is unknown; the error names it, and the nearest known name.
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
        LocalProtocolError: One of them has an invalid value.
    """
    ids = options.get("ids")
    try:
        keys = None if ids is None else frozenset(decode_id(id.strip()) for id in ids.split(",") if id.strip())
    except DecodeError as error:
        raise LocalProtocolError(f"option ids: {error}") from error
    seq_max = options.get("maxSeq")
    return Selection(
        topic=options.get("topic"),
        after=_low(options),
        before=_high(options),
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


def number_of(options: Mapping[str, str], name: str, least: int, most: int = CLOCK_MAX) -> int:
    """Return an option's number, or the least that it may be if it is not given; raise LocalProtocolError if it is invalid."""
    text = options.get(name, str(least))
    number = read_digits(text, least, most)
    if number is None:
        end = "2^53 − 1" if most == CLOCK_MAX else most
        raise LocalProtocolError(f"option {name}: {text!r}, expected a number from {least} to {end}")
    return number
