"""Many logs in one process, and the goals for them: `python -m benchmarks.shelf` measures each, and prints a table, in five minutes.

    python -m benchmarks.shelf [--only opening rooms flood cursors mesh idle connect] [--logs 10000] [--awake 100] [--rooms 1000]

The server is a process of `gossiplog serve --dir`. Before the table comes what it is made of, as JSON: seconds, milliseconds where it says
so, and bytes of resident memory.

- `opening`: `--awake` logs are real and are opened by requests over HTTP, each for the first time; the other files have names of logs and
  are never opened.
- `cursors`: 100 clients in one room, by `benchmarks.presence`. `mesh`: 8 servers in 50 topics, by `benchmarks.mesh_topics`.
- `idle`, only where it is named: `--rooms` logs are open, each by a stream of events, and nothing happens: memory of each with its stream,
  CPU time of all.
- `connect`, only where it is named: a process connects `--awake` logs of its own to logs that the server has open, until each has what it
  lacks (10 entries): each log by a connection of its own, and all by one; three runs of each in turn.
- `rooms`: a client in each of `--rooms` rooms, and 200 appends a second to one after the other, from POST to the client that gets it. The
  same for one room with one client, which sends as much; and for one room with all of the clients.
- `flood`: 20 rooms with a client and `--flood-rate` appends a second in all, without and with a room in which two flooders write without a
  pause, in five turns. They stand for other machines, so they get what CPU nobody else wants. Timing begins once their entries come, and
  `flooded` says how many came.
- `--real-time`: the clients that are timed get the CPU before the hub, and the hub before everything else on the machine (SCHED_RR, which
  takes a right). Flooders get it before programs of the usual priority. Ratios mean something then even where others use the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import trio

import gossiplog
from gossiplog.store.places import file_of

from .measure import Goal, process_cpu_s


def main() -> None:
    parser = argparse.ArgumentParser(prog="shelf")
    parser.add_argument("--logs", type=int, default=10_000)
    parser.add_argument("--awake", type=int, default=100)
    parser.add_argument("--cycles", type=int, default=1_000)
    parser.add_argument("--rooms", type=int, default=1_000)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--turns", type=int, default=5, help="of the flood")
    parser.add_argument("--flood-seconds", type=int, default=5)
    parser.add_argument("--flood-rate", type=int, default=100)
    parser.add_argument("--flooder", choices=("sender", "member"), default="member")
    parser.add_argument("--real-time", action="store_true")
    parser.add_argument("--only", nargs="+", choices=_PARTS, default=_PARTS[:5])
    options = parser.parse_args()
    load = os.getloadavg()[0]
    if options.real_time:
        # What is started inherits it.
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    found: dict[str, Any] = {"load": load}
    if "opening" in options.only:
        found["opening"] = _opening(options)
    if "idle" in options.only:
        found["idle"] = [_idle(rooms, options.seconds) for rooms in (1, options.rooms)]
    if "connect" in options.only:
        found["connect"] = [{way: _connect(options.awake, way) for way in ("own", "shared")} for _ in range(3)]
    if "rooms" in options.only:
        many, one = _told(options.rooms, options.rooms, 200, options.seconds), _told(1, 1, 200, options.seconds)
        found["rooms"] = {"many": many, "one": one, "one_with_all": _told(1, options.rooms, 200, options.seconds)}
    if "flood" in options.only:
        rooms = 20, 20, options.flood_rate, options.flood_seconds
        pairs = [(_told(*rooms), _told(*rooms, flooder=options.flooder)) for _ in range(options.turns)]
        quiet, flooded = zip(*pairs, strict=True)
        found["flood"] = {"quiet": quiet, "flooded": flooded}
    if "cursors" in options.only:
        found["cursors"] = _cursors(options.seconds)
    if "mesh" in options.only:
        mesh = [sys.executable, "-m", "benchmarks.mesh_topics", "--turns", "1", "--seconds", str(options.seconds)]
        found["mesh"] = json.loads(subprocess.run(mesh, stdout=subprocess.PIPE, check=True).stdout)
    print(json.dumps(found, indent=1))
    print(_goals_table(found))


_PARTS = ["opening", "rooms", "flood", "cursors", "mesh", "idle", "connect"]
_FLOODERS = 2
_FLOOD_BEGUN = 300
"""Entries after which a flood has begun. On a busy machine members take seconds to start."""


def _goals(found: Mapping[str, Any]) -> Iterator[tuple[str, str, Goal, float, str]]:
    """Yield what was measured of the goals: part, what, goal, figure and unit. All but memory and connections need a quiet machine."""
    if (opening := found.get("opening")) is not None:
        yield "opening", f"{opening['logs']:,} logs: memory of an idle one", Goal(20), opening["idle_log_bytes"] / 1e3, "kB"
        yield "opening", "opening on demand, p50", Goal(20), 1e3 * opening["open_p50"], "ms"
        yield "opening", "the same, p99", Goal(100), 1e3 * opening["open_p99"], "ms"
        yield "opening", "start of the hub", Goal(2), opening["start"], "s"
        yield "opening", f"SIGTERM with {opening['awake']} logs open", Goal(4), opening["sigterm"], "s"
    if (rooms := found.get("rooms")) is not None:
        with_all, with_one = (rooms["many"]["p99_ms"] / rooms[name]["p99_ms"] for name in ("one_with_all", "one"))
        yield "rooms", "a client a room, 200 appends/s: p99, of one room with all clients", Goal(2), with_all, "×"
        yield "rooms", "the same, of one room with one client", Goal(2), with_one, "×"
    if (flood := found.get("flood")) is not None:
        yield "flood", "one room flooded: others' p99, of that without", Goal(1.2), _middle(flood["flooded"]) / _middle(flood["quiet"]), "×"
    if (cursors := found.get("cursors")) is not None:
        yield "cursors", "100 clients, 10 cursors/s each: p99", Goal(50), cursors["presence.p99"], "ms"
        yield "cursors", "the same: the hub's CPU", Goal(1), cursors["presence.cores"], "cores"
        yield "cursors", "the same beside a flood: p99, of that without", Goal(1.2), cursors["presence.flood"], "×"
    if (mesh := found.get("mesh")) is not None:
        connections = mesh["many"][0]["connections"] / mesh["one"][0]["connections"]
        # Two servers that dialled each other at once have two.
        yield "mesh", "8 peers in 50 topics: connections, of those in one", Goal(1.1), connections, "×"
        yield "mesh", "the same: idle CPU", Goal(2), mesh["idle_cpu_ratio"], "×"


def _goals_table(found: Mapping[str, Any]) -> str:
    """Return the goals as a table in Markdown, those that were not measured included."""
    rows = ["| part | goal | measured | at most | met |", "|---|---|---:|---|---|"]
    for part, what, goal, figure, unit in _goals(found):
        rows.append(f"| {part} | {what} | {figure:.3g} {unit} | {goal} {unit} | {'yes' if goal.is_met(figure) else '**no**'} |")
    rows += [f"| {part} | | not run | | |" for part in _PARTS[:5] if part not in found]
    rows.append("| | one log only: nothing slower by 3 % | by `benchmarks.hub` at two commits | | |")
    if found["load"] > (os.cpu_count() or 1) / 2:
        rows += ["", f"Others used the machine (load {found['load']:.1f} before it began), so wall times and their ratios say little."]
    return "\n".join(rows)


def _cursors(seconds: int) -> dict[str, float]:
    """Return medians by the name of the figure."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "benchmarks.presence", "--repetitions", "3", "--seconds", str(seconds // 2), "--out", folder]
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        figures = json.loads((Path(folder) / "presence.json").read_text("utf-8"))["figures"]
    return {figure["name"]: figure["median"] for figure in figures}


