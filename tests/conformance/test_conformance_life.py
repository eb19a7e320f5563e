"""How tables follow a log: behind, of another version, after a crash, when others write; and how they are read."""

import pytest
import trio
from conformance.conftest import OpenLog
from log_support import SIGNERS, all_of, assert_whole, make

import gossiplog
from gossiplog import Application
from gossiplog.errors import LocalProtocolError, NewerVersion, SnapshotExpired, StatementError
from gossiplog.log.requests import ReadCursor, WriteCursor
from gossiplog.plan import ask


def counting(version: int = 1, *, name: str = "app", table: str = "counted", is_async: bool = False, **options) -> Application:
    """An application that keeps one row an entry, the text of its payload, which it cannot read where it is `bad`."""

    def reset(tx) -> None:
        tx.execute(f"DROP TABLE IF EXISTS {table}")
        tx.execute(f"CREATE TABLE {table} (id TEXT PRIMARY KEY, payload TEXT)")

    def apply(entries, tx) -> None:
        for entry in entries:
            text = f"{version}:{entry.payload}"
            tx.execute(f"INSERT INTO {table} VALUES ($1, $2)", (entry.id, text))
            if entry.payload == "bad":
                raise ValueError("unreadable")

    async def apply_async(entries, tx) -> None:
        for entry in entries:
            await tx.execute(f"INSERT INTO {table} VALUES ($1, $2)", (entry.id, f"{version}:{entry.payload}"))
            if entry.payload == "bad":
                raise ValueError("unreadable")

    return Application(name, version, apply_async if is_async else apply, reset, **options)


async def payloads(log, table: str = "counted") -> list[str]:
    return sorted(text for (text,) in await log.query(f"SELECT payload FROM {table}"))


@pytest.mark.parametrize("is_async", [False, True])
async def test_tables_follow_and_can_be_queried(open_log: OpenLog, is_async) -> None:
    async with open_log(app=counting(is_async=is_async)) as log:
        await log.append("a")
        await log.insert_many([make("b").value, make("bad").value, make("c").value])
        with pytest.raises(ValueError, match="unreadable"):
            await log.append("bad")
        assert await payloads(log) == ["1:a", "1:b", "1:c"]
        assert await log.count() == 4
        assert await log.query("SELECT count(*) FROM counted WHERE payload = $1", "1:a") == [(1,)]
        moment = await log.moment()
        assert await log.query("SELECT count(*) FROM counted", at=moment) == [(3,)]
        await log.append("d")
        with pytest.raises(SnapshotExpired):
            await log.query("SELECT 1", at=moment)
        for statement in ("DELETE FROM counted", "DROP TABLE counted", "COMMIT"):
            with pytest.raises(LocalProtocolError):
                await log.query(statement)
        with pytest.raises(StatementError):
            await log.query("SELECT nonsense FROM nowhere")
        assert len(await payloads(log)) == 4
        await assert_whole(log)


async def test_parameters_are_those_of_their_numbers(open_durable: OpenLog) -> None:
    second_first = "SELECT CAST($2 AS TEXT) || '$3' || CAST($1 AS TEXT) || CAST($2 AS TEXT) -- $4"
    async with open_durable(app=counting()) as log:
        await log.append("a")
        assert await log.query(second_first, "a", "b") == [("b$3ab",)]
        for parameters in ((), ("a",), ("a", "b", "c")):
            with pytest.raises(StatementError):
                await log.query(second_first, *parameters)


@pytest.mark.parametrize("parameters", [[], ["a", "b"]])
async def test_a_statement_with_too_few_parameters_or_too_many_is_wrong(open_log: OpenLog, parameters) -> None:
    refused = []

    def apply(entries, tx) -> None:
        for execute, given in ((tx.execute, parameters), (tx.execute_many, [parameters])):
            with pytest.raises(StatementError) as raised:
                execute("DELETE FROM counted WHERE payload = $1", given)
            refused.append(raised.value)

    async with open_log(app=Application("app", 1, apply, counting().reset)) as log:
        await log.append("a")
        assert len(refused) == 2


async def test_a_snapshot_has_the_rows_of_its_entries(open_durable: OpenLog) -> None:
    async with open_durable(app=counting()) as log:
        await log.append("a")
        async with log.snapshot() as snapshot:
            await log.append("b")
            assert await log.query("SELECT payload FROM counted", at=snapshot) == [("1:a",)]
        assert await payloads(log) == ["1:a", "1:b"]


