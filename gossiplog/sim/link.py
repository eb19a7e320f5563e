"""Latency between two nodes, computed from a hash of the pair: no N² matrix, and the order of asking does not matter."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

_MASK = (1 << 64) - 1
_UNIT = 2.0**-53


def hash_pair(seed: int, low: int, high: int) -> int:
    """Mix a seed and an ordered pair of node numbers to 64 bits.

    This is the finaliser of splitmix64. numpy computes the same with wrapping uint64 arithmetic, so that both engines run on the
    same network.

    Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014, figure 17 (the mix64variant13).
    """
    x = (seed * 0x9E3779B97F4A7C15 + low * 0xD1342543DE82EF95 + high * 0xDABA0B6EB09322E3 + 0x632BE59BD9B4E019) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


def hash_unit(seed: int, a: int, b: int) -> float:
    """Give an unordered pair a number in [0, 1) that depends on nothing but the pair and the seed."""
    return (hash_pair(seed, a, b) if a <= b else hash_pair(seed, b, a)) % (1 << 53) * _UNIT


class Latency(Protocol):
    """Seconds that a message takes from one node to another."""

    @property
    def low_s(self) -> float:
        """The smallest latency of any pair: the lookahead of a simulation."""

    def between(self, a: int, b: int) -> float:
        """One way, in seconds; the same for (b, a)."""


@dataclass(frozen=True, slots=True)
class Uniform:
    """U[low, high] for each pair, as in simsub."""

    seed: int
    low_s: float = 0.010
    high_s: float = 0.150

    def between(self, a: int, b: int) -> float:
        """One way, in seconds; the same for (b, a)."""
        return self.low_s + (self.high_s - self.low_s) * hash_unit(self.seed, a, b)


@dataclass(frozen=True, slots=True)
class HeavyTail:
    """A shifted Pareto: most pairs near the median, a few far beyond it.

    Attributes:
        median_s: The median, seconds; > `low_s`.
        shape: Pareto's alpha. At 1.5, one pair in a hundred lies some thirty times as far above `low_s` as the median.
        high_s: The tail is cut here, seconds.
    """

    seed: int
    low_s: float = 0.010
    median_s: float = 0.060
    shape: float = 1.5
    high_s: float = 2.0

    def between(self, a: int, b: int) -> float:
        """One way, in seconds; the same for (b, a)."""
        scale = (self.median_s - self.low_s) / (math.pow(0.5, -1.0 / self.shape) - 1.0)
        tail = scale * (math.pow(1.0 - hash_unit(self.seed, a, b), -1.0 / self.shape) - 1.0)
        return min(self.high_s, self.low_s + tail)


@dataclass(frozen=True, slots=True)
class Regional:
    """A matrix of base latencies between regions, plus a random spread for each pair.

    A node's region is drawn by hashing its number, with the given weights.

    Attributes:
        matrix_s: `matrix_s[i][j]`, seconds one way between regions i and j; symmetric, > 0.
        weights: The regions' shares of the nodes; any positive numbers.
        spread: A pair takes its base latency times U[1, 1 + spread].
    """

    seed: int
    matrix_s: Sequence[Sequence[float]]
    weights: Sequence[float]
    spread: float = 0.2

    @property
    def low_s(self) -> float:
        """Return the smallest entry of the matrix."""
        return min(min(row) for row in self.matrix_s)

    def region(self, node: int) -> int:
        """Return the number of the node's region."""
        point = hash_unit(self.seed ^ 0x5E610, node, node) * sum(self.weights)
        for index, weight in enumerate(self.weights):
            point -= weight
            if point < 0:
                return index
        return len(self.weights) - 1

    def between(self, a: int, b: int) -> float:
        """One way, in seconds; the same for (b, a)."""
        return self.matrix_s[self.region(a)][self.region(b)] * (1.0 + self.spread * hash_unit(self.seed, a, b))
