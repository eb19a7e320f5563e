"""A look at some entries: a whole log passes, and a leaf or a node that is not what it should be is named."""

import re
import sqlite3
from pathlib import Path
from random import Random

import pytest
from log_support import make_history, opened

from gossiplog.log.spot_check import spot_check


@pytest.mark.parametrize("location", [":memory:", "app.db"])
async def test_a_whole_log_passes_on_every_store(tmp_path: Path, location: str) -> None:
    async with opened(location if location == ":memory:" else tmp_path / location) as log:
        assert await log.run(spot_check([0])) == await log.run(spot_check([0]))
        assert (await log.run(spot_check([0]))).looked_at == 0
        await log.insert_many([entry.value for entry in make_history(Random(1), 200)])
        found = await log.run(spot_check([0, 3, 77, 198, 100_000]))
    assert (found.looked_at, found.faults) == (4, ())


@pytest.mark.parametrize(
    ("sql", "fault"),
    [
        ("UPDATE gossiplog_nodes SET hash = zeroblob(16) WHERE level = 1", "does not have|not that of its children"),
        ("UPDATE gossiplog_leaves SET hash = zeroblob(16)", "does not have entry"),
    ],
)
async def test_what_contradicts_the_entries_is_named(tmp_path: Path, sql: str, fault: str) -> None:
    path = tmp_path / "app.db"
    async with opened(path) as log:
        await log.insert_many([entry.value for entry in make_history(Random(1), 200)])
    with sqlite3.connect(path) as db:
        assert db.execute(sql).rowcount
    db.close()
    async with opened(path) as log:
        found = await log.run(spot_check([5, 50, 150]))
    assert found.faults
    assert re.search(fault, found.faults[0])
