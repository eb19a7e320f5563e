"""`gossiplog sim`: parsing and printing for the simulator."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click

from ..exits import ExitCode
from ..progress import Progress
from .check import check
from .play import play
from .run import compare, processors, run, scenarios, sweep

if TYPE_CHECKING:
    from ...sim.simsub.reproduce import RunReport
from ..output import say

__all__ = ["sim"]


@click.group()
def sim() -> None:
    """Simulate broadcast on virtual time: the same routers that run on the wire."""


for command in (scenarios, run, compare, sweep, play, check):
    sim.add_command(command)


@sim.group()
def reproduce() -> None:
    """Reproduce published results."""


@reproduce.command("simsub")
@click.option(
    "--seeds", type=click.IntRange(1, 10_000), default=100, show_default=True, help="How many seeds, from --first on; the gate needs 100."
)
@click.option("--first", type=click.IntRange(0), default=0, show_default=True, help="The first seed; another one gives other draws.")
@click.option("--run", "names", multiple=True, metavar="NAME", help="Only this published run, such as 2018-run1; may be repeated.")
@click.option("--jobs", type=click.IntRange(1, 256), default=None, help="Processes; one per processor by default.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
def reproduce_simsub(seeds: int, first: int, names: tuple[str, ...], jobs: int | None, as_json: bool) -> None:
    """Run simsub's rules of 2018 and 2022 and compare every counter with its authors' figures.

    Exit status 1 when the gate does not hold. Fewer than 100 seeds give a preview only.
    """
    from ...sim.simsub import reproduce as lib

    runs = lib.published_runs()
    unknown = sorted(set(names) - {run.name for run in runs})
    if unknown:
        raise click.BadParameter(f"{unknown[0]!r}; there are {', '.join(run.name for run in runs)}", param_hint="--run")
    chosen = [run for run in runs if not names or run.name in names]
    reports: list[RunReport] = []
    workers = min(jobs or processors(), seeds)
    with Progress("", len(chosen) * seeds, is_shown=not as_json, is_told=True) as bar:
        try:
            found = lib.reproduce(
                chosen, range(first, first + seeds), workers, lambda name, done, _: bar.tell(name, len(reports) * seeds + done)
            )
            for report in found:
                reports.append(report)
                if not as_json:
                    bar.print(_table(report))
        except KeyboardInterrupt:
            bar.print("interrupted: what follows covers the runs above")
    holds = all(report.holds for report in reports)
    is_whole = len(reports) == len(chosen)
    if as_json:
        say(
            json.dumps(
                {
                    "seeds": seeds,
                    "first": first,
                    "gate": holds and is_whole,
                    "is_verdict": seeds >= lib.GATE_SEEDS,
                    "runs": [lib.as_json(report) for report in reports],
                }
            )
        )
    else:
        say(_verdict(reports, len(chosen), seeds))
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
    from ...sim.simsub.reproduce import GATE_SEEDS

    failing = [f"{report.run.name} {counter.name}" for report in reports for counter in report.counters if counter.holds is False]
    lagged = sum(1 for report in reports for counter in report.counters if counter.holds is None)
    excluded = f"; {lagged} lagged counters excluded" if lagged else ""
    if len(reports) < runs:
        return f"no verdict: {len(reports)} of {runs} runs were finished"
    name = "gate" if seeds >= GATE_SEEDS else f"preview with {seeds} seeds (the gate needs {GATE_SEEDS})"
    if failing:
        return f"{name}: FAILS for {', '.join(failing)}{excluded}"
    return f"{name}: holds for all {runs} runs{excluded}"
