"""Migrations on a server: whole or not at all, once, whoever comes first; and from every version that there was."""

import pytest
import trio
from log_support import all_of, assert_whole, opened

from gossiplog.errors import DamagedLog, ReadOnlyLog, StoreError
from gossiplog.store import pending_migrations
from gossiplog.store.migrate import load_migrations
from gossiplog.store.postgres import database as postgres_database
from gossiplog.store.postgres import schema as postgres_schema
from gossiplog.store.postgres import store as postgres
from gossiplog.store.postgres.url import PostgresUrl

OURS = load_migrations("postgres")
LATER = [
    *OURS,
    ("0098_fine", "CREATE TABLE fine (a INTEGER);\nINSERT INTO fine VALUES (1);"),
    ("0099_more", "ALTER TABLE fine ADD b TEXT;"),
]
UNDONE = [
    "ALTER TABLE {log}.log DROP COLUMN generation, DROP COLUMN seq_used",
    "DROP TABLE {log}.sketch",
    "DROP TABLE {log}.applications, {log}.set_aside",
    "DROP TABLE {log}.members, {log}.touched, {log}.void",
]
"""What takes each of our migrations from the second on back, as no other program is here to make a log of an earlier version."""
BROKEN = [*LATER, ("0100_broken", "CREATE TABLE never (a INTEGER); nonsense;")]


def use(monkeypatch: pytest.MonkeyPatch, migrations: list[tuple[str, str]]) -> None:
    for module in (postgres, postgres_schema, postgres_database):
        monkeypatch.setattr(module, "load_migrations", lambda dialect: migrations)


async def pending(url: str) -> tuple[int, list[str]]:
    return await pending_migrations(url)


def test_the_migrations_are_numbered_from_one_without_a_gap() -> None:
    assert [int(name[:4]) for name, _ in OURS] == list(range(1, len(OURS) + 1))


@pytest.mark.parametrize("version", range(1, len(LATER)))
async def test_a_log_of_any_earlier_version_is_brought_up_to_date_with_what_is_in_it(postgres, monkeypatch, version) -> None:
    url = postgres.new_log()
    use(monkeypatch, LATER[: max(version, len(OURS))])
    async with opened(url) as log:
        await log.append_many(range(30))
    schema = PostgresUrl.parse(url).quoted_schema
    for statement in reversed(UNDONE[version - 1 :]):
        await trio.to_thread.run_sync(postgres.sql, statement.format(log=schema))
    await trio.to_thread.run_sync(postgres.sql, f"UPDATE {schema}.log SET schema_version = {version}")
    use(monkeypatch, LATER)
    assert await pending(url) == (version, [name for name, _ in LATER[version:]])
    with pytest.raises(ReadOnlyLog, match=f"schema {version}"):
        async with opened(url, read_only=True):
            pass
    async with opened(url) as log:
        await log.append("after")
        await assert_whole(log)
        assert len(await all_of(log)) == 31
    assert await pending(url) == (len(LATER), [])
    rows = await trio.to_thread.run_sync(postgres.sql, f"SELECT a, b FROM {PostgresUrl.parse(url).quoted_schema}.fine")
    assert [tuple(row) for row in rows] == [(1, None)]


async def test_a_migration_that_fails_changes_nothing(postgres, monkeypatch) -> None:
    url = postgres.new_log()
    async with opened(url) as log:
        await log.append(1)
    use(monkeypatch, BROKEN)
    with pytest.raises(StoreError, match="nonsense"):
        async with opened(url):
            pass
    use(monkeypatch, OURS)
    assert await pending(url) == (len(OURS), [])
    async with opened(url) as log:
        await assert_whole(log)
        assert await log.count() == 1


async def test_processes_that_migrate_at_once_do_it_once(postgres, monkeypatch) -> None:
    url = postgres.new_log()
    async with opened(url) as log:
        await log.append(1)
    use(monkeypatch, LATER)

    async def open_and_append(number: int) -> None:
        async with opened(url) as log:
            await log.append(["migrated", number])

    async with trio.open_nursery() as nursery:
        for number in range(6):
            nursery.start_soon(open_and_append, number)
    rows = await trio.to_thread.run_sync(postgres.sql, f"SELECT a FROM {PostgresUrl.parse(url).quoted_schema}.fine")
    assert len(rows) == 1
    async with opened(url) as log:
        assert await log.count() == 7
        await assert_whole(log)


