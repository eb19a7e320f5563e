"""`gossiplog sim`: parsing and printing for the simulator."""

from __future__ import annotations

import contextlib
import functools
import json
import sys
import time
import webbrowser
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..pubsub.registry import ROUTERS
from .exits import ExitCode
from .options import ADDRESS, FOLDER, OUTPUT_PATH, PLACE, PathType, option, output_options, processors, takes
from .output import Output, counted
from .progress import Progress
from .session import in_trio, wait_for_signal

if TYPE_CHECKING:
    from ..sim.measure.trace import Sink
    from ..sim.routing.run import ScenarioRun
    from ..sim.scenario import Scenario
    from ..sim.simsub.reproduce import RunReport

_jobs_option = click.option("--jobs", type=click.IntRange(1, 256), metavar="N", help="Processes; one per processor by default.")
_scenario_argument = click.argument("scenario", type=PLACE)
_TRACE = PathType(exists=True, dir_okay=False, path_type=Path)


@dataclass(frozen=True, slots=True)
class _Changes:
    """The options that change a scenario."""

    nodes: int | None = option("--nodes", type=click.IntRange(2), metavar="N", help="A number of nodes other than the scenario's.")
    settings: tuple[str, ...] = option(
        "--set", metavar="KEY=VALUE", multiple=True, help="Set a key, such as publish.messages=50; repeatable."
    )

    def load(self, name: str, router: str | None = None) -> Scenario:
        """Load a scenario with these changes, and with this router."""
        from ..sim.scenario import ScenarioError, load_scenario, set_key

        scenario = load_scenario(name)
        for setting in self.settings:
            key, equals, text = setting.partition("=")
            if not equals:
                raise click.BadParameter(f"{setting!r}, expected KEY=VALUE", param_hint="--set")
            scenario = set_key(scenario, key, _value(text))
        try:
            return replace(scenario, router=router or scenario.router, nodes=self.nodes or scenario.nodes)
        except ScenarioError as error:
            raise click.BadParameter(str(error)) from error


@dataclass(frozen=True, slots=True)
class _Figures:
    """The options for figures."""

    folder: str | None = option("--plots", metavar="DIR", type=FOLDER, help="Draw figures into this folder.")
    format: str = option("--format", type=click.Choice(("png", "svg", "pdf")), default="png", help="The figures' format.")


def _json_option(command: Callable[..., None]) -> Callable[..., None]:
    """Add `--json`; the command gets an `Output` named `out`, which writes text otherwise, into a pipe too."""

    @functools.wraps(command)
    def run(*args: Any, as_json: bool, **options: Any) -> None:
        command(*args, out=Output(is_json=as_json, is_strict=as_json), **options)

    return click.option("--json", "as_json", is_flag=True, help="Write only JSON lines.")(run)


@click.group()
def sim() -> None:
    """Simulate broadcast in virtual time.

    The routers, and the replicas of `sim check`, are the code that runs on real networks.

    \b
    Examples
      gossiplog sim scenarios
      gossiplog sim run partition --nodes 40 --seed 7
      gossiplog sim compare sparse --nodes 60 --set publish.messages=20
      gossiplog sim check --seeds 60
    """


@sim.command()
@_json_option
def scenarios(out: Output) -> None:
    """List the scenarios that ship with the package.

    \b
    Example
      gossiplog sim scenarios
    """
    from ..sim.scenario import ready_scenarios

    ready = ready_scenarios()
    out.tell(ready, "\n".join(f"{name:<18} {about}" for name, about in ready.items()))


@sim.command()
@_scenario_argument
@click.option("--seed", type=int, metavar="N", default=0, help="Another seed gives another network.")
@click.option("--router", type=click.Choice(ROUTERS), help="A router other than the scenario's.")
@takes(changes=_Changes)
@click.option("--trace", type=OUTPUT_PATH, help="Write every record; .jsonl, for `sim play` too, or .parquet.")
@click.option("--transcript", type=OUTPUT_PATH, help="Write every record as text to read.")
@takes(figures=_Figures)
@click.option("--baseline", is_flag=True, help="Also run it without its attackers, and compare.")
@_json_option
def run(
    scenario: str,
    seed: int,
    router: str | None,
    trace: Path | None,
    transcript: Path | None,
    baseline: bool,
    changes: _Changes,
    figures: _Figures,
    out: Output,
) -> None:
    """Run a scenario and print its summary.

    SCENARIO is a TOML file, or a name that `gossiplog sim scenarios` lists.

    Ctrl-C ends the run early; the summary then covers the run so far.

    \b
    Examples
      gossiplog sim run partition --nodes 40 --seed 7
      gossiplog sim run sparse --set params.gossipsub.D=8 --trace sparse.jsonl
    """
    from ..sim.measure import report
    from ..sim.routing.run import ScenarioRun

    chosen = changes.load(scenario, router)
    result = _work(ScenarioRun(chosen, seed, _sinks(chosen, seed, trace, transcript)), out)
    row = report.as_row(result)
    out.tell(row, report.describe(result))
    if baseline and chosen.attack.nodes:
        quiet = report.as_row(_work(ScenarioRun(report.without_attack(chosen), seed), out))
        table = report.compare_table([{**row, "router": "attacked"}, {**quiet, "router": "quiet"}])
        out.tell(quiet, f"\nwithout the attackers:\n{table}")
    if figures.folder is not None:
        from ..sim.measure.plots import plot_run

        for path in plot_run(result, Path(figures.folder), figures.format):
            out.note(f"wrote {path}")
    if trace is not None and trace.suffix == ".jsonl":
        out.note(f"`gossiplog sim play {trace}` shows it")
    if result.until_s < chosen.end_s:
        sys.exit(ExitCode.INTERRUPTED)


