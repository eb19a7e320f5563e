"""The vectorised engine counts exactly what the exact one counts."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossiplog.errors import LocalProtocolError
from gossiplog.sim.simsub.simsub import RULES_2018, RULES_2022_V10, run_simsub

sys.path.insert(0, str(Path(__file__).parents[4]))

from benchmarks.simsub_vector import run_vector


@settings(max_examples=15, deadline=None)
@given(
    st.integers(0, 2**32), st.integers(2, 80), st.integers(1, 40), st.sampled_from([0.003, 0.05, 0.3, 1.0]), st.sampled_from([1, 4, 10, 40])
)
def test_counters_are_those_of_the_exact_engine(seed: int, nodes: int, messages: int, delay_s: float, connect: int) -> None:
    rules = replace(RULES_2018, connect=connect)
    assert run_vector(rules, nodes, messages, delay_s, seed) == run_simsub(rules, nodes, messages, delay_s, seed)


def test_counters_are_equal_when_meshes_change_under_load() -> None:
    rules = replace(RULES_2018, connect=30, D=3, D_low=3, D_high=4, D_gossip=2, gossip_window=1)
    assert run_vector(rules, 150, 200, 0.01, 7) == run_simsub(rules, 150, 200, 0.01, 7)


def test_counters_are_equal_when_a_mesh_outgrows_its_columns() -> None:
    rules = replace(RULES_2018, connect=60, D=50, D_low=50, D_high=100)
    assert run_vector(rules, 70, 20, 0.1, 7) == run_simsub(rules, 70, 20, 0.1, 7)


def test_counters_are_equal_when_messages_are_forgotten() -> None:
    assert run_vector(RULES_2018, 20, 2, 140.0, 1) == run_simsub(RULES_2018, 20, 2, 140.0, 1)


def test_progress_runs_from_start_to_end() -> None:
    seen: list[float] = []
    run_vector(RULES_2018, 10, 2, 0.1, 1, seen.append)
    assert seen == sorted(seen)
    assert 0 <= seen[0] < 0.1 < 0.9 < seen[-1] <= 1


def test_rules_that_it_cannot_run_are_refused() -> None:
    with pytest.raises(LocalProtocolError, match=r"rules 2022-v1\.0"):
        run_vector(RULES_2022_V10, 10, 1, 1.0, 1)
    with pytest.raises(LocalProtocolError, match="expected less than"):
        run_vector(RULES_2018, 1 << 20, 1, 1.0, 1)
