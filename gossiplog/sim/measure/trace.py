"""The trace: every send, receipt, connection and fault as one record, as JSON lines, as Parquet, or as text to read.

The columns are `TRACE_SCHEMA`, those of every fact. The simulator leaves `way`, `rule` and `reason` empty.

Source: docs/simulator.md, "The trace".
"""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import IO, Any, Protocol, TypeAlias

from ...errors import LocalProtocolError
from ...glass.fact import TRACE_SCHEMA

Record: TypeAlias = dict[str, Any]
"""The columns of one record that have a value, from `seq` on, in the schema's order."""

PARQUET_ROWS = 65_536
"""Rows per row group."""


class Sink(Protocol):
    """Where records go."""

    def write(self, record: Record) -> None:
        """Take one record. Records come in order."""

    def close(self) -> None:
        """Flush and close. Nothing may be written afterwards."""


class JsonLines:
    """Write one JSON object per line, with the columns in the schema's order and no nulls. The same run gives the same bytes."""

    def __init__(self, file: IO[str], scenario: str, router: str, seed: int) -> None:
        self._file = file
        self._head = f'{{"scenario":{json.dumps(scenario)},"router":"{router}","seed":{seed}'

    def write(self, record: Record) -> None:
        """Write one line. Texts are words of ours, which need no escapes; `repr` of a float reads back as the same float."""
        columns = [f'"{name}":"{value}"' if isinstance(value, str) else f'"{name}":{value!r}' for name, value in record.items()]
        self._file.write(f"{self._head},{','.join(columns)}}}\n")

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
        kind, node, peer, message = record["kind"], record["node"], record.get("peer"), record.get("message")
        match kind:
            case "send":
                what = f"message {message}" if record["type"] == "message" else f"{record['type']} ({record['count']})"
                text = f"{node:>6} → {peer:<6} {what}" + (f", {record['bytes']} B" if record["bytes"] else "")
            case "deliver":
                text = f"{node:>6} ← {peer:<6} delivers message {message} after {record['hops']} hops"
            case "publish":
                text = f"{node:>6}          publishes message {message}"
            case "fault":
                text = f"{'':>6}          {record['type']} ({record['count']} nodes)"
            case _:
                text = f"{node:>6}" + (f" … {peer:<6} {kind}" if peer is not None else f"          {kind}")
        self._file.write(f"{record['time_s']:12.6f} {text}\n")

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
        self._table = pa.Table
        self._schema = pa.schema([(name, types[kind]) for name, kind in TRACE_SCHEMA])
        self._writer: Any = pq.ParquetWriter(str(path), self._schema, compression="zstd")
        self._run = {"scenario": scenario, "router": router, "seed": seed}
        self._rows: list[Record] = []

    def write(self, record: Record) -> None:
        """Keep the record until a row group is full."""
        self._rows.append(self._run | record)
        if len(self._rows) >= PARQUET_ROWS:
            self._flush()

    def close(self) -> None:
        """Write the last row group and the footer."""
        if self._rows:
            self._flush()
        self._writer.close()

    def _flush(self) -> None:
        self._writer.write_table(self._table.from_pylist(self._rows, schema=self._schema))
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
