"""Episub's goals (spec: the table in episub.md), measured: `python -m benchmarks.sim_episub [SEEDS [PART]]`.

PART is `trees`, which all goals but one are about; `proximity`, whose regional networks take as long again; or `many`, the many sources
of `trees` alone, in half a minute of CPU a seed. What a seed came to is written at once: a run that is cut short leaves those it has done.

1,000 nodes, each dials 10 others, latency U[10, 150] ms, 60 s for the overlay to form and its links to settle, a message every half second.
One warm-up serves all runs of a seed that differ only in what is published and who is killed: each is a fork of it.
"""

from __future__ import annotations

import json
import os
import pickle
import random
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from heapq import heappop, heappush
from statistics import fmean
from typing import Any, TypeAlias

from gossiplog.sim.measure.metrics import Metrics, percentile
from gossiplog.sim.routing.faults import Script
from gossiplog.sim.routing.network import Network
from gossiplog.sim.routing.run import ScenarioRun
from gossiplog.sim.scenario import Fault, Kill, LatencySpec, PublishSpec, Scenario, TopologySpec, load_scenario

from .sim_record import parse, write

START_S = 60.0
SPREAD_S = 30.0
ONE = PublishSpec(messages=40, interval_s=0.5, sources=1, start_s=START_S, linger_s=6.0)
MANY = replace(ONE, sources=0, messages=60)
KILL_S = START_S + 10.25
PROXIMITY_SOURCES = 4
AFTER_KILL = replace(MANY, messages=32)
FOUR_REGIONS = LatencySpec(
    "regional",
    weights=(4.0, 4.0, 3.0, 1.0),
    matrix_s=((0.008, 0.040, 0.110, 0.090), (0.040, 0.010, 0.085, 0.120), (0.110, 0.085, 0.012, 0.060), (0.090, 0.120, 0.060, 0.010)),
)
"""Made up, to be hard: two thirds of the nodes lie in two regions near each other, so that links chosen at random are often near ones."""
BASE = Scenario("episub", router="episub", nodes=1000, publish=ONE)


def warmed(scenario: Scenario, seed: int) -> ScenarioRun:
    """A run at the moment before the first publish, with nothing to be published."""
    run = ScenarioRun(replace(scenario, publish=replace(scenario.publish, messages=1, start_s=1e6)), seed)
    run.network.run(START_S - 0.001)
    return run


def publish(run: ScenarioRun, spec: PublishSpec, *faults: Fault) -> Metrics:
    """Publish in a run that is warm, and let it end."""
    script = Script(run.network, run.scenario.nodes, [], random.Random(f"script {run.seed}"), None)
    script.publish_all(spec)
    for fault in faults:
        script.add(fault)
    run.network.run(replace(run.scenario, publish=spec).end_s)
    return run.metrics


