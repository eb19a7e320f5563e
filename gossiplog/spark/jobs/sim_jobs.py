"""The simulator's jobs: traces and sweeps."""

from __future__ import annotations

from pathlib import Path

from ..tables.staging import materialise
from ..tables.sweep import pareto, plot_pareto, sweep
from ..tables.traces import by_message, by_run, plot_latencies, quarantined, read_traces, summed_up
from .jobs import Job
from .results import JobReport

_ROWS_SHOWN = 50


def traces_job(job: Job, location: str, *, plots: bool = True) -> JobReport:
    """Sum up traces; tables `messages`, `runs` and `quarantine`, and the figure `latency.png`."""
    with job.publishing("traces", location) as (report, draft):
        job.note(f"reading {location}")
        traces = read_traces(job.spark, location)
        refused = quarantined(traces)
        messages = materialise(by_message(traces), draft, "messages")
        runs = materialise(by_run(traces, messages), draft, "runs")
        report.results["runs"] = runs.count()
        report.results["messages"] = messages.count()
        report.results["failed"] = refused.count()
        report.results["by scenario and router"] = [row.asDict() for row in summed_up(runs).limit(_ROWS_SHOWN).collect()]
        if draft is not None:
            messages.coalesce(8).write.parquet(f"{draft}/messages")
            runs.coalesce(1).write.parquet(f"{draft}/runs")
            refused.coalesce(8).write.parquet(f"{draft}/quarantine")
            report.tables["messages"] = "a row for each message: delivered, copies, rmr, reach, last_hop, quantiles of latency"
            report.tables["runs"] = "the same over all messages of a run"
            report.tables["quarantine"] = "lines that are no records, with the reason"
            if plots and Path(draft).is_dir():
                plot_latencies(traces, f"{draft}/latency.png")
                report.tables["latency.png"] = "the share of receipts over time, by scenario and router"
    return report


def sweep_job(job: Job, grid: str, *, x: str = "p99_s", y: str = "rmr", tasks: int | None = None, plots: bool = True) -> JobReport:
    """Run a grid; tables `results` and `quarantine`, and the figure `pareto.png`."""
    from ...sim.routing.sweep import load_sweep

    points = load_sweep(Path(grid))
    with job.publishing("sweep", grid) as (report, draft):
        job.note(f"{len(points.points):,} runs")
        results = materialise(sweep(job.spark, points, tasks=tasks), draft, "results")
        failed = results.where("failed is not null")
        rows = pareto(results, points.keys, x, y)
        report.results |= {"runs": len(points.points), "failed": failed.count(), "keys": ", ".join(points.keys), "x": x, "y": y}
        report.results["best"] = [{name: row[name] for name in row if name != "best"} for row in rows if row["best"]]
        if draft is not None:
            results.orderBy("number").coalesce(1).write.parquet(f"{draft}/results")
            failed.select("number", "keys", "seed", "failed").coalesce(1).write.parquet(f"{draft}/quarantine")
            report.tables["results"] = "a row for each run: what was set, and the figures of `gossiplog sim sweep`"
            report.tables["quarantine"] = "runs that failed, with the reason"
            if plots and Path(draft).is_dir():
                plot_pareto(rows, x, y, f"{draft}/pareto.png")
                report.tables["pareto.png"] = f"{y} over {x}, means over seeds"
    return report
