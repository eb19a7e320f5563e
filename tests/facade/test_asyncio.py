"""A log in asyncio: what cancellation, the end of a block and exceptions do on either side."""

import asyncio
import gc
import threading
import time
import traceback
from pathlib import Path
from typing import Any

import pytest
import trio
from facade_support import open_async, open_blocking

from gossiplog import aio
from gossiplog.errors import ClosedError, DecodeError, LocalProtocolError, LogBusy, NotFound


async def test_hub_and_link_bring_a_log_to_another_and_back() -> None:
    async def main() -> None:
        async with open_async() as log, log.listen("127.0.0.1:0") as hub, open_async() as copy:
            await log.append_many(range(300))
            async with copy.connect(hub.urls[0]) as link, copy.subscribe() as events:
                await link.wait_connected()
                assert link.is_connected
                assert link.state is not None
                assert [(await anext(events)).message.payload for _ in range(300)] == list(range(300))
                entry = await copy.append("back")
                async with log.subscribe(from_now=False) as there:
                    async for each in there:
                        if each.id == entry.id:
                            break
                assert len(hub.links()) == 1
            assert await log.root() == await copy.root()

    await trio.to_thread.run_sync(asyncio.run, main())


def test_presence_goes_through_a_hub_and_its_changes_can_be_waited_for() -> None:
    async def main() -> None:
        async with open_async() as log, log.listen("127.0.0.1:0") as hub, open_async() as copy, copy.connect(hub.urls[0]):
            await copy.presence.set({"cursor": 5}, ttl_s=60)
            async for change in log.presence:
                assert (change.name, change.value) == ("cursor", 5)
                assert log.presence.states == {change.author: {"cursor": 5}}
                break
            waiting = asyncio.create_task(anext(aiter(copy.presence)))
            assert (await waiting).value == 5
            await copy.presence.leave()
            while log.presence.states:
                await asyncio.sleep(0.01)

    asyncio.run(main())


def test_reading_is_what_it_is_in_trio() -> None:
    async def main() -> None:
        async with open_async() as log, open_async() as copy:
            entries = await log.append_many(range(600))
            assert [entry.id async for entry in log.iterate()] == [entry.id for entry in entries]
            assert [entry.id async for entry in log.ancestors(entries[9].id, limit=2)] == [entries[8].id, entries[7].id]
            assert await log.is_ancestor(entries[0].id, entries[-1].id)
            assert (await copy.sync(log)).entries == 600
            assert (await copy.copy_from(log)).known == 600
            async with log.snapshot() as snapshot:
                assert snapshot is not None
            assert (log.topic, log.location, log.read_only) == ("test.example.com", ":memory:", False)
            assert (await log.fsck()).is_clean

    asyncio.run(main())


def test_cancelled_wait_frees_the_other_side_and_loses_nothing() -> None:
    async def main() -> None:
        async with open_async() as log:
            async with log.subscribe("worker") as events:
                for _ in range(3):
                    waiting = asyncio.create_task(anext(events))
                    await log.count()
                    waiting.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await waiting
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.01):
                        await anext(events)
                entry = await log.append(1)
                assert (await anext(events)).id == entry.id
            following = asyncio.create_task(follow(log, "worker"))
            await asyncio.sleep(0)
            following.cancel()
            with pytest.raises(asyncio.CancelledError):
                await following
            async with log.subscribe("worker") as again:
                assert (await anext(again)).id == entry.id

    asyncio.run(main())


async def follow(log: aio.GossipLog, cursor: str | None = None) -> None:
    async with log.subscribe(cursor) as events:
        async for _ in events:
            pass


def test_page_that_arrives_with_the_cancellation_is_kept() -> None:
    async def main() -> None:
        async with open_async() as log:
            entries = await log.append_many(range(1_000))
            async with log.subscribe() as events:
                found = []
                while len(found) < len(entries):
                    waiting = asyncio.create_task(anext(events))
                    await asyncio.sleep(0)
                    waiting.cancel()
                    try:
                        found.append((await waiting).id)
                    except asyncio.CancelledError:
                        found.append((await anext(events)).id)
                assert found == [entry.id for entry in entries]

    asyncio.run(main())


def test_task_that_is_cancelled_while_it_opens_leaves_no_lock(tmp_path: Path) -> None:
    async def main() -> None:
        for _ in range(5):
            opening = asyncio.create_task(open_async(tmp_path / "a.db").start())
            await asyncio.sleep(0)
            opening.cancel()
            with pytest.raises(asyncio.CancelledError):
                await opening
        async with open_async(tmp_path / "a.db") as log:
            await log.append(1)

    asyncio.run(main())


def test_task_that_is_cancelled_just_as_it_has_opened_leaves_no_lock(tmp_path: Path) -> None:
    async def main() -> None:
        opening = asyncio.create_task(open_async(tmp_path / "a.db").start())
        await asyncio.sleep(0)
        # The thread opens it, and this loop, which is busy, hears of it only after it has cancelled the task.
        while not (tmp_path / "a.db-lock").exists():
            time.sleep(0.01)
        time.sleep(0.5)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        async with open_async(tmp_path / "a.db") as log:
            await log.append(1)

    asyncio.run(main())


def test_end_of_a_log_ends_whoever_waits_in_other_tasks() -> None:
    async def main() -> None:
        async with open_async() as log:
            following = asyncio.create_task(follow(log))
            events = await (subscription := log.subscribe()).start()
            waiting = asyncio.create_task(anext(events))
            appending = [asyncio.create_task(log.append(number)) for number in range(50)]
            await asyncio.gather(*appending[:1])
        for task in (following, waiting):
            with pytest.raises(ClosedError):
                while True:
                    await task
                    task = asyncio.create_task(anext(events))
        # What was submitted is committed.
        assert len({entry.id for entry in await asyncio.gather(*appending)}) == 50
        await subscription.close()
        with pytest.raises(ClosedError):
            await log.append(1)
        with pytest.raises(ClosedError):
            await log.subscribe().start()

    asyncio.run(main())