def forked(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Do something in a copy of this process, and give its result."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        with os.fdopen(writer, "wb") as pipe:
            pickle.dump(work(), pipe)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        found: dict[str, Any] = pickle.load(pipe)
    os.waitpid(child, 0)
    return found


def settled(metrics: Metrics, first: int) -> dict[str, Any]:
    """RMR on average, last hop and latency of the messages from number `first` on."""
    numbers = range(first, len(metrics.published_s))
    pairs = zip(metrics.latencies_s, metrics.latency_messages, strict=True)
    ordered = sorted(latency for latency, message in pairs if message >= first)
    hops = [metrics.last_hop(number) for number in numbers]
    return {
        "rmr": fmean(metrics.rmr(number) for number in numbers),
        "last_hop": max(hops),
        "last_hop_mean": fmean(hops),
        "p50_s": percentile(ordered, 0.5),
        "p99_s": percentile(ordered, 0.99),
        "max_s": ordered[-1],
        "missed": sum(len(metrics.missing(number)) for number in range(len(metrics.published_s))),
    }


def killed(run: ScenarioRun, share: float) -> dict[str, Any]:
    """Receipts missed of the first message after the failure, and of all later ones."""
    metrics = publish(run, AFTER_KILL, Kill(KILL_S, share))
    missed = [len(metrics.missing(number)) for number in range(len(metrics.published_s))]
    first = next(number for number, published in enumerate(metrics.published_s) if published > KILL_S)
    return {"missed": (missed[first], sum(missed[first + 1 :]))}


def links(network: Network) -> dict[Any, set[Any]]:
    """The active views."""
    views = {}
    for node in network.nodes:
        assert node.router is not None
        views[node.peer_id] = {peer for topic in node.router.state().topics for peer in (*topic.full_message, *topic.metadata_only)}
    return views


def one_sided(views: dict[Any, set[Any]]) -> set[tuple[Any, Any]]:
    return {(a, b) for a, view in views.items() for b in view if a not in views[b]}


def components(views: dict[Any, set[Any]]) -> int:
    left, count = set(views), 0
    while left:
        count += 1
        reached = [left.pop()]
        while reached:
            for peer in views[reached.pop()]:
                if peer in left:
                    left.discard(peer)
                    reached.append(peer)
    return count


def joined(seed: int) -> dict[str, Any]:
    """All 1,000 nodes join through one contact at the same moment; 60 s later, and 2 s after that, for links that were just changing."""
    run = warmed(replace(BASE, topology=TopologySpec("star"), start_spread_s=0.0), seed)
    before = links(run.network)
    run.network.run(START_S + 2.0)
    lasting = one_sided(before) & one_sided(links(run.network))
    return {"join_components": components(before), "join_one_sided_now": len(one_sided(before)), "join_one_sided": len(lasting)}


def proximity(seed: int, regional: LatencySpec, near: int) -> dict[str, Any]:
    """A single source with `near` near links of 7, on a regional matrix; four times, from other nodes, and the mean over these.

    The median depends on the source's region. Nodes join within 30 s: of those that join at once the nearest answer first, and
    links chosen at random would not be random.
    """
    params = {"episub": {"C_rand": 7 - near, "C_near": near}}
    run = warmed(replace(BASE, latency=regional, params=params, start_spread_s=SPREAD_S), seed)
    found = []
    for source in range(PROXIMITY_SOURCES):
        run.seed = seed + 1000 * source  # decides who publishes
        found.append(forked(lambda: proximity_of(run)))
    return {name: fmean(each[name] for each in found) for name in found[0]}


def proximity_of(run: ScenarioRun) -> dict[str, Any]:
    """Publish from one source; beside the medians that of shortest paths over the links of now, and that of direct links to everybody."""
    latency = run.network.latency
    distances_s = {a: {b: latency.between(a, b) for b in view} for a, view in links(run.network).items()}
    metrics = publish(run, ONE)
    source = metrics.publishers[0]
    direct_s = sorted(latency.between(source, node) for node in distances_s if node != source)
    shortest_s = sorted(shortest(distances_s, source).values())
    return {**settled(metrics, 5), "shortest_p50_s": percentile(shortest_s[1:], 0.5), "direct_p50_s": percentile(direct_s, 0.5)}


def shortest(distances_s: dict[Any, dict[Any, float]], source: Any) -> dict[Any, float]:
    """Dijkstra's algorithm."""
    reached: dict[Any, float] = {}
    heap = [(0.0, source)]
    while heap:
        at_s, node = heappop(heap)
        if node not in reached:
            reached[node] = at_s
            for other, distance_s in distances_s[node].items():
                heappush(heap, (at_s + distance_s, other))
    return reached


def named(prefix: str, found: dict[str, Any]) -> dict[str, Any]:
    return {f"{prefix}_{name}": value for name, value in found.items()}


def measure_trees(seed: int) -> dict[str, Any]:
    def warm_runs() -> dict[str, Any]:
        run = warmed(BASE, seed)
        found = {
            "single": forked(lambda: settled(publish(run, ONE), 5)),
            "many": forked(lambda: settled(publish(run, MANY), 30)),
        }
        for share in (0.3, 0.5, 0.8):
            found[f"killed_{share:.0%}"] = forked(partial(killed, run, share))
        return found

    row: dict[str, Any] = {"seed": seed}
    for prefix, found in forked(warm_runs).items():
        row |= named(prefix, found)
    row |= named("gossipsub", forked(lambda: settled(publish(warmed(replace(BASE, router="gossipsub"), seed), ONE), 5)))
    row["p99_ratio"] = row["single_p99_s"] / row["gossipsub_p99_s"]
    return row | forked(lambda: joined(seed))


def measure_many(seed: int) -> dict[str, Any]:
    run = warmed(BASE, seed)
    return {"seed": seed} | named("many", forked(lambda: settled(publish(run, MANY), 30)))


def measure_proximity(seed: int) -> dict[str, Any]:
    row: dict[str, Any] = {"seed": seed}
    for name, latency in (("regional", load_scenario("regional").latency), ("four", FOUR_REGIONS)):
        near = forked(partial(proximity, seed, latency, 3))
        blind = forked(partial(proximity, seed, latency, 0))
        row |= named(f"{name}_near", near) | named(f"{name}_blind", blind)
        row[f"{name}_gain"] = 1 - near["p50_s"] / blind["p50_s"]
        row[f"{name}_limit"] = 1 - near["direct_p50_s"] / blind["p50_s"]
        row[f"{name}_loss"] = near["p50_s"] / near["shortest_p50_s"] - 1
    return row


Goal: TypeAlias = tuple[str, str, str, Callable[[Any], bool]]
TREES: tuple[Goal, ...] = (
    ("single source: RMR after 5 messages", "single_rmr", "< 0.05", lambda v: v < 0.05),
    ("single source: last hop, mean of messages", "single_last_hop_mean", "≤ 12", lambda v: v <= 12),
    ("single source: last hop, worst message", "single_last_hop", "≤ 12", lambda v: v <= 12),
    ("single source: missed", "single_missed", "0", lambda v: v == 0),
    ("many sources: RMR after 30 messages", "many_rmr", "< 0.6", lambda v: v < 0.6),
    ("many sources: last hop, mean of messages", "many_last_hop_mean", "≤ 20", lambda v: v <= 20),
    ("many sources: last hop, worst message", "many_last_hop", "≤ 20", lambda v: v <= 20),
    ("many sources: missed", "many_missed", "0", lambda v: v == 0),
    ("30 % killed: missed (first, later)", "killed_30%_missed", "0, 0", lambda v: v == (0, 0)),
    ("50 % killed: missed (first, later)", "killed_50%_missed", "0, 0", lambda v: v == (0, 0)),
    ("80 % killed: missed (first, later)", "killed_80%_missed", "any, 0", lambda v: v[1] == 0),
    ("single source: p99 / gossipsub's", "p99_ratio", "≤ 1.3", lambda v: v <= 1.3),
    ("all join at once: components", "join_components", "1", lambda v: v == 1),
    ("all join at once: one-sided links", "join_one_sided", "0", lambda v: v == 0),
)
PROXIMITY: tuple[Goal, ...] = (
    ("12 regions, four single sources: p50 lower by", "regional_gain", "≥ 0.25", lambda v: v >= 0.25),
    ("  direct links to everybody: lower by", "regional_limit", "–", lambda _: True),
    ("  p50 above the links' shortest paths by", "regional_loss", "–", lambda _: True),
    ("4 regions, made up to be hard: p50 lower by", "four_gain", "–", lambda _: True),
    ("  direct links to everybody: lower by", "four_limit", "–", lambda _: True),
    ("  p50 above the links' shortest paths by", "four_loss", "–", lambda _: True),
)
MANY_SOURCES: tuple[Goal, ...] = (
    *(goal for goal in TREES if goal[1].startswith("many")),
    ("  p50, s", "many_p50_s", "–", lambda _: True),
    ("  p99, s", "many_p99_s", "–", lambda _: True),
)
PARTS = {
    "many": (measure_many, MANY_SOURCES, "sim-episub-many", "Episub with many sources at 1,000 nodes, latency U[10, 150] ms"),
    "trees": (measure_trees, TREES, "sim-episub-goals", "Episub's goals at 1,000 nodes, latency U[10, 150] ms"),
    "proximity": (measure_proximity, PROXIMITY, "sim-episub-proximity", "Episub's proximity at 1,000 nodes, regional latencies"),
}


def shown(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, float) else "/".join(map(str, value)) if isinstance(value, tuple) else str(value)


def table(rows: list[dict[str, Any]], goals: tuple[Goal, ...]) -> str:
    """For each goal how many seeds meet it, the mean, and every seed."""
    lines = [f"{'':<46}{'goal':>8}{'met':>10}{'mean':>8}   by seed"]
    for about, key, goal, holds in goals:
        values = [row[key] for row in rows]
        met = "" if goal == "–" else f"{sum(map(holds, values))} of {len(values)}"
        mean = "" if isinstance(values[0], tuple) else f"{fmean(values):.3f}".rstrip("0").rstrip(".")
        lines.append(f"{about:<46}{goal:>8}{met:>10}{mean:>8}   {'  '.join(map(shown, values))}")
    return "\n".join(lines)


def main() -> None:
    given = parse(__doc__, seeds=5, part="trees")
    measure, goals, name, about = PARTS[given.part]
    rows: list[dict[str, Any]] = []
    for seed in range(given.seeds):
        rows.append(measure(seed))
        print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
        write(name, about, rows, table(rows, goals))


if __name__ == "__main__":
    main()
