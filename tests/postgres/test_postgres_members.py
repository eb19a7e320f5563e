"""A log with members that is copied into a database and out of it: who may write and what counts are the same there, then and later."""

import random
from pathlib import Path
from typing import Any

import pytest
from access_support import sign_story, story
from log_support import assert_whole
from postgres_support import PostgresServer

import gossiplog
from gossiplog import Application

NAME = "team.example.com"


def reset(tx: Any) -> None:
    tx.execute("DROP TABLE IF EXISTS said")
    tx.execute("CREATE TABLE said (id TEXT PRIMARY KEY, node TEXT, role TEXT)")


def apply(entries: Any, tx: Any) -> None:
    for entry in entries:
        tx.execute("INSERT INTO said VALUES ($1, $2, $3)", (entry.id, entry.standing.node, entry.standing.role))


def undo(entries: Any, tx: Any) -> None:
    for entry in entries:
        tx.execute("DELETE FROM said WHERE id = $1", (entry.id,))


REBUILT = Application("said", 1, apply, reset)
UNDONE = Application("said", 1, apply, reset, order_free=True, undo=undo)


async def all_about(log: Any) -> dict[str, Any]:
    """Everything that members decide, but for the order of arrival."""
    ids = [entry.id async for entry in log.iterate()]
    return {
        "root": await log.root(),
        "heads": await log.heads(),
        "policy": await log.policy(),
        "standings": {id: await log.standing(id) for id in ids},
        "void": await log.find_void(ids),
        "members": {member.node: (member.to_record()) for member in await log.members()},
        "said": sorted(await log.query("SELECT id, node, role FROM said")),
    }


@pytest.mark.parametrize("seed", [2, 5, 7, 391])
async def test_members_and_what_counts_survive_a_copy_into_a_database_and_back_and_what_comes_later(
    postgres: PostgresServer, tmp_path: Path, seed: int
) -> None:
    told, rng = story(seed), random.Random(seed)
    signed = [entry.value for entry, _ in sign_story(told, NAME)]
    topic = told.policy.topic(NAME)
    schema = f"members-copy-{seed}"
    postgres.sql(f'CREATE SCHEMA "app-{schema}"')
    half = rng.randrange(10, len(signed) - 10)
    async with (
        gossiplog.open(tmp_path / "source.db", topic=topic, app=REBUILT) as source,
        gossiplog.open(postgres.url(schema, search_path=f"app-{schema}"), topic=topic, app=UNDONE) as database,
        gossiplog.open(tmp_path / "back.db", topic=topic, app=REBUILT) as back,
    ):
        await source.insert_many(signed[:half])
        report = await database.copy_from(source)
        assert report.is_equal and not report.failed
        assert await all_about(database) == await all_about(source)
        # Later removals and admissions, which the copies hear of each in its own batches.
        for value in signed[half:]:
            await database.insert(value)
        await source.insert_many(signed[half:])
        assert (await back.copy_from(database)).is_equal
        expected = await all_about(source)
        assert expected["void"], "something is void"
        for log in (database, back):
            assert await all_about(log) == expected
            await assert_whole(log)
