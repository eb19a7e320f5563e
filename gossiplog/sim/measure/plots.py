"""Figures of a run: how fast messages spread, what was sent, each node's degree, and redundancy over time.
Needs matplotlib, which the extra `sim` installs. It is imported when the first figure is drawn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from ...errors import LocalProtocolError
from .metrics import RunResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = ("png", "svg", "pdf")
_METADATA: dict[str, dict[str, Any]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
"""No time stamp, so that equal runs make equal files."""
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""The palette of Okabe and Ito, which people with colour blindness can tell apart."""
LINES = ("-", "-", "-", "-", (0, (4, 2)), "-")
"""Two curves may coincide (gossipsub and choke), so one of them is dashed."""
GREY = "#5f6368"
STEPS = 400
"""Points of a curve; more would not be visible."""


def plot_run(result: RunResult, folder: Path, format: str = "png") -> list[Path]:
    """Draw a run's four figures into a folder, creating it if necessary.

    Args:
        format: One of `FORMATS`.

    Returns:
        The files: `propagation`, `messages`, `degrees`, `redundancy`.

    Raises:
        LocalProtocolError: matplotlib is missing, or the format is not in `FORMATS`.
        OSError: The folder cannot be written to.
    """
    figures = {
        "propagation": _propagation([result]),
        "messages": _messages(result),
        "degrees": _degrees(result),
        "redundancy": _redundancy(result),
    }
    return [_save(figure, folder / f"{name}.{format}", format) for name, figure in figures.items()]


def plot_comparison(results: Sequence[RunResult], folder: Path, format: str = "png") -> Path:
    """Draw the propagation of several routers on one scenario into one figure, `comparison`; see `plot_run`.

    Args:
        results: The runs of each router with all seeds. A curve is their mean; its band reaches from the slowest to the fastest run.
    """
    return _save(_propagation(results), folder / f"comparison.{format}", format)


def pyplot() -> Any:
    """Return matplotlib's pyplot, set up to draw into files.

    Raises:
        LocalProtocolError: matplotlib is missing.
    """
    try:
        import matplotlib

        matplotlib.use("agg")
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise LocalProtocolError("plots need matplotlib", hint="pip install 'gossiplog[sim]'") from error
    plt.rcParams.update(
        {
            "font.size": 10,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "grid.color": "#e4e6e8",
            "grid.linewidth": 0.8,
            "axes.axisbelow": True,
            "axes.edgecolor": GREY,
            "svg.hashsalt": "gossiplog",
        }
    )
    return plt


def _figure(title: str, results: Sequence[RunResult], rows: int = 1) -> tuple[Figure, list[Axes]]:
    """Make an empty figure with its title, and the scenario's data below."""
    plt = pyplot()
    figure, grid = plt.subplots(rows, 1, figsize=(8, 4.8), dpi=120, layout="constrained", sharex=True, squeeze=False)
    all_axes = [row[0] for row in grid]
    axes = all_axes[0]
    figure.suptitle(title, x=0.01, ha="left", fontsize=13, fontweight="bold")
    scenario, spec = results[0].scenario, results[0].scenario.publish
    attack = f" + {scenario.attack.nodes} malicious" if scenario.attack.nodes else ""
    names, seeds = dict.fromkeys(result.scenario.router for result in results), sorted({result.seed for result in results})
    routers = scenario.router if len(names) == 1 else f"{len(names)} routers"
    of_seeds = f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {seeds[0]} to {seeds[-1]}"
    axes.set_title(
        f"scenario {scenario.name} · {routers} · {scenario.nodes} nodes{attack} · {results[0].summary.published} messages of "
        f"{spec.bytes} B, one every {spec.interval_s:g} s · {of_seeds}",
        loc="left",
        fontsize=8.5,
        color=GREY,
        pad=8,
    )
    return figure, all_axes


def _save(figure: Figure, path: Path, format: str) -> Path:
    if format not in FORMATS:
        raise LocalProtocolError(f"plot format {format!r}, expected one of {', '.join(FORMATS)}")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format=format, metadata=_METADATA.get(format))
    pyplot().close(figure)
    return path


