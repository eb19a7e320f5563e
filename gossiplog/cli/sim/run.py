"""`gossiplog sim run`, `compare`, `sweep` and `scenarios`: parsing and printing."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...pubsub.registry import ROUTERS
from ...sim.experiments.registry import SIM_ROUTERS
from ..exits import ExitCode
from ..progress import Progress

if TYPE_CHECKING:
    from ...sim.measure.trace import Sink
    from ...sim.routing.run import Run
    from ...sim.scenario import Scenario
from ..output import say

__all__ = ["compare", "processors", "run", "scenarios", "sweep"]

router_option = click.option("--router", type=click.Choice(SIM_ROUTERS), help="A router other than the scenario's.")
nodes_option = click.option("--nodes", type=click.IntRange(2), help="A number of nodes other than the scenario's.")
set_option = click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Set a key, such as publish.messages=50; repeatable."
)
jobs_option = click.option("--jobs", type=click.IntRange(1, 256), default=None, help="Processes; one per processor by default.")
plots_option = click.option("--plots", type=click.Path(file_okay=False, path_type=Path), help="Draw figures into this folder.")
format_option = click.option("--format", "image_format", type=click.Choice(("png", "svg", "pdf")), default="png", show_default=True)


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def scenarios(as_json: bool) -> None:
    """List the scenarios that ship with the package."""
    from ...sim.scenario_file import ready_scenarios

    ready = ready_scenarios()
    say(json.dumps(ready) if as_json else "\n".join(f"{name:<18} {about}" for name, about in ready.items()))


@click.command()
@click.argument("scenario")
@click.option("--seed", type=int, default=0, show_default=True)
@router_option
@nodes_option
@set_option
@click.option(
    "--trace", type=click.Path(dir_okay=False, path_type=Path), help="Write every record; .jsonl, for `sim play` too, or .parquet."
)
@click.option("--transcript", type=click.Path(dir_okay=False, path_type=Path), help="Write every record as text to read.")
@plots_option
@format_option
@click.option("--baseline", is_flag=True, help="Run it without its attackers too, and compare.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def run(
    scenario: str,
    seed: int,
    router: str | None,
    nodes: int | None,
    settings: tuple[str, ...],
    trace: Path | None,
    transcript: Path | None,
    plots: Path | None,
    image_format: str,
    baseline: bool,
    as_json: bool,
) -> None:
    """Run SCENARIO, a TOML file or the name of a ready one, and print its summary.

    Ctrl-C ends the run early; the summary then shows what there is.
    """
    from ...sim.measure import report
    from ...sim.routing.run import Run

    chosen = _load(scenario, router, nodes, settings)
    result = _work(Run(chosen, seed, _sinks(chosen, seed, trace, transcript)), as_json=as_json)
    row = report.as_row(result)
    say(json.dumps(row) if as_json else report.describe(result))
    if baseline and chosen.attack.nodes:
        quiet = report.as_row(_work(Run(report.without_attack(chosen), seed), as_json=as_json))
        if not as_json:
            say("\nwithout the attackers:")
        say(json.dumps(quiet) if as_json else report.compare_table([{**row, "router": "attacked"}, {**quiet, "router": "quiet"}]))
    if plots is not None:
        from ...sim.measure.plots import plot_run

        for path in plot_run(result, plots, image_format):
            say(f"wrote {path}", err=True)
    if trace is not None and trace.suffix == ".jsonl" and not as_json:
        say(f"`gossiplog sim play {trace}` shows it", err=True)
    if result.until_s < chosen.end_s:
        sys.exit(ExitCode.INTERRUPTED)


@click.command()
@click.argument("scenario")
@click.option(
    "--router", "routers", type=click.Choice(SIM_ROUTERS), multiple=True, help="Only these; repeatable. All but drafts by default."
)
@click.option("--seeds", type=click.IntRange(1, 10_000), default=1, show_default=True, help="Runs of each router; figures are means.")
@nodes_option
@set_option
@jobs_option
@plots_option
@format_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per router.")
def compare(
    scenario: str,
    routers: tuple[str, ...],
    seeds: int,
    nodes: int | None,
    settings: tuple[str, ...],
    jobs: int | None,
    plots: Path | None,
    image_format: str,
    as_json: bool,
) -> None:
    """Run SCENARIO with several routers on the same networks and set their figures side by side."""
    from ...sim.measure import report
    from ...sim.processes import spread_out
    from ...sim.routing.run import run_scenario

    base = _load(scenario, None, nodes, settings)
    names = routers or ROUTERS
    tasks = [(replace(base, router=name), seed) for name in names for seed in range(seeds)]
    rows: list[dict[str, Any]] = []
    with Progress("", len(tasks), is_shown=not as_json, is_told=True) as bar, contextlib.suppress(KeyboardInterrupt):
        for row in spread_out(report.run_row, tasks, jobs or processors()):
            rows.append(row)
            bar.tell(row["router"], len(rows))
    means = [report.mean_rows(part) for name in names if (part := [row for row in rows if row["router"] == name])]
    if as_json:
        for row in means:
            say(json.dumps(row))
    else:
        say(f"scenario {base.name}, {base.nodes} nodes, {base.publish.messages} messages, {seeds} seed{'s' if seeds > 1 else ''} from 0")
        say(report.compare_table(means))
    if len(rows) < len(tasks):
        sys.exit(ExitCode.INTERRUPTED)
    if plots is not None:
        from ...sim.measure.plots import plot_comparison

        results = [run_scenario(base, seed, name) for name in names for seed in range(seeds)]
        say(f"wrote {plot_comparison(results, plots, image_format)}", err=True)


@click.command()
@click.argument("grid", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@jobs_option
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Write rows here, .jsonl or .csv; standard output by default.")
def sweep(grid: Path, jobs: int | None, out: Path | None) -> None:
    """Run a scenario over a GRID of keys and seeds; one row a run, in the same order whatever the number of processes.

    GRID is TOML: scenario = "NAME", seeds = N, and under [grid] for each key an array of values.
    """
    from ...sim.measure.sweep import load_sweep, run_sweep

    loaded = load_sweep(grid)
    if out is not None and out.suffix not in (".jsonl", ".csv"):
        raise click.BadParameter(f"{out}: expected a name that ends in .jsonl or .csv", param_hint="--out")
    total = len(loaded.points)
    with contextlib.ExitStack() as stack:
        bar = stack.enter_context(Progress("sweep", total, is_told=True))
        file = stack.enter_context(out.open("w", encoding="utf-8", newline="")) if out is not None else None
        columns: list[str] = []
        for row in run_sweep(loaded, jobs or processors(), lambda done: bar.tell("sweep", done, f"{done} of {total} runs")):
            if out is not None and out.suffix == ".csv":
                line, columns = _csv_line(row, columns)
            else:
                line = json.dumps(row) + "\n"
            if file is not None:
                file.write(line)
            else:
                bar.print(line.rstrip("\n"))


def _csv_line(row: dict[str, Any], columns: list[str]) -> tuple[str, list[str]]:
    """One line of CSV, before the first the header; counters are left to JSON, as they differ between routers."""
    import csv
    import io

    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    if not columns:
        columns = [name for name in row if name != "counters"]
        writer.writerow(columns)
    writer.writerow([row[name] for name in columns])
    return buffer.getvalue(), columns


def processors() -> int:
    """How many processes can run at once here."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _load(name: str, router: str | None, nodes: int | None, settings: tuple[str, ...]) -> Scenario:
    from ...sim.scenario import ScenarioError
    from ...sim.scenario_file import load_scenario, set_key

    scenario = load_scenario(name)
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals:
            raise click.BadParameter(f"{setting!r}, expected KEY=VALUE", param_hint="--set")
        scenario = set_key(scenario, key, _value(text))
    try:
        return replace(scenario, router=router or scenario.router, nodes=nodes or scenario.nodes)
    except ScenarioError as error:
        raise click.BadParameter(str(error)) from error


def _value(text: str) -> Any:
    """Read a value as TOML does; what is no TOML value is a string."""
    import tomllib

    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _sinks(scenario: Scenario, seed: int, trace: Path | None, transcript: Path | None) -> list[Sink]:
    from ...sim.measure.trace import Transcript, open_sink

    sinks: list[Sink] = []
    if trace is not None:
        sinks.append(open_sink(trace, scenario.name, scenario.router, seed))
    if transcript is not None:
        sinks.append(Transcript(transcript.open("w", encoding="utf-8", newline="\n"), scenario.name, scenario.router, seed))
    return sinks


def _work(run: Run, *, as_json: bool) -> Any:
    """Run to the end or to Ctrl-C, with a line that shows simulated time, events a second and time left."""
    begun = time.monotonic()
    with Progress(run.scenario.name, run.scenario.end_s, is_shown=not as_json, is_told=True) as bar, contextlib.suppress(KeyboardInterrupt):
        run.work(
            lambda now, events: bar.tell(
                run.scenario.name,
                now,
                f"{now:.1f} of {run.scenario.end_s:.1f} s, {events / (time.monotonic() - begun + 1e-9):,.0f} events/s",
            )
        )
    return run.result()
