"""verify, export, import, sync, quarantine, replay and migrate."""

import gzip
import json
import random
import sqlite3
import subprocess
import sys
from pathlib import Path

import dag_cbor
import pytest
from cli_support import SEEDS, TOPIC, Run
from multiformats import CID
from snapshot_support import SNAPSHOT, SNAPSHOT_TOPIC

from gossiplog.archive import car_block, car_header
from gossiplog.codec import pcf
from gossiplog.entry import Ed25519Signer, sign_entry


def root_of(cli: Run, log: str) -> str:
    return str(cli("stat", log, "--json").record["root"]["hash"])


def tamper(log: str, old: bytes, new: bytes) -> None:
    database = sqlite3.connect(log)
    with database:
        for seq, value in database.execute("SELECT seq, value FROM gossiplog_entries").fetchall():
            database.execute("UPDATE gossiplog_entries SET value = ? WHERE seq = ?", (value.replace(old, new), seq))
    database.close()


@pytest.mark.parametrize("name", ["a.jsonl", "a.car", "a.jsonl.gz", "a.car.gz"])
def test_export_is_verified_offline_and_imported_into_an_equal_log(cli: Run, app: str, name: str) -> None:
    assert cli("export", app, "-o", name).record["count"] == 5
    assert all(line["accepted"] for line in cli("verify", name).lines)
    cli("init", "copy.db", "--topic", TOPIC)
    assert cli("import", "copy.db", name).record == {"added": 5, "known": 0, "failed": 0}
    assert cli("import", "copy.db", name).record == {"added": 0, "known": 5, "failed": 0}
    assert root_of(cli, "copy.db") == root_of(cli, app)
    assert not list(Path().glob("*.partial"))


def test_import_of_an_export_that_compresses_too_well_says_how_to_take_it(cli: Run, app: str) -> None:
    cli("append", app, "--lines", input=f'"{"x" * 60_000}"\n' * 30)
    cli("export", app, "-o", "a.jsonl.gz")
    cli("init", "copy.db", "--topic", TOPIC)
    assert (
        "100 times its size; a limit of your own (--max-bytes) allows it" in cli("import", "copy.db", "a.jsonl.gz", "--table", code=3).err
    )
    cli("import", "copy.db", "a.jsonl.gz", "--max-bytes", "10000000")
    assert root_of(cli, "copy.db") == root_of(cli, app)


@pytest.mark.parametrize("command", ["export LOG -o OUT.jsonl", "export LOG -o OUT.parquet", "graph LOG -o OUT.svg", "prove LOG ID -o OUT"])
def test_output_that_cannot_be_written_whole_leaves_the_earlier_file(cli: Run, environment: dict[str, str], app: str, command: str) -> None:
    cli("append", app, "--lines", input="".join(f"{number}\n" for number in range(100)) + f'"{random.Random(1).randbytes(30_000).hex()}"')
    cli("publish", app, "share")
    words = command.replace("OUT", "out").replace("LOG", app).replace("ID", cli("heads", app, "-q").out.strip()).split()
    cli(*words)
    before = Path(words[-1]).read_bytes()
    # More than SQLite's own index takes.
    limit = "resource.setrlimit(resource.RLIMIT_FSIZE, (34_000, 34_000))"
    program = f"import resource, runpy; {limit}; runpy.run_module('gossiplog', run_name='__main__')"
    ran = subprocess.run([sys.executable, "-c", program, *words], env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, f"{words[-1]}: File too large" in ran.stderr) == (1, True), ran.stderr
    assert Path(words[-1]).read_bytes() == before
    assert not list(Path().glob("*.partial"))


@pytest.mark.parametrize("name", ["a.jsonl", "a.car", "a.jsonl.gz", "a.car.gz"])
def test_export_of_an_empty_log_is_a_file_like_any_other(cli: Run, name: str) -> None:
    cli("init", "empty.db", "--topic", TOPIC)
    assert cli("export", "empty.db", "-o", name).record["count"] == 0
    assert "0 entries, all valid" in cli("verify", name, "--table").out
    assert cli("import", "empty.db", name).record == {"added": 0, "known": 0, "failed": 0}


