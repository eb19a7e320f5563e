"""Measure what facts cost a hub: its CPU for each delivery without them, with them, and with somebody who follows them.

    python -m benchmarks.facts_cost                              500 clients, 100 appends/s, sixty rounds of three phases, four minutes
    python -m benchmarks.facts_cost --clients 50 --seconds 2     small, to see whether it runs

One hub in a process of its own, all clients in another, who appends in a third. Facts are switched in the running hub, phase by phase,
each round in another order, so that all three meet the same hub, clients and neighbours. CPU is what the hub's process used,
user and system, over the messages that it queued for its clients meanwhile. Beside that, what the observer takes for the events of
one append, by itself: where others use the machine, the difference of two large numbers says less.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import trio

import gossiplog
from gossiplog.broadcast.actions import EntryDecided, InsertEntry, Push
from gossiplog.broadcast.events import BatchInserted, PushReceived
from gossiplog.codec import pcf
from gossiplog.entry import sign_entry
from gossiplog.entry.validation import Outcome, Verdict
from gossiplog.net.reports.observer import Observer
from gossiplog.net.service.service import service_of
from gossiplog.pubsub.types import PeerId
from gossiplog.sync.rpc import Insert
from gossiplog.sync.wire import encode_event

from .hub import TOPIC, load, make_log, signer
from .measure import Figure, Goal, machine, versions, write_results

__all__ = ["main"]

PHASES = ("off", "on", "followed")
_SETTLE_S = 0.1
_TURNS = 20_000


async def _serve(path: str) -> None:
    """Be the hub: switch facts as each line of stdin says, and answer with what has been used and done so far."""
    async with gossiplog.open(path, topic=TOPIC, signer=signer(1)) as log, log.listen("127.0.0.1:0") as hub, trio.open_nursery() as nursery:
        print(hub.urls[0], flush=True)
        service = service_of(log)
        assert service is not None
        observer = Observer(service.me, TOPIC, "gossipsub")
        running = trio.CancelScope()

        async def observe(scope: trio.CancelScope) -> None:
            with scope:
                await observer.run(log, service.health.full)

        async for line in trio.lowlevel.FdStream(0):
            for word in line.decode().split():
                running.cancel()
                service.observer = None if word == "off" else observer
                # The host notes whose facts are wanted when a log joins.
                service.host.leave(service)
                service.host.join(service)
                if word != "off":
                    running = trio.CancelScope()
                    nursery.start_soon(observe, running)
                pushed = sum(peer.counts.get("pushed", 0) for peer in service.peers.values())
                print(json.dumps([time.process_time(), pushed, observer.board.next]), flush=True)
        nursery.cancel_scope.cancel()


class _Hub:
    """The hub's process."""

    def __init__(self, process: trio.Process) -> None:
        assert process.stdin is not None and process.stdout is not None
        self._in, self._out = process.stdin, process.stdout

    async def line(self) -> str:
        data = b""
        while not data.endswith(b"\n"):
            data += await self._out.receive_some()
        return data.decode().strip()

    async def switch(self, phase: str) -> tuple[float, int, int]:
        """Switch facts; return the CPU seconds, messages queued and facts made so far."""
        await self._in.send_all(("off" if phase == "off" else "on").encode() + b"\n")
        cpu_s, pushed, facts = json.loads(await self.line())
        return cpu_s, pushed, facts


