"""Verification: the same verdicts as the plain library's, whatever is wrong with the data and however it is cut."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import trio
from log_support import SIGNERS, make, opened
from snapshot_support import SCHEMES, SNAPSHOT, SNAPSHOT_TOPIC
from spark_support import Foreign, Log

import gossiplog
from gossiplog.archive import entry_to_line
from gossiplog.cli.log.verify import VerifyPool, verify_log
from gossiplog.codec import pcf
from gossiplog.entry import decode_id, sign_entry
from gossiplog.entry.schemes import DEFAULT_SCHEMES, accept_schemes
from gossiplog.ethereum import Eip712Signer, Wallet
from gossiplog.spark import read_entries
from gossiplog.spark.jobs.jobs import Job, import_job, tree_job, verify_job
from gossiplog.spark.source.reading import read_work
from gossiplog.spark.tables.verify import INPUT_COLUMNS, JUDGE, VERDICT_COLUMNS, count_verdicts, quarantine, settle, verify

FIELDS = {"did": Wallet(bytes([7]) * 32).did, "name": "post", "args": ["hello", 7], "context": {"timestamp": 1}}
KEY = bytes([9]) * 32


def plain_verdicts(path: str) -> dict[str, tuple[bool, str | None, str | None]]:
    """What `gossiplog verify` says of each entry of a log."""

    async def run() -> dict[str, tuple[bool, str | None, str | None]]:
        async with gossiplog.open(path, read_only=True, create=False) as log:
            with VerifyPool(1, log.topic) as pool:
                return {f.id or "": (f.accepted, f.rule, f.reason) async for f in verify_log(log, pool)}

    return trio.run(run)


def spark_verdicts(table: Any) -> dict[str, tuple[bool, str | None, str | None]]:
    return {row["id"] or "": (row["verdict"] == "accept", row["rule"], row["reason"]) for row in table.collect()}


@pytest.mark.parametrize("log", ["whole", "skewed"])
def test_log_gets_the_verdicts_of_the_plain_library(spark: Any, log: str, request: pytest.FixtureRequest) -> None:
    path = request.getfixturevalue(log).path
    table = settle(read_work(spark, JUDGE, path, None, 1 << 20, ["ed25519"]))
    assert table.columns == list(VERDICT_COLUMNS)
    assert spark_verdicts(table) == plain_verdicts(path)


def test_damaged_log_gets_a_verdict_for_each_row(spark: Any, damaged: Log) -> None:
    table = verify(read_entries(spark, damaged.path, INPUT_COLUMNS, {"partitions": "3"}))
    rows = table.collect()
    assert len(rows) == 400
    rules = {row["place"]: row["rule"] for row in rows if row["verdict"] == "reject"}
    assert rules == {"seq 10": "key", "seq 20": "canonical", "seq 30": "file", "seq 40": "file", "leaf 'a text for a key'": "file"}
    # Entry 50 has lost its leaf, so its children are orphans; of the others each parent has one, whatever became of its entry.
    lost = damaged.entries[49].key
    orphans = {entry.id for entry in damaged.entries if lost in entry.parent_keys}
    assert orphans
    assert {row["id"] for row in rows if row["verdict"] == "ignore"} == orphans
    bad = quarantine(table).collect()
    assert all(row["reason"] for row in bad)
    by_id = {entry.id: entry for entry in damaged.entries}
    assert all(bytes(row["source"]) == by_id[row["id"]].value for row in bad if row["verdict"] == "ignore")
    assert {row["place"] for row in bad if row["source"] is None} == {"seq 40"}


@pytest.mark.parametrize("partitions", [1, 16])
def test_foreign_data_gets_the_same_verdicts_however_it_lies(spark: Any, foreign: Foreign, partitions: int) -> None:
    entries = read_entries(spark, foreign.path, INPUT_COLUMNS)
    # Of 16 partitions many are empty, and a parent is hardly ever in the one of its child.
    table = verify(entries.repartition(partitions))
    rows = table.collect()
    assert Counter(row["rule"] for row in rows) == Counter(foreign.rules)
    orphans = {row["reason"] for row in rows if row["rule"] == "parents"}
    assert orphans == {"1 of 1 parents are missing", "1 of 2 parents are missing"}
    assert {bytes(row["source"]) for row in rows if row["rule"] == "file"} == {b"{not json", b"\xff\xfe\x00"}


@pytest.mark.parametrize("partitions", ["1", "4"])
def test_a_file_gets_the_verdicts_of_verify(spark: Any, foreign: Foreign, partitions: str) -> None:
    command = [sys.executable, "-m", "gossiplog", "verify", "--json", foreign.path]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    plain = Counter((record["accepted"], record.get("rule")) for record in map(json.loads, said.splitlines()))
    assert plain.total() == len(foreign.rules)
    rows = verify(read_entries(spark, foreign.path, INPUT_COLUMNS, {"partitions": partitions})).collect()
    assert Counter((row["verdict"] == "accept", row["rule"]) for row in rows) == plain


def test_topic_is_asked_for_and_other_entries_may_count_as_present(spark: Any, foreign: Foreign) -> None:
    entries = read_entries(spark, foreign.path, INPUT_COLUMNS)
    orphans = [bytes(row["source"]) for row in verify(entries).where("rule = 'parents'").collect()]
    absent = [key for orphan in orphans for key in gossiplog.Entry.decode(orphan).parent_keys]
    known = spark.createDataFrame([(key,) for key in absent], "key binary")
    counts = {(row["verdict"], row["rule"]): row["count"] for row in count_verdicts(verify(entries, topic="test.example.com", known=known))}
    assert counts[("reject", "topic")] == 1
    assert ("ignore", "parents") not in counts


def test_rows_may_be_judged_where_they_are_read_or_come_from_a_table(spark: Any, foreign: Foreign) -> None:
    where_read = settle(read_work(spark, JUDGE, foreign.path, "test.example.com", 1 << 20, ["ed25519"])).collect()
    from_a_table = verify(read_entries(spark, foreign.path, INPUT_COLUMNS), topic="test.example.com").collect()
    assert sorted(map(repr, where_read)) == sorted(map(repr, from_a_table))


def test_work_that_nobody_knows_is_refused(spark: Any, whole: Log) -> None:
    with pytest.raises(Exception, match="none of judge"):
        read_entries(spark, whole.path, options={"work": "delete"}).count()
    with pytest.raises(Exception, match="columns of the work judge"):
        spark.read.format("gossiplog").schema("id string").option("work", "judge").load(whole.path).count()


def test_parent_that_a_task_has_forgotten_is_found_by_the_join(spark: Any, whole: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    # In descending order no parent has been seen when its child comes.
    entries = read_entries(spark, whole.path, INPUT_COLUMNS).repartition(1).sortWithinPartitions("key", ascending=False)
    assert {row["verdict"] for row in verify(entries).collect()} == {"accept"}
    without = entries.where(f"key != x'{decode_id(whole.entries[0].id).hex()}'")
    orphans = {entry.id for entry in whole.entries if whole.entries[0].key in entry.parent_keys}
    assert {row["id"] for row in verify(without).where("verdict = 'ignore'").collect()} == orphans


def test_parents_are_only_looked_for_if_a_task_has_not_seen_them(spark: Any, whole: Log) -> None:
    context = spark.sparkContext

    def jobs(partitions: str) -> int:
        group = f"settled in {partitions}"
        context.setJobGroup(group, group)
        try:
            settle(read_work(spark, JUDGE, whole.path, None, 1 << 20, ["ed25519"], options={"partitions": partitions}))
        finally:
            context.setLocalProperty("spark.jobGroup.id", None)
        return len(context.statusTracker().getJobIdsForGroup(group))

    assert jobs("1") < jobs("3")


def test_schemes_that_this_process_accepts_are_those_of_the_tasks(spark: Any, tmp_path: Path) -> None:
    values = [
        sign_entry(signer, "test.example.com", 1, [], pcf.encode({"type": "action", **FIELDS}))
        for signer in (Eip712Signer(KEY), SIGNERS[0])
    ]
    path = tmp_path / "both.jsonl"
    path.write_bytes(b"\n".join(entry_to_line(entry) for entry in values))

    def failed() -> dict[str, Any]:
        quarantined = {row["rule"]: row["reason"] for row in quarantine(verify(read_entries(spark, str(path), INPUT_COLUMNS))).collect()}
        assert verify_job(Job(spark), str(path)).results["failed"] == len(quarantined)
        assert import_job(Job(spark), str(path), str(tmp_path / f"{len(quarantined)}.db"), topic="test.example.com").results == {
            "added": 2 - len(quarantined),
            "known": 0,
            "failed": len(quarantined),
        }
        return quarantined

    (reason,) = [failed()["scheme"]]
    assert reason.startswith(
        "codec canvas-action-eip712 is of signature scheme eip712, which is not accepted here (GOSSIPLOG_SCHEMES=eip712"
    )
    accept_schemes({"ed25519", "eip712"})
    try:
        assert failed() == {}
    finally:
        accept_schemes(DEFAULT_SCHEMES)


def test_a_log_with_a_snapshot_is_verified_where_that_is_switched_on(spark: Any, tmp_path: Path) -> None:
    children = [make(number, [SNAPSHOT], SIGNERS[number % 2], SNAPSHOT_TOPIC) for number in range(5)]
    path = str(tmp_path / "snapshot.db")

    async def write() -> str:
        async with opened(path, topic=SNAPSHOT_TOPIC, schemes=SCHEMES) as log:
            assert all(verdict.accepted for verdict in await log.insert_many([entry.value for entry in (SNAPSHOT, *children)]))
            return (await log.root()).hash.hex()

    root = trio.run(write)
    assert tree_job(Job(spark), path).results["root"] == root
    assert verify_job(Job(spark), path).results["failed"] == 1
    accept_schemes(SCHEMES)
    try:
        assert verify_job(Job(spark), path).results["failed"] == 0
    finally:
        accept_schemes(DEFAULT_SCHEMES)
