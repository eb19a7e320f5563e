"""Finds VALUEs in a damaged file without SQLite, by looking at each page by itself.

An entry proves itself, so it does not matter where its bytes are found: in a page that no index reaches any more, in a free page, or in the
write-ahead log.

Source: https://www.sqlite.org/fileformat2.html, "Record Format", "Cell Payload Overflow Pages" and "The Write-Ahead Log".
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from .beside import beside, page_size, read_plain, wal_page_size

_VALUE_BYTES_MAX = 8 * 1024 * 1024
"""No VALUE is larger; a greater length is damaged."""
_PAGE_BYTES_USUAL = 4096
_VALUE_HEAD = re.compile(rb"\x85\x83[\x60-\x77][a-z]")
"""A tuple of five, beginning with a signature: a tuple of three that begins with a codec's name.

Source: docs/spec/entries.md, "Entry".
"""
_WAL_HEADER_BYTES, _FRAME_HEADER_BYTES = 32, 24


def scan_values(path: Path) -> Iterator[bytes]:
    """Yield byte strings that may be VALUEs, in the order of the pages. Most are; all must be verified.

    Memory is one VALUE, and 8 bytes per page of the write-ahead log.

    Raises:
        OSError: The file cannot be read.
    """
    with _PageFile(path) as pages:
        for page, ahead in pages.all():
            yield from _carve(pages, page, ahead)


class _PageFile:
    def __init__(self, path: Path) -> None:
        wal = beside(path, "-wal")
        header, wal_header = read_plain(path, 0, 100), read_plain(wal, 0, _WAL_HEADER_BYTES)
        # If the file is empty or gone, its write-ahead log gives the page size.
        self.size = page_size(header) or wal_page_size(wal_header) or _PAGE_BYTES_USUAL
        reserved = header[20] if len(header) > 20 else 0
        self.usable = self.size - reserved if self.size - reserved >= 480 else self.size
        self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC) if header or not wal_header else None
        self.count = 0 if self._file is None else -(-os.fstat(self._file).st_size // self.size)
        # Bounds the reading of pages that lead back to each other. No page belongs to two rows, but some are read for nothing by trial.
        self.overflow_left = 8 * self.count
        self._wal: int | None = None
        # The last frame of each page.
        self._frames: dict[int, int] = {}
        if wal_header:
            self._wal = os.open(wal, os.O_RDONLY | os.O_CLOEXEC)
            self._find_frames(self._wal)
            self.overflow_left += 8 * len(self._frames)

    def __enter__(self) -> _PageFile:
        return self

    def __exit__(self, *rest: object) -> None:
        for descriptor in (self._file, self._wal):
            if descriptor is not None:
                os.close(descriptor)

    def all(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield each page of the file with the page after it, then the newest version of each page in the write-ahead log.

        If bytes were lost before a page, its last VALUE continues in what is now the next page.
        """
        ahead = self.read_file(1)
        for number in range(1, self.count + 1):
            page, ahead = ahead, self.read_file(number + 1)
            yield page, ahead
        for number in sorted(self._frames):
            yield self.read(number), b""

    def has(self, number: int) -> bool:
        """Whether there is a page of this number."""
        return 0 < number <= self.count or number in self._frames

    def read(self, number: int) -> bytes:
        """Read the newest version of a page; short or empty past the end."""
        offset = self._frames.get(number)
        if offset is not None and self._wal is not None:
            return os.pread(self._wal, self.size, offset)
        return self.read_file(number)

    def read_file(self, number: int) -> bytes:
        """Read a page from the file itself; short or empty past the end."""
        return os.pread(self._file, self.size, (number - 1) * self.size) if number > 0 and self._file is not None else b""

    def _find_frames(self, wal: int) -> None:
        frame = _FRAME_HEADER_BYTES + self.size
        for offset in range(_WAL_HEADER_BYTES, os.fstat(wal).st_size - frame + 1, frame):
            self._frames[int.from_bytes(os.pread(wal, 4, offset))] = offset + _FRAME_HEADER_BYTES


