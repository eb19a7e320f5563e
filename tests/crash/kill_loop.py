"""Kill a process that writes to a log, again and again, and see that nothing that it acknowledged is lost and nothing is half there.

python -m tests.crash.kill_loop --kills 500 [--durability full] [--seed 1] [--report FILE.md]
"""

from __future__ import annotations

import argparse
import os
import platform
import sqlite3
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import trio

import gossiplog
from gossiplog.entry import Entry
from gossiplog.tree import build
from gossiplog.version import VERSION

REPOSITORY = Path(__file__).parents[2]
_KILLS_PER_FILE = 10
"""Then a new log is begun, so that checking it stays quick; many kills also hit recovery from the one before."""


@dataclass
class Tally:
    """What a run of kills came to.

    Attributes:
        kills: Processes killed.
        opening: Of them, before the log was open.
        acknowledged: Entries that were acknowledged before a kill, all of which were there afterwards.
        unacknowledged: Entries that were there beyond those: committed, and killed before it could be said.
        checked: Entries that `fsck` looked at, all together.
    """

    kills: int = 0
    opening: int = 0
    acknowledged: int = 0
    unacknowledged: int = 0
    checked: int = 0


def run_kills(folder: Path, kills: int, *, seed: int, durability: str, longest_s: float = 0.5) -> Tally:
    """Kill a writing process so many times at random moments; raises AssertionError at the first thing that is not as it must be."""
    random = Random(seed)
    tally = Tally()
    acknowledged: set[str] = set()
    path = folder / "0.db"
    for number in range(kills):
        if number % _KILLS_PER_FILE == 0:
            path = folder / f"{number}.db"
            acknowledged = set()
        fresh = _load_and_kill(path, durability, random, longest_s, tally)
        acknowledged |= fresh
        tally.kills += 1
        tally.acknowledged += len(fresh)
        if path.exists() and path.stat().st_size:
            # What was there once must stay, acknowledged or not.
            acknowledged |= trio.run(_check, path, acknowledged, tally)
        else:
            assert not acknowledged
    return tally


def _load_and_kill(path: Path, durability: str, random: Random, longest_s: float, tally: Tally) -> set[str]:
    command = [sys.executable, "-m", "tests.crash.kill_worker", path, durability, str(random.randrange(2**32))]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    with subprocess.Popen(command, cwd=REPOSITORY, env=environment, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        # One kill in ten comes while the log is being opened, or made, or recovered.
        is_early = random.random() < 0.1
        line = b"" if is_early else process.stdout.readline()
        assert is_early or line == b"open\n", line
        time.sleep(random.uniform(0.15, 0.4) if is_early else random.uniform(0, longest_s))
        process.kill()
        said = process.stdout.read().decode().split("\n")[:-1]
    ids = {line for line in said if line != "open"}
    tally.opening += is_early and "open" not in said
    return ids


async def _check(path: Path, acknowledged: set[str], tally: Tally) -> set[str]:
    try:
        async with gossiplog.open(path) as log:
            entries: list[Entry] = [entry async for entry in log.iterate()]
            report = await log.fsck()
            root = await log.root()
            assert await log.count() == len(entries)
    except gossiplog.errors.LogNotFound:
        # Killed before the first transaction: an empty file, which the next process makes a log of.
        assert not acknowledged
        return set()
    assert report.is_clean, report.findings
    assert report.valid == len(entries)
    ids = {entry.id for entry in entries}
    lost = acknowledged - ids
    assert not lost, f"{len(lost)} acknowledged entries are lost"
    expected = build([(entry.key, entry.value) for entry in entries])
    assert (root.level, root.hash) == (expected.level, expected.hash)
    db = sqlite3.connect(path)
    has_table = db.execute("SELECT count(*) FROM sqlite_master WHERE name = 'app'").fetchone()[0]
    rows = {key for (key,) in db.execute("SELECT key FROM app")} if has_table else set()
    db.close()
    assert rows == {entry.key for entry in entries}, "the application's table is not the log's"
    tally.checked += len(entries)
    tally.unacknowledged += len(ids) - len(acknowledged)
    return ids


def main() -> None:
    """Run from the command line, and write a report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--durability", default="full", choices=["full", "normal", "off"])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--report", type=Path)
    options = parser.parse_args()
    begun = time.monotonic()
    with TemporaryDirectory() as folder:
        tally = run_kills(Path(folder), options.kills, seed=options.seed, durability=options.durability)
    text = _report(options, tally, time.monotonic() - begun)
    print(text)
    if options.report is not None:
        options.report.write_text(text)


def _report(options: argparse.Namespace, tally: Tally, seconds: float) -> str:
    versions = f"gossiplog {VERSION}, Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, trio {trio.__version__}"
    machine = f"{platform.machine()}, {os.cpu_count()} CPUs, Linux {platform.release()}"
    return f"""# kill -9 under load

`python -m tests.crash.kill_loop --kills {options.kills} --durability {options.durability} --seed {options.seed}`

A process appends from six tasks (single entries and batches), inserts another signer's entries, writes a table of the application in
`apply`, and acknowledges a follower's cursor, all at once. It is killed with SIGKILL at a random moment, one time in ten while it is still
opening the file. After each kill the log is opened, checked with `fsck`, its tree compared with one built from its entries, and the
application's table compared with the log. Each file lives through {_KILLS_PER_FILE} kills.

| | |
|---|---|
| machine | {machine} |
| versions | {versions} |
| durability | {options.durability} |
| kills | {tally.kills}, {tally.opening} of them before the log was open |
| entries acknowledged before a kill | {tally.acknowledged:,} |
| of them lost | 0 |
| entries committed, and killed before that could be said | {tally.unacknowledged:,} |
| entries looked at by `fsck`, all checks together | {tally.checked:,} |
| `fsck` not clean, tree unequal, application's table unequal | 0 |
| wall time | {seconds:.0f} s |
"""


if __name__ == "__main__":
    main()