@pytest.mark.parametrize(
    "command",
    ["export LOG -o OUT", "graph LOG -o OUT", "prove LOG ID -o OUT", "sim run sparse --trace OUT", "sim run sparse --transcript OUT"],
)
@pytest.mark.parametrize("kind", ["a log", "a key"])
def test_output_overwrites_neither_a_log_nor_a_key_but_its_own_earlier_file(cli: Run, app: str, command: str, kind: str) -> None:
    out = Path("x.jsonl")
    out.write_bytes(Path(app).read_bytes() if kind == "a log" else b"-----BEGIN PRIVATE KEY-----\n")
    before = out.read_bytes()
    words = {"LOG": app, "OUT": str(out), "ID": "046g5pa4kq42faefmgv4h0i2fp9ppjn3"}
    refused = cli(*(words.get(word, word) for word in command.split()), code=2)
    assert f"x.jsonl is {kind}" in refused.err
    assert out.read_bytes() == before
    for _ in range(2):
        cli("export", app, "-o", "y.jsonl")


@pytest.mark.parametrize("name", ["a.jsonl", "a.car"])
def test_log_with_a_snapshot_goes_through_archives_where_it_is_switched_on(shell: Run, name: str) -> None:
    child = sign_entry(Ed25519Signer.from_seed(bytes(32)), SNAPSHOT_TOPIC, 1, [SNAPSHOT.key], pcf.encode("child"))
    Path("snapshot.car").write_bytes(car_header([]) + car_block(SNAPSHOT.value) + car_block(child.value))
    on = {"GOSSIPLOG_SCHEMES": "canvas-snapshot"}

    def root_of(log: str) -> str:
        return str(shell("stat", log).record["root"]["hash"])

    for log in ("app2.db", "copy.db", "plain.db"):
        shell("init", log, "--topic", SNAPSHOT_TOPIC)
    shell("import", "app2.db", "snapshot.car", **on)
    shell("export", "app2.db", "-o", name, **on)
    assert all(line["accepted"] for line in shell("verify", name, **on).lines)
    assert shell("import", "copy.db", name, **on).record == {"added": 2, "known": 0, "failed": 0}
    assert root_of("copy.db") == root_of("app2.db")
    assert shell("salvage", "copy.db", "saved.db", **on).record["added"] == 2
    refused = shell("import", "plain.db", name, code=3)
    assert [(line["rule"], "GOSSIPLOG_SCHEMES=canvas-snapshot" in line["reason"]) for line in refused.lines[:-1]] == [
        ("scheme", True),
        ("parents", False),
    ]


def test_export_to_stdout_is_what_log_prints(cli: Run, app: str) -> None:
    assert cli("export", app, "-o", "-").out == cli("log", app, "--json").out


def test_car_roots_are_the_heads(cli: Run, app: str, forked: str) -> None:
    from gossiplog.archive import read_car_header

    cli("sync", app, forked)
    cli("export", app, "-o", "a.car")
    with Path("a.car").open("rb") as file:
        header = read_car_header(file)
    assert len(header.roots) == len(cli("heads", app).lines) == 2


def test_range_leaves_out_its_beginning_and_takes_its_end(cli: Run, app: str) -> None:
    ids = cli("log", app, "-q").out.split()

    def exported(text: str) -> list[str]:
        cli("export", app, "-o", "r.car", "--range", text)
        return [line["id"] for line in cli("verify", "r.car", "--partial").lines]

    assert exported(f"{ids[1]}..{ids[3]}") == ids[2:4]
    assert exported(f"..{ids[1]}") == ids[:2]
    assert exported(f"{ids[3]}..") == ids[4:]
    assert exported(f"{ids[3]}..{ids[1]}") == []
    cli("export", app, "-o", "r.car", "--range", ids[0], code=2)


def test_export_wants_a_known_ending(cli: Run, app: str) -> None:
    cli("export", app, "-o", "a.txt", code=2)


def test_import_takes_entries_in_any_order(cli: Run, app: str) -> None:
    Path("r.jsonl").write_text(cli("log", app, "--reverse", "--json").out)
    cli("init", "copy.db", "--topic", TOPIC)
    assert cli("import", "copy.db", "r.jsonl").record == {"added": 5, "known": 0, "failed": 0}


