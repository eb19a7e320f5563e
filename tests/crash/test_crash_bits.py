"""Bits that flip in the file: every outcome is an error of ours or a report, and no wrong entry passes for a true one.

What SQLite itself cannot see, a changed byte within a row, is what `fsck` is for.
"""

from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from log_support import SIGNERS, TOPIC, all_of, assert_whole, make_history, opened, remove_log

import gossiplog
from gossiplog.entry import Entry
from gossiplog.errors import DamagedLog, GossipLogError
from gossiplog.log.requests import Quarantined, WriteQuarantine
from gossiplog.plan import ask


@pytest.fixture(scope="module")
def truth() -> list[Entry]:
    return make_history(Random(3), 150)


async def write_log(path: Path, truth: list[Entry]) -> bytes:
    """A log with all kinds of rows in it, as the bytes of its file."""
    held = Quarantined(truth[-1].key, truth[-1].value, "parents", "missing", 0.0)
    async with opened(path) as log:
        await log.insert_many([entry.value for entry in truth[:-1]])
        await log._store.write(ask(WriteQuarantine([held], [])))
        async with log.subscribe(cursor="follower") as events:
            await events.ack(await anext(events))
    return path.read_bytes()


async def look_at_everything(path: Path, truth: list[Entry], *, read_only: bool) -> str:
    """Use a log that may be damaged in every way there is; return what became of it."""
    known = {entry.key: entry.value for entry in truth}
    seen = "whole"
    try:
        async with gossiplog.open(path, signer=SIGNERS[0], read_only=read_only) as log:
            report = await log.fsck()
            seen = "whole" if report.is_clean else "reported"
            for read in (log.heads, log.clock, log.root, log.count, log.size_bytes):
                try:
                    await read()
                except GossipLogError:
                    seen = "refused" if seen == "whole" else seen
            try:
                async for entry in log.iterate():
                    if gossiplog.validate(entry.value, topic=TOPIC, key=entry.key).accepted:
                        assert known[entry.key] == entry.value
                    else:
                        assert not report.is_clean
            except GossipLogError:
                assert not report.is_clean
            for entry in truth[::40]:
                for question in (log.get, log.children, log.position, log.has):
                    with suppress(GossipLogError):
                        await question(entry.id)
                with suppress(GossipLogError):
                    async for _ in log.ancestors(entry.id):
                        pass
                with suppress(GossipLogError):
                    await log.is_ancestor(truth[0].id, entry.id)
            try:
                async for _ in log.quarantine():
                    pass
            except GossipLogError:
                assert not report.is_clean
    except GossipLogError:
        return "refused"
    return seen


async def flip_and_look(tmp_path: Path, truth: list[Entry], seed: int, count: int) -> dict[str, int]:
    random = Random(seed)
    path = tmp_path / "app.db"
    whole = await write_log(path, truth)
    outcomes: dict[str, int] = {}
    for number in range(count):
        remove_log(path)
        damaged = bytearray(whole)
        for _ in range(random.choice([1, 1, 1, 8])):
            damaged[random.randrange(len(damaged))] ^= 1 << random.randrange(8)
        path.write_bytes(bytes(damaged))
        outcome = await look_at_everything(path, truth, read_only=bool(number % 2))
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
    return outcomes


async def test_flipped_bits_never_pass_for_true_entries(tmp_path, truth) -> None:
    outcomes = await flip_and_look(tmp_path, truth, 1, 30)
    assert outcomes.get("reported", 0) > 10, outcomes


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 5))
async def test_many_flipped_bits_never_pass_for_true_entries(tmp_path, truth, seed) -> None:
    outcomes = await flip_and_look(tmp_path, truth, seed, 250)
    assert outcomes.get("reported", 0) > 75, outcomes


async def test_pages_of_noise_are_reported_and_what_is_left_is_read(tmp_path, truth) -> None:
    random = Random(9)
    path = tmp_path / "app.db"
    whole = await write_log(path, truth)
    pages = len(whole) // 4096
    outcomes: dict[str, int] = {}
    for page in range(1, pages):
        remove_log(path)
        path.write_bytes(whole[: page * 4096] + random.randbytes(4096) + whole[(page + 1) * 4096 :])
        outcome = await look_at_everything(path, truth, read_only=False)
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
    assert outcomes.get("whole", 0) == 0, outcomes


async def test_a_repair_after_flipped_bits_loses_nothing_that_is_whole(tmp_path, truth) -> None:
    random = Random(5)
    path = tmp_path / "app.db"
    whole = await write_log(path, truth)
    known = {entry.key: entry.value for entry in truth}
    repaired = 0
    for _ in range(15):
        remove_log(path)
        damaged = bytearray(whole)
        damaged[random.randrange(8_192, len(damaged))] ^= 1 << random.randrange(8)
        path.write_bytes(bytes(damaged))
        try:
            async with opened(path) as log:
                before = {entry.key for entry in truth[:-1]}
                report = await log.fsck(repair=True)
                assert report.is_clean, report.findings
                await assert_whole(log)
                kept = {entry.key: entry.value for entry in await all_of(log)}
                aside = {record.value for record in [record async for record in log.quarantine()]}
                assert all(known[key] == value for key, value in kept.items())
                lost = [key for key in before if key not in kept and known[key] not in aside]
                # At most the one entry that the bit was in, and that one is in the quarantine as it is.
                assert len(lost) <= 1
                assert len(lost) == 0 or report.set_aside > 0
                await log.append("goes on")
                repaired += report.repaired is not None
        except DamagedLog as error:
            assert error.hint
    assert repaired > 5