def _carve(pages: _PageFile, page: bytes, ahead: bytes) -> Iterator[bytes]:
    """Find VALUEs that begin in a page, by their first bytes.

    Each is yielded with the length that its CBOR gives, and with the length that its row's header gives if there is one before it. A large
    row continues in overflow pages, which are found by trial if the header is destroyed. No result is known to be whole, so the next VALUE
    may begin anywhere. SQLite fills a page from its end, so the last VALUE comes first: this is the order of insertion.
    """
    data = page + ahead
    for at in reversed([found.start() for found in _VALUE_HEAD.finditer(page + ahead[:3]) if found.start() < len(page)]):
        end = _item_end(data, at)
        if end is not None:
            yield data[at:end]
        spilled = list(_spilled(pages, page, at))
        yield from spilled
        if end is None or end > len(page):
            yield from (value for value in _headless(pages, page, at) if value not in spilled)


def _spilled(pages: _PageFile, page: bytes, at: int) -> Iterator[bytes]:
    """Assemble VALUEs that continue in overflow pages, by the row's header: its length, a NULL, the length of the bytes."""
    for width in range(1, 5):
        begin = at - width - 2
        if begin < 0 or page[begin] != width + 2 or page[begin + 1] != 0:
            continue
        kind, end = _varint(page, at - width)
        size = width + 2 + (kind - 12) // 2
        if end == at and kind >= 12 and pages.usable - 35 < size <= _VALUE_BYTES_MAX:
            yield _read_payload(pages, page, begin, size)[width + 2 :]


def _headless(pages: _PageFile, page: bytes, at: int) -> Iterator[bytes]:
    """Assemble VALUEs that continue in overflow pages, although the header of the row is destroyed.

    How much of a row lies in its own page follows from its length, which only the header gives. So every number of a page after this place
    is tried as that of the first overflow page. Then CBOR gives the VALUE's end, and a VALUE of that length must have the number there.
    """
    for place in range(at + _local_bytes_min(pages.usable) - 6, min(at + pages.usable - 35, len(page)) - 3):
        number = int.from_bytes(page[place : place + 4])
        if not pages.has(number):
            continue
        value = page[at:place] + _read_overflow(pages, number, _VALUE_BYTES_MAX)
        end = _item_end(value, 0)
        if end is not None and any(_local_bytes(pages.usable, width + 2 + end) == place - at + width + 2 for width in range(1, 5)):
            yield value[:end]


def _item_end(data: bytes, at: int) -> int | None:
    """Return where an item of canonical CBOR ends; None if it is malformed or does not end within the data."""
    left = 1
    while left > 0:
        if at >= len(data) or left > len(data):
            return None
        major, info = data[at] >> 5, data[at] & 31
        at += 1
        if info > 27:
            return None
        size = 1 << (info - 24) if info >= 24 else 0
        argument = int.from_bytes(data[at : at + size]) if size else info
        at += size
        left -= 1
        match major:
            case 2 | 3:
                at += argument
            case 4 | 5:
                left += argument * (major - 3)
            case 6:
                left += 1
            case _:
                pass
    return at if at <= len(data) else None


def _read_payload(pages: _PageFile, data: bytes, at: int, size: int) -> bytes:
    """Read a row of a known size, following overflow pages as far as they lead."""
    local = _local_bytes(pages.usable, size)
    if local == size:
        return data[at : at + local]
    return data[at : at + local] + _read_overflow(pages, int.from_bytes(data[at + local : at + local + 4]), size - local)


def _local_bytes_min(usable: int) -> int:
    return (usable - 12) * 32 // 255 - 23


def _local_bytes(usable: int, size: int) -> int:
    if size <= usable - 35:
        return size
    least = _local_bytes_min(usable)
    local = least + (size - least) % (usable - 4)
    return local if local <= usable - 35 else least


def _read_overflow(pages: _PageFile, number: int, left: int) -> bytes:
    """Read at most `left` bytes from a chain of overflow pages."""
    parts = []
    while left > 0 and number and pages.overflow_left > 0:
        pages.overflow_left -= 1
        page = pages.read(number)
        part = page[4 : min(pages.usable, 4 + left)]
        if not part:
            break
        parts.append(part)
        left -= len(part)
        number = int.from_bytes(page[:4])
    return b"".join(parts)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Read a varint of SQLite's; return the number and where it ends. Bytes past the end count as zero."""
    number = 0
    for index in range(8):
        byte = data[at + index] if at + index < len(data) else 0
        number = number << 7 | byte & 0x7F
        if byte < 0x80:
            return number, at + index + 1
    return number << 8 | (data[at + 8] if at + 8 < len(data) else 0), at + 9
