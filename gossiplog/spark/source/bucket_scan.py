"""Scanning and following a log in a bucket: each task reads segments itself, from a folder or from object storage."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import trio

from ...arrow.columns import Page
from ...bucket import open_storage
from ...bucket.scan import BucketPlace, Extent, extents, look, up_to_gaps
from ...bucket.table import read_pages
from .scan import FaultPart, ScanPart, Selection


@dataclass(frozen=True)
class ExtentPart(ScanPart):
    """Leaves of one publisher's tree."""

    extent: Extent


@dataclass(frozen=True)
class BucketScan:
    """The entries of all publishers of a bucket, each once; `seq` is an entry's number in its publisher's log. See `Scan` and `Follower`.

    Attributes:
        _location: A path or URL, opened where it is used, as this may be sent to the executors.
        _proves: Compare VALUEs with the publishers' checkpoints.
        _since: For `parts`: the entries that are new since this place.
        _until: For `parts`: up to this place; None for the end.
    """

    _location: str
    _selection: Selection
    _proves: bool = False
    _since: BucketPlace = field(default_factory=BucketPlace)
    _until: BucketPlace | None = None

    def parts(self, count: int | None) -> list[ScanPart]:
        """Cut the bucket into parts of whole segments, about 50,000 entries each for None. Only checkpoints are read."""
        return self.between(self._since, self._until or self.latest(self._since), count)

    def read(self, part: ScanPart) -> Iterator[Page]:
        """Yield a part's rows in the publisher's order. A missing or damaged object is a row with a fault."""
        if isinstance(part, FaultPart):
            return part.pages()
        assert isinstance(part, ExtentPart), part
        has_key = None if self._selection.is_all else self._selection.has_key
        return read_pages(open_storage(self._location), part.extent, proves=self._proves, has_key=has_key)

    def begin(self, seq: int) -> BucketPlace:
        """Return the place before everything, whatever the number."""
        return BucketPlace()

    def latest(self, since: BucketPlace) -> BucketPlace:
        """See `Follower`. A publisher that contradicts what was read is a fault in the place, and not read further."""
        return trio.run(look, open_storage(self._location), self._selection.topic, since)

    def within(
        self, since: BucketPlace, latest: BucketPlace, target: BucketPlace | None = None, rows_max: int | None = None
    ) -> BucketPlace:
        """See `Follower`."""
        return latest.within(since, target, rows_max)

    def reachable(self, since: BucketPlace, until: BucketPlace) -> BucketPlace:
        """See `Follower`. A tree ends before its first missing segment, which is a fault until it is there."""
        return trio.run(up_to_gaps, open_storage(self._location), since, until)

    def between(self, since: BucketPlace, until: BucketPlace, count: int | None) -> list[ScanPart]:
        """See `Follower`. The faults that are new make a part of their own."""
        new = [(f"did:key:{name}", fault) for name, fault in until.faults.items() if since.faults.get(name) != fault]
        found = extents(since, until, count, low=self._selection.seq_min - 1, high=self._selection.seq_max)
        return [*([FaultPart(new)] if new else []), *map(ExtentPart, found)]

    def options(self, since: BucketPlace, until: BucketPlace) -> dict[str, str]:
        """See `Follower`."""
        since = replace(since, faults=until.faults)
        return {"since": json.dumps(since.to_json()), "until": json.dumps(until.to_json())}

    def faults(self, place: BucketPlace) -> dict[str, str]:
        """See `Follower`."""
        return {f"did:key:{name}": fault for name, fault in place.faults.items()}
