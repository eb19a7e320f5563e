"""`fsck --repair` asks first, errors say what helps, and `quarantine retry`, `salvage` and `sync --heal` bring entries back."""

import contextlib
import sqlite3
import time
import tracemalloc
from pathlib import Path

import dag_cbor
import pytest
import trio
from cli_support import TOPIC
from damage_support import damage, rows
from log_support import opened

from gossiplog.entry import encode_id
from gossiplog.errors import DamagedLog

FIRST_GONE = "UPDATE gossiplog_entries SET value = x'00' WHERE seq = 2"


@pytest.fixture
def longer(cli, app) -> str:
    """A log of 60 entries in a row."""
    cli("append", app, "--lines", input="".join(f"{number}\n" for number in range(55)))
    return app


@pytest.fixture
def healthy(cli, longer) -> str:
    cli("copy", longer, "healthy.db")
    return "healthy.db"


def test_a_repair_says_beforehand_what_it_would_set_aside(cli, longer) -> None:
    damage(Path(longer), FIRST_GONE)
    before = rows(Path(longer), "SELECT * FROM gossiplog_entries"), rows(Path(longer), "SELECT * FROM gossiplog_leaves")
    ran = cli("fsck", longer, "--repair", "--dry-run", "--json", code=3)
    assert (ran.record["setAside"], ran.record["entries"], ran.record["repaired"]) == (59, 60, None)
    assert "keep 1 entry and set 59 aside" in cli("fsck", longer, "--repair", "--dry-run", "--table", code=3).out
    assert before == (rows(Path(longer), "SELECT * FROM gossiplog_entries"), rows(Path(longer), "SELECT * FROM gossiplog_leaves"))


def test_a_repair_that_would_set_many_aside_wants_a_yes(cli, longer) -> None:
    damage(Path(longer), FIRST_GONE)
    refused = cli("fsck", longer, "--repair", "--json", code=3).error
    assert refused["kind"] == "repair-refused" and "59 of 60 entries" in refused["message"] and "--heal" in refused["hint"]
    assert rows(Path(longer), "SELECT count(*) FROM gossiplog_entries") == [(60,)]
    assert cli("fsck", longer, "--repair", "--yes", "--json").record["setAside"] == 59
    assert cli("stat", longer, "--json").record["count"] == 1


def test_a_repair_that_sets_a_few_aside_needs_no_yes(cli, longer) -> None:
    damage(Path(longer), "UPDATE gossiplog_entries SET value = x'00' WHERE seq = 55")
    assert cli("fsck", longer, "--repair", "--json").record["setAside"] == 6


@pytest.mark.parametrize("form", ["--json", "--table"])
def test_a_row_that_holds_another_block_is_shown_for_what_it_is(cli, app, form) -> None:
    block = dag_cbor.encode({"name": "a file", "size": 7})
    damage(Path(app), f"UPDATE gossiplog_entries SET value = x'{block.hex()}' WHERE seq = 2")
    ((key,),) = rows(Path(app), "SELECT key FROM gossiplog_leaves WHERE seq = 2")
    id = encode_id(key)
    shown = cli("show", app, id, form, code=3)
    assert shown.out == ""
    assert f"entry {id} is damaged: " in shown.err
    assert "; it is a dag-cbor map with the keys" in shown.err and "name" in shown.err
    assert cli("show", app, id, "--hex").out.strip() == block.hex()
    assert "it is a dag-cbor map with the keys" in cli("explain", app, id, form, code=3).out


def test_preview_and_yes_go_with_a_repair_alone(cli, longer) -> None:
    cli("fsck", longer, "--dry-run", code=2)
    cli("fsck", longer, "--yes", code=2)