@sim.command()
@_scenario_argument
@click.option("--router", "routers", type=click.Choice(ROUTERS), multiple=True, help="Only this router; repeatable. All by default.")
@click.option("--seeds", type=click.IntRange(1, 10_000), metavar="N", default=1, help="Runs of each router; figures are means.")
@takes(changes=_Changes)
@_jobs_option
@takes(figures=_Figures)
@_json_option
def compare(
    scenario: str, routers: tuple[str, ...], seeds: int, jobs: int | None, changes: _Changes, figures: _Figures, out: Output
) -> None:
    """Compare routers on the same networks.

    SCENARIO is a TOML file, or a name that `gossiplog sim scenarios` lists.

    \b
    Examples
      gossiplog sim compare sparse --seeds 5
      gossiplog sim compare sparse --router gossipsub --router episub
    """
    from ..sim.measure import report
    from ..sim.processes import spread_out
    from ..sim.routing.run import run_row, run_scenario

    base = changes.load(scenario)
    names = routers or ROUTERS
    tasks = [(replace(base, router=name), seed) for name in names for seed in range(seeds)]
    rows: list[dict[str, Any]] = []
    with Progress("", len(tasks), is_shown=not out.is_json) as bar, contextlib.suppress(KeyboardInterrupt):
        for row in spread_out(run_row, tasks, jobs or processors()):
            rows.append(row)
            bar.tell(row["router"], len(rows))
    means = [report.mean_rows(part) for name in names if (part := [row for row in rows if row["router"] == name])]
    if out.is_json:
        for row in means:
            out.record(row)
    else:
        out.line(f"scenario {base.name}, {base.nodes} nodes, {base.publish.messages} messages, {counted(seeds, 'seed', 'seeds')} from 0")
        out.line(report.compare_table(means))
    if len(rows) < len(tasks):
        sys.exit(ExitCode.INTERRUPTED)
    if figures.folder is not None:
        from ..sim.measure.plots import plot_comparison

        results = [run_scenario(base, seed, name) for name in names for seed in range(seeds)]
        out.note(f"wrote {plot_comparison(results, Path(figures.folder), figures.format)}")


@sim.command()
@click.argument("grid", type=_TRACE)
@_jobs_option
@click.option("--out", metavar="FILE", type=OUTPUT_PATH, help="Write rows here, .jsonl or .csv; standard output by default.")
def sweep(grid: Path, jobs: int | None, out: Path | None) -> None:
    """Run a grid of scenarios.

    Prints one row per run, in an order that does not depend on --jobs.

    GRID is TOML: scenario = "NAME", seeds = N, and under [grid] an array of values for each key.

    \b
    Example
      gossiplog sim sweep grid.toml --out rows.csv
    """
    import csv

    from ..sim.routing.sweep import load_sweep, run_sweep

    loaded = load_sweep(grid)
    if out is not None and out.suffix not in (".jsonl", ".csv"):
        raise click.BadParameter(f"{out}: expected a name that ends in .jsonl or .csv", param_hint="--out")
    total = len(loaded.points)
    with contextlib.ExitStack() as stack:
        bar = stack.enter_context(Progress("sweep", total))
        file = stack.enter_context(out.open("w", encoding="utf-8", newline="")) if out is not None else None
        table: csv.DictWriter[str] | None = None
        for row in run_sweep(loaded, jobs or processors(), lambda done: bar.tell("sweep", done, f"{done} of {total} runs")):
            if file is None:
                bar.print(json.dumps(row))
            elif out is None or out.suffix == ".jsonl":
                file.write(json.dumps(row) + "\n")
            else:
                if table is None:
                    # Routers have different counters, so these are only in JSON.
                    columns = [name for name in row if name != "counters"]
                    table = csv.DictWriter(file, columns, extrasaction="ignore", lineterminator="\n")
                    table.writeheader()
                table.writerow(row)


