"""The remembered end of a log says what the database says, after any transaction."""

from functools import partial
from pathlib import Path
from random import Random

import pytest
from log_support import SIGNERS, make, make_history, opened

from gossiplog import Reject
from gossiplog.log.requests import ReadBranchTips, ReadCount, ReadHeads, ReadLeaves, ReadQuarantined
from gossiplog.store import writer_cache as tail
from gossiplog.store.sqlite.answers import answer
from gossiplog.store.sqlite.transaction import reply
from gossiplog.store.sync_transaction import ThreadTransaction
from gossiplog.tree import ReadRoot, ReadRuns, writer


def compare(db, known, keys: list[bytes]) -> None:
    """Ask both for all that the tail answers; a copy, so that asking teaches it nothing."""
    copy = type(known)()
    copy.__dict__.update({name: value.copy() if isinstance(value, dict) else value for name, value in vars(known).items()})
    known_or_read = partial(reply, db, copy, ThreadTransaction(db, Path(), partial(reply, db, copy)))
    heads = answer(db, ReadHeads())
    for request in (
        ReadRoot(),
        ReadHeads(),
        ReadHeads(2),
        ReadHeads(256),
        ReadLeaves(heads[:3]),
        ReadLeaves(keys[-3:]),
        ReadLeaves([*heads[-1:], b"\xff" * 20]),
        ReadLeaves([*keys[:1], b"\0" * 20]),
        ReadLeaves([heads[-1][:-1], heads[-1] + b"\0"] if heads else []),
        ReadQuarantined(keys[-3:]),
        ReadCount(counted=False),
    ):
        assert known_or_read(request) == answer(db, request), request
    branches = sorted({leaf.branch for leaf in answer(db, ReadLeaves(heads)).values()})
    expected = answer(db, ReadBranchTips(branches))
    found = known_or_read(ReadBranchTips(branches))
    assert {branch: found[branch] for branch in expected} == expected
    for level in range(1, answer(db, ReadRoot()).level + 2):
        for key in (None, *keys[-2:], b"\xff" * 20, *keys[:1], *keys[:: len(keys) // 6 + 1]):
            assert known_or_read(ReadRuns(level, [key])) == answer(db, ReadRuns(level, [key])), (level, key)


@pytest.mark.parametrize("siblings_warn", [2_000, 20])
async def test_the_tail_is_the_end_of_the_database_after_any_transaction(tmp_path, monkeypatch, siblings_warn) -> None:
    # With 20, many runs are as wide as those that somebody ground.
    for module in (tail, writer):
        monkeypatch.setattr(module, "SIBLINGS_WARN", siblings_warn)
    random = Random(4)

    async def apply(entries, tx) -> None:
        if random.random() < 0.15:
            raise Reject("by chance", id=random.choice(entries).id)
        if random.random() < 0.1:
            raise ZeroDivisionError

    async with opened(tmp_path / "app.db", apply=apply) as log:
        keys: list[bytes] = []
        for number in range(60):
            try:
                match random.choice(["append", "append", "many", "fork", "old", "history"]):
                    case "append":
                        keys.append((await log.append(number, signer=random.choice(SIGNERS))).key)
                    case "many":
                        keys += [entry.key for entry in await log.append_many(range(random.randint(2, 60)))]
                    case "fork":
                        entries = [make([number, part]) for part in range(random.randint(1, 300))]
                        await log.insert_many([entry.value for entry in entries])
                    case "old":
                        old = [entry async for entry in log.iterate(reverse=random.random() < 0.5, limit=1)]
                        await log.insert(make(number, old).value)
                    case "history":
                        await log.insert_many([entry.value for entry in make_history(random, 30)])
            except Exception as error:
                assert type(error).__name__ in ("Rejected", "ZeroDivisionError"), error
            await log._store._writer.call(compare, log._store._tail, sorted(keys))
        assert (await log.fsck()).is_clean


async def test_a_log_that_only_receives_reads_nothing_for_an_entry_at_its_end(tmp_path) -> None:
    async with opened(tmp_path / "source.db") as source:
        chain = [(await source.append(number)).value for number in range(5)]
    async with opened(tmp_path / "app.db") as log:
        for value in chain[:3]:
            await log.insert(value)
        statements: list[str] = []
        log._store._writer._conn.set_trace_callback(statements.append)
        for value in chain[3:]:
            await log.insert(value)
        assert not [statement for statement in statements if statement.lstrip().upper().startswith("SELECT")]
