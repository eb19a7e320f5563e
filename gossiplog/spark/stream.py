"""A log as a stream: micro-batches by insertion number.

Insertion numbers are what can be resumed from: an entry that arrives late sorts before others that were read long ago, but is inserted
after them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from ..errors import LocalProtocolError
from .columns import to_batches
from .store_scan import SeqRange, last_seq, read_tail

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["StreamReader"]

_ROWS_A_PART = 20_000


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are `{"seq": N}`: everything up to and with insertion number N has been read.

    Args:
        location: A log.
        options: `topic`; `startSeq`, the first number to read; `maxRowsPerBatch`; `partitions` of a batch.
        names: The columns.
    """

    def __init__(self, location: str, options: Mapping[str, str], names: Sequence[str]) -> None:
        self._location = location
        self._names = list(names)
        self._topic = options.get("topic")
        self._start = _number(options, "startSeq", 1)
        self._rows_max = _number(options, "maxRowsPerBatch", 0)
        self._parts = _number(options, "partitions", 0)
        self._target: int | None = None

    def initialOffset(self) -> dict[str, int]:
        """Begin before `startSeq`."""
        return {"seq": self._start - 1}

    def getDefaultReadLimit(self) -> ReadLimit:
        """Take `maxRowsPerBatch` a batch, everything without it."""
        return ReadMaxRows(self._rows_max) if self._rows_max else ReadAllAvailable()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """Return how far the next batch goes: to the end of the log, or as far as the limit lets it."""
        until = self._last()
        if isinstance(limit, ReadMaxRows):
            until = min(until, start["seq"] + limit.max_rows)
        # A log whose file was put back to an older state must not take the stream back with it.
        return {"seq": max(until, start["seq"])}

    def reportLatestOffset(self) -> dict[str, int]:
        """Return the end of the log, for the query's progress."""
        return {"seq": self._last()}

    def prepareForTriggerAvailableNow(self) -> None:
        """Take what is there now for all there is."""
        self._target = last_seq(self._location, self._topic)

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """Cut a batch into even ranges."""
        after, until = start["seq"], end["seq"]
        rows = until - after
        if rows <= 0:
            return []
        count = min(rows, self._parts or 1 + rows // _ROWS_A_PART)
        bounds = [after + rows * at // count for at in range(count + 1)]
        return [SeqRange(low, high) for low, high in pairwise(bounds)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a range's rows as record batches."""
        assert isinstance(partition, SeqRange), partition
        yield from to_batches(read_tail(self._location, partition), self._names)

    def _last(self) -> int:
        return last_seq(self._location, self._topic) if self._target is None else self._target


def _number(options: Mapping[str, str], name: str, default: int) -> int:
    text = options.get(name, str(default))
    if not text.isascii() or not text.isdigit():
        raise LocalProtocolError(f"option {name}: {text!r}, expected a number")
    return int(text)