def test_import_keeps_what_is_good_and_names_what_is_not(cli: Run, app: str) -> None:
    lines = cli("log", app, "--json").out.splitlines()
    forged = lines[4].replace('"payload":5', '"payload":6')
    Path("bad.jsonl").write_text("\n".join([lines[0], "garbage", lines[1], lines[3], forged, '{"id":1}']) + "\n")
    cli("init", "copy.db", "--topic", TOPIC)
    *faults, total = cli("import", "copy.db", "bad.jsonl", code=3).lines
    assert total == {"added": 2, "known": 0, "failed": 4}
    assert {fault["place"]: fault["rule"] for fault in faults} == {
        "line 2": "file",
        "line 4": "parents",
        "line 5": "signature",
        "line 6": "file",
    }
    text = cli("import", "copy.db", "bad.jsonl", "--table", code=3)
    assert "line 2: not an entry" in text.err
    assert text.out == "0 added, 2 known already, 4 failed\n"
    assert "ok" in cli("fsck", "copy.db", "--table").out


@pytest.mark.parametrize("cut", [1, 40, 120, 300])
def test_import_of_a_truncated_car_keeps_the_whole_blocks(cli: Run, app: str, cut: int) -> None:
    cli("export", app, "-o", "a.car")
    Path("a.car").write_bytes(Path("a.car").read_bytes()[:-cut])
    cli("init", "copy.db", "--topic", TOPIC)
    ran = cli("import", "copy.db", "a.car", code=3)
    assert 1 <= ran.lines[-1]["added"] < 5
    assert any("ends inside" in line["reason"] for line in ran.lines[:-1])
    assert cli("verify", "a.car", code=3).lines[-1]["accepted"] is False


def test_import_refuses_another_topic_entry_by_entry(cli: Run, app: str) -> None:
    cli("export", app, "-o", "a.car")
    cli("init", "other.db", "--topic", "other.example")
    ran = cli("import", "other.db", "a.car", code=3)
    assert {line["rule"] for line in ran.lines[:-1]} == {"topic"}


def test_import_of_a_gzip_bomb_stops_at_the_limit(cli: Run, app: str) -> None:
    Path("bomb.jsonl.gz").write_bytes(gzip.compress((b"{" + b" " * 1000 + b"}\n") * 10_000))
    ran = cli("import", app, "bomb.jsonl.gz", code=3)
    assert "100 times" in ran.lines[-2]["reason"]


def test_entry_that_is_larger_than_ours_may_be_is_imported_and_verified(cli: Run, app: str) -> None:
    large = sign_entry(Ed25519Signer.from_seed(SEEDS["alice"]), TOPIC, 1, (), pcf.encode("x" * 100_000))
    Path("large.hex").write_text(large.value.hex() + "\n")
    assert cli("import", app, "large.hex").record["added"] == 1
    assert cli("verify", "large.hex").lines[0]["accepted"]
    assert all(line["accepted"] for line in cli("verify", app).lines)


def test_import_of_what_is_no_archive_says_so(cli: Run, app: str) -> None:
    Path("x.bin").write_bytes(b"\x00\x01\x02")
    assert cli("import", app, "x.bin", "--json", code=3).error["kind"] == "malformed"
    assert cli("import", app, "missing.car", "--json", code=1).error["kind"] == "file"


def test_verify_finds_the_entry_that_was_tampered_with(cli: Run, app: str) -> None:
    id = cli("append", "-q", app, '"the original"').out.strip()
    cli("append", app, '"after it"')
    tamper(app, b"original", b"tampered")
    lines = cli("verify", app, "--json", code=3).lines
    assert [line["id"] for line in lines if not line["accepted"]] == [id]
    ran = cli("verify", app, "--table", code=3)
    assert id in ran.out
    assert "1 of 7 failed" in ran.err
    assert cli("explain", app, id, code=3).record["verdict"]["accepted"] is False


