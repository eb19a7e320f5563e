"""Reading a file without changing its folder: a file that is not whole is read in a copy, and SQLite's new files are removed."""

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
    """Yield the file to open read-only for `path`: the file itself, or a copy that lives as long as this context.

    A copy is made of a file that is not whole (`look`), and of a log of an earlier schema, for the caller to migrate. A copy does not show
    later commits, so none is made while another process is writing to the log.

    Raises:
        DamagedLog: The file is empty, and its content is in a file beside it.
        StorageFull: There is no room for a copy.
        ReadOnlyLog: The file, or one beside it, cannot be read.
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
    """Copy all pages as they are, including damaged ones.

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
    # This rolls back a journal, and makes the index of a write-ahead log.
    with contextlib.suppress(sqlite3.Error), contextlib.closing(_open(copied, "rw")) as db:
        db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    return copied


def _is_older(path: Path) -> bool:
    """Whether a log is of an earlier schema, with its write-ahead log taken into account. The header nearly always tells."""
    header = read_plain(path, 0, 72)
    latest = len(load_migrations("sqlite"))
    if header[68:] != b"glog" or not 0 < int.from_bytes(header[60:64]) < latest:
        return False
    try:
        with _tidied(path), contextlib.closing(_open(path, "ro")) as db:
            return 0 < int(db.execute("PRAGMA user_version").fetchone()[0]) < latest
    except sqlite3.Error:
        # The caller opens it next, and gets the error.
        return False


@contextlib.contextmanager
def _tidied(path: Path) -> Iterator[None]:
    """At the end, remove files that SQLite made for reading, unless others use them or they hold something."""
    made = [file for suffix in ("-wal", "-shm") if not (file := beside(path, suffix)).exists()]
    try:
        yield
    finally:
        if any(file.exists() for file in made):
            # If that fails, as in a folder that is gone, some of SQLite's files stay, which do no harm.
            with contextlib.suppress(sqlite3.Error, OSError):
                _remove_made(path)


def _remove_made(path: Path) -> None:
    """Remove an empty write-ahead log and its index if nobody else has the file open; then SQLite would remove them, too."""
    wal, index = beside(path, "-wal"), beside(path, "-shm")
    if (wal.exists() and wal.stat().st_size > 0) or not look(path).is_whole:
        return
    with contextlib.closing(_open(path, "rw")) as db:
        # Until this connection closes, nobody else can open the file, and this connection uses neither of the two.
        db.execute("PRAGMA locking_mode = EXCLUSIVE")
        db.execute("PRAGMA user_version").fetchone()
        if not wal.exists() or wal.stat().st_size == 0:
            for file in (wal, index):
                file.unlink(missing_ok=True)


def _open(path: Path, mode: str) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{quote(os.fsencode(path.absolute()))}?mode={mode}", uri=True, isolation_level=None, timeout=0)