def test_rows_that_are_gone_are_fetched_though_the_roots_are_equal(cli, longer, healthy) -> None:
    damage(Path(longer), "DELETE FROM gossiplog_entries WHERE seq IN (3, 30)", "UPDATE gossiplog_entries SET value = x'01' WHERE seq = 40")
    assert cli("sync", longer, healthy, "--pull", "--json").record["equal"]
    report = cli("sync", longer, healthy, "--heal", "--json").record
    # Of a damaged row the remains are dropped. Two of the three that were fetched had to wait for the first.
    assert report["equal"] and report["healed"] == {"setAside": 56, "released": 57, "waiting": 0, "damagedFile": None, "clean": True}
    assert cli("fsck", longer, "--json").record["clean"]
    assert cli("log", longer, "--json").out == cli("log", healthy, "--json").out
    assert cli("quarantine", "ls", longer, "--json").out == ""


def test_what_the_other_log_lacks_too_is_said_and_kept(cli, longer, healthy) -> None:
    cli("init", "young.db", "--topic", TOPIC)
    damage(Path(longer), FIRST_GONE)
    report = cli("sync", longer, "young.db", "--heal", "--json", code=3).record
    assert report["healed"]["waiting"] == 58
    # It goes on where it stopped.
    assert cli("sync", longer, healthy, "--heal", "--json").record["healed"]["released"] == 58
    assert cli("stat", longer, "--json").record["count"] == 60


def test_healing_wants_a_pull_and_the_right_log(cli, longer, healthy) -> None:
    cli("sync", longer, healthy, "--heal", "--push", code=2)
    cli("sync", longer, healthy, "--heal", "--dry-run", code=2)
    cli("init", "foreign.db", "--topic", "other.example")
    assert "topic" in cli("sync", longer, "foreign.db", "--heal", code=1).err
    Path("noise.db").write_bytes(b"\x07" * 9_000)
    assert "no entry" in cli("sync", "noise.db", healthy, "--heal", code=3).err
    assert Path("noise.db").read_bytes() == b"\x07" * 9_000
    assert sorted(path.name for path in Path().glob("noise*")) == ["noise.db", "noise.db-lock"]


def test_of_two_logs_the_damaged_one_is_named(cli, longer, healthy) -> None:
    cli("init", "empty.db", "--topic", TOPIC)
    damage(Path(longer), "UPDATE gossiplog_entries SET value = 7")
    for command in (
        ["sync", "empty.db", longer],
        ["sync", longer, "empty.db"],
        ["copy", longer, "other.db"],
        ["export", longer, "-o", "x.car"],
    ):
        ran = cli(*command, code=3)
        assert f"gossiplog fsck {longer}`" in ran.err and f"gossiplog salvage {longer} TARGET" in ran.err, ran.err
        assert f"--heal {longer} OTHER" in ran.err and "empty.db`" not in ran.err


def test_a_salvage_names_what_is_missing_and_can_be_completed(cli, longer, healthy) -> None:
    damage(Path(longer), "DELETE FROM gossiplog_entries WHERE seq = 40")
    missing = cli("log", healthy, "--json").lines[39]["id"]
    report = cli("salvage", longer, "saved.db", "--durability", "off", "--json", code=3).record
    assert (report["entries"], report["waiting"], report["missing"], report["clean"]) == (39, 20, [missing], True)
    again = cli("salvage", longer, "saved.db", "--durability", "off", "--json", code=3).record
    assert (again["added"], again["entries"], again["waiting"]) == (0, 39, 20)
    cli("sync", "saved.db", healthy)
    cli("quarantine", "retry", "saved.db")
    assert cli("sync", "saved.db", healthy, "--json").record["equal"]
    assert cli("fsck", "saved.db", "--json").record["entries"] == 60
    cli("salvage", healthy, "whole.db", "--json")
    cli("salvage", healthy, healthy, code=2)
    cli("salvage", "nothing.db", "saved.db", code=1)


