"""What is said when a log cannot be opened, or not for writing."""

import asyncio
import secrets
import socket

import asyncpg
import pytest
import trio
from log_support import TOPIC, assert_whole, opened
from postgres_support import PostgresServer, running_server

import gossiplog
from gossiplog.errors import (
    DamagedLog,
    ForeignFile,
    LocalProtocolError,
    LogNotFound,
    NewerVersion,
    ReadOnlyLog,
    StoreUnavailable,
    TopicMismatch,
)
from gossiplog.store.postgres.connection import connect
from gossiplog.store.postgres.url import PostgresUrl


@pytest.fixture
async def made(postgres: PostgresServer) -> tuple[str, str]:
    """The URL of a log that is there, and its schema, quoted."""
    url = postgres.new_log()
    async with opened(url):
        pass
    return url, PostgresUrl.parse(url).quoted_schema


def in_thread(server: PostgresServer, statement: str):
    return trio.to_thread.run_sync(server.sql, statement)


async def refusal(location: str, kind: type[Exception], **options: object) -> str:
    """The message of the error that opening raises, its hint included."""
    with pytest.raises(kind) as caught:
        async with gossiplog.open(location, **options):
            pass
    assert "hunter2" not in f"{caught.value} {caught.value.hint} {caught.value.__cause__}"
    return f"{caught.value}; {caught.value.hint}"


async def test_a_log_that_is_not_there_is_named_with_what_to_do(postgres) -> None:
    said = await refusal(postgres.url("missing"), LogNotFound)
    assert "log=missing" in said and "gossiplog init" in said


async def test_a_database_that_is_not_there(postgres) -> None:
    assert '"nowhere"' in await refusal(postgres.url("a", database="nowhere"), LogNotFound)


async def test_a_server_that_is_down_is_said_at_once(postgres) -> None:
    with trio.fail_after(20):
        said = await refusal("postgresql://user:hunter2@127.0.0.1:1/db?log=a", StoreUnavailable, topic=TOPIC)
    assert "127.0.0.1:1" in said and "user@" in said


async def test_a_host_that_nobody_knows(postgres) -> None:
    await refusal("postgresql://user:hunter2@no.such.host.invalid/db?log=a", StoreUnavailable)


async def test_a_schema_of_somebody_else_is_left_alone(postgres) -> None:
    name = f"foreign{secrets.token_hex(3)}"
    await in_thread(postgres, f"CREATE SCHEMA gossiplog_{name}; CREATE TABLE gossiplog_{name}.theirs (a INTEGER)")
    for options in ({}, {"topic": TOPIC}, {"read_only": True}):
        assert "left as it is" in await refusal(postgres.url(name), ForeignFile, **options) or not options
    await in_thread(postgres, f"CREATE TABLE gossiplog_{name}.log (a INTEGER)")
    await refusal(postgres.url(name), ForeignFile, topic=TOPIC)


async def test_an_empty_schema_that_an_administrator_made_becomes_a_log(postgres) -> None:
    name = f"blank{secrets.token_hex(3)}"
    await in_thread(postgres, f"CREATE SCHEMA gossiplog_{name}")
    async with opened(postgres.url(name)) as log:
        await log.append(1)
        await assert_whole(log)


async def test_another_topic_and_a_topic_that_is_none(postgres, made) -> None:
    await refusal(postgres.new_log(), LocalProtocolError, topic="no topic!")
    url, _ = made
    assert "other.example.com" in await refusal(url, TopicMismatch, topic="other.example.com")


async def test_a_newer_schema_names_who_wrote_it(postgres, made) -> None:
    url, schema = made
    await in_thread(postgres, f"UPDATE {schema}.log SET schema_version = 99, program_version = '9.9.9'")
    said = await refusal(url, NewerVersion)
    assert "9.9.9" in said and "99" in said


async def test_a_log_that_is_migrated_while_it_is_open_is_not_written_to_any_more(postgres, made) -> None:
    url, schema = made
    async with opened(url) as log:
        await log.append(1)
        await in_thread(postgres, f"UPDATE {schema}.log SET schema_version = 99")
        with pytest.raises(NewerVersion):
            await log.append(2)
        assert await log.count() == 1


async def test_a_log_without_its_row_or_its_tables_is_damaged(postgres, made) -> None:
    url, schema = made
    await in_thread(postgres, f"ALTER TABLE {schema}.nodes RENAME TO elsewhere")
    with pytest.raises((DamagedLog, ReadOnlyLog)):
        async with opened(url) as log:
            await log.append(1)
    await in_thread(postgres, f"DELETE FROM {schema}.log")
    await refusal(url, DamagedLog)


