"""The command line on URLs: every command that takes a LOG, and no password in anything that it prints."""

import json
import sqlite3
from pathlib import Path
from random import Random

import pytest
import trio
from click.testing import CliRunner
from log_support import SIGNERS, TOPIC, all_of, make, make_history, opened

from gossiplog.cli.app import root
from gossiplog.entry import Entry
from gossiplog.errors import LocalProtocolError
from gossiplog.log.requests import Quarantined, WriteQuarantine
from gossiplog.plan import ask
from gossiplog.store.postgres.url import PostgresUrl


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Be in a folder of the test's own, with a keyring of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GOSSIPLOG_KEY_DIR", str(tmp_path / "keys"))


def gossiplog(*arguments: str, code: int = 0, **variables: str) -> str:
    """Run a command; the password that its URLs may have appears nowhere in what it says."""
    ran = CliRunner().invoke(root, list(arguments), env=variables)
    assert ran.exit_code == code, (ran.exit_code, ran.output)
    assert "hunter2" not in ran.output
    return ran.output


def records(text: str) -> list[dict]:
    return [json.loads(line) for line in text.splitlines()]


def with_password(url: str) -> str:
    """The server trusts whoever comes, so any password will do."""
    return url.replace("gossiplog@", "gossiplog:hunter2@")


def test_a_log_on_a_server_is_a_log_to_every_command(postgres) -> None:
    url = with_password(postgres.new_log())
    gossiplog("key", "new", "laptop")
    assert records(gossiplog("init", url, "--topic", TOPIC, "--json"))[0]["created"] is True
    assert records(gossiplog("init", url, "--topic", TOPIC, "--json"))[0]["created"] is False
    for number in range(3):
        gossiplog("append", url, str(number))
    entries = records(gossiplog("log", url, "--json"))
    assert [entry["message"]["payload"] for entry in entries] == [0, 1, 2]
    assert records(gossiplog("stat", url, "--json"))[0]["count"] == 3
    for command in (
        ("show", url, entries[1]["id"]),
        ("heads", url),
        ("graph", url),
        ("verify", url),
        ("fsck", url),
        ("replay", url),
        ("quarantine", "ls", url),
    ):
        gossiplog(*command)
    gossiplog("export", url, "-o", "all.car")
    gossiplog("init", "app.db", "--topic", TOPIC)
    assert records(gossiplog("sync", "app.db", url, "--json"))[0]["pulled"] == 3
    assert records(gossiplog("sync", url, "app.db", "--json"))[0]["equal"] is True
    assert records(gossiplog("migrate", url, "--json"))[0]["pending"] == []
    assert records(gossiplog("migrate", url, "--dry-run", "--json"))[0]["schema"] >= 1


def test_errors_say_what_to_do_and_nothing_secret(postgres) -> None:
    url = with_password(postgres.new_log())
    assert "gossiplog init" in gossiplog("stat", url, code=1)
    assert "add ?log=NAME" in gossiplog("heads", "postgresql://user:hunter2@host/db", code=2)
    assert "malformed" in gossiplog("stat", "postgresql://user:hunt#er2@host/db?log=a", code=2)
    assert "cannot be reached" in gossiplog("stat", "postgresql://user:hunter2@127.0.0.1:1/db?log=a", code=4)
    assert "error" in gossiplog("stat", "postgresql://user:hunter2@127.0.0.1:1/db?log=a", "--json", code=4, GOSSIPLOG_DEBUG="1")
    assert "are the same" in gossiplog("copy", url, url, code=2)
    assert "is not a file" in gossiplog("stat", "mysql://user@host/db", code=2)


def test_a_copy_goes_either_way_and_can_be_repeated(postgres, tmp_path) -> None:
    url = with_password(postgres.new_log())

    async def fill() -> None:
        async with opened(tmp_path / "app.db") as log:
            await log.append_many(range(20))

    trio.run(fill)
    first = records(gossiplog("copy", "app.db", url, "--json"))[0]
    assert (first["added"], first["known"], first["failed"], first["equal"]) == (20, 0, 0, True)
    again = records(gossiplog("copy", "app.db", url, "--json"))[0]
    assert (again["added"], again["known"], again["equal"]) == (0, 20, True)
    back = records(gossiplog("copy", url, "back.db", "--json"))[0]
    assert (back["added"], back["equal"]) == (20, True)
    gossiplog("fsck", "back.db")
    assert "topic" in gossiplog("copy", url, with_topic(), code=1)


def with_topic() -> str:
    gossiplog("init", "other.db", "--topic", "other.example.com")
    return "other.db"


def test_a_damaged_log_on_a_server_is_salvaged_and_healed(postgres) -> None:
    url = postgres.new_log()
    gossiplog("key", "new", "laptop")
    gossiplog("init", url, "--topic", TOPIC)
    for number in range(5):
        gossiplog("append", url, str(number))
    gossiplog("copy", url, "healthy.db")
    schema = f"gossiplog_{url.rpartition('log=')[2]}"
    postgres.sql(f"""UPDATE "{schema}".entries SET value = 'x' WHERE seq = 2""")
    (report,) = records(gossiplog("salvage", url, "saved.db", "--json", code=3))
    assert (report["entries"], report["waiting"], report["invalid"], len(report["missing"])) == (1, 3, 1, 1)
    (report,) = records(gossiplog("sync", url, "healthy.db", "--heal", "--json"))
    assert report["equal"] and report["healed"]["clean"] and report["healed"]["setAside"] == 4
    assert records(gossiplog("fsck", url, "--json"))[0]["clean"]


