"""The data source `gossiplog`: reads a log or files of entries as a table or a stream, and writes a table into a log."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, DataSourceWriter, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema

from ...arrow.columns import DEFAULT_COLUMNS, to_batches
from ...bucket.storage import is_published
from ...errors import LocalProtocolError
from ..tables.columns import COLUMNS, schema_of
from .locations import is_remote
from .places import follower_of, scan_of
from .scan import LOAD_OPTIONS, PARTS_MAX, STREAM_OPTIONS, WRITE_OPTIONS, Scan, ScanPart, check_options, number_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from ..tables.task_function import TaskWork

_VIEW = "say CREATE TEMPORARY VIEW v USING gossiplog OPTIONS (path '…')"


class GossipLogSource(DataSource):
    """`spark.read.format("gossiplog").load(path)`.

    Options of a load: `path` (a SQLite file; a .jsonl, .car or .hex file, either with .gz; a folder of those, or a pattern; a bucket's
    folder or s3://, gs://, az://, https://) or `url` (a database); `columns`, a comma-separated choice of `COLUMNS` where no `.schema(…)`
    is given; `partitions`; `topic`, `minClock`, `maxClock`, `from`, `to` (ids, the first excluded), `ids`, `minSeq`, `maxSeq`; `maxBytes`,
    the size a compressed file may expand to; `prove`, whether a bucket's entries are compared with its checkpoints; `work`, `workWith`,
    `since` and `until`, for our jobs only. Of a stream: `path` or `url`, `topic`, `startSeq`, `maxRowsPerBatch`, `partitions`. Of a write:
    `path` or `url`, `topic` to create a log, `durability`, `schemes`, `staging`, `quarantine`, `counts`. Any other option is an error.

    It has no `pushFilters` on purpose: in Spark 4.3.0 a pushed filter sticks to the DataFrame, and later queries on it give wrong answers.
    """

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "gossiplog"

    def schema(self) -> StructType:
        """Return the columns that the option `columns` names, or the usual ones."""
        if "provider" in self.options:
            # Spark 4.3.0 keeps such a table in its catalog, but gives the source no options when the table is read.
            raise LocalProtocolError(f"CREATE TABLE cannot be USING gossiplog, as Spark forgets its options; {_VIEW}")
        # Spark does not say yet whether this is a load or a stream.
        check_options(self.options, LOAD_OPTIONS | STREAM_OPTIONS, "a load")
        if "work" in self.options:
            return from_arrow_schema(find_work(self.options["work"]).schema)
        names = self.options.get("columns")
        return schema_of(DEFAULT_COLUMNS if names is None else [name.strip() for name in names.split(",")])

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a table."""
        check_options(self.options, LOAD_OPTIONS, "a load")
        if "work" in self.options:
            return _WorkReader(self.options, schema.fieldNames())
        return _BatchReader(self.options, _names(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of a stream."""
        from .stream import StreamReader

        check_options(self.options, STREAM_OPTIONS, "a stream")
        location = location_of(self.options)
        follower = follower_of(location, self.options.get("topic"))
        if follower is None:
            raise LocalProtocolError(f"{location} is not a log, and only logs can be followed")
        return StreamReader(follower, self.options, _names(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of a table into a log."""
        from .writing import LogWriter

        check_options(self.options, WRITE_OPTIONS, "a write")
        if overwrite:
            raise LocalProtocolError(
                "a log cannot be overwritten", hint='use .mode("append"): entries that are there already are passed over'
            )
        location = location_of(self.options)
        if is_published(location):
            raise LocalProtocolError(f"{location} is a bucket, and only `gossiplog publish` writes there")
        return LogWriter(location, self.options, schema.fieldNames())


def register(spark: SparkSession) -> None:
    """Register the format `gossiplog` with a session; needed only where `pyspark_gossiplog` is not on the server's path."""
    spark.dataSource.register(GossipLogSource)


def location_of(options: Mapping[str, str]) -> str:
    """Return the location of the log or the files, given by the option `path` or `url`.

    Raises:
        LocalProtocolError: Neither or both are given, or the URL is of a file system that Python cannot open files in.
    """
    found = [options[name] for name in ("path", "url") if options.get(name)]
    if len(found) != 1:
        raise LocalProtocolError(f"give either a path or the option url; in SQL, {_VIEW}")
    if is_remote(found[0]) and not is_published(found[0]):
        raise LocalProtocolError(f"a log or a file of entries has a path, but {found[0]} is a URL")
    return found[0]


def find_work(name: str) -> TaskWork:
    """Return the `TaskWork` with this name; raise LocalProtocolError if there is none."""
    from ..tables.state import PICK
    from ..tables.tree import FOLD
    from ..tables.verify import JUDGE

    for work in (JUDGE, PICK, FOLD):
        if work.name == name:
            return work
    raise LocalProtocolError(f"option work: {name!r} is none of judge, pick, fold")


class _BatchReader(DataSourceReader):
    """Reads a table. Everything is opened where it is used, as this is sent to the executors.

    The options stay in Spark's own mapping, whose names are case-insensitive.
    """

    def __init__(self, options: Mapping[str, str], names: list[str]) -> None:
        self._options = options
        self._names = names

    def partitions(self) -> list[InputPartition]:
        """Cut the place that the options name into parts."""
        count = number_of(self._options, "partitions", 1, PARTS_MAX) if "partitions" in self._options else None
        return list(self._scan().parts(count))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a part's rows as record batches."""
        if not isinstance(partition, ScanPart):
            # Without any parts, Spark still asks for one.
            return
        yield from to_batches(self._scan().read(partition), self._names)

    def _scan(self) -> Scan:
        return scan_of(location_of(self._options), self._options)


class _WorkReader(_BatchReader):
    """Reads a table through the function that the option `work` names, with the arguments in `workWith`, a list in JSON."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the function's rows for a part."""
        work = find_work(self._options["work"])
        if self._names != work.schema.names:
            raise LocalProtocolError(f"the columns of the work {work.name} are {', '.join(work.schema.names)}")
        rows = _BatchReader(self._options, list(work.columns)).read(partition)
        yield from work.run(*json.loads(self._options.get("workWith", "[]")), rows)


def _names(schema: StructType) -> list[str]:
    """Return the column names of a user's schema, after checking the types."""
    names: list[str] = schema.fieldNames()
    expected = schema_of(names)
    for field in schema.fields:
        if field.dataType != COLUMNS[field.name]:
            raise LocalProtocolError(
                f"column {field.name} is {expected[field.name].dataType.simpleString()}, not {field.dataType.simpleString()}"
            )
    return names
