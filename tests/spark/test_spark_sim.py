"""Traces and sweeps, against the simulator's own figures."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio
from glass_support import seen_log
from network_support import eventually, until_equal

from gossiplog.sim.measure.metrics import RunResult
from gossiplog.sim.measure.trace import open_sink
from gossiplog.sim.routing.run import run_scenario
from gossiplog.sim.routing.sweep import load_sweep, run_sweep
from gossiplog.sim.scenario import load_scenario, set_key
from gossiplog.spark.tables.sweep import FIGURES, pareto, plot_pareto, sweep
from gossiplog.spark.tables.traces import by_message, by_run, latencies, plot_latencies, quarantined, read_traces, summed_up

GRID = """
scenario = "sparse"
seeds = 2
[grid]
router = ["floodsub", "gossipsub"]
nodes = [12]
"publish.messages" = [2, 3]
"""


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[RunResult]]:
    """A folder with the traces of four runs, as JSON lines and as Parquet, and their results."""
    folder = tmp_path_factory.mktemp("traces")
    scenario = replace(set_key(load_scenario("sparse"), "publish.messages", 4), nodes=12)
    results = []
    for router in ("gossipsub", "episub"):
        for seed in (1, 2):
            files = [folder / kind / f"{router}-{seed}.{kind}" for kind in ("jsonl", "parquet")]
            for file in files:
                file.parent.mkdir(exist_ok=True)
            results.append(run_scenario(scenario, seed, router, [open_sink(file, scenario.name, router, seed) for file in files]))
    return folder, results


def test_traces_are_the_same_in_either_format(spark: Any, traced: tuple[Path, list[RunResult]]) -> None:
    folder, _ = traced
    lines, table = [read_traces(spark, str(folder / kind)) for kind in ("jsonl", "parquet")]
    names = sorted(set(lines.columns) & set(table.columns))
    assert {"time_s", "kind", "node", "message", "router", "seed"} <= set(names)
    rows = [Counter(map(tuple, each.select(names).collect())) for each in (lines, table)]
    assert rows[0] == rows[1]
    assert rows[0].total() > 100


def test_traces_give_the_figures_of_the_simulator(spark: Any, traced: tuple[Path, list[RunResult]], tmp_path: Path) -> None:
    folder, results = traced
    traces = read_traces(spark, str(folder / "jsonl")).cache()
    all_messages = by_message(traces).cache()
    all_runs = by_run(traces, all_messages).cache()
    runs = {(row["router"], row["seed"]): row for row in all_runs.collect()}
    assert len(runs) == len(results)
    messages = {(row["router"], row["seed"], row["message"]): row for row in all_messages.collect()}
    for result in results:
        summary, row = result.summary, runs[result.scenario.router, result.seed]
        assert (row["published"], row["delivered"], row["last_hop"]) == (summary.published, summary.delivered, summary.last_hop)
        assert (row["p50_s"], row["p99_s"], row["max_s"]) == pytest.approx((summary.p50_s, summary.p99_s, summary.max_s))
        assert row["rmr"] == pytest.approx(summary.rmr)
        for number in range(summary.published):
            message = messages[result.scenario.router, result.seed, str(number)]
            assert message["rmr"] == pytest.approx(result.metrics.rmr(number))
            assert message["last_hop"] == result.metrics.last_hop(number)
            assert message["reach"] == pytest.approx(1 - len(result.metrics.missing(number)) / 12)
    assert latencies(traces).count() == sum(result.summary.delivered for result in results)
    assert [(row["router"], row["runs"]) for row in summed_up(all_runs).collect()] == [("episub", 2), ("gossipsub", 2)]
    assert quarantined(traces).isEmpty()
    plot_latencies(traces, str(tmp_path / "latency.png"))
    assert (tmp_path / "latency.png").read_bytes().startswith(b"\x89PNG")


def test_lines_of_a_trace_that_are_no_records_are_told_of(spark: Any, tmp_path: Path) -> None:
    good = {"scenario": "live", "router": "gossipsub", "seq": 0, "time_s": 1.5, "kind": "publish", "node": 3, "message": 0}
    lines = [json.dumps(good), "{not json", json.dumps({**good, "node": None}), json.dumps({**good, "time_s": "late"})]
    (tmp_path / "live.jsonl").write_text("\n".join(lines) + "\n")
    traces = read_traces(spark, str(tmp_path / "live.jsonl")).cache()
    bad = quarantined(traces).collect()
    assert bad[0]["source"] == "{not json"
    assert len(bad) == 3
    # A live trace has no seed, and here nobody received anything.
    (row,) = by_message(traces.where("damaged is null and node is not null")).collect()
    assert (row["seed"], row["message"], row["delivered"], row["rmr"], row["p50_s"]) == (None, "0", 0, 0.0, None)


def test_facts_of_live_servers_are_summed_up_as_traces_are(spark: Any, tmp_path: Path) -> None:
    async def live() -> list[str]:
        folder = tmp_path / "live"
        folder.mkdir()
        async with (
            seen_log(1, folder / "hub.jsonl") as hub_log,
            seen_log(2, folder / "a.jsonl") as a,
            seen_log(3, folder / "b.jsonl") as b,
            hub_log.listen("127.0.0.1:0") as hub,
            a.connect(hub.urls[0]),
            b.connect(hub.urls[0]),
        ):
            await eventually(lambda: len(hub.links()) == 2 and all(link.is_pushing for link in hub.links()))
            entries = [await a.append(n) for n in range(5)]
            await until_equal(a, hub_log, b)
            return [entry.id for entry in entries]

    ids = trio.run(live)
    traces = read_traces(spark, str(tmp_path / "live")).cache()
    assert quarantined(traces).isEmpty()
    rows = {row["message"]: row for row in by_message(traces).collect()}
    assert set(rows) == set(ids)
    for row in rows.values():
        assert (row["delivered"], row["reach"], row["seed"], row["router"]) == (2, 1.0, None, "gossipsub")
        assert row["copies"] == 2 and row["rmr"] == 0.0 and 0 <= row["p50_s"] <= row["max_s"]


def test_sweep_gives_the_rows_of_the_local_one(spark: Any, tmp_path: Path) -> None:
    grid = tmp_path / "grid.toml"
    grid.write_text(GRID)
    points = load_sweep(grid)
    rows = sweep(spark, points, tasks=3).orderBy("number").collect()
    expected = list(run_sweep(points, 1))
    assert len(rows) == len(expected) == 8
    for row, own in zip(rows, expected, strict=True):
        assert {name: row[name] for name in FIGURES} == {name: own[name] for name in FIGURES}
        assert (row["seed"], row["router"], row["failed"]) == (own["seed"], own["router"], None)
        assert json.loads(row["counters"]) == own["counters"]
        assert row["set.publish.messages"] == own["publish.messages"]


def test_run_that_fails_does_not_cost_the_others_their_figures(spark: Any, tmp_path: Path) -> None:
    grid = tmp_path / "grid.toml"
    grid.write_text(GRID.replace("[2, 3]", "[2]"))
    points = load_sweep(grid)
    # A file that is missing is found when the run begins, not when the grid is read.
    topology = replace(points.points[0].scenario.topology, kind="file", file="none.txt")
    broken = replace(points.points[0], scenario=replace(points.points[0].scenario, topology=topology))
    results = sweep(spark, replace(points, points=(broken, *points.points[1:])), tasks=1).cache()
    failed = results.where("failed is not null").collect()
    assert [(row["number"], "none.txt" in row["failed"]) for row in failed] == [(0, True)]
    front = pareto(results, points.keys, "p99_s", "rmr")
    assert sum(row["runs"] for row in front) == 3
    assert front[0]["best"]
    plot_pareto(front, "p99_s", "rmr", str(tmp_path / "pareto.png"))
    assert (tmp_path / "pareto.png").read_bytes().startswith(b"\x89PNG")
