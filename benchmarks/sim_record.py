"""Write a benchmark's result with the machine, the versions and the command that made it."""

from __future__ import annotations

import json
import os
import platform
import resource
import sys
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def machine() -> dict[str, Any]:
    model = "unknown"
    info = Path("/proc/cpuinfo")
    if info.exists():
        model = next((line.partition(":")[2].strip() for line in info.read_text().splitlines() if line.startswith("model name")), model)
    return {"cpu": model, "processors": os.cpu_count(), "python": platform.python_version(), "system": platform.platform()}


def peak_mib() -> int:
    """The largest resident size of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def write(name: str, about: str, rows: list[dict[str, Any]], table: str) -> None:
    """Write `results/NAME.json` and print the table."""
    RESULTS.mkdir(exist_ok=True)
    command = " ".join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]])
    record = {"about": about, "command": command, "machine": machine(), "rows": rows, "table": table.splitlines()}
    (RESULTS / f"{name}.json").write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{about}\n{command}\n\n{table}")
