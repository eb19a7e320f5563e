"""What tasks do with the entries they read, before anything goes to the JVM: most jobs make little of much."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from .entries import is_table, read_entries, with_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Work", "row_batches"]

_ROWS = 4_096


@dataclass(frozen=True, slots=True)
class Work:
    """A function over the record batches of a task.

    Attributes:
        name: What the source's option `work` calls it.
        columns: What it reads, of `COLUMNS`.
        schema: What it yields.
        run: The function. Its last argument is the batches, those before it are plain values.
    """

    name: str
    columns: tuple[str, ...]
    schema: pa.Schema
    run: Callable[..., Iterator[pa.RecordBatch]]

    def on(self, entries: DataFrame, *arguments: Any) -> DataFrame:
        """Run it over any table of entries; columns that it lacks are null."""
        return with_columns(entries, self.columns).mapInArrow(partial(self.run, *arguments), from_arrow_schema(self.schema))

    def at(self, spark: SparkSession, location: str, *arguments: Any, options: Mapping[str, str] | None = None) -> DataFrame:
        """Run it over the entries of a place, in the processes that read them: they need not go through the JVM twice.

        Args:
            spark: The session.
            location: See `read_entries`.
            *arguments: Of the function.
            options: See `read_entries`.
        """
        if is_table(location):
            return self.on(read_entries(spark, location, self.columns), *arguments)
        named = {**(options or {}), "work": self.name, "workWith": json.dumps(arguments)}
        return read_entries(spark, location, self.columns, named)


def row_batches(rows: list[tuple[Any, ...]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield rows as record batches of a bounded size."""
    for low in range(0, len(rows), _ROWS):
        columns = zip(*rows[low : low + _ROWS], strict=True)
        yield pa.RecordBatch.from_arrays([pa.array(c, field.type) for c, field in zip(columns, schema, strict=True)], schema=schema)