def test_retrying_takes_a_page_of_memory(tmp_path) -> None:
    count = 3_000

    async def peak() -> int:
        path = tmp_path / "many.db"
        async with opened(path) as log:
            await log.append_many([{"number": number, "text": "x" * 500} for number in range(count)])
            first = (await anext(log.iterate())).value
        damage(path, "UPDATE gossiplog_entries SET value = x'00' WHERE seq = 1")
        async with opened(path) as log:
            await log.fsck(repair=True)
            await log.insert(first)
            tracemalloc.start()
            released = 0
            async for _, verdict in log.retrying():
                released += verdict.is_new
            most = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert released == count - 1
            return most

    # 3,000 of these entries alone would be 2.5 MB of values, and as much again of what is made of them.
    assert trio.run(peak) < 2_500_000


def test_a_cursor_that_stands_nowhere_is_told_of_and_begins_anew(cli, longer) -> None:
    damage(Path(longer), "INSERT INTO gossiplog_cursors VALUES ('lost', 'here'), ('kept', 5)")
    assert "not a number" in cli("fsck", longer, "--table", code=3).out
    assert cli("copy", longer, "copied.db", "--json").record["cursors"] == 1
    cli("salvage", longer, "saved.db")

    async def follow() -> None:
        async with opened(Path(longer), topic=TOPIC) as log, log.subscribe(cursor="lost") as events:
            await anext(events)

    with pytest.raises(DamagedLog, match="cursor 'lost'"):
        trio.run(follow)
    assert cli("fsck", longer, "--repair", "--json").record["clean"]
    assert rows(Path(longer), "SELECT * FROM gossiplog_cursors") == [("kept", 5)]
    trio.run(follow)


def test_heads_are_listed_without_reading_an_entry_where_ids_are_enough(cli, longer) -> None:
    ids = cli("heads", longer, "-q").out
    damage(Path(longer), "UPDATE gossiplog_entries SET value = x'00'")
    assert cli("heads", longer, "-q").out == ids


@pytest.mark.slow
def test_a_row_of_50_mb_does_not_make_a_repair_endless(cli, app) -> None:
    cli("append", app, "--lines", input="".join(f"{number}\n" for number in range(2_000)))
    with contextlib.closing(sqlite3.connect(app)) as db:
        db.execute("UPDATE gossiplog_entries SET value = ? WHERE seq = 2", [b"\x85" * 50_000_000])
        db.commit()
    began = time.process_time()
    report = cli("fsck", app, "--repair", "--dry-run", "--json", code=3).record
    assert report["setAside"] >= 2_000
    # 1.6 s, and more than 30 s while the whole row went into the quarantine.
    assert time.process_time() - began < 15


CHANGED_TOPIC = "UPDATE gossiplog_log SET topic = 'clj.example'"


def test_a_changed_byte_of_the_stored_topic_is_found_and_the_entries_are_asked(cli, longer, healthy) -> None:
    damage(Path(longer), CHANGED_TOPIC)
    assert TOPIC in cli("fsck", longer, "--table", code=3).err
    refused = cli("fsck", longer, "--repair", "--yes", "--json", code=3).error
    assert TOPIC in refused["message"] and "salvage" in refused["hint"]
    assert rows(Path(longer), "SELECT count(*) FROM gossiplog_entries") == [(60,)]
    report = cli("salvage", longer, "saved.db", "--json").record
    assert (report["entries"], report["waiting"], report["missing"]) == (60, 0, [])
    assert cli("stat", "saved.db", "--json").record["topic"] == TOPIC
    assert "not other.example" in cli("salvage", longer, "third.db", "--topic", "other.example", code=1).err
    assert cli("sync", longer, healthy, "--heal", "--json").record["healed"]["clean"]
    assert cli("stat", longer, "--json").record["topic"] == TOPIC
    assert cli("log", longer, "--json").out == cli("log", healthy, "--json").out


