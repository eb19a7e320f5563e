"""Episub's goals (spec: the table in episub.md), measured: `python benchmarks/sim_episub.py [SEEDS]`.

1,000 nodes, each dials 10 others, latency U[10, 150] ms, 60 s for the overlay to form and its links to settle, a message every half second.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

from sim_record import write

from gossiplog.sim.network import Network
from gossiplog.sim.run import Run, RunResult, run_scenario
from gossiplog.sim.scenario import Kill, LatencySpec, PublishSpec, Scenario, TopologySpec
from gossiplog.sim.scenario_file import load_scenario

START_S = 60.0
ONE = PublishSpec(messages=40, interval_s=0.5, sources=1, start_s=START_S)
MANY = replace(ONE, sources=0, messages=60)
BASE = Scenario("episub", router="episub", nodes=1000, publish=ONE)


def settled(result: RunResult, number: int = 5) -> tuple[float, int]:
    """RMR and last hop of the messages after the first five, on average and at worst."""
    metrics, numbers = result.metrics, range(number, len(result.metrics.published_s))
    return sum(metrics.rmr(n) for n in numbers) / len(numbers), max(metrics.last_hop(n) for n in numbers)


def late_p99(result: RunResult, number: int = 5) -> float:
    pairs = zip(result.metrics.latencies_s, result.metrics.latency_messages, strict=True)
    ordered = sorted(latency for latency, message in pairs if message >= number)
    return ordered[int(0.99 * len(ordered))]


def missed_by_message(result: RunResult) -> list[int]:
    return [len(result.metrics.missing(n)) for n in range(len(result.metrics.published_s))]


def killed(share: float, seed: int) -> tuple[int, int]:
    """Receipts missed of the first message after the failure, and of all later ones."""
    at = START_S + 10.25
    result = run_scenario(replace(BASE, publish=MANY, fault=(Kill(at, share),)), seed)
    missed = missed_by_message(result)
    first = next(n for n, published in enumerate(result.metrics.published_s) if published > at)
    return missed[first], sum(missed[first + 1 :])


def overlay(network: Network) -> tuple[int, int]:
    """Components of the graph of active views, and links that only one side has."""
    views: dict[Any, set[Any]] = {}
    for node in network.nodes:
        assert node.router is not None
        topics = node.router.state().topics
        views[node.peer_id] = {peer for topic in topics for peer in (*topic.full_message, *topic.metadata_only)}
    one_sided = sum(a not in views[b] for a, view in views.items() for b in view)
    left, components = set(views), 0
    while left:
        components += 1
        reached = [left.pop()]
        while reached:
            for peer in views[reached.pop()]:
                if peer in left:
                    left.discard(peer)
                    reached.append(peer)
    return components, one_sided


def joined(seed: int) -> tuple[int, int]:
    """All 1,000 nodes join through one contact at the same moment."""
    run = Run(replace(BASE, topology=TopologySpec("star"), start_spread_s=0.0, publish=replace(ONE, messages=10)), seed)
    run.work()
    return overlay(run.network)


def measure(seed: int) -> dict[str, Any]:
    single = run_scenario(BASE, seed)
    many = run_scenario(replace(BASE, publish=MANY), seed)
    gossip = run_scenario(BASE, seed, "gossipsub")
    row: dict[str, Any] = {"seed": seed}
    row["single_rmr"], row["single_last_hop"] = settled(single)
    row["single_missed"] = single.summary.missed
    row["many_rmr"], row["many_last_hop"] = settled(many, 20)
    row["many_missed"] = many.summary.missed
    row["single_p99_s"], row["gossipsub_p99_s"] = late_p99(single), late_p99(gossip)
    row["p99_ratio"] = row["single_p99_s"] / row["gossipsub_p99_s"]
    for share in (0.3, 0.5, 0.8):
        row[f"killed_{share:.0%}"] = killed(share, seed)
    regional: LatencySpec = load_scenario("regional").latency
    # Proximity: 4 random and 3 near links, and 1 and 6 as GoCast has them, against 7 random ones.
    near, nearer, blind = (
        run_scenario(replace(BASE, latency=regional, publish=MANY, params={"episub": {"C_rand": 7 - count, "C_near": count}}), seed)
        for count in (3, 6, 0)
    )
    row["near_p50_s"], row["blind_p50_s"] = near.summary.p50_s, blind.summary.p50_s
    row["proximity_gain_6"] = 1 - nearer.summary.p50_s / blind.summary.p50_s
    row["proximity_gain"] = 1 - near.summary.p50_s / blind.summary.p50_s
    row["join_components"], row["join_one_sided"] = joined(seed)
    return row


GOALS = (
    ("single source: RMR after 5 messages", "single_rmr", "< 0.05", lambda v: v < 0.05),
    ("single source: last delivery hop", "single_last_hop", "≤ 12", lambda v: v <= 12),
    ("single source: missed", "single_missed", "0", lambda v: v == 0),
    ("many sources: RMR", "many_rmr", "< 0.6", lambda v: v < 0.6),
    ("many sources: last hop", "many_last_hop", "≤ 20", lambda v: v <= 20),
    ("many sources: missed", "many_missed", "0", lambda v: v == 0),
    ("30 % killed: missed (first, later)", "killed_30%", "0, 0", lambda v: v == (0, 0)),
    ("50 % killed: missed (first, later)", "killed_50%", "0, 0", lambda v: v == (0, 0)),
    ("80 % killed: missed (first, later)", "killed_80%", "any, 0", lambda v: v[1] == 0),
    ("single-source p99 / gossipsub's", "p99_ratio", "≤ 1.3", lambda v: v <= 1.3),
    ("regional: p50 lower by proximity", "proximity_gain", "≥ 0.25", lambda v: v >= 0.25),
    ("the same with C_rand 1, C_near 6", "proximity_gain_6", "≥ 0.25", lambda v: v >= 0.25),
    ("all join at once: components", "join_components", "1", lambda v: v == 1),
    ("all join at once: one-sided links", "join_one_sided", "0", lambda v: v == 0),
)


def main() -> None:
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    rows = [measure(seed) for seed in range(seeds)]
    lines = [f"{'':<38}{'goal':>8}  {'met':<5}{'by seed'}"]
    for about, key, goal, holds in GOALS:
        values = [row[key] for row in rows]
        shown = ", ".join(f"{value:.3f}" if isinstance(value, float) else str(value) for value in values)
        lines.append(f"{about:<38}{goal:>8}  {'yes' if all(map(holds, values)) else 'NO':<5}{shown}")
    write("sim-episub-goals", "episub's goals at 1,000 nodes, U[10, 150] ms", rows, "\n".join(lines))


if __name__ == "__main__":
    main()
