"""The places where a shelf keeps its logs: a folder with a file for each, or a database with a schema for each.

Source: docs/rooms.md, "Names of files".
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote

import trio

from ..entry.rules import check_topic, is_topic
from ..errors import ForeignFile, ReadOnlyLog, StoreError
from .base import Durability
from .open import open_store, path_text
from .postgres.url import is_postgres_url
from .sqlite.errors import translate_os

_NAME_CHARS_MAX = 200
"""This leaves room for `-journal` and the like, where names have at most 255 bytes."""
_SUFFIX = ".db"
_NAME = re.compile(r"(=[0-9a-f]{64}|(%[0-9a-f]{2}|[a-z0-9])(%[0-9a-f]{2}|[a-z0-9.-])*)\.db")


class ShelfPlace(Protocol):
    """Logs side by side, each found by its topic. A malformed topic raises LocalProtocolError, a place that fails StoreError.

    Attributes:
        location: Its path or URL, without secrets.
    """

    location: str

    def log_at(self, topic: str) -> str | os.PathLike[str]:
        """Return where a topic's log is, or would be created."""

    def opened(self, durability: Durability) -> AbstractAsyncContextManager[ShelfPlace]:
        """Make the place if it is missing; within the block, logs opened by the `log_at` of its value share connections."""

    async def check(self) -> None:
        """Check that `opened` would succeed, as far as that can be told without making anything."""

    async def topics(self) -> list[str]:
        """List the topics of all logs, in order."""

    async def has(self, topic: str) -> bool:
        """Whether there is a log of this topic."""

    async def count(self) -> int:
        """Count the logs."""

    async def size_bytes(self) -> int:
        """Return how many bytes all logs take."""


def file_of(topic: str) -> str:
    """Return the name of the file that holds a topic's log.

    Raises:
        LocalProtocolError: The topic is malformed.
    """
    check_topic(topic)
    name = re.sub(r"^[.-]|[^a-z0-9.-]", lambda found: f"%{ord(found[0]):02x}", topic)
    if len(name) > _NAME_CHARS_MAX:
        name = "=" + hashlib.sha256(topic.encode()).hexdigest()
    return name + _SUFFIX


class LogFolder:
    """A folder of logs; see `ShelfPlace`."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self.location = str(self._path)

    def log_at(self, topic: str) -> str:
        """See `ShelfPlace`."""
        return str(self._path / file_of(topic))

    @asynccontextmanager
    async def opened(self, durability: Durability) -> AsyncIterator[LogFolder]:
        """See `ShelfPlace`."""
        with self._translated("made"):
            await trio.to_thread.run_sync(lambda: self._path.mkdir(parents=True, exist_ok=True))
        yield self

    async def check(self) -> None:
        """See `ShelfPlace`."""
        there = self._path.absolute()
        with self._translated("read"):
            while not os.path.lexists(there):
                there = there.parent
            if there == self._path.absolute():
                self._names()
            elif not there.is_dir():
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        if not os.access(there, os.W_OK | os.X_OK):
            raise ReadOnlyLog(f"{there} cannot be written to")

    async def topics(self) -> list[str]:
        """See `ShelfPlace`. Lists the folder once, and opens only logs whose topic is too long for a file name."""
        hashed: list[str] = []

        def look() -> list[str]:
            names = self._names()
            hashed.extend(name for name in names if name.startswith("="))
            found = (unquote(name.removesuffix(_SUFFIX)) for name in names)
            return [topic for topic in found if is_topic(topic) and file_of(topic) in names]

        with self._translated("read"):
            topics = await trio.to_thread.run_sync(look)
        for name in hashed:
            try:
                path, level = self._path / name, Durability.FULL
                async with open_store(path, topic=None, create=False, read_only=True, durability=level) as store:
                    topics += [store.topic] * (file_of(store.topic) == name)
            except StoreError:
                # Whoever opens the log gets this error.
                continue
        return sorted(topics)

    async def has(self, topic: str) -> bool:
        """See `ShelfPlace`.

        Raises:
            ForeignFile: Something else than a plain file is there.
        """
        path = Path(self.log_at(topic))
        if not os.path.lexists(path):
            return False
        if path.is_symlink() or not path.is_file():
            raise ForeignFile(f"{path} is no plain file", hint="a shelf opens nothing else")
        return True

    async def count(self) -> int:
        """See `ShelfPlace`."""
        with self._translated("read"):
            return len(await trio.to_thread.run_sync(self._names))

    async def size_bytes(self) -> int:
        """See `ShelfPlace`. Looks at each file of the folder, including those that SQLite keeps beside logs."""

        def look() -> int:
            size = 0
            with os.scandir(self._path) as entries:
                for each in entries:
                    with suppress(FileNotFoundError):
                        size += each.stat(follow_symlinks=False).st_size
            return size

        with self._translated("read"):
            return await trio.to_thread.run_sync(look)

    @contextmanager
    def _translated(self, verb: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise translate_os(self._path, error, verb) from error

    def _names(self) -> set[str]:
        with os.scandir(self._path) as entries:
            return {each.name for each in entries if _NAME.fullmatch(each.name) and each.is_file(follow_symlinks=False)}


def open_place(location: str | os.PathLike[str]) -> ShelfPlace:
    """Return the place that a path or a URL names.

    Raises:
        LocalProtocolError: The URL is malformed or names a log, or the path is empty or cannot be a path.
    """
    if is_postgres_url(text := path_text(location)):
        from .postgres.shelf import LogDatabase

        return LogDatabase(text)
    return LogFolder(text)
