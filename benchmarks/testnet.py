"""Real processes beside the simulator, on the same scenario: how long entries take, and how many copies come.

`gossiplog serve` processes on loopback, their connections delayed as the simulator delays the same pairs (10 to 50 ms one way, nothing
lost), appending in turns. Latency is from the receipt of the POST at one process to the commit at another, by their facts; the clock is
the machine's. The simulator takes nothing for signatures, commits and processors, and its figure is for a network alone.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import trio

from gossiplog.sim.scenario import LatencySpec, PublishSpec, Scenario, TopologySpec
from gossiplog.testnet import Testnet, open_testnet
from gossiplog.testnet.report import simulated
from gossiplog.testnet.script import play, settle

from .measure import machine, process_cpu_s, versions

__all__ = ["main"]

_RESULTS = Path(__file__).parent / "results"
_COLUMNS = ("peers", "start_s", "pss_mb", "cpu_ms", "p50_ms", "sim_p50_ms", "p99_ms", "sim_p99_ms", "rmr", "sim_rmr", "missed")


def main() -> None:
    """Run, print each row, and write the results."""
    options = _parse()
    rows = []
    for peers in options.peers:
        with tempfile.TemporaryDirectory() as folder:
            rows.append(trio.run(_measure, Path(folder), peers, options.messages, options.interval))
        print(json.dumps(rows[-1]), flush=True)
    header = {
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "machine": machine(),
        "versions": versions(),
        "options": vars(options),
    }
    if options.write:
        (_RESULTS / f"{options.write}.json").write_text(json.dumps({**header, "rows": rows}, indent=1) + "\n", "utf-8")
        (_RESULTS / f"{options.write}.md").write_text(_as_markdown(header, rows), "utf-8")


async def _measure(folder: Path, peers: int, messages: int, interval_s: float) -> dict[str, Any]:
    scenario = Scenario(
        f"testnet-{peers}",
        nodes=peers,
        topology=TopologySpec(connect=8),
        latency=LatencySpec(low_s=0.010, high_s=0.050),
        publish=PublishSpec(messages=messages, interval_s=interval_s, start_s=15.0, linger_s=5.0),
    )
    begun, load = time.perf_counter(), os.getloadavg()[0]
    async with open_testnet(scenario, folder) as network:
        start_s = time.perf_counter() - begun
        before = _cpu_s(network)
        await play(network)
        is_equal = any([await settle(network) or await settle(network)])
        real, cpu_s, pss_mb = network.watching.measure.figures(), _cpu_s(network) - before, _pss_mb(network)
    summary = simulated(scenario, 0).summary
    expected = messages * (peers - 1)
    return {
        "peers": peers,
        "load": round(load, 1),
        "start_s": round(start_s, 1),
        "pss_mb": round(pss_mb / peers, 1),
        "cpu_ms": round(1000 * cpu_s / expected, 1),
        "p50_ms": round(1000 * real.p50_s, 1),
        "sim_p50_ms": round(1000 * summary.p50_s, 1),
        "p99_ms": round(1000 * real.p99_s, 1),
        "sim_p99_ms": round(1000 * summary.p99_s, 1),
        "rmr": round(real.rmr, 2),
        "sim_rmr": round(summary.rmr, 2),
        "missed": expected - real.delivered,
        "equal": is_equal,
        "real": asdict(real),
        "simulator": asdict(summary),
    }


def _cpu_s(network: Testnet) -> float:
    return sum(map(process_cpu_s, network.processes.pids.values()))


def _pss_mb(network: Testnet) -> float:
    rollups = [Path(f"/proc/{pid}/smaps_rollup").read_text() for pid in network.processes.pids.values()]
    return sum(int(rollup.partition("Pss:")[2].split()[0]) for rollup in rollups) / 1024


def _as_markdown(header: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    loads = ", ".join(f"{row['load']:g}" for row in rows)
    lines = [
        "# Real processes and the simulator",
        "",
        f"`python -m benchmarks.testnet --write testnet`, {header['date']}, load at the start of each row {loads}.",
        f"{header['options']['messages']} entries, one every {header['options']['interval']:g} s, gossipsub as `serve` runs it.",
        "",
        f"| {' | '.join(_COLUMNS)} |",
        f"|{'---:|' * len(_COLUMNS)}",
        *[f"| {' | '.join(str(row[name]) for name in _COLUMNS)} |" for row in rows],
        "",
        "`start_s`: until all answer; `pss_mb`: memory of a process, shared pages by its share; `cpu_ms`: CPU of all processes a first",
        "receipt, what they do anyway included; `rmr`: further copies a first receipt; `missed`: receipts that no fact told of.",
    ]
    return "\n".join(lines) + "\n"


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.testnet", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peers", type=int, nargs="+", default=[8, 16, 50], metavar="N", help="sizes of networks (8 16 50)")
    parser.add_argument("--messages", type=int, default=60, metavar="N", help="entries (60)")
    parser.add_argument("--interval", type=float, default=0.5, metavar="S", help="seconds from one to the next (0.5)")
    parser.add_argument("--write", metavar="NAME", help="write NAME.md and NAME.json to benchmarks/results/")
    return parser.parse_args()


if __name__ == "__main__":
    main()