async def test_what_was_stored_without_the_application_is_applied_at_opening(
    open_durable: OpenLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gossiplog.log.applying.PAGE", 20)
    async with open_durable() as log:
        await log.append_many(["a", "b"])
    async with open_durable(app=counting()) as log:
        assert await payloads(log) == ["1:a", "1:b"]
    async with open_durable() as log:
        await log.append_many([str(number) for number in range(30)])
        await log.insert(make("bad").value)
    async with open_durable(app=[counting(), counting(name="other", table="others")]) as log:
        assert len(await payloads(log)) == len(await payloads(log, "others")) == 32
        assert [(record.application, record.kind) async for record in log.set_aside()] == [("app", "ValueError"), ("other", "ValueError")]
        await log.append("after")
        assert len(await payloads(log)) == len(await payloads(log, "others")) == 33


@pytest.mark.parametrize("is_async", [False, True])
async def test_another_version_has_its_tables_built_anew(open_durable: OpenLog, is_async) -> None:
    async with open_durable(app=counting()) as log:
        await log.append_many(["a", "b"])
        await log.insert(make("bad").value)
    seen: list[int] = []
    async with open_durable(app=counting(2, is_async=is_async), on_rebuild=seen.append) as log:
        assert await payloads(log) == ["2:a", "2:b"]
        assert seen == [3]
    with pytest.raises(NewerVersion, match="version 2, this is 1"):
        async with open_durable(app=counting(1)):
            pass
    async with open_durable() as log:
        (rebuilt,) = await log.rebuild(counting(1))
        assert (rebuilt.entries, rebuilt.set_aside) == (3, 1)
        assert await payloads(log) == ["1:a", "1:b"]


async def test_a_rebuild_that_fails_leaves_the_tables_as_they_were(open_durable: OpenLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gossiplog.replica.applications._PAGE", 20)
    async with open_durable(app=counting()) as log:
        await log.append_many([str(number) for number in range(50)])
        before = await payloads(log)

    def stop(count: int) -> None:
        if count >= 40:
            raise KeyError("interrupted")

    with pytest.raises((KeyError, BaseExceptionGroup)):
        async with open_durable(app=counting(2), on_rebuild=stop):
            pass
    async with open_durable(app=counting()) as log:
        assert await payloads(log) == before
    async with open_durable(app=counting(2)) as log:
        assert len(await payloads(log)) == 50


async def test_a_running_process_follows_what_others_store(postgres) -> None:
    server = OpenLog("postgres", lambda name: url, postgres)
    schema = f"app_{postgres.new_log().rpartition('-')[2].partition('&')[0][:20]}".replace("=", "_")
    postgres.sql(f'CREATE SCHEMA "{schema}"')
    url = postgres.url(schema, search_path=schema)
    async with server(app=counting()) as log, server(signer=SIGNERS[1]) as other, server(app=counting(), signer=SIGNERS[2]) as third:
        await other.append("theirs")
        await log.append("mine")
        assert await payloads(log) == ["1:mine", "1:theirs"]
        await other.append("later")
        with trio.fail_after(30):
            while len(await payloads(log)) < 3:
                await trio.sleep(0.01)
        await third.append("third")
        assert len(await payloads(log)) == len(await all_of(log)) == 4
        # A newer version takes over; the older ones go on storing, and it follows.
        async with server(app=counting(2), signer=SIGNERS[3]) as newer:
            await log.append("old")
            await newer.append("new")
            assert await payloads(newer) == ["2:later", "2:mine", "2:new", "2:old", "2:theirs", "2:third"]


@pytest.mark.parametrize("order_free", [False, True])
async def test_what_was_set_aside_is_applied_when_it_can_be(open_log: OpenLog, order_free) -> None:
    calls: list[list[object]] = []
    broken = {"bad"}

    def apply(entries, tx) -> None:
        if any(entry.payload in broken for entry in entries):
            raise TypeError("not yet")
        calls.append([entry.payload for entry in entries])

    async with open_log(app=Application("app", 1, apply, order_free=order_free)) as log:
        first = make("bad")
        await log.insert_many([first.value, make("over it", [first]).value, make("beside").value])
        (tried,) = await log.retry_set_aside()
        assert tried.set_aside == 1
        broken.clear()
        calls.clear()
        (tried,) = await log.retry_set_aside("app")
        assert tried.set_aside == 0
        assert calls == ([["bad"]] if order_free else [calls[0]]) and (order_free or sorted(calls[0]) == ["bad", "beside", "over it"])
        assert [record async for record in log.set_aside()] == []
        # Nothing comes after this one, so it takes no rebuild.
        broken.add("last")
        await log.insert(make("last", [first]).value)
        broken.clear()
        calls.clear()
        await log.retry_set_aside()
        assert calls == [["last"]]


async def test_an_append_within_apply_raises_at_once(open_log: OpenLog) -> None:
    async def apply(entries, tx) -> None:
        await log.append("more")

    async with open_log(apply=apply) as log:
        with trio.fail_after(30), pytest.raises(LocalProtocolError, match="wait for itself"):
            await log.append("a")
        assert await log.count() == 0


async def test_apply_asks_about_the_entries_that_it_is_given(open_log: OpenLog) -> None:
    answers = {}

    def apply(entries, tx) -> None:
        for entry in entries:
            parents = entry.message.parents
            answers[entry.payload] = [(tx.get(id).payload, tx.is_ancestor(id, entry.id), tx.is_ancestor(entry.id, id)) for id in parents]
            assert tx.get(make("nowhere").id) is None

    a = make("a")
    b = make("b", [a])
    c = make("c", [b])
    async with open_log(apply=apply) as log:
        await log.insert_many([a.value, b.value])
        await log.insert(c.value)
        assert [record async for record in log.set_aside()] == []
    assert answers == {"a": [], "b": [("a", True, False)], "c": [("b", True, False)]}


@pytest.mark.parametrize("batches", [[4], [1, 3], [3, 1], [1, 1, 1, 1]])
@pytest.mark.parametrize("is_async", [False, True])
async def test_what_the_log_lacks_is_no_ancestor_in_any_batch(open_log: OpenLog, batches: list[int], is_async: bool) -> None:
    chain = [make("a")]
    for payload in ("b", "c", "d"):
        chain.append(make(payload, [chain[-1]]))
    low, high = sorted((make(f"low {n}") for n in range(9)), key=lambda entry: entry.id)[0], make("high", chain)
    asked = [(low.id, None), (high.id, None), (None, low.id), (None, high.id), (low.id, high.id)]
    answers: dict[str, list[bool]] = {}

    def apply(entries, tx) -> None:
        for entry in entries:
            answers[entry.payload] = [tx.is_ancestor(a or entry.id, b or entry.id) for a, b in asked]

    async def apply_async(entries, tx) -> None:
        for entry in entries:
            answers[entry.payload] = [await tx.is_ancestor(a or entry.id, b or entry.id) for a, b in asked]

    nothing = {entry.payload: [False] * len(asked) for entry in chain}
    async with open_log(apply=apply_async if is_async else apply) as log:
        rest = list(chain)
        for size in batches:
            await log.insert_many([entry.value for entry in rest[:size]])
            del rest[:size]
        assert [record async for record in log.set_aside()] == []
        assert answers == nothing
        answers.clear()
        await log.rebuild()
        assert answers == nothing
        answers.clear()
        # What is here by now is no ancestor of what was here before it.
        await log.insert(low.value)
        await log.rebuild()
        assert [record async for record in log.set_aside()] == []
        assert answers == {**nothing, low.payload: [False] * len(asked)}


async def test_a_function_that_returns_something_to_await_is_a_mistake(open_log: OpenLog) -> None:
    async def later() -> None:
        pass

    async with open_log(apply=lambda entries, tx: later()) as log:
        with pytest.raises(LocalProtocolError, match="await"):
            await log.append("a")


@pytest.mark.parametrize(("name", "version"), [("", 1), ("Upper", 1), ("a" * 65, 1), ("fine", 0), ("fine", True), ("fine", 1.0)])
def test_an_application_has_a_name_and_a_version(name, version) -> None:
    with pytest.raises(LocalProtocolError):
        Application(name, version, lambda entries, tx: None)


async def test_two_applications_of_one_name_are_refused() -> None:
    with pytest.raises(LocalProtocolError, match="same name"):
        async with gossiplog.open(":memory:", topic="a", app=[counting(), counting(2)]):
            pass


class Undone(Exception):
    """Raised at the end of a rehearsal."""


async def test_what_is_rehearsed_is_not_in_the_log(open_log: OpenLog) -> None:
    async with open_log() as log:
        await log.append("kept")
        with pytest.raises(Undone):
            async with log._store.rehearsal() as store, store.transaction() as transaction:
                assert store.topic == log.topic and store.location == log.location
                await transaction.run(ask(WriteCursor("rehearsed", 1)))
                raise Undone
        assert await log.run(ask(ReadCursor("rehearsed"))) is None
        await log.append("after it")
        await assert_whole(log)
