"""The application's side: what apply is given, what it may write, and what it may not."""

import pytest
import trio
from log_support import SIGNERS, TOPIC, all_of, assert_log_is, assert_whole, make

from gossiplog import Reject
from gossiplog.entry import Entry
from gossiplog.errors import LocalProtocolError, Rejected


class Recorder:
    """An `apply` that keeps what it was given, and refuses the payloads that it is told to."""

    def __init__(self, *refused: object) -> None:
        self.calls: list[list[Entry]] = []
        self.refused = set(refused)

    async def __call__(self, entries, tx) -> None:
        for entry in entries:
            if entry.message.payload in self.refused:
                raise Reject(f"{entry.message.payload} is refused", id=entry.id)
        self.calls.append(list(entries))

    @property
    def payloads(self) -> list[object]:
        return [entry.message.payload for call in self.calls for entry in call]


def family() -> dict[str, Entry]:
    """a ← b ← c, a ← d, e alone, f over c and d."""
    a = make("a")
    b = make("b", [a], SIGNERS[1])
    c = make("c", [b])
    d = make("d", [a])
    return {"a": a, "b": b, "c": c, "d": d, "e": make("e"), "f": make("f", [c, d])}


async def test_apply_sees_each_entry_once_with_its_parents_before_it(open_log) -> None:
    apply = Recorder()
    entries = family()
    async with open_log(apply=apply) as log:
        await log.insert_many([entry.value for entry in entries.values()])
        await log.insert_many([entry.value for entry in entries.values()])
        await log.append("g")
        assert apply.payloads == ["a", "b", "c", "d", "e", "f", "g"]
        assert [len(call) for call in apply.calls] == [6, 1]


async def test_what_apply_raises_about_stays_in_the_log_without_effect(open_log) -> None:
    apply = Recorder("b")
    entries = family()
    async with open_log(apply=apply) as log:
        verdicts = await log.insert_many([entry.value for entry in entries.values()])
        assert all(verdict.accepted and verdict.is_new for verdict in verdicts)
        assert [record async for record in log.quarantine()] == []
        (aside,) = [record async for record in log.set_aside()]
        assert aside[:4] == (entries["b"].key, "app", "Reject", "b is refused")
        assert sorted(set(apply.payloads)) == ["a", "c", "d", "e", "f"]
        late = make("late", [entries["f"]])
        assert (await log.insert(late.value)).is_new
        await assert_log_is(log, [*entries.values(), late])


async def test_a_refused_append_raises_and_stores_nothing_and_others_go_on(open_log) -> None:
    apply = Recorder("bad")
    async with open_log(apply=apply) as log:
        with pytest.raises(Rejected, match="bad is refused"):
            await log.append_many(["fine", "bad"])
        assert await log.count() == 0
        outcomes = []

        async def append(payload: str) -> None:
            try:
                outcomes.append((await log.append(payload)).message.payload)
            except Rejected:
                outcomes.append("refused")

        async with trio.open_nursery() as nursery:
            for payload in ["x", "bad", "y", "bad", "z"]:
                nursery.start_soon(append, payload)
        assert sorted(outcomes) == ["refused", "refused", "x", "y", "z"]
        assert [record async for record in log.set_aside()] == []
        await assert_whole(log)
        assert [entry.payload for entry in apply.calls[-1]] == [entry.payload for entry in await all_of(log)]


@pytest.mark.parametrize("id", [None, make("not among them").id, "nonsense"])
async def test_a_reject_that_names_no_entry_of_the_batch_is_about_the_one_it_was_raised_at(open_log, id) -> None:
    async def apply(entries, tx) -> None:
        for entry in entries:
            if entry.payload == "b":
                raise Reject("no", id=id)

    async with open_log(apply=apply) as log:
        verdicts = await log.insert_many([make(payload).value for payload in "abc"])
        assert all(verdict.is_new for verdict in verdicts)
        assert [record.reason async for record in log.set_aside()] == ["no"]
        with pytest.raises(Rejected, match="no"):
            await log.append("b")
        assert await log.count() == 3


