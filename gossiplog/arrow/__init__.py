"""Entries as Arrow's record batches and Parquet files, for whatever reads those; needs the extra `arrow`."""

from .columns import COLUMNS, arrow_schema
from .export import EXPORT_COLUMNS, BatchReader, KeyBounds, ParquetFile

__all__ = ["COLUMNS", "EXPORT_COLUMNS", "BatchReader", "KeyBounds", "ParquetFile", "arrow_schema"]
