"""`gossiplog sim check`: the whole log under faults, seed after seed."""

from __future__ import annotations

import json
import sys
import time

import click

from ..exits import ExitCode
from ..output import say
from ..progress import Progress
from .run import processors

__all__ = ["check"]


@click.command()
@click.option("--seeds", type=click.IntRange(1, 1_000_000), default=300, show_default=True, help="How many seeds, from --first on.")
@click.option("--first", type=click.IntRange(0), default=0, show_default=True, help="The first seed.")
@click.option("--seed", type=click.IntRange(0), default=None, help="Replay this one seed, and show its plan.")
@click.option("--jobs", type=click.IntRange(1, 256), default=None, help="Processes; one per processor by default.")
@click.option("--keep-going", is_flag=True, help="Go on after a failure.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
def check(seeds: int, first: int, seed: int | None, jobs: int | None, keep_going: bool, as_json: bool) -> None:
    """Let replicas crash, lie and lose messages, and check the log.

    Each seed is a network of 3 to 20 replicas with a history of 200 to 1,000 entries, and faults of its own. A failure prints the seed
    and the command that replays it. Exit status 1 when there is one.
    """
    from ...sim.check.check import check_seed
    from ...sim.processes import spread_out

    chosen = range(first, first + seeds) if seed is None else range(seed, seed + 1)
    failures: list[str] = []
    done, cpu_s, started = 0, 0.0, time.monotonic()
    with Progress("checking", len(chosen), is_shown=not as_json, is_told=True) as bar:
        try:
            for outcome in spread_out(check_seed, chosen, min(jobs or processors(), len(chosen))):
                done, cpu_s = done + 1, cpu_s + outcome.cpu_s
                bar.tell("checking", done, f"seed {outcome.seed}, {cpu_s / done:.2f} s CPU a seed")
                if outcome.failure is not None:
                    failures.append(outcome.failure)
                    if not as_json:
                        bar.print(outcome.failure)
                    if not keep_going:
                        break
                elif seed is not None and not as_json:
                    bar.print(str(outcome.report))
        except KeyboardInterrupt:
            bar.print("interrupted: what follows covers the seeds before")
    if as_json:
        say(json.dumps({"seeds": done, "first": chosen[0], "failures": failures, "cpu_s": round(cpu_s, 3)}))
    else:
        wall_s = time.monotonic() - started
        verdict = f"{len(failures)} of {done} seeds failed" if failures else f"all invariants hold on {done} seed{'s' * (done != 1)}"
        say(f"{verdict}; {cpu_s / max(1, done):.2f} s CPU a seed, {done / max(wall_s, 1e-9):.1f} seeds/s")
    sys.exit(ExitCode.FAILED if failures else ExitCode.INTERRUPTED if done < len(chosen) else ExitCode.DONE)