async def test_any_other_exception_about_an_append_reaches_its_caller_alone(open_log) -> None:
    async def apply(entries, tx) -> None:
        if any(entry.message.payload == "bad" for entry in entries):
            raise ZeroDivisionError("mine")

    async with open_log(apply=apply) as log:
        outcomes = []

        async def append(payload: str) -> None:
            try:
                outcomes.append((await log.append(payload)).message.payload)
            except ZeroDivisionError:
                outcomes.append("raised")

        async with trio.open_nursery() as nursery:
            for payload in ["x", "bad", "y"]:
                nursery.start_soon(append, payload)
        assert sorted(outcomes) == ["raised", "x", "y"]
        await log.insert_many([make(1).value, make("bad").value, make(2).value])
        assert [record.kind async for record in log.set_aside()] == ["ZeroDivisionError"]
        await assert_whole(log)


async def test_a_rebuild_gives_apply_everything_in_causal_order_and_nothing_stops_it(open_log) -> None:
    apply = Recorder()
    async with open_log(apply=apply) as log:
        await log.append_many(range(2_300))
        apply.calls.clear()
        progress: list[int] = []
        assert [tuple(vars_of(each)) for each in await log.rebuild(on_progress=progress.append)] == [("app", 2_300, 0)]
        assert apply.payloads == list(range(2_300))
        assert max(len(call) for call in apply.calls) <= 1_024
        assert progress[-1] == 2_300
        apply.refused.add(1_500)
        (rebuilt,) = await log.rebuild("app")
        assert (rebuilt.entries, rebuilt.set_aside) == (2_300, 1)
        apply.refused.clear()
        await log.rebuild()
        assert [record async for record in log.set_aside()] == []
        await assert_whole(log)


def vars_of(rebuilt) -> list[object]:
    return [rebuilt.application, rebuilt.entries, rebuilt.set_aside]


async def test_a_rebuild_without_an_application_is_the_callers_mistake(open_log) -> None:
    async with open_log() as log:
        with pytest.raises(LocalProtocolError, match="application"):
            await log.rebuild()
        with pytest.raises(LocalProtocolError, match="other"):
            await log.rebuild("other")


async def test_apply_writes_its_own_tables_with_the_entries_or_not_at_all(open_durable) -> None:
    async def apply(entries, tx) -> None:
        await tx.execute("CREATE TABLE IF NOT EXISTS app (clock INTEGER PRIMARY KEY, payload TEXT)")
        await tx.execute_many("INSERT INTO app VALUES ($1, $2)", [(entry.clock, str(entry.message.payload)) for entry in entries])
        rows = await tx.execute("SELECT count(*) FROM app")
        assert rows[0][0] >= len(entries)
        if any(entry.message.payload == "bad" for entry in entries):
            raise ZeroDivisionError("mine")

    tables: list[list[tuple]] = []

    async def look(entries, tx) -> None:
        tables.append(await tx.execute("SELECT clock, payload FROM app ORDER BY clock"))

    async with open_durable(apply=apply) as log:
        await log.append_many(["a", "b"])
        with pytest.raises(ZeroDivisionError):
            await log.append_many(["c", "bad"])
        await log.append("d")
    async with open_durable(apply=look) as log:
        await log.append("look")
        assert tables == [[(1, "a"), (2, "b"), (3, "d")]]
        assert await log.count() == 4


