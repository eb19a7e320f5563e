"""Runs in words and rows: the summary in simsub's format, and the table that compares routers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from ..scenario import Attack, Scenario
from .metrics import RunResult

COLUMNS = ("p50_s", "p99_s", "max_s", "last_hop", "rmr", "missed", "control_per_delivery", "payload_bytes", "control_bytes")
"""The figures compared between routers, in order."""


def describe(result: RunResult) -> str:
    """Sum up a run as simsub does; figures that simsub does not give follow below."""
    summary, scenario = result.summary, result.scenario
    lines = [
        "=== simulation summary ===",
        f"scenario: {scenario.name}",
        f"router: {scenario.router}",
        f"seed: {result.seed}",
        f"nodes: {scenario.nodes}" + (f" and {scenario.attack.nodes} malicious" if scenario.attack.nodes else ""),
        f"messages: {summary.published}",
    ]
    lines.extend(f"{kind}: {count}" for kind, count in summary.counters.items())
    if not math.isnan(summary.p50_s):
        lines.append(f"latency: p50 {_ms(summary.p50_s)}, p99 {_ms(summary.p99_s)}, max {_ms(summary.max_s)}")
    lines.append(f"last delivery hop: {summary.last_hop} (mean over messages {summary.last_hop_mean:.1f})")
    lines.append(f"redundancy (RMR): {summary.rmr:.3f}, of the last message {summary.rmr_last:.3f}")
    lines.append(f"missed: {summary.missed} of {summary.delivered + summary.missed} receipts")
    lines.append(f"control overhead: {summary.control_per_delivery:.2f} a delivery")
    lines.append(f"bytes: {_size(summary.payload_bytes)} with messages, {_size(summary.control_bytes)} without")
    if result.until_s < scenario.end_s:
        lines.append(f"interrupted at {result.until_s:.2f} s of {scenario.end_s:.2f} s")
    return "\n".join(lines)


def as_row(result: RunResult) -> dict[str, Any]:
    """Return a run as flat plain values, for JSON, CSV and means over seeds. NaN becomes None."""
    summary = result.summary
    row: dict[str, Any] = {
        "scenario": result.scenario.name,
        "router": result.scenario.router,
        "seed": result.seed,
        "nodes": result.scenario.nodes,
    }
    row["published"], row["delivered"] = summary.published, summary.delivered
    for name in COLUMNS:
        value = getattr(summary, name)
        row[name] = None if isinstance(value, float) and math.isnan(value) else round(value, 6)
    row["last_hop_mean"], row["rmr_last"], row["events"] = summary.last_hop_mean, round(summary.rmr_last, 6), result.events
    row["counters"] = summary.counters
    return row


_PICK: dict[str, Callable[[list[Any]], Any]] = {"last_hop": max, "max_s": max, "missed": sum}


def mean_rows(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Average the figures of several seeds. `last_hop` and `max_s` are maxima, `missed` is a sum."""
    first = rows[0]
    mean: dict[str, Any] = {name: first[name] for name in ("scenario", "router", "nodes")}
    mean["seeds"] = len(rows)
    for name in ("published", "delivered", *COLUMNS, "last_hop_mean", "rmr_last"):
        values = [row[name] for row in rows if row[name] is not None]
        mean[name] = _PICK.get(name, fmean)(values) if values else None
    return mean


def compare_table(rows: Sequence[dict[str, Any]]) -> str:
    """Return a table of routers, one line each."""
    head = (
        f"{'router':<11}{'p50':>9}{'p99':>9}{'max':>9}{'last hop':>10}{'RMR':>8}{'missed':>9}{'control':>9}{'messages':>11}{'control':>11}"
    )
    under = f"{'':<11}{'ms':>9}{'ms':>9}{'ms':>9}{'':>10}{'':>8}{'':>9}{'/delivery':>9}{'MB':>11}{'MB':>11}"
    lines = [head, under]
    for row in rows:
        times = "".join(f"{'–' if row[name] is None else f'{row[name] * 1e3:.0f}':>9}" for name in ("p50_s", "p99_s", "max_s"))
        lines.append(
            f"{row['router']:<11}{times}{row['last_hop']:>10}{row['rmr']:>8.2f}{row['missed']:>9}{row['control_per_delivery']:>9.2f}"
            f"{row['payload_bytes'] / 1e6:>11.2f}{row['control_bytes'] / 1e6:>11.2f}"
        )
    return "\n".join(lines)


def without_attack(scenario: Scenario) -> Scenario:
    """Return the scenario without its malicious nodes: the baseline for an attack."""
    return replace(scenario, attack=Attack())


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms"


def _size(count: int) -> str:
    return f"{count / 1e6:.2f} MB" if count >= 100_000 else f"{count} B"
