"""The trace: every send, receipt, connection and fault as one record, as JSON lines, as Parquet, or as text to read.

The columns are `TRACE_SCHEMA`, those of every fact. The simulator leaves `way`, `rule` and `reason` empty.

Source: docs/simulator.md, "The trace".
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, Protocol, TypeAlias

from ...errors import LocalProtocolError
from ...glass.fact import TRACE_SCHEMA

Record: TypeAlias = tuple[int, float, str, int, int | None, str | None, int | None, int | None, int | None, int | None]
"""(seq, time_s, kind, node, peer, type, message, count, bytes, hops)"""

PARQUET_ROWS = 65_536
"""Rows per row group."""


class Sink(Protocol):
    """Where records go."""

    def write(self, record: Record) -> None:
        """Take one record. Records come in order."""

    def close(self) -> None:
        """Flush and close. Nothing may be written afterwards."""


class Recorder:
    """Number records and hand them to the sinks.

    Args:
        sinks: At least one.
    """

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self._sinks = sinks
        self._seq = 0

    def add(
        self,
        time_s: float,
        kind: str,
        node: int,
        peer: int | None = None,
        *,
        type: str | None = None,
        message: int | None = None,
        count: int | None = None,
        size: int | None = None,
        hops: int | None = None,
    ) -> None:
        """Record one event. The columns are those of `TRACE_SCHEMA`; `size` is its `bytes`."""
        record = (self._seq, time_s, kind, node, peer, type, message, count, size, hops)
        self._seq += 1
        for sink in self._sinks:
            sink.write(record)

    def close(self) -> None:
        """Close all sinks."""
        for sink in self._sinks:
            sink.close()


class JsonLines:
    """Write one JSON object per line, with the columns in the schema's order and no nulls. The same run gives the same bytes."""

    def __init__(self, file: IO[str], scenario: str, router: str, seed: int) -> None:
        self._file = file
        self._head = f'{{"scenario":{json.dumps(scenario)},"router":"{router}","seed":{seed}'

    def write(self, record: Record) -> None:
        """Write one line. `repr` of a float is the shortest text that reads back as the same float."""
        seq, time_s, kind, node, peer, type_, message, count, size, hops = record
        line = f'{self._head},"seq":{seq},"time_s":{time_s!r},"kind":"{kind}","node":{node}'
        if peer is not None:
            line += f',"peer":{peer}'
        if type_ is not None:
            line += f',"type":"{type_}"'
        for name, value in (("message", message), ("count", count), ("bytes", size), ("hops", hops)):
            if value is not None:
                line += f',"{name}":{value}'
        self._file.write(line + "}\n")

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class Transcript:
    """Write lines for people: time, node and event."""

    def __init__(self, file: IO[str], scenario: str, router: str, seed: int) -> None:
        self._file = file
        file.write(f"# scenario {scenario}, router {router}, seed {seed}\n")

    def write(self, record: Record) -> None:
        """Write one line."""
        _, time_s, kind, node, peer, type_, message, count, size, hops = record
        match kind:
            case "send":
                what = f"message {message}" if type_ == "message" else f"{type_} ({count})"
                text = f"{node:>6} → {peer:<6} {what}" + (f", {size} B" if size else "")
            case "deliver":
                text = f"{node:>6} ← {peer:<6} delivers message {message} after {hops} hops"
            case "publish":
                text = f"{node:>6}          publishes message {message}"
            case "fault":
                text = f"{'':>6}          {type_} ({count} nodes)"
            case _:
                text = f"{node:>6}" + (f" … {peer:<6} {kind}" if peer is not None else f"          {kind}")
        self._file.write(f"{time_s:12.6f} {text}\n")

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class Parquet:
    """Write a Parquet file, one row group at a time. Needs pyarrow, which the extras `sim` and `spark` install."""

    def __init__(self, path: Path, scenario: str, router: str, seed: int) -> None:
        try:
            pa: Any = importlib.import_module("pyarrow")
            pq: Any = importlib.import_module("pyarrow.parquet")
        except ImportError as error:
            raise LocalProtocolError(
                "a Parquet trace needs pyarrow", hint="pip install 'gossiplog[sim]', or write a .jsonl trace"
            ) from error
        types = {"string": pa.string(), "int64": pa.int64(), "int32": pa.int32(), "double": pa.float64()}
        self._pa = pa
        self._schema = pa.schema([(name, types[kind]) for name, kind in TRACE_SCHEMA])
        self._writer: Any = pq.ParquetWriter(str(path), self._schema, compression="zstd")
        self._run = (scenario, router, seed)
        self._rows: list[Record] = []

    def write(self, record: Record) -> None:
        """Keep the record until a row group is full."""
        self._rows.append(record)
        if len(self._rows) >= PARQUET_ROWS:
            self._flush()

    def close(self) -> None:
        """Write the last row group and the footer."""
        if self._rows:
            self._flush()
        self._writer.close()

    def _flush(self) -> None:
        size = len(self._rows)
        columns: list[Any] = [[value] * size for value in self._run]
        columns.extend(list(column) for column in zip(*self._rows, strict=True))
        columns.extend([None] * size for _ in TRACE_SCHEMA[len(columns) :])
        arrays = [self._pa.array(column, field.type) for column, field in zip(columns, self._schema, strict=True)]
        self._writer.write_table(self._pa.Table.from_arrays(arrays, schema=self._schema))
        self._rows.clear()


def open_sink(path: Path, scenario: str, router: str, seed: int) -> Sink:
    """Open a trace file. Its suffix gives the format: `.jsonl` or `.parquet`.

    Raises:
        LocalProtocolError: The suffix is another, or pyarrow is missing.
        OSError: The file cannot be written.
    """
    if path.suffix == ".parquet":
        return Parquet(path, scenario, router, seed)
    if path.suffix == ".jsonl":
        return JsonLines(path.open("w", encoding="utf-8", newline="\n"), scenario, router, seed)
    raise LocalProtocolError(f"trace file {path}: expected a name that ends in .jsonl or .parquet")
