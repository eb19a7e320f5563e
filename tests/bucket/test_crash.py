"""A publisher that is killed before any write, and one that is killed at any moment: nothing is lost, and nothing is left to clean up."""

import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from log_support import SIGNERS, TOPIC, make

import gossiplog
from gossiplog import blocking
from gossiplog.bucket import publish
from gossiplog.bucket.folder import Folder
from gossiplog.bucket.kept import Kept
from gossiplog.bucket.reading import PublishedTree
from gossiplog.entry import Entry
from gossiplog.tlog.note import parse_checkpoint, publisher_of
from gossiplog.tlog.tiles import Tile

OURS = publisher_of(SIGNERS[0])


class Killed(BaseException):
    """Stands for the end of the process: nothing that would clean up may run."""


class KilledFolder(Folder):
    """A folder whose process ends before its n-th change."""

    def __init__(self, root: Path, changes: int) -> None:
        super().__init__(root)
        self.changes = changes

    def _count(self) -> None:
        self.changes -= 1
        if self.changes < 0:
            raise Killed

    async def write(self, path: str, data: bytes) -> None:
        self._count()
        await super().write(path, data)

    async def swap(self, path: str, data: bytes, expected: bytes | None) -> bool:
        self._count()
        return await super().swap(path, data, expected)

    async def remove(self, paths: list[str]) -> None:  # type: ignore[override]
        self._count()
        await super().remove(paths)


def killed(error: BaseException) -> bool:
    return isinstance(error, Killed) or (isinstance(error, BaseExceptionGroup) and any(map(killed, error.exceptions)))


async def assert_readable(bucket: Path, entries: list[Entry], sizes: set[int], read: dict[bytes, int]) -> int:
    """Whatever a reader sees is whole: a beginning of the publisher's order, of a size that a call had come to.

    Objects that were read before, byte for byte and by the same names, are not read again: `read` has their size by their hash.
    """
    seen = hashlib.sha256()
    for path in sorted(bucket.rglob("*")):
        if path.is_file() and path.name != "lock":
            seen.update(f"{path.relative_to(bucket)} {path.stat().st_size}\n".encode() + path.read_bytes())
    size = read.get(seen.digest())
    if size is None:
        async with gossiplog.open(":memory:", topic=TOPIC) as reader:
            taken = (await reader.sync(bucket)).taken
            assert taken.faults == []
            size = read[seen.digest()] = await reader.count()
            assert {entry.value async for entry in reader.iterate()} == {entry.value for entry in entries[:size]}
    assert size in sizes
    return size


def live_objects(bucket: Path) -> set[str]:
    """All objects but those that nobody refers to any more because they are to be removed with the next new entry."""
    return {str(path.relative_to(bucket)) for path in bucket.rglob("*") if path.is_file() and path.name != "lock"}


@pytest.mark.parametrize("first", [0, 200, 4_000])
async def test_killed_before_any_write(tmp_path: Path, first: int) -> None:
    entries = [make(n) for n in range(first + 301)]
    before = tmp_path / "before"
    before.mkdir()
    async with gossiplog.open(before / "log.db", topic=TOPIC, signer=SIGNERS[0], durability="off") as log:
        await log.insert_many([entry.value for entry in entries[:first]])
        if first:
            await log.publish(before / "bucket")
        await log.insert_many([entry.value for entry in entries[first : first + 300]])
    changes, read = 0, dict[bytes, int]()
    while True:
        turn = shutil.copytree(before, tmp_path / str(changes))
        place = turn / "bucket"
        async with gossiplog.open(turn / "log.db", topic=TOPIC, signer=SIGNERS[0], durability="off") as log:
            was_killed = False
            try:
                await publish(log, KilledFolder(place, changes), SIGNERS[0])
            except BaseException as error:
                if not killed(error):
                    raise
                was_killed = True
            if (place / OURS / "head").exists():
                await assert_readable(place, entries, {first, first + 300}, read)
            await log.insert_many([entries[-1].value])
            published = await log.publish(place)
            assert (published.size, published.origin) == (first + 301, f"{TOPIC}/{OURS}/1")
            assert await assert_readable(place, entries, {first + 301}, read) == first + 301
            assert not list((place / OURS / "drafts").iterdir())
            partial = [name for name in live_objects(place) if "/tile/" in name and ".p/" in name]
            full = {name for name in live_objects(place) if ".p/" not in name}
            assert [name for name in partial if name.partition(".p/")[0] in full] == [], "what is full now has no partial object left"
            assert len([name for name in live_objects(place) if "/values/" in name and ".p/" in name]) <= 2
            signed = Kept.beside(log).signed(OURS)
            assert signed is not None
            sizes = [step.checkpoint.size for step in signed.steps]
            assert sizes == sorted(set(sizes))
        if not was_killed:
            assert changes > 5
            break
        changes += 1


