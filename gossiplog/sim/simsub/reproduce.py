"""Compares simulated counters over many seeds with the figures published for simsub, and judges whether they agree."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from ..processes import spread_out
from .simsub import RULES, RULES_2018, SimsubResult, run_simsub

GATE_SEEDS = 100
"""Fewer seeds give a preview, not a verdict."""
RATIO_MAX_OFF = 0.04
"""The largest relative deviation of the means of publish, message and ihave from the published values."""
SIGMAS = 3.0
"""A published value is a single run. It may lie this many standard deviations from the mean."""


@dataclass(frozen=True, slots=True)
class PublishedRun:
    """One published run.

    Attributes:
        name: Its name, such as `2018-run1`.
        rules: A key of `simsub.RULES`.
        lagged: Counters for which the authors' real-time run fell behind. They are shown but not judged.
    """

    name: str
    rules: str
    nodes: int
    messages: int
    delay_s: float
    counters: dict[str, int]
    lagged: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CounterReport:
    """One counter of one run beside its published value.

    Attributes:
        published: The published value, from a single run.
        spread: The standard deviation over the seeds; 0 for one seed.
        ratio: mean / published; None where the published value is 0.
        rule: `exact`, `4 %`, `3 sd` or `lagged`.
        holds: Whether the rule holds; None for `lagged`.
    """

    name: str
    published: int
    mean: float
    spread: float
    low: int
    high: int
    ratio: float | None
    rule: str
    holds: bool | None


@dataclass(frozen=True, slots=True)
class RunReport:
    """All counters of one published run."""

    run: PublishedRun
    seeds: int
    counters: tuple[CounterReport, ...]
    events: int

    @property
    def holds(self) -> bool:
        """Return whether every judged counter holds."""
        return all(counter.holds is not False for counter in self.counters)


def published_runs() -> list[PublishedRun]:
    """Read the published figures that ship with the package."""
    table = json.loads(resources.files(__package__).joinpath("data/simsub.json").read_text("utf-8"))
    not_counters = {"name", "nodes", "messages", "delay_s", "lagged", "protocol"}
    runs = []
    for row in [*table["runs"], *table["later"]]:
        rules = next((name for name in RULES if row["name"].startswith(f"{name}-")), RULES_2018.name)
        runs.append(
            PublishedRun(
                name=row["name"],
                rules=rules,
                nodes=row["nodes"],
                messages=row.get("messages", 10),
                delay_s=row.get("delay_s", 1.0),
                counters={name: value for name, value in row.items() if name not in not_counters},
                lagged=tuple(row.get("lagged", ())),
            )
        )
    return runs


def judge(run: PublishedRun, results: Sequence[SimsubResult]) -> RunReport:
    """Compare simulated results with a published run.

    `deliver` must be exact in every seed; so must `connect` under rules without peer exchange. The means of `publish`, `message`
    and `ihave` must lie within 4 % of the published values. All counters must lie within 3 standard deviations of them.
    """
    reports = []
    for name, value in run.counters.items():
        seen = [result.counters[name] for result in results]
        mean, spread = statistics.fmean(seen), statistics.stdev(seen) if len(seen) > 1 else 0.0
        near = abs(value - mean) <= SIGMAS * spread or value == mean
        holds: bool | None
        if name in run.lagged:
            rule, holds = "lagged", None
        elif name == "deliver" or (name == "connect" and not RULES[run.rules].adaptive):
            rule, holds = "exact", all(count == value for count in seen)
        elif name in ("publish", "message", "ihave"):
            rule, holds = "4 %, 3 sd", abs(mean - value) <= RATIO_MAX_OFF * value and (near or len(seen) == 1)
        else:
            rule, holds = "3 sd", near or len(seen) == 1
        ratio = mean / value if value else None
        reports.append(CounterReport(name, value, mean, spread, min(seen), max(seen), ratio, rule, holds))
    return RunReport(run, len(results), tuple(reports), sum(result.events for result in results))


def reproduce(
    runs: Iterable[PublishedRun], seeds: Sequence[int], jobs: int = 1, progress: Callable[[str, int, int], None] | None = None
) -> Iterator[RunReport]:
    """Simulate each run with every seed and yield its report as soon as it is done.

    Args:
        seeds: At least one seed; at least `GATE_SEEDS` for a verdict.
        jobs: Number of processes. The reports do not depend on it.
        progress: Called with the run's name, the number of seeds done and the number of seeds.
    """
    for run in runs:
        results = []
        for result in spread_out(_simulate, [(run, seed) for seed in seeds], jobs):
            results.append(result)
            if progress is not None:
                progress(run.name, len(results), len(seeds))
        yield judge(run, results)


def _simulate(task: tuple[PublishedRun, int]) -> SimsubResult:
    run, seed = task
    return run_simsub(RULES[run.rules], run.nodes, run.messages, run.delay_s, seed)


def as_json(report: RunReport) -> dict[str, Any]:
    """Return a report as plain values, for `--json` and for `benchmarks/results`."""
    return {
        "name": report.run.name,
        "rules": report.run.rules,
        "nodes": report.run.nodes,
        "messages": report.run.messages,
        "delay_s": report.run.delay_s,
        "seeds": report.seeds,
        "holds": report.holds,
        "counters": {
            counter.name: {
                "published": counter.published,
                "mean": round(counter.mean, 3),
                "sd": round(counter.spread, 3),
                "min": counter.low,
                "max": counter.high,
                "ratio": None if counter.ratio is None else round(counter.ratio, 4),
                "rule": counter.rule,
                "holds": counter.holds,
            }
            for counter in report.counters
        },
    }
