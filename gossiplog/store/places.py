"""Where the logs of a shelf lie: in files of a folder, or in schemas of a database."""

from __future__ import annotations

import os
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from .base import Durability
from .folder import LogFolder
from .postgres.url import is_postgres_url


class ShelfPlace(Protocol):
    """Logs beside each other, each found by its topic. A malformed topic is a `LocalProtocolError`, a place that fails a `StoreError`."""

    @property
    def location(self) -> str:
        """Where it is, as it may be shown."""
        ...

    def log_at(self, topic: str) -> str | os.PathLike[str]:
        """Return where a topic's log lies, or would."""
        ...

    def opened(self, durability: Durability) -> AbstractAsyncContextManager[ShelfPlace]:
        """Make the place if it is missing, and have what logs can share for the length of a block, in which `log_at` returns it along."""
        ...

    async def topics(self) -> list[str]:
        """List the topics of all logs, in order."""
        ...

    async def has(self, topic: str) -> bool:
        """Whether there is a log of this topic."""
        ...

    async def count(self) -> int:
        """Count the logs."""
        ...

    async def size_bytes(self) -> int:
        """Return what all logs take."""
        ...


def open_place(location: str | os.PathLike[str]) -> ShelfPlace:
    """Return the place that a path or a URL names.

    Raises:
        LocalProtocolError: The URL is malformed, or names a log.
    """
    if is_postgres_url(text := os.fspath(location)):
        from .postgres.shelf import LogDatabase

        return LogDatabase(text)
    return LogFolder(text)
