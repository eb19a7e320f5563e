"""What a job says about itself when it is done: on the terminal, and beside its tables as JSON and as text."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...version import VERSION

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Report"]


@dataclass(slots=True)
class Report:
    """One job's report.

    Attributes:
        job: Its name.
        sources: What it read.
        results: What came out: figures, short lists of rows, nothing that grows with the entries.
        tables: What it wrote, name to a sentence about it.
        started: Unix time in seconds.
        seconds: How long it took.
    """

    job: str
    sources: list[str]
    results: dict[str, Any] = field(default_factory=dict)
    tables: dict[str, str] = field(default_factory=dict)
    started: float = field(default_factory=time.time)
    seconds: float = 0.0

    def finish(self) -> None:
        """Stop the clock."""
        self.seconds = round(time.time() - self.started, 3)

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return {
            "job": self.job,
            "sources": self.sources,
            "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.started)),
            "seconds": self.seconds,
            "gossiplog": VERSION,
            "results": self.results,
            "tables": self.tables,
        }

    def as_text(self) -> str:
        """Return the report as Markdown."""
        lines = [f"# {self.job}", "", f"{', '.join(self.sources)}: {self.seconds:,.1f} s, gossiplog {VERSION}", ""]
        for name, value in self.results.items():
            if isinstance(value, list) and value and isinstance(value[0], dict):
                heads = list(value[0])
                lines += ["", f"## {name}", "", f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
                lines += [f"| {' | '.join(_shown(row[head]) for head in heads)} |" for row in value]
            else:
                lines.append(f"- {name}: {_shown(value)}")
        if self.tables:
            lines += ["", "## tables", "", *[f"- `{name}`: {about}" for name, about in self.tables.items()]]
        return "\n".join(lines) + "\n"

    def write(self, spark: SparkSession, folder: str) -> None:
        """Write `report.json` and `report.md` into a folder; into one of another file system as a table of one text, `report`."""
        text = json.dumps(self.as_dict(), indent=1, ensure_ascii=False, default=str)
        if "://" in folder:
            spark.createDataFrame([(text,)], "value string").coalesce(1).write.text(f"{folder}/report")
            return
        from pathlib import Path

        Path(folder).mkdir(parents=True, exist_ok=True)
        (Path(folder) / "report.json").write_text(text + "\n", "utf-8")
        (Path(folder) / "report.md").write_text(self.as_text(), "utf-8")


def _shown(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.6g}"
    return str(value).replace("|", "\\|")
