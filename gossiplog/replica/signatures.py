"""Signatures verified on all cores, where many come one after the other: in processes beside this one.

Threads cannot do it well. Verifying a signature takes 40 µs without the interpreter's lock, and what is done for an entry with it takes
about as long; so threads hand the lock back and forth at each signature. A process gets 250 signatures in one piece.

The processes belong to this process, not to a log. They are started when signatures have come for a while, and end by themselves when none
come for 30 s or this process is gone. Where they cannot be started, only the time differs.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from . import signature_process

FEW = 64
"""To hand over fewer is not worth it."""
_BEFORE_START = 2_000
"""So many come first, without a pause, before processes are started, each of which takes 40 ms of CPU time to begin."""
_PAUSE_S = 2.0
_PROCESSES_MAX = 4
"""What they verify is inserted by one thread, which is slower than they are together."""
_PIPE_BYTES = 2**20
_PATIENCE_S = 60.0
"""For room in the pipe and for an answer, which takes 10 ms where the machine has nothing else to do."""
_CLOSE_S = 1.0


class Verifiers:
    """The processes. Every method may be called from any thread."""

    def __init__(self, processes_max: int) -> None:
        self._max = processes_max
        self._turn = threading.Lock()
        self._idle: list[subprocess.Popen[bytes]] = []
        self._starting: list[subprocess.Popen[bytes]] = []
        self._all: set[subprocess.Popen[bytes]] = set()
        self._came = 0
        self._came_at = 0.0

    @property
    def pids(self) -> list[int]:
        """The processes that run, those that have not begun yet included."""
        with self._turn:
            return [process.pid for process in self._all]

    @property
    def are_running(self) -> bool:
        """Whether signatures that come in numbers are verified in other processes."""
        return len(self._all) > len(self._starting)

    def verify(self, claims: Sequence[tuple[bytes, bytes]]) -> bytes | None:
        """Return a byte for each: 1 if libsodium found it valid, 0 if not; None if that cannot be had from another process now.

        Args:
            claims: Of each a public key of 32 bytes, and the signature with what it is over right after it.
        """
        if len(claims) < FEW or (process := self._take(len(claims))) is None:
            return None
        try:
            answers = _exchange(process, claims)
        except OSError:
            # It went to sleep, or somebody ended it.
            self._end(process)
            return None
        with self._turn:
            self._idle.append(process)
        return answers

    def close(self) -> None:
        """End all of them."""
        with self._turn:
            ended, self._max = list(self._all), 0
            self._idle, self._starting = [], []
        for process in ended:
            self._end(process)

    def forget(self) -> None:
        """Forget the processes: they belong to the process that this one was forked from."""
        for process in self._all:
            # Nobody here waits for it.
            process.returncode = 0
        self.__init__(self._max)  # type: ignore[misc]

    def _take(self, count: int) -> subprocess.Popen[bytes] | None:
        """Take a process that waits; start some if there are none and it has become worth while."""
        with self._turn:
            now = time.monotonic()
            self._came = count + (self._came if now - self._came_at < _PAUSE_S else 0)
            self._came_at = now
            self._welcome()
            if self._idle:
                return self._idle.pop()
            if not self._all and self._came > _BEFORE_START:
                self._start()
            return None

    def _start(self) -> None:
        program = [sys.executable, "-P", signature_process.__file__]
        try:
            while len(self._all) < self._max:
                # In a process group of its own: Ctrl-C is for us.
                process = subprocess.Popen(
                    program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0, process_group=0
                )
                _prepare(process)
                self._all.add(process)
                self._starting.append(process)
        except OSError:
            self._max = 0

    def _welcome(self) -> None:
        """Note which of the started processes are ready."""
        for process in self._starting[:]:
            assert process.stdout is not None
            if _is_ready(process.stdout, select.POLLIN, 0):
                self._starting.remove(process)
                if process.stdout.read(1) == signature_process.READY:
                    self._idle.append(process)
                else:
                    # Where Python cannot be started, or finds no PyNaCl, trying again is of no use.
                    self._max = 0

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        with self._turn:
            self._all.discard(process)
        assert process.stdin is not None and process.stdout is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        process.stdout.close()
        try:
            process.wait(_CLOSE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _exchange(process: subprocess.Popen[bytes], claims: Sequence[tuple[bytes, bytes]]) -> bytes:
    assert process.stdin is not None and process.stdout is not None
    parts: list[bytes] = []
    for public_key, signed in claims:
        parts += ((len(public_key) + len(signed)).to_bytes(4), public_key, signed)
    body = b"".join(parts)
    rest = memoryview(len(body).to_bytes(4) + body)
    while rest:
        if not _is_ready(process.stdin, select.POLLOUT, _PATIENCE_S):
            raise BrokenPipeError
        # None where the pipe filled up meanwhile.
        rest = rest[process.stdin.write(rest) or 0 :]
    answers = b""
    while len(answers) < len(claims):
        is_answering = _is_ready(process.stdout, select.POLLIN, _PATIENCE_S)
        piece = process.stdout.read(len(claims) - len(answers)) if is_answering else b""
        if not piece:
            raise BrokenPipeError
        answers += piece
    return answers


def _is_ready(pipe: IO[bytes], event: int, seconds: float) -> bool:
    """Wait until a pipe can be read or written (`select.POLLIN`, `select.POLLOUT`), or has no other end."""
    poll = select.poll()
    poll.register(pipe, event)
    return bool(poll.poll(1e3 * seconds))


def _prepare(process: subprocess.Popen[bytes]) -> None:
    """Never wait in a write, and have a request fit into the pipe, where the system allows that, so that we need not wait at all."""
    assert process.stdin is not None
    os.set_blocking(process.stdin.fileno(), False)
    with contextlib.suppress(ImportError, AttributeError, OSError):
        import fcntl

        fcntl.fcntl(process.stdin, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)


def _processes_max() -> int:
    """How many processes may be started here: one a core, none on one core or where what runs is no plain Python to be started again."""
    name = Path(sys.executable or "").name
    is_python = name.startswith(("python", "pypy")) and not hasattr(sys, "frozen")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, _PROCESSES_MAX) if os.name == "posix" and is_python and cores > 1 else 0


verifiers = Verifiers(_processes_max())
"""Those of this process."""
atexit.register(verifiers.close)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=verifiers.forget)
