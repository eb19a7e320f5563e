"""A bucket as a table of Arrow record batches, for DuckDB, Polars, pandas and others. Needs the extra `arrow`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa
import trio

from ..arrow.columns import BATCH_BYTES, BATCH_ROWS, Page, arrow_schema, to_batches
from ..arrow.export import EXPORT_COLUMNS
from .leaves import Leaves
from .reading import kind_of
from .scan import BucketPlace, Extent, extents, look, read_extent
from .storage import Storage, open_storage


def bucket_to_arrow(
    place: str | os.PathLike[str],
    columns: Sequence[str] = EXPORT_COLUMNS,
    *,
    topic: str | None = None,
    proves: bool = False,
) -> pa.RecordBatchReader:
    """Read the entries of all publishers of a bucket, each once, in the publishers' order. Memory holds a batch at a time.

    The columns are those of `to_arrow`; `seq` is an entry's number in its publisher's log, from 1, and `branch` is null. A missing or
    damaged object is a row with a `fault` and a `place`.

    Args:
        place: A path or URL.
        columns: Their names, in the order of the table.
        topic: The log's, if logs of several topics are published there.
        proves: Compare every VALUE with the publisher's checkpoint, about 4 µs per entry. Without it the publisher is believed. The
            entries' own signatures are not verified.

    Raises:
        LocalProtocolError: There is no such column, or no such log.
        BucketError: The storage failed, now or while batches are read.
        DamagedBucket: No checkpoint there is valid.
    """
    schema, storage = arrow_schema(columns), open_storage(place)
    end = trio.run(look, storage, topic)

    def batches() -> Iterator[pa.RecordBatch]:
        yield from to_batches(fault_pages(end.faults.items()), columns)
        for extent in extents(BucketPlace(), end):
            yield from to_batches(read_pages(storage, extent, proves=proves), columns)

    return pa.RecordBatchReader.from_batches(schema, batches())


def read_pages(storage: Storage, extent: Extent, *, proves: bool = False, has_key: Callable[[bytes], bool] | None = None) -> Iterator[Page]:
    """Yield an extent's rows. Raises BucketError if the storage fails.

    Args:
        proves: See `extent_leaves`.
        has_key: Whether the entry with a key is wanted; None for all.
    """
    waiting: list[Leaves] = []
    rows = size = 0
    for leaves in read_extent(storage, extent, proves=proves):
        if leaves.fault is not None:
            if kind_of(leaves.fault) == "unreadable":
                # The object may be there when it is read again. A row would state for good that it is not.
                raise leaves.fault
            sources = [value or None for value in leaves.values]
            places = [f"{extent.tree} seq {number + 1}" for number in leaves.numbers]
            nothing = [None] * len(places)
            yield Page(nothing, nothing, None, None, places, [str(leaves.fault)] * len(places), sources)
            continue
        if has_key is not None:
            leaves = leaves.only([has_key(key) for key in leaves.keys])
        waiting.append(leaves)
        rows, size = rows + len(leaves.values), size + sum(map(len, leaves.values))
        if rows >= BATCH_ROWS or size >= BATCH_BYTES:
            yield _page(extent, waiting)
            waiting, rows, size = [], 0, 0
    if rows:
        yield _page(extent, waiting)


def fault_pages(faults: Iterable[tuple[str, str]]) -> Iterator[Page]:
    """Yield a row for each fault, given as place and reason."""
    found = list(faults)
    if found:
        nothing = [None] * len(found)
        yield Page(nothing, nothing, None, None, [place for place, _ in found], [fault for _, fault in found])


def _page(extent: Extent, found: list[Leaves]) -> Page:
    values = [value for leaves in found for value in leaves.values]
    keys = [key or None for leaves in found for key in leaves.keys]
    return Page(keys, values, [number + 1 for leaves in found for number in leaves.numbers], None, f"{extent.tree} ")
