"""The report on a played script: its figures beside the simulator's, the actions with their times, and plots."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ..errors import GossipLogError, LocalProtocolError
from ..sim.measure.metrics import RunResult, percentile
from ..sim.measure.plots import pyplot
from ..sim.routing.run import run_scenario
from ..sim.scenario import Liar, Scenario
from .measure import Measure
from .testnet import Testnet, describe

_COLOURS = ("#0072B2", "#D55E00")


def simulated(scenario: Scenario, seed: int) -> RunResult:
    """Run a scenario in the simulator, with the parameters of real peers, and without liars, which it does not support."""
    table = {"base": "mesh", **scenario.params.get(scenario.router, {})}
    faults = tuple(fault for fault in scenario.fault if not isinstance(fault, Liar))
    return run_scenario(replace(scenario, params={**scenario.params, scenario.router: table}, fault=faults), seed)


def write_report(testnet: Testnet, measure: Measure, actions: list[dict[str, Any]], folder: Path, *, is_converged: bool) -> list[Path]:
    """Write `report.md`, `report.json` and, if matplotlib is installed, plots into the folder that has the facts; return the files.

    Args:
        actions: The records of all actions, as `open_testnet` tells them.
    """
    scenario, real = testnet.scenario, measure.figures()
    try:
        result: RunResult | None = simulated(scenario, testnet.seed)
    except GossipLogError:
        result = None
    plots = _plot(testnet, measure, actions, result, folder)
    lines = [f"# {scenario.name}", "", scenario.about, ""] if scenario.about else [f"# {scenario.name}", ""]
    kinds = [f"{sum(member.kind == kind for member in testnet.members)} {kind}s" for kind in ("server", "client", "browser", "liar")]
    lines += [
        f"{', '.join(kind for kind in kinds if not kind.startswith('0 '))}; {scenario.router}, seed {testnet.seed}, "
        f"loss {scenario.link.loss:g}. At the end all logs were {'equal' if is_converged else 'NOT equal'}.",
        "",
        "| | real processes | simulator |",
        "|---|---:|---:|",
        *_rows(real, result),
        "",
        "Ways by which the first copy came: " + (", ".join(f"{way} {count}" for way, count in real.ways.items()) or "none") + ".",
        "",
        *[f"![{path.stem}]({path.name})\n" for path in plots],
        "## What was done",
        "",
        "```",
        *[describe(action) for action in actions],
        "```",
        "",
        "All that happened is in `facts.jsonl`: `gossiplog sim play facts.jsonl` shows it again, `gossiplog spark traces` reads it.",
    ]
    report, record = folder / "report.md", folder / "report.json"
    report.write_text("\n".join(lines) + "\n", "utf-8")
    summary = None if result is None else asdict(result.summary)
    figures = {"scenario": scenario.name, "router": scenario.router, "seed": testnet.seed, "converged": is_converged}
    kinds_of_facts = dict(sorted(measure.kinds.items()))
    record.write_text(
        json.dumps({**figures, "real": asdict(real), "simulator": summary, "facts": kinds_of_facts}, indent=1) + "\n", "utf-8"
    )
    return [report, record, *plots]


def _rows(real: Any, result: RunResult | None) -> list[str]:
    summary = None if result is None else result.summary
    rows = []
    for title, name, unit in (
        ("published", "published", 0),
        ("first receipts", "delivered", 0),
        ("latency p50, ms", "p50_s", 1000),
        ("latency p99, ms", "p99_s", 1000),
        ("slowest, ms", "max_s", 1000),
        ("further copies a receipt", "rmr", -1),
    ):
        cells = [_cell(getattr(one, name), unit) if one is not None else "" for one in (real, summary)]
        rows.append(f"| {title} | {cells[0]} | {cells[1]} |")
    return rows


def _cell(value: float, unit: int) -> str:
    return f"{value:,}" if unit == 0 else f"{value:.2f}" if unit < 0 else f"{value * unit:,.0f}"


def _plot(testnet: Testnet, measure: Measure, actions: list[dict[str, Any]], result: RunResult | None, folder: Path) -> list[Path]:
    """Plot how entries spread, and how many different roots there were. Does nothing if matplotlib is missing."""
    try:
        plt = pyplot()
    except LocalProtocolError:
        return []
    figure, axes = plt.subplots(figsize=(7, 3.6), layout="constrained")
    curves = [("real processes", measure.latencies_s)]
    if result is not None:
        curves.append(("simulator", sorted(result.metrics.latencies_s)))
    for colour, (label, latencies) in zip(_COLOURS, curves, strict=False):
        if latencies:
            shares = [share / 200 for share in range(200)]
            axes.plot([percentile(latencies, share) * 1000 for share in shares], shares, label=label, color=colour)
    axes.set(xlabel="ms after the append", ylabel="share of the receipts", ylim=(0, 1))
    axes.set_xscale("log")
    axes.legend(frameon=False)
    files = [folder / "spread.svg"]
    figure.savefig(files[0])
    plt.close(figure)
    if measure.roots:
        figure, axes = plt.subplots(figsize=(7, 3.0), layout="constrained")
        axes.step(
            [at - testnet.origin_s for at, _ in measure.roots], [count for _, count in measure.roots], where="post", color=_COLOURS[0]
        )
        for action in actions:
            if action["action"] not in ("append", "slow ends"):
                axes.axvline(action["time_s"], color="#5f6368", linewidth=0.6, linestyle=":")
        axes.set(xlabel="s", ylabel="different roots", xlim=(0, None), ylim=(0, None))
        files.append(folder / "roots.svg")
        figure.savefig(files[1])
        plt.close(figure)
    return files
