"""Sweeps: one scenario over a grid of keys and seeds, in several processes.

A grid is TOML:

    scenario = "dense"            # a ready scenario, or a path relative to the grid's file
    seeds = 5                     # 0 to 4
    [grid]
    router = ["meshsub", "gossipsub"]
    "topology.connect" = [5, 10, 20]
    "params.gossipsub.D" = [4, 6, 8]
"""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..processes import spread_out
from ..scenario import Scenario, ScenarioError, load_scenario, set_key
from .run import run_row

POINTS_MAX = 100_000


@dataclass(frozen=True, slots=True)
class Point:
    """One run of a sweep."""

    keys: dict[str, Any]
    scenario: Scenario
    seed: int


@dataclass(frozen=True, slots=True)
class Sweep:
    """A grid, multiplied out.

    Attributes:
        keys: The keys that vary, in the file's order.
        points: Every combination with every seed; seeds vary fastest.
    """

    keys: tuple[str, ...]
    points: tuple[Point, ...]


def load_sweep(path: Path) -> Sweep:
    """Read a grid and multiply it out.

    Raises:
        ScenarioError: The file cannot be read, a key is unknown, a value is out of range, or there would be over 100,000 runs.
    """
    try:
        table = tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ScenarioError(f"{path}: {error}") from error
    unknown = sorted(set(table) - {"scenario", "seeds", "grid"})
    if unknown:
        raise ScenarioError(f"{path}: {unknown[0]}: unknown key, expected scenario, seeds or [grid]")
    name, seeds, grid = table.get("scenario"), table.get("seeds", 1), table.get("grid", {})
    if not isinstance(name, str):
        raise ScenarioError(f"{path}: scenario: {name!r}, expected a name or a path")
    if type(seeds) is not int or not 1 <= seeds <= POINTS_MAX:
        raise ScenarioError(f"{path}: seeds: {seeds!r}, expected 1 to {POINTS_MAX}")
    if not isinstance(grid, dict) or not all(isinstance(values, list) and values for values in grid.values()):
        raise ScenarioError(f"{path}: grid: expected for each key an array of values")
    runs = seeds
    for values in grid.values():
        runs *= len(values)
    if runs > POINTS_MAX:
        raise ScenarioError(f"{path}: {runs} runs, expected at most {POINTS_MAX}")
    base = load_scenario(str(path.parent / name) if name.endswith(".toml") else name)
    points: list[Point] = []
    for combination in itertools.product(*grid.values()):
        keys = dict(zip(grid, combination, strict=True))
        scenario = base
        for key, value in keys.items():
            scenario = set_key(scenario, key, value)
        points.extend(Point(keys, scenario, seed) for seed in range(seeds))
    return Sweep(tuple(grid), tuple(points))


def run_sweep(sweep: Sweep, jobs: int, progress: Callable[[int], None] | None = None) -> Iterator[dict[str, Any]]:
    """Run all points and yield their rows in order: the varied keys, then `report.as_row`.

    Args:
        jobs: Number of processes; the rows do not depend on it.
        progress: Called with the number of finished runs.
    """
    tasks = [(point.scenario, point.seed) for point in sweep.points]
    for done, (point, row) in enumerate(zip(sweep.points, spread_out(run_row, tasks, jobs), strict=True), 1):
        if progress is not None:
            progress(done)
        yield {**point.keys, **row}
