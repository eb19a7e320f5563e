"""Opening a file of entries: which format it is, decompression within limits, and one loop over its records."""

from __future__ import annotations

import enum
import gzip
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, cast

from ..errors import DecodeError
from .car import CAR_PREFIX, read_car, read_car_header
from .jsonl import read_json_lines
from .records import BinaryReader, Record, read_hex_values

EXPANSION_MAX = 100
"""A compressed file may expand by this factor; beyond it, the file is taken for a bomb. Source: docs/spec/limits.md."""
EXPANDED_BYTES_MAX = 1024**3
_EXPANSION_FLOOR = 1024 * 1024
"""Below this many bytes the factor does not apply, as a tiny file of repetitive entries may compress better."""
_SNIFF_BYTES = 64


class ArchiveFormat(enum.Enum):
    """The formats of a file of entries."""

    JSONL = "jsonl"
    CAR = "car"
    HEX = "hex"


def format_of_name(name: str) -> ArchiveFormat | None:
    """Return the format that the name's ending shows, without `.gz`: `.jsonl` or `.ndjson`, `.car`, `.hex`; None for any other."""
    name = name.lower().removesuffix(".gz")
    endings = {".jsonl": ArchiveFormat.JSONL, ".ndjson": ArchiveFormat.JSONL, ".car": ArchiveFormat.CAR, ".hex": ArchiveFormat.HEX}
    return next((kind for ending, kind in endings.items() if name.endswith(ending)), None)


def sniff(start: bytes) -> ArchiveFormat | None:
    """Return the format that the beginning of the (decompressed) file shows, whatever its name; None if it is not one of ours."""
    if CAR_PREFIX in start[1 : 1 + 9 + len(CAR_PREFIX)]:
        return ArchiveFormat.CAR
    text = start.lstrip()
    if text.startswith(b"{"):
        return ArchiveFormat.JSONL
    word = text.split(None, 1)[0] if text else b""
    if word and not word.strip(b"0123456789abcdefABCDEF"):
        return ArchiveFormat.HEX
    return None


class ArchiveSource:
    """A file of entries opened for reading; gzip is decompressed while it is read.

    A context manager. Attributes:
        format: The format that was found.
        size: The file's size on the disk in bytes, which is the maximum of `position`; 0 for a pipe.
    """

    def __init__(self, file: BinaryIO, *, name: str, size: int, format: ArchiveFormat | None, expanded_bytes_max: int) -> None:
        self._raw = _Counted(file)
        self.size = size
        self.name = name
        start = self._raw.peek(_SNIFF_BYTES)
        self._reader: BinaryReader = self._raw
        if start.startswith(b"\x1f\x8b"):
            expanded = _Expanded(self._raw, expanded_bytes_max)
            self._reader = expanded
            start = expanded.peek(_SNIFF_BYTES)
        found = format or sniff(start) or format_of_name(name)
        if found is None:
            raise DecodeError(f"{name} is neither a log, nor JSON lines, nor a CAR file, nor hexadecimal values")
        self.format = found

    @classmethod
    def open(cls, path: str, *, format: ArchiveFormat | None = None, expanded_bytes_max: int = EXPANDED_BYTES_MAX) -> ArchiveSource:
        """Open a file by its path; `-` is stdin.

        Raises:
            DecodeError: It has no format that we read.
            OSError: It cannot be opened.
        """
        if path == "-":
            return cls(_open_stdin(), name="stdin", size=0, format=format, expanded_bytes_max=expanded_bytes_max)
        file = Path(path).open("rb")  # noqa: SIM115  (the source closes it)
        try:
            size = Path(path).stat().st_size
            return cls(file, name=path, size=size, format=format, expanded_bytes_max=expanded_bytes_max)
        except BaseException:
            file.close()
            raise

    def __enter__(self) -> ArchiveSource:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None) -> None:
        # An interrupt may leave a thread behind that waits for more of a pipe, and closing would wait for it.
        if kind is None or issubclass(kind, Exception):
            self._raw.file.close()

    @property
    def position(self) -> int:
        """The number of bytes of the file on the disk that have been read."""
        return self._raw.position

    def records(self) -> Iterator[Record]:
        """Yield the file's records, like `read_archive`."""
        return read_archive(self._reader, self.format)


