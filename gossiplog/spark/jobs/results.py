"""A job's results: the folder that they are published in, and the report on the terminal and beside the tables."""

from __future__ import annotations

import contextlib
import glob
import json
import os
import shutil
import socket
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import LocalProtocolError
from ...version import VERSION
from ..source.locations import check_new, is_remote, local_path
from ..tables.staging import written

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(slots=True)
class JobReport:
    """One job's report.

    Attributes:
        results: Figures and short lists of rows; nothing that grows with the entries.
        folder: Where tables are written; None to keep only the report.
        tables: The tables written, each name with a sentence about it.
        started: Unix time in seconds.
    """

    job: str
    sources: list[str]
    folder: str | None = None
    results: dict[str, Any] = field(default_factory=dict)
    tables: dict[str, str] = field(default_factory=dict)
    started: float = field(default_factory=time.time)
    seconds: float = 0.0

    def publish(self, name: str, table: DataFrame, about: str, *, files_max: int | None = None) -> DataFrame:
        """Write a table, and return it as read from there; without a folder return it as it is."""
        if self.folder is None:
            return table
        self.tables[name] = about
        return written(table if files_max is None else table.coalesce(files_max), f"{self.folder}/{name}")

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
        Path(folder).mkdir(parents=True, exist_ok=True)
        (Path(folder) / "report.json").write_text(text + "\n", "utf-8")
        (Path(folder) / "report.md").write_text(self.as_text(), "utf-8")


@contextlib.contextmanager
def published(out: str) -> Iterator[str]:
    """Yield a folder to write to, and publish it as `out` when the block ends: all of it at once, or nothing.

    A killed job leaves a folder with `.partial-…` in its name; the next job with the same `out` on the same machine removes it. At a URL
    nothing can be renamed: Spark's own committer publishes each table there, and the report is written last.

    Raises:
        LocalProtocolError: There is something at `out` already, or the server that wrote the tables has another disk than this process.
    """
    if is_remote(out):
        yield out
        return
    place = local_path(out)
    check_new(out)
    place.parent.mkdir(parents=True, exist_ok=True)
    draft = draft_in(place.parent, f"{place.name}.partial")
    try:
        yield str(draft)
        if not draft.is_dir():
            raise LocalProtocolError(
                f"the results are not on this machine's disk at {draft}", hint="give a URL that the Spark server and this machine share"
            )
        for folder in draft.glob("staging-*"):
            shutil.rmtree(folder)
        draft.replace(place)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise


def draft_in(folder: Path, name: str) -> Path:
    """Return the path of a new draft in a folder, after removing those of this name whose processes, on this machine, have ended."""
    for leftover in folder.glob(f"{glob.escape(name)}-*"):
        if _is_orphan(leftover.name.removeprefix(name)):
            shutil.rmtree(leftover, ignore_errors=True)
    return folder / f"{name}-{uuid.uuid4().hex[:8]}-{os.getpid()}@{socket.gethostname()}"


def _is_orphan(suffix: str) -> bool:
    pid, _, host = suffix.partition("-")[2].partition("-")[2].partition("@")
    if host != socket.gethostname() or not pid.isdigit():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except OSError:
        pass
    return False


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
