"""A log as a stream: micro-batches by insertion number.

Insertion numbers are what can be resumed from: an entry that arrives late sorts before others that were read long ago, but is inserted
after them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from ...arrow.columns import to_batches
from ...errors import LocalProtocolError
from ...log.place import LogPlace
from .store_scan import SeqRange, check_place_of, cut_evenly, place_of, read_tail

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["StreamReader"]

_ROWS_A_PART = 20_000


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are places, `{"seq": N, "generation": …, "id": …}`: everything up to and including insertion number N has been read.

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
        self._target: LogPlace | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Begin before `startSeq`, or at the end of a log that has not got so far."""
        return place_of(self._location, self._topic, self._start - 1).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Take `maxRowsPerBatch` a batch, everything without it."""
        return ReadMaxRows(self._rows_max) if self._rows_max else ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return how far the next batch goes: to the end of the log, or as far as the limit lets it.

        Raises:
            LogReplaced: The log is not the one that was read up to `start`.
        """
        begin = LogPlace.from_json(start)
        check_place_of(self._location, self._topic, begin)
        until = self._last()
        if isinstance(limit, ReadMaxRows) and until.seq > begin.seq + limit.max_rows:
            until = place_of(self._location, self._topic, begin.seq + limit.max_rows)
        return until.to_json() if until.seq > begin.seq else start

    def reportLatestOffset(self) -> dict[str, Any]:
        """Return the end of the log, for the query's progress."""
        return self._last().to_json()

    def prepareForTriggerAvailableNow(self) -> None:
        """Take what is there now for all there is."""
        self._target = place_of(self._location, self._topic)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Cut a batch into even ranges."""
        after, until = start["seq"], end["seq"]
        return list(cut_evenly(after, until, self._parts or 1 + max(0, until - after) // _ROWS_A_PART))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a range's rows as record batches."""
        assert isinstance(partition, SeqRange), partition
        yield from to_batches(read_tail(self._location, partition), self._names)

    def _last(self) -> LogPlace:
        return place_of(self._location, self._topic) if self._target is None else self._target


def _number(options: Mapping[str, str], name: str, default: int) -> int:
    text = options.get(name, str(default))
    if not text.isascii() or not text.isdigit():
        raise LocalProtocolError(f"option {name}: {text!r}, expected a number")
    return int(text)
