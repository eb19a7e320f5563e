"""A log's entries as record batches, and record batches as a Parquet file, in memory that does not grow with the log."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import IO, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from ..log.page import is_last_page
from ..log.requests import ReadLeaves, ReadPage
from ..log.whole import key_fault
from ..plan import Plan, ask
from .columns import BATCH_ROWS, Page, arrow_schema, to_batches

EXPORT_COLUMNS = ("id", "key", "clock", "topic", "author", "parents", "payload", "value", "seq", "branch")
"""The default columns: `value` is the entry, byte for byte, and the others are for queries."""
_GROUP_ROWS = 65_536
_GROUP_BYTES = 32 * 1024 * 1024


class KeyBounds(NamedTuple):
    """The entries to read: keys between two bounds, both exclusive, and insertion numbers up to `seq_max`."""

    after: bytes | None = None
    before: bytes | None = None
    seq_max: int | None = None


class BatchReader:
    """Reads entries in the order of ids: run `read_page` on the log and give its result to `make`, until there are no more.

    Args:
        names: Columns, of `COLUMNS`.

    Attributes:
        bounds: The entries still to be read.

    Raises:
        LocalProtocolError: There is no such column.
    """

    def __init__(self, names: Sequence[str], bounds: KeyBounds) -> None:
        self.schema: pa.Schema = arrow_schema(names)
        self._names = list(names)
        self.bounds = bounds
        self._is_over = False

    def read_page(self) -> Plan[Page | None]:
        """Read the next page; None after the last one."""
        if self._is_over:
            return None
        after, before, seq_max = self.bounds
        rows = yield from ask(ReadPage(after, before, False, BATCH_ROWS, seq_max))
        self._is_over = is_last_page(rows, BATCH_ROWS)
        if not rows:
            return None
        keys, values = [key for key, _ in rows], [value for _, value in rows]
        leaves = (yield from ask(ReadLeaves(keys))) if {"seq", "branch", "place"} & set(self._names) else {}
        self.bounds = self.bounds._replace(after=keys[-1])
        seqs = [leaves[key].seq for key in keys] if leaves else None
        return Page(keys, values, seqs, [leaves[key].branch for key in keys] if leaves else None)

    def make(self, page: Page) -> pa.RecordBatch:
        """Make a record batch of a page. Takes about 15 µs per entry with all columns, so do it in a thread.

        With the column `fault` each VALUE is compared with its key, which takes 1 µs.
        """
        if "fault" in self._names:
            page = page._replace(faults=list(map(key_fault, page.keys, page.values)))
        (batch,) = to_batches([page], self._names)
        return batch


class ParquetFile:
    """A Parquet file being written, in groups of 65,536 rows or 32 MiB; a context manager."""

    def __init__(self, file: IO[Any], schema: pa.Schema) -> None:
        self._writer = pq.ParquetWriter(file, schema, compression="zstd")
        self._waiting: list[pa.RecordBatch] = []

    def __enter__(self) -> ParquetFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None) -> None:
        if kind is None:
            self._flush()
        self._writer.close()

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows."""
        self._waiting.append(batch)
        if sum(each.num_rows for each in self._waiting) >= _GROUP_ROWS or sum(each.nbytes for each in self._waiting) >= _GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.Table.from_batches(self._waiting))
            self._waiting = []
