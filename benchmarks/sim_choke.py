"""Choke beside gossipsub, while it decides: `python -m benchmarks.sim_choke [SEEDS]`.

Its first decision falls at heartbeat 45, one more every 15 heartbeats, each about at most one link of a node. So 100 nodes publish in
turn from 30 s to 100 s, five messages a second; what is published before the first decision goes by gossipsub's rules.
"""

from __future__ import annotations

from gossiplog.sim.measure.report import compare_table, mean_rows
from gossiplog.sim.routing.run import run_row
from gossiplog.sim.scenario import PublishSpec, Scenario

from .sim_record import parse, write

PUBLISH = PublishSpec(messages=350, interval_s=0.2, start_s=30.0)


def main() -> None:
    seeds = parse(__doc__, seeds=5).seeds
    found = {}
    for router in ("gossipsub", "choke"):
        scenario = Scenario("comparison", router=router, nodes=100, publish=PUBLISH)
        found[router] = [run_row((scenario, seed)) for seed in range(seeds)]
    means = [mean_rows(rows) for rows in found.values()]
    last = ", ".join(f"{row['router']} {row['rmr_last']:.2f}" for row in means)
    table = f"100 nodes, 70 s of messages from all of them, {seeds} seeds\n{compare_table(means)}\nRMR of the last message: {last}"
    rows = [{key: value for key, value in row.items() if key != "counters"} for rows in found.values() for row in rows]
    write("sim-choke", "Choke beside gossipsub", rows, table)


if __name__ == "__main__":
    main()
