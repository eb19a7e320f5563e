"""Where the logs of a shelf lie: in files of a folder."""

from __future__ import annotations

import os
from typing import Protocol

from .folder import LogFolder

__all__ = ["ShelfPlace", "open_place"]


class ShelfPlace(Protocol):
    """Logs beside each other, each found by its topic."""

    @property
    def location(self) -> str:
        """Where it is, as it may be shown."""
        ...

    def log_at(self, topic: str) -> str:
        """Return where a topic's log lies, or would.

        Raises:
            LocalProtocolError: The topic is malformed.
        """
        ...

    async def make(self) -> None:
        """Make the place, if it is missing."""
        ...

    async def topics(self) -> list[str]:
        """List the topics of all logs, in order.

        Raises:
            StoreError: It cannot be looked at.
        """
        ...


def open_place(location: str | os.PathLike[str]) -> ShelfPlace:
    """Return the place that a path names."""
    return LogFolder(location)
