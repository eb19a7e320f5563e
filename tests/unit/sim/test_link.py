"""Latency models: symmetric, bounded, spread as they say, the same in every process."""

import statistics

import pytest

from gossiplog.sim.link import Latency, hash_unit
from gossiplog.sim.scenario import LatencySpec

HEAVY_TAIL = LatencySpec("heavy_tail", high_s=2.0)
SPECS = [LatencySpec(), HEAVY_TAIL, LatencySpec("regional", matrix_s=((0.005, 0.08), (0.08, 0.01)), weights=(1.0, 3.0))]


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.kind)
def test_latency_is_symmetric_and_never_below_its_bound(spec: LatencySpec) -> None:
    model = Latency(7, spec)
    assert model.low_s == min([*map(min, spec.matrix_s), 0.01])
    for a in range(40):
        for b in range(40):
            if a != b:
                assert model.between(a, b) == model.between(b, a) >= model.low_s


def test_uniform_latency_has_the_mean_and_spread_of_the_interval() -> None:
    model = Latency(3, LatencySpec())
    seen = [model.between(a, b) for a in range(150) for b in range(a)]
    assert abs(statistics.fmean(seen) - 0.080) < 0.001
    assert abs(statistics.stdev(seen) - 0.140 / 12**0.5) < 0.001
    assert max(seen) < 0.150


def test_heavy_tail_has_its_median_and_a_tail() -> None:
    model = Latency(3, HEAVY_TAIL)
    seen = sorted(model.between(a, b) for a in range(150) for b in range(a))
    assert abs(seen[len(seen) // 2] - HEAVY_TAIL.median_s) < 0.003
    assert seen[int(len(seen) * 0.99)] > 10 * HEAVY_TAIL.median_s
    assert seen[-1] <= HEAVY_TAIL.high_s


def test_regions_follow_their_weights() -> None:
    model = Latency(1, LatencySpec("regional", matrix_s=((0.01, 0.1), (0.1, 0.01)), weights=(1.0, 3.0)))
    share = sum(model.region(node) for node in range(4000)) / 4000
    assert abs(share - 0.75) < 0.03
    a, b = (next(node for node in range(100) if model.region(node) == region) for region in (0, 1))
    assert 0.1 <= model.between(a, b) <= 0.12


def test_hash_does_not_depend_on_the_process_and_differs_with_the_seed() -> None:
    assert hash_unit(1, 2, 3) == 17665236902848673497 % 2**53 / 2**53
    assert hash_unit(1, 2, 3) == hash_unit(1, 3, 2) != hash_unit(2, 2, 3)