def _value(text: str) -> Any:
    """Read a TOML value; any other text is a string."""
    import tomllib

    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _sinks(scenario: Scenario, seed: int, trace: Path | None, transcript: Path | None) -> list[Sink]:
    from ..sim.measure.trace import Transcript, open_sink

    sinks: list[Sink] = []
    if trace is not None:
        sinks.append(open_sink(trace, scenario.name, scenario.router, seed))
    if transcript is not None:
        sinks.append(Transcript(transcript.open("w", encoding="utf-8", newline="\n"), scenario.name, scenario.router, seed))
    return sinks


def _work(run: ScenarioRun, out: Output) -> Any:
    """Run to the end or to Ctrl-C, with a line that shows simulated time, events per second and time left."""
    name, end_s, begun = run.scenario.name, run.scenario.end_s, time.monotonic()
    with Progress(name, end_s, is_shown=not out.is_json) as bar, contextlib.suppress(KeyboardInterrupt):

        def show(now: float, events: int) -> None:
            bar.tell(name, now, f"{now:.1f} of {end_s:.1f} s, {events / (time.monotonic() - begun + 1e-9):,.0f} events/s")

        run.work(show)
    return run.result()


@sim.command()
@click.option("--seeds", type=click.IntRange(1, 1_000_000), metavar="N", default=300, help="How many seeds, from --first on.")
@click.option("--first", type=click.IntRange(0), metavar="N", default=0, help="The first seed.")
@click.option("--seed", type=click.IntRange(0), metavar="N", help="Replay this one seed, and show its plan.")
@_jobs_option
@click.option("--keep-going", is_flag=True, help="Go on after a failure.")
@_json_option
def check(seeds: int, first: int, seed: int | None, jobs: int | None, keep_going: bool, out: Output) -> None:
    """Let replicas crash, lie and lose messages, and check the log.

    Each seed is a network of 3 to 20 replicas with a history of 200 to 1,000 entries, and faults of its own. A failure prints the seed
    and the command that replays it, and the exit code is 1.

    \b
    Examples
      gossiplog sim check --seeds 60
      gossiplog sim check --seed 7
    """
    from ..sim.check.check import check_seed
    from ..sim.processes import spread_out

    chosen = range(first, first + seeds) if seed is None else range(seed, seed + 1)
    failures: list[str] = []
    done, cpu_s, started = 0, 0.0, time.monotonic()
    with Progress("checking", len(chosen), is_shown=not out.is_json) as bar:
        try:
            for outcome in spread_out(check_seed, chosen, min(jobs or processors(), len(chosen))):
                done, cpu_s = done + 1, cpu_s + outcome.cpu_s
                bar.tell("checking", done, f"seed {outcome.seed}, {cpu_s / done:.2f} s CPU a seed")
                if outcome.failure is not None:
                    failures.append(outcome.failure)
                    if not out.is_json:
                        bar.print(outcome.failure)
                    if not keep_going:
                        break
                elif seed is not None and not out.is_json:
                    bar.print(str(outcome.report))
        except KeyboardInterrupt:
            out.note("interrupted; the result covers the seeds that were finished")
    wall_s = time.monotonic() - started
    verdict = f"{len(failures)} of {done} seeds failed" if failures else f"all invariants hold on {counted(done, 'seed', 'seeds')}"
    out.tell(
        {"seeds": done, "first": chosen[0], "failures": failures, "cpu_s": round(cpu_s, 3)},
        f"{verdict}; {cpu_s / max(1, done):.2f} s CPU a seed, {done / max(wall_s, 1e-9):.1f} seeds/s",
    )
    sys.exit(ExitCode.FAILED if failures else ExitCode.INTERRUPTED if done < len(chosen) else ExitCode.DONE)


@sim.command()
@click.argument("trace", type=_TRACE)
@click.argument("other", required=False, type=_TRACE)
@click.option("--listen", "address", metavar="HOST:PORT", type=ADDRESS, default="127.0.0.1:0", help="Where the page is served.")
@click.option("--open", "opens_page", is_flag=True, help="Open the page in a browser.")
@output_options()
@in_trio
async def play(trace: Path, other: Path | None, address: str, opens_page: bool, out: Output) -> None:
    """Play a trace in a browser, until Ctrl-C.

    OTHER, if given, plays beside TRACE on the same clock. A trace is a file of `sim run --trace FILE.jsonl`, or the facts.jsonl of `testnet
    --report DIR`, so a simulation can be played beside a real network. The page shows the messages that peers forward to each other,
    episub's tree of eager and lazy links, and the path that a message took.

    \b
    Examples
      gossiplog sim run sparse --router gossipsub --trace gossipsub.jsonl
      gossiplog sim run sparse --router episub --trace episub.jsonl
      gossiplog sim play gossipsub.jsonl episub.jsonl --open
    """
    from ..net.hub.server import listen
    from ..web.glass.trace_site import TraceSite, check_trace

    traces = [path for path in (trace, other) if path is not None]
    for path in traces:
        check_trace(path)
    async with listen((), address, make_http=TraceSite(traces).make_http) as hub:
        url = f"http://{hub.addresses[0][0]}:{hub.port}/"
        out.tell({"url": url, "traces": [str(path) for path in traces]}, f"the page is {url}")
        out.note("Ctrl-C ends it")
        out.flush()
        if opens_page:
            webbrowser.open(url)
        await wait_for_signal()


