"""The supervisor's side of the nest: starting processes, ending them, and knowing which of them run."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from ..errors import GossipLogError
from ..tasks.nursery import open_service_nursery

_RECEIVE_BYTES = 65_536
_END_S = 10.0


class StartFailed(GossipLogError):
    """A process of a test network ended when it should have run; the hint is what it said last."""


class Processes:
    """Made by `open_processes`.

    Attributes:
        statuses: How those that have ended did so, by name: an exit code, or a signal's number, negated.
    """

    def __init__(self, stream: trio.SocketStream, folder: Path) -> None:
        self._stream = stream
        self._folder = folder
        self._sending = trio.Lock()
        self._changed = trio.Event()
        self.pids: dict[str, int] = {}
        self.statuses: dict[str, int] = {}
        self._is_over = False

    async def start(self, name: str, *, module: str | None = None, arguments: Sequence[str] = (), command: Sequence[str] = ()) -> None:
        """Start a process: a module of Python, or a program. Its output goes to the file `output(name)`.

        Raises:
            StartFailed: The nest has ended.
        """
        what: dict[str, Any] = {"command": list(command)} if module is None else {"module": module, "arguments": list(arguments)}
        self.statuses.pop(name, None)
        await self._ask({"start": name, "output": str(self.output(name)), **what})
        await self._until(lambda: name in self.pids or name in self.statuses)

    async def kill(self, name: str) -> None:
        """Kill a process, and wait until it has ended; nothing if it does not run."""
        pid = self.pids.get(name)
        if pid is not None:
            await self._ask({"kill": pid})
            await self._until(lambda: self.pids.get(name) != pid)

    def output(self, name: str) -> Path:
        """The file that a process writes to."""
        return self._folder / f"{name}.log"

    def last_words(self, name: str) -> str:
        """The last line that a process wrote."""
        try:
            lines = self.output(name).read_text("utf-8", "replace").split("\n")
        except OSError:
            return ""
        return next((line for line in reversed(lines) if line.strip()), "")

    async def run(self) -> None:
        """Take what the nest says, until it ends."""
        buffer = b""
        try:
            while received := await self._stream.receive_some(_RECEIVE_BYTES):
                *lines, buffer = (buffer + received).split(b"\n")
                for line in lines:
                    self._take(json.loads(line))
        except trio.BrokenResourceError:
            pass
        finally:
            self._is_over = True
            self._wake()

    def _take(self, said: dict[str, Any]) -> None:
        if "started" in said:
            self.pids[said["started"]] = said["pid"]
        elif self.pids.get(said["ended"]) == said["pid"]:
            del self.pids[said["ended"]]
            self.statuses[said["ended"]] = said["status"]
        self._wake()

    async def _ask(self, request: dict[str, Any]) -> None:
        try:
            async with self._sending:
                await self._stream.send_all(json.dumps(request).encode() + b"\n")
        except trio.BrokenResourceError:
            raise StartFailed("the process that starts the others has ended") from None

    async def _until(self, holds: Any) -> None:
        while not holds():
            if self._is_over:
                raise StartFailed("the process that starts the others has ended")
            await self._changed.wait()

    def _wake(self) -> None:
        changed, self._changed = self._changed, trio.Event()
        changed.set()


@asynccontextmanager
async def open_processes(folder: Path, removed: Sequence[Path]) -> AsyncIterator[Processes]:
    """Have processes for the length of a block, at whose end they are killed.

    Args:
        removed: Folders that are removed at the end, by the nest, even when we are killed.
    """
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-m", "gossiplog.testnet.nest", str(theirs.fileno()), *map(str, removed)]
    # In a session of its own, or Ctrl-C would end it, and all of them, before we say so.
    with subprocess.Popen(command, pass_fds=[theirs.fileno()], start_new_session=True, stdin=subprocess.DEVNULL) as nest:
        theirs.close()
        stream = trio.SocketStream(trio.socket.from_stdlib_socket(ours))
        try:
            async with open_service_nursery() as nursery:
                processes = Processes(stream, folder)
                nursery.start_soon(processes.run)
                yield processes
                nursery.cancel_scope.cancel()
        finally:
            with trio.CancelScope(shield=True):
                await trio.aclose_forcefully(stream)
                with trio.move_on_after(_END_S):
                    await trio.to_thread.run_sync(nest.wait)
