"""Several processes on one log: they write in turns, hear of each other, and share what is durable."""

import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from random import Random

import trio
import trio.testing
from log_support import SIGNERS, all_of, assert_whole, make_history, opened

from gossiplog.log.requests import ReadCount, ReadHeads
from gossiplog.plan import ask
from gossiplog.tree import ReadRoot

REPOSITORY = Path(__file__).parents[2]

WRITER = """
import random, sys, trio, gossiplog
from gossiplog.entry import Ed25519Signer
url, name, count, shared = sys.argv[1], sys.argv[2], int(sys.argv[3]), [bytes.fromhex(line) for line in sys.stdin.read().split()]

async def main():
    async with gossiplog.open(url, topic="test.example.com", signer=Ed25519Signer.generate(), durability="off") as log:
        async def append(task):
            for number in range(count):
                await log.append([name, task, number])
                if number % 5 == 0:
                    await log.append_many([[name, task, number, part] for part in range(7)])
        async def insert():
            for low in range(0, len(shared), 20):
                verdicts = await log.insert_many(shared[low:low + 20])
                assert all(verdict.accepted for verdict in verdicts)
        async with trio.open_nursery() as nursery:
            for task in range(2):
                nursery.start_soon(append, task)
            nursery.start_soon(insert)
trio.run(main)
"""


def write_from_processes(url: str, count: int, shared: list[bytes], processes: int = 3) -> None:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    lines = "\n".join(value.hex() for value in shared)
    started = []
    for number in range(processes):
        command = [sys.executable, "-W", "error", "-c", WRITER, url, f"p{number}", str(count)]
        process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        process.stdin.write(lines)
        process.stdin.close()
        started.append(process)
    for process in started:
        with process:
            said = process.stderr.read()
        assert process.returncode == 0, said


async def test_processes_that_write_at_once_lose_and_double_nothing(postgres) -> None:
    url, count = postgres.new_log(), 25
    shared = make_history(Random(5), 120)
    # The log is made by whoever comes first, too.
    await trio.to_thread.run_sync(write_from_processes, url, count, [entry.value for entry in shared])
    async with opened(url) as log:
        entries = await all_of(log)
        payloads = Counter(str(entry.message.payload) for entry in entries)
        assert set(payloads.values()) == {1}
        assert len(entries) == 3 * 2 * (count + 7 * 5) + len(shared)
        await assert_whole(log)
        async with log.subscribe() as events:
            arrived = [await anext(events) for _ in entries]
        seen: set[bytes] = set()
        for entry in arrived:
            assert seen.issuperset(entry.parent_keys)
            seen.add(entry.key)


async def test_a_follower_is_woken_by_what_another_process_writes(postgres) -> None:
    url = postgres.new_log()
    async with opened(url) as follower, opened(url, signer=SIGNERS[1]) as writer:
        async with follower.subscribe() as events:
            await writer.append(0)
            assert (await anext(events)).message.payload == 0
            while follower.poll_s < 1:
                # The connection that listens is being made.
                await writer.append("early")
                assert (await anext(events)).message.payload == "early"
            waits = []
            for number in range(1, 30):
                begun = time.perf_counter()
                await writer.append(number)
                with trio.fail_after(4):
                    assert (await anext(events)).message.payload == number
                waits.append(time.perf_counter() - begun)
        # Polling alone would take seconds each.
        assert sorted(waits)[15] < 0.5


async def test_a_follower_that_nobody_can_tell_looks_for_itself(postgres) -> None:
    url = postgres.new_log()
    deaf = f"{url}&application_name=deaf"
    async with opened(deaf) as follower, opened(url, signer=SIGNERS[1]) as writer, follower.subscribe() as events:
        await writer.append(0)
        assert (await anext(events)).message.payload == 0
        # Whoever listens is cut off, and stays so.
        follower._store._database._connections.listener._connect = refuse
        kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'deaf' AND query LIKE 'LISTEN%'"
        for number in range(1, 6):
            await trio.to_thread.run_sync(postgres.sql, kill)
            await writer.append(number)
            with trio.fail_after(4):
                assert (await anext(events)).message.payload == number
        assert follower.poll_s < 1


async def refuse():
    raise ConnectionRefusedError


async def test_a_cursor_goes_on_in_another_process_and_never_back(postgres) -> None:
    url = postgres.new_log()
    async with opened(url) as a, opened(url, signer=SIGNERS[1]) as b:
        entries = await a.append_many(range(10))
        async with a.subscribe(cursor="indexer") as events:
            got = [await anext(events) for _ in range(6)]
            await events.ack(got[3])
            await events.flush()
            async with b.subscribe(cursor="indexer") as others:
                assert (await anext(others)).key == entries[4].key
                await others.ack(await anext(others))
            # Behind the other one's place by now.
            await events.ack(got[4])
            await events.flush()
        async with b.subscribe(cursor="indexer") as events:
            assert (await anext(events)).key == entries[6].key


