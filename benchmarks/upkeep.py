"""What it takes to export a large log, to repair it, and to let in what waits in its quarantine, by the commands of the tree this runs in.

    python -m benchmarks.upkeep --place /tmp/upkeep --column after

The log is made once, in `--place`: ten writers, payloads of 200 bytes. Each command gets a copy of it. CPU is user and system time of the
command's process, memory its largest resident set, both as the system reports them when the process has ended. Another tree that finds the
log in `--place` measures the same bytes, for a column of its own beside the others (`--column before --results FILE`).
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import re
import resource
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

import trio

import gossiplog
from gossiplog import Entry, Outcome, Verdict

from .material import SHAPES, TOPIC, Setup, remove_log
from .measure import machine, versions

RESULTS = Path(__file__).with_name("results")
SEED = 1
BATCH = 4_000
PIECES = {
    "jsonl": "`export -o x.jsonl`",
    "car": "`export -o x.car`",
    "parquet": "`export -o x.parquet`",
    "retry": "`quarantine retry`, {waiting:,} of them",
    "repair": "`fsck --repair --yes`, {damaged:,} damaged",
}
REFUSED = 2
"""The exit code of a command that does not know an option, or the kind of file it is asked for."""


def build(place: Path, count: int, waiting: int) -> None:
    """Make `log.db` of `count` entries, and `waiting.db`, in whose quarantine the last ones wait."""
    setup = Setup(count, count, 1, "off", SEED, place, place)
    made = SHAPES["ten-writers"](setup, count)
    draft = place / "draft.db"
    remove_log(draft)
    trio.run(_insert, setup, draft, islice(made, count - waiting))
    shutil.copyfile(draft, place / "waiting.db")
    rest = list(made)
    with closing(sqlite3.connect(place / "waiting.db")) as db:
        rows = [(entry.key, entry.value, "parents", "", 0.0) for entry in rest]
        db.executemany("INSERT INTO gossiplog_quarantine (key, value, rule, reason, since) VALUES (?, ?, ?, ?, ?)", rows)
        db.commit()
    trio.run(_insert, setup, draft, iter(rest))
    draft.rename(place / "log.db")


async def _insert(setup: Setup, path: Path, made: Iterator[Entry]) -> None:
    """Add entries that are known to be valid."""
    async with gossiplog.open(path, topic=TOPIC, durability="off", signer=setup.signer) as log:
        while batch := [Verdict(Outcome.ACCEPT, entry=entry) for entry in islice(made, BATCH)]:
            await log.insert_verified(batch)


def damage(path: Path, damaged: int) -> None:
    """Change a byte in the middle of entries that lie scattered after the first quarter of a log, so that there is much to build again."""
    rng = random.Random(SEED)
    with closing(sqlite3.connect(path)) as db:
        (last,) = db.execute("SELECT max(seq) FROM gossiplog_entries").fetchone()
        for seq in rng.sample(range(last // 4, last), damaged):
            (value,) = db.execute("SELECT value FROM gossiplog_entries WHERE seq = ?", (seq,)).fetchone()
            changed = bytearray(value)
            changed[len(changed) // 2] ^= 1
            db.execute("UPDATE gossiplog_entries SET value = ? WHERE seq = ?", (bytes(changed), seq))
        db.commit()


def command(piece: str, log: Path) -> list[str]:
    """The command line that is measured."""
    match piece:
        case "retry":
            return ["quarantine", "retry", str(log)]
        case "repair":
            return ["fsck", str(log), "--repair", "--yes"]
        case kind:
            return ["export", str(log), "-o", str(log.with_name(f"exported.{kind}"))]


def run(arguments: list[str], log: Path, cpu_limit_s: int) -> dict[str, Any]:
    """Run a command of this tree to its end, or until it has used up its CPU, and say what it took."""
    output = log.with_name("output.txt")
    began = time.monotonic()
    with output.open("wb") as file:
        process = subprocess.Popen([sys.executable, "-m", "gossiplog", *arguments], stdout=file, stderr=subprocess.STDOUT)
        resource.prlimit(process.pid, resource.RLIMIT_CPU, (cpu_limit_s, cpu_limit_s))
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    said = output.read_text(errors="replace").replace(str(log.parent) + "/", "")
    lines = [re.sub(r"\s+", " ", line).strip()[:200] for line in said.splitlines() if re.search(r"\w", line)]
    return {
        "exit": process.returncode,
        "cpu_s": round(used.ru_utime + used.ru_stime, 1),
        "wall_s": round(time.monotonic() - began, 1),
        "peak_mib": round(used.ru_maxrss / 1024),
        "load": round(os.getloadavg()[0], 1),
        "lines": len(lines),
        "said": lines[:2] + lines[2:][-1:],
    }


def measure(piece: str, place: Path, damaged: int, cpu_limit_s: int) -> dict[str, Any]:
    """Measure a piece on a copy of its own, which is removed."""
    folder = place / "run"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    log = folder / "log.db"
    shutil.copyfile(place / ("waiting.db" if piece == "retry" else "log.db"), log)
    if piece == "repair":
        damage(log, damaged)
    subprocess.run([sys.executable, "-m", "gossiplog", "migrate", str(log)], check=True, capture_output=True)
    asked = command(piece, log)
    result = run(asked, log, cpu_limit_s)
    if result["exit"] == REFUSED and "--yes" in asked:
        # Older trees repair without asking.
        result = run([each for each in asked if each != "--yes"], log, cpu_limit_s)
    with closing(sqlite3.connect(log)) as db:
        counts = [db.execute(f"SELECT count(*) FROM gossiplog_{table}").fetchone()[0] for table in ("entries", "quarantine")]
    shutil.rmtree(folder)
    return {**result, "entries": counts[0], "quarantine": counts[1]}


def _cell(result: dict[str, Any] | None, cpu_limit_s: int) -> list[str]:
    if result is None:
        return ["not measured", "", "", ""]
    load = str(result["load"])
    if result["exit"] < 0:
        return [f"no end within {cpu_limit_s:,} s", f"{result['peak_mib']:,} MiB, then", "", load]
    if result["exit"] == REFUSED:
        return ["cannot", "", "", load]
    after = f"{result['entries']:,} + {result['quarantine']:,}"
    return [f"{result['cpu_s']:,.1f} s", f"{result['peak_mib']:,} MiB", after, load]


def table(columns: dict[str, Any], names: dict[str, str]) -> Iterator[str]:
    """The lines of the table, column beside column."""
    heads = [f"{head}, {name}" for name in columns for head in ("CPU", "memory", "entries + quarantine then", "load")]
    yield "| | " + " | ".join(heads) + " |"
    yield "|---|" + "---:|" * len(heads)
    for piece, what in names.items():
        cells = [cell for each in columns.values() for cell in _cell(each["pieces"].get(piece), each["cpu_limit_s"])]
        yield f"| {what} | " + " | ".join(cells) + " |"


def write(path: Path, columns: dict[str, Any], names: dict[str, str], count: int) -> None:
    """Write the table, and under it what it was measured with."""
    lines = [f"# Upkeep of a log of {count:,} entries", "", *table(columns, names), "", "## Measured with", ""]
    for name, column in columns.items():
        shown = "; ".join(f"{key} {value}" for key, value in column["machine"].items())
        lines.append(f"- {name}: gossiplog {column['versions']['gossiplog']}, python {column['versions']['python']}; {shown}")
    lines += [
        "- command: python -m benchmarks.upkeep --place DIR --column NAME",
        "",
        "One run each. CPU is user and system time of the command's process, memory its largest resident set, load the machine's over",
        "the last minute when the command ended: above the number of cores, time on the clock says nothing, and is not shown.",
        "",
    ]
    path.write_text("\n".join(lines))


def main() -> None:
    """Measure what the command line asks for; what is there of other columns and pieces is kept."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.upkeep", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--place", type=Path, required=True, help="a folder for the log; remove it afterwards")
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--damaged", type=int, default=1_000, help="for repair")
    parser.add_argument("--waiting", type=int, default=100_000, help="for quarantine retry; the last of the entries")
    parser.add_argument("--only", default=",".join(PIECES), help="%(default)s")
    parser.add_argument("--column", default="after", help="whose figures these are: before, after")
    parser.add_argument("--cpu-limit", type=int, default=900, metavar="S", help="seconds of CPU after which a command is ended")
    parser.add_argument("--results", type=Path, default=RESULTS / "upkeep.json", help="the table is beside it, as .md")
    parser.add_argument("--commit", help="of the tree, where it is no repository of git")
    options = parser.parse_args()
    options.place.mkdir(parents=True, exist_ok=True)
    if not (options.place / "log.db").exists():
        # In a process of its own: what a child process inherits until it runs its own program counts as its memory.
        builder = multiprocessing.get_context("spawn").Process(target=build, args=(options.place, options.entries, options.waiting))
        builder.start()
        builder.join()
        if builder.exitcode:
            sys.exit(builder.exitcode)
    columns = json.loads(options.results.read_text()) if options.results.exists() else {}
    names = {piece: what.format(waiting=options.waiting, damaged=options.damaged) for piece, what in PIECES.items()}
    column = columns.setdefault(options.column, {"pieces": {}})
    column |= {"machine": machine(), "versions": versions(), "cpu_limit_s": options.cpu_limit}
    if options.commit:
        column["versions"]["gossiplog"] = options.commit
    for piece in options.only.split(","):
        column["pieces"][piece] = measure(piece, options.place, options.damaged, options.cpu_limit)
        print(f"{names[piece]}: {json.dumps(column['pieces'][piece], ensure_ascii=False)}", flush=True)
        options.results.write_text(json.dumps(columns, indent=1, ensure_ascii=False) + "\n")
        write(options.results.with_suffix(".md"), columns, names, options.entries)
    print(*table(columns, names), sep="\n")


if __name__ == "__main__":
    main()
