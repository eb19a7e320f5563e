"""Writing a table into a log: tasks stage rows, and the commit inserts them like entries from a stranger.

A log has one writer, and every entry is verified before it is inserted, so the tasks only sort. Each writes files of rows in the order of
their keys. The commit merges these files, so parents come before their children, whatever their order in the table.
"""

from __future__ import annotations

import heapq
import json
import os
import shutil
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from ...entry.message import Entry
from ...entry.schemes import ED25519
from ...errors import DecodeError, LocalProtocolError
from ...store.postgres.url import is_postgres_url
from ...tasks.pages import bounded
from .locations import check_local

_RUN_BYTES = 64 * 1024 * 1024
"""A task sorts this much at a time, in memory."""
_INSERT_ROWS = 4_000
_INSERT_BYTES = 8 * 1024 * 1024
_RUN_SCHEMA = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("place", pa.string())])
_Row = tuple[bytes, bytes, str]


class _Staged(WriterCommitMessage):
    """The paths of the runs that a task has written."""

    def __init__(self, runs: list[str]) -> None:
        self.runs = runs


class LogWriter(DataSourceArrowWriter):
    """Writes the column `value` of rows; other columns are ignored, except `place` and `fault`, which the quarantine repeats.

    Rows that cannot be inserted go to the quarantine, a file of JSON lines with place, id, rule, reason and VALUE in hexadecimal.

    Args:
        location: The log. It is created if the option `topic` is given.
        options: `topic`; `durability`, `normal` unless given; `schemes`, the signature schemes to accept, `ed25519` unless given;
            `staging`, a folder that tasks and driver share, beside the log unless given;
            `quarantine`, the file, beside the log unless given; `counts`, a file for the numbers of rows added, known and failed.
        names: The columns of the table.

    Raises:
        LocalProtocolError: There is no column `value`, or no folder to stage rows in.
    """

    def __init__(self, location: str, options: Mapping[str, str], names: Sequence[str]) -> None:
        if "value" not in names:
            raise LocalProtocolError("writing to a log needs a column value with the entries' bytes")
        if is_postgres_url(location) and "staging" not in options:
            raise LocalProtocolError("writing to a database needs the option staging", hint="name a folder that all tasks can write to")
        for name in ("staging", "quarantine", "counts"):
            check_local(options.get(name, ""), f"the option {name}")
        self._location = location
        self._options = options
        beside = options.get("staging") or str(Path(location).absolute().parent)
        self._staging = str(Path(beside) / f"gossiplog-staging-{uuid.uuid4().hex}")
        default = "entries" if is_postgres_url(location) else Path(location).name
        self._quarantine = options.get("quarantine") or str(
            Path(beside) / f"{default}.quarantine-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}.jsonl"
        )

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Sort a task's rows into runs."""
        folder = Path(self._staging)
        folder.mkdir(parents=True, exist_ok=True)
        runs: list[str] = []
        waiting: list[_Row] = []
        size = 0
        for batch in iterator:
            for row in _rows(batch):
                waiting.append(row)
                size += len(row[1])
                if size >= _RUN_BYTES:
                    runs.append(_write_run(folder, waiting))
                    waiting, size = [], 0
        if waiting:
            runs.append(_write_run(folder, waiting))
        return _Staged(runs)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Insert all staged rows, parents first, each verified by the log."""
        import trio

        runs = [run for message in messages if isinstance(message, _Staged) for run in message.runs]
        try:
            trio.run(self._insert, runs)
        finally:
            shutil.rmtree(self._staging, ignore_errors=True)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove the staged files; the log is unchanged."""
        shutil.rmtree(self._staging, ignore_errors=True)

    async def _insert(self, runs: list[str]) -> None:
        from ...gossip_log import open as open_log
        from ...store.base import Durability

        topic = self._options.get("topic")
        options: dict[str, Any] = {
            "topic": topic,
            "create": topic is not None,
            "durability": Durability(self._options.get("durability", "normal")),
            "schemes": frozenset(self._options.get("schemes", ED25519.name).split(",")),
        }
        location = self._location if is_postgres_url(self._location) else Path(self._location.removeprefix("file://"))
        counts = {"added": 0, "known": 0, "failed": 0}
        with _Quarantine(Path(self._quarantine)) as rejects:
            async with open_log(location, **options) as log:
                merged = heapq.merge(*[_read_run(run) for run in runs])
                for rows in bounded(merged, lambda row: len(row[1]), count_max=_INSERT_ROWS, bytes_max=_INSERT_BYTES):
                    good = [row for row in rows if row[1]]
                    for row in rows:
                        if not row[1]:
                            rejects.add(row, "file", "there is no VALUE")
                    for row, verdict in zip(good, await log.insert_many([value for _, value, _ in good]), strict=True):
                        if verdict.accepted:
                            counts["added" if verdict.is_new else "known"] += 1
                        else:
                            id = None if verdict.entry is None else verdict.entry.id
                            rejects.add(row, verdict.rule or "rejected", verdict.reason or "rejected", id)
            counts["failed"] = rejects.count
        if "counts" in self._options:
            Path(self._options["counts"]).write_text(json.dumps(counts), "utf-8")


def _rows(batch: pa.RecordBatch) -> Iterator[_Row]:
    names = batch.schema.names
    values = batch.column("value").to_pylist()
    places: list[str | None] = [None] * len(values)
    for name in ("place", "fault"):
        if name in names:
            places = [": ".join(filter(None, pair)) or None for pair in zip(places, batch.column(name).to_pylist(), strict=True)]
    for value, place in zip(values, places, strict=True):
        yield _sort_key(value), value or b"", place or ""


def _sort_key(value: bytes | None) -> bytes:
    """Return the entry's key, which sorts it after its parents; nothing if it is not an entry."""
    try:
        return b"" if value is None else Entry.stored(value).key
    except DecodeError:
        return b""


def _write_run(folder: Path, rows: list[_Row]) -> str:
    rows.sort()
    path = folder / f"{uuid.uuid4().hex}.arrow"
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, _RUN_SCHEMA) as stream:
        for low in range(0, len(rows), _INSERT_ROWS):
            columns = list(zip(*rows[low : low + _INSERT_ROWS], strict=True))
            arrays = [pa.array(list(column), field.type) for column, field in zip(columns, _RUN_SCHEMA, strict=True)]
            stream.write_batch(pa.RecordBatch.from_arrays(arrays, schema=_RUN_SCHEMA))
    return str(path)


def _read_run(path: str) -> Iterator[_Row]:
    with pa.memory_map(path) as file, pa.ipc.open_stream(file) as stream:
        for batch in stream:
            yield from zip(*[column.to_pylist() for column in batch.columns], strict=True)


class _Quarantine:
    """The file of rows that could not be inserted; there is none if all could."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._draft = path.with_name(path.name + ".partial")
        self._file: Any = None
        self.count = 0

    def __enter__(self) -> _Quarantine:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            self._draft.replace(self._path)

    def add(self, row: _Row, rule: str, reason: str, id: str | None = None) -> None:
        if self._file is None:
            self._file = self._draft.open("w", encoding="utf-8")
        self.count += 1
        record = {"place": row[2] or None, "id": id, "rule": rule, "reason": reason, "value": row[1].hex()}
        self._file.write(json.dumps(record) + "\n")
