"""Opening a file: each thing that can be wrong with it is an error of its own."""

import contextlib
import errno
import fcntl
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from log_support import SIGNERS, TOPIC, assert_whole, opened

import gossiplog
from gossiplog.errors import (
    DamagedLog,
    ForeignFile,
    LocalProtocolError,
    LogBusy,
    LogNotFound,
    NewerVersion,
    ReadOnlyLog,
    StorageFull,
    StoreError,
    TopicMismatch,
)
from gossiplog.store.places import open_place
from gossiplog.store.sqlite.lock import WriterLock
from gossiplog.version import VERSION

REPOSITORY = Path(__file__).parents[3]
HOLD = """
import sys, trio, gossiplog
async def main():
    async with gossiplog.open(sys.argv[1]) as log:
        await log.append("from the other process", signer=gossiplog.Ed25519Signer.generate())
        print("open", flush=True)
        await trio.to_thread.run_sync(sys.stdin.readline)
trio.run(main)
"""


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    """A log of three entries, closed."""
    path = tmp_path / "app.db"
    async with opened(path) as log:
        await log.append_many([1, 2, 3])
    return path


@pytest.fixture
def holder(path: Path):
    """A process that has the log open and has written to it."""
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    process = subprocess.Popen([sys.executable, "-c", HOLD, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
    assert process.stdout is not None and process.stdin is not None
    assert process.stdout.readline() == b"open\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()
    process.stdin.close()


async def fails(path: Path, error: type[Exception], match: str, **options) -> None:
    """Opening raises this error, with a hint where the user can do something, and leaves the folder as it was."""
    before = {file.name: file.read_bytes() for file in path.parent.iterdir() if file.is_file() and os.access(file, os.R_OK)}
    with pytest.raises(error, match=match) as caught:
        async with gossiplog.open(path, **options):
            raise AssertionError("it was opened")
    assert type(caught.value) is error
    after = {file.name: file.read_bytes() for file in path.parent.iterdir() if file.is_file() and os.access(file, os.R_OK)}
    for name in (f"{path.name}-lock", f"{path.name}-wal", f"{path.name}-shm"):
        before.pop(name, None)
        after.pop(name, None)
    assert after == before


@pytest.mark.parametrize("read_only", [False, True])
async def test_a_missing_file_is_not_made_without_a_topic(tmp_path, read_only) -> None:
    await fails(tmp_path / "app.db", LogNotFound, "no log at", read_only=read_only)


async def test_a_missing_file_is_not_made_where_that_is_not_wanted(tmp_path) -> None:
    await fails(tmp_path / "app.db", LogNotFound, "no log at", topic=TOPIC, create=False)
    await fails(tmp_path / "app.db", LogNotFound, "no log at", topic=TOPIC, read_only=True)


async def test_a_missing_folder_is_named(tmp_path) -> None:
    with pytest.raises(LogNotFound, match="no folder"):
        async with opened(tmp_path / "missing" / "app.db"):
            pass


@pytest.mark.parametrize("read_only", [False, True])
async def test_a_text_file_is_left_alone(tmp_path, read_only) -> None:
    path = tmp_path / "app.db"
    path.write_text("dear diary,\n" * 1_000)
    await fails(path, ForeignFile, "is not a log", topic=TOPIC, read_only=read_only)


@pytest.mark.parametrize("read_only", [False, True])
async def test_a_database_of_another_program_is_left_alone(tmp_path, read_only) -> None:
    path = tmp_path / "app.db"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE mine (a)")
        db.execute("INSERT INTO mine VALUES (1)")
    db.close()
    await fails(path, ForeignFile, "another program", topic=TOPIC, read_only=read_only)
    with contextlib.closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA journal_mode").fetchone() == ("delete",)


async def test_a_log_in_memory_closes_its_database(monkeypatch: pytest.MonkeyPatch) -> None:
    connections, connect = [], sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *args, **options: connections.append(connect(*args, **options)) or connections[-1])
    async with opened(":memory:", apply=lambda entries, tx: tx.execute("CREATE TABLE IF NOT EXISTS t (a)")) as log:
        await log.append(1)
        assert await log.query("SELECT * FROM t") == []
    assert connections
    for connection in connections:
        with pytest.raises(sqlite3.ProgrammingError, match="closed"):
            connection.execute("SELECT 1")


@pytest.mark.parametrize(("path", "fault"), [("", "empty"), ("a\0b", "NUL"), ("\ud800", "surrogates"), ("n" * 300, "too long")], ids=ascii)
async def test_a_path_that_no_file_can_have_is_refused(path: str, fault: str) -> None:
    with pytest.raises(LocalProtocolError, match=fault):
        async with opened(path):
            pass
    with pytest.raises(LocalProtocolError, match=fault):
        async with gossiplog.shelf(path):
            pass


async def test_a_shelf_whose_folder_cannot_be_made_or_read_is_an_error_of_the_store(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match="file cannot be made: File exists"):
        async with gossiplog.shelf(tmp_path / "file"):
            pass
    with pytest.raises(StoreError, match="missing cannot be read: No such file"):
        await open_place(tmp_path / "missing").topics()
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(StoreError, match="loop"):
        async with opened(str(tmp_path / "loop")):
            pass


async def test_a_folder_is_no_log(tmp_path) -> None:
    path = tmp_path / "folder"
    path.mkdir()
    await fails(path, ForeignFile, "is not a file", topic=TOPIC)


@pytest.mark.parametrize("options", [{}, {"read_only": True}, {"topic": TOPIC, "create": False}])
async def test_an_empty_file_is_no_log_yet(tmp_path, options) -> None:
    path = tmp_path / "app.db"
    path.touch()
    await fails(path, LogNotFound, "is empty", **options)


async def test_an_empty_file_becomes_a_log_with_a_topic(tmp_path) -> None:
    path = tmp_path / "app.db"
    path.touch()
    async with opened(path) as log:
        await log.append(1)
    async with opened(path, topic=None) as log:
        assert (log.topic, await log.count()) == (TOPIC, 1)


async def test_another_topic_is_named_with_the_one_there_is(path) -> None:
    await fails(path, TopicMismatch, f"has topic '{TOPIC}', not 'other'", topic="other")


@pytest.mark.parametrize("topic", ["", "..", "a b", "a" * 129, "a#", "ä", "a'; DROP TABLE x; --", "a\0b", "a\n"])
async def test_a_malformed_topic_makes_no_log(tmp_path, topic) -> None:
    with pytest.raises(LocalProtocolError, match="topic"):
        async with gossiplog.open(tmp_path / "app.db", topic=topic):
            pass
    with pytest.raises(LocalProtocolError, match="topic"):
        async with gossiplog.open(":memory:", topic=topic):
            pass
    async with opened(tmp_path / "app.db") as log:
        assert log.topic == TOPIC


@pytest.mark.parametrize("read_only", [False, True])
async def test_a_newer_file_says_which_version_wrote_it(path, read_only) -> None:
    db = sqlite3.connect(path)
    db.execute("UPDATE gossiplog_log SET version = '99.1'")
    db.execute("PRAGMA user_version = 99")
    db.commit()
    db.close()
    await fails(path, NewerVersion, r"schema 99, written by gossiplog 99\.1", read_only=read_only)


async def test_a_file_of_zeros_or_a_damaged_header_is_no_database(path) -> None:
    whole = path.read_bytes()
    path.write_bytes(bytes(len(whole)))
    await fails(path, ForeignFile, "not a log")
    for at in (0, 5, 15):
        path.write_bytes(whole[:at] + b"\xff" + whole[at + 1 :])
        await fails(path, ForeignFile, "not a log")


@pytest.mark.parametrize("at", [16, 18, 19, 21, 22, 23, 44, 47, 56])
@pytest.mark.parametrize("read_only", [False, True])
async def test_a_damaged_field_of_the_header_is_an_error_of_ours_or_harmless(path, at, read_only) -> None:
    whole = bytearray(path.read_bytes())
    whole[at] ^= 0x5A
    path.write_bytes(bytes(whole))
    try:
        async with gossiplog.open(path, read_only=read_only) as log:
            await log.fsck()
    except (DamagedLog, ForeignFile, ReadOnlyLog, LogNotFound, NewerVersion):
        pass


@pytest.mark.parametrize("keep", [1, 50, 100, 1_000, 4_096, 10_000, 30_000])
async def test_a_truncated_file_is_damaged(path, keep) -> None:
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises((DamagedLog, ForeignFile)) as caught:
        async with gossiplog.open(path, topic=TOPIC) as log:
            report = await log.fsck()
            assert not report.is_clean
            raise DamagedLog("reported")
    assert str(path) in str(caught.value) or str(caught.value) == "reported"


@pytest.fixture
def as_nobody_after(tmp_path: Path):
    """Return a function that gives up root's rights, under which modes do not count, until the end of the test."""
    became = []

    def become() -> None:
        if os.geteuid() == 0:
            for folder in tmp_path.parents:
                if folder != Path("/") and folder.name != "tmp":
                    became.append((folder, folder.stat().st_mode))
                    folder.chmod(folder.stat().st_mode | 0o055)
            os.setresuid(65534, 65534, 0)

    yield become
    if os.geteuid() == 65534:
        os.setresuid(0, 0, 0)
    for folder, mode in became:
        folder.chmod(mode)
    tmp_path.chmod(0o755)


async def test_a_read_only_file_can_be_read_and_not_written(path, as_nobody_after) -> None:
    path.chmod(0o444)
    path.parent.chmod(0o777)
    as_nobody_after()
    await fails(path, ReadOnlyLog, "cannot be written to")
    async with gossiplog.open(path, read_only=True) as log:
        assert await log.count() == 3


async def test_a_read_only_folder_can_be_read_and_not_written(path, as_nobody_after) -> None:
    path.with_name("app.db-lock").unlink()
    path.chmod(0o644)
    path.parent.chmod(0o555)
    as_nobody_after()
    await fails(path, ReadOnlyLog, "cannot be written to")
    await fails(path.with_name("new.db"), ReadOnlyLog, "folder .* cannot be written to", topic=TOPIC)
    async with gossiplog.open(path, read_only=True) as log:
        assert await log.count() == 3
        assert (await log.fsck()).is_clean


async def test_an_unreadable_file_is_named(path, as_nobody_after) -> None:
    path.chmod(0o000)
    path.parent.chmod(0o777)
    as_nobody_after()
    await fails(path, ReadOnlyLog, "cannot be read")


async def test_a_log_open_read_only_refuses_every_write(path) -> None:
    async with gossiplog.open(path, read_only=True, signer=SIGNERS[0]) as log:
        assert log.read_only
        (entry,) = [entry async for entry in log.iterate(limit=1)]
        for call in (
            lambda: log.append(1),
            lambda: log.insert(entry.value),
            lambda: log.sync(log),
            lambda: log.fsck(repair=True),
        ):
            with pytest.raises(ReadOnlyLog):
                await call()
        with pytest.raises(ReadOnlyLog, match="cursor"):
            async with log.subscribe(cursor="x"):
                pass
        await assert_whole(log)


async def test_two_writers_in_one_process_are_refused(path) -> None:
    async with opened(path) as log:
        await fails(path, LogBusy, r"this process has .* open for writing already")
        await log.append(4)
    async with opened(path) as log:
        assert await log.count() == 4


async def test_another_process_that_writes_is_named(path, holder) -> None:
    await fails(path, LogBusy, f"process {holder.pid} is writing")


async def test_a_reader_beside_a_writer_sees_what_is_committed(path, holder) -> None:
    async with gossiplog.open(path, read_only=True) as log:
        assert log.is_shared
        assert await log.count() == 4
        assert (await log.get((await log.heads())[0])).message.payload == "from the other process"
        await assert_whole(log)


async def test_a_lock_that_finds_no_room_is_given_up(path, monkeypatch) -> None:
    def no_room(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", no_room)
        await fails(path, StorageFull, "no space left for .*app.db")
    async with opened(path) as log:
        await log.append(4)


async def test_a_file_system_without_locks_is_no_other_process(path, monkeypatch) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    await fails(path, ReadOnlyLog, "cannot be locked by a file beside it: No locks available")
    with pytest.raises(OSError, match="No locks available"):
        WriterLock.on(path.with_name("lock"))


@pytest.mark.parametrize("count", [1, 3])
async def test_an_index_that_sqlite_had_no_room_to_begin_is_begun_again(path, count) -> None:
    path.with_name("app.db-shm").write_bytes(bytes(count))
    async with gossiplog.open(path, read_only=True) as log:
        assert await log.count() == 3
    async with opened(path) as log:
        await log.append(4)
        await assert_whole(log)


async def test_the_end_of_a_writer_however_it_comes_frees_the_log(path, holder) -> None:
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    async with opened(path) as log:
        assert await log.count() == 4
        await log.append(5)
        await assert_whole(log)


async def test_a_reader_sees_what_a_writer_in_the_same_process_commits(path) -> None:
    async with opened(path) as log, gossiplog.open(path, read_only=True) as reader:
        await log.append("new")
        assert await reader.count() == 4
        assert await reader.root() == await log.root()
        async with reader.subscribe() as events:
            for expected in (1, 2, 3, "new"):
                assert (await anext(events)).message.payload == expected


async def test_a_path_with_every_odd_character_opens(tmp_path) -> None:
    path = tmp_path / "a b?mode=ro#%41&ü'\".db"
    async with opened(path) as log:
        await log.append(1)
    assert path.exists()
    async with gossiplog.open(path, read_only=True) as log:
        assert await log.count() == 1


async def test_a_copy_of_a_closed_log_is_a_log(path, tmp_path) -> None:
    shutil.copy(path, tmp_path / "copy.db")
    async with opened(tmp_path / "copy.db") as log:
        assert await log.count() == 3
        await assert_whole(log)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"durability": "most"}, "durability"),
        ({"value_bytes_max": 0}, "value_bytes_max"),
        ({"value_bytes_max": 2**22 - 9}, "value_bytes_max"),
    ],
)
async def test_wrong_arguments_are_the_callers_mistake(tmp_path, options, match) -> None:
    await fails(tmp_path / "app.db", LocalProtocolError, match, topic=TOPIC, **options)


async def test_an_unknown_kind_of_store_is_the_callers_mistake() -> None:
    with pytest.raises(LocalProtocolError, match="carrier-pigeon"):
        async with opened("carrier-pigeon://coop/app"):
            pass
    with pytest.raises(LocalProtocolError, match="topic"):
        async with gossiplog.open(":memory:"):
            pass


@pytest.mark.parametrize("topic", ["zeroblob(3)", "''", "'a b'", "x'61'"])
async def test_a_topic_that_is_none_is_damage(path, topic) -> None:
    db = sqlite3.connect(path)
    db.execute(f"UPDATE gossiplog_log SET topic = {topic}")
    db.commit()
    db.close()
    await fails(path, DamagedLog, "for its topic")


async def test_an_interrupted_migration_or_a_missing_topic_is_reported(path) -> None:
    db = sqlite3.connect(path)
    db.execute("DELETE FROM gossiplog_log")
    db.commit()
    db.close()
    await fails(path, ForeignFile, "no topic")


async def test_a_newer_file_of_a_build_with_our_own_number_is_not_called_later(path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 99")
    await fails(path, NewerVersion, rf"schema 99, and this gossiplog, also {re.escape(VERSION)}, knows", read_only=True)
