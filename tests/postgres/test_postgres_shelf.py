"""A shelf in a database: its logs share connections, and hear of other processes' commits on one of them."""

import json
import secrets
from collections.abc import Iterator

import pytest
import trio
from click.testing import CliRunner
from postgres_support import PostgresServer

import gossiplog
from gossiplog.cli.app import root
from gossiplog.errors import LocalProtocolError, LogNotFound, ShelfFull, TopicMismatch
from gossiplog.net.hub.client import parse_url
from gossiplog.shelves import Shelf

SIGNER = gossiplog.Ed25519Signer.generate()
LONG = "X" * 100


@pytest.fixture
def place(postgres: PostgresServer) -> Iterator[tuple[str, str]]:
    """A database of its own: its URL, and its name."""
    name = f"shelf_{secrets.token_hex(4)}"
    postgres.sql(f"CREATE DATABASE {name}")
    yield postgres.url(database=name), name
    postgres.sql(f"DROP DATABASE {name} WITH (FORCE)")


async def test_those_who_create_at_the_same_time_are_counted_with_those_that_are_there(place: tuple[str, str]) -> None:
    refused: list[str] = []

    async def create(shelf: Shelf, topic: str) -> None:
        try:
            async with shelf.open(topic, create=True):
                pass
        except ShelfFull:
            refused.append(topic)

    with trio.fail_after(60):
        for group, there in (("first", 0), ("later", 2)):
            async with gossiplog.shelf(place[0], most_open=8, most_logs=2, durability="off") as shelf:
                async with trio.open_nursery() as nursery:
                    for number in range(5):
                        nursery.start_soon(create, shelf, f"{group}-{number}")
                assert len(await shelf.topics()) == 2 and len(refused) == 3 + there
            refused.clear()


async def test_logs_of_a_database_share_few_connections_and_hear_of_others(postgres: PostgresServer, place: tuple[str, str]) -> None:
    url, name = place
    topics = [*(f"room-{number}" for number in range(12)), "Doc:1", LONG]
    with trio.fail_after(60):
        async with gossiplog.shelf(url, signer=SIGNER, most_open=13, most_logs=14, durability="off") as shelf:
            with pytest.raises(LogNotFound):
                async with shelf.open("room-0"):
                    pass
            for topic in topics:
                async with shelf.open(topic, create=True) as log:
                    await log.append(topic)
            assert await shelf.topics() == sorted(topics)
            assert 14 * 50_000 < await shelf.size_bytes() < 14 * 5_000_000
            with pytest.raises(ShelfFull):
                async with shelf.open("one-more", create=True):
                    pass
            heard: list[str] = []

            async def follow(topic: str, *, task_status: trio.TaskStatus[None]) -> None:
                async with shelf.open(topic) as log, log.subscribe() as entries:
                    assert (await anext(entries)).payload == topic
                    task_status.started()
                    heard.append((await anext(entries)).payload)

            async with trio.open_nursery() as nursery, gossiplog.shelf(url, signer=SIGNER, durability="off") as other:
                for topic in topics[-12:]:
                    await nursery.start(follow, topic)
                while len([log for log in shelf.logs.open_topics if log in topics[-12:]]) < 12:
                    await trio.sleep(0.01)
                [count] = await trio.to_thread.run_sync(
                    lambda: postgres.sql("SELECT count(*) FROM pg_stat_activity WHERE datname = $1 AND state = 'idle'", name)
                )
                assert count[0] < 12, "each log has connections of its own"
                began = trio.current_time()
                for topic in topics[-12:]:
                    async with other.open(topic) as log:
                        await log.append(f"new in {topic}")
            # By polling alone it takes 5 s.
            assert trio.current_time() - began < 5
            assert sorted(heard) == sorted(f"new in {topic}" for topic in topics[-12:])
        async with gossiplog.open(f"{postgres.url('room-0', database=name)}") as log:
            assert log.topic == "room-0" and (await log.fsck()).is_clean
        async with gossiplog.open(postgres.url("wrong", database=name), topic="another"):
            pass
        async with gossiplog.shelf(url) as shelf:
            with pytest.raises(TopicMismatch):
                async with shelf.open("wrong"):
                    pass
    with pytest.raises(LocalProtocolError):
        async with gossiplog.shelf(postgres.url("app", database=name)):
            pass


async def test_a_server_serves_a_database_after_it_was_away(postgres: PostgresServer, place: tuple[str, str]) -> None:
    url, name = place
    async with gossiplog.shelf(url, signer=SIGNER) as shelf, shelf.listen("127.0.0.1:0") as hub:
        async with shelf.open("a", create=True) as log:
            await log.append(1)
        for _ in range(2):
            for topic, expected in (("a", 200), ("b", 404)):
                server = parse_url(f"http://127.0.0.1:{hub.port}", of_server=True)
                assert (await server.ask(f"/{topic}/api/heads", answer_bytes_max=10_000)).status == expected
            # All of its connections break at once.
            await trio.to_thread.run_sync(
                lambda: postgres.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", name)
            )


def test_the_command_line_knows_a_database_of_logs(postgres: PostgresServer, place: tuple[str, str], tmp_path) -> None:
    url, _ = place

    def run(*args: str, code: int = 0) -> list[dict]:
        result = CliRunner().invoke(root, [*args, "--json"], prog_name="gossiplog")
        assert result.exit_code == code, result.stderr
        return [json.loads(line) for line in result.stdout.splitlines()]

    async def fill() -> None:
        async with gossiplog.shelf(tmp_path, signer=SIGNER) as shelf:
            for topic in ("a", LONG):
                async with shelf.open(topic, create=True) as log:
                    await log.append(topic)

    trio.run(fill)
    done = run("sync", "--all", str(tmp_path), url, "--create")
    assert {each["topic"]: (each["pushed"], each["equal"]) for each in done} == {"a": (1, True), LONG: (1, True)}
    *rows, total = run("stat", url)
    assert [each["topic"] for each in rows] == [LONG, "a"] and total["count"] == 2
    run("sync", url, str(tmp_path / "a.db"), code=2)
    run("heads", url, code=2)