async def test_processes_that_make_a_log_at_once_make_one(postgres) -> None:
    url = postgres.new_log()

    async def make_and_append(number: int) -> None:
        async with opened(url) as log:
            await log.append(number)

    async with trio.open_nursery() as nursery:
        for number in range(8):
            nursery.start_soon(make_and_append, number)
    async with opened(url) as log:
        assert sorted(entry.message.payload for entry in await all_of(log)) == list(range(8))
        await assert_whole(log)


async def test_fsck_finds_what_somebody_changed_by_hand_and_a_repair_puts_it_right(postgres) -> None:
    url = postgres.new_log()
    schema = PostgresUrl.parse(url).quoted_schema
    changes = {
        "leaf": f"UPDATE {schema}.entries SET hash = '\\x00112233445566778899aabbccddeeff' WHERE seq = 3",
        "node": f"DELETE FROM {schema}.nodes WHERE level = 1 AND key = ''",
        "heads": f"DELETE FROM {schema}.heads",
        "position": f"UPDATE {schema}.entries SET branch = 77 WHERE seq = 9",
        "link": f"INSERT INTO {schema}.links VALUES (5, 6, 7, 8, 9)",
        "entry": f"UPDATE {schema}.entries SET value = set_byte(value, 60, 255 - get_byte(value, 60)) WHERE seq = 60",
        "cursor": f"INSERT INTO {schema}.cursors VALUES ('x', 999)",
        "sketch": f"INSERT INTO {schema}.sketch VALUES (1, 20, '\\x00')",
    }
    async with opened(url) as log:
        await log.append_many(range(60))
        for kind, statement in changes.items():
            await trio.to_thread.run_sync(postgres.sql, statement)
            report = await log.fsck(repair=True)
            assert report.repaired is not None and kind in {finding.kind for finding in report.repaired.findings}
            assert report.is_clean, report.findings
        assert await log.count() == 59
        await log.append("goes on")
        await assert_whole(log)


async def test_indexes_are_checked_where_the_server_can(postgres) -> None:
    if not await trio.to_thread.run_sync(postgres.offers, "amcheck"):
        pytest.skip("this PostgreSQL comes without amcheck; that of a distribution has it")
    await trio.to_thread.run_sync(postgres.sql, "CREATE EXTENSION IF NOT EXISTS amcheck")
    try:
        async with opened(postgres.new_log()) as log:
            await log.append_many(range(300))
            assert (await log.fsck()).is_clean
    finally:
        await trio.to_thread.run_sync(postgres.sql, "DROP EXTENSION amcheck")


async def test_a_damaged_type_is_reported_and_not_raised(postgres) -> None:
    url = postgres.new_log()
    async with opened(url) as log:
        await log.append_many(range(10))
        await trio.to_thread.run_sync(postgres.sql, f"ALTER TABLE {PostgresUrl.parse(url).quoted_schema}.heads RENAME COLUMN key TO clef")
        report = await log.fsck()
        assert [finding.kind for finding in report.findings] == ["unreadable"]
        with pytest.raises(DamagedLog):
            await log.heads()
        assert len(await all_of(log)) == 10


@pytest.mark.parametrize("version", [-1, 0])
async def test_a_version_that_no_log_has_is_damage_and_nothing_is_migrated(postgres, version) -> None:
    url = postgres.new_log()
    async with opened(url) as log:
        await log.append("before")
    await trio.to_thread.run_sync(postgres.sql, f"UPDATE {PostgresUrl.parse(url).quoted_schema}.log SET schema_version = {version}")
    for work in (open_once, pending):
        with pytest.raises(DamagedLog, match=f"schema {version}"):
            await work(url)


async def open_once(url: str) -> None:
    async with opened(url):
        pass
