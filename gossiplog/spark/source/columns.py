"""The columns of entries as Spark's types; what they hold is made by `gossiplog.arrow`."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql.pandas.types import from_arrow_schema, from_arrow_type
from pyspark.sql.types import DataType, StructType

from ...arrow import columns

__all__ = ["COLUMNS", "schema_of"]

COLUMNS: dict[str, DataType] = {name: from_arrow_type(kind) for name, kind in columns.COLUMNS.items()}
"""See `gossiplog.arrow.columns`."""


def schema_of(names: Iterable[str]) -> StructType:
    """Return Spark's schema of these columns.

    Raises:
        LocalProtocolError: One of them is none of `COLUMNS`.
    """
    return from_arrow_schema(columns.arrow_schema(names))
