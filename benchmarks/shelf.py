"""A hub for a folder of many logs: start, opening on demand, memory, SIGTERM.

    python -m benchmarks.shelf [--logs 10000] [--awake 100]

The server is a process of `gossiplog serve --dir`. `--awake` logs are real and are opened by requests over HTTP, each for the first time;
the other files have names of logs and are never opened. Prints JSON: seconds, and bytes of resident memory.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import trio

import gossiplog
from gossiplog.store.folder import file_of


def main() -> None:
    parser = argparse.ArgumentParser(prog="shelf")
    parser.add_argument("--logs", type=int, default=10_000)
    parser.add_argument("--awake", type=int, default=100)
    parser.add_argument("--cycles", type=int, default=2_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        trio.run(_make, Path(folder), options.awake)
        few = _measure(Path(folder), options.awake, options.awake + 1, 0)
        for number in range(options.awake, options.logs):
            (Path(folder) / file_of(f"room-{number}")).touch()
        many = _measure(Path(folder), options.awake, options.awake + 1, 0)
        turning = _measure(Path(folder), options.awake, max(1, options.awake // 4), options.cycles)
    idle = (many["memory_awake"] - few["memory_awake"]) / max(1, options.logs - options.awake)
    shown = {"load": os.getloadavg()[0], "logs": options.logs, "awake": options.awake, "idle_log_bytes": round(idle), **many}
    print(json.dumps({**shown, "turning": turning}, indent=1))


async def _make(folder: Path, number: int) -> None:
    async with gossiplog.shelf(folder, signer=gossiplog.Ed25519Signer.generate(), durability="off") as shelf:
        for each in range(number):
            async with shelf.open(f"room-{each}", create=True) as log:
                await log.append_many([{"n": n} for n in range(10)])


def _measure(folder: Path, awake: int, most_open: int, cycles: int) -> dict[str, float]:
    """Start a server, open each log that is real, and end it; `cycles` further requests turn round where `most_open` is small."""
    command = [sys.executable, "-m", "gossiplog", "serve", "--dir", str(folder), "--listen", "127.0.0.1:0", "--most-open", str(most_open)]
    began = time.perf_counter()
    with subprocess.Popen([*command, "--json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout is not None
        told = json.loads(server.stdout.readline())
        found = {"start": time.perf_counter() - began, "memory_started": _resident(server.pid)}
        place = told["urls"][0].replace("ws://", "http://").removesuffix("TOPIC")
        took = sorted(_get(f"{place}room-{each}/api/clock") for each in range(awake))
        found |= {"open_p50": took[len(took) // 2], "open_p99": took[len(took) * 99 // 100], "memory_awake": _resident(server.pid)}
        for each in range(cycles):
            _get(f"{place}room-{each % awake}/api/clock")
            if each == cycles // 2:
                found["memory_half_way"] = _resident(server.pid)
        found["memory_at_end"] = _resident(server.pid)
        ending = time.perf_counter()
        server.send_signal(signal.SIGTERM)
        server.wait()
    return found | {"sigterm": time.perf_counter() - ending}


def _get(url: str) -> float:
    began = time.perf_counter()
    with urllib.request.urlopen(url) as answer:
        answer.read()
    return time.perf_counter() - began


def _resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    main()
