"""Kill servers and clients under load, again and again, and see that nothing acknowledged is lost, nothing is half there or there twice.

python -m tests.postgres.crash_loop --rounds 200 [--seed 1] [--report FILE.md]
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import asyncpg
import trio

import gossiplog
from gossiplog.entry import Entry
from gossiplog.log.requests import ReadPage
from gossiplog.plan import ask
from gossiplog.store import Reader
from gossiplog.store.postgres.url import PostgresUrl
from gossiplog.tree import ReadRoot, build
from gossiplog.version import VERSION

REPOSITORY = Path(__file__).parents[2]
sys.path.insert(0, str(REPOSITORY / "tests/support"))

from postgres_support import PostgresServer, running_server  # noqa: E402

from tests.postgres.crash_worker import TOPIC  # noqa: E402

_CLIENTS = 2
_ROUNDS_PER_LOG = 10
"""Then a new log is begun, so that checking it stays quick."""
_WAYS = ("kill the server", "kill the server", "stop it immediately", "kill a client", "kill a client", "kill everything")


@dataclass
class Tally:
    """What a run came to.

    Attributes:
        ways: How often what was killed.
        acknowledged: Entries that were acknowledged, all of which were there afterwards.
        unacknowledged: Entries that were there beyond those.
        checked: Entries that `fsck` looked at, all together.
        errors: What the clients were told, by its type.
    """

    ways: Counter[str] = field(default_factory=Counter)
    acknowledged: int = 0
    unacknowledged: int = 0
    checked: int = 0
    errors: Counter[str] = field(default_factory=Counter)


class Client:
    """A process that writes, and a thread that hears what was acknowledged to it."""

    def __init__(self, url: str, name: str, seed: int, acknowledged: set[str], log: Path) -> None:
        command = [sys.executable, "-m", "tests.postgres.crash_worker", url, name, str(seed)]
        environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
        self.is_open = threading.Event()
        self._acknowledged = acknowledged
        self._errors = log.open("ab")
        self._process = subprocess.Popen(command, cwd=REPOSITORY, env=environment, stdout=subprocess.PIPE, stderr=self._errors)
        self._thread = threading.Thread(target=self._hear)
        self._thread.start()

    def kill(self) -> None:
        """kill -9, and hear the last of it."""
        self._process.kill()
        self._process.wait()
        self._thread.join()
        self._errors.close()

    def _hear(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as said:
            for line in said:
                text = line.decode()
                if text == "open\n":
                    self.is_open.set()
                elif text.endswith("\n"):
                    self._acknowledged.add(text[:-1])


def run_crashes(rounds: int, *, seed: int, longest_s: float = 0.6) -> Tally:
    """Run so many rounds; raises AssertionError at the first thing that is not as it must be."""
    random = Random(seed)
    tally = Tally()
    # As it comes: what is acknowledged is on the disk.
    with running_server() as server, tempfile.TemporaryDirectory() as folder:
        if server.offers("amcheck"):
            server.sql("CREATE EXTENSION amcheck")
        for first in range(0, rounds, _ROUNDS_PER_LOG):
            _run_log(server, min(_ROUNDS_PER_LOG, rounds - first), first, random, longest_s, tally, Path(folder))
        tally.errors = _count_errors(Path(folder) / "errors")
    return tally


def _run_log(server: PostgresServer, rounds: int, first: int, random: Random, longest_s: float, tally: Tally, folder: Path) -> None:
    server.sql(f"CREATE SCHEMA app{first}; CREATE TABLE app{first}.app (key BYTEA PRIMARY KEY)")
    url = server.url(f"crash{first}", search_path=f"app{first}")
    acknowledged: set[str] = set()
    names = iter(f"{first}-{number}" for number in range(10_000))

    def start() -> Client:
        return Client(url, next(names), random.randrange(2**32), acknowledged, folder / "errors")

    clients = [start() for _ in range(_CLIENTS)]
    try:
        for _ in range(rounds):
            for client in clients:
                assert client.is_open.wait(60)
            time.sleep(random.uniform(0, longest_s))
            way = random.choice(_WAYS)
            if way in ("kill a client", "kill everything"):
                for index in [random.randrange(_CLIENTS)] if way == "kill a client" else range(_CLIENTS):
                    clients[index].kill()
                    clients[index] = start()
            if way in ("kill the server", "kill everything"):
                server.kill()
            elif way == "stop it immediately":
                server.stop("immediate")
            if way != "kill a client":
                server.start()
            tally.ways[way] += 1
            trio.run(_check, url, first, set(acknowledged), tally)
    finally:
        for client in clients:
            client.kill()
    ids = trio.run(_check, url, first, set(acknowledged), tally)
    tally.acknowledged += len(acknowledged)
    tally.unacknowledged += len(ids) - len(acknowledged)


async def _check(url: str, first: int, acknowledged: set[str], tally: Tally) -> set[str]:
    """Check one snapshot of the log after another, while the clients go on."""
    async with gossiplog.open(url, topic=TOPIC, read_only=True) as log:
        report = await log.fsck()
        assert report.is_clean, report.findings
        async with log.snapshot() as snapshot:
            entries = [entry async for entry in _entries(snapshot)]
            root = await snapshot.run(ask(ReadRoot()))
    ids = {entry.id for entry in entries}
    lost = acknowledged - ids
    assert not lost, f"{len(lost)} acknowledged entries are lost"
    payloads = [(entry.message.payload[0], entry.message.payload[1]) for entry in entries]
    assert len(set(payloads)) == len(payloads), "an entry was appended twice"
    expected = build([(entry.key, entry.value) for entry in entries])
    assert (root.level, root.hash) == (expected.level, expected.hash)
    unequal = await trio.to_thread.run_sync(_compare_application, url, first)
    assert unequal == 0, "the application's table is not the log's"
    tally.checked += report.entries
    return ids


async def _entries(snapshot: Reader) -> AsyncIterator[Entry]:
    after: bytes | None = None
    while page := await snapshot.run(ask(ReadPage(after, None, False, 1_000))):
        after = page[-1][0]
        for key, value in page:
            yield Entry(key, value)


def _compare_application(url: str, first: int) -> int:
    import asyncio

    async def compare() -> int:
        place = PostgresUrl.parse(url)
        connection = await asyncpg.connect(place.dsn)
        try:
            statement = f"""
                SELECT count(*) FROM app{first}.app a FULL JOIN {place.quoted_schema}.entries e USING (key)
                WHERE a.key IS NULL OR e.seq IS NULL"""
            return int(await connection.fetchval(statement))
        finally:
            await connection.close()

    return asyncio.run(compare())


def _count_errors(path: Path) -> Counter[str]:
    lines = path.read_text(errors="replace").splitlines() if path.exists() else []
    known = ("StoreUnavailable", "CommitError", "LogBusy")
    for line in lines:
        assert line.removeprefix("opening: ").startswith(known), line
    return Counter(line.removeprefix("opening: ").partition(":")[0] for line in lines)


def main() -> None:
    """Run from the command line, and write a report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--report", type=Path)
    options = parser.parse_args()
    begun = time.monotonic()
    tally = run_crashes(options.rounds, seed=options.seed)
    with running_server() as server:
        version = server.sql("SELECT current_setting('server_version')")[0][0]
    text = _report(options, tally, time.monotonic() - begun, version)
    print(text)
    if options.report is not None:
        options.report.write_text(text)