HARMFUL = {
    "both": [
        "COMMIT",
        "ROLLBACK",
        "BEGIN",
        "SAVEPOINT x",
        " ; /* a /* nested */ comment */ -- and\n commit",
        "SELECT 1; DELETE FROM gossiplog_entries",
        "nonsense",
        "",
    ],
    "sqlite": [
        "DELETE FROM gossiplog_entries",
        "UPDATE gossiplog_heads SET key = x'00'",
        "INSERT INTO gossiplog_cursors VALUES ('x', 1)",
        "DROP TABLE gossiplog_leaves",
        "DROP INDEX gossiplog_links_up",
        "ALTER TABLE gossiplog_leaves RENAME TO mine",
        "CREATE TRIGGER mine AFTER INSERT ON gossiplog_entries BEGIN SELECT 1; END",
        "CREATE INDEX mine ON gossiplog_leaves (seq)",
        "CREATE TABLE gossiplog_mine (a)",
        "CREATE VIEW gossiplog_view AS SELECT 1",
        "CREATE TEMP TABLE gossiplog_heads (key)",
        "CREATE TEMP VIEW gossiplog_heads AS SELECT 1",
        "ATTACH ':memory:' AS other",
        "PRAGMA user_version = 9",
        "PRAGMA journal_mode = DELETE",
        "PRAGMA writable_schema = 1",
        "UPDATE sqlite_master SET sql = ''",
        "DELETE FROM sqlite_master",
        "VACUUM",
        "REINDEX gossiplog_links_up",
        "INSERT OR ROLLBACK INTO app VALUES (1)",
        "CREATE TABLE app (a UNIQUE ON CONFLICT /* */ Rollback)",
        "CREATE TRIGGER mine AFTER INSERT ON app BEGIN SELECT RAISE(ROLLBACK, 'all of it'); END",
        "WITH x AS (SELECT 1) DELETE FROM gossiplog_nodes",
        "delete from GOSSIPLOG_ENTRIES",
        'DELETE FROM "Gossiplog_Entries"',
        "DELETE FROM main.gossiplog_entries",
    ],
    "postgres": [
        "DELETE FROM LOG.entries",
        "UPDATE LOG.heads SET key = ''",
        "INSERT INTO LOG.cursors VALUES ('x', 1)",
        "TRUNCATE LOG.links",
        "DROP TABLE LOG.links",
        "DROP INDEX LOG.links_up",
        "DROP SCHEMA LOG CASCADE",
        "ALTER TABLE LOG.entries RENAME TO mine",
        "ALTER TABLE LOG.entries ADD COLUMN mine INTEGER",
        "CREATE INDEX mine ON LOG.entries (seq)",
        "CREATE TABLE LOG.mine (a INTEGER)",
        "CREATE VIEW LOG.mine AS SELECT 1",
        "WITH x AS (DELETE FROM LOG.nodes RETURNING 1) SELECT count(*) FROM x",
        "DO $$ BEGIN DELETE FROM LOG.entries; END $$",
        "DO $$ BEGIN COMMIT; END $$",
        "PREPARE TRANSACTION 'x'",
        "SET search_path = LOG",
        "RESET ALL",
        "DISCARD ALL",
        "VACUUM LOG.entries",
        "REINDEX TABLE LOG.entries",
        "LOCK TABLE LOG.entries IN ACCESS EXCLUSIVE MODE",
        "ROLLBACK TO SAVEPOINT gossiplog_apply",
        "SELECT 1/0",
    ],
}


async def test_apply_cannot_harm_the_log(open_durable) -> None:
    """One statement after the other, each within a commit of several entries and in one of its own, with a whole log after it."""
    statements = [each.replace("LOG", f'"{open_durable.schema()}"') for each in HARMFUL["both"] + HARMFUL[open_durable.store]]
    raised: list[BaseException] = []

    async def apply(entries, tx) -> None:
        try:
            await tx.execute(entries[0].payload)
        except Exception as error:
            raised.append(error)

    async with open_durable(apply=apply) as log:
        for number, statement in enumerate(statements, 1):
            await log.append_many([statement, "b"])
            await log.append(statement)
            assert len(raised) == (0 if statement == "" else 2), statement
            assert all(isinstance(error, LocalProtocolError) or type(error).__name__ == "StatementError" for error in raised), raised
            raised.clear()
            await assert_whole(log)
            assert await log.count() == 3 * number
    async with open_durable() as log:
        await assert_whole(log)
        assert (log.topic, await log.count()) == (TOPIC, 3 * len(statements))


async def test_apply_that_hangs_and_is_cancelled_leaves_nothing_behind(open_log) -> None:
    hanging = trio.Event()

    async def apply(entries, tx) -> None:
        if entries[0].message.payload == "hang":
            hanging.set()
            await trio.sleep_forever()

    with trio.CancelScope() as scope:
        async with open_log(apply=apply) as log, trio.open_nursery() as nursery:
            await log.append("a")
            nursery.start_soon(log.append, "hang")
            await hanging.wait()
            scope.cancel()
    assert scope.cancelled_caught


async def test_a_reason_that_no_database_can_store_is_stored_as_well_as_it_can_be(open_log) -> None:
    """Its text may come from the entry, so whoever wrote that would otherwise stop every commit after it."""

    def apply(entries, tx) -> None:
        for entry in entries:
            if entry.message.payload != "fine":
                raise ValueError("no\0t \ud800 this")

    bad, fine = make("bad"), make("fine")
    async with open_log(apply=apply) as log:
        assert [verdict.is_new for verdict in await log.insert_many([bad.value, fine.value])] == [True, True]
        (record,) = [record async for record in log.set_aside()]
        assert record.key == bad.key and record.reason.startswith("no") and record.reason.endswith("this")
        await assert_whole(log)
