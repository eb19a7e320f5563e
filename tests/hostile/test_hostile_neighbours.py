"""What a stranger puts beside a log file: journals that name a file of the user's, links, pipes and folders where SQLite keeps its own."""

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random

import pytest
import trio
from click.testing import CliRunner
from damage_support import hot_journal
from log_support import SIGNERS, TOPIC, make_history, opened

import gossiplog
from gossiplog.cli.app import root
from gossiplog.errors import DamagedLog, ForeignFile, GossipLogError, ReadOnlyLog
from gossiplog.spark.source.run_plan import last_seq

THESIS = "four years of work\n"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log that was closed, and beside it one that a crash left: a part of it is in the write-ahead log."""
    folder = tmp_path_factory.mktemp("neighbours")
    history = [entry.value for entry in make_history(Random(6), 60)]

    async def make() -> None:
        async with opened(folder / "whole.db") as log:
            await log.insert_many(history[:40])
            await log.insert_many(history[40:])
            for suffix in ("", "-wal"):
                (folder / f"crashed.db{suffix}").write_bytes((folder / f"whole.db{suffix}").read_bytes())
        async with opened(folder / "young.db") as log:
            await log.insert_many(history[:20])

    trio.run(make)
    return folder


class Place:
    """A stick's folder with the stranger's `S.db`, and beside it the user's own log and a file that must not change."""

    def __init__(self, folder: Path, whole: Path) -> None:
        self.stick = folder / "stick"
        self.stick.mkdir()
        self.log = self.stick / "S.db"
        self.log.write_bytes((whole / "whole.db").read_bytes())
        self.own = folder / "own.db"
        self.own.write_bytes((whole / "young.db").read_bytes())
        self.thesis = folder / "thesis.txt"
        self.thesis.write_text(THESIS)

    def beside(self, suffix: str) -> Path:
        return self.log.with_name(self.log.name + suffix)

    def look(self) -> dict[str, object]:
        """Everything that is on the stick."""
        return {path.name: describe(path) for path in self.stick.iterdir()}


def describe(path: Path) -> object:
    if path.is_symlink():
        return "link", str(path.readlink())
    return path.read_bytes() if path.is_file() else path.stat().st_mode


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: Path) -> Place:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GOSSIPLOG_KEY_DIR", str(tmp_path / "keys"))
    (tmp_path / "keys").mkdir(mode=0o700)
    SIGNERS[0].save(tmp_path / "keys" / "alice.pem")
    return Place(tmp_path, whole)


def run(*arguments: object) -> tuple[int, str]:
    ran = CliRunner().invoke(root, [str(each) for each in arguments], prog_name="gossiplog")
    assert "Traceback" not in ran.stderr and "fault of gossiplog" not in ran.stderr, ran.stderr
    return ran.exit_code, ran.stderr


def name_thesis(place: Place) -> None:
    place.beside("-journal").write_bytes(hot_journal(place.log, place.thesis))


def link(suffix: str) -> Callable[[Place], None]:
    return lambda place: place.beside(suffix).symlink_to(place.thesis)


def pipe(suffix: str) -> Callable[[Place], None]:
    return lambda place: os.mkfifo(place.beside(suffix))


def folder(suffix: str) -> Callable[[Place], None]:
    return lambda place: place.beside(suffix).mkdir()


def text(suffix: str) -> Callable[[Place], None]:
    return lambda place: place.beside(suffix).write_text("these are notes of mine, and no file of SQLite's\n" * 40)


STRANGE: dict[str, Callable[[Place], None]] = {
    "a journal that names a file of the user's": name_thesis,
    "a journal of another state of the log": lambda place: place.beside("-journal").write_bytes(hot_journal(place.log, None, pages=3)),
    **{f"a link at {suffix}": link(suffix) for suffix in ("-journal", "-wal", "-shm")},
    **{f"a pipe at {suffix}": pipe(suffix) for suffix in ("-journal", "-wal", "-shm")},
    **{f"a folder at {suffix}": folder(suffix) for suffix in ("-journal", "-wal", "-shm")},
    **{f"a text at {suffix}": text(suffix) for suffix in ("-journal", "-wal", "-shm")},
}
WRITES: list[Callable[[Place], list[object]]] = [
    lambda place: ["append", place.log, "7"],
    lambda place: ["fsck", place.log, "--repair"],
    lambda place: ["init", place.log, "--topic", TOPIC],
    lambda place: ["quarantine", "retry", place.log],
]
READS: list[Callable[[Place], list[object]]] = [
    lambda place: ["stat", place.log],
    lambda place: ["log", place.log],
    lambda place: ["fsck", place.log],
    lambda place: ["verify", place.log],
    lambda place: ["copy", place.log, "copied.db"],
    lambda place: ["salvage", place.log, "saved.db"],
    lambda place: ["sync", place.own, place.log, "--pull"],
    lambda place: ["migrate", place.log, "--dry-run"],
]


@pytest.mark.parametrize("name", STRANGE)
def test_nothing_is_written_beside_what_is_not_ours_and_everything_is_read(place, name) -> None:
    STRANGE[name](place)
    before = place.look()
    for make in WRITES:
        arguments = make(place)
        code, said = run(*arguments)
        assert code in (1, 3) and "S.db-" in said, (arguments, code, said)
        assert "salvage" in said, said
    for make in READS:
        arguments = make(place)
        code, said = run(*arguments)
        assert code == 0, (arguments, said)
    with pytest.raises((ForeignFile, DamagedLog)):
        trio.run(open_for_writing, place.log)
    assert last_seq(str(place.log)) == 60
    assert place.thesis.read_text() == THESIS
    assert {name: each for name, each in place.look().items() if name != "S.db-lock"} == before