def test_verify_finds_a_missing_parent(cli: Run, app: str) -> None:
    first = cli("log", app, "-q", "--limit", "1").out.strip()
    database = sqlite3.connect(app)
    with database:
        database.execute("DELETE FROM gossiplog_leaves WHERE seq = 1")
    database.close()
    lines = cli("verify", app, code=3).lines
    assert first not in {line["id"] for line in lines}
    assert [line["rule"] for line in lines if not line["accepted"]] == ["parents"]


def test_verify_in_several_processes_says_the_same(cli: Run) -> None:
    cli("init", "large.db", "--topic", TOPIC)
    cli("append", "large.db", "--lines", "--durability", "off", input="".join(f"{n}\n" for n in range(1500)))
    cli("export", "large.db", "-o", "large.car")
    assert cli("verify", "large.db", "--jobs", "2").out == cli("verify", "large.db", "--jobs", "1").out
    assert cli("verify", "large.car", "--jobs", "2").out == cli("verify", "large.db", "--jobs", "1").out


def test_verify_values_takes_each_topic_as_it_is(cli: Run, app: str) -> None:
    signer = Ed25519Signer.from_seed(SEEDS["bob"])
    values = [sign_entry(signer, topic, 1, (), pcf.encode(1)).value.hex() for topic in ("a", "b.c", "d#e")]
    Path("v.hex").write_text("\n".join([*values, "zz", "00"]))
    lines = cli("verify", "--json", "--values", "v.hex", code=3).lines
    assert [line["accepted"] for line in lines] == [True, True, True, False, False]
    assert [line["rule"] for line in lines[3:]] == ["file", "shape"]
    assert [line["rule"] for line in cli("verify", "--json", "--values", "v.hex", "--topic", "a", code=3).lines][:3] == [
        None,
        "topic",
        "topic",
    ]


def test_verify_says_what_a_block_of_somebody_elses_is(cli: Run, app: str) -> None:
    cli("export", app, "-o", "app.car")
    foreign = dag_cbor.encode({"name": "a file", "size": 7})
    Path("mixed.car").write_bytes(Path("app.car").read_bytes() + car_block(foreign))
    *good, bad = cli("verify", "mixed.car", "--json", code=3).lines
    assert [line["accepted"] for line in good] == [True] * 5
    assert bad["rule"] == "shape" and bad["reason"].endswith('; it is a dag-cbor map with the keys "name", "size"')
    header = dag_cbor.encode({"roots": [CID("base32", 1, "raw", ("sha2-256", bytes(32)))], "version": 2})
    Path("other.car").write_bytes(bytes([len(header)]) + header)
    assert 'but a dag-cbor map with the keys "roots", "version"' in cli("verify", "other.car", "--json", code=3).record["reason"]


def test_verify_agrees_with_every_vector(cli: Run) -> None:
    cases = json.loads((Path(__file__).parents[1] / "vectors" / "entries.json").read_text())["cases"]
    Path("v.hex").write_text("\n".join(case["value"] for case in cases))
    lines = cli("verify", "--json", "--values", "v.hex", code=3).lines
    assert [line["accepted"] for line in lines] == [case["verdict"] == "accept" for case in cases]


def test_verify_wants_one_thing_to_verify(cli: Run, app: str) -> None:
    cli("verify", code=2)
    cli("verify", app, "--values", "x", code=2)
    assert cli("verify", "missing.car", "--json", code=1).error["kind"] == "file"


def test_sync_makes_both_logs_equal(cli: Run, app: str, forked: str) -> None:
    assert cli("sync", app, forked, "--dry-run").record["pulled"] == 2
    record = cli("sync", app, forked).record
    assert (record["pulled"], record["pushed"], record["equal"]) == (2, 3, True)
    assert root_of(cli, app) == root_of(cli, forked) == record["root"]["hash"]
    assert cli("sync", app, forked).record["pulled"] == 0


def test_sync_goes_one_way_if_told_to(cli: Run, app: str, forked: str) -> None:
    record = cli("sync", app, forked, "--pull").record
    assert (record["pulled"], record["pushed"], record["equal"]) == (2, None, False)
    assert cli("stat", app).record["count"] == 7
    assert cli("stat", forked).record["count"] == 4
    record = cli("sync", app, forked, "--push").record
    assert (record["pulled"], record["pushed"], record["equal"]) == (None, 3, True)


