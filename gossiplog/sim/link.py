"""Latency between two nodes, computed from a hash of the pair: no N² matrix, and the order of asking does not matter."""

from __future__ import annotations

import math

from .scenario import LatencySpec

_MASK = (1 << 64) - 1
_UNIT = 2.0**-53


def hash_unit(seed: int, a: int, b: int) -> float:
    """Give an unordered pair a number in [0, 1) that depends on nothing but the pair and the seed: by the finaliser of splitmix64.

    Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014, figure 17 (the mix64variant13).
    """
    low, high = (a, b) if a <= b else (b, a)
    x = (seed * 0x9E3779B97F4A7C15 + low * 0xD1342543DE82EF95 + high * 0xDABA0B6EB09322E3 + 0x632BE59BD9B4E019) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return (x ^ (x >> 31)) % (1 << 53) * _UNIT


class Latency:
    """Seconds that a message takes from one node to another.

    Attributes:
        low_s: The smallest latency of any pair: the lookahead of a simulation.
    """

    def __init__(self, seed: int, spec: LatencySpec) -> None:
        self.low_s = min(map(min, spec.matrix_s)) if spec.kind == "regional" else spec.low_s
        self._seed = seed
        self._spec = spec

    def between(self, a: int, b: int) -> float:
        """One way, in seconds; the same for (b, a)."""
        spec, unit = self._spec, hash_unit(self._seed, a, b)
        if spec.kind == "uniform":
            return spec.low_s + (spec.high_s - spec.low_s) * unit
        if spec.kind == "regional":
            return spec.matrix_s[self.region(a)][self.region(b)] * (1.0 + spec.spread * unit)
        # A shifted Pareto. At shape 1.5, one pair in a hundred lies some thirty times as far above `low_s` as the median.
        scale = (spec.median_s - spec.low_s) / (math.pow(0.5, -1.0 / spec.shape) - 1.0)
        tail = scale * (math.pow(1.0 - unit, -1.0 / spec.shape) - 1.0)
        return min(spec.high_s, spec.low_s + tail)

    def region(self, node: int) -> int:
        """Return the number of a node's region, which a hash of its number draws by the regions' weights."""
        weights = self._spec.weights
        point = hash_unit(self._seed ^ 0x5E610, node, node) * sum(weights)
        for index, weight in enumerate(weights):
            point -= weight
            if point < 0:
                return index
        return len(weights) - 1
