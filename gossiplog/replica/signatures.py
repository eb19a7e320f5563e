"""Verifies many signatures on all cores, in other processes.

Threads cannot do this well. Verifying a signature takes 40 µs without the interpreter's lock, and the work on an entry with the lock takes
about as long, so threads would hand the lock back and forth at each signature. A process gets 250 signatures at once.

The processes belong to this process, not to a log. They are started when signatures have kept coming for a while. They end when none come
for 30 s, or this process is gone. Where they cannot be started, verifying only takes longer.
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
"""Handing over fewer signatures is not worth it."""
_BEFORE_START = 2_000
"""How many signatures must come without a pause before processes are started. Starting one takes 40 ms of CPU time."""
_PAUSE_S = 2.0
_PROCESSES_MAX = 4
"""One thread inserts the entries that they verify, and cannot keep up with more."""
_PIPE_BYTES = 2**20
_PATIENCE_S = 60.0
"""How long to wait for room in the pipe, and for an answer, which takes 10 ms on an idle machine."""
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
        """The process numbers, including processes that are still starting."""
        with self._turn:
            return [process.pid for process in self._all]

    @property
    def are_running(self) -> bool:
        """Whether there are processes that are ready to verify."""
        return len(self._all) > len(self._starting)

    def verify(self, claims: Sequence[tuple[bytes, bytes]]) -> bytes | None:
        """Return a byte for each signature: 1 if libsodium accepts it, else 0. None if no other process can verify them now.

        Args:
            claims: For each signature, a public key of 32 bytes, and the signature followed by the signed bytes.
        """
        if len(claims) < FEW or (process := self._take(len(claims))) is None:
            return None
        try:
            answers = _exchange(process, claims)
        except OSError:
            # The process ended because it was idle, or was killed.
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
        """Forget the processes in a forked child: they belong to its parent."""
        for process in self._all:
            # Not our child, so we cannot wait for it.
            process.returncode = 0
        self.__init__(self._max)  # type: ignore[misc]

    def _take(self, count: int) -> subprocess.Popen[bytes] | None:
        """Take an idle process. If there are none at all and enough signatures have come, start some."""
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
                # In a process group of its own, so that Ctrl-C reaches only us.
                process = subprocess.Popen(
                    program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0, process_group=0
                )
                _prepare(process)
                self._all.add(process)
                self._starting.append(process)
        except OSError:
            self._max = 0

    def _welcome(self) -> None:
        for process in self._starting[:]:
            assert process.stdout is not None
            if _is_ready(process.stdout, select.POLLIN, 0):
                self._starting.remove(process)
                if process.stdout.read(1) == signature_process.READY:
                    self._idle.append(process)
                else:
                    # Python cannot be started, or finds no PyNaCl: trying again is useless.
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
        # `write` returns None if the pipe is full.
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
    """Wait until a pipe can be read (`select.POLLIN`) or written (`select.POLLOUT`), or its other end is closed."""
    poll = select.poll()
    poll.register(pipe, event)
    return bool(poll.poll(1e3 * seconds))


def _prepare(process: subprocess.Popen[bytes]) -> None:
    """Make writes non-blocking, and where the system allows it, the pipe large enough for a whole request."""
    assert process.stdin is not None
    os.set_blocking(process.stdin.fileno(), False)
    with contextlib.suppress(ImportError, AttributeError, OSError):
        import fcntl

        fcntl.fcntl(process.stdin, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)


def _processes_max() -> int:
    """Return how many processes may be started: one per core, but none on a single core, or if `sys.executable` is no plain Python."""
    name = Path(sys.executable or "").name
    is_python = name.startswith(("python", "pypy")) and not hasattr(sys, "frozen")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, _PROCESSES_MAX) if os.name == "posix" and is_python and cores > 1 else 0


verifiers = Verifiers(_processes_max())
"""The verifiers of this process."""
atexit.register(verifiers.close)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=verifiers.forget)
