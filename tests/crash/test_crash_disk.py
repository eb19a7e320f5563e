"""A disk that is full, for a while: the error says so, the log stays whole, and goes on when there is space again."""

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from log_support import all_of, assert_whole, make, opened

from gossiplog.errors import CommitError, StorageFull

REPOSITORY = Path(__file__).parents[2]

LIMITED = """
import json, resource, sys
import trio, gossiplog
from gossiplog.errors import StoreError

async def main():
    path, limit = sys.argv[1], int(sys.argv[2])
    signer = gossiplog.Ed25519Signer.generate()
    acknowledged, errors = [], []
    async with gossiplog.open(path, topic="test.example.com", signer=signer) as log:
        acknowledged.append((await log.append("first")).id)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
        for number in range(2_000):
            try:
                acknowledged.append((await log.append("x" * 500)).id)
            except StoreError as error:
                errors.append([type(error).__name__, str(error), error.hint])
                if len(errors) == 5:
                    break
        stored = [entry.id async for entry in log.iterate()]
        assert set(acknowledged) <= set(stored), "lost while the disk is full"
        heads = await log.heads()
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        for number in range(20):
            acknowledged.append((await log.append("after")).id)
        report = await log.fsck()
        assert report.is_clean, report.findings
    print(json.dumps({"acknowledged": acknowledged, "errors": errors}))

trio.run(main)
"""


@pytest.mark.parametrize("limit", [60_000, 200_000, 350_000])
async def test_a_file_that_may_not_grow_is_a_clear_error_and_the_log_goes_on_afterwards(tmp_path, limit) -> None:
    path = tmp_path / "app.db"
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-c", LIMITED, str(path), str(limit)]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    said = json.loads(ran.stdout)
    assert len(said["errors"]) == 5
    for name, message, hint in said["errors"]:
        assert name in ("StorageFull", "CommitError")
        assert str(path) in message
        assert "disk" in hint or "space" in hint
    async with opened(path) as log:
        assert set(said["acknowledged"]) <= {entry.id for entry in await all_of(log)}
        await assert_whole(log)


async def limit_pages(log, pages: int) -> None:
    await log._store._writer.call(lambda db: db.execute(f"PRAGMA max_page_count = {pages}").fetchone())


async def test_a_full_database_is_a_clear_error_and_the_log_goes_on_afterwards(tmp_path) -> None:
    async with opened(tmp_path / "app.db") as log:
        await log.append("first")
        await limit_pages(log, 60)
        with pytest.raises(StorageFull, match=r"no space left for .*app\.db") as caught:
            while True:
                await log.append("x" * 400)
        assert "space" in (caught.value.hint or "")
        before = await all_of(log)
        await assert_whole(log, before)
        with pytest.raises(StorageFull):
            await log.insert_many([make(number).value for number in range(500)])
        with pytest.raises(StorageFull):
            await log.append_many(["x" * 900] * 50)
        assert [entry.key for entry in await all_of(log)] == [entry.key for entry in before]
        await limit_pages(log, 1_000_000)
        await log.append_many(["x" * 900] * 50)
        verdicts = await log.insert_many([make(number).value for number in range(500)])
        assert all(verdict.is_new for verdict in verdicts)
        assert await log.count() == len(before) + 550
        await assert_whole(log)


async def test_a_full_database_while_apply_writes_rolls_everything_back(tmp_path) -> None:
    async def apply(entries, tx) -> None:
        await tx.execute("CREATE TABLE IF NOT EXISTS app (key BLOB PRIMARY KEY, filler BLOB)")
        await tx.execute_many("INSERT INTO app VALUES (?, zeroblob(20000))", [(entry.key,) for entry in entries])

    async with opened(tmp_path / "app.db", apply=apply) as log:
        await log.append("first")
        await limit_pages(log, 100)
        with pytest.raises(StorageFull):
            await log.append_many(range(30))
        assert await log.count() == 1
        await limit_pages(log, 1_000_000)
        await log.append_many(range(30))
        await assert_whole(log)
    with sqlite3.connect(tmp_path / "app.db") as db:
        assert db.execute("SELECT count(*) FROM app").fetchone() == (31,)
    db.close()