def test_failure_on_the_other_side_ends_calls_and_is_raised_by_the_block() -> None:
    async def fail() -> None:
        raise ZeroDivisionError("in trio")

    async def main() -> None:
        block = open_async()
        log = await block.start()
        async with asyncio.TaskGroup() as tasks:
            following = tasks.create_task(expect_closed(log))
            await log.append(1)
            inner: Any = log._inner
            log._thread.hand_over(inner.tasks.start_soon, fail)
            await following
        with pytest.raises(ExceptionGroup) as caught:
            await block.close()
        assert caught.group_contains(ZeroDivisionError, match="in trio")
        with pytest.raises(ClosedError):
            await log.count()

    asyncio.run(main())


async def expect_closed(log: aio.GossipLog) -> None:
    with pytest.raises(ClosedError):
        await follow(log)


def test_exceptions_keep_type_hint_and_traceback() -> None:
    async def main() -> None:
        async with open_async() as log:
            with pytest.raises(DecodeError) as refused:
                await log.resolve("zz")
            assert refused.value.__notes__ == [f"hint: {refused.value.hint}"]
            with pytest.raises(NotFound) as missing:
                await log.get("0" * 32)
            shown = "".join(traceback.format_exception(missing.value))
            assert "test_asyncio.py" in shown
            assert "reader.py" in shown
            with pytest.raises(TypeError, match="unexpected keyword"):
                await log.append(1, nonsense=2)  # type: ignore[call-arg]

    asyncio.run(main())


def test_what_the_body_raises_passes_unchanged(tmp_path: Path) -> None:
    async def main() -> None:
        for error in (ZeroDivisionError("ours"), asyncio.CancelledError(), KeyboardInterrupt()):
            with pytest.raises(type(error)) as caught:
                async with open_async(tmp_path / "a.db") as log, log.subscribe():
                    raise error
            assert caught.value is error
            assert "block.py" not in "".join(traceback.format_exception(caught.value))

    asyncio.run(main())


def test_iterating_reads_a_page_ahead_and_no_more() -> None:
    async def main() -> None:
        async with open_async() as log:
            await log.append_many(range(2_000))
            async with log.subscribe() as events:
                await anext(events)
                assert events.place.seq == 256
                assert len(await events.next_page()) == 255

    asyncio.run(main())


def test_several_loops_and_threads_share_a_log() -> None:
    with open_blocking() as log:

        def plain(thread: int) -> None:
            for number in range(20):
                log.append([thread, number])

        def in_a_loop() -> None:
            async def main() -> None:
                async with open_async() as own:
                    await asyncio.gather(*(own.append(number) for number in range(20)))
                    assert await own.count() == 20

            asyncio.run(main())

        threads = [threading.Thread(target=plain, args=(thread,)) for thread in range(4)]
        threads += [threading.Thread(target=in_a_loop) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(entry.message.payload for entry in log.iterate()) == [[thread, n] for thread in range(4) for n in range(20)]


def test_loop_that_ends_under_a_call_harms_nobody_else() -> None:
    async def main() -> None:
        events = await log.subscribe().start()
        waiting.append(asyncio.ensure_future(anext(events)))
        await asyncio.sleep(0)

    waiting: list[Any] = []
    block = open_async()
    loop = asyncio.new_event_loop()
    log = loop.run_until_complete(block.start())
    loop.run_until_complete(main())
    # asyncio complains about the task, and that is all.
    loop.set_exception_handler(lambda *_: None)
    loop.close()
    waiting.clear()
    gc.collect()
    assert asyncio.run(log.append(1)).message.payload == 1
    asyncio.run(block.close())


def test_same_iteration_in_several_tasks_gives_each_entry_once() -> None:
    async def main() -> None:
        async with open_async() as log:
            entries = await log.append_many(range(700))
            pages = log.iterate()

            async def take() -> list[str]:
                return [entry.id async for entry in pages]

            found = await asyncio.gather(*(take() for _ in range(4)))
            assert sorted(id for ids in found for id in ids) == [entry.id for entry in entries]

    asyncio.run(main())


def test_lock_is_one_whoever_opens(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_async(tmp_path / "a.db"):
            with pytest.raises(LogBusy):
                await open_async(tmp_path / "a.db").start()

    asyncio.run(main())


async def test_in_trio_it_says_where_to_go() -> None:
    with pytest.raises(LocalProtocolError, match="tasks of asyncio") as caught:
        await open_async().start()
    assert "gossiplog.open in trio" in (caught.value.hint or "")


def test_application_writes_with_the_log() -> None:
    seen: list[tuple[str, int]] = []

    async def apply(entries: Any, tx: Any) -> None:
        seen.extend((entry.id, threading.get_ident()) for entry in entries)
        if entries[0].message.payload == "bad":
            raise ArithmeticError("not this one")

    async def main() -> None:
        async with open_async(apply=apply) as log:
            entry = await log.append("good")
            assert [id for id, _ in seen] == [entry.id]
            assert seen[0][1] != threading.get_ident()
            with pytest.raises(Exception) as caught:
                await log.append("bad")
            assert "not this one" in "".join(traceback.format_exception(caught.value))
            assert await log.count() == 1

    asyncio.run(main())
