"""The reference as a process that benchmarks talk with: `tests/interop/figures.mjs` in Node, `tests/browser/browser.mjs` in Chromium."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import trio

from gossiplog import Entry

__all__ = ["Reference", "free_port", "running_reference"]

_FOLDER = Path(__file__).parents[1] / "tests" / "interop"
_BATCH = 500


class Reference:
    """One process of it."""

    def __init__(self, process: trio.Process) -> None:
        self._process = process
        self._buffer = b""

    async def ask(self, op: str, **request: Any) -> Any:
        """Send a request and return its answer.

        Raises:
            RuntimeError: It failed over there.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        await self._process.stdin.send_all(json.dumps({"op": op, **request}).encode() + b"\n")
        while b"\n" not in self._buffer:
            data = await self._process.stdout.receive_some()
            if not data:
                raise RuntimeError("the reference has ended")
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer["result"]

    async def insert(self, log: str, entries: Sequence[Entry]) -> None:
        for start in range(0, len(entries), _BATCH):
            await self.ask("insert", log=log, values=[entry.value.hex() for entry in entries[start : start + _BATCH]])

    async def cpu_s(self) -> float:
        return float((await self.ask("used"))["cpu"])

    async def requests(self) -> int:
        return int((await self.ask("used"))["requests"])


@asynccontextmanager
async def running_reference(script: str = "figures.mjs") -> AsyncIterator[Reference]:
    """Start one, and end it at the end. `npm ci` must have been run in tests/interop, and in tests/browser for what is there.

    Args:
        script: Its path from tests/interop.
    """
    async with trio.open_nursery() as nursery:
        start = partial(
            trio.run_process,
            ["node", script],
            cwd=_FOLDER,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            check=False,
        )
        process: trio.Process = await nursery.start(start)
        try:
            yield Reference(process)
        finally:
            process.kill()


def free_port() -> int:
    """Return a port that nobody listens on, for a server that cannot choose one itself."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