async def test_a_full_database_during_a_repair_changes_nothing(tmp_path) -> None:
    path = tmp_path / "app.db"
    async with opened(path) as log:
        await log.append_many([make(number).message.payload for number in range(300)])
    with sqlite3.connect(path) as db:
        db.execute("DELETE FROM gossiplog_heads")
        pages = db.execute("PRAGMA page_count").fetchone()[0]
    db.close()
    async with opened(path) as log:
        await limit_pages(log, pages)
        try:
            await log.fsck(repair=True)
        except (StorageFull, CommitError):
            assert not (await log.fsck()).is_clean
        await limit_pages(log, 1_000_000)
        assert (await log.fsck(repair=True)).is_clean
        await assert_whole(log)


SMALL_DISK = """
import os, subprocess, sys
from contextlib import suppress
from pathlib import Path
from click.testing import CliRunner
import trio, gossiplog
from gossiplog.cli.app import root
from gossiplog.errors import StoreError

folder = Path(sys.argv[1])
path = folder / "app.db"
signer = gossiplog.Ed25519Signer.from_seed(bytes(32))

def mount(*options):
    subprocess.run(["mount", "-t", "tmpfs", "-o", ",".join(options), "none", str(folder)], check=True)

def run(*words):
    ran = CliRunner().invoke(root, [*words])
    assert ran.exit_code in (0, 1, 5), (words, ran.exit_code, ran.stderr)
    if ran.exit_code:
        assert str(folder) in ran.stderr and "Traceback" not in ran.stderr, ran.stderr
        assert "disk" in ran.stderr or "space" in ran.stderr, ran.stderr
    return ran.exit_code == 0

async def fill():
    appended, failed = [], 0
    async with gossiplog.open(path, signer=signer) as log:
        while failed < 3:
            try:
                appended.append((await log.append("x" * 500)).id)
            except StoreError as error:
                assert str(path) in str(error), error
                failed += 1
    return appended

async def go_on(appended):
    async with gossiplog.open(path, signer=signer) as log:
        assert set(appended) <= {entry.id async for entry in log.iterate()}
        await log.append("after")
        assert (await log.fsck()).is_clean

init = ("init", str(path), "--topic", "test.example.com")
failed = 0
for options in (["nr_inodes=2"], ["nr_inodes=3"], *[[f"size={size}k"] for size in range(4, 130, 12)]):
    mount(*options)
    if not run(*init):
        failed += 1
        mount("remount", "size=1m", "nr_inodes=50")
        assert run(*init), options
    assert run("stat", str(path)), options
    subprocess.run(["umount", str(folder)], check=True)
assert failed >= 6, failed
mount("size=1m")
assert run(*init)
appended = trio.run(fill)
assert len(appended) > 10
mount("remount", "size=4m")
trio.run(go_on, appended)

# No room is left for the two files that SQLite makes beside a log to read it.
log = ("log", str(path), "-q")
assert run("key", "new", "desktop")
with suppress(OSError), open(folder / "fill", "wb", buffering=0) as file:
    while file.write(bytes(4_096)):
        pass
assert run("stat", str(path)) and run(*log) and run("copy", str(path), sys.argv[2])
assert not run("append", str(path), "1") and not run("key", "new", "laptop")
assert run("stat", str(path)) and run(*log)
(folder / "fill").unlink()
trio.run(go_on, appended)
"""


def test_where_a_log_or_one_more_entry_does_not_fit_the_file_is_named_and_room_mends_it(tmp_path, tmp_path_factory) -> None:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    # A mount that nobody else sees, and that ends with the process; who is not root may do that as the root of a namespace of users.
    options = ["--mount"] if os.geteuid() == 0 else ["--user", "--map-root-user", "--mount"]
    if subprocess.run(["unshare", *options, "mount", "-t", "tmpfs", "none", str(tmp_path)], capture_output=True, check=False).returncode:
        pytest.skip("this machine lets nobody mount a small disk, not even in a namespace")
    environment["GOSSIPLOG_KEY_DIR"] = str(tmp_path / "keys")
    command = ["unshare", *options, sys.executable, "-c", SMALL_DISK, str(tmp_path), str(tmp_path_factory.mktemp("disk") / "copy.db")]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
