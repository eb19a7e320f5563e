"""`log.sync` by sketches, where both are at hand, and by trees where they are not or anything is unusual."""

from __future__ import annotations

from typing import Any

import pytest
from log_support import opened

from gossiplog.errors import GossipLogError
from gossiplog.replica import log as replica_log
from gossiplog.replica import pulling


@pytest.fixture
def no_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any, **options: Any) -> Any:
        raise GossipLogError("trees were compared")

    monkeypatch.setattr(pulling, "SyncServer", refuse)


async def differ(one: Any, other: Any) -> None:
    common = await one.append_many(range(400))
    await other.insert_many([entry.value for entry in common])
    await one.sketch()
    await other.sketch()
    await one.append_many(["one"] * 60)
    await other.append_many(["other"] * 90)


async def test_a_pull_by_sketches_brings_what_is_missing_and_no_more(no_trees: None) -> None:
    async with opened(":memory:") as one, opened(":memory:") as other:
        await differ(one, other)
        result = await one.sync(other)
        assert (result.entries, result.duplicates, result.complete) == (90, 0, True)
        assert (await other.sync(one)).entries == 60
        assert await one.root() == await other.root()
        assert (await one.sync(other)).entries == 0


async def test_trees_are_compared_where_a_sketch_would_have_to_be_built(no_trees: None) -> None:
    async with opened(":memory:") as one, opened(":memory:") as other:
        await one.append_many(range(replica_log.BEHIND_MAX + 1))
        with pytest.raises(GossipLogError, match="trees were compared"):
            await other.sync(one)


async def test_trees_are_compared_where_the_sketch_is_wrong() -> None:
    async with opened(":memory:") as one, opened(":memory:") as other:
        await differ(one, other)
        (await one.sketch()).sketch.add([b"gone" * 5])
        assert (await one.sync(other)).entries == 90
        assert (await other.sync(one)).entries == 60
        assert await one.root() == await other.root()


async def test_sketch_that_proved_wrong_is_forgotten() -> None:
    async with opened(":memory:") as one, opened(":memory:") as other:
        await differ(one, other)
        (await one.sketch()).sketch.add([b"gone" * 5])
        await one.sync(other)
        assert (await one.sketch()).sketch.counts[0] == await one.count() == 550
