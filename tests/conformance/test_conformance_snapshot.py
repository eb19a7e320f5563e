"""A log that begins with a snapshot, clock 0, is a log like others in every store."""

from itertools import product

from log_support import SIGNERS, Graph, assert_log_is, assert_whole, make
from snapshot_support import SCHEMES, SNAPSHOT, SNAPSHOT_TOPIC

from gossiplog import Application
from gossiplog.entry import Entry


def history() -> list[Entry]:
    """More branches begin at the snapshot than a search follows before it has seen all that one of them descends from."""
    children = [make(f"child {number}", [SNAPSHOT], SIGNERS[number % 4], SNAPSHOT_TOPIC) for number in range(12)]
    grandchildren = [make(f"grandchild {number}", [children[number]], SIGNERS[1], SNAPSHOT_TOPIC) for number in (3, 8, 11)]
    return [SNAPSHOT, *children, *grandchildren, make("last", grandchildren[:2], SIGNERS[2], SNAPSHOT_TOPIC)]


async def test_a_snapshot_is_the_ancestor_of_all_that_descends_from_it(open_log) -> None:
    entries = history()
    graph = Graph(entries)
    async with open_log(topic=SNAPSHOT_TOPIC, schemes=SCHEMES) as log:
        assert all(verdict.accepted for verdict in await log.insert_many([entry.value for entry in entries]))
        await assert_log_is(log, entries)
        await assert_whole(log)
        for a, b in product(entries, repeat=2):
            assert await log.is_ancestor(a.id, b.id) == (a.key in graph.ancestors[b.key]), (a.id, b.id)
        assert await log.children(SNAPSHOT.id) == sorted(entry.id for entry in entries[1:13])
        assert [entry.id async for entry in log.ancestors(entries[-1].id)][-1] == SNAPSHOT.id
        assert await log.clock() == 4


async def test_an_application_and_an_access_rule_see_a_snapshot_as_what_comes_first(open_durable) -> None:
    entries = history()

    def apply(batch, tx) -> None:
        for entry in batch:
            tx.execute("INSERT INTO seen VALUES ($1, $2, $3)", [entry.id, entry.clock, tx.is_ancestor(SNAPSHOT.id, entry.id)])

    def reset(tx) -> None:
        tx.execute("DROP TABLE IF EXISTS seen")
        tx.execute("CREATE TABLE seen (id TEXT, clock INTEGER, has_it BOOLEAN)")

    def authorize(message, did, past) -> bool:
        return message.clock == 0 or past.is_ancestor(SNAPSHOT.id)

    options = {"topic": SNAPSHOT_TOPIC, "schemes": SCHEMES, "app": Application("seen", 1, apply, reset=reset), "authorize": authorize}
    async with open_durable(**options) as log:
        assert all(verdict.accepted for verdict in await log.insert_many([entry.value for entry in entries]))
        await log.append("mine")
        rows = await log.query("SELECT id, clock, has_it FROM seen ORDER BY id")
        assert tuple(rows[0][:2]) == (SNAPSHOT.id, 0)
        assert [bool(row[2]) for row in rows] == [False] + [True] * len(entries)
        await log.rebuild()
        assert await log.query("SELECT id, clock, has_it FROM seen ORDER BY id") == rows