def test_dry_run_counts_and_moves_nothing(cli: Run, app: str, forked: str) -> None:
    before = root_of(cli, app), root_of(cli, forked)
    record = cli("sync", app, forked, "--dry-run").record
    assert (record["pulled"], record["pushed"], record["equal"], record["dryRun"]) == (2, 3, False, True)
    assert (root_of(cli, app), root_of(cli, forked)) == before


def test_sync_of_different_topics_is_refused(cli: Run, app: str) -> None:
    cli("init", "other.db", "--topic", "other.example")
    assert cli("sync", app, "other.db", "--json", code=1).error["kind"] == "topic-mismatch"
    missing = cli("sync", app, "missing.db", "--json", code=1).error
    assert missing["kind"] == "log-not-found"
    assert all(f"`gossiplog {command}`" in missing["hint"] for command in (f"copy {app} missing.db", f"sync {app} missing.db/"))
    assert cli("sync", app, app, "--json", code=2).error["kind"] == "usage"


def test_sync_from_a_tampered_log_leaves_its_lie_out(cli: Run, app: str, forked: str) -> None:
    tamper(forked, b"\x62b2", b"\x62x2")
    assert f"gossiplog verify {forked}" in cli("sync", app, forked, "--pull", code=3).err
    assert all(line["accepted"] for line in cli("verify", app).lines)


APPLICATION = """
from gossiplog import Application, Reject
seen = []
async def apply(entries, tx):
    for entry in entries:
        if entry.message.payload == 4:
            raise Reject("no fours", id=entry.id)
        seen.append(entry.id)
async def lenient(entries, tx):
    pass

whole = Application("whole", 3, lenient)
"""


