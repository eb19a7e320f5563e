"""What a process remembers of the log's end is what the server says, whoever wrote last, and appending takes three round trips."""

from random import Random
from typing import Any

import pytest
from log_support import SIGNERS, assert_whole, make, make_history, opened

from gossiplog.errors import GossipLogError
from gossiplog.log.requests import ReadBranchTips, ReadCount, ReadHeads, ReadLeaves
from gossiplog.plan import Plan, ask
from gossiplog.store.postgres.transactions import Fetcher
from gossiplog.tree import ReadRoot, ReadRuns


def look(last: bytes) -> Plan[list[Any]]:
    """Ask for all that is remembered."""
    root = yield from ask(ReadRoot())
    heads = yield from ask(ReadHeads(300))
    leaves = yield from ask(ReadLeaves(heads))
    branches = sorted({leaf.branch for leaf in leaves.values()})
    tips = yield from ask(ReadBranchTips(branches))
    found: list[Any] = [root, heads, leaves, {branch: tips[branch] for branch in (-1, *branches)}]
    found.append((yield from ask(ReadCount(counted=False))))
    level = 1
    while level <= root.level + 1:
        found.append((yield from ask(ReadRuns(level, [last]))))
        level += 1
    return found


async def test_what_is_remembered_is_what_the_server_says(postgres) -> None:
    random = Random(6)
    url = postgres.new_log()
    async with opened(url) as a, opened(url, signer=SIGNERS[1]) as b:
        for number in range(35):
            log = random.choice([a, b])
            match random.choice(["append", "append", "many", "fork", "old", "history", "fail"]):
                case "append":
                    await log.append(number)
                case "many":
                    await log.append_many(range(random.randint(2, 90)))
                case "fork":
                    await log.insert_many([make([number, part]).value for part in range(random.choice([2, 300]))])
                case "old":
                    old = [entry async for entry in log.iterate(limit=1)]
                    await log.insert(make(number, old).value)
                case "history":
                    await log.insert_many([entry.value for entry in make_history(random, 30)])
                case "fail":
                    with pytest.raises(GossipLogError):
                        await log._store.write(fail())
            last = b"\xff" * 20
            assert await a._store.write(look(last)) == await a._store.read(look(last))
            assert await b._store.write(look(last)) == await b._store.read(look(last))
        await assert_whole(a)


def fail() -> Plan[None]:
    yield from ask(ReadHeads(9))
    raise GossipLogError("on purpose")


class Trips:
    """Counts the round trips of transactions."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        fetch, execute = Fetcher.__call__, Fetcher.execute

        async def counting_fetch(fetcher: Fetcher, *args: Any) -> Any:
            self.count += 1
            return await fetch(fetcher, *args)

        async def counting_execute(fetcher: Fetcher, script: str) -> None:
            self.count += 1
            await execute(fetcher, script)

        monkeypatch.setattr(Fetcher, "__call__", counting_fetch)
        monkeypatch.setattr(Fetcher, "execute", counting_execute)

    def take(self) -> int:
        """How many since the last time, and the one that begins."""
        count, self.count = self.count, 0
        return count + 1


async def test_round_trips_do_not_grow_with_the_batch_nor_with_other_writers(postgres, monkeypatch) -> None:
    url = postgres.new_log()
    async with opened(url) as a, opened(url, signer=SIGNERS[1]) as b:
        await a.append_many(range(1_000))
        trips = Trips(monkeypatch)
        counts = []
        for number in range(40):
            await (a if number % 2 else b).append(number)
            counts.append(trips.take())
        assert sorted(counts)[30] == 3
        made = [make(0)]
        for number in range(1, 800):
            made.append(make(number, [made[-1]]))
        values = [entry.value for entry in made]
        await b.insert_many(values[:400])
        trips.take()
        await b.insert_many(values[400:])
        tail = trips.take()
        assert tail <= 16
        scattered = [make(["scattered", number]).value for number in range(400)]
        await b.insert_many(scattered[:200])
        trips.take()
        await b.insert_many(scattered[200:])
        levels = (await b.root()).level
        assert trips.take() <= 14 + 2 * levels
        await assert_whole(a)
