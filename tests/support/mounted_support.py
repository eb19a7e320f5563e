"""The application of `served_mounted.py` in a server's own process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from ports import free_port

__all__ = ["MOUNTED_TOPIC", "SERVERS", "serving_mounted"]

MOUNTED_TOPIC = "test.example.com"
SERVERS = {
    "uvicorn": ["uvicorn", "--ws", "wsproto", "--timeout-graceful-shutdown", "2", "--log-level", "warning", "--port"],
    "hypercorn": ["hypercorn", "--graceful-timeout", "2", "-b"],
    "granian": ["granian", "--interface", "asgi", "--port"],
}
_START_S = 60.0


@contextmanager
def serving_mounted(log: str | Path, server: str = "uvicorn", *options: str, app: Path | None = None) -> Iterator[str]:
    """Serve a log at /log for the length of a block, and give the server's address; it ends without a complaint.

    Args:
        app: A file with another application, which has its log at the root, and runs in its own folder.
    """
    file = app or Path(__file__).with_name("served_mounted.py")
    address = f"127.0.0.1:{free_port()}"
    *command, last = SERVERS[server]
    place = address if last == "-b" else address.partition(":")[2]
    with subprocess.Popen(
        [sys.executable, "-m", *command, last, place, *options, f"{file.stem}:app"],
        cwd=file.parent,
        env={**os.environ, "LOG": str(log)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            _wait(process, f"http://{address}{'/log' if app is None else ''}/readyz")
            yield address
            process.send_signal(signal.SIGINT)
            said = process.communicate(timeout=_START_S)[0]
        finally:
            process.kill()
    assert "Traceback" not in said, said


def _wait(process: subprocess.Popen[str], url: str) -> None:
    deadline = time.monotonic() + _START_S
    while True:
        try:
            if httpx.get(url).status_code == 200:
                return
        except httpx.TransportError:
            pass
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline, "the server did not start"
        time.sleep(0.05)
