"""Kill a process that builds its application's tables anew for one version after another, and see that the old ones are whole or the new.

python -m tests.crash.rebuild_kills FOLDER KILLS SEED
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any

import trio

import gossiplog
from gossiplog.entry import Ed25519Signer

from .versioned import assert_tables_follow, notes, read_tables

TOPIC = "crash.example.com"
SIGNER = Ed25519Signer.from_seed(b"\1" * 32)
LONGEST_S = 0.6


def fork(function: Callable[..., Awaitable[Any]], *arguments: Any) -> int:
    """Run a function in a process of its own; this one never has a thread beside it, so that its children may begin as its copies."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        trio.run(function, *arguments)
        status = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stderr.flush()
        os._exit(status)


def succeed(function: Callable[..., Awaitable[Any]], *arguments: Any) -> None:
    """Run a function in a process, to its end."""
    _, status = os.waitpid(fork(function, *arguments), 0)
    assert status == 0, function.__name__


async def make(path: Path) -> None:
    """Begin with a log of some pages, some entries of which are set aside."""
    async with gossiplog.open(path, topic=TOPIC, signer=SIGNER, durability="off") as log:
        for _ in range(3):
            await log.append_many([number if number % 100 else "bad" for number in range(150)])
    async with gossiplog.open(path, app=notes(1)):
        pass


async def rebuild(path: Path, version: int) -> None:
    """Open the log with one version after another, and append in between; for ever."""
    while True:
        version += 1
        async with gossiplog.open(path, signer=SIGNER, durability="off", app=notes(version)) as log:
            await log.append(version)


async def check(path: Path, least: int) -> None:
    """See that all is whole, and that no entry is lost which was there before."""
    _, entries = await assert_tables_follow(path, TOPIC)
    assert len(entries) >= least


def run_kills(path: Path, kills: int, random: Random) -> tuple[int, int]:
    """Return how many versions there were in the end, and how many kills found tables that were being built."""
    succeed(make, path)
    inside = 0
    for _ in range(kills):
        rows, _, ((_, version, _),) = read_tables(path)
        pid = fork(rebuild, path, version)
        time.sleep(random.uniform(0, LONGEST_S))
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        assert os.WIFSIGNALED(status), "it ended by itself"
        inside += path.with_name(path.name + "-wal").exists()
        succeed(check, path, len(rows))
    return read_tables(path)[2][0][1], inside


if __name__ == "__main__":
    print(*run_kills(Path(sys.argv[1]) / "app.db", int(sys.argv[2]), Random(int(sys.argv[3]))))
