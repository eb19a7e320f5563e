"""A bucket in a plain folder: on this machine, on a network share, or in a folder that another program copies."""

from __future__ import annotations

import os
import re
import secrets
import stat
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TypeVar

import trio

from ..errors import BucketError, LogBusy
from ..store.sqlite.lock import WriterLock

T = TypeVar("T")

_DRAFTS = "drafts"
_DRAFT = re.compile("[0-9a-f]{16}")


class Folder:
    """Objects as files. A file is first written in `<publisher>/drafts`, and renamed when it is whole. See `Storage`."""

    has_locks = True
    is_read_only = False

    def __init__(self, root: Path, only: str | None = None) -> None:
        self.root = root
        self.url = str(root)
        self.only = only
        self._written: set[Path] = set()

    async def read(self, path: str, offset: int, length: int) -> tuple[bytes, int] | None:
        """See `Storage`. Only plain files are read, not pipes or devices."""
        return await _in_thread(self.root / path, lambda: read_plain(self.root / path, offset, length))

    async def write(self, path: str, data: bytes) -> None:
        """See `Storage`."""
        await _in_thread(self.root / path, lambda: self._write(path, data))

    async def flush(self) -> None:
        """See `Storage`. Flushes the files written since the last call, and the folders above them."""
        written, self._written = self._written, set()
        await _in_thread(self.root, lambda: self._flush(written))

    async def swap(self, path: str, data: bytes, expected: bytes | None) -> bool:
        """See `Storage`. The lock keeps others out between the check and the write."""

        def replace() -> bool:
            found = read_plain(self.root / path, 0, len(data) + len(expected or b"") + 1)
            if (None if found is None else found[0]) != expected:
                return False
            self._write(path, data)
            self._flush([self.root / path])
            return True

        return await _in_thread(self.root / path, replace)

    async def list(self, path: str) -> tuple[list[str], list[str]]:
        """See `Storage`."""

        def look() -> tuple[list[str], list[str]]:
            try:
                # Unlike the is_dir of os.scandir's entries, this is False for a link that leads nowhere or to itself.
                entries = [(entry.name, entry.is_dir()) for entry in sorted((self.root / path).iterdir())]
            except FileNotFoundError:
                return [], []
            return [name for name, is_folder in entries if is_folder], [name for name, is_folder in entries if not is_folder]

        return await _in_thread(self.root / path, look)

    async def remove(self, paths: Sequence[str]) -> None:
        """See `Storage`. A folder that becomes empty is removed too."""

        def unlink() -> None:
            for path in paths:
                (self.root / path).unlink(missing_ok=True)
                with suppress(OSError):
                    (self.root / path).parent.rmdir()

        await _in_thread(self.root, unlink)

    @asynccontextmanager
    async def lock(self, publisher: str) -> AsyncIterator[None]:
        """See `Storage`. The kernel releases the lock when the process ends; drafts left by a killed process are removed."""
        lock = await _in_thread(self.root / publisher, lambda: _lock(self.root / publisher))
        try:
            yield
        finally:
            lock.release()

    def _write(self, path: str, data: bytes) -> None:
        draft = self.root / path.partition("/")[0] / _DRAFTS / secrets.token_hex(8)
        replace_file(self.root / path, data, draft=draft, is_durable=False)
        self._written.add(self.root / path)

    def _flush(self, written: Iterable[Path]) -> None:
        folders = set[Path]()
        for path in written:
            _sync(path)
            folders.update(each for each in path.parents if each.is_relative_to(self.root))
        for folder in folders:
            _sync(folder)


async def _in_thread(path: Path, function: Callable[[], T]) -> T:
    try:
        return await trio.to_thread.run_sync(function)
    except OSError as error:
        raise BucketError(f"{error.filename2 or error.filename or path}: {error.strerror or error}") from error


def read_plain(path: Path, offset: int, length: int) -> tuple[bytes, int] | None:
    """Read a part of a plain file, and return the file's size too; None if there is none.

    Raises:
        BucketError: It is a pipe, a device or a folder.
        OSError: It cannot be read.
    """
    try:
        # Without O_NONBLOCK, opening a pipe waits for somebody to write.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise BucketError(f"{path} is no plain file")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            file.seek(offset)
            return file.read(length), status.st_size
    finally:
        os.close(descriptor)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_file(path: Path, data: bytes, *, draft: Path | None = None, is_durable: bool = True) -> None:
    """Write a file as a whole, in the place of any there was; its folder is made if necessary.

    Args:
        draft: Its path until it is whole; None for a hidden name in the same folder.

    Raises:
        OSError: It cannot be written; the old file stays.
    """
    draft = draft or path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with draft.open("xb") as file:
            file.write(data)
            if is_durable:
                file.flush()
                os.fsync(file.fileno())
        draft.replace(path)
        if is_durable:
            _sync(path.parent)
    finally:
        draft.unlink(missing_ok=True)


def _lock(folder: Path) -> WriterLock:
    drafts = folder / _DRAFTS
    drafts.mkdir(parents=True, exist_ok=True)
    lock = WriterLock.on(folder / "lock")
    if lock is None:
        raise LogBusy(
            f"another process publishes into {folder}", hint="one process publishes with a key in a place; wait for it, or end it"
        )
    # A link may lead anywhere, so files with other names are left alone.
    for draft in drafts.iterdir():
        if _DRAFT.fullmatch(draft.name):
            draft.unlink()
    return lock
