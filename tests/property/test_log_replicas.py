"""Two replicas under any history of appends, inserts, syncs and restarts, against plain sets and a search by brute force."""

from collections.abc import Callable
from itertools import product
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from log_support import SIGNERS, Graph, assert_log_is, make, opened
from postgres_support import PostgresServer

from gossiplog.entry import Entry, encode_id

SIDES = st.sampled_from(["a", "b"])
INDEX = st.integers(0, 10_000)
OPERATIONS = st.one_of(
    st.tuples(st.just("append"), SIDES, st.integers(1, 40), INDEX),
    st.tuples(st.just("group"), SIDES, st.integers(2, 12), INDEX),
    st.tuples(st.just("insert"), SIDES, st.lists(st.lists(INDEX, max_size=4), min_size=1, max_size=6), INDEX),
    st.tuples(st.just("shuffled"), SIDES, st.lists(st.lists(INDEX, max_size=3), min_size=1, max_size=12), INDEX),
    st.tuples(st.just("again"), SIDES, st.integers(1, 10), INDEX),
    st.tuples(st.just("sync"), SIDES, st.none(), INDEX),
    st.tuples(st.just("restart"), SIDES, st.none(), INDEX),
)


class Replicas:
    """Two logs, and what each of them must hold."""

    def __init__(self, nursery: trio.Nursery, locate: Callable[[str], str | Path]) -> None:
        self.nursery = nursery
        self.locate = locate
        self.logs: dict[str, object] = {}
        self.closing: dict[str, tuple[trio.Event, trio.Event]] = {}
        self.expected: dict[str, dict[bytes, Entry]] = {"a": {}, "b": {}}
        self.made = 0

    async def open(self, side: str) -> None:
        """Hold each log open in a task of its own, so that any of them can be closed first."""
        self.closing[side] = (trio.Event(), trio.Event())
        self.logs[side] = await self.nursery.start(self.hold, side)

    async def hold(self, side: str, task_status=trio.TASK_STATUS_IGNORED) -> None:
        close, closed = self.closing[side]
        async with opened(self.locate(side)) as log:
            task_status.started(log)
            await close.wait()
        closed.set()

    async def close(self, side: str) -> None:
        close, closed = self.closing[side]
        close.set()
        await closed.wait()

    async def do(self, kind: str, side: str, argument, index: int) -> None:
        log, expected = self.logs[side], self.expected[side]
        random = Random(index)
        match kind:
            case "append":
                entries = await log.append_many([self.next() for _ in range(argument)], signer=SIGNERS[index % 4])
                expected.update((entry.key, entry) for entry in entries)
            case "group":
                async with trio.open_nursery() as nursery:
                    for _ in range(argument):
                        nursery.start_soon(self.append_one, side)
            case "insert" | "shuffled":
                entries = self.grow(expected, argument, index)
                if kind == "shuffled":
                    random.shuffle(entries)
                verdicts = await log.insert_many([entry.value for entry in entries])
                for entry, verdict in zip(entries, verdicts, strict=True):
                    is_complete = all(key in expected for key in entry.parent_keys)
                    assert (verdict.rule, verdict.is_new) == ((None, entry.key not in expected) if is_complete else ("parents", False))
                    if is_complete:
                        expected[entry.key] = entry
            case "again":
                known = random.sample(sorted(expected), min(argument, len(expected)))
                verdicts = await log.insert_many([expected[key].value for key in known])
                assert all(verdict.accepted and not verdict.is_new for verdict in verdicts)
            case "sync":
                other = "b" if side == "a" else "a"
                missing = len(self.expected[other].keys() - expected.keys())
                result = await log.sync(self.logs[other])
                assert (result.entries, result.orphans, result.rejected) == (missing, 0, 0)
                expected.update(self.expected[other])
            case "restart":
                if self.locate(side) != ":memory:":
                    await self.close(side)
                    await self.open(side)

    async def append_one(self, side: str) -> None:
        entry = await self.logs[side].append(self.next())
        self.expected[side][entry.key] = entry

    def grow(self, expected: dict[bytes, Entry], shapes: list[list[int]], index: int) -> list[Entry]:
        """Entries over any of those there are, heads or not, and over each other; duplicates and redundant parents as they come."""
        known = [expected[key] for key in sorted(expected)]
        entries: list[Entry] = []
        for shape in shapes:
            pool = known + entries
            # Half of the choices fall among the latest, so that branches get long.
            chosen = [pool[-1 - at % min(len(pool), 6)] if at % 2 else pool[at % len(pool)] for at in shape] if pool else []
            entries.append(make(self.next(), chosen, SIGNERS[index % 4]))
        return entries

    def next(self) -> int:
        self.made += 1
        return self.made