def _propagation(results: Sequence[RunResult]) -> Figure:
    """Draw the share of expected receipts that happened within each time."""
    figure, (axes,) = _figure("How fast messages spread", results)
    right, left = 0.0, 0.0
    names = dict.fromkeys(result.scenario.router for result in results)
    for name, colour, line in zip(names, COLOURS, LINES, strict=False):
        runs = [result for result in results if result.scenario.router == name and result.metrics.latencies_s]
        if not runs:
            continue
        curves = [_curve(result) for result in runs]
        times = sorted({time for curve in curves for time, _ in curve})
        shares = list(zip(*(_at(curve, times) for curve in curves), strict=True))
        axes.plot(times, [fmean(each) for each in shares], color=colour, linewidth=2, linestyle=line, label=name, drawstyle="steps-post")
        if len(runs) > 1:
            axes.fill_between(times, list(map(min, shares)), list(map(max, shares)), color=colour, alpha=0.2, step="post", linewidth=0)
        right = max(right, *(result.summary.p99_s * 1e3 * 1.35 for result in runs))
        if len(results) == 1:
            (result,) = results
            for share, percentile in ((result.summary.p50_s, "p50"), (result.summary.p99_s, "p99")):
                axes.axvline(share * 1e3, color=GREY, linewidth=1, linestyle=(0, (4, 3)))
                axes.annotate(
                    f"{percentile} {share * 1e3:.0f} ms",
                    (share * 1e3, 4),
                    xytext=(4, 0),
                    textcoords="offset points",
                    color=GREY,
                    fontsize=9,
                )
    if len(results) > 1:  # routers differ by orders of magnitude
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        left = 5.0
        right = max((result.summary.max_s * 1e3 for result in results if result.metrics.latencies_s), default=10.0) * 1.2
    axes.set_xlim(left, right or 1)
    axes.set_ylim(0, 102)
    axes.set_xlabel("time since publish (ms)" if len(results) == 1 else "time since publish (ms, logarithmic)")
    axes.set_ylabel("receipts made (%)")
    slowest = max((result.summary.max_s * 1e3 for result in results if result.metrics.latencies_s), default=0.0)
    if slowest > right:
        axes.annotate(f"slowest {slowest:,.0f} ms →", (0.995, 0.86), xycoords="axes fraction", ha="right", color=GREY, fontsize=9)
    if len(results) > 1:
        axes.legend(frameon=False, loc="upper left")
    return figure


def _curve(result: RunResult) -> list[tuple[float, float]]:
    """Return some 400 steps of a run: milliseconds since the publish, and the percentage of receipts by then."""
    ordered = sorted(result.metrics.latencies_s)
    expected = len(ordered) + result.summary.missed
    picks = sorted({round(step * (len(ordered) - 1) / STEPS) for step in range(STEPS + 1)})
    return [(1e-3, 0.0), *((ordered[pick] * 1e3, (pick + 1) / expected * 100) for pick in picks)]


def _at(curve: Sequence[tuple[float, float]], times: Sequence[float]) -> list[float]:
    """Return the shares of a curve at ascending times."""
    shares, at = [], 0
    for time in times:
        while at + 1 < len(curve) and curve[at + 1][0] <= time:
            at += 1
        shares.append(curve[at][1])
    return shares


def _messages(result: RunResult) -> Figure:
    """Sends by type."""
    figure, (axes,) = _figure("What was sent", [result])
    counts = {kind: count for kind, count in result.summary.counters.items() if kind not in ("deliver", "publish")}
    ordered = sorted(counts.items(), key=lambda item: item[1])
    names = [kind for kind, _ in ordered]
    axes.barh(names, [count for _, count in ordered], color=[COLOURS[0] if name == "message" else COLOURS[5] for name in names], height=0.7)
    axes.set_xscale("log")
    top = max(counts.values(), default=1)
    axes.set_xlim(0.8, top * 6)
    for row, (_, count) in enumerate(ordered):
        axes.annotate(f"{count:,}", (count, row), xytext=(4, 0), textcoords="offset points", va="center", fontsize=9)
    axes.set_xlabel("sent, by type (logarithmic)")
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)
    return figure


def _degrees(result: RunResult) -> Figure:
    """Draw how many peers each honest node pushes whole messages to when the last message is published."""
    figure, (axes,) = _figure("Peers that get whole messages from a node", [result])
    counts = Counter(result.degrees)
    axes.bar(list(counts), list(counts.values()), color=COLOURS[0], width=0.85)
    if result.degrees:
        mean = sum(result.degrees) / len(result.degrees)
        axes.axvline(mean, color=COLOURS[1], linewidth=1.5)
        axes.annotate(
            f"mean {mean:.1f}", (mean, 1), xycoords=("data", "axes fraction"), xytext=(5, -12), textcoords="offset points", color=COLOURS[1]
        )
        axes.set_xlim(-0.6, max(13, max(counts) + 1))
    axes.xaxis.get_major_locator().set_params(integer=True)  # type: ignore[call-arg]
    axes.yaxis.get_major_locator().set_params(integer=True)  # type: ignore[call-arg]
    axes.set_xlabel("peers, when the last message is published")
    axes.set_ylabel("nodes")
    return figure


def _redundancy(result: RunResult) -> Figure:
    """RMR and last delivery hop of each message, by its time of publishing."""
    figure, (top, bottom) = _figure("Redundancy and last hop, message by message", [result], rows=2)
    metrics = result.metrics
    numbers = range(len(metrics.published_s))
    top.plot(metrics.published_s, [metrics.rmr(number) for number in numbers], color=COLOURS[0], linewidth=1.6)
    top.set_ylabel("redundancy (RMR)")
    top.set_ylim(0, max([1.0, *(metrics.rmr(number) for number in numbers)]) * 1.15)
    bottom.plot(metrics.published_s, [metrics.last_hop(number) for number in numbers], ".", color=COLOURS[1], markersize=4)
    bottom.set_ylabel("last delivery hop")
    bottom.set_ylim(0, max([1, *(metrics.last_hop(number) for number in numbers)]) + 1)
    bottom.yaxis.get_major_locator().set_params(integer=True)  # type: ignore[call-arg]
    bottom.set_xlabel("virtual time of the publish (s)")
    return figure
