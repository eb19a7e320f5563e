"""How fast the engines are and how cost grows: `python -m benchmarks.sim_speed [ENGINE]`. Each row is a process of its own; CPU seconds.

An event is one item of the calendar worked off: an RPC that arrives, a timer, a dial, a connection that stands, a publish. The time is
that from building the network to the end of the run, so that runs with few messages are mostly the making of connections; a publish
of ten messages a second makes about as many events in all as there are nodes × messages × copies.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import Any

from gossiplog.pubsub.registry import ROUTERS

from .sim_record import parse, peak_mib, write

CASES: list[tuple[str, int, int, float]] = [
    ("simsub 2018", 100, 1000, 0.1),
    ("simsub 2018", 1000, 1000, 0.1),
    ("simsub 2018, numpy", 1000, 1000, 0.1),
    ("simsub 2018, numpy", 10_000, 1000, 0.1),
    *((router, nodes, messages, 0.1) for router in ROUTERS for nodes, messages in ((100, 500), (1000, 50), (10_000, 5))),
    ("gossipsub", 100, 50, 0.1),
    ("gossipsub", 100, 5000, 0.1),
    ("gossipsub", 1000, 500, 0.1),
    ("gossipsub", 10_000, 50, 0.1),
]


def measure(engine: str, nodes: int, messages: int, interval_s: float) -> dict[str, Any]:
    from gossiplog.sim.routing.run import ScenarioRun
    from gossiplog.sim.scenario import PublishSpec, Scenario
    from gossiplog.sim.simsub.simsub import RULES_2018, run_simsub

    from .simsub_vector import run_vector

    begun = time.process_time()
    if engine in ROUTERS:
        run = ScenarioRun(Scenario("speed", router=engine, nodes=nodes, publish=PublishSpec(messages=messages, interval_s=interval_s)), 1)
        run.work()
        events = run.network.events
    else:
        work = run_vector if engine.endswith("numpy") else run_simsub
        events = work(RULES_2018, nodes, messages, interval_s, 1).events
    cpu_s = time.process_time() - begun
    return {"engine": engine, "nodes": nodes, "messages": messages, "events": events, "cpu_s": round(cpu_s, 2), "peak_mib": peak_mib()}


def main() -> None:
    if len(sys.argv) > 1 and sys.argv[1].startswith("["):
        print(json.dumps(measure(*json.loads(sys.argv[1]))))
        return
    rows: list[dict[str, Any]] = []
    lines = [f"{'engine':<20}{'nodes':>7}{'messages':>10}{'events':>12}{'CPU s':>8}{'events/CPU s':>14}{'peak MiB':>10}"]
    engine = parse(__doc__, engine="").engine
    for case in [case for case in CASES if not engine or case[0] == engine]:
        done = subprocess.run([sys.executable, "-m", "benchmarks.sim_speed", json.dumps(case)], capture_output=True, text=True, check=True)
        row = json.loads(done.stdout)
        rows.append(row)
        lines.append(
            f"{row['engine']:<20}{row['nodes']:>7}{row['messages']:>10}{row['events']:>12,}{row['cpu_s']:>8.1f}"
            f"{row['events'] / row['cpu_s']:>14,.0f}{row['peak_mib']:>10}"
        )
        print(f"{lines[-1]}  load {os.getloadavg()[0]:.0f}", file=sys.stderr, flush=True)
        write("sim-speed", "Events per CPU second, memory, and growth with nodes and messages", rows, "\n".join(lines))


if __name__ == "__main__":
    main()
