"""The process from which a test network's processes are forked: its imports are done, so that each of them is up in a moment.

    python -m gossiplog.testnet.nest FD FOLDER…

It reads requests from the socket FD, a line of JSON each, and writes lines of JSON:

    {"start": NAME, "output": FILE, "module": …, "arguments": […]}   is answered by   {"started": NAME, "pid": …}
    {"start": NAME, "output": FILE, "command": […]}                  likewise
    {"kill": PID}                                                    is not answered
    {"ended": NAME, "pid": …, "status": …}                           is written when a process has ended

When the other end of the socket is closed, it kills all processes, removes each FOLDER, and ends. So a supervisor that is killed leaves
nothing behind.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import runpy
import select
import shutil
import signal
import socket
import sys
from typing import Any, NoReturn

PRELOADED = ("cli.app", "cli.net.serve", "cli.net.serving", "gossip_log", "net.mesh", "store.sqlite", "web")
"""The modules that `gossiplog serve` imports lazily; importing them takes 1.4 s."""
_PR_SET_PDEATHSIG = 1
_RECEIVE_BYTES = 65_536


class Nest:
    """Starts and ends processes."""

    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests
        self._names: dict[int, str] = {}
        self._wake, wakes = os.pipe()
        os.set_blocking(wakes, False)
        signal.set_wakeup_fd(wakes)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def run(self) -> None:
        """Serve requests until the other end of the socket is closed."""
        buffer = b""
        while True:
            ready, _, _ = select.select([self._requests.fileno(), self._wake], [], [])
            if self._wake in ready:
                os.read(self._wake, _RECEIVE_BYTES)
                self._reap()
            if self._requests.fileno() in ready:
                received = self._requests.recv(_RECEIVE_BYTES)
                if not received:
                    return
                *lines, buffer = (buffer + received).split(b"\n")
                for line in lines:
                    self._do(json.loads(line))

    def end_all(self) -> None:
        """Kill all processes that still run, with their children, and wait for them."""
        for pid in self._names:
            _kill(pid)
        for pid in list(self._names):
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)

    def _do(self, request: dict[str, Any]) -> None:
        if "kill" in request:
            if request["kill"] in self._names:
                _kill(request["kill"])
            return
        pid = os.fork()
        if pid == 0:
            self._become(request)
        with contextlib.suppress(OSError):
            os.setpgid(pid, pid)
        self._names[pid] = request["start"]
        self._say({"started": request["start"], "pid": pid})

    def _become(self, request: dict[str, Any]) -> NoReturn:
        """Turn the forked process into the one that is to start."""
        try:
            os.setpgid(0, 0)
            # On Linux, the system kills this process when the nest ends.
            if sys.platform == "linux":
                ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self._requests.close()
            output = os.open(request["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            nothing = os.open(os.devnull, os.O_RDONLY)
            for descriptor, place in ((nothing, 0), (output, 1), (output, 2)):
                os.dup2(descriptor, place)
            if "command" in request:
                os.execvp(request["command"][0], request["command"])
            sys.argv = [request["module"], *request["arguments"]]
            runpy.run_module(request["module"], run_name="__main__", alter_sys=True)
        except SystemExit as end:
            _leave(end.code if isinstance(end.code, int) else 0 if end.code is None else 1)
        except BaseException as error:  # this is the top of the new process
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
            _leave(1)
        _leave(0)

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                # A browser's helpers outlive it otherwise.
                _kill(pid)
                self._say({"ended": self._names.pop(pid, ""), "pid": pid, "status": os.waitstatus_to_exitcode(status)})

    def _say(self, answer: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):
            self._requests.sendall(json.dumps(answer).encode() + b"\n")


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _leave(code: int) -> NoReturn:
    """End a forked process without running its parent's exit handlers."""
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def main(descriptor: str, *folders: str) -> None:
    """Run the nest."""
    for name in PRELOADED:
        importlib.import_module(f"gossiplog.{name}")
    # Frozen objects are not touched by collections, so their memory stays shared with the children.
    gc.freeze()
    nest = Nest(socket.socket(fileno=int(descriptor)))
    try:
        nest.run()
    finally:
        nest.end_all()
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
