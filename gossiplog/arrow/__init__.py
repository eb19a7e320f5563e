"""Entries as Arrow record batches and Parquet files. Needs the extra `arrow`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .columns import COLUMNS, arrow_schema

if TYPE_CHECKING:
    from .export import EXPORT_COLUMNS, BatchReader, KeyBounds, ParquetFile

__all__ = ["COLUMNS", "EXPORT_COLUMNS", "BatchReader", "KeyBounds", "ParquetFile", "arrow_schema"]


def __getattr__(name: str) -> Any:
    # Parquet takes as long to import as all the rest; Spark, which starts many processes, has its own.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import export

    return getattr(export, name)
