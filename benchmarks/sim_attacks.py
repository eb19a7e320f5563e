"""The attacks of the ready scenarios against the same runs without attackers: `python benchmarks/sim_attacks.py [SEEDS]`."""

from __future__ import annotations

import sys
from typing import Any

from sim_record import write

from gossiplog.sim.report import mean_rows, run_row, without_attack
from gossiplog.sim.scenario_file import load_scenario, set_key

ATTACKS = ("sybil", "eclipse", "cold-boot", "covert-flash", "degradation")


def main() -> None:
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    rows: list[dict[str, Any]] = []
    lines = [f"{'attack':<14}{'scoring':>8}{'missed':>8}{'p50 ms':>9}{'p99 ms':>9}{'quiet p99':>11}{'p99 ratio':>11}{'max ms':>9}"]
    for name in ATTACKS:
        scenario = load_scenario(name)
        unscored = set_key(scenario, "params", {})
        quiet = mean_rows([run_row((without_attack(scenario), seed)) for seed in range(seeds)])
        for scoring, chosen in (("on", scenario), ("off", unscored)):
            mean = mean_rows([run_row((chosen, seed)) for seed in range(seeds)])
            ratio = mean["p99_s"] / quiet["p99_s"]
            rows.append({**mean, "scoring": scoring, "quiet_p99_s": quiet["p99_s"], "p99_ratio": ratio})
            lines.append(
                f"{name:<14}{scoring:>8}{mean['missed']:>8}{mean['p50_s'] * 1e3:>9.0f}{mean['p99_s'] * 1e3:>9.0f}"
                f"{quiet['p99_s'] * 1e3:>11.0f}{ratio:>11.2f}{mean['max_s'] * 1e3:>9.0f}"
            )
    lines.append("100 honest nodes; `missed` is the sum over seeds of receipts that honest nodes should have had; 29,700 a seed")
    write("sim-attacks", "Attacks on gossipsub, with and without scoring", rows, "\n".join(lines))


if __name__ == "__main__":
    main()
