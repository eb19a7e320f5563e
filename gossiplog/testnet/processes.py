"""Starts and kills the processes of a test network, and knows which of them run: the other end of `nest.py`."""

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
    """A process of a test network has ended, or does not answer; the hint is its last line of output."""


class Processes:
    """Made by `open_processes`.

    Attributes:
        pids: The process id of each process that runs, by name.
        statuses: The exit status of each that has ended, by name; a signal's number, negated, if a signal ended it.
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
        """Start a Python module or a command as a process. Its output goes to the file `output(name)`.

        Raises:
            StartFailed: The nest has ended.
        """
        what: dict[str, Any] = {"command": list(command)} if module is None else {"module": module, "arguments": list(arguments)}
        self.statuses.pop(name, None)
        await self._ask({"start": name, "output": str(self.output(name)), **what})
        await self._until(lambda: name in self.pids or name in self.statuses)

    async def kill(self, name: str) -> None:
        """Kill a process, and wait until it has ended. Does nothing if it does not run."""
        pid = self.pids.get(name)
        if pid is not None:
            await self._ask({"kill": pid})
            await self._until(lambda: self.pids.get(name) != pid)

    def output(self, name: str) -> Path:
        """Return the file with the output of a process."""
        return self._folder / f"{name}.log"

    def last_words(self, name: str) -> str:
        """Return the last line that a process wrote that is not blank."""
        try:
            lines = self.output(name).read_text("utf-8", "replace").split("\n")
        except OSError:
            return ""
        return next((line for line in reversed(lines) if line.strip()), "")

    async def run(self) -> None:
        """Receive the nest's messages until it ends."""
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
    """Start the nest for the length of a block. At its end all processes are killed.

    Args:
        removed: Folders that the nest removes at the end, even if this process is killed.
    """
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-m", "gossiplog.testnet.nest", str(theirs.fileno()), *map(str, removed)]
    # Ctrl-C goes to all processes of a session. In a session of its own, the nest ends when we say so.
    with subprocess.Popen(command, pass_fds=[theirs.fileno()], start_new_session=True, stdin=subprocess.DEVNULL) as nest:
        theirs.close()
        stream = trio.SocketStream(trio.socket.from_stdlib_socket(ours))
        try:
            async with open_service_nursery() as nursery:
                processes = Processes(stream, folder)
                nursery.start_soon(processes.run)
                yield processes
        finally:
            with trio.CancelScope(shield=True):
                await trio.aclose_forcefully(stream)
                with trio.move_on_after(_END_S):
                    await trio.to_thread.run_sync(nest.wait)