async def test_killed_after_its_log_was_put_back_it_begins_a_new_generation(bucket: Path, tmp_path: Path) -> None:
    entries = [make(n) for n in range(20)]
    async with gossiplog.open(tmp_path / "a.db", topic=TOPIC, signer=SIGNERS[0], durability="off") as log:
        await log.insert_many([entry.value for entry in entries])
        with pytest.RaisesGroup(Killed, flatten_subgroups=True, allow_unwrapped=True):
            await publish(log, KilledFolder(bucket, 4), SIGNERS[0])
    (tmp_path / "a.db").unlink()
    async with gossiplog.open(tmp_path / "a.db", topic=TOPIC, signer=SIGNERS[0], durability="off") as log:
        await log.insert_many([entry.value for entry in reversed(entries)])
        assert (await log.publish(bucket)).origin == f"{TOPIC}/{OURS}/2"
    await assert_readable(bucket, entries, {20}, {})


async def test_a_tree_that_grows_while_it_is_read_is_read_whole(
    log: gossiplog.GossipLog, bucket: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await log.publish(bucket)
    reads = 0

    read_tile = PublishedTree.read_tile

    async def grow_first(tree: PublishedTree, tile: Tile) -> bytes:
        nonlocal reads
        reads += 1
        if reads == 1:
            for _ in range(3):
                await log.append_many([{"more": n} for n in range(20)])
                await log.publish(bucket)
        return await read_tile(tree, tile)

    monkeypatch.setattr(PublishedTree, "read_tile", grow_first)
    async with gossiplog.open(":memory:", topic=TOPIC) as theirs:
        taken = (await theirs.sync(bucket)).taken
        assert (taken.faults, await theirs.count()) == ([], 700), "what its checkpoint covers, from objects that have more"
        taken = (await theirs.sync(bucket)).taken
        assert (taken.faults, await theirs.count()) == ([], 760)


_WORKERS = """
import itertools, os, sys, trio, gossiplog, gossiplog.bucket
from log_support import SIGNERS, TOPIC

async def write(job, location, bucket, number):
    async with gossiplog.open(location, topic=TOPIC, signer=SIGNERS[number], durability="off") as log:
        print(os.getpid(), flush=True)
        for n in itertools.count():
            await log.append_many([{"n": n, "k": k} for k in range(40)])
            await (log.publish if job == "publish" else log.sync)(bucket)

async def clone(job, location, bucket, number):
    print(os.getpid(), flush=True)
    while True:
        await gossiplog.clone(bucket, location, topic=TOPIC)

for line in sys.stdin:
    job, location, bucket, number = line.split()
    child = os.fork()
    if not child:
        trio.run(clone if job == "clone" else write, job, location, bucket, int(number))
    print(os.WTERMSIG(os.waitpid(child, 0)[1]), flush=True)
"""


def entries_of(path: Path) -> int:
    """The number of a log's entries; 0 if it was not made yet."""
    if not path.exists():
        return 0
    with blocking.open(path, topic=TOPIC) as log:
        return log.count()


@pytest.mark.slow
def test_killed_at_any_moment_as_often_as_kills_says(bucket: Path, tmp_path: Path) -> None:
    # One process has everything imported and forks those that are killed: a start takes 0.4 s, and a fork 5 ms.
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1] / "support")}
    chance = random.Random(int(os.environ.get("SEED", "1")))
    log_paths, clone_path = [tmp_path / "0.db", tmp_path / "1.db"], tmp_path / "clone.db"
    bucket.mkdir(exist_ok=True)
    with subprocess.Popen(
        [sys.executable, "-c", _WORKERS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True, bufsize=1
    ) as workers:
        assert workers.stdin is not None
        assert workers.stdout is not None
        kills = int(os.environ.get("KILLS", "40"))
        for turn in range(10 * kills):
            # A busy machine writes less between kills.
            if turn >= kills and entries_of(log_paths[0]) + entries_of(log_paths[1]) > 2_000:
                break
            job, number = ("sync", "publish", "clone")[turn % 3], turn % 2
            if turn % 60 == 0:
                clone_path = tmp_path / f"clone-{turn}.db"
            print(job, clone_path if job == "clone" else log_paths[number], bucket, number, file=workers.stdin)
            pid = int(workers.stdout.readline())
            time.sleep(chance.random() * 0.3)
            os.kill(pid, signal.SIGKILL)
            assert int(workers.stdout.readline()) == signal.SIGKILL
        workers.stdin.close()
    with (
        blocking.open(log_paths[0], topic=TOPIC, signer=SIGNERS[0]) as one,
        blocking.open(log_paths[1], topic=TOPIC, signer=SIGNERS[1]) as other,
    ):
        for _ in range(2):
            for log in (one, other):
                done = log.sync(bucket)
                assert done.taken.faults == []
                assert [each for each in done.taken.publishers if not each.is_complete or each.rejected or each.left_out] == []
        assert one.root() == other.root()
        assert one.count() > 1_000, "they came to something"
        assert one.fsck().problems == 0
        for log, signer in ((one, SIGNERS[0]), (other, SIGNERS[1])):
            folder = bucket / publisher_of(signer)
            assert parse_checkpoint((folder / "head").read_bytes())[1].size == log.count()
            assert not list((folder / "drafts").iterdir())
            assert [path.name for path in folder.iterdir() if path.is_dir()].count("2") == 0, "no new generation was begun"
        for location in tmp_path.glob("clone-*.db"):
            assert blocking.clone(bucket, location).faults == []
            with blocking.open(location, topic=TOPIC) as clone:
                assert clone.root() == one.root()
                assert clone.fsck().problems == 0