def _middle(runs: Sequence[dict[str, float]]) -> float:
    return statistics.median(run["p99_ms"] for run in runs)


def _told(rooms: int, clients: int, rate: int, seconds: int, *, flooder: str | None = None) -> dict[str, float]:
    """Say how long appends to rooms took to their clients."""
    count = rate * seconds // rooms * rooms
    with tempfile.TemporaryDirectory() as folder:
        trio.run(_make, Path(folder), max(rooms, 1) + 1, 1)
        with _serving(Path(folder), rooms + 10) as (server, place):
            url = place.replace("http://", "ws://") + ("room-{}" if rooms > 1 else "room-0")
            module, topic = [sys.executable, "-m"], "room-{}" if rooms > 1 else "room-0"
            load = [*module, "benchmarks.shelf_load"]
            receive = [*module, "benchmarks.hub_clients", url, topic, str(clients), "0", str(count // rooms), str(2 * seconds + 20)]
            flooded = f"{url.rpartition('/')[0]}/room-{rooms}"
            floods = [subprocess.Popen([*load, flooder, flooded]) for _ in range(_FLOODERS)] if flooder is not None else []
            try:
                while floods and _count(f"{place}room-{rooms}") < _FLOOD_BEGUN:
                    time.sleep(0.1)
                ahead = ["chrt", "--rr", "2"] if os.sched_getscheduler(0) == os.SCHED_RR else []
                with subprocess.Popen([*ahead, *receive], stdout=subprocess.PIPE, text=True) as receiver:
                    assert receiver.stdout is not None and receiver.stdout.readline().strip() == "ready"
                    before, came = process_cpu_s(server.pid), _count(f"{place}room-{rooms}") if floods else 0
                    post = [*load, "post", url, str(rooms), str(rate), str(count)]
                    posted = json.loads(subprocess.run([*ahead, *post], capture_output=True, check=True).stdout)
                    received = json.loads(receiver.stdout.readline())
                    took = {
                        "hub_cpu_s": process_cpu_s(server.pid) - before,
                        "flooders_cpu_s": sum(process_cpu_s(flood.pid) for flood in floods),
                        "flooded": _count(f"{place}room-{rooms}") - came if floods else 0,
                    }
                told = {**took, "memory": float(_resident(server.pid)), **posted}
            finally:
                for flood in floods:
                    flood.kill()
                    flood.wait()
    return {name: received[name] for name in ("delivered", "p50_ms", "p99_ms", "max_ms")} | told


def _idle(rooms: int, seconds: int) -> dict[str, float]:
    """Say what logs take that are open and in which nothing happens. A stream of events holds each open."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(files, rooms + 1_000), files))
    with tempfile.TemporaryDirectory() as folder, ExitStack() as held:
        trio.run(_make, Path(folder), rooms, 1)
        server, place = held.enter_context(_serving(Path(folder), rooms + 1))
        _get(f"{place}room-0/api/clock")
        memory = _resident(server.pid)
        for each in range(rooms):
            held.enter_context(urllib.request.urlopen(f"{place}room-{each}/api/events"))
        log_bytes = (_resident(server.pid) - memory) / rooms
        began, before = time.perf_counter(), process_cpu_s(server.pid)
        time.sleep(seconds)
        share = (process_cpu_s(server.pid) - before) / (time.perf_counter() - began)
    return {"rooms": rooms, "log_bytes": log_bytes, "cpu_share": share}


def _connect(rooms: int, way: str) -> dict[str, float]:
    """Say what it takes to connect logs, on either side."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as held:
        trio.run(_make, Path(folder), rooms, 10)
        server, place = held.enter_context(_serving(Path(folder), rooms + 1))
        for each in range(rooms):
            held.enter_context(urllib.request.urlopen(f"{place}room-{each}/api/events"))
        memory, used, sockets = _resident(server.pid), process_cpu_s(server.pid), _sockets(server.pid)
        command = [sys.executable, "-m", "benchmarks.shelf_load", "connect", place.replace("http://", "ws://"), str(rooms), way]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as client:
            assert client.stdin is not None and client.stdout is not None
            told = json.loads(client.stdout.readline())
            found = {
                "sockets": _sockets(server.pid) - sockets,
                "server_cpu_s": process_cpu_s(server.pid) - used,
                "server_bytes": _resident(server.pid) - memory,
                **told,
            }
            client.stdin.close()
    return found


def _sockets(pid: int) -> int:
    return sum(str(each.readlink()).startswith("socket:") for each in Path(f"/proc/{pid}/fd").iterdir())


def _opening(options: argparse.Namespace) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as folder:
        trio.run(_make, Path(folder), options.awake, 10)
        few = _measure(Path(folder), options.awake, options.awake + 1, 0)
        for number in range(options.awake, options.logs):
            (Path(folder) / file_of(f"room-{number}")).touch()
        many = _measure(Path(folder), options.awake, options.awake + 1, 0)
        turning = _measure(Path(folder), options.awake, max(1, options.awake // 4), options.cycles)
    idle = (many["memory_awake"] - few["memory_awake"]) / max(1, options.logs - options.awake)
    return {"logs": options.logs, "awake": options.awake, "idle_log_bytes": round(idle), **many, "turning": turning}


async def _make(folder: Path, number: int, entries: int) -> None:
    async with gossiplog.shelf(folder, signer=gossiplog.Ed25519Signer.generate(), durability="off") as shelf:
        for each in range(number):
            async with shelf.open(f"room-{each}", create=True) as log:
                await log.append_many([{"n": n} for n in range(entries)])


@contextmanager
def _serving(folder: Path, most_open: int) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Serve a folder; the URL ends where a topic begins."""
    command = [sys.executable, "-m", "gossiplog", "serve", "--dir", str(folder), "--listen", "127.0.0.1:0", "--most-open", str(most_open)]
    with subprocess.Popen([*command, "--json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            assert server.stdout is not None
            told = json.loads(server.stdout.readline())
            yield server, told["urls"][0].replace("ws://", "http://").removesuffix("TOPIC")
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait()


def _measure(folder: Path, awake: int, most_open: int, cycles: int) -> dict[str, float]:
    """Start a server, open each log that is real, and end it; `cycles` further requests turn round where `most_open` is small."""
    began = time.perf_counter()
    with _serving(folder, most_open) as (server, place):
        found = {"start": time.perf_counter() - began, "memory_started": _resident(server.pid)}
        took = sorted(_get(f"{place}room-{each}/api/clock") for each in range(awake))
        found |= {"open_p50": took[len(took) // 2], "open_p99": took[len(took) * 99 // 100], "memory_awake": _resident(server.pid)}
        for each in range(cycles):
            _get(f"{place}room-{each % awake}/api/clock")
            if each == cycles // 2:
                found["memory_half_way"] = _resident(server.pid)
        found["memory_at_end"] = _resident(server.pid)
        ending = time.perf_counter()
    return found | {"sigterm": time.perf_counter() - ending}


def _get(url: str) -> float:
    began = time.perf_counter()
    with urllib.request.urlopen(url) as answer:
        answer.read()
    return time.perf_counter() - began


def _count(log: str) -> int:
    with urllib.request.urlopen(f"{log}/api/messages/count") as answer:
        return int(json.load(answer)["count"])


def _resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    main()
