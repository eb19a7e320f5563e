"""What `fsck` finds, what a repair makes of it, and what it leaves alone."""

import json
import shutil
import sqlite3
from pathlib import Path
from random import Random

import pytest
import trio
from log_support import TOPIC, all_of, assert_whole, make, make_history, opened

import gossiplog
from gossiplog.codec.did import ED25519_CODE, decode_did, encode_base58
from gossiplog.entry import encode_id, message_key
from gossiplog.entry.envelope import build_value
from gossiplog.errors import DamagedLog, LocalProtocolError, ReadOnlyLog
from gossiplog.log.fsck import FINDINGS_MAX, FindingKind

VECTORS = Path(__file__).parents[2] / "vectors"
HISTORY = make_history(Random(11), 150)
COUNT = 200
LONG = 1_600


async def write_log(path: Path, count: int) -> Path:
    """A closed log of so many entries: the history with its forks, and the rest in a row on top."""
    async with opened(path) as log:
        await log.insert_many([entry.value for entry in HISTORY])
        await log.append_many(range(count - len(HISTORY)))
    return path


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A shorter and a longer log, of which each test gets a copy."""
    folder = tmp_path_factory.mktemp("originals")
    return (
        trio.run(write_log, folder / "short.db", COUNT),
        trio.run(write_log, folder / "long.db", LONG),
    )


@pytest.fixture
def path(tmp_path: Path, originals: tuple[Path, Path]) -> Path:
    return Path(shutil.copy(originals[0], tmp_path / "app.db"))


@pytest.fixture
def long_path(tmp_path: Path, originals: tuple[Path, Path]) -> Path:
    return Path(shutil.copy(originals[1], tmp_path / "app.db"))


def damage(path: Path, *statements: str) -> None:
    db = sqlite3.connect(path)
    for statement in statements:
        assert db.execute(statement).rowcount != 0, statement
    db.commit()
    db.close()


def allow_null(path: Path, *, is_allowed: bool) -> None:
    """Change the definition of the entries' column behind SQLite's back."""
    change = ("value BLOB NOT NULL", "value BLOB") if is_allowed else ("value BLOB", "value BLOB NOT NULL")
    db = sqlite3.connect(path)
    db.execute("PRAGMA writable_schema = 1")
    db.execute("UPDATE sqlite_master SET sql = replace(sql, ?, ?) WHERE name = 'gossiplog_entries'", change)
    db.commit()
    db.close()


DAMAGES = {
    "a head too few": ("DELETE FROM gossiplog_heads", {FindingKind.HEADS}),
    "a head too many": ("INSERT INTO gossiplog_heads SELECT key FROM gossiplog_leaves WHERE seq = 9", {FindingKind.HEADS}),
    "a head of nothing": ("INSERT INTO gossiplog_heads VALUES (zeroblob(20))", {FindingKind.HEADS}),
    "a node too few": (
        "DELETE FROM gossiplog_nodes WHERE level = 1 AND key = (SELECT max(key) FROM gossiplog_nodes WHERE level = 1)",
        {FindingKind.NODE},
    ),
    "a node too many": (
        "INSERT INTO gossiplog_nodes SELECT 1, key, hash FROM gossiplog_leaves WHERE seq = 77 AND hash >= x'08'",
        {FindingKind.NODE},
    ),
    "a level too many": (
        "INSERT INTO gossiplog_nodes SELECT level + 1, x'', hash FROM gossiplog_nodes ORDER BY level DESC LIMIT 1",
        {FindingKind.NODE},
    ),
    "a level below": ("INSERT INTO gossiplog_nodes VALUES (-1, x'', zeroblob(16))", {FindingKind.NODE}),
    "a wrong hash above": ("UPDATE gossiplog_nodes SET hash = zeroblob(16) WHERE level = 1 AND key > x''", {FindingKind.NODE}),
    "a wrong root": (
        "UPDATE gossiplog_nodes SET hash = zeroblob(16) WHERE level = (SELECT max(level) FROM gossiplog_nodes)",
        {FindingKind.NODE},
    ),
    "no tree": ("DELETE FROM gossiplog_nodes", {FindingKind.NODE}),
    "a wrong hash of a leaf": ("UPDATE gossiplog_leaves SET hash = zeroblob(16) WHERE seq = 100", {FindingKind.LEAF, FindingKind.NODE}),
    "a leaf too many": ("INSERT INTO gossiplog_leaves VALUES (zeroblob(20), zeroblob(16), 9, 0)", {FindingKind.LEAF, FindingKind.NODE}),
    "a leaf of no entry": (
        "INSERT INTO gossiplog_leaves VALUES (zeroblob(20), zeroblob(16), 99999, 0)",
        {FindingKind.LEAF, FindingKind.NODE},
    ),
    "a leaf of another type": ("INSERT INTO gossiplog_leaves VALUES ('text', zeroblob(16), 9, 0)", {FindingKind.LEAF}),
    "a leaf of another length": ("INSERT INTO gossiplog_leaves VALUES (x'01', zeroblob(16), 9, 0)", {FindingKind.LEAF}),
    "a leaf too few": (
        "DELETE FROM gossiplog_leaves WHERE seq = 100",
        {FindingKind.LEAF, FindingKind.PARENTS, FindingKind.NODE, FindingKind.POSITION},
    ),
    "a leaf of another entry": ("UPDATE gossiplog_leaves SET seq = 101 WHERE seq = 100", {FindingKind.LEAF, FindingKind.POSITION}),
    "a leaf on another branch": ("UPDATE gossiplog_leaves SET branch = 900 WHERE seq = 100", {FindingKind.POSITION, FindingKind.LINK}),
    "no leaves": ("DELETE FROM gossiplog_leaves", {FindingKind.LEAF}),
    "a position too few": ("DELETE FROM gossiplog_positions WHERE seq = 100", {FindingKind.POSITION, FindingKind.LINK}),
    "a position too many": ("INSERT INTO gossiplog_positions VALUES (900, 1, 5)", {FindingKind.POSITION}),
    "a position of no entry": ("INSERT INTO gossiplog_positions VALUES (900, 1, 99999)", {FindingKind.POSITION}),
    "a link too few": (
        "DELETE FROM gossiplog_links WHERE child_clock = (SELECT max(child_clock) FROM gossiplog_links)",
        {FindingKind.LINK},
    ),
    "a link too many": ("INSERT INTO gossiplog_links VALUES (900, 901, 5, 4, 4)", {FindingKind.LINK}),
    "a wrong reach": ("UPDATE gossiplog_links SET reach = reach + 1", {FindingKind.LINK}),
    "no links": ("DELETE FROM gossiplog_links", {FindingKind.LINK}),
    "a cursor beyond the end": ("INSERT INTO gossiplog_cursors VALUES ('late', 99999)", {FindingKind.CURSOR}),
    "a sketch of other bytes": ("INSERT INTO gossiplog_sketch VALUES (1, 9, zeroblob(589856))", {FindingKind.SKETCH}),
    "a sketch of another type": ("INSERT INTO gossiplog_sketch VALUES (1, 'nine', 'text')", {FindingKind.UNREADABLE}),
    "a quarantined entry that is in the log": (
        "INSERT INTO gossiplog_quarantine SELECT key, value, 'apply', '', 0 "
        "FROM gossiplog_leaves JOIN gossiplog_entries USING (seq) WHERE seq = 100",
        {FindingKind.QUARANTINE},
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
async def test_what_follows_from_the_entries_is_checked_and_built_again(path, name) -> None:
    statement, kinds = DAMAGES[name]
    async with opened(path, topic=None) as log:
        root = await log.root()
        heads = await log.heads()
    damage(path, statement)
    async with gossiplog.open(path, read_only=True) as log:
        report = await log.fsck()
    assert not report.is_clean
    assert {finding.kind for finding in report.findings} >= kinds
    assert (report.entries, report.valid) == (COUNT, COUNT)
    async with opened(path) as log:
        repaired = await log.fsck(repair=True)
        assert repaired.is_clean, repaired.findings
        assert repaired.repaired == report
        assert repaired.set_aside == 0
        assert (await log.root(), await log.heads(), await log.count()) == (root, heads, COUNT)
        await assert_whole(log)
        # The repaired log is one to write to.
        await log.append("goes on")
        await assert_whole(log)


async def test_a_clean_log_is_not_repaired(path) -> None:
    before = path.read_bytes()
    async with opened(path) as log:
        report = await log.fsck(repair=True)
        assert report.is_clean and report.repaired is None and report.findings == ()
    assert path.read_bytes() == before


async def test_a_damaged_entry_goes_to_the_quarantine_with_its_descendants_and_comes_back_from_a_peer(path) -> None:
    damage(path, "UPDATE gossiplog_entries SET value = x'00' WHERE seq = 100")
    damaged = HISTORY[99]
    async with opened(path) as log, opened(":memory:") as peer:
        await peer.insert_many([entry.value for entry in HISTORY])
        report = await log.fsck(repair=True)
        assert report.is_clean
        assert report.repaired is not None
        assert report.repaired.findings[0].kind == FindingKind.ENTRY
        assert report.repaired.findings[0].where == "seq 100"
        assert any(encode_id(damaged.key) in finding.where for finding in report.repaired.findings)
        records = [record async for record in log.quarantine()]
        assert len(records) == report.set_aside == COUNT - await log.count()
        assert {"damaged", "parents"} <= {record.rule for record in records} <= {"damaged", "parents", "ancestor"}
        assert b"\0" in [record.value for record in records]
        # Nothing moved: cursors of followers keep their meaning.
        assert (await log.sync(peer)).entries == 1
        verdicts = await log.retry_quarantine()
        assert sum(verdict.is_new for verdict in verdicts) == len(records) - 1
        assert await log.count() == COUNT
        await assert_whole(log)


async def test_seqs_are_kept_by_a_repair(path) -> None:
    damage(path, "DELETE FROM gossiplog_heads", "INSERT INTO gossiplog_cursors VALUES ('follower', 150)")
    with trio.fail_after(60):
        async with opened(path) as log:
            async with log.subscribe() as events:
                order = [(await anext(events)).key for _ in range(COUNT)]
            await log.fsck(repair=True)
            async with log.subscribe() as events:
                assert [(await anext(events)).key for _ in range(COUNT)] == order
            async with log.subscribe(cursor="follower") as events:
                assert (await anext(events)).key == order[150]


async def test_a_cursor_behind_the_end_gets_what_comes_after_a_repair(path) -> None:
    damage(path, "INSERT INTO gossiplog_cursors VALUES ('follower', 200)", "UPDATE gossiplog_entries SET value = x'00' WHERE seq > 190")
    async with opened(path) as log:
        assert (await log.fsck(repair=True)).is_clean
        new = await log.append("new")
        async with log.subscribe(cursor="follower") as events:
            assert (await anext(events)).key == new.key


@pytest.mark.parametrize("value", ["NULL", "''", "'text'", "7", "1.5", "zeroblob(70000)", "x'85'", "CAST(x'ff' AS TEXT)"])
async def test_an_entry_of_any_type_is_found_and_set_aside(path, value) -> None:
    statement = f"UPDATE gossiplog_entries SET value = {value} WHERE seq = {COUNT}"
    if value == "NULL":
        # The column refuses NULL, which a flipped bit does not ask for.
        allow_null(path, is_allowed=True)
    damage(path, statement)
    if value == "NULL":
        allow_null(path, is_allowed=False)
    async with opened(path) as log:
        assert (await log.fsck()).findings[0].where == f"seq {COUNT}"
        if value[0] not in "zx":
            with pytest.raises(DamagedLog):
                await all_of(log)
        report = await log.fsck(repair=True)
        assert report.is_clean, report.findings
        assert (report.set_aside, await log.count()) == (1, COUNT - 1)
        await assert_whole(log)


async def test_an_entry_that_became_a_text_of_the_same_bytes_is_found_and_restored(path) -> None:
    damage(path, "UPDATE gossiplog_entries SET value = CAST(value AS TEXT) WHERE seq = 180")
    async with opened(path) as log:
        assert "stored as str" in (await log.fsck()).findings[0].detail
        report = await log.fsck(repair=True)
        assert report.is_clean and report.set_aside == 0
        assert await log.count() == COUNT
        await assert_whole(log)


async def test_an_entry_that_is_stored_twice_loses_one_row(path) -> None:
    damage(path, "INSERT INTO gossiplog_entries SELECT 5000, value FROM gossiplog_entries WHERE seq = 50")
    async with opened(path) as log:
        report = await log.fsck(repair=True)
        assert report.is_clean and report.repaired is not None and report.set_aside == 0
        assert any("5000" in finding.detail for finding in report.repaired.findings)
        assert await log.count() == COUNT
        await assert_whole(log)


async def test_entries_of_another_topic_or_a_forged_signature_are_named(path) -> None:
    forged = bytearray(make("forged").value)
    forged[80] ^= 1
    db = sqlite3.connect(path)
    db.execute("INSERT INTO gossiplog_entries VALUES (-5, ?)", (make("x", topic="other").value,))
    db.execute("INSERT INTO gossiplog_entries VALUES (7000, ?)", (bytes(forged),))
    db.commit()
    db.close()
    async with opened(path) as log:
        found = {finding.where: finding.detail for finding in (await log.fsck()).findings}
        assert found["seq -5"].startswith("topic:")
        assert found["seq 7000"].startswith("signature:")
        report = await log.fsck(repair=True)
        assert report.is_clean and report.set_aside == 2
        await assert_whole(log)


async def test_findings_are_bounded_and_all_are_counted(long_path) -> None:
    damage(long_path, "UPDATE gossiplog_entries SET value = x'00'")
    async with opened(long_path) as log:
        report = await log.fsck()
        assert len(report.findings) == FINDINGS_MAX
        assert report.problems > FINDINGS_MAX
        assert (report.entries, report.valid) == (LONG, 0)
        assert (await log.fsck(repair=True)).is_clean
        assert await log.count() == 0
        await log.append("a new beginning")
        await assert_whole(log)


async def test_progress_counts_entries(long_path) -> None:
    async with opened(long_path) as log:
        seen: list[int] = []
        await log.fsck(on_progress=seen.append)
        assert seen == [1_000, LONG]


async def test_a_log_that_is_open_read_only_is_checked_and_not_repaired(path) -> None:
    async with gossiplog.open(path, read_only=True) as log:
        assert (await log.fsck()).is_clean
        with pytest.raises(ReadOnlyLog):
            await log.fsck(repair=True)


async def test_writing_goes_on_while_a_log_is_checked(path) -> None:
    async with opened(path) as log:

        async def write() -> None:
            for number in range(30):
                await log.append(number)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(write)
            report = await log.fsck()
        assert report.is_clean
        assert COUNT <= report.entries <= COUNT + 30


async def test_a_damaged_log_in_memory_is_found_out_and_not_repaired() -> None:
    async with opened(":memory:") as log:
        await log.insert_many([entry.value for entry in HISTORY])
        assert (await log.fsck(repair=True)).is_clean
        state = log._store._state
        state.values[20] = state.values[21]
        report = await log.fsck()
        assert not report.is_clean
        with pytest.raises(LocalProtocolError, match="memory"):
            await log.fsck(repair=True)


def under_another_name(entry, padding: int):
    """The same message and signature under a did:key whose multicodec is padded."""
    code, key = decode_did(entry.envelope.did)
    assert code == ED25519_CODE
    did = "did:key:z" + encode_base58(b"\xed\x81" + b"\x80" * (padding - 1) + b"\x00" + key)
    envelope = entry.envelope
    value = build_value(envelope.codec, did, envelope.signature, envelope.topic, envelope.clock, envelope.parent_keys, entry.payload_bytes)
    return value, encode_id(message_key(envelope.clock, value))


@pytest.mark.parametrize("location", [":memory:", "file"])
async def test_the_same_content_under_another_id_is_reported_and_is_no_problem(tmp_path, location) -> None:
    entry, alone = make("said once"), make("said twice, never plainly")
    async with opened(tmp_path / "app.db" if location == "file" else location) as log:
        twin, twin_id = under_another_name(entry, 1)
        other, _ = under_another_name(alone, 1)
        third, third_id = under_another_name(alone, 2)
        verdicts = await log.insert_many([entry.value, twin, other, third])
        assert all(verdict.accepted and verdict.is_new for verdict in verdicts)
        report = await log.fsck()
        assert report.is_clean
        assert (report.problems, report.duplicates) == (0, 2)
        assert [(finding.kind, finding.where) for finding in report.findings] == [
            (FindingKind.DUPLICATE, twin_id),
            (FindingKind.DUPLICATE, third_id),
        ]
        assert entry.id in report.findings[0].detail


async def test_a_padded_did_of_the_vectors_is_no_duplicate_of_itself(tmp_path) -> None:
    cases = json.loads((VECTORS / "entries.json").read_text())["cases"]
    values = [bytes.fromhex(case["value"]) for case in cases if case["verdict"] == "accept"]
    topics = {gossiplog.Entry.decode(value).topic for value in values}
    for topic in topics:
        async with opened(":memory:", topic=topic) as log:
            await log.insert_many(values)
            report = await log.fsck()
            assert report.is_clean and report.entries == await log.count()


async def test_pages_that_cannot_be_read_are_reported_with_what_lies_behind_them(long_path) -> None:
    db = sqlite3.connect(long_path)
    first = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'gossiplog_entries'").fetchone()[0]
    db.close()
    whole = long_path.read_bytes()
    page = int.from_bytes(whole[16:18])
    # The root of the entries' tree is an inner page; two of its children in the middle become noise.
    root = whole[(first - 1) * page : first * page]
    assert root[0] == 5
    count = int.from_bytes(root[3:5])
    cells = [int.from_bytes(root[12 + 2 * index : 14 + 2 * index]) for index in range(count)]
    children = [int.from_bytes(root[cell : cell + 4]) for cell in cells]
    broken = bytearray(whole)
    for child in (children[count // 3], children[count // 2]):
        broken[(child - 1) * page : child * page] = b"\xaa" * page
    long_path.write_bytes(bytes(broken))
    async with gossiplog.open(long_path, read_only=True) as log:
        report = await log.fsck()
        gaps = [
            finding for finding in report.findings if finding.kind == FindingKind.UNREADABLE and finding.where.startswith("entries after")
        ]
        assert len(gaps) == 2
        assert LONG - 100 < report.entries < LONG
        assert report.valid == report.entries
    async with opened(long_path) as log:
        with pytest.raises(DamagedLog) as caught:
            await log.fsck(repair=True)
        assert "sync --heal" in (caught.value.hint or "") and "salvage" in (caught.value.hint or "")
        assert log.topic == TOPIC


async def test_a_repair_is_rehearsed_in_a_copy_beside_the_process_that_writes(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    damage(path, "UPDATE gossiplog_entries SET value = x'00' WHERE seq = 150")
    (tmp_path / "copies").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "copies"))
    async with opened(path) as log:
        lay = {file.name: file.read_bytes() for file in tmp_path.glob("app.db*") if not file.name.endswith("-shm")}
        async with opened(path, read_only=True) as reader:
            report = await reader.fsck(repair=True, dry_run=True)
            with pytest.raises(ReadOnlyLog):
                await reader.fsck(repair=True)
        assert report.set_aside == COUNT - 149 and report.repaired is None
        assert lay == {file.name: file.read_bytes() for file in tmp_path.glob("app.db*") if not file.name.endswith("-shm")}
        assert (await log.fsck(repair=True)).set_aside == report.set_aside
    assert list((tmp_path / "copies").iterdir()) == []
