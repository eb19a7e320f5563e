"""A log in plain synchronous code, and what becomes of it when the process is interrupted, forked or over."""

import os
import pickle
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from facade_support import open_blocking, run_program

import gossiplog
from gossiplog import blocking
from gossiplog.errors import ClosedError, LocalProtocolError, NotFound


def test_everything_is_what_it_is_in_trio() -> None:
    with open_blocking() as log, open_blocking() as copy:
        entries = log.append_many(range(600))
        assert [entry.id for entry in log.iterate()] == [entry.id for entry in entries]
        assert copy.sync(log).entries == 600
        with log.listen("127.0.0.1:0") as hub, copy.connect(hub.urls[0]) as link, copy.subscribe("worker") as events:
            link.wait_connected()
            late = log.append("late")
            for entry in events:
                events.ack(entry)
                if entry.id == late.id:
                    break
            copy.presence.set({"cursor": 5}, ttl_s=60)
            for change in log.presence:
                assert (change.name, change.value) == ("cursor", 5)
                assert log.presence.states == {change.author: {"cursor": 5}}
                break
            copy.presence.leave()
            assert copy.presence.states == {}
        with copy.subscribe("worker") as events:
            last = copy.append("last")
            assert next(events).id == last.id
        with log.snapshot() as snapshot:
            assert snapshot is not None
        with pytest.raises(NotFound):
            log.get("0" * 32)


def test_body_that_raises_closes_what_it_opened(tmp_path: Path) -> None:
    error = ZeroDivisionError("ours")
    with pytest.raises(ZeroDivisionError) as caught, open_blocking(tmp_path / "a.db") as log, log.subscribe():
        raise error
    assert caught.value is error
    with pytest.raises(ClosedError):
        log.append(1)
    with open_blocking(tmp_path / "a.db") as log:
        assert log.count() == 0


def test_block_is_opened_once_and_closed_as_often_as_one_likes(tmp_path: Path) -> None:
    block = open_blocking(tmp_path / "a.db")
    block.close()
    block.start().append(1)
    with pytest.raises(LocalProtocolError, match="once only"):
        block.start()
    block.close()
    block.close()
    with pytest.raises(LocalProtocolError, match="once only"), block:
        pass
    with open_blocking(tmp_path / "a.db") as log:
        assert log.count() == 1


def test_thread_that_waits_hears_that_the_log_was_closed() -> None:
    raised: list[BaseException] = []

    def wait(log: blocking.GossipLog) -> None:
        try:
            with log.subscribe() as events:
                waiting.set()
                next(events)
        except ClosedError as error:
            raised.append(error)

    waiting = threading.Event()
    with open_blocking() as log:
        thread = threading.Thread(target=wait, args=(log,))
        thread.start()
        waiting.wait()
    thread.join()
    assert len(raised) == 1


def test_apply_that_calls_its_own_log_is_told_so_instead_of_hanging() -> None:
    raised: list[Exception] = []

    async def apply(entries: Any, tx: Any) -> None:
        try:
            log.append("again")
        except LocalProtocolError as error:
            raised.append(error)

    with open_blocking(apply=apply) as log:
        log.append(1)
    assert ["thread that has to answer" in str(error) for error in raised] == [True]


def test_plain_apply_runs_in_the_databases_thread_and_may_not_append_either(tmp_path: Path) -> None:
    seen: list[tuple[str, str]] = []

    def apply(entries: Any, tx: Any) -> None:
        try:
            log.append("again")
        except LocalProtocolError as error:
            seen.append((threading.current_thread().name, str(error)))

    with open_blocking(tmp_path / "a.db", apply=apply) as log:
        log.append(1)
        assert log.count() == 1
    ((thread, message),) = seen
    assert thread not in (threading.current_thread().name, "gossiplog")
    assert "apply" in message


def test_interrupted_call_is_cancelled_and_the_log_goes_on(tmp_path: Path) -> None:
    lines = run_program(
        """
with blocking.open("a.db", **OPTIONS) as log:
    with log.subscribe("worker") as events:
        try:
            say("waiting")
            next(events)
        except KeyboardInterrupt:
            say("interrupted")
        entry = log.append(1)
        say(next(events).id == entry.id)
        events.ack(entry)
with blocking.open("a.db", **OPTIONS) as log:
    say(log.count())
""",
        tmp_path,
        interrupt_at="waiting",
    )
    assert lines == ["waiting", "interrupted", "True", "1"]


