"""The whole log under faults on many seeds, and the planted bugs: `python -m benchmarks.sim_check [SEEDS [JOBS]]`.

The result is written every 100 seeds, and once more when it is interrupted, so that a run that is ended early leaves what it has.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gossiplog.pubsub.registry import ROUTERS
from gossiplog.sim.check.check import SeedOutcome, check_seed
from gossiplog.sim.measure.metrics import percentile
from gossiplog.sim.processes import spread_out

from .sim_record import parse, write

WRITE_EVERY = 100
PARTS = ("crashes", "partitions", "bad links", "skewed clocks", "Byzantine", "clients", "a guest", "a stranger", "reconciliation", "calm")


def spread(values: Sequence[float]) -> str:
    ordered = sorted(values)
    shown = [percentile(ordered, share) for share in (0, 0.25, 0.5, 0.75, 0.95, 1)]
    return " ".join(f"{value:>8,.2f}" if isinstance(value, float) else f"{value:>8,}" for value in shown)


def bugs() -> list[str]:
    """The planted bugs and a seed that catches each, from the list that the tests go through."""
    sys.path.insert(0, str(Path(__file__).parent.parent / "tests/sim"))
    from planted_bugs import PLANTED_BUGS
    from planted_later_bugs import LATER_BUGS, MISSED_BUGS
    from planted_law_bugs import LAW_BUGS
    from planted_reconcile_bugs import RECONCILE_BUGS
    from planted_router_bugs import ROUTER_BUGS

    bugs = (*PLANTED_BUGS, *ROUTER_BUGS, *LAW_BUGS, *RECONCILE_BUGS, *MISSED_BUGS, *LATER_BUGS)
    caught = sum(bug.seed is not None for bug in bugs)
    rows = [f"{'-' if bug.seed is None else bug.seed:>6}  {bug.name:<42}{bug.what}" for bug in bugs]
    return [f"{len(bugs)} planted bugs, {caught} caught; a seed that catches it", *rows]


def record(outcomes: list[SeedOutcome], asked: int, jobs: int, wall_s: float) -> None:
    reports = [outcome.report for outcome in outcomes if outcome.report is not None]
    failures = [outcome.failure for outcome in outcomes if outcome.failure is not None]
    cpu_s = [outcome.cpu_s for outcome in outcomes]
    mean_s = sum(cpu_s) / len(cpu_s)
    routers = Counter(router for report in reports for router in ROUTERS if f"with {router}," in f"{report.plan},")
    parts = Counter(part for report in reports for part in PARTS if part in report.plan)
    lines = [
        f"{len(outcomes):,} of {asked:,} seeds, {len(failures)} failed",
        f"{mean_s:.2f} s CPU a seed (goal ≤ 0.7), {len(outcomes) / wall_s:.2f} seeds/s on the wall with {jobs} process{'es' * (jobs > 1)}",
        "",
        f"{'a seed':<24}{'min':>8} {'25 %':>8} {'median':>8} {'75 %':>8} {'95 %':>8} {'max':>8}",
        f"{'CPU s':<24}{spread(cpu_s)}",
        f"{'nodes':<24}{spread([report.nodes for report in reports])}",
        f"{'entries at the end':<24}{spread([report.entries for report in reports])}",
        f"{'nodes × entries':<24}{spread([report.nodes * report.entries for report in reports])}",
        f"{'events':<24}{spread([report.events for report in reports])}",
        f"{'virtual s':<24}{spread([report.until_s for report in reports])}",
        "",
        "seeds with: " + ", ".join(f"{part} {parts[part]:,}" for part in PARTS),
        "seeds with: " + ", ".join(f"{router} {routers[router]:,}" for router in ROUTERS),
        *failures,
        "",
        *bugs(),
    ]
    row: dict[str, Any] = {"seeds": len(outcomes), "asked": asked, "failures": failures, "cpu_s_mean": round(mean_s, 3)}
    row.update({"wall_s": round(wall_s, 1), "jobs": jobs, "parts": parts, "routers": routers})
    write("sim-check", "The whole log under faults", [row], "\n".join(lines))


def main() -> None:
    given = parse(__doc__, seeds=10_000, jobs=1)
    seeds, jobs = given.seeds, given.jobs
    outcomes: list[SeedOutcome] = []
    started_s = time.monotonic()
    try:
        for outcome in spread_out(check_seed, range(seeds), jobs):
            outcomes.append(outcome)
            if outcome.failure is not None:
                print(outcome.failure, file=sys.stderr, flush=True)
            if len(outcomes) % WRITE_EVERY == 0:
                record(outcomes, seeds, jobs, time.monotonic() - started_s)
    finally:
        if outcomes:
            record(outcomes, seeds, jobs, time.monotonic() - started_s)


if __name__ == "__main__":
    main()
