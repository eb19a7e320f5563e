"""The routers side by side at 100 and 1,000 nodes: `python -m benchmarks.sim_routers [SEEDS AT 100 [SEEDS AT 1000]]`.

Each node dials 10 others, latency U[10, 150] ms; 30 s for meshes and overlays to form, then 50 messages at fresh random nodes, and once
more from one source. The results are written after every table, so that a run that is cut short leaves those it has done. Choke, which
decides nothing before that is over, has `sim_choke`.
"""

from __future__ import annotations

from typing import Any

from gossiplog.pubsub.registry import ROUTERS
from gossiplog.sim.measure.report import compare_table, mean_rows
from gossiplog.sim.routing.run import run_row
from gossiplog.sim.scenario import PublishSpec, Scenario

from .sim_record import parse, write


def spread(by_router: dict[str, list[dict[str, Any]]]) -> str:
    """The smallest and the largest p99 of a seed."""
    said = []
    for router, rows in by_router.items():
        values = [row["p99_s"] * 1e3 for row in rows]
        said.append(f"{router} {min(values):.0f}–{max(values):.0f}")
    return f"p99 by seed, ms: {', '.join(said)}"


def main() -> None:
    given = parse(__doc__, seeds_at_100=5, seeds_at_1000=3)
    rows: list[dict[str, Any]] = []
    tables = []
    for nodes, seeds in ((100, given.seeds_at_100), (1000, given.seeds_at_1000)):
        for sources, said in ((0, "every message from another source"), (1, "all messages from one source")):
            publish = PublishSpec(messages=50, interval_s=0.2, sources=sources, start_s=30.0)
            by_router: dict[str, list[dict[str, Any]]] = {}
            for router in (router for router in ROUTERS if router != "choke"):
                scenario = Scenario("comparison", router=router, nodes=nodes, publish=publish)
                by_router[router] = [{**run_row((scenario, seed)), "sources": sources} for seed in range(seeds)]
            for found in by_router.values():
                rows.extend({key: value for key, value in row.items() if key != "counters"} for row in found)
            means = compare_table([mean_rows(found) for found in by_router.values()])
            tables.append(f"{nodes} nodes, {said}, {seeds} seeds\n{means}\n{spread(by_router)}")
            write("sim-routers", "Routers side by side", rows, "\n\n".join(tables))


if __name__ == "__main__":
    main()