async def test_each_writer_builds_upon_what_the_other_wrote(postgres) -> None:
    url = postgres.new_log()
    async with opened(url) as a, opened(url, signer=SIGNERS[1]) as b:
        last = None
        for number in range(12):
            entry = await (a if number % 3 else b).append(number)
            assert last is None or list(entry.parent_keys) == [last.key]
            last = entry
        async with opened(":memory:") as other:
            await other.append_many(range(40))
            await b.sync(other)
        merged = await a.append("merged")
        assert len(merged.parent_keys) == 2
        for log in (a, b):
            await assert_whole(log)
        assert await a.root() == await b.root()


async def test_a_repair_in_one_process_is_noticed_by_the_others(postgres) -> None:
    url = postgres.new_log()
    async with opened(url) as a, opened(url, signer=SIGNERS[1]) as b:
        await a.insert_many([entry.value for entry in make_history(Random(8), 60)])
        await b.append("b")
        schema = f'"gossiplog_{url.rpartition("log=")[2]}"'
        await trio.to_thread.run_sync(postgres.sql, f"UPDATE {schema}.nodes SET hash = '\\x00'; DELETE FROM {schema}.heads")
        report = await a.fsck(repair=True)
        assert report.is_clean and report.repaired is not None
        await b.append("after")
        await a.append("after that")
        await assert_whole(b)


async def test_a_snapshot_shows_one_state_while_others_write(postgres) -> None:
    url = postgres.new_log()
    async with opened(url) as a, opened(url, signer=SIGNERS[1]) as b, opened(":memory:") as target:
        await a.append_many(range(200))
        async with a.snapshot() as snapshot:
            before = [await snapshot.run(ask(request)) for request in (ReadRoot(), ReadHeads(), ReadCount())]
            await b.append_many(range(50))
            assert [await snapshot.run(ask(request)) for request in (ReadRoot(), ReadHeads(), ReadCount())] == before
        await target.sync(a)
        assert await target.root() == await b.root()


async def test_cancelling_thousands_of_calls_leaks_no_connection(postgres) -> None:
    url = postgres.new_log()
    tag = url.rpartition("log=")[2]
    async with opened(f"{url}&application_name={tag}") as log:
        entries = await log.append_many(range(20))
        cancelled = 0

        async def call(number: int) -> None:
            nonlocal cancelled
            with trio.CancelScope() as scope:
                scope.deadline = trio.current_time() + (number % 50) / 10_000
                match number % 5:
                    case 0:
                        await log.get(entries[0].id)
                    case 1:
                        await log.is_ancestor(entries[0].id, entries[-1].id)
                    case 2:
                        await log.append(number)
                    case 3:
                        async with log.snapshot():
                            await trio.sleep(0.01)
                    case 4:
                        assert len([entry async for entry in log.iterate()]) >= 20
            cancelled += scope.cancelled_caught

        for low in range(0, 3_000, 250):
            async with trio.open_nursery() as nursery:
                for number in range(low, low + 250):
                    nursery.start_soon(call, number)
        assert cancelled > 1_000
        await log.append("goes on")
        await assert_whole(log)
        # Whatever was let go ends its transaction in the background.
        async with trio.open_nursery() as nursery:
            for _ in range(8):
                nursery.start_soon(all_of, log)
        pools = log._store._database._connections
        for pool, size in ((pools.readers, 4), (pools.snapshots, 16), (pools.writers, 1)):
            assert pool.counts[0] <= size and not pool._waiters
        statement = "SELECT count(*), count(*) FILTER (WHERE state <> 'idle') FROM pg_stat_activity WHERE application_name = $1"
        counts = await trio.to_thread.run_sync(postgres.sql, statement, tag)
        assert counts[0][0] <= 21
    counts = await trio.to_thread.run_sync(postgres.sql, statement, tag)
    assert counts[0][0] == 0


async def test_more_snapshots_than_connections_take_turns_and_hold_up_nobody_else(postgres) -> None:
    async with opened(postgres.new_log()) as log:
        entry = await log.append(1)
        held = [log.snapshot() for _ in range(16)]
        for snapshot in held:
            await snapshot.__aenter__()
        with trio.move_on_after(0.1) as scope:
            async with log.snapshot():
                pass
        assert scope.cancelled_caught
        # Reading and writing have connections of their own.
        await log.append(2)
        assert (await log.get(entry.id)).key == entry.key
        for snapshot in held:
            await snapshot.__aexit__(None, None, None)
        async with log.snapshot() as again:
            assert (await again.run(ask(ReadCount())))[0] == 2


async def test_an_application_that_reads_its_own_writes_and_fails_in_the_middle_can_go_on(postgres) -> None:
    table = f"items{os.urandom(3).hex()}"
    await trio.to_thread.run_sync(postgres.sql, f"CREATE TABLE {table} (n INTEGER PRIMARY KEY)")
    seen: list[list[tuple]] = []

    async def apply(entries, tx) -> None:
        for entry in entries:
            try:
                await tx.execute(f"INSERT INTO {table} VALUES ($1)", (entry.message.payload,))
            except Exception:
                await tx.execute(f"UPDATE {table} SET n = n + 100 WHERE n = $1", (entry.message.payload,))
        seen.append(await tx.execute(f"SELECT n FROM {table} ORDER BY n"))

    async with opened(postgres.new_log(), apply=apply) as log:
        await log.append_many([1, 2, 1])
        assert seen[-1] == [(2,), (101,)]
        await assert_whole(log)
