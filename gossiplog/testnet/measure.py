"""Figures of a run of real processes, computed from their facts as they arrive."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from ..glass import Fact
from ..sim.measure.metrics import percentile

_COPIES = ("gossip", "push")


@dataclass(frozen=True, slots=True)
class RunFigures:
    """The figures of a run that have the same meaning in the simulator.

    Attributes:
        delivered: First receipts, without those of the publisher.
        p50_s: Median latency from publish to receipt, in seconds. It, `p99_s` and `max_s` are NaN if nothing was delivered.
        rmr: Further copies that came by gossip or push, for each first copy.
        ways: How many first copies came by each way, the most frequent way first.
    """

    published: int
    delivered: int
    p50_s: float
    p99_s: float
    max_s: float
    rmr: float
    ways: dict[str, int]


class Measure:
    """Counts facts. Memory: two numbers for each receipt.

    Attributes:
        roots: The Unix time of each change of a root, and the number of different roots among the nodes from then on.
    """

    def __init__(self) -> None:
        self.kinds: Counter[str] = Counter()
        self.roots: list[tuple[float, int]] = []
        self._root_of: dict[str, str] = {}
        self._first: dict[str, tuple[float, str]] = {}
        self._origin: dict[str, str] = {}
        self._receipts: dict[tuple[str, str], tuple[float, str]] = {}
        self._copies = 0

    def take(self, fact: Fact) -> None:
        """Count one fact."""
        self.kinds[fact.kind] += 1
        entry, node = str(fact.message), str(fact.node)
        match fact.kind:
            case "publish" | "deliver":
                # The streams of several nodes interleave, and an entry is forwarded before its publisher has committed it.
                if entry not in self._first or fact.time_s < self._first[entry][0]:
                    self._first[entry] = (fact.time_s, node)
                if fact.kind == "publish" or fact.way == "http":
                    self._origin[entry] = node
                self._receipts.setdefault((entry, node), (fact.time_s, fact.way or "append"))
            case "duplicate":
                self._copies += fact.way in _COPIES
            case "root":
                self._root_of[node] = entry
                self.roots.append((fact.time_s, len(set(self._root_of.values()))))
            case _:
                pass

    @property
    def latencies_s(self) -> list[float]:
        """The latencies of all first receipts, ascending, in seconds."""
        return sorted(at - self._first[entry][0] for (entry, _), (at, _) in self._others().items())

    def _others(self) -> dict[tuple[str, str], tuple[float, str]]:
        """Return all receipts but the publisher's. If its fact is missing, since it was killed, the first receipt is left out instead."""
        return {
            (entry, node): receipt
            for (entry, node), receipt in self._receipts.items()
            if node != self._origin.get(entry, self._first[entry][1])
        }

    def figures(self) -> RunFigures:
        """Compute the figures. O(receipts × log receipts)."""
        latencies = self.latencies_s
        ways = Counter(way for _, way in self._others().values())
        return RunFigures(
            published=len(self._first),
            delivered=len(latencies),
            p50_s=percentile(latencies, 0.50),
            p99_s=percentile(latencies, 0.99),
            max_s=latencies[-1] if latencies else float("nan"),
            rmr=self._copies / len(latencies) if latencies else 0.0,
            ways=dict(ways.most_common()),
        )
