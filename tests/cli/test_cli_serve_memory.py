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
from gossiplog.cli.net import memory

memory.GIVE_BACK_S = 0.5
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
ARENAS = """
import ctypes
from gossiplog.__main__ import main

try:
    main()
finally:
    libc = ctypes.CDLL(None)
    libc.malloc_info(0, ctypes.c_void_p.in_dll(libc, "stdout"))
    libc.fflush(None)
"""


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


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="asks glibc")
@pytest.mark.parametrize("environment", [{}, {"MALLOC_ARENA_MAX": "16"}], ids=["by itself", "told otherwise"])
async def test_all_threads_of_serve_share_an_arena_unless_told_otherwise(tmp_path, environment):
    path = tmp_path / "served.db"
    async with gossiplog.open(path, topic="a.example.com"):
        pass
    command = [sys.executable, "-c", ARENAS, "serve", str(path), "--listen", "127.0.0.1:0", "--json"]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**inherited, **environment})
    try:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["urls"]
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=60)
    finally:
        process.kill()
        process.communicate()
    arenas = said.count("<heap nr=")
    # The connection that writes to the log has a thread of its own.
    assert (arenas == 1) if not environment else (arenas >= 2)
