"""The sketch is that of the log's keys whenever it is asked for: after appends, reopening, damage, repair, and beside other processes."""

import pytest
from log_support import opened

from gossiplog.log.fsck import FindingKind
from gossiplog.log.requests import KeptSketch, ReadSketch, WriteSketch
from gossiplog.plan import ask
from gossiplog.replica import sketching
from gossiplog.sketch import Sketch


async def expected(log) -> tuple[list[int], list[int]]:
    sketch = Sketch()
    sketch.add([entry.key async for entry in log.iterate()])
    return sketch.sums, sketch.counts


async def assert_sketched(log) -> None:
    view = await log.sketch()
    assert (view.sketch.sums, view.sketch.counts) == await expected(log)


@pytest.fixture
def kept_often(monkeypatch):
    monkeypatch.setattr(sketching, "KEEP_ENTRIES", 20)


async def test_it_follows_the_log_and_who_has_it_sees_no_change(open_log) -> None:
    async with open_log() as log:
        await assert_sketched(log)
        await log.append_many(range(30))
        first = await log.sketch()
        before = first.sketch.sums.copy()
        assert (first.seq, first.count) == (30, 30)
        await log.append_many(range(150))
        await assert_sketched(log)
        assert first.sketch.sums == before
        await log.forget_sketch()
        await assert_sketched(log)


async def test_the_latest_is_kept_and_an_older_one_does_not_replace_it(open_log) -> None:
    async with open_log() as log:
        assert await log.run(ask(ReadSketch())) is None
        for seq, symbols in ((5, b"five"), (9, b"nine"), (7, b"seven")):
            await log._store.write(ask(WriteSketch(KeptSketch(seq, symbols))))
        assert await log.run(ask(ReadSketch())) == (9, b"nine")
        await log._store.write(ask(WriteSketch(None)))
        assert await log.run(ask(ReadSketch())) is None


async def test_it_is_kept_now_and_then_and_read_at_the_next_opening(open_durable, kept_often) -> None:
    async with open_durable() as log:
        await log.append_many(range(10))
        await assert_sketched(log)
        assert await log.run(ask(ReadSketch())) is None
        await log.append_many(range(15))
        await assert_sketched(log)
        assert (await log.run(ask(ReadSketch()))).seq == 25
        await log.append_many(range(7))
    async with open_durable() as log:
        await assert_sketched(log)
        assert (await log.run(ask(ReadSketch()))).seq == 25
        assert (await log.fsck()).is_clean


@pytest.mark.parametrize("seq", [25, 12, 10**9])
async def test_damage_is_told_by_fsck_and_costs_nothing_but_time(open_durable, kept_often, seq) -> None:
    async with open_durable() as log:
        await log.append_many(range(25))
        wrong = Sketch()
        wrong.add([b"x" * 20])
        await log._store.write(ask(WriteSketch(KeptSketch(seq, wrong.to_bytes() if seq < 100 else b"short"))))
    async with open_durable() as log:
        report = await log.fsck()
        assert {finding.kind for finding in report.findings} == {FindingKind.SKETCH}
        repaired = await log.fsck(repair=True)
        assert repaired.is_clean
        assert repaired.set_aside == 0
        await assert_sketched(log)


async def test_bytes_that_are_no_sketch_are_passed_over(open_durable) -> None:
    async with open_durable() as log:
        await log.append_many(range(25))
        await log._store.write(ask(WriteSketch(KeptSketch(20, b"no sketch"))))
    async with open_durable() as log:
        await assert_sketched(log)


async def test_several_processes_on_one_database_have_the_same_sketch(postgres, kept_often) -> None:
    url = postgres.new_log()
    async with opened(url) as one, opened(url) as two:
        for _ in range(3):
            await one.append_many(range(12))
            await assert_sketched(two)
            await two.append_many(range(9))
            await assert_sketched(one)
            await assert_sketched(two)
        assert (await one.run(ask(ReadSketch()))).seq > 40
        assert (await two.fsck()).is_clean
