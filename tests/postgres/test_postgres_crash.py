"""Servers and clients killed under load; `python -m tests.postgres.crash_loop` is the long run."""

import pytest

from .crash_loop import run_crashes


def test_nothing_acknowledged_is_lost_when_servers_and_clients_are_killed(postgres) -> None:
    tally = run_crashes(3, seed=5, longest_s=0.2)
    assert sum(tally.ways.values()) == 3
    assert tally.acknowledged > 0


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_in_many_rounds(postgres) -> None:
    assert run_crashes(30, seed=6).acknowledged > 0