def test_replay_runs_the_application(cli: Run, app: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("replay_app.py").write_text(APPLICATION)
    monkeypatch.syspath_prepend(".")
    assert cli("replay", app, "--apply", "replay_app:lenient").record["count"] == 5
    replayed = cli("replay", app, "--apply", "replay_app:apply").record
    assert (replayed["count"], replayed["setAside"]) == (5, 1)
    assert cli("replay", app, "--apply", "replay_app:whole").record["setAside"] == 0
    assert cli("replay", app).record["count"] == 5
    cli("replay", app, "--apply", "replay_app", code=2)
    cli("replay", app, "--apply", "replay_app:nothing", code=1)


def quarantined(cli: Run, app: str) -> str:
    """Make a log whose application refuses the entry 4, so that 4 and 5 are in quarantine."""
    import trio

    from gossiplog.entry import Entry
    from gossiplog.errors import Reject
    from gossiplog.gossip_log import open as open_log

    cli("export", app, "-o", "a.hex.jsonl")
    values = []

    async def refuse_four(entries: list[Entry], tx: object) -> None:
        for entry in entries:
            if entry.message.payload == 4:
                raise Reject("no fours", id=entry.id)

    async def insert() -> None:
        async with open_log(app) as source:
            values.extend([entry.value async for entry in source.iterate()])
        async with open_log("q.db", topic=TOPIC, apply=refuse_four) as log:
            await log.insert_many(values)

    trio.run(insert)
    return "q.db"


def test_what_was_set_aside_is_listed_explained_and_retried(cli: Run, app: str) -> None:
    log = quarantined(cli, app)
    ids = cli("log", app, "-q").out.split()
    (held,) = cli("quarantine", "ls", log).lines
    assert (held["id"], held["rule"], held["application"], held["kind"], held["reason"]) == (ids[3], "apply", "app", "Reject", "no fours")
    assert cli("stat", log).record["set_aside"] == {"app": 1}
    explained = cli("explain", log, ids[3][:12]).record
    assert explained["verdict"]["accepted"] is True
    assert explained["setAside"] == [{"application": "app", "kind": "Reject", "reason": "no fours"}]
    Path("retry_app.py").write_text(APPLICATION)
    (tried,) = cli("quarantine", "retry", log, "--apply", "retry_app:apply", code=1).lines
    assert tried == {"application": "app", "applied": 5, "setAside": 1}
    cli("quarantine", "retry", log, "vv", code=1)
    (tried,) = cli("quarantine", "retry", log, "--apply", "retry_app:lenient").lines
    assert tried["setAside"] == 0
    assert cli("quarantine", "ls", log).out == ""
    assert root_of(cli, log) == root_of(cli, app)


def test_migrate_says_that_there_is_nothing_to_do(cli: Run, app: str) -> None:
    record = cli("migrate", app).record
    assert (record["pending"], record["applied"]) == ([], False)
    assert "newest" in cli("migrate", app, "--dry-run", "--table").out


def test_migrate_refuses_a_log_of_a_newer_version(cli: Run, app: str) -> None:
    database = sqlite3.connect(app)
    database.execute("PRAGMA user_version = 99")
    database.close()
    assert cli("migrate", app, "--json", code=1).error["kind"] == "newer-version"
    assert "schema 99" in cli("log", app, code=1).err


def test_log_that_another_process_writes_to_is_busy(cli: Run, app: str) -> None:
    import subprocess
    import sys

    from cli_support import REPOSITORY

    code = f"""
import sys, trio
sys.path.insert(0, {str(REPOSITORY)!r})
from gossiplog.gossip_log import open as open_log
async def main():
    async with open_log("app.db"):
        print("open", flush=True)
        await trio.to_thread.run_sync(sys.stdin.read)
trio.run(main)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "open\n"
        assert cli("append", app, "6", "--json", code=1).error["kind"] == "busy"
        assert len(cli("log", app).lines) == 5
        holder.communicate("")


def test_fsck_finds_and_repairs_what_follows_from_the_entries(cli: Run, app: str) -> None:
    before = root_of(cli, app)
    assert cli("fsck", app).record["clean"] is True
    database = sqlite3.connect(app)
    with database:
        database.execute("DELETE FROM gossiplog_heads")
        database.execute("UPDATE gossiplog_nodes SET hash = x'00112233445566778899aabbccddeeff' WHERE level = 1")
    database.close()
    record = cli("fsck", app, code=3).record
    assert record["clean"] is False
    assert {finding["kind"] for finding in record["findings"]} >= {"heads", "node"}
    text = cli("fsck", app, "--table", code=3)
    assert "DAMAGED: 5 entries" in text.out
    assert f"gossiplog fsck {app} --repair" in text.err
    repaired = cli("fsck", app, "--repair").record
    assert repaired["clean"] is True
    assert repaired["repaired"]["problems"] == record["problems"]
    assert root_of(cli, app) == before
    assert cli("fsck", app, "--table").out == "ok: 5 entries, 0 problems\n"


def test_reading_goes_on_around_a_damaged_entry(cli: Run, app: str) -> None:
    id = cli("append", "-q", app, '"the original"').out.strip()
    cli("append", app, '"after it"')
    tamper(app, b"\x6cthe original", b"\xffthe original")
    ran = cli("log", app, code=3)
    assert [line["message"]["payload"] for line in ran.lines] == [1, 2, 3, 4, 5, "after it"]
    assert f"entry {id} is damaged" in ran.err
    assert cli("log", app, "--json", code=3).error["kind"] == "damaged-log"
    assert cli("show", app, id, "--json", code=3).error["kind"] == "damaged-log"
    assert "damaged:" in cli("graph", app).out
    assert cli("explain", app, id, code=3).record["verdict"]["accepted"] is False
    cli("ancestors", app, cli("heads", app).lines[0]["id"], code=3)


def test_damaged_entry_comes_back_from_another_replica(cli: Run, app: str) -> None:
    cli("init", "other.db", "--topic", TOPIC)
    cli("append", app, '"the original"')
    cli("sync", app, "other.db")
    tamper(app, b"original", b"tampered")
    report = cli("fsck", app, "--repair").record
    assert report["setAside"] == 1
    held = cli("quarantine", "ls", app).record
    cli("explain", app, held["id"], code=3)
    cli("sync", app, "other.db")
    assert root_of(cli, app) == root_of(cli, "other.db")