async def play(locate: Callable[[str], str | Path], operations: list) -> None:
    async with trio.open_nursery() as nursery:
        replicas = Replicas(nursery, locate)
        for side in "ab":
            await replicas.open(side)
        for operation in operations:
            await replicas.do(*operation)
        for side in "ab":
            await check_graph(replicas.logs[side], replicas.expected[side])
        for side in "ab":
            await replicas.do("sync", side, None, 0)
        assert await replicas.logs["a"].root() == await replicas.logs["b"].root()
        for side in "ab":
            await assert_log_is(replicas.logs[side], replicas.expected[side].values())
        if replicas.expected["a"]:
            merged = await replicas.logs["a"].append("merged")
            assert len(await replicas.logs["a"].heads()) == 1 or len(merged.parent_keys) == 256
        for side in "ab":
            await replicas.close(side)


async def check_graph(log, expected: dict[bytes, Entry]) -> None:
    await assert_log_is(log, expected.values())
    graph = Graph(expected.values())
    keys = Random(len(expected)).sample(sorted(expected), min(len(expected), 14))
    for ancestor, descendant in product(keys, keys):
        assert await log.is_ancestor(encode_id(ancestor), encode_id(descendant)) == (ancestor in graph.ancestors[descendant])
    for key in keys:
        assert await log.children(encode_id(key)) == [encode_id(child) for child in graph.children(key)]
        found = [entry.key async for entry in log.ancestors(encode_id(key))]
        assert found == sorted(graph.ancestors[key], reverse=True)


def run(store: str, operations: list, server: PostgresServer | None = None) -> None:
    with TemporaryDirectory() as folder:
        if server is not None:
            urls = {"a": server.new_log(), "b": server.new_log()}
            trio.run(play, urls.__getitem__, operations)
        else:
            trio.run(play, lambda side: ":memory:" if store == "memory" else Path(folder) / f"{side}.db", operations)


COMMON = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large]}


@settings(max_examples=25, **COMMON)
@given(st.lists(OPERATIONS, max_size=12))
def test_replicas_in_memory_hold_what_their_histories_say(operations) -> None:
    run("memory", operations)


@settings(max_examples=12, **COMMON)
@given(st.lists(OPERATIONS, max_size=12))
def test_replicas_in_files_hold_what_their_histories_say(operations) -> None:
    run("sqlite", operations)


def test_replicas_on_a_server_hold_what_their_histories_say(postgres) -> None:
    @settings(max_examples=6, **COMMON)
    @given(st.lists(OPERATIONS, max_size=12))
    def check(operations) -> None:
        run("postgres", operations, postgres)

    check()


@pytest.mark.slow
def test_replicas_on_a_server_hold_what_long_histories_say(postgres) -> None:
    @settings(max_examples=40, **COMMON)
    @given(st.lists(OPERATIONS, min_size=10, max_size=40))
    def check(operations) -> None:
        run("postgres", operations, postgres)

    check()


@pytest.mark.slow
@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_replicas_hold_what_long_histories_say(store) -> None:
    @settings(max_examples=250, **COMMON)
    @given(st.lists(OPERATIONS, min_size=10, max_size=40))
    def check(operations) -> None:
        run(store, operations)

    check()
