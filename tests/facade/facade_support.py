"""Logs for the façades' tests, and programs that run in a process of their own."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from gossiplog import aio, blocking
from gossiplog.entry import Ed25519Signer

SIGNER = Ed25519Signer.from_seed(b"\1" * 32)
OPTIONS: dict[str, Any] = {"topic": "test.example.com", "signer": SIGNER, "durability": "off"}
DEADLINE_S = 180.0
PRELUDE = """
import asyncio, os, sys, threading
import gossiplog
from gossiplog import aio, blocking
from gossiplog.entry import Ed25519Signer
OPTIONS = {"topic": "test.example.com", "signer": Ed25519Signer.from_seed(bytes([1]) * 32), "durability": "off"}
def say(*words): print(*words, flush=True)
"""


def open_async(location: str | Path = ":memory:", **options: Any) -> aio.Block[aio.GossipLog]:
    return aio.open(location, **{**OPTIONS, **options})


def open_blocking(location: str | Path = ":memory:", **options: Any) -> blocking.Block[blocking.GossipLog]:
    return blocking.open(location, **{**OPTIONS, **options})


def run_program(program: str, folder: Path, *, interrupt_at: str | None = None) -> list[str]:
    """Run a program to its end, and return the lines that it prints; Ctrl-C it when it prints one line."""
    command = [sys.executable, "-X", "faulthandler", "-W", "error", "-c", PRELUDE + program]
    with subprocess.Popen(command, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        lines: list[str] = []
        try:
            assert process.stdout is not None
            if interrupt_at is not None:
                for line in process.stdout:
                    lines.append(line.rstrip("\n"))
                    if lines[-1] == interrupt_at:
                        os.kill(process.pid, signal.SIGINT)
                        break
            out, err = process.communicate(timeout=DEADLINE_S)
        finally:
            process.kill()
        assert err == ""
        assert process.returncode == 0
        return lines + out.splitlines()
