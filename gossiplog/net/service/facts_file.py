"""Facts in a file, one JSON object a line, as long as a log is served. A disk that is slow or full costs facts, never anything else."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

import trio

from ...glass import Ring
from ..ground.journal import note

__all__ = ["FactsFile"]

GATHER_S = 0.25
_BYTES_MAX = 4 * 2**20
RETRY_S = 10.0
_FINISH_S = 1.0


class FactsFile:
    """Appends facts to a file, in a thread; what the ring loses meanwhile is missing.

    Args:
        path: The file.
        ring: Has the facts.
    """

    def __init__(self, path: Path, ring: Ring) -> None:
        self._path = path
        self._ring = ring
        self._seq = 0

    async def run(self, wait: Callable[[int], Awaitable[None]]) -> None:
        """Write for ever. `wait` waits for the fact of a number."""
        while True:
            await wait(self._seq)
            await trio.sleep(GATHER_S)
            if not await self._write():
                await trio.sleep(RETRY_S)

    async def finish(self) -> None:
        """Write what is left, within a second."""
        with trio.move_on_after(_FINISH_S, shield=True):
            while self._ring.next > self._seq and await self._write():
                pass

    async def _write(self) -> bool:
        lines, following, lost = self._ring.since(self._seq, _BYTES_MAX)
        try:
            await trio.to_thread.run_sync(_append, self._path, b"".join(line + b"\n" for line in lines))
        except OSError as error:
            note("facts not written", level=logging.ERROR, file=str(self._path), reason=error.strerror or str(error))
            return False
        if lost:
            note("facts lost", level=logging.WARNING, file=str(self._path), facts=lost)
        self._seq = following
        return True


def _append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)