@asynccontextmanager
async def _hub_process(path: Path) -> AsyncIterator[_Hub]:
    command = [sys.executable, "-m", "benchmarks.facts_cost", "--hub", str(path)]
    process = await trio.lowlevel.open_process(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        yield _Hub(process)
    finally:
        with trio.CancelScope(shield=True):
            process.terminate()
            await process.wait()


async def _follow(url: str) -> None:
    """Read the facts, and drop them."""
    parts = urlsplit(url)
    assert parts.hostname is not None and parts.port is not None
    async with await trio.open_tcp_stream(parts.hostname, parts.port) as stream:
        await stream.send_all(b"GET /api/facts?past=0 HTTP/1.1\r\nhost: localhost\r\n\r\n")
        while await stream.receive_some():
            pass


async def measure(folder: Path, clients: int, rate: int, seconds: float, rounds: int) -> list[Figure]:
    """Run all phases."""
    path = await make_log(folder / "hub.db", 10)
    costs: dict[str, list[float]] = {phase: [] for phase in PHASES}
    facts_s: list[float] = []
    rng = random.Random(1)
    async with _hub_process(path) as hub, gossiplog.open(folder / "a.db", topic=TOPIC, signer=signer(2), durability="off") as log:
        url = await hub.line()
        async with log.connect(url) as link, trio.open_nursery() as nursery:
            await link.wait_connected()
            expected = str(10**9)
            command = [sys.executable, "-m", "benchmarks.hub_clients", url, TOPIC, str(clients), "0", expected, "100000"]
            crowd = await trio.lowlevel.open_process(command, stdout=subprocess.PIPE)
            assert crowd.stdout is not None
            assert (await crowd.stdout.receive_some()).strip() == b"ready"
            nursery.start_soon(_append, log, rate)
            try:
                await trio.sleep(2 * _SETTLE_S)
                for _ in range(rounds):
                    for phase in rng.sample(PHASES, len(PHASES)):
                        cost, facts = await _phase(hub, url, phase, seconds)
                        costs[phase].append(cost)
                        facts_s += [facts / seconds] if phase == "on" else []
            finally:
                crowd.kill()
                await crowd.wait()
                nursery.cancel_scope.cancel()
    return _figures(costs, facts_s, clients, f"{clients:,} clients, {rate} appends/s, {rounds} × {seconds:g} s")


async def _phase(hub: _Hub, url: str, phase: str, seconds: float) -> tuple[float, int]:
    """Return the CPU µs a message queued, and the facts made."""
    await hub.switch(phase)
    async with trio.open_nursery() as nursery:
        if phase == "followed":
            nursery.start_soon(_follow, url)
        await trio.sleep(_SETTLE_S)
        before = await hub.switch(phase)
        await trio.sleep(seconds)
        after = await hub.switch(phase)
        nursery.cancel_scope.cancel()
    return (after[0] - before[0]) * 1e6 / max(1, after[1] - before[1]), after[2] - before[2]


def _turn_us(clients: int) -> list[float]:
    """Return what the facts of one append take, which a client pushed and all others get."""
    entry = sign_entry(signer(2), TOPIC, 1, [], pcf.encode({"text": "x" * 100}))
    peers = tuple(PeerId(f"ws://127.0.0.1:{port}") for port in range(10_000, 10_000 + clients))
    data = encode_event(Insert(entry.key, entry.value))
    observer = Observer("me", TOPIC, "gossipsub")
    samples = []
    for _ in range(5):
        began = time.process_time()
        for token in range(_TURNS):
            offered = InsertEntry(token, entry.key, entry.value, peers[0])
            observer.on_event(PushReceived(peers[0], data), [offered])
            decided = EntryDecided(offered, Verdict(Outcome.ACCEPT, entry=entry, is_new=True))
            observer.on_event(BatchInserted(token, [decided.verdict]), [decided, Push(peers, data)])
        samples.append((time.process_time() - began) * 1e6 / _TURNS)
    return samples


def _figures(costs: dict[str, list[float]], facts_s: Sequence[float], clients: int, what: str) -> list[Figure]:
    figures = [
        Figure(f"facts.{phase}", f"{what}: the hub's CPU for each delivery, facts {phase}", "µs CPU", costs[phase]) for phase in PHASES
    ]
    base = statistics.median(costs["off"])
    for phase, goal in (("on", Goal(3)), ("followed", None)):
        total = 100 * (statistics.median(costs[phase]) / base - 1)
        low, high = _interval(costs["off"], costs[phase])
        note = f"95 % of resamplings of the rounds give {low:+.1f} to {high:+.1f} %"
        figures.append(
            Figure(f"facts.{phase}-cost", f"the same, {phase} over off, between the medians of all rounds", "%", [total], goal, note)
        )
    turn = _turn_us(clients)
    share = [100 * each / (base * clients) for each in turn]
    figures.append(Figure("facts.turn", f"what the observer takes for one append that goes to {clients:,} clients", "µs CPU", turn))
    figures.append(Figure("facts.share", "that, as a part of what the hub took for one append without facts", "%", share, Goal(3)))
    return [*figures, Figure("facts.rate", "facts made", "facts/s", facts_s)]


def _interval(off: Sequence[float], on: Sequence[float], times: int = 2000) -> tuple[float, float]:
    """Return between which per cents the difference of the medians lies in 95 of 100 resamplings with replacement (bootstrap)."""
    rng = random.Random(1)
    rounds = list(zip(off, on, strict=True))
    found = []
    for _ in range(times):
        drawn = rng.choices(rounds, k=len(rounds))
        found.append(100 * (statistics.median(b for _, b in drawn) / statistics.median(a for a, _ in drawn) - 1))
    cuts = statistics.quantiles(found, n=40)
    return cuts[0], cuts[-1]


async def _append(log: gossiplog.GossipLog, rate: int) -> None:
    began, n = trio.current_time(), 0
    while True:
        await trio.sleep_until(began + n / rate)
        await log.append({"mark": f"#@{n},{time.monotonic_ns()}@#", "text": "x" * 100})
        n += 1


def main() -> None:
    """Run what the command line names, print each figure, and write the results."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.facts_cost", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--clients", type=int, default=500)
    parser.add_argument("--rate", type=int, default=100, help="appends a second")
    parser.add_argument("--seconds", type=float, default=1, help="of a phase")
    parser.add_argument("--rounds", type=int, default=60, help="of the three phases")
    parser.add_argument("--out", type=Path, default=None, help="where to write facts-cost.md and facts-cost.json; nowhere unless given")
    parser.add_argument("--hub", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.hub is not None:
        trio.run(_serve, options.hub)
        return
    before, started = load(), time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    with tempfile.TemporaryDirectory() as folder:
        figures = trio.run(measure, Path(folder), options.clients, options.rate, options.seconds, options.rounds)
    figures = [replace(figure, load=[before[0], load()[0]]) for figure in figures]
    for figure in figures:
        print(figure, figure.what, figure.note, flush=True)
    command = f"python -m benchmarks.facts_cost --clients {options.clients} --rate {options.rate}"
    command += f" --seconds {options.seconds:g} --rounds {options.rounds}"
    header = {"command": command, "when": started, "machine": machine(), "versions": versions(), "durability": "full"}
    if options.out is not None:
        write_results(options.out / "facts-cost", "What facts cost", header, figures)


if __name__ == "__main__":
    main()