@pytest.fixture(scope="module")
def long_history() -> list[Entry]:
    return make_history(Random(4), 1_200)


@pytest.mark.parametrize("way", ["to the server", "from the server", "from file to file", "from server to server"])
async def test_everything_of_a_log_is_copied(postgres, tmp_path, way, long_history) -> None:
    places = {
        "to the server": (tmp_path / "a.db", postgres.new_log()),
        "from the server": (postgres.new_log(), tmp_path / "b.db"),
        "from file to file": (tmp_path / "a.db", tmp_path / "b.db"),
        "from server to server": (postgres.new_log(), postgres.new_log()),
    }
    source_place, target_place = places[way]
    *history, kept_out = long_history
    async with opened(source_place) as source, opened(target_place) as target:
        await source.insert_many([entry.value for entry in history])
        await source._store.write(ask(WriteQuarantine([Quarantined(kept_out.key, kept_out.value, "parents", "gone", 7.0)], [])))
        async with source.subscribe(cursor="indexer") as events:
            for _ in range(700):
                last = await anext(events)
            await events.ack(last)
        report = await target.copy_from(source)
        assert (report.entries, report.known, report.failed, report.quarantined, report.cursors) == (1_199, 0, 0, 1, 1)
        assert report.is_equal and await source.root() == await target.root()
        assert [entry.value for entry in await all_of(target)] == [entry.value for entry in await all_of(source)]
        async with source.subscribe() as one, target.subscribe() as other:
            assert [(await anext(one)).key for _ in range(1_199)] == [(await anext(other)).key for _ in range(1_199)]
        async with source.subscribe(cursor="indexer") as one, target.subscribe(cursor="indexer") as other:
            assert (await anext(one)).key == (await anext(other)).key
        assert [record async for record in target.quarantine()] == [record async for record in source.quarantine()]


async def test_a_copy_that_was_interrupted_goes_on(postgres, tmp_path) -> None:
    async with opened(tmp_path / "a.db") as source, opened(postgres.new_log(), signer=SIGNERS[1]) as target:
        await source.append_many(range(3_500))
        async with source.subscribe(cursor="x") as events:
            await events.ack(await anext(events))
        seen: list[int] = []
        with trio.CancelScope() as scope:

            def stop(done: int) -> None:
                seen.append(done)
                if done >= 2_000:
                    scope.cancel()

            await target.copy_from(source, on_progress=stop)
        assert 2_000 <= await target.count() < 3_500
        mine = await target.append("mine")
        report = await target.copy_from(source)
        assert report.known >= 2_000 and report.known + report.entries == 3_500
        assert not report.is_equal and await target.has(mine.id)
        # Ours comes between, and the others stand as they did: a cursor means the same in both.
        assert report.cursors == 1
        with pytest.raises(LocalProtocolError, match="topic"):
            async with opened(":memory:", topic="other.example.com") as foreign:
                await foreign.copy_from(source)


async def test_a_copy_into_a_log_that_got_its_entries_in_another_order_leaves_the_cursors(postgres) -> None:
    a, b = make("a"), make("b")
    async with opened(postgres.new_log()) as source, opened(postgres.new_log()) as target:
        for entry in (a, b):
            await source.insert(entry.value)
        async with source.subscribe(cursor="x") as events:
            await events.ack(await anext(events))
        await target.insert(b.value)
        report = await target.copy_from(source)
        assert (report.entries, report.known, report.cursors, report.is_equal) == (1, 1, None, True)


async def test_what_is_damaged_in_the_source_is_left_out_and_named(tmp_path) -> None:
    async with opened(tmp_path / "a.db") as source:
        entries = await source.append_many(range(10))
    with sqlite3.connect(tmp_path / "a.db") as db:
        value = bytearray(entries[-1].value)
        value[-1] ^= 1
        db.execute("UPDATE gossiplog_entries SET value = ? WHERE seq = 10", (bytes(value),))
    db.close()
    async with opened(tmp_path / "a.db") as source, opened(":memory:") as target:
        report = await target.copy_from(source)
        assert (report.entries, report.failed, report.is_equal) == (9, 1, False)
        assert len(report.refused) == 1


@pytest.mark.parametrize("seq", ["7", "9", "seq"])
@pytest.mark.parametrize("command", ["verify", "copy", "salvage", "export -o a.jsonl", "export -o a.car", "export -o a.parquet", "publish"])
def test_a_lost_row_of_the_server_is_named(postgres, command, seq) -> None:
    url, (verb, *rest) = postgres.new_log(), command.split()
    gossiplog("key", "new", "laptop")
    gossiplog("init", url, "--topic", TOPIC)
    for number in range(9):
        gossiplog("append", url, str(number))
    postgres.sql(f"DELETE FROM {PostgresUrl.parse(url).quoted_schema}.entries WHERE seq = {seq}")
    gossiplog(verb, url, *rest, *{"copy": ["copied.db"], "salvage": ["saved.db"], "publish": ["share"]}.get(verb, []), code=3)