def test_interrupted_asyncio_program_closes_its_log(tmp_path: Path) -> None:
    lines = run_program(
        """
async def main():
    async with aio.open("a.db", **OPTIONS) as log:
        await log.append(1)
        async with log.subscribe(from_now=True) as events:
            say("waiting")
            await anext(events)
try:
    asyncio.run(main())
except KeyboardInterrupt:
    say("interrupted")
with blocking.open("a.db", **OPTIONS) as log:
    say(log.count())
""",
        tmp_path,
        interrupt_at="waiting",
    )
    assert lines == ["waiting", "interrupted", "1"]


def test_process_ends_with_logs_open_and_nothing_is_lost(tmp_path: Path) -> None:
    program = """
log = blocking.open("a.db", **OPTIONS).start()
log.append(1)
events = log.subscribe().start()
hub = log.listen("127.0.0.1:0").start()
def follow():
    try:
        for _ in events: pass
    except gossiplog.GossipLogError as error:
        say(type(error).__name__)
threading.Thread(target=follow, daemon=True).start()
async def main():
    log = await aio.open("b.db", **OPTIONS).start()
    # Nobody waits for these, and the loop ends under them.
    for number in range(100):
        asyncio.ensure_future(log.append(number))
    await asyncio.sleep(0)
    await log.append("last")
asyncio.run(main())
say("end")
"""
    started = time.monotonic()
    assert sorted(run_program(program, tmp_path)) == ["ClosedError", "end"]
    assert time.monotonic() - started < 120
    with open_blocking(tmp_path / "a.db") as log, open_blocking(tmp_path / "b.db") as other:
        assert [entry.message.payload for entry in log.iterate()] == [1]
        assert "last" in [entry.message.payload for entry in other.iterate()]


def test_calls_after_the_end_are_refused_instead_of_hanging(tmp_path: Path) -> None:
    program = """
import atexit
def late():
    for call in (lambda: log.append(2), lambda: blocking.open("b.db", **OPTIONS).start(), block.close):
        try:
            say(call())
        except gossiplog.GossipLogError as error:
            say(type(error).__name__)
atexit.register(late)
block = blocking.open("a.db", **OPTIONS)
log = block.start()
"""
    # What is registered first is called last.
    assert run_program(program, tmp_path) == ["ClosedError"] * 3


def test_process_that_is_told_to_exit_within_a_block_ends(tmp_path: Path) -> None:
    run_program('with blocking.open("a.db", **OPTIONS) as log:\n    log.append(1)\n    sys.exit(0)\n', tmp_path)
    with open_blocking(tmp_path / "a.db") as log:
        assert log.count() == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
def test_forked_child_has_a_thread_of_its_own_and_none_of_the_logs(tmp_path: Path) -> None:
    lines = run_program(
        """
import warnings
warnings.simplefilter("ignore", DeprecationWarning)
with blocking.open("a.db", **OPTIONS) as log:
    log.append(1)
    child = os.fork()
    if child == 0:
        try:
            log.append(2)
        except gossiplog.GossipLogError as error:
            say(type(error).__name__, error.hint)
        with blocking.open("b.db", **OPTIONS) as own:
            own.append(1)
            say(own.count())
        sys.stdout.flush()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    log.append(3)
    say(log.count())
""",
        tmp_path,
    )
    assert lines == ["ClosedError open the log again after the fork", "1", "2"]


async def test_an_open_log_says_which_it_is_and_that_another_process_opens_its_own(tmp_path: Path) -> None:
    place = tmp_path / "a.db"
    with open_blocking(place) as log, log.subscribe() as events, log.listen("127.0.0.1:0") as hub:
        for opened in (log, events, hub, log.presence):
            with pytest.raises(TypeError, match="open it in the other process"):
                pickle.dumps(opened)
        assert repr(log) == f"<gossiplog.blocking.GossipLog of <GossipLog test.example.com at {place}>>"
    async with gossiplog.open(place) as inner:
        with pytest.raises(TypeError, match="open it in the other process"):
            pickle.dumps(inner)
