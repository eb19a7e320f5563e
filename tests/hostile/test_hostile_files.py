"""Database files from strangers: what is not exactly a log's schema is refused, and rows that contradict each other are damage."""

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from random import Random

import pytest
import trio
from click.testing import CliRunner
from damage_support import Pages, damage, send_back, share_pages
from log_support import SIGNERS, all_of, assert_whole, make_history, opened

import gossiplog
from gossiplog.cli.app import root
from gossiplog.errors import DamagedLog, ForeignFile, GossipLogError

ENDLESS = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The bytes of an honest log."""
    file = tmp_path_factory.mktemp("stranger") / "whole.db"

    async def make() -> None:
        async with opened(file) as log:
            await log.insert_many([entry.value for entry in make_history(Random(4), 120)])

    trio.run(make)
    return file.read_bytes()


@pytest.fixture
def path(tmp_path: Path, whole: bytes) -> Path:
    file = tmp_path / "stranger.db"
    file.write_bytes(whole)
    return file


def view_of(table: str, columns: str) -> tuple[str, ...]:
    return f"ALTER TABLE gossiplog_{table} RENAME TO hidden", f"CREATE VIEW gossiplog_{table} AS {ENDLESS} {columns} FROM n"


STRANGE = {
    "a view for the entries": view_of("entries", "i AS seq, x'00' AS value"),
    "a view for the heads": view_of("heads", "zeroblob(20) AS key"),
    "a view for the tree": view_of("nodes", "1 AS level, x'' AS key, zeroblob(16) AS hash"),
    "a view for the positions": view_of("positions", "0 AS branch, i AS clock, i AS seq"),
    "a view for the log": view_of("log", "1 AS id, 'test.example.com' AS topic, '1' AS version"),
    "a trigger": (f"CREATE TRIGGER own AFTER INSERT ON gossiplog_entries BEGIN INSERT INTO gossiplog_heads {ENDLESS} i FROM n; END",),
    "an index of an expression": ("CREATE INDEX own ON gossiplog_entries (hex(zeroblob(length(value))))",),
    "a column more": ("ALTER TABLE gossiplog_heads ADD COLUMN more AS (length(hex(zeroblob(100000000))))",),
    "a table fewer": ("DROP TABLE gossiplog_links",),
    "a table of that name": ("CREATE TABLE gossiplog_more (x)",),
}


@pytest.mark.parametrize("name", STRANGE)
async def test_a_file_whose_schema_is_not_exactly_a_logs_is_refused_by_every_way_in(path, name) -> None:
    with closing(sqlite3.connect(path)) as db:
        for statement in STRANGE[name]:
            db.execute(statement)
    before = path.read_bytes()
    for read_only in (True, False):
        with pytest.raises(ForeignFile, match="does not have the tables of a log"):
            async with gossiplog.open(path, read_only=read_only, signer=SIGNERS[0]):
                pass
    assert path.read_bytes() == before


def test_commands_refuse_it_with_an_exit_code_and_a_hint(path_of_view) -> None:
    for command in (["stat"], ["heads"], ["fsck"], ["fsck", "--repair"], ["log"], ["verify"], ["export", "-o", "-"]):
        ran = CliRunner().invoke(root, [command[0], str(path_of_view), *command[1:]])
        assert ran.exit_code == 1, (command, ran.stderr)
        assert "is not ours" in ran.stderr and "salvage" in ran.stderr


@pytest.fixture
def path_of_view(path: Path) -> Path:
    with closing(sqlite3.connect(path)) as db:
        for statement in STRANGE["a view for the heads"]:
            db.execute(statement)
    return path


async def test_the_tables_indexes_views_and_triggers_of_an_application_are_its_own(path) -> None:
    async def apply(entries, tx) -> None:
        await tx.execute("CREATE TABLE IF NOT EXISTS items (id TEXT PRIMARY KEY, n INTEGER CHECK (n > 0), twice AS (2 * n))")
        await tx.execute("CREATE INDEX IF NOT EXISTS by_n ON items (abs(n)) WHERE n > 1")
        await tx.execute("CREATE VIEW IF NOT EXISTS large AS SELECT * FROM items WHERE n > 9")
        await tx.execute("CREATE TRIGGER IF NOT EXISTS tidy AFTER INSERT ON items BEGIN DELETE FROM items WHERE n < 0; END")
        await tx.execute_many("INSERT INTO items VALUES (?, 1)", [(entry.id,) for entry in entries])

    for number in range(2):
        async with opened(path, apply=apply) as log:
            await log.append(number)
            await assert_whole(log)
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT sum(twice) FROM items").fetchone() == db.execute("SELECT 2 * count(*) FROM gossiplog_entries").fetchone()


async def test_an_expression_of_a_strangers_table_is_not_computed_by_fsck(path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE bomb (x CHECK (length(hex(zeroblob(x))) > 0))")
        db.execute("PRAGMA ignore_check_constraints = 1")
        db.executemany("INSERT INTO bomb VALUES (?)", [(400_000_000,)] * 300)
        db.commit()
    # Each row would take most of a second.
    async with gossiplog.open(path, read_only=True) as log:
        assert (await log.fsck()).is_clean


SHARING = """
import sys, time, trio, gossiplog
from gossiplog.errors import GossipLogError
async def entries(log): return [1 async for _ in log.iterate()]
async def quarantine(log): return [1 async for _ in log.quarantine()]
async def ancestors(log): return [1 async for _ in log.ancestors((await log.heads())[0])]
READS = [lambda log: log.count(), lambda log: log.heads(), lambda log: log.root(), lambda log: log.moment(), entries, quarantine, ancestors]
WRITES = [lambda log: log.append(1), lambda log: log.insert(bytes.fromhex(sys.argv[2]))]
CARE = [lambda log: log.fsck(), lambda log: log.fsck(repair=True), lambda log: log.append(2)]
async def main():
    signer = gossiplog.Ed25519Signer.from_seed(bytes(32))
    worst, answers = 0, []
    for calls, read_only in ((READS, True), (WRITES, False), (CARE, False)):
        for call in calls:
            began = time.process_time()
            try:
                async with gossiplog.open(sys.argv[1], read_only=read_only, signer=signer) as log:
                    await call(log)
                answers.append("ok")
            except GossipLogError as error:
                answers.append(type(error).__name__)
            worst = max(worst, time.process_time() - began)
    # Not ru_maxrss, which begins with what our parent had.
    peak = next(line for line in open('/proc/self/status') if line.startswith('VmHWM'))
    print(worst, int(peak.split()[1]) / 1024, *answers)