def _open_stdin() -> BinaryIO:
    """Open stdin with a buffer of its own: Python locks its own buffer at exit, and a thread that still waits for input holds that lock."""
    try:
        descriptor = sys.stdin.fileno()
    except (OSError, ValueError):
        return sys.stdin.buffer
    return open(descriptor, "rb", closefd=False)


def read_archive(file: BinaryReader, format: ArchiveFormat) -> Iterator[Record]:
    """Yield the records of a file in this format. Faults are records too; nothing is raised, whatever the file holds.

    After the records of a CAR file come faults for the roots that it does not contain. So a file cut off between two blocks does not pass
    for a whole one.
    """
    try:
        match format:
            case ArchiveFormat.JSONL:
                yield from read_json_lines(file)
            case ArchiveFormat.HEX:
                yield from read_hex_values(file)
            case ArchiveFormat.CAR:
                yield from _read_whole_car(file)
    except (DecodeError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        yield Record("the file", fault=str(error), is_truncated=True)


def _read_whole_car(file: BinaryReader) -> Iterator[Record]:
    import hashlib

    header = read_car_header(file)
    missing = dict.fromkeys(header.roots)
    for record in read_car(file, header):
        if missing and record.value is not None:
            missing.pop(hashlib.sha256(record.value).digest(), None)
        yield record
    for digest in missing:
        yield Record("the header", fault=f"the root with sha2-256 {digest.hex()} is not in the file", is_truncated=True)


class _Counted:
    """A buffered reader that knows its position, even over a pipe, and can look ahead."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.position = 0
        self._ahead = b""
        # After its end, a terminal would ask for more input.
        self._is_over = False

    def peek(self, size: int) -> bytes:
        while len(self._ahead) < size and not self._is_over:
            chunk = self.file.read(size - len(self._ahead))
            self._ahead += chunk
            self._is_over = not chunk
        return self._ahead

    def read(self, size: int, /) -> bytes:
        ahead, self._ahead = self._ahead[:size], self._ahead[size:]
        rest = self.file.read(size - len(ahead)) if size != len(ahead) and not self._is_over else b""
        self.position += len(ahead) + len(rest)
        return ahead + rest

    def readline(self, size: int, /) -> bytes:
        ahead = self._ahead[:size]
        end = ahead.find(b"\n") + 1
        if end or len(ahead) == size:
            return self.read(end or size)
        self._ahead = b""
        rest = b"" if self._is_over else self.file.readline(size - len(ahead))
        self.position += len(ahead) + len(rest)
        return ahead + rest


class _Expanded:
    """A gzip file, decompressed within the limits on its size."""

    def __init__(self, raw: _Counted, bytes_max: int) -> None:
        self._raw = raw
        self._bytes_max = bytes_max
        self._total = 0
        # It only reads from the file, as long as nobody seeks.
        self._gzip = gzip.GzipFile(fileobj=cast("Any", raw), mode="rb")

    def peek(self, size: int) -> bytes:
        try:
            start: bytes = self._gzip.peek(size)
            return start[:size]
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise DecodeError(f"damaged gzip: {error}") from error

    def read(self, size: int, /) -> bytes:
        return self._checked(self._gzip.read(size))

    def readline(self, size: int, /) -> bytes:
        return self._checked(self._gzip.readline(size))

    def _checked(self, data: bytes) -> bytes:
        self._total += len(data)
        if self._total > self._bytes_max:
            raise DecodeError(f"decompresses to more than {self._bytes_max} bytes; a larger limit (--max-bytes) allows it")
        if self._total > _EXPANSION_FLOOR and self._total > EXPANSION_MAX * self._raw.position and self._bytes_max == EXPANDED_BYTES_MAX:
            raise DecodeError(f"decompresses to more than {EXPANSION_MAX} times its size; a limit of your own (--max-bytes) allows it")
        return data
