"""Measure presence: a room full of cursors through one hub, alone and beside a member that floods.

    python -m benchmarks.presence                                  100 clients, 10 cursors a second each; two minutes
    python -m benchmarks.presence --clients 10 --seconds 3         small, to see whether it runs

The hub is `gossiplog serve` in a process of its own. All clients are in another one and cost next to nothing: each states its cursor,
signed, at its own moment; ten of them look in what they are sent for when it was stated, and the others drop it. Nothing is verified there.
A flooder, in a third process, states 2,000 things a second and connects again when it is cut off. Rooms with and without it are measured in
turns, as a machine with other work has no quiet.
"""

from __future__ import annotations

import argparse
import contextlib
import heapq
import json
import select
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit

import trio

from gossiplog import Ed25519Signer
from gossiplog.net.ground.protocol_ids import presence_protocol
from gossiplog.presence.messages import sign_statement

from .hub import TOPIC, hub_process, make_log
from .hub_clients import MARK, connect, message, muxed
from .measure import Figure, Goal, machine, versions, write_results

__all__ = ["main"]

_HEARING = 10
_SETTLE_S = 1.0


def _open(url: str) -> socket.socket:
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    return connect(parts.hostname, parts.port, parts.path, presence_protocol(TOPIC))


def _frame(signer: Ed25519Signer, number: int, mark: str = "@#") -> bytes:
    states = {"cursor": f"#@{number},{time.monotonic_ns()}{mark}", "name": "somebody"}
    data = sign_statement(signer, bytes(8), TOPIC, int(1_000 * time.time()), states, 10_000).frame(0)
    return message(muxed(0, 0, 1, len(data)) + data)


def _clients(url: str, count: int, rate: float, seconds: float) -> None:
    """State cursors, and hear them; print latencies in ms."""
    signers = [Ed25519Signer.from_seed((100 + number).to_bytes(32)) for number in range(count)]
    socks = [_open(url) for _ in range(count)]
    poll = select.epoll()
    for sock in socks:
        poll.register(sock.fileno(), select.EPOLLIN)
    by_fd = {sock.fileno(): index for index, sock in enumerate(socks)}
    tails = [b""] * count
    began = time.monotonic()
    due = [(began + index / count / rate, index, 0) for index in range(count)]
    latencies: list[float] = []
    heard = stated = 0
    late_s = 0.0
    print("ready", flush=True)
    while (now := time.monotonic()) < began + seconds:
        while due[0][0] <= now:
            at, index, number = heapq.heappop(due)
            late_s = max(late_s, now - at)
            socks[index].send(_frame(signers[index], number))
            stated += 1
            heapq.heappush(due, (at + 1 / rate, index, number + 1))
        for fd, _ in poll.poll(max(0.0, due[0][0] - time.monotonic())):
            index = by_fd[fd]
            data = socks[index].recv(262_144)
            if not data:
                raise SystemExit(f"client {index} was cut off")
            arrived = time.monotonic_ns()
            if index < _HEARING:
                data, last = tails[index] + data, 0
                for mark in MARK.finditer(data):
                    heard += 1
                    last = mark.end()
                    if now > began + _SETTLE_S:
                        latencies.append((arrived - int(mark[2])) / 1e6)
                tails[index] = data[max(last, len(data) - 64) :]
    hearing = min(_HEARING, count)
    share = heard / max(1, stated * hearing * (count - 1) / count)
    print(json.dumps({"latencies": latencies, "share": share, "stated": stated, "late_ms": 1_000 * late_s}), flush=True)


def _flooder(url: str, seconds: float) -> None:
    """State ten things every 5 ms, and connect again when it is cut off."""
    signer = Ed25519Signer.from_seed(b"f" * 32)
    end, sent, cut = time.monotonic() + seconds, 0, 0
    while time.monotonic() < end:
        sock = None
        with contextlib.suppress(OSError, SystemExit):
            sock = _open(url)
            sock.setblocking(True)
            while time.monotonic() < end:
                sock.sendall(b"".join(_frame(signer, sent + number, "") for number in range(10)))
                sent += 10
                time.sleep(0.005)
        if sock is not None:
            sock.close()
        cut += 1
        time.sleep(0.05)
    print(json.dumps({"sent": sent, "cut": cut}), flush=True)


