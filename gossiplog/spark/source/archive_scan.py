"""Scanning files of entries: JSON lines and values by byte range, CAR and compressed files whole."""

from __future__ import annotations

import glob
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

from ...archive import LINE_BYTES_MAX, ArchiveFormat, ArchiveSource, Record, format_of_name
from ...archive.jsonl import json_record
from ...archive.records import hex_record, skip_line
from ...archive.source import EXPANDED_BYTES_MAX, sniff
from ...arrow.columns import Page, SourceRow, paged
from ...entry.envelope import parse_envelope
from ...entry.message_id import decode_id, message_key
from ...entry.rules import VALUE_BYTES_LIMIT
from ...errors import DecodeError, LocalProtocolError
from .scan import PARTS_MAX, FaultPart, ScanPart, Selection

_PART_BYTES = 16 * 1024 * 1024
_PART_BYTES_MIN = 1024 * 1024
"""Smaller parts of a file are not worth a task."""
_SOURCE_BYTES_MAX = 64 * 1024
"""The most bytes that are kept of a line that is not an entry."""
_GZIP = b"\x1f\x8b"


@dataclass(frozen=True)
class FilePart(ScanPart):
    """Bytes of one file, from `start` up to `end`; a line belongs to the part that it begins in. CAR and compressed files are one part."""

    path: str
    format: ArchiveFormat
    start: int
    end: int
    is_whole: bool = False


class ArchiveScan:
    """A file of entries, a folder of such files, or a pattern like `exports/*.jsonl`.

    Args:
        expanded_bytes_max: The size that a compressed file may expand to.
    """

    def __init__(self, location: str, selection: Selection, expanded_bytes_max: int = EXPANDED_BYTES_MAX) -> None:
        self._location = location.removeprefix("file://")
        self._selection = selection
        self._expanded_bytes_max = expanded_bytes_max

    def parts(self, count: int | None) -> list[ScanPart]:
        """Cut the files into about `count` parts in all, of 16 MiB for None."""
        files = archive_files(self._location)
        total = sum(file.stat().st_size for file in files) or 1
        count = min(PARTS_MAX, 1 + total // _PART_BYTES) if count is None else count
        parts: list[ScanPart] = []
        for file in files:
            share = max(1, round(count * file.stat().st_size / total))
            parts += _cut(file, share)
        return parts

    def read(self, part: ScanPart) -> Iterator[Page]:
        """Yield a part's rows in the file's order; a line or block that is no entry is a row with a fault."""
        return part.pages() if isinstance(part, FaultPart) else paged(self._wanted_rows(part))

    def _wanted_rows(self, part: ScanPart) -> Iterator[SourceRow]:
        assert isinstance(part, FilePart), part
        name = Path(part.path).name
        for row in self._rows(part):
            if self._is_wanted(row):
                yield row._replace(place=f"{name}: {row.place}")

    def _rows(self, part: FilePart) -> Iterator[SourceRow]:
        if part.is_whole:
            with ArchiveSource.open(part.path, format=part.format, expanded_bytes_max=self._expanded_bytes_max) as source:
                yield from (_row(record) for record in source.records())
            return
        with Path(part.path).open("rb") as file:
            yield from _line_rows(file, part)

    def _is_wanted(self, row: SourceRow) -> bool:
        selection = self._selection
        if selection.is_all and selection.topic is None:
            return True
        if row.value is None:
            # It may have been any entry, so it is wanted unless single entries are asked for.
            return selection.keys is None
        try:
            envelope = parse_envelope(row.value, VALUE_BYTES_LIMIT, trusted=True)
        except DecodeError:
            return row.key is None or selection.has_key(row.key)
        key = row.key or message_key(envelope.clock, row.value)
        return selection.has_key(key) and (selection.topic is None or envelope.topic == selection.topic)


def archive_files(location: str) -> list[Path]:
    """Return the files that a location names, in the order of their names.

    Raises:
        LocalProtocolError: There is none.
    """
    path = Path(location)
    if path.is_dir():
        found = sorted(file for file in path.iterdir() if file.is_file() and format_of_name(file.name) is not None)
    elif path.exists():
        found = [path]
    else:
        found = sorted(Path(name) for name in glob.glob(location) if Path(name).is_file())  # noqa: PTH207  (a pattern may be absolute)
    if not found:
        raise LocalProtocolError(
            f"no file of entries at {location}", hint="give a .jsonl, .car or .hex file, a folder of them, or a pattern"
        )
    return found


def _cut(file: Path, count: int) -> list[ScanPart]:
    with file.open("rb") as opened:
        start = opened.read(64)
    size = file.stat().st_size
    found = sniff(start) or format_of_name(file.name)
    if start.startswith(_GZIP) or found is ArchiveFormat.CAR:
        try:
            with ArchiveSource.open(str(file)) as source:
                return [FilePart(str(file), source.format, 0, size, is_whole=True)]
        except DecodeError as error:
            return [FaultPart([(f"{file.name}: the file", str(error))])]
    if found is None:
        raise LocalProtocolError(f"{file} is neither a log, nor JSON lines, nor a CAR file, nor hexadecimal values")
    count = min(count, max(1, size // _PART_BYTES_MIN))
    bounds = [size * at // count for at in range(count + 1)]
    return [FilePart(str(file), found, low, high) for low, high in pairwise(bounds)]


def _line_rows(file: BinaryIO, part: FilePart) -> Iterator[SourceRow]:
    """Yield a row for each line that begins in the part, with the offset of its first byte."""
    record_of = hex_record if part.format is ArchiveFormat.HEX else json_record
    file.seek(max(0, part.start - 1))
    if part.start > 0:
        # The line with the byte before this part belongs to an earlier part.
        skip_line(file)
    while (offset := file.tell()) < part.end and (line := file.readline(LINE_BYTES_MAX + 1)):
        if len(line) > LINE_BYTES_MAX and not line.endswith(b"\n"):
            skip_line(file)
            yield _row(record_of(f"byte {offset}", None))._replace(source=line[:_SOURCE_BYTES_MAX])
        elif line := line.strip():
            row = _row(record_of(f"byte {offset}", line))
            yield row if row.fault is None else row._replace(source=line[:_SOURCE_BYTES_MAX])


def _row(record: Record) -> SourceRow:
    return SourceRow(None if record.id is None else decode_id(record.id), record.value, place=record.place, fault=record.fault)
