"""Opening a file for reading leaves its folder as it was: one that is not whole is read in a copy, and SQLite's new files are removed."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from ...errors import StorageFull
from ..migrate import load_migrations
from .beside import Surroundings, beside, look, read_plain
from .lock import is_held_elsewhere


@contextlib.contextmanager
def readable(path: Path, *, copies_older: bool = True) -> Iterator[Path]:
    """Yield the file to open read-only in the place of `path`: itself, or a copy of it that lives as long as this context.

    A copy is made of what is not whole (`look`), and of a log of an earlier schema, to be migrated there by the caller. It shows nothing
    that is committed later, so beside another process that writes to the log nothing is copied.

    Raises:
        DamagedLog: The file is empty, and what it held lies beside it.
        StorageFull: There is no room for a copy.
        ReadOnlyLog: Something there cannot be read.
    """
    found = look(path)
    if not found.has_bytes and found.fault is not None:
        raise found.error
    is_older = copies_older and found.is_whole and _is_older(path)
    if (found.is_whole and not is_older) or is_held_elsewhere(path):
        with _tidied(path):
            yield path
        return
    with tempfile.TemporaryDirectory(prefix="gossiplog-") as folder:
        yield _copy(found, Path(folder))


def back_up(db: sqlite3.Connection, copy: Path) -> None:
    """Copy all pages as they are, damaged ones too.

    Raises:
        StorageFull: There is no room for a copy.
    """
    try:
        with contextlib.closing(sqlite3.connect(copy)) as target:
            db.backup(target)
    except (sqlite3.Error, OSError) as error:
        hint = "set TMPDIR to a folder with more space; the log was left as it was"
        raise StorageFull(f"no copy of the log can be made in {copy.parent}: {error}", hint=hint) from error


def _copy(found: Surroundings, folder: Path) -> Path:
    copied = folder / (found.path.name or "log")
    suffixes = [""] + (["-wal"] if found.has_wal else []) + (["-journal"] if found.is_unfinished else [])
    for suffix in suffixes:
        source = beside(found.path, suffix)
        try:
            shutil.copyfile(source, beside(copied, suffix))
        except OSError as error:
            hint = "set TMPDIR to a folder with more space; the log was left as it is"
            raise StorageFull(f"no copy of {source} can be made in {folder}: {error.strerror}", hint=hint) from error
    # What waits to be rolled back is, and the write-ahead log gets its index.
    with contextlib.suppress(sqlite3.Error), contextlib.closing(_open(copied, "rw")) as db:
        db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    return copied


def _is_older(path: Path) -> bool:
    """Whether an earlier version wrote a log, its write-ahead log included; the file alone nearly always tells."""
    header = read_plain(path, 0, 72)
    latest = len(load_migrations("sqlite"))
    if header[68:] != b"glog" or not 0 < int.from_bytes(header[60:64]) < latest:
        return False
    try:
        with _tidied(path), contextlib.closing(_open(path, "ro")) as db:
            return 0 < int(db.execute("PRAGMA user_version").fetchone()[0]) < latest
    except sqlite3.Error:
        # The next step, which opens it, says what is wrong.
        return False


@contextlib.contextmanager
def _tidied(path: Path) -> Iterator[None]:
    """Remove in the end what SQLite has made to read by, unless others use it or it holds something."""
    made = [file for suffix in ("-wal", "-shm") if not (file := beside(path, suffix)).exists()]
    try:
        yield
    finally:
        if any(file.exists() for file in made):
            # Where it is impossible, as in a folder that is gone, some files of SQLite's stay, which do no harm.
            with contextlib.suppress(sqlite3.Error, OSError):
                _remove_made(path)


def _remove_made(path: Path) -> None:
    """Remove an empty write-ahead log and its index, while nobody else has the file open: that is when SQLite itself removes them."""
    wal, index = beside(path, "-wal"), beside(path, "-shm")
    if (wal.exists() and wal.stat().st_size > 0) or not look(path).is_whole:
        return
    with contextlib.closing(_open(path, "rw")) as db:
        # Nobody can open it until this connection is closed, and this one uses neither of the two.
        db.execute("PRAGMA locking_mode = EXCLUSIVE")
        db.execute("PRAGMA user_version").fetchone()
        if not wal.exists() or wal.stat().st_size == 0:
            for file in (wal, index):
                file.unlink(missing_ok=True)


def _open(path: Path, mode: str) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{quote(os.fsencode(path.absolute()))}?mode={mode}", uri=True, isolation_level=None, timeout=0)