async def _room(path: Path, options: argparse.Namespace, *, is_flooded: bool) -> dict[str, float]:
    async with hub_process(path) as hub:
        command = [sys.executable, "-m", "benchmarks.presence", "--as"]
        sizes = [str(options.clients), str(options.rate), str(options.seconds)]
        clients = await trio.lowlevel.open_process([*command, "clients", "--url", hub.url, "--sizes", *sizes], stdout=subprocess.PIPE)
        assert clients.stdout is not None
        await clients.stdout.receive_some(6)
        flood = await trio.lowlevel.open_process([*command, "flooder", "--url", hub.url, "--sizes", *sizes]) if is_flooded else None
        cpu, began = hub.cpu_s(), time.monotonic()
        said = b""
        while data := await clients.stdout.receive_some():
            said += data
        cores = (hub.cpu_s() - cpu) / (time.monotonic() - began)
        await clients.wait()
        if flood is not None:
            await flood.wait()
    found = json.loads(said)
    quantiles = statistics.quantiles(found["latencies"], n=100)
    return {**found, "cores": cores, "p50": quantiles[49], "p99": quantiles[98]}


async def _measure(options: argparse.Namespace) -> list[Figure]:
    quiet: list[dict[str, float]] = []
    flooded: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        path = await make_log(Path(folder) / "room.db", 10)
        for _ in range(options.repetitions):
            quiet.append(await _room(path, options, is_flooded=False))
            flooded.append(await _room(path, options, is_flooded=True))
            for name, each in (("quiet", quiet[-1]), ("flooded", flooded[-1])):
                shown = {key: round(value, 3) for key, value in each.items() if key != "latencies"}
                print(name, shown, flush=True)
    what = f"{options.clients} clients, {options.rate:g} cursors a second each"
    return [
        Figure("presence.p99", f"{what}: stated → read by another, p99", "ms", [each["p99"] for each in quiet], Goal(50), needs_quiet=True),
        Figure("presence.p50", "the same, p50", "ms", [each["p50"] for each in quiet], needs_quiet=True),
        Figure("presence.cores", "the hub's CPU over wall", "cores", [each["cores"] for each in quiet], Goal(1)),
        Figure(
            "presence.share",
            "of what was stated was heard; the rest was replaced in time",
            "",
            [each["share"] for each in quiet],
        ),
        Figure(
            "presence.flood",
            "p99 beside a flood of 2,000 frames a second by one client, over that without",
            "×",
            [each["p99"] / other["p99"] for each, other in zip(flooded, quiet, strict=True)],
            Goal(1.2),
            needs_quiet=True,
        ),
        Figure("presence.flood-cores", "the hub's CPU over wall beside it", "cores", [each["cores"] for each in flooded]),
    ]


def main() -> None:
    """Run it, print each figure, and write the results."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.presence", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--rate", type=float, default=10.0)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--out", type=Path, default=None, help="where to write presence.md and presence.json; nowhere unless given")
    parser.add_argument("--as", dest="role", choices=("clients", "flooder"), help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    parser.add_argument("--sizes", nargs=3, type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.role == "clients":
        _clients(options.url, int(options.sizes[0]), options.sizes[1], options.sizes[2])
        return
    if options.role == "flooder":
        _flooder(options.url, options.sizes[2])
        return
    started = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    figures = trio.run(_measure, options)
    for figure in figures:
        print(figure, figure.what, flush=True)
    if options.out is not None:
        header = {"command": "python -m benchmarks.presence", "when": started, "machine": machine(), "versions": versions()}
        write_results(options.out / "presence", "Presence", header, figures)


if __name__ == "__main__":
    main()