@pytest.mark.parametrize(
    "name", ["app.example.com#notes", 'a"; DROP SCHEMA public; --', "%7Blog%7D {log} $1", "größe 大", "A", "a", "x" * 53]
)
async def test_a_name_may_have_any_letters(postgres, name) -> None:
    unique = name if len(name) > 40 else f"{name}{secrets.token_hex(3)}"
    async with opened(postgres.url(unique)) as log:
        await log.append_many(range(40))
        await assert_whole(log)
        assert await log.size_bytes() > 0
    async with opened(postgres.url(unique), read_only=True) as log:
        assert await log.count() == 40


async def test_a_server_that_is_set_read_only_can_be_read(postgres) -> None:
    url = postgres.new_log()
    async with opened(url) as log:
        await log.append(1)
    restricted = f"{url}&default_transaction_read_only=on"
    assert "default_transaction_read_only" in await refusal(restricted, ReadOnlyLog)
    async with opened(restricted, read_only=True) as log:
        assert await log.count() == 1
        with pytest.raises(ReadOnlyLog):
            await log.append(2)


def test_a_standby_can_be_read_and_not_written_to() -> None:
    with running_server(fsync="off") as server:
        url = server.new_log()

        async def write() -> None:
            async with opened(url) as log:
                await log.append_many(range(10))

        async def read() -> None:
            assert "standby" in await refusal(url, ReadOnlyLog)
            async with opened(url, read_only=True) as log:
                await assert_whole(log)
                assert await log.count() == 10
                async with log.subscribe() as events:
                    assert (await anext(events)).message.payload == 0

        trio.run(write)
        server.stop()
        (server.data / "standby.signal").touch()
        server.start()
        trio.run(read)


async def test_a_statement_that_takes_too_long_is_an_error_and_nothing_is_half_done(postgres) -> None:
    async def apply(entries, tx) -> None:
        await tx.execute("SELECT pg_sleep(30)")

    async with opened(f"{postgres.new_log()}&statement_timeout=100", apply=apply) as log:
        with pytest.raises(gossiplog.errors.CommitError, match="statement timeout"):
            await log.append(1)
        assert await log.count() == 0
        await assert_whole(log)


async def test_two_logs_of_one_database_know_nothing_of_each_other(postgres) -> None:
    async with opened(postgres.new_log()) as a, opened(postgres.new_log(), topic="other.example.com") as b:
        await a.append_many(range(30))
        await b.append_many(range(7))
        assert (await a.count(), await b.count()) == (30, 7)
        await assert_whole(a)
        await assert_whole(b)


async def test_payloads_with_nul_and_any_bytes_come_back(postgres) -> None:
    payloads = ["a\0b", b"\0" * 50, {"\0": ["\0"]}, b'"\\', "'; DROP TABLE x", b"x" * 60_000]
    async with opened(postgres.new_log()) as log:
        for payload in payloads:
            await log.append(payload)
        assert [entry.message.payload async for entry in log.iterate()] == payloads
        await assert_whole(log)


def test_asyncpg_hands_over_what_we_count_on() -> None:
    assert hasattr(asyncpg.Connection, "is_in_transaction") and hasattr(asyncpg.Connection, "get_server_pid")


async def test_the_keepalives_of_a_url_reach_the_socket(postgres) -> None:
    """In the loop of a connection of its own."""
    text = postgres.url("kept", keepalives_idle="23", keepalives_count="4")

    async def look() -> int:
        connection = await connect(PostgresUrl.parse(text))
        try:
            is_tcp = connection.place.family == socket.AF_INET
            return connection.place.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) if is_tcp else 23
        finally:
            await connection.close()

    assert await trio.to_thread.run_sync(asyncio.run, look()) == 23


async def test_what_is_stored_does_not_depend_on_how_the_server_reads_backslashes(postgres: PostgresServer) -> None:
    async with opened(f"{postgres.new_log()}&standard_conforming_strings=off") as log:
        appended = [await log.append(number) for number in range(3)]
        assert [entry.value async for entry in log.iterate()] == [entry.value for entry in appended]
        await assert_whole(log)


async def test_a_head_that_is_no_key_is_damage_for_a_writer_too(postgres: PostgresServer, made: tuple[str, str]) -> None:
    url, schema = made
    async with opened(url) as log:
        await log.append("x")
    await in_thread(postgres, f"UPDATE {schema}.entries SET key = '\\x00'; UPDATE {schema}.heads SET key = '\\x00'")
    async with opened(url) as log:
        with pytest.raises(DamagedLog, match="00 is not a key of 20 bytes"):
            await log.append("x")