trio.run(main)
"""
SHARED = ("entries", "leaves", "nodes", "heads", "positions", "links")


@pytest.mark.slow
@pytest.mark.parametrize("table", SHARED)
def test_a_tree_whose_pages_are_shared_is_not_followed_without_end(path: Path, table: str) -> None:
    share_pages(path, f"gossiplog_{table}")
    old = make_history(Random(9), 3)[-1]
    done = subprocess.run(
        [sys.executable, "-c", SHARING, str(path), old.value.hex()], capture_output=True, text=True, timeout=120, check=True
    )
    worst, memory, *answers = done.stdout.split()
    assert "DamagedLog" in answers, answers
    # The dearest takes about 1 s of CPU, and none of them holds the rows that there seem to be.
    assert float(worst) < 20
    assert float(memory) < 250


async def test_shared_pages_do_not_make_counting_endless(path: Path) -> None:
    share_pages(path, "gossiplog_positions")
    async with gossiplog.open(path, read_only=True) as log:
        with pytest.raises(DamagedLog, match="more rows than a file of its size can hold"):
            await log.count()


CONTRADICTIONS = {
    "a head that is not there": ["INSERT INTO gossiplog_heads VALUES (x'01' || zeroblob(19))"],
    "a head of another length": ["INSERT INTO gossiplog_heads VALUES (x'01')"],
    "a head that is a text": ["INSERT INTO gossiplog_heads VALUES ('head')"],
    "a head that is a number": ["UPDATE gossiplog_heads SET key = 7 WHERE key = (SELECT max(key) FROM gossiplog_heads)"],
    "a head with no clock": ["UPDATE gossiplog_heads SET key = randomblob(20) WHERE key = (SELECT max(key) FROM gossiplog_heads)"],
    "a leaf on another branch": ["UPDATE gossiplog_leaves SET branch = 999"],
    "a branch that is a text": ["UPDATE gossiplog_leaves SET branch = 'b'"],
    "no positions": ["DELETE FROM gossiplog_positions"],
    "positions cut short": ["DELETE FROM gossiplog_positions WHERE clock > 9"],
    "positions that are taken": ["UPDATE gossiplog_positions SET branch = branch + 1000"],
    "a clock that is a text": ["UPDATE gossiplog_positions SET clock = 'c' || clock WHERE clock > 9"],
    "an endless seq": ["INSERT INTO gossiplog_entries VALUES (9223372036854775807, x'00')"],
    "no leaves": ["DELETE FROM gossiplog_leaves"],
    "no tree": ["DELETE FROM gossiplog_nodes"],
    "no anchors": ["DELETE FROM gossiplog_nodes WHERE key = x''"],
    "only anchors": ["DELETE FROM gossiplog_nodes WHERE key > x''"],
    "a level in the middle missing": ["DELETE FROM gossiplog_nodes WHERE level = 1"],
    "a tree without end": ["UPDATE gossiplog_nodes SET level = level + 1000000"],
    "a level that is a text": ["UPDATE gossiplog_nodes SET level = 'x' || level"],
    "hashes of another length": ["UPDATE gossiplog_nodes SET hash = x'00'"],
    "hashes that are texts": ["UPDATE gossiplog_leaves SET hash = 'hash'"],
    "keys of another length": ["UPDATE gossiplog_nodes SET key = key || x'00' WHERE key > x''"],
    "links that are texts": ["UPDATE gossiplog_links SET reach = 'far'"],
    "entries that are gone": ["DELETE FROM gossiplog_entries"],
    "a topic that is none": ["UPDATE gossiplog_log SET topic = x'ff'"],
    "no topic": ["DELETE FROM gossiplog_log"],
    "a quarantine of nonsense": ["INSERT INTO gossiplog_quarantine VALUES (x'07', 8, 9, 10, 'x')"],
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
async def test_rows_that_contradict_each_other_are_damage_and_never_a_fault_of_ours(path, name) -> None:
    damage(path, *CONTRADICTIONS[name])
    fresh = make_history(Random(5), 40)
    try:
        async with gossiplog.open(path, read_only=True) as log:
            assert not (await log.fsck()).is_clean
        async with gossiplog.open(path, signer=SIGNERS[0]) as log:
            for use in (lambda: log.append("mine"), lambda: log.insert_many([entry.value for entry in fresh])):
                try:
                    await use()
                except GossipLogError as error:
                    assert isinstance(error, DamagedLog), error
            for look in (log.heads, log.clock, log.root, log.count, lambda: all_of(log)):
                try:
                    await look()
                except GossipLogError as error:
                    assert type(error).__name__ in ("DamagedLog", "DecodeError"), error
    except GossipLogError as error:
        assert isinstance(error, (DamagedLog, ForeignFile)), error


@pytest.mark.parametrize("table", ["entries", "leaves", "positions"])
async def test_rows_that_lead_back_to_the_first_ones_are_damage_and_end(tmp_path, table) -> None:
    path = tmp_path / "back.db"
    async with opened(path) as log:
        await log.append_many(range(400))
    send_back(path, f"gossiplog_{table}")
    async with gossiplog.open(path, read_only=True) as log:
        report = await log.fsck()
        assert not report.is_clean
    async with gossiplog.open(path) as log, opened(":memory:") as target:
        for use in (lambda: all_of(log), lambda: log.fsck(repair=True), lambda: target.copy_from(log), lambda: target.sync(log)):
            try:
                await use()
            except GossipLogError as error:
                assert isinstance(error, DamagedLog), error


def test_support_finds_the_pages_of_a_table(path) -> None:
    pages = Pages(path)
    assert {pages.kind(page) for page in pages.leaves("gossiplog_entries")} == {13}
    assert {pages.kind(page) for page in pages.leaves("gossiplog_leaves")} == {10}
