"""All routers side by side at 100 and 1,000 nodes: `python benchmarks/sim_routers.py [SEEDS]`.

Each node dials 10 others, latency U[10, 150] ms; 30 s for meshes and overlays to form, then 50 messages at fresh random nodes, and once
more from one source.
"""

from __future__ import annotations

import sys
from typing import Any

from sim_record import write

from gossiplog.sim.report import compare_table, mean_rows, run_row
from gossiplog.sim.scenario import ROUTERS, PublishSpec, Scenario


def main() -> None:
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    rows: list[dict[str, Any]] = []
    tables = []
    for nodes in (100, 1000):
        for sources, said in ((0, "every message from another source"), (1, "all messages from one source")):
            publish = PublishSpec(messages=50, interval_s=0.2, sources=sources, start_s=30.0)
            means = []
            for router in ROUTERS:
                scenario = Scenario("comparison", router=router, nodes=nodes, publish=publish)
                means.append({**mean_rows([run_row((scenario, seed)) for seed in range(seeds)]), "sources": sources})
            rows.extend(means)
            tables.append(f"{nodes} nodes, {said}, {seeds} seeds\n{compare_table(means)}")
    write("sim-routers", "Routers side by side", rows, "\n\n".join(tables))


if __name__ == "__main__":
    main()
