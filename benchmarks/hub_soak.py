"""Watch a hub for long: 20 honest clients, and for most of the time 50 that mean harm; does its memory grow, and do the honest notice?

    python -m benchmarks.hub_soak --minutes 30
    python -m benchmarks.hub_soak --minutes 2 --sample-s 1               small, to see whether it runs

The hub is `gossiplog serve` with quotas, in a process of its own; a few honest clients, which are timed, are in a second, the others in a
third, hostile ones in a fourth. A tenth of the time is quiet, before and after these are there, so that the machine's neighbours are in
both. Memory and CPU are read from /proc.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import trio

import gossiplog

from .hub import TOPIC, HubProcess, load, make_log, signer
from .measure import Figure, Goal, machine, process_cpu_s, versions, write_json, write_markdown
from .soak_clients import FIRST_HOSTILE

__all__ = ["main"]

TIMED = 6
"""Of the honest clients; they write half of what all of these write, each less than the hub allows."""
WARM_SHARE = 0.2
"""Of the time with hostile clients, at its beginning: caches and the allocator's arenas fill."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The hub at one moment, and how much CPU the process of the clients that are timed has used by then."""

    at_s: float
    rss_bytes: int
    cpu_s: float
    timed_cpu_s: float


@dataclass(frozen=True, slots=True)
class Soak:
    """What came of a run.

    Attributes:
        samples: Of the hub, one after the other.
        phases: What the clients that are timed said after each.
        began_s: When the phases began.
        others: What the other honest clients said: how much each `appended`, and how many connections were `broken`.
        by_author: How many entries of each the hub has stored.
        quota: How many it may store of one.
    """

    samples: Sequence[Sample]
    phases: Sequence[dict[str, float]]
    began_s: Sequence[float]
    others: dict[str, Any]
    by_author: Counter[str]
    quota: int