def _report(options: argparse.Namespace, tally: Tally, seconds: float, server: str) -> str:
    packages = f"asyncpg {asyncpg.__version__}, trio {trio.__version__}"
    versions = f"gossiplog {VERSION}, Python {platform.python_version()}, PostgreSQL {server}, {packages}"
    machine = f"{platform.machine()}, {os.cpu_count()} CPUs, Linux {platform.release()}, load average {os.getloadavg()[0]:.1f}"
    ways = ", ".join(f"{way}: {count}" for way, count in sorted(tally.ways.items()))
    errors = ", ".join(f"{name}: {count}" for name, count in sorted(tally.errors.items())) or "none"
    return f"""# Crashes of PostgreSQL and of its clients under load

`python -m tests.postgres.crash_loop --rounds {options.rounds} --seed {options.seed}`

{_CLIENTS} processes write to one log: each appends from four tasks (single entries and batches), inserts another signer's entries, writes
a table of the application in `apply`, and acknowledges a follower's cursor. At a random moment the server's processes are killed with
SIGKILL all at once, or it is stopped with `immediate`, or a client is killed, or everything is. The server starts again, the clients that
are left go on with the connections that they make anew. After each round one snapshot is checked with `fsck` (amcheck on all indexes
included, where the server has it) while they write, its tree compared with one built from its entries, and the application's table compared
with the log. Each log lives through {_ROUNDS_PER_LOG} rounds.

| | |
|---|---|
| machine | {machine} |
| versions | {versions} |
| settings | synchronous_commit=on, fsync=on, the others as initdb leaves them |
| rounds | {sum(tally.ways.values())}: {ways} |
| entries acknowledged | {tally.acknowledged:,} |
| of them lost | 0 |
| entries there twice | 0 |
| entries committed, and the client or the connection gone before that could be said | {tally.unacknowledged:,} |
| errors that clients were told of, all of which they outlived | {errors} |
| entries looked at by `fsck`, all checks together | {tally.checked:,} |
| `fsck` not clean, tree unequal, application's table unequal | 0 |
| wall time | {seconds:.0f} s |
"""


if __name__ == "__main__":
    main()
