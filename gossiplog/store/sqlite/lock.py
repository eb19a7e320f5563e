"""The writer's lock: a lock on a file beside the log, held by one process at a time."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from ...errors import ForeignFile, LogBusy
from .beside import beside
from .errors import translate_os

_BUSY_HINT = (
    "end it, or open the log read-only; to append beside a `gossiplog serve`, post to it with `gossiplog append URL`, and beside a "
    "`sync --follow`, append to a log of your own and `gossiplog sync` that with the server"
)
_NOBLOCK = getattr(os, "O_NONBLOCK", 0)
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | _NOBLOCK


class WriterLock:
    """The right to write to a file or below a folder, held by one process at a time and given up by the kernel when it ends.

    It lies on a file beside the log: closing any other descriptor of the log itself would drop the locks that SQLite holds on it.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        _HELD.add(self)

    @classmethod
    def on(cls, place: Path) -> WriterLock | None:
        """Lock a file that serves no other purpose, creating it if necessary; None if another process holds the lock.

        Raises:
            OSError: The file cannot be created or opened.
        """
        import fcntl

        descriptor = os.open(place, _FLAGS, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            if isinstance(error, BlockingIOError):
                return None
            raise
        return cls(descriptor)

    @classmethod
    def acquire(cls, path: Path) -> WriterLock:
        """Take the lock at once or raise LogBusy, naming the process that has it.

        Raises:
            LogBusy: Another process is writing.
            ForeignFile: The file at the lock's path is no lock; it is left as it is.
            ReadOnlyLog: No lock can be created there, or the file system has no locks.
            StorageFull: There is no room for our number.
        """
        import fcntl

        place = beside(path, "-lock")
        try:
            descriptor = os.open(place, _FLAGS, 0o666)
        except OSError as error:
            if place.is_symlink() or place.is_dir():
                raise _foreign(place) from error
            raise translate_os(path, error, "locked by a file beside it") from error
        # A lock holds the number of a process. A file with anything else is not ours to empty.
        is_plain = stat.S_ISREG(os.fstat(descriptor).st_mode)
        holder = os.pread(descriptor, 32, 0).decode("ascii", "replace") if is_plain else "a pipe"
        if not re.fullmatch(r"(\d+\n)?", holder):
            os.close(descriptor)
            raise _foreign(place)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            if not isinstance(error, BlockingIOError):
                raise translate_os(path, error, "locked by a file beside it") from error
            holder = holder.strip() or "unknown"
            if holder == str(os.getpid()):
                hint = "use the log that is open, or open it read-only"
                raise LogBusy(f"this process has {path} open for writing already", hint=hint) from error
            raise LogBusy(f"process {holder} is writing to {path}", hint=_BUSY_HINT) from error
        lock = cls(descriptor)
        try:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        except OSError as error:
            lock.release()
            raise translate_os(path, error, "locked by a file beside it") from error
        return lock

    def release(self) -> None:
        """Give the lock up, also on behalf of processes that have inherited it."""
        import fcntl

        if self._descriptor >= 0:
            if os.fstat(self._descriptor).st_size:
                os.ftruncate(self._descriptor, 0)
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            self.forget()

    def forget(self) -> None:
        """Close the lock's file without unlocking it. A forked child would otherwise hold the lock beyond its parent's end."""
        os.close(self._descriptor)
        self._descriptor = -1
        _HELD.discard(self)


def is_held_elsewhere(path: Path) -> bool:
    """Tell whether another living process is writing to a log."""
    import fcntl

    try:
        descriptor = os.open(beside(path, "-lock"), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | _NOBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.pread(descriptor, 32, 0) != f"{os.getpid()}\n".encode()
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False


def _foreign(place: Path) -> ForeignFile:
    hint = "it was left as it is; move it away, or `gossiplog salvage LOG TARGET` takes the entries into a log of your own"
    return ForeignFile(f"{place} is not the lock of a log", hint=hint)


_HELD: set[WriterLock] = set()
"""The locks of this process."""


def _forget_locks() -> None:
    for lock in list(_HELD):
        lock.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_locks)
