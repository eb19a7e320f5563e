"""Sweeps of the simulator on Spark: every point of a grid is a task, which needs only its scenario and its seed."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F

from ...sim.measure.plots import pyplot
from ...sim.measure.report import COLUMNS
from ...sim.routing.run import run_row
from ...sim.routing.sweep import Sweep

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FIGURES = ("published", "delivered", *COLUMNS, "last_hop_mean", "rmr_last", "events")
"""The figures of a run, columns of type double."""
_INTEGERS = ("number", "seed", "nodes")
_TEXTS = ("scenario", "router", "keys", "counters", "failed")
_SCHEMA = pa.schema(
    [(name, pa.int64()) for name in _INTEGERS] + [(name, pa.string()) for name in _TEXTS] + [(name, pa.float64()) for name in FIGURES]
)
_DDL = ", ".join([f"{n} bigint" for n in _INTEGERS] + [f"{n} string" for n in _TEXTS] + [f"{n} double" for n in FIGURES])


def sweep(spark: SparkSession, points: Sweep, *, tasks: int | None = None) -> DataFrame:
    """Run all points of a grid.

    Args:
        points: The grid; see `gossiplog.sim.routing.sweep.load_sweep`. A scenario that reads files needs them on every executor.
        tasks: How many tasks at most; one for each run otherwise, up to 10,000.

    Returns:
        A row for each run, `number` in the grid's order: `keys` (what was set, JSON), a column `set.<key>` for each of them (bigint,
        double, boolean, or a text where the values are of several kinds), the figures of `gossiplog sim sweep`, `counters` (JSON);
        `failed` says why a run has no figures, null if it has.
    """
    runs = [
        (number, json.dumps(point.keys, sort_keys=True), bytearray(pickle.dumps((point.scenario, point.seed))))
        for number, point in enumerate(points.points)
    ]
    table = spark.createDataFrame(runs, "number bigint, keys string, task binary")
    # Neighbours cost about the same, so each is a part of its own.
    spread = table.repartitionByRange(max(1, min(tasks or len(runs), 10_000)), F.col("number"))
    results = spread.mapInArrow(_run, _DDL)
    types = {key: _type_of([point.keys[key] for point in points.points if key in point.keys]) for key in points.keys}
    columns = [F.get_json_object("keys", f"$['{key}']").cast(types[key]).alias(f"set.{key}") for key in points.keys]
    return results.select(*_INTEGERS, *_TEXTS[:-1], *columns, *FIGURES, "failed")


def _type_of(values: Sequence[object]) -> str:
    """Return the type of a column that holds all of these."""
    kinds = {type(value) for value in values}
    if kinds == {bool}:
        return "boolean"
    if kinds == {int}:
        return "bigint"
    return "double" if kinds in ({float}, {int, float}) else "string"


def pareto(results: DataFrame, keys: Sequence[str], x: str, y: str) -> list[dict[str, Any]]:
    """Average runs over seeds, and mark the points for which no other is better in both figures; less is better. The grid is small."""
    named = [f"`set.{key}`" for key in keys]
    means = results.where("failed is null").groupBy(*named).agg(F.avg(x).alias(x), F.avg(y).alias(y), F.count("*").alias("runs"))
    rows = sorted((row.asDict() for row in means.collect() if row[x] is not None and row[y] is not None), key=lambda row: (row[x], row[y]))
    best = float("inf")
    for row in rows:
        row["best"] = row[y] < best
        best = min(best, row[y])
    return rows


def plot_pareto(rows: Sequence[dict[str, Any]], x: str, y: str, path: str) -> None:
    """Draw all points of `pareto`, and a line along the best.

    Raises:
        LocalProtocolError: matplotlib is missing.
    """
    plt = pyplot()
    figure, axes = plt.subplots(figsize=(8, 4.8), dpi=120, layout="constrained")
    axes.plot([row[x] for row in rows], [row[y] for row in rows], "o", color="#0072B2", alpha=0.6, label="points of the grid")
    front = [row for row in rows if row["best"]]
    axes.plot([row[x] for row in front], [row[y] for row in front], "o-", color="#D55E00", label="none is better in both")
    for row in front:
        axes.annotate(
            ", ".join(f"{name.removeprefix('set.')}={row[name]}" for name in row if name.startswith("set.")), (row[x], row[y]), fontsize=7
        )
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.legend(frameon=False)
    figure.savefig(path)
    plt.close(figure)


def _run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for number, keys, task in zip(*[batch.column(name).to_pylist() for name in ("number", "keys", "task")], strict=True):
            made = _row(number, keys, task)
            yield pa.RecordBatch.from_arrays([pa.array([made.get(f.name)], f.type) for f in _SCHEMA], schema=_SCHEMA)


def _row(number: int, keys: str, task: bytes) -> dict[str, Any]:
    scenario, seed = pickle.loads(task)
    made: dict[str, Any] = {
        "number": number,
        "keys": keys,
        "seed": seed,
        "scenario": scenario.name,
        "router": scenario.router,
        "nodes": scenario.nodes,
    }
    try:
        row = run_row((scenario, seed))
    except Exception as error:
        # One bad point must not lose the others' figures.
        return {**made, "failed": f"{type(error).__name__}: {error}"}
    return {**made, **row, "counters": json.dumps(row["counters"], sort_keys=True)}
