"""The attacks of the ready scenarios against the same runs without attackers: `python -m benchmarks.sim_attacks [SEEDS]`.

100 honest nodes, 300 messages. The results are written after every seed, so that a run that is cut short leaves those it has done.
"""

from __future__ import annotations

from statistics import fmean
from typing import Any

from gossiplog.sim.measure.report import without_attack
from gossiplog.sim.routing.run import run_row
from gossiplog.sim.scenario import load_scenario, set_key

from .sim_record import parse, write

ATTACKS = ("sybil", "eclipse", "cold-boot", "covert-flash", "degradation")


def measure(seed: int) -> list[dict[str, Any]]:
    """Every attack with one seed, scoring on and off. Without attackers all five scenarios are the same."""
    quiet = run_row((without_attack(load_scenario(ATTACKS[0])), seed))
    rows = []
    for name in ATTACKS:
        scenario = load_scenario(name)
        for scoring, chosen in (("on", scenario), ("off", set_key(scenario, "params", {}))):
            row = run_row((chosen, seed))
            del row["counters"]
            rows.append({**row, "scoring": scoring, "quiet_p99_s": quiet["p99_s"], "p99_ratio": row["p99_s"] / quiet["p99_s"]})
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """One line for each attack with and without scoring, over all seeds."""
    seeds = len({row["seed"] for row in rows})
    lines = [
        f"{'':<14}{'':>8}{'':>8}{'p50':>8}{'p99':>8}{'p99':>8}{'p99 against the':>18}{'':>8}{'max':>8}",
        f"{'attack':<14}{'scoring':>8}{'missed':>8}{'ms':>8}{'ms':>8}{'worst':>8}{'quiet run: mean':>18}{'worst':>8}{'ms':>8}",
    ]
    for name in ATTACKS:
        for scoring in ("on", "off"):
            some = [row for row in rows if (row["scenario"], row["scoring"]) == (name, scoring)]
            p50, p99, ratio = (fmean(row[key] for row in some) for key in ("p50_s", "p99_s", "p99_ratio"))
            lines.append(
                f"{name:<14}{scoring:>8}{sum(row['missed'] for row in some):>8}{p50 * 1e3:>8.0f}{p99 * 1e3:>8.0f}"
                f"{max(row['p99_s'] for row in some) * 1e3:>8.0f}{ratio:>18.2f}{max(row['p99_ratio'] for row in some):>8.2f}"
                f"{max(row['max_s'] for row in some) * 1e3:>8.0f}"
            )
    quiet = [row["quiet_p99_s"] for row in rows]
    lines.append(f"{seeds} seeds, 29,700 receipts each; p99 without attackers {min(quiet) * 1e3:.0f} to {max(quiet) * 1e3:.0f} ms")
    return "\n".join(lines)


def main() -> None:
    seeds = parse(__doc__, seeds=5).seeds
    rows: list[dict[str, Any]] = []
    for seed in range(seeds):
        rows += measure(seed)
        write("sim-attacks", "Attacks on gossipsub, with and without scoring", rows, table(rows))


if __name__ == "__main__":
    main()
