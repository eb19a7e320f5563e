"""Inspects a log's file and the files beside it before SQLite opens any of them.

SQLite trusts the files that it finds: it rolls a journal back and deletes the file that the journal names, drops the write-ahead log of an
empty file, and overwrites any file that has the name of one of its own. So a file is opened for writing only if all of these are as a log
leaves them. Otherwise it is only read, in a copy (`reading.py`).

Source: https://www.sqlite.org/fileformat2.html, "The Rollback Journal" and "The Write-Ahead Log"; https://www.sqlite.org/walformat.html.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from ...errors import DamagedLog, ForeignFile, StoreError
from .errors import translate_os

BESIDE = ("-journal", "-wal", "-shm")
"""The suffixes of the files that SQLite keeps beside a database."""
_JOURNAL_MAGIC = bytes.fromhex("d9d505f920a163d7")
_WAL_MAGICS = (b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83")
_WAL_VERSION = (3_007_000).to_bytes(4)
_WAL_HEADER_BYTES, _FRAME_HEADER_BYTES = 32, 24
_INDEX_VERSIONS = (bytes(4), (3_007_000).to_bytes(4, "little"), (3_007_000).to_bytes(4, "big"))
"""The first bytes of a write-ahead log's index, in either byte order; zeros, perhaps cut off, after an early crash or a full disk."""
_INDEX_BYTES = 32_768
"""What SQLite adds at once to the index of a write-ahead log."""
_FILE_HEADER_BYTES = 100


def beside(path: Path, suffix: str) -> Path:
    """Return where SQLite looks for a file that belongs to this one: beside the target of a symbolic link, never beside the link."""
    return Path(os.path.realpath(path) + suffix)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The state of a file and of the files beside it.

    Attributes:
        fault: Why the log must not be written to; None if all is as a log leaves it, even after a crash.
        is_foreign: Whether the fault is a file that no log makes, rather than damage.
        has_bytes: Whether the file itself is not empty.
        is_unfinished: Whether a journal of the log's waits to be rolled back, which only a writer may do.
        has_wal: Whether there is a readable write-ahead log that is not empty.
        lacks_index: Whether the `-shm` of the write-ahead log is missing, so that reading would make one, or finds no room to make one.
    """

    path: Path
    fault: str | None = None
    is_foreign: bool = False
    has_bytes: bool = True
    is_unfinished: bool = False
    has_wal: bool = False
    lacks_index: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether SQLite can read the file in place without changing anything."""
        return self.fault is None and not self.is_unfinished and not self.lacks_index

    @property
    def error(self) -> StoreError:
        """An error that names the fault, to be raised."""
        hint = f"it was left as it is; `gossiplog salvage {self.path} TARGET` takes the entries, wherever they lie"
        return (ForeignFile if self.is_foreign else DamagedLog)(self.fault or "", hint=hint)


def look(path: Path) -> Surroundings:
    """Inspect a file and the files beside it. This reads some hundred bytes, of plain files only.

    Raises:
        ReadOnlyLog: One of them cannot be read.
    """
    try:
        return _look(path)
    except OSError as error:
        raise translate_os(Path(error.filename or path), error, "read") from error


def _look(path: Path) -> Surroundings:
    strange = next((found for suffix in BESIDE if (found := _strange(beside(path, suffix))) is not None), None)
    header = read_plain(path, 0, _FILE_HEADER_BYTES)
    if strange is not None:
        return Surroundings(path, strange, True, bool(header))
    wal = beside(path, "-wal")
    wal_header = read_plain(wal, 0, _WAL_HEADER_BYTES)
    is_wal = _is_wal(wal_header)
    has_wal = is_wal and _size(wal) > _WAL_HEADER_BYTES
    if not header and has_wal:
        state = "is empty" if path.exists() else "is not there"
        return Surroundings(path, f"{path} {state}, and {wal.name} beside it has pages of it", has_bytes=False, has_wal=True)
    fault, is_foreign = _wal_fault(path, wal, wal_header, is_wal, header), False
    index = beside(path, "-shm")
    if fault is None and read_plain(index, 0, 4).ljust(4, b"\0") not in _INDEX_VERSIONS:
        fault, is_foreign = f"{index.name}, beside {path}, is no file of SQLite's", True
    journal = _look_at_journal(path, header)
    if journal.fault is not None:
        fault, is_foreign = journal.fault, True
    if fault is None and header and page_size(header) is None:
        fault = f"the header of {path} is damaged: it tells no size of a page"
    elif fault is None and header:
        fault = _cut_fault(path, header, wal if has_wal else None, journal.is_unfinished)
    lacks_index = (has_wal and _size(index) == 0) or (_size(index) < _INDEX_BYTES and _is_full(index.parent))
    return Surroundings(path, fault, is_foreign, bool(header), journal.is_unfinished, has_wal, lacks_index)


def page_size(header: bytes) -> int | None:
    """Return the page size that a file's header gives; None if it gives none."""
    # 1 stands for 65,536.
    size = 65_536 if header[16:18] == b"\0\1" else int.from_bytes(header[16:18])
    return size if size >= 512 and size.bit_count() == 1 else None


