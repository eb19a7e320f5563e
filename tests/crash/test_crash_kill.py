"""kill -9 under load; `python -m tests.crash.kill_loop` is the long run."""

from pathlib import Path

import pytest

from .kill_loop import run_kills


def test_nothing_acknowledged_is_lost_by_kill_9(tmp_path: Path) -> None:
    tally = run_kills(tmp_path, 12, seed=7, durability="full", longest_s=0.25)
    assert tally.kills == 12
    assert tally.acknowledged > 0


@pytest.mark.slow
@pytest.mark.parametrize("durability", ["full", "off"])
def test_nothing_acknowledged_is_lost_by_many_kills(tmp_path: Path, durability: str) -> None:
    assert run_kills(tmp_path, 60, seed=8, durability=durability).acknowledged > 0
