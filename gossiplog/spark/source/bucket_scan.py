"""Scanning a log in a bucket: each task reads segments itself, from a folder or from object storage."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import trio

from ...arrow.columns import Page
from ...bucket import open_storage
from ...bucket.scan import BucketPlace, Extent, extents, look
from ...bucket.table import read_pages
from .scan import FaultPart, ScanPart, Selection


class ExtentPart(ScanPart):
    """Leaves of one publisher's tree."""

    def __init__(self, extent: Extent) -> None:
        super().__init__()
        self.extent = extent


class BucketScan:
    """What a bucket's publishers have, each entry once; `seq` is its number in the publisher's log.

    Args:
        location: A path or URL.
        proves: Compare VALUEs with the publishers' checkpoints.
        since: Only what is new since this place.
        until: Only up to this place; None for all there is.
    """

    def __init__(
        self,
        location: str,
        selection: Selection,
        *,
        proves: bool = False,
        since: BucketPlace | None = None,
        until: BucketPlace | None = None,
    ) -> None:
        self._storage = open_storage(location)
        self._selection = selection
        self._proves = proves
        self._since = since or BucketPlace()
        self._until = until

    def parts(self, count: int | None) -> list[ScanPart]:
        """Cut it into parts of whole segments, about 50,000 entries each for None; checkpoints alone are read."""
        selection, since = self._selection, self._since
        until = self._until or trio.run(look, self._storage, selection.topic, since)
        new = [(f"did:key:{name}", fault) for name, fault in until.faults.items() if since.faults.get(name) != fault]
        found = extents(since, until, count, low=selection.seq_min - 1, high=selection.seq_max)
        return [*([FaultPart(new)] if new else []), *map(ExtentPart, found)]

    def read(self, part: ScanPart) -> Iterator[Page]:
        """Yield a part's rows in the order in which the publisher got them; what is missing or damaged is a row with a fault."""
        if isinstance(part, FaultPart):
            return part.pages()
        assert isinstance(part, ExtentPart), part
        has_key = None if self._selection.is_all else self._selection.has_key
        return read_pages(self._storage, part.extent, proves=self._proves, has_key=has_key)


class BucketFollower:
    """See `Follower`: all publishers of a bucket.

    Args:
        location: A path or URL.
        topic: See `look`.
    """

    def __init__(self, location: str, topic: str | None = None) -> None:
        self._location = location
        self._topic = topic

    def begin(self, seq: int) -> BucketPlace:
        """See `Follower`; before everything, whatever the number."""
        return BucketPlace()

    def latest(self, since: BucketPlace) -> BucketPlace:
        """See `Follower`. A publisher that contradicts what was read is a fault in the place, and is not read on."""
        return trio.run(look, open_storage(self._location), self._topic, since)

    def within(
        self, since: BucketPlace, latest: BucketPlace, target: BucketPlace | None = None, rows_max: int | None = None
    ) -> BucketPlace:
        """See `Follower`."""
        return latest.within(since, target, rows_max)

    def parts(self, since: BucketPlace, until: BucketPlace, count: int | None) -> list[ScanPart]:
        """See `Follower`."""
        return BucketScan(self._location, Selection(), since=since, until=until).parts(count)

    def read(self, part: ScanPart) -> Iterator[Page]:
        """See `Follower`."""
        return BucketScan(self._location, Selection()).read(part)

    def options(self, since: BucketPlace, until: BucketPlace) -> dict[str, str]:
        """See `Follower`."""
        since = replace(since, faults=until.faults)
        return {"since": json.dumps(since.to_json()), "until": json.dumps(until.to_json())}

    def faults(self, place: BucketPlace) -> dict[str, str]:
        """See `Follower`."""
        return {f"did:key:{name}": fault for name, fault in place.faults.items()}
