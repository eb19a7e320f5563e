"""A log or a bucket as a stream of micro-batches in the order of insertion.

Only that order can be resumed: an entry that arrives late sorts before others read long ago, but is inserted after them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from ...arrow.columns import to_batches
from .places import place_of, resumed
from .scan import PARTS_MAX, Follower, ScanPart, number_of

if TYPE_CHECKING:
    import pyarrow as pa


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads micro-batches. Offsets are places, a `LogPlace` or a `BucketPlace` as JSON: everything up to an offset has been read.

    Args:
        options: `startSeq`, the first number to read of a log; `maxRowsPerBatch`; `partitions` of a batch.
    """

    def __init__(self, follower: Follower, options: Mapping[str, str], names: Sequence[str]) -> None:
        self._follower = follower
        self._names = list(names)
        self._start = number_of(options, "startSeq", 1)
        self._rows_max = number_of(options, "maxRowsPerBatch", 0)
        self._parts = number_of(options, "partitions", 0, PARTS_MAX)
        self._target: Any = None
        self._latest: Any = None

    def initialOffset(self) -> dict[str, Any]:
        """Return the place before `startSeq`, or the end of a shorter log."""
        return self._json(self._follower.begin(self._start))

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return `maxRowsPerBatch`, or no limit."""
        return ReadMaxRows(self._rows_max) if self._rows_max else ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end of the next batch: the end of the log, or the limit.

        Raises:
            LogReplaced: The log is not the one that was read up to `start`.
        """
        begin = self._place(start)
        self._latest = self._follower.latest(begin)
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        until = self._follower.reachable(begin, self._follower.within(begin, self._latest, self._target, rows_max))
        return start if until == begin else self._json(until)

    def reportLatestOffset(self) -> dict[str, Any]:
        """Return the end of the log as last seen, for the query's progress."""
        return self._json(self._latest or self._follower.latest(self._follower.begin(1)))

    def prepareForTriggerAvailableNow(self) -> None:
        """End the stream at what is there now."""
        self._target = self._follower.latest(self._follower.begin(1))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Cut a batch into even ranges."""
        return list(self._follower.between(self._place(start), self._place(end), self._parts or None))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a range's rows as record batches."""
        assert isinstance(partition, ScanPart), partition
        yield from to_batches(self._follower.read(partition), self._names)

    def _place(self, offset: dict[str, Any]) -> Any:
        return resumed(self._follower, place_of(offset))

    def _json(self, place: Any) -> dict[str, Any]:
        found: dict[str, Any] = place.to_json()
        return found
