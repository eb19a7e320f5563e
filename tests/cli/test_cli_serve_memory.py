"""What the process of `serve` holds of memory that was freed in it."""

import json
import os
import platform
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import trio

import gossiplog

PROGRAM = """
import ctypes, sys
from gossiplog.__main__ import main
from gossiplog.cli.net import freed

freed.GIVE_BACK_S = 0.5
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
blocks = [libc.malloc(65536) for _ in range(1600)]
for block in blocks:
    ctypes.memset(block, 1, 65536)
# The last stays in use, so that what is below it does too, as far as the system knows.
for block in blocks[:-1]:
    libc.free(block)
print("freed", flush=True)
main()
"""
FREED_MB = 100


def resident_mb(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="asks glibc")
async def test_serve_gives_back_to_the_system_what_was_freed(tmp_path):
    path = tmp_path / "served.db"
    async with gossiplog.open(path, topic="a.example.com"):
        pass
    command = [sys.executable, "-c", PROGRAM, "serve", str(path), "--listen", "127.0.0.1:0", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "freed\n"
        before = resident_mb(process.pid)
        assert before > FREED_MB
        assert json.loads(process.stdout.readline())["urls"]
        with trio.fail_after(60):
            # What is imported meanwhile comes on top.
            while resident_mb(process.pid) > before - FREED_MB / 2:
                await trio.sleep(0.05)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    finally:
        process.kill()
        _, said = process.communicate()
    assert not re.search("Traceback|error", said), said
