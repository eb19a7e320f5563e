"""Translates SQLite's errors into ours."""

from __future__ import annotations

import errno
import os
import sqlite3
from pathlib import Path

from ...errors import CommitError, DamagedLog, ForeignFile, LogBusy, LogNotFound, ReadOnlyLog, StorageFull, StoreError, StoreUnavailable


def translate(path: Path, error: sqlite3.Error) -> StoreError:
    """Turn an error of sqlite3's into one that names the file and a remedy. Raise it from the original."""
    # The low byte is the primary code. Python's own errors, such as for a closed connection, have no code.
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL or getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_IOERR_SHMSIZE:
        return StorageFull(f"no space left for {path}")
    if code == sqlite3.SQLITE_READONLY:
        if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_READONLY_ROLLBACK:
            return LogBusy(f"a transaction of another program in {path} is not over", hint="end that program, and try again")
        return ReadOnlyLog(f"{path} cannot be written to", hint="check the permissions of the file and of its folder, or open it read-only")
    if code == sqlite3.SQLITE_NOTADB:
        return ForeignFile(f"{path} is not a SQLite database")
    if code == sqlite3.SQLITE_INTERRUPT:
        return _damaged(path, f"{path} is damaged: its pages lead to more rows than a file of its size can hold")
    if code == sqlite3.SQLITE_CORRUPT:
        return _damaged(path, f"{path} is damaged: {error}")
    if code == sqlite3.SQLITE_ERROR or "Could not decode" in str(error):
        # Our statements are right, so the schema or a text in it is wrong.
        return _damaged(path, f"{path} does not hold what a log should: {error}")
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return LogBusy(f"{path} is locked by another process", hint="end the other process, or try again")
    if code == sqlite3.SQLITE_CANTOPEN:
        if lacking := _find_lack():
            return translate_os(path, lacking, "opened")
        return LogNotFound(
            f"{path} cannot be opened", hint="check that the folder exists, may be written to, and has space for one more file"
        )
    if code == sqlite3.SQLITE_IOERR:
        hint = "the disk may be full, limited or failing; earlier commits are kept"
        return CommitError(f"reading or writing {path} failed: {error}", hint=hint)
    return CommitError(f"{path}: {error}")


def translate_os(path: Path, error: OSError, verb: str) -> StoreError:
    """Turn an operating system's error about a log's file, or one beside it, into ours."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageFull(f"no space left for {path}")
    reason = f"{path} cannot be {verb}: {error.strerror or error}"
    if error.errno in _NO_DESCRIPTORS:
        return StoreUnavailable(reason, hint="close what is open, or raise the limit of open files: `ulimit -n`, LimitNOFILE= of systemd")
    return ReadOnlyLog(reason)


_NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)


def _find_lack() -> OSError | None:
    """Return an error if this process has no file descriptor left, which SQLite reports like a missing file."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return error if error.errno in _NO_DESCRIPTORS else None
    return None


def _damaged(path: Path, message: str) -> DamagedLog:
    damaged = DamagedLog(message)
    damaged.location = str(path)
    return damaged


class Translating:
    """Translates errors of the database, naming the log's path. Not a generator, which would keep the frames that raised them alive."""

    __slots__ = ("_path",)

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        """Translate."""
        if isinstance(error, DamagedLog):
            error.location = error.location or str(self._path)
        elif isinstance(error, sqlite3.Error):
            raise translate(self._path, error) from error
        elif isinstance(error, UnicodeDecodeError):
            # SQLite's message quotes a schema that is not UTF-8.
            raise _damaged(self._path, f"{self._path} does not hold what a log should: {error}") from error