@sim.group()
def reproduce() -> None:
    """Reproduce published results.

    \b
    Example
      gossiplog sim reproduce simsub
    """


@reproduce.command("simsub")
@click.option(
    "--seeds", type=click.IntRange(1, 10_000), metavar="N", default=100, help="How many seeds, from --first on; the gate needs 100."
)
@click.option("--first", type=click.IntRange(0), metavar="N", default=0, help="The first seed.")
@click.option("--run", "names", multiple=True, metavar="NAME", help="Only this published run, such as 2018-run1; repeatable.")
@_jobs_option
@_json_option
def reproduce_simsub(seeds: int, first: int, names: tuple[str, ...], jobs: int | None, out: Output) -> None:
    """Compare simsub's rules with the figures of its authors.

    Runs the rules of 2018 and 2022, and shows every counter beside the published one. The exit code is 1 if the gate does not hold. Fewer
    than 100 seeds give only a preview.

    \b
    Example
      gossiplog sim reproduce simsub --seeds 10 --run 2018-run1
    """
    from ..sim.simsub import reproduce as lib

    runs = lib.published_runs()
    unknown = sorted(set(names) - {run.name for run in runs})
    if unknown:
        raise click.BadParameter(f"{unknown[0]!r}; there are {', '.join(run.name for run in runs)}", param_hint="--run")
    chosen = [run for run in runs if not names or run.name in names]
    reports: list[RunReport] = []
    workers = min(jobs or processors(), seeds)
    with Progress("", len(chosen) * seeds, is_shown=not out.is_json) as bar:
        try:
            found = lib.reproduce(
                chosen, range(first, first + seeds), workers, lambda name, done, _: bar.tell(name, len(reports) * seeds + done)
            )
            for report in found:
                reports.append(report)
                if not out.is_json:
                    bar.print(_table(report))
        except KeyboardInterrupt:
            out.note("interrupted; the result covers the runs that were finished")
    holds = all(report.holds for report in reports)
    is_whole = len(reports) == len(chosen)
    record = {
        "seeds": seeds,
        "first": first,
        "gate": holds and is_whole,
        "is_verdict": seeds >= lib.GATE_SEEDS,
        "runs": [lib.as_json(report) for report in reports],
    }
    out.tell(record, _verdict(reports, len(chosen), seeds))
    sys.exit(ExitCode.INTERRUPTED if not is_whole else ExitCode.DONE if holds else ExitCode.FAILED)


def _table(report: RunReport) -> str:
    run = report.run
    lines = [
        f"{run.name}: {run.nodes} nodes, {run.messages} messages every {run.delay_s:g} s, rules of {run.rules}, {report.seeds} seeds",
        f"  {'counter':<8} {'published':>9} {'mean':>11} {'sd':>8} {'min':>8} {'max':>8} {'ratio':>6}  gate",
    ]
    for counter in report.counters:
        ratio = "–" if counter.ratio is None else f"{counter.ratio:.3f}"
        verdict = (
            "excluded: the authors' run lagged" if counter.holds is None else f"{'holds' if counter.holds else 'FAILS'} ({counter.rule})"
        )
        lines.append(
            f"  {counter.name:<8} {counter.published:>9} {counter.mean:>11.1f} {counter.spread:>8.1f} {counter.low:>8} {counter.high:>8} "
            f"{ratio:>6}  {verdict}"
        )
    return "\n".join(lines) + "\n"


def _verdict(reports: list[RunReport], runs: int, seeds: int) -> str:
    from ..sim.simsub.reproduce import GATE_SEEDS

    failing = [f"{report.run.name} {counter.name}" for report in reports for counter in report.counters if counter.holds is False]
    lagged = sum(counter.holds is None for report in reports for counter in report.counters)
    excluded = f"; {lagged} lagged counters excluded" if lagged else ""
    if len(reports) < runs:
        return f"no verdict: {len(reports)} of {runs} runs were finished"
    name = "gate" if seeds >= GATE_SEEDS else f"preview with {seeds} seeds (the gate needs {GATE_SEEDS})"
    if failing:
        return f"{name}: FAILS for {', '.join(failing)}{excluded}"
    return f"{name}: holds for all {runs} runs{excluded}"
