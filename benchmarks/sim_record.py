"""Write a benchmark's result with the machine, the versions and the command that made it.

`python -m benchmarks.sim_record` writes each `results/sim-*.md` anew from its JSON.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import sys
from pathlib import Path
from typing import Any

from .measure import machine

RESULTS = Path(__file__).parent / "results"


def parse(about: str | None, **defaults: Any) -> argparse.Namespace:
    """Read a benchmark's arguments, each of which may be left out and is of its default's type."""
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks.{Path(sys.argv[0]).stem}", description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, default in defaults.items():
        parser.add_argument(name, metavar=name.upper(), nargs="?", type=type(default), default=default)
    return parser.parse_args()


def peak_mib() -> int:
    """The largest resident size of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def write(name: str, about: str, rows: list[dict[str, Any]], table: str) -> None:
    """Write `results/NAME.json` and print the table."""
    RESULTS.mkdir(exist_ok=True)
    command = " ".join([f"python -m benchmarks.{Path(sys.argv[0]).stem}", *sys.argv[1:]])
    here = machine()
    made = {
        "cpu": here["cpu"],
        "processors": here["cores"],
        "python": platform.python_version(),
        "system": here["system"],
        "load": here["load_average"][0],
    }
    record = {"about": about, "command": command, "machine": made, "rows": rows, "table": table.splitlines()}
    (RESULTS / f"{name}.json").write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    (RESULTS / f"{name}.md").write_text(as_markdown(record), encoding="utf-8")
    print(f"{about}\n{command}\n\n{table}")


def as_markdown(record: dict[str, Any]) -> str:
    """A result for readers: what, how, where, and the table."""
    made = record["machine"]
    where = f"{made['cpu']}, {made['processors']} processors, Python {made['python']}, {made['system']}"
    if "load" in made:
        where += f"; load {made['load']:.1f} when it was written"
    note = f"\n{record['note']}\n" if "note" in record else ""
    table = "\n".join(line.rstrip() for line in record["table"])
    return f"# {record['about']}\n\n    {record['command']}\n\n{where}.\n{note}\n```\n{table}\n```\n"


def main() -> None:
    parse(__doc__)
    for path in sorted(RESULTS.glob("sim-*.json")):
        path.with_suffix(".md").write_text(as_markdown(json.loads(path.read_text(encoding="utf-8"))), encoding="utf-8")


if __name__ == "__main__":
    main()
