"""Functions that tasks apply to the entries they read before anything goes to the JVM: most jobs reduce much to little."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from .columns import with_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ROWS = 4_096


@dataclass(frozen=True, slots=True)
class TaskWork:
    """A function over the record batches of a task.

    Attributes:
        name: Its name in the source's option `work`.
        columns: The columns of `COLUMNS` that it reads.
        run: The function. Its last argument is the batches; the others are plain values.
    """

    name: str
    columns: tuple[str, ...]
    schema: pa.Schema
    run: Callable[..., Iterator[pa.RecordBatch]]

    def on(self, entries: DataFrame, *arguments: Any) -> DataFrame:
        """Run it over any table of entries; see `with_columns` for columns that it lacks."""
        return with_columns(entries, self.columns).mapInArrow(partial(self.run, *arguments), from_arrow_schema(self.schema))


def row_batches(rows: list[tuple[Any, ...]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield rows as record batches of a bounded size."""
    for low in range(0, len(rows), _ROWS):
        columns = zip(*rows[low : low + _ROWS], strict=True)
        yield pa.RecordBatch.from_arrays([pa.array(c, field.type) for c, field in zip(columns, schema, strict=True)], schema=schema)
