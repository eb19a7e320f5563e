"""The columns of entries as Spark types, and computing those that a table lacks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema, from_arrow_type
from pyspark.sql.types import DataType, StructType

from ...arrow import columns as arrow_columns
from ...arrow.columns import Page, arrow_schema, to_batches
from ...errors import LocalProtocolError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COLUMNS: dict[str, DataType] = {name: from_arrow_type(kind) for name, kind in arrow_columns.COLUMNS.items()}
"""See `gossiplog.arrow.columns`."""
_OF_VALUE = frozenset(COLUMNS) - {"value", "seq", "place", "fault", "source", "branch"}
SAMPLE_ROWS = 10_000
"""How many payloads fields are inferred from."""
_NO_OBJECT = "_corrupt_record"
"""Spark's column for a payload that is not a map."""


def schema_of(names: Iterable[str]) -> StructType:
    """Return Spark's schema of these columns.

    Raises:
        LocalProtocolError: One of them is none of `COLUMNS`.
    """
    return from_arrow_schema(arrow_schema(names))


def with_columns(entries: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Select columns. Those that a table lacks are computed from `value`, in tasks; without `value`, and for places, they are null."""
    there = set(entries.columns)
    computed = [name for name in columns if name not in there and name in _OF_VALUE] if "value" in there else []
    if computed:
        given = list(dict.fromkeys(["value", *[name for name in ("key", *columns) if name in there]]))
        entries = entries.select(*given).mapInArrow(partial(_compute, given, computed), schema_of([*given, *computed]))
        there = set(entries.columns)
    return entries.select(*[F.col(name) if name in there else F.lit(None).cast(COLUMNS[name]).alias(name) for name in columns])


def with_fields(entries: DataFrame, schema: StructType | str) -> DataFrame:
    """Add `fields`, a struct of the values that payloads have under these names; null where there is none, or one of another type.

    Args:
        entries: Rows with `payload`.
        schema: The fields, `celsius double, sensor string` say. `infer_fields` finds those of a sample.
    """
    return entries.withColumn("fields", F.from_json("payload", schema))


def infer_fields(entries: DataFrame) -> StructType:
    """Return the fields of the first 10,000 payloads, with types that can hold all their values.

    Raises:
        LocalProtocolError: No payload is a map with fields.
    """
    sample = entries.select("payload").where("payload is not null").limit(SAMPLE_ROWS)
    found = StructType([field for field in entries.sparkSession.read.json(sample).schema.fields if field.name != _NO_OBJECT])
    if not found.fields:
        raise LocalProtocolError("no payload of the sample is a map with fields", hint="give the schema, as in 'celsius double'")
    return found


def _compute(given: Sequence[str], computed: Sequence[str], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    schema = arrow_schema([*given, *computed])
    for batch in batches:
        values = batch.column("value").to_pylist()
        keys = batch.column("key").to_pylist() if "key" in given else [None] * len(values)
        (made,) = to_batches([Page(keys, values)], computed)
        arrays = [batch.column(name).cast(schema.field(name).type) for name in given]
        yield pa.RecordBatch.from_arrays([*arrays, *made.columns], schema=schema)
