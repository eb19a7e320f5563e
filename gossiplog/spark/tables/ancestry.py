"""What a log was as of given heads: all their ancestors, and the heads themselves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from ...entry.message_id import decode_id

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["ancestors"]

_SCHEMA = pa.schema([("key", pa.binary()), ("is_missing", pa.bool_())])


def ancestors(entries: DataFrame, heads: Sequence[str]) -> DataFrame:
    """Find the ancestors of some entries, and these themselves.

    One task walks over all keys and parents from the highest key down, about 60 bytes an entry and 3 µs, and remembers only those that are
    wanted and still to come, as many as the history is wide: an entry's parents have lower keys.

    Args:
        entries: Rows with `key` and `parent_keys`.
        heads: Ids.

    Returns:
        `key`, and `is_missing` for what was wanted and is not there: an unknown head, or the parent of an orphan.

    Raises:
        DecodeError: A head is no id.
    """
    wanted = frozenset(decode_id(head) for head in heads)
    graph = entries.select("key", "parent_keys").where("key is not null")
    ordered = graph.repartition(1).sortWithinPartitions(graph["key"].desc())
    return ordered.mapInArrow(partial(_walk, wanted), "key binary, is_missing boolean")


def _walk(heads: frozenset[bytes], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    wanted = set(heads)
    for batch in batches:
        found: list[bytes] = []
        for key, parents in zip(batch.column("key").to_pylist(), batch.column("parent_keys").to_pylist(), strict=True):
            if key in wanted:
                wanted.discard(key)
                wanted.update(parents or ())
                found.append(key)
        yield _batch(found, False)
    yield _batch(sorted(wanted), True)


def _batch(keys: list[bytes], is_missing: bool) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(keys, pa.binary()), pa.array([is_missing] * len(keys), pa.bool_())], schema=_SCHEMA)
