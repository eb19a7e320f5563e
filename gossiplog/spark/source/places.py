"""Which reader a location needs: that of a log in its store, of a bucket, or of files of entries."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...archive.source import EXPANDED_BYTES_MAX
from ...bucket.storage import is_published
from ...errors import LocalProtocolError
from ...log.place import LogPlace
from .archive_scan import ArchiveScan
from .run_plan import is_log
from .scan import Follower, number_of, selection_of

if TYPE_CHECKING:
    from ...bucket.scan import BucketPlace


def scan_of(location: str, options: Mapping[str, str]) -> Follower | ArchiveScan:
    """Return the scan of a location, given the options of a load.

    Raises:
        LocalProtocolError: An option has an invalid value, or does not apply to this location.
    """
    selection = selection_of(options)
    if is_published(location):
        from .bucket_scan import BucketScan

        places: list[Any] = [place_of(json.loads(options[name])) for name in ("since", "until") if name in options]
        return BucketScan(location, selection, _is_true(options, "prove"), *places)
    if _is_true(options, "prove"):
        raise LocalProtocolError(f"option prove: {location} is no bucket, and has nothing that could prove it")
    if is_log(location):
        from .store_scan import StoreScan

        return StoreScan(location, selection)
    bytes_max = number_of(options, "maxBytes", 1) if "maxBytes" in options else EXPANDED_BYTES_MAX
    return ArchiveScan(location, selection, bytes_max)


def follower_of(location: str, topic: str | None = None) -> Follower | None:
    """Return the follower of a location; None for files, which do not grow in order."""
    scan = scan_of(location, {} if topic is None else {"topic": topic})
    return None if isinstance(scan, ArchiveScan) else scan


def place_of(record: Mapping[str, Any]) -> LogPlace | BucketPlace:
    """Read what a place's `to_json` returned; raise DecodeError if it is something else."""
    if "trees" not in record:
        return LogPlace.from_json(record)
    from ...bucket.scan import BucketPlace

    return BucketPlace.from_json(record)


def resumed(follower: Follower, place: LogPlace | BucketPlace) -> Any:
    """Return a noted place if it is of the follower's kind; a place before everything becomes the follower's own.

    Raises:
        LocalProtocolError: The place is in a log, and this is a bucket; or the other way round.
    """
    begin = follower.begin(1)
    if isinstance(place, type(begin)):
        return place
    if place.seq == 0:
        return begin
    raise LocalProtocolError("a log was read before, and now a bucket; or the other way round", hint="begin in another folder")


def _is_true(options: Mapping[str, str], name: str) -> bool:
    text = options.get(name, "false").lower()
    if text not in ("true", "false"):
        raise LocalProtocolError(f"option {name}: {text!r}, expected true or false")
    return text == "true"
