"""What no application asked for harms none: neither parts of the kit nor the examples, on any store."""

import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest
from kit_support import FOLDER, LIKES, ORDER, TAGS, TODOS, everything, together
from log_support import SIGNERS, TOPIC, assert_whole

import gossiplog
from gossiplog.testing import POISON, Author
from gossiplog.testing.poison import poisoned

EXAMPLES = Path(__file__).parents[2] / "examples"
sys.path.append(str(EXAMPLES / "todo"))

import todo  # noqa: E402


def write_todo(author: Author) -> Any:
    return author.random.choice([todo.items.insert("milk"), todo.items.remove("0" * 32), todo.done.add("0" * 32)])


WRITERS = {"kit": everything, "todo": write_todo}
PARTS = {"kit": [TODOS, LIKES, TAGS, ORDER, FOLDER], "todo": [todo.items, todo.done]}
WRITTEN = {"kit": together, "todo": todo.application}


async def poisonous_log(name: str) -> list[bytes]:
    """Every kind of poison, and what is nearly an operation, by a stranger: as one chain, with an operation here and there."""
    random = Random(name)
    author = Author(random, SIGNERS[1].did, [], lambda sql, *parameters: [])
    payloads = [*POISON, *(poisoned(random, WRITERS[name](author)) for _ in range(60)), *(WRITERS[name](author) for _ in range(20))]
    random.shuffle(payloads)
    async with gossiplog.open(":memory:", topic=TOPIC, signer=SIGNERS[1]) as log:
        return [entry.value for entry in await log.append_many(payloads)]


@pytest.mark.parametrize("name", WRITTEN)
async def test_poison_is_taken_and_has_no_effect(open_log, name: str) -> None:
    values = await poisonous_log(name)
    async with open_log(app=WRITTEN[name]) as log, gossiplog.open(":memory:", topic=TOPIC, app=WRITTEN[name]) as alone:
        verdicts = await log.insert_many(values)
        assert all(verdict.accepted and verdict.is_new for verdict in verdicts)
        for start in range(0, len(values), 7):
            assert all(verdict.is_new for verdict in await alone.insert_many(values[start : start + 7]))
        assert await log.root() == await alone.root()
        own = await log.append(WRITERS[name](Author(Random(1), SIGNERS[0].did, [], lambda sql, *parameters: [])))
        assert own.parent_keys
        await alone.insert(own.value)
        for table in [table for part in PARTS[name] for table in part.tables]:
            rows = f"SELECT * FROM {table}"
            assert sorted(map(repr, await log.query(rows))) == sorted(map(repr, await alone.query(rows)))
        await assert_whole(log)