def test_a_log_is_not_healed_from_one_of_another_topic(cli, longer) -> None:
    cli("init", "foreign.db", "--topic", "other.example")
    damage(Path(longer), CHANGED_TOPIC)
    before = Path(longer).read_bytes()
    assert "topic" in cli("sync", longer, "foreign.db", "--heal", code=1).err
    assert Path(longer).read_bytes() == before


@pytest.mark.parametrize(
    "command", ["verify LOG", "copy LOG copied.db", "export LOG -o a.jsonl", "export LOG -o a.car", "export LOG -o a.parquet"]
)
def test_a_lost_row_is_named_though_no_other_entry_does(cli, longer, command) -> None:
    damage(Path(longer), "DELETE FROM gossiplog_entries WHERE seq = 60")
    said = cli(*command.replace("LOG", longer).split(), "--json", code=3).err
    assert "59 entries could be read, and the log's index has 60" in said or "is not in the log" in said
    assert not list(Path().glob("a.*"))


@pytest.mark.parametrize("name", ["a.jsonl", "a.car", "a.parquet"])
def test_an_export_of_a_log_with_an_entry_that_is_none_names_it(cli, longer, name) -> None:
    damage(Path(longer), "UPDATE gossiplog_entries SET value = x'' WHERE seq = 20")
    assert cli("export", longer, "-o", name, "--json", code=3).error["kind"] == "damaged-log"
    assert not Path(name).exists()


@pytest.mark.parametrize("name", ["a.jsonl", "a.car", "a.parquet"])
def test_an_export_of_a_log_with_another_entry_in_place_of_one_names_it(cli, longer, name) -> None:
    damage(Path(longer), "UPDATE gossiplog_entries SET value = (SELECT value FROM gossiplog_entries WHERE seq = 21) WHERE seq = 20")
    assert "its bytes are not those of its id" in cli("export", longer, "-o", name, code=3).err


def test_a_damaged_entry_is_not_published(cli, longer) -> None:
    cli("publish", longer, "share")
    cli("append", longer, "--lines", input="60\n61\n62\n")
    damage(Path(longer), "UPDATE gossiplog_entries SET value = (SELECT value FROM gossiplog_entries WHERE seq = 61) WHERE seq = 62")
    assert "entry number 62 is damaged" in cli("publish", longer, "share", code=3).err
    assert "60 entries, all valid" in cli("verify", "share", "--table").out


def test_a_clone_that_leaves_entries_out_is_incomplete(cli, longer) -> None:
    damage(Path(longer), *[f"DELETE FROM gossiplog_{table} WHERE seq = 30" for table in ("entries", "leaves", "positions")])
    cli("publish", longer, "share")
    ran = cli("clone", "share", "cloned.db", "--json", code=5)
    assert (ran.record["added"], ran.record["publishers"][0]["leftOut"]) == (29, 30)


@pytest.mark.parametrize("seq", [20, 60])
def test_a_log_that_has_lost_a_row_is_not_published(cli, longer, seq) -> None:
    damage(Path(longer), f"DELETE FROM gossiplog_entries WHERE seq = {seq}")
    assert "59 entries could be read, and the log's index has 60" in cli("publish", longer, "share", code=3).err


@pytest.mark.parametrize("command", ["publish LOG share", "verify LOG", "copy LOG a.db", "export LOG -o a.car", "export LOG -o a.parquet"])
def test_entries_of_another_topic_than_the_logs_are_named(cli, longer, command) -> None:
    damage(Path(longer), CHANGED_TOPIC)
    ran = cli(*command.replace("LOG", longer).split(), "--json", code=3)
    assert TOPIC in ran.err or "topic" in ran.out


def test_a_log_that_a_repair_took_entries_from_is_published(cli, longer) -> None:
    damage(Path(longer), "UPDATE gossiplog_entries SET value = x'00' WHERE seq = 55")
    cli("fsck", longer, "--repair", "--json")
    cli("append", longer, "1")
    assert cli("publish", longer, "share", "--json").record["size"] == 55