def wal_page_size(header: bytes) -> int | None:
    """Return the page size that the header of a write-ahead log gives; None if the header is malformed."""
    size = int.from_bytes(header[8:12])
    is_header = header[:4] in _WAL_MAGICS and header[4:8] == _WAL_VERSION
    return size if is_header and 512 <= size <= 65_536 and size.bit_count() == 1 else None


def read_plain(path: Path, offset: int, count: int) -> bytes:
    """Read bytes of a plain file, fewer at its end. Anything else, or a missing file, gives none."""
    try:
        # Opening a pipe would otherwise block.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NONBLOCK", 0))
    except (FileNotFoundError, IsADirectoryError):
        return b""
    try:
        return os.pread(descriptor, count, offset) if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""
    finally:
        os.close(descriptor)


def _strange(path: Path) -> str | None:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return None
    if stat.S_ISREG(mode):
        return None
    kinds = {stat.S_IFLNK: "a link", stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe"}
    return f"{path} is {kinds.get(stat.S_IFMT(mode), 'no file')}, where SQLite keeps a file of its own"


def _is_full(folder: Path) -> bool:
    """Whether a folder that may be written to has no room for the index of a write-ahead log."""
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize < _INDEX_BYTES and os.access(folder, os.W_OK)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _is_wal(header: bytes) -> bool:
    """Whether SQLite accepts these 32 bytes as the header of a write-ahead log. It discards a log with any other header."""
    return wal_page_size(header) is not None and _wal_checksum(header[:24], "big" if header[3] & 1 else "little") == header[24:32]


def _wal_checksum(data: bytes, order: str) -> bytes:
    first = second = 0
    for at in range(0, len(data), 8):
        first = (first + int.from_bytes(data[at : at + 4], order) + second) & 0xFFFFFFFF  # type: ignore[arg-type]  # a literal
        second = (second + int.from_bytes(data[at + 4 : at + 8], order) + first) & 0xFFFFFFFF  # type: ignore[arg-type]
    return first.to_bytes(4) + second.to_bytes(4)


def _wal_fault(path: Path, wal: Path, wal_header: bytes, is_wal: bool, header: bytes) -> str | None:
    if is_wal:
        size, expected = wal_page_size(wal_header), page_size(header)
        return f"{wal.name} has pages of {size} bytes, and {path} of {expected}" if expected is not None and size != expected else None
    if _size(wal) < _WAL_HEADER_BYTES or _is_blank(wal):
        # A crash before the first commit leaves it like this.
        return None
    return f"{wal.name}, beside {path}, has no header of a write-ahead log, and what it holds would be lost"


def _is_blank(path: Path) -> bool:
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            if chunk.count(0) != len(chunk):
                return False
    return True


def _look_at_journal(path: Path, header: bytes) -> Surroundings:
    """Inspect a journal as SQLite would: it ignores one that begins with a zero byte, and rolls back or deletes any other."""
    journal = beside(path, "-journal")
    head = read_plain(journal, 0, 28)
    if not head or head[0] == 0:
        return Surroundings(path)
    size = _size(journal)
    if head[:8] != _JOURNAL_MAGIC:
        return Surroundings(path, f"{journal.name}, beside {path}, is no journal of SQLite's")
    if size >= 16 and read_plain(journal, size - 8, 8) == _JOURNAL_MAGIC:
        names = _super_journal(journal, size)
        return Surroundings(path, f"{journal.name}, beside {path}, names {names!r}, which SQLite would delete")
    pages, count = int.from_bytes(head[8:12]), int.from_bytes(head[16:20])
    # A log in WAL mode writes no journals. Its last one is from the switch to WAL mode, which changes two bytes of the first page.
    is_of_the_switch = pages <= 1 and count * (page_size(header) or 0) == _size(path)
    if header[18:20] == b"\2\2" and not is_of_the_switch:
        return Surroundings(path, f"{journal.name}, beside {path}, is not of this log, and would be written over it")
    return Surroundings(path, is_unfinished=True)


def _super_journal(journal: Path, size: int) -> str:
    length = min(int.from_bytes(read_plain(journal, size - 16, 4)), 1_000)
    return os.fsdecode(read_plain(journal, max(0, size - 16 - length), length)).encode("utf-8", "replace").decode()


def _cut_fault(path: Path, header: bytes, wal: Path | None, is_unfinished: bool) -> str | None:
    """Return a fault if a page is neither in the file nor in its write-ahead log. A crash leaves each page in one of them."""
    size = page_size(header)
    if size is None or is_unfinished or header[24:28] != header[92:96]:
        # SQLite itself reports a damaged header. The number of pages is valid only if the last writer set it.
        return None
    count, there = int.from_bytes(header[28:32]), _size(path) // size
    if count <= there:
        return None
    beyond = set(range(there + 1, count + 1)) if wal is not None and count - there <= _size(wal) // size else None
    if beyond is not None and wal is not None:
        beyond -= _frames(wal, size)
        if not beyond:
            return None
    return f"{path} is cut off: it has {there} of {count} pages"


def _frames(wal: Path, size: int) -> set[int]:
    frame = _FRAME_HEADER_BYTES + size
    with wal.open("rb", buffering=0) as file:
        places = range(_WAL_HEADER_BYTES, os.fstat(file.fileno()).st_size - frame + 1, frame)
        return {int.from_bytes(os.pread(file.fileno(), 4, at)) for at in places}