@asynccontextmanager
async def _process(*command: str) -> AsyncIterator[trio.Process]:
    process = await trio.lowlevel.open_process([sys.executable, "-m", *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        yield process
    finally:
        with trio.CancelScope(shield=True):
            process.terminate()
            await process.wait()


@asynccontextmanager
async def _hub(path: Path, quota: int) -> AsyncIterator[HubProcess]:
    """Serve the log with a quota for each writer; all clients come from this machine, so there are as many places for one address."""
    rules = path.with_suffix(".toml")
    rights = 'anonymous = ["connect", "pull", "push", "post"]'
    limits = f"entries_per_minute = 60\nentries_per_writer = {quota}"
    rules.write_text(f'[tokens]\nnobody = "sha256:{"0" * 64}"\n[default]\n{rights}\n[default.quota]\n{limits}\n')
    arguments = ["--listen", "127.0.0.1:0", "--access", str(rules), "--per-address", "1000", "--json", "-q"]
    async with _process("gossiplog", "serve", str(path), *arguments) as process:
        assert process.stdout is not None
        said = json.loads(await process.stdout.receive_some())
        yield HubProcess(process.pid, said["urls"][0])


async def _soak(options: argparse.Namespace, folder: Path) -> Soak:
    path = await make_log(folder / "hub.db", 10)
    quiet_s = 60 * options.minutes / 10
    phases_s = [quiet_s, 60 * options.minutes - 2 * quiet_s, quiet_s]
    rate = str(options.rate / 2)
    # A tenth more than the most diligent of the honest write.
    quota = 50 + round(1.1 * float(rate) * 60 * options.minutes / (TIMED - 1))
    samples: list[Sample] = []
    phases: list[dict[str, float]] = []
    began: list[float] = []
    async with _hub(path, quota) as hub:
        clients = [hub.url, TOPIC]
        async with (
            _process("benchmarks.soak_clients", "others", *clients, str(options.honest - TIMED), rate) as others,
            _process("benchmarks.soak_clients", "timed", *clients, str(TIMED), rate, *map(str, phases_s)) as timed,
        ):
            lines, others_lines = _lines(timed), _lines(others)
            await anext(others_lines)
            await anext(lines)

            async def sample() -> None:
                start = trio.current_time()
                while True:
                    used = process_cpu_s(timed.pid)
                    samples.append(Sample(trio.current_time() - start, hub.rss_bytes(), hub.cpu_s(), used))
                    await trio.sleep(options.sample_s)

            async def phase() -> None:
                began.append(samples[-1].at_s if samples else 0.0)
                phases.append(json.loads(await anext(lines)))
                print(phases[-1], flush=True)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(sample)
                await phase()
                async with _process("benchmarks.soak_clients", "hostile", *clients, str(options.hostile), str(options.pause_s)) as hostile:
                    await phase()
                    assert hostile.poll() is None, "the hostile clients ended by themselves"
                await phase()
                nursery.cancel_scope.cancel()
            assert others.stdin is not None
            await others.stdin.aclose()
            written = json.loads(await anext(others_lines))
    async with gossiplog.open(path, read_only=True) as log:
        by_author = Counter([entry.author async for entry in log.iterate()])
    return Soak(samples, phases, began, written, by_author, quota)


async def _lines(process: trio.Process) -> AsyncIterator[bytes]:
    assert process.stdout is not None
    held = b""
    async for data in process.stdout:
        *whole, held = (held + data).split(b"\n")
        for line in whole:
            yield line


def _per_hour(samples: Sequence[Sample]) -> float:
    """The slope of memory through all samples, by least squares, in MB an hour."""
    line = statistics.linear_regression([each.at_s / 3600 for each in samples], [each.rss_bytes / 1e6 for each in samples])
    return line.slope


def _cpu_share(samples: Sequence[Sample]) -> float:
    first, last = samples[0], samples[-1]
    return 100 * (last.cpu_s - first.cpu_s) / (last.at_s - first.at_s)


def _busiest(samples: Sequence[Sample]) -> float:
    """The most of a core that those that are timed used between two samples, in per cent: near 100 they time themselves, not the hub."""
    return max(100 * (b.timed_cpu_s - a.timed_cpu_s) / (b.at_s - a.at_s) for a, b in itertools.pairwise(samples))


def _figures(options: argparse.Namespace, soak: Soak) -> list[Figure]:
    quiet, beside, after = soak.phases
    _, hostile_s, after_s = soak.began_s
    alone = [each for each in soak.samples if each.at_s < hostile_s]
    among = [each for each in soak.samples if hostile_s <= each.at_s < after_s]
    warm = [each for each in among if each.at_s >= hostile_s + WARM_SHARE * (after_s - hostile_s)]
    half = len(warm) // 2
    first_mb, second_mb = (statistics.median(each.rss_bytes / 1e6 for each in part) for part in (warm[:half], warm[half:]))
    strangers = max(soak.by_author[signer(FIRST_HOSTILE + number).did] for number in range(options.hostile))
    written: dict[str, int] = soak.others["appended"]
    lost = sum(each["lost"] for each in soak.phases) + sum(max(0, count - soak.by_author[did]) for did, count in written.items())
    entries = sum(each["entries"] for each in soak.phases) + sum(written.values())
    broken = max(each["broken"] for each in [*soak.phases, soak.others])
    quietest = max(quiet["p99_ms"], after["p99_ms"])
    minutes = f"{(after_s - hostile_s) / 60:.3g} min"
    what = f"{options.honest} honest clients, {options.rate:g} appends/s, and {options.hostile} hostile ones for {minutes}"
    around = f"the later of the phases before and after ({quiet['p99_ms']:.0f} and {after['p99_ms']:.0f} ms)"
    return [
        Figure("soak.rss-slope", f"{what}: growth of the hub's RSS after the first fifth", "MB/h", [_per_hour(warm)]),
        Figure(
            "soak.rss-halves",
            f"the second half's median RSS over the first's, {second_mb:.1f} over {first_mb:.1f} MB",
            "",
            [second_mb / first_mb],
            Goal(1.05),
        ),
        Figure("soak.rss-most", "the most RSS seen", "MB", [max(each.rss_bytes for each in soak.samples) / 1e6]),
        Figure(
            "soak.quiet-p99",
            f"append → stored by another client, {TIMED} of the honest, p99 without the hostile, {around}",
            "ms",
            [quietest],
            needs_quiet=True,
        ),
        Figure(
            "soak.p99",
            f"the same beside them; p50 {beside['p50_ms']:.1f} ms against {quiet['p50_ms']:.1f}, most {beside['max_ms']:.0f} ms",
            "ms",
            [beside["p99_ms"]],
            needs_quiet=True,
        ),
        Figure("soak.p99-ratio", "of these two", "", [beside["p99_ms"] / quietest], Goal(2)),
        Figure(
            "soak.lost",
            f"of {entries:,.0f} honest entries, those that did not arrive within a minute, or at the hub",
            "",
            [lost],
            Goal(0),
        ),
        Figure("soak.broken", "honest connections that were cut off", "", [broken], Goal(0)),
        Figure("soak.stored", f"most entries stored of a hostile writer, with a quota of {soak.quota}", "", [strangers], Goal(soak.quota)),
        Figure(
            "soak.cpu",
            f"the hub's CPU beside them; {_cpu_share(alone):.1f} % in the quiet phase before",
            "% of a core",
            [_cpu_share(among)],
        ),
        Figure(
            "soak.busiest",
            f"the most of a core that the process of those that are timed took beside them; {_busiest(alone):.0f} % before",
            "% of a core",
            [_busiest(among)],
        ),
    ]


def main() -> None:
    """Run it, print the figures, and write the results where the command line says."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.hub_soak", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--honest", type=int, default=20)
    parser.add_argument("--hostile", type=int, default=50)
    parser.add_argument("--rate", type=float, default=4.0, help="appends per second of all honest clients")
    parser.add_argument("--pause-s", type=float, default=0.5, help="what a hostile client waits between two misdeeds")
    parser.add_argument("--sample-s", type=float, default=5.0)
    parser.add_argument("--out", type=Path, default=None, help="where to write hub-soak.md and hub-soak.json; nowhere unless given")
    options = parser.parse_args()
    if options.out is not None:
        # Now, and not after the half hour.
        options.out.mkdir(parents=True, exist_ok=True)
    started, before = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()), load()
    with tempfile.TemporaryDirectory() as folder:
        soak = trio.run(_soak, options, Path(folder))
    figures = [replace(figure, load=[before[0], load()[0]]) for figure in _figures(options, soak)]
    for figure in figures:
        print(figure, figure.what, flush=True)
    header = {
        "command": f"python -m benchmarks.hub_soak --minutes {options.minutes:g}",
        "when": started,
        "machine": machine(),
        "versions": versions(),
        "durability": "full",
    }
    if options.out is not None:
        rss = [[round(each.at_s), each.rss_bytes, round(each.cpu_s, 2)] for each in soak.samples]
        write_json(options.out / "hub-soak.json", {**header, "phases": list(soak.phases), "samples_s_bytes_cpu_s": rss}, figures)
        write_markdown(options.out / "hub-soak.md", "Hub, watched for long", header, figures)


if __name__ == "__main__":
    main()