async def open_for_writing(path: Path) -> None:
    async with gossiplog.open(path, signer=SIGNERS[0]) as log:
        await log.append(1)


@pytest.mark.parametrize("make", [link("-lock"), folder("-lock"), text("-lock"), pipe("-lock")])
def test_a_lock_file_that_is_none_is_not_written_to(place, make) -> None:
    make(place)
    before = place.look()
    code, said = run("append", place.log, "7")
    assert code == 1 and "S.db-lock" in said, said
    assert place.thesis.read_text() == THESIS and place.look() == before
    assert run("stat", place.log)[0] == 0


@pytest.mark.parametrize("name", ["a journal that names a file of the user's", "a text at -wal", "a folder at -shm"])
def test_a_sync_takes_what_is_there_before_it_says_that_it_cannot_give(place, name) -> None:
    STRANGE[name](place)
    before = place.look()
    assert run("append", place.own, '"mine"') == (0, "")
    code, said = run("sync", place.own, place.log)
    assert code in (1, 3) and "S.db-" in said, said
    assert last_seq(str(place.own)) == 61
    assert place.thesis.read_text() == THESIS
    assert {name: each for name, each in place.look().items() if name != "S.db-lock"} == before


def test_a_sync_with_nothing_to_give_writes_nothing_beside_its_source(place) -> None:
    place.own.unlink()
    run("copy", place.log, place.own)
    assert run("append", place.own, '"mine"') == (0, "")
    assert run("sync", place.own, place.log)[0] == 0
    place.beside("-lock").unlink()
    before = place.look()
    assert run("sync", place.own, place.log)[0] == 0
    assert place.look() == before


@pytest.mark.parametrize("header", ["log", "creation"])
def test_a_journal_of_our_own_crash_is_rolled_back(place, header) -> None:
    """A creation that was killed leaves a journal; no other program's name is in it."""
    if header == "log":
        data = bytearray(place.log.read_bytes())
        journal = hot_journal(place.log, None, pages=1)
        # The switch to WAL writes two bytes of the first page, after it has kept them in the journal.
        assert data[18:20] == b"\2\2"
        place.beside("-journal").write_bytes(journal)
        assert run("stat", place.log)[0] == 0
        assert run("append", place.log, "7")[0] == 0
    else:
        data = bytearray(place.log.read_bytes())
        place.beside("-journal").write_bytes(hot_journal(place.log, None, pages=1, before=0))
        place.log.write_bytes(b"")
        assert run("init", place.log, "--topic", TOPIC)[0] == 0
    assert not place.beside("-journal").exists()
    assert run("fsck", place.log)[0] == 0


@pytest.mark.parametrize("is_there", [True, False])
def test_the_write_ahead_log_of_a_file_that_is_empty_or_gone_is_kept(place, whole, is_there) -> None:
    place.log.unlink()
    if is_there:
        place.log.touch()
    wal = (whole / "crashed.db-wal").read_bytes()
    place.beside("-wal").write_bytes(wal)
    before = place.look()
    for make in (*WRITES, *READS):
        arguments = make(place)
        code, said = run(*arguments)
        assert code != 0 or arguments[0] == "salvage", (arguments, said)
        if arguments[0] in ("append", "init", "stat", "fsck") and (is_there or arguments[0] == "init"):
            assert "S.db-wal" in said and "salvage" in said, said
    assert {name: each for name, each in place.look().items() if name != "S.db-lock"} == before
    assert last_seq("saved.db") == 60


def test_healing_takes_a_journal_away_with_the_file_that_it_belongs_to(place) -> None:
    name_thesis(place)
    data = place.log.read_bytes()
    place.log.write_bytes(data[: len(data) // 2])
    run("copy", place.own, "other.db")
    code, said = run("sync", "--heal", place.log, "other.db")
    assert code == 0, said
    assert place.thesis.read_text() == THESIS
    assert run("append", place.log, "7")[0] == 0
    assert place.thesis.read_text() == THESIS
    assert (place.stick / "S.db.damaged-1-journal").exists()


async def test_a_copy_is_read_in_the_place_of_what_is_not_whole_and_leaves_nothing(place, monkeypatch, tmp_path) -> None:
    name_thesis(place)
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    async with gossiplog.open(place.log, read_only=True, signer=SIGNERS[0]) as log:
        assert await log.count() == 60 and log.location == str(place.log)
        assert len(list((tmp_path / "tmp").iterdir())) == 1
        with pytest.raises(ReadOnlyLog):
            await log.append(1)
    assert list((tmp_path / "tmp").iterdir()) == []


async def test_a_damaged_write_ahead_log_ends_in_an_error_of_ours(place, whole) -> None:
    """Whatever its header says."""
    for suffix in ("", "-wal"):
        place.beside(suffix).write_bytes((whole / f"crashed.db{suffix}").read_bytes())
    wal = bytearray(place.beside("-wal").read_bytes())
    for at in range(0, 32, 3):
        changed = bytearray(wal)
        changed[at] ^= 0xFF
        place.beside("-wal").write_bytes(changed)
        with pytest.raises(GossipLogError):
            await open_for_writing(place.log)
        assert place.beside("-wal").read_bytes() == changed


def test_support_makes_a_journal_that_sqlite_takes_for_one(place) -> None:
    name_thesis(place)
    with closing(sqlite3.connect(place.log)) as db:
        db.execute("SELECT * FROM gossiplog_log").fetchall()
    assert not place.thesis.exists()
