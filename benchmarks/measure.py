"""Measure CPU and wall time, and write down what was measured, where, and how far the repetitions spread.

CPU is the user and system time of all threads of this process, and of the processes that verify signatures for it. It is what to compare on
a machine that is shared; wall time is beside it, and where two things are compared they run in turns, so that both see the same neighbours.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import sqlite3
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from gossiplog.replica.signatures import verifiers

__all__ = [
    "Figure",
    "Goal",
    "Stopwatch",
    "figure_of",
    "machine",
    "process_cpu_s",
    "versions",
    "write_json",
    "write_markdown",
    "write_results",
]

_TICKS = os.sysconf("SC_CLK_TCK")
_PACKAGES = ("trio", "aiosqlite", "pynacl", "blake3", "dag-cbor", "cryptography", "click", "rich")


_spent: dict[int, int] = {}
"""The CPU time of each verifier, in ns; those that have ended, having waited too long, keep what they had."""


class Stopwatch:
    """The CPU and wall seconds of a `with` block."""

    def __enter__(self) -> Stopwatch:
        self.cpu_s = self.wall_s = 0.0
        self._cpu, self._wall = _cpu_s(), time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.cpu_s, self.wall_s = _cpu_s() - self._cpu, time.perf_counter() - self._wall


def _cpu_s() -> float:
    for pid in verifiers.pids:
        with contextlib.suppress(OSError):
            _spent[pid] = int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])
    return time.process_time() + sum(_spent.values()) / 1e9


def process_cpu_s(pid: int, *, with_ended: bool = False) -> float:
    """Return the user and system seconds of all threads of a process so far, in steps of a hundredth.

    Args:
        pid: Of a process of any user.
        with_ended: Add those of its children that have ended and were waited for.
    """
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11 : 15 if with_ended else 13])) / _TICKS


@dataclass(frozen=True, slots=True)
class Goal:
    """What a median is held against; `at_most` or `at_least`, in the figure's unit."""

    at_most: float | None = None
    at_least: float | None = None

    def is_met(self, median: float) -> bool:
        return (self.at_most is None or median <= self.at_most) and (self.at_least is None or median >= self.at_least)

    def __str__(self) -> str:
        return f"≤ {_number(self.at_most)}" if self.at_most is not None else f"≥ {_number(self.at_least or 0)}"


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the results: what was measured, and the sample of each repetition.

    Attributes:
        name: `<benchmark>.<what>`, the same from version to version.
        what: For the reader.
        unit: Of the samples.
        samples: One a repetition.
        goal: What the median should be; None where there is no goal.
        note: What else the reader has to know.
        reference: What the reference needs, as it was measured once, for scale.
        needs_quiet: Whether it is made of wall times, and says nothing where others use the machine.
        load: The machine's load average over the last minute when it was measured; filled in by the runner.
    """

    name: str
    what: str
    unit: str
    samples: Sequence[float]
    goal: Goal | None = None
    note: str = ""
    reference: str = ""
    needs_quiet: bool = False
    load: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    @property
    def is_met(self) -> bool | None:
        """Whether the goal is met; None if there is none, or the machine was too busy to tell."""
        if self.goal is None or (self.needs_quiet and self.is_disturbed):
            return None
        return self.goal.is_met(self.median)

    @property
    def is_disturbed(self) -> bool:
        """Whether more than this program could use was running: it keeps a core and a half busy itself."""
        return max(self.load, default=0.0) > (os.cpu_count() or 1) + 0.5

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "what": self.what,
            "unit": self.unit,
            "median": self.median,
            "min": min(self.samples),
            "max": max(self.samples),
            "repetitions": len(self.samples),
            "samples": list(self.samples),
            "goal": None if self.goal is None else str(self.goal),
            "met": self.is_met,
            "note": self.note,
            "reference": self.reference,
            "needs_quiet": self.needs_quiet,
            "load": self.load,
        }

    def __str__(self) -> str:
        met = {
            None: "" if self.goal is None else f"  goal {self.goal}: machine too busy to tell",
            True: f"  goal {self.goal}: met",
            False: f"  goal {self.goal}: MISSED",
        }[self.is_met]
        spread = f"  [{_number(min(self.samples))} … {_number(max(self.samples))}]" if len(self.samples) > 1 else ""
        return f"{self.name:28} {_number(self.median):>10} {self.unit}{spread}{met}"


def figure_of(record: dict[str, Any]) -> Figure:
    """Read a figure that `write_results` wrote."""
    found = {each.name: record[each.name] for each in fields(Figure)}
    sign, _, number = (found["goal"] or "").partition(" ")
    bound = float(number.replace(",", "")) if number else None
    found["goal"] = None if bound is None else Goal(at_most=bound) if sign == "≤" else Goal(at_least=bound)
    return Figure(**found)


def machine() -> dict[str, Any]:
    """Describe the machine as far as it bears on the figures."""
    model = platform.processor()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        model = next((line.split(":", 1)[1].strip() for line in cpuinfo.read_text().splitlines() if line.startswith("model name")), model)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "memory_gib": round(memory / 2**30, 1),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "load_average": [round(load, 2) for load in os.getloadavg()],
        "nice": os.nice(0),
    }


def versions() -> dict[str, str]:
    """Name the versions of the interpreter, of what does the work, and of this repository."""
    found = {"python": platform.python_version(), "sqlite": sqlite3.sqlite_version, "gossiplog": _commit()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "missing"
    return found


def write_results(place: Path, title: str, header: dict[str, Any], figures: Sequence[Figure]) -> None:
    """Write everything as JSON, and one table as Markdown; `place` is their common name without its end."""
    place.parent.mkdir(exist_ok=True)
    write_json(place.with_name(f"{place.name}.json"), header, figures)
    write_markdown(place.with_name(f"{place.name}.md"), title, header, figures)


def write_json(path: Path, header: dict[str, Any], figures: Sequence[Figure]) -> None:
    """Write everything, each sample included."""
    path.write_text(json.dumps({**header, "figures": [figure.as_dict() for figure in figures]}, indent=1, ensure_ascii=False) + "\n")


def write_markdown(path: Path, title: str, header: dict[str, Any], figures: Sequence[Figure]) -> None:
    """Write one table, and under it what it was measured with."""
    lines = [
        f"# {title}",
        "",
        "| figure | what | median | min … max | goal | met | reference, for scale |",
        "|---|---|---:|---:|---|---|---|",
    ]
    for figure in figures:
        spread = f"{_number(min(figure.samples))} … {_number(max(figure.samples))}"
        goal = "" if figure.goal is None else f"{figure.goal} {figure.unit}"
        met = {None: "" if figure.goal is None else "machine too busy to tell", True: "yes", False: "**no**"}[figure.is_met]
        what = figure.what + (f"; {figure.note}" if figure.note else "")
        lines.append(
            f"| `{figure.name}` | {what} | {_number(figure.median)} {figure.unit} | {spread} | {goal} | {met} | {figure.reference} |"
        )
    lines += ["", "## Measured with", ""]
    for name, value in header.items():
        shown = ", ".join(f"{key} {_shown(each)}" for key, each in value.items()) if isinstance(value, dict) else _shown(value)
        lines.append(f"- {name}: {shown}")
    lines += ["", "Medians; the spread is from the lowest to the highest repetition. CPU is user and system time of all threads.", ""]
    cores = os.cpu_count() or 1
    busiest = max((load for figure in figures for load in figure.load), default=0.0)
    if busiest > cores:
        lines += [
            f"The machine was shared (load {busiest} on {cores} cores), so wall times and cores used are not this program's alone.",
            "",
        ]
    path.write_text("\n".join(lines))


def _shown(value: Any) -> str:
    return " / ".join(str(each) for each in value) if isinstance(value, list) else str(value)


def _number(value: float) -> str:
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.0f}" if value == int(value) else f"{value:.1f}" if abs(value) >= 100 else f"{value:.3g}"


def _commit() -> str:
    """Name the commit, with a plus if the tree differs from it."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty=+", "--abbrev=12"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


if __name__ == "__main__":
    print(json.dumps({"machine": machine(), "versions": versions()}, indent=1), file=sys.stdout)
