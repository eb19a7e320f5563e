"""Whole jobs: read, compute, publish the tables, report. The functions of `tables` that they call work on any DataFrame."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from ...bucket.storage import is_published
from ...entry.rules import VALUE_BYTES_LIMIT
from ...entry.schemes import accepted_schemes
from ...errors import LocalProtocolError
from ...plan import Plan, ask
from ...store.postgres.url import is_postgres_url, without_secrets
from ..source.locations import NEW_FOLDER, check_export_place, check_local, exists, is_remote
from ..source.reading import is_table, read_entries, read_work
from ..tables.columns import SAMPLE_ROWS, with_fields
from ..tables.staging import materialise
from .results import JobReport, published

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ...tree.node import Node

_ROWS_SHOWN = 50
_FEW = 5
"""A state with fewer keys than this is more likely a mistake in the key than what the user wanted."""


@dataclass(frozen=True, slots=True)
class Job:
    """The settings that all jobs share.

    Attributes:
        out: The folder of the results, which must not exist; None to keep only the report.
        options: Options of the data source for all reading.
        note: Called with a sentence about what is being done, for the user.
    """

    spark: SparkSession
    out: str | None = None
    options: Mapping[str, str] | None = None
    note: Callable[[str], None] = lambda _: None

    @contextmanager
    def publishing(self, name: str, *sources: str) -> Iterator[JobReport]:
        """Give a report to fill; its folder, if the job has one, is published at the end."""
        report = JobReport(name, [_shown(source) for source in sources])
        if self.out is None:
            yield report
            report.finish()
            return
        if is_remote(self.out) and exists(self.spark, self.out):
            raise LocalProtocolError(f"{self.out} exists", hint=NEW_FOLDER)
        with published(self.out) as report.folder:
            yield report
            report.finish()
            report.write(self.spark, report.folder)

    def read(self, location: str, columns: tuple[str, ...]) -> DataFrame:
        """Read entries; see `read_entries`."""
        return read_entries(self.spark, location, columns, self.options)


def verify_job(
    job: Job, location: str, *, topic: str | None = None, value_bytes_max: int = VALUE_BYTES_LIMIT, known: str | None = None
) -> JobReport:
    """Verify all entries of a place; tables `verdicts` and `quarantine`.

    Args:
        location: See `read_entries`.
        topic: See `verify`.
        value_bytes_max: See `verify`.
        known: Another place whose entries count as present.
    """
    from ..tables.verify import JUDGE, VERDICT_COLUMNS, count_verdicts, quarantine, settle

    with job.publishing("verify", location) as report:
        job.note(f"verifying {_shown(location)}")
        present = None if known is None else job.read(known, ("key",))
        options = {**(job.options or {}), **({"prove": "true"} if is_published(location) else {})}
        judged = read_work(job.spark, JUDGE, location, topic, value_bytes_max, sorted(accepted_schemes()), options=options)
        verdicts = settle(judged, known=present, staging=report.folder)
        if report.folder is not None:
            job.note("writing verdicts")
        about = "a row for each row that was read: id, key, verdict, rule, reason, place; source where it failed"
        verdicts = report.publish("verdicts", verdicts, about)
        about = "the rows of verdicts that were not accepted, with the bytes found in their place"
        report.publish("quarantine", quarantine(verdicts).select(*VERDICT_COLUMNS), about, files_max=8)
        counts = count_verdicts(verdicts)
        report.results["entries"] = sum(row["count"] for row in counts)
        report.results["failed"] = sum(row["count"] for row in counts if row["verdict"] != "accept")
        report.results["verdicts"] = counts
    return report


def tree_job(job: Job, location: str) -> JobReport:
    """Build the tree over all entries of a place, and compare its root with the one that a log keeps; tables `nodes` and `quarantine`."""
    from ..tables.tree import FOLD, LEAF_COLUMNS, build_tree

    with job.publishing("tree", location) as report:
        job.note(f"building the tree of {_shown(location)}")
        kept, options = _kept_root(location, job.options)
        folded = read_work(job.spark, FOLD, location, options=options)
        tree = build_tree(job.read(location, LEAF_COLUMNS), folded=folded, staging=report.folder)
        report.publish("nodes", tree.nodes, "level (from 1 up), key (empty for an anchor) and hash of every node above the leaves")
        report.publish("quarantine", tree.refused, "rows that are no leaves, with the reason", files_max=8)
        refused = tree.refused.count()
        report.results |= {
            "root": tree.root.hash.hex(),
            "level": tree.root.level,
            "entries": tree.leaves,
            "failed": refused,
            "sorted": tree.is_sorted,
        }
        if kept is not None:
            report.results["log's root"] = kept.hash.hex()
            report.results["failed"] = refused + ((kept.level, kept.hash) != (tree.root.level, tree.root.hash))
    return report


def diff_job(job: Job, a: str, b: str) -> JobReport:
    """Compare two places; table `differences`."""
    from ...entry.message_id import encode_id
    from ..tables.diff import count_sides, diff

    with job.publishing("diff", a, b) as report:
        job.note(f"comparing {_shown(a)} and {_shown(b)}")
        differing = diff(job.read(a, ("key", "hash")), job.read(b, ("key", "hash")))
        differing = report.publish("differences", differing, "key, side (a, b, both, unread a or unread b), hash_a, hash_b")
        counts = count_sides(differing)
        first = differing.where("length(key) = 20").orderBy("key").limit(20).collect()
        report.results |= {
            "equal": not any(counts.values()),
            "only a": counts["a"],
            "only b": counts["b"],
            "changed": counts["both"],
            "unread a": counts["unread a"],
            "unread b": counts["unread b"],
            "failed": counts["unread a"] + counts["unread b"],
        }
        report.results["first"] = [{"id": encode_id(bytes(row["key"])), "side": row["side"]} for row in first]
    return report


def export_job(
    job: Job, location: str, *, columns: Sequence[str] | None = None, clocks_a_folder: int | None = None, schema: str | None = None
) -> JobReport:
    """Add the new entries of a place to an export; the report of each run is in a folder of its own beside the tables.

    Args:
        location: See `read_entries`. If it is an export, the new one has the same rows in as few files as possible, and can be continued
            from where the other ends.
        columns: Those of the table of entries; by default `EXPORT_COLUMNS`.
        clocks_a_folder: See `add_run`.
        schema: The fields of payloads that get columns, as in `with_fields`; `infer` for those of a sample.
    """
    from ...arrow.export import EXPORT_COLUMNS
    from ..source.places import follower_of, resumed
    from ..source.scan import selection_of
    from .export import CLOCKS_A_FOLDER, add_run, all_rows, fields_of, last_place

    assert job.out is not None
    check_export_place(job.out, job.spark)
    report = JobReport("export", [_shown(location)])
    options = {**(job.options or {})}
    follower, end = follower_of(location, options.get("topic")), None
    begin, few, faults = last_place(job.spark, job.out), options, dict[str, str]()
    if follower is not None:
        begin = resumed(follower, begin)
        latest, seq_max = follower.latest(begin), selection_of(options).seq_max
        end = follower.within(begin, latest, None, None if seq_max is None else max(0, seq_max - begin.seq))
        options = {name: value for name, value in options.items() if name not in ("minSeq", "maxSeq")}
        few = options | follower.options(begin, follower.within(begin, end, None, SAMPLE_ROWS))
        options |= follower.options(begin, end)
        faults = follower.faults(latest)
    job.note(f"exporting {_shown(location)}" + (f" from insertion number {begin.seq + 1:,} on" if begin.seq else ""))
    report.results = {"since": begin.seq, "run": None, "entries": 0, "failed": 0}
    if end is None or end.seq > begin.seq:
        since = 0 if end is None else begin.seq
        # A copy of another export has the same fields, unless others are asked for.
        kin = location if is_table(location) and schema is None else None
        # The sample is limited in the reader too: Spark's own limit kills a Python process that is still reading.
        fields = fields_of(job.spark, job.out if begin.seq else kin, schema, lambda: read_entries(job.spark, location, ("payload",), few))
        table = tuple(columns or EXPORT_COLUMNS)
        names = dict.fromkeys([*table, "key", "topic", "clock", "seq", "place", "fault", "source", *(["payload"] if fields else [])])
        if is_table(location):
            entries, end = all_rows(job.spark, location, tuple(names)), last_place(job.spark, location)
        else:
            entries = read_entries(job.spark, location, tuple(names), options)
        if fields is not None:
            entries, table = with_fields(entries, fields), (*table, "fields")
        added = add_run(entries, job.out, columns=table, clocks_a_folder=clocks_a_folder or CLOCKS_A_FOLDER, since=since, place=end)
        report.results |= {**added, "fields": None if fields is None else fields.simpleString()}
    if faults:
        report.results["failed"] += len(faults)
        report.results["not read on"] = [{"publisher": name, "fault": fault} for name, fault in sorted(faults.items())]
    report.tables = {"entries": "one folder a run, by topic and range of clocks", "quarantine": "rows that hold no entry, with the reason"}
    report.finish()
    if report.results["run"] is not None:
        report.write(job.spark, f"{job.out}/reports/{report.results['run']}")
    return report


def import_job(job: Job, location: str, log: str, *, topic: str | None = None, durability: str = "normal") -> JobReport:
    """Insert the entries of a place into a log; those that cannot be inserted are listed in `quarantine.jsonl`."""
    import json
    import tempfile

    from .export import write_log

    if job.out is not None:
        check_local(job.out, "the list of what was not inserted")
    with job.publishing("import", location, log) as report, tempfile.TemporaryDirectory() as folder:
        job.note(f"importing {_shown(location)} into {_shown(log)}")
        counts = Path(folder) / "counts.json"
        options = {
            "durability": durability,
            "schemes": ",".join(sorted(accepted_schemes())),
            "counts": str(counts),
            **({} if topic is None else {"topic": topic}),
        }
        if report.folder is not None:
            Path(report.folder).mkdir(parents=True)
            options["quarantine"] = f"{report.folder}/quarantine.jsonl"
            report.tables["quarantine.jsonl"] = "place, id, rule, reason and VALUE of what was not inserted; missing if there is none"
        write_log(job.read(location, ("value", "place", "fault")), log, **options)
        # A server with another disk has written its counts there.
        if counts.exists():
            report.results |= json.loads(counts.read_text("utf-8"))
    return report


def check_key(key: str) -> None:
    """Check the key of a state without Spark: a path must parse; in an expression, brackets and quotes must be closed.

    An expression that is one name must be that of a column. Spark judges everything else.

    Raises:
        LocalProtocolError: The key is wrong.
    """
    from ..tables.columns import COLUMNS
    from ..tables.state import parse_path

    if key.startswith("$"):
        parse_path(key)
        return
    bare = re.sub(r"'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`", "?", key)
    if bare.count("(") != bare.count(")") or any(quote in bare for quote in "'\"`") or not bare.strip():
        raise LocalProtocolError(f"{key!r} is no expression: something in it is opened and not closed")
    unknown = bare.strip() if bare.strip().isidentifier() else None
    if unknown is not None and unknown.lower() not in COLUMNS:
        hint = f"for a field of the payload write $.{unknown}"
        raise LocalProtocolError(f"{unknown} is none of the columns {', '.join(COLUMNS)}", hint=hint)


def state_job(job: Job, location: str, key: str, *, heads: Sequence[str] | None = None) -> JobReport:
    """Compute the state by a key; tables `state` and `quarantine`."""
    from ..tables.columns import COLUMNS
    from ..tables.state import PICK, STATE_COLUMNS, last_writers, state

    with job.publishing("state", location) as report:
        job.note(f"computing the state of {_shown(location)} by {key}")
        check_key(key)
        is_path = key.startswith("$")
        if is_path and not heads:
            found = last_writers(read_work(job.spark, PICK, location, key, options=job.options))
        else:
            # The columns that the expression may name, and those that a state needs.
            named = [] if is_path else ["id", "author", "payload", *[name for name in COLUMNS if name in key.lower()]]
            columns = tuple(dict.fromkeys([*STATE_COLUMNS, *(["parent_keys"] if heads else []), *named]))
            found = state(job.read(location, columns), key, heads=heads, staging=report.folder)
        table = report.publish("state", found.table, "name (the key as text), id, author and payload (dag-json) of the last writer")
        names = table.count()
        if names < _FEW:
            found_by = f"values of {key} in all entries: {names}" if names else f"no entry has the key {key}"
            meant = f", which is a column; the payload's is $.{key}" if key.isidentifier() else "; is it written as the payloads have it?"
            job.note(found_by + meant)
        faults = found.faults()
        # Reading again for refused rows is spared only if it is certain that there are none.
        refused = found.refused.limit(0) if faults == 0 else found.refused
        if report.folder is not None:
            # With `coalesce`, 8 tasks would do all the reading.
            refused = report.publish("quarantine", refused.repartition(8), "rows that hold no entry, with the reason")
        # The count of the first reading, if the refused rows were repaired before the second.
        failed = refused.count() or faults or 0
        report.results |= {"key": key, "names": names, "failed": failed + len(found.missing)}
        if heads:
            report.results |= {"heads": ", ".join(heads), "missing": ", ".join(found.missing) or None}
    return report


def stats_job(job: Job, location: str) -> JobReport:
    """Describe the shape of a history; a table for each attribute of `Stats`."""
    from ..tables.stats import STATS_COLUMNS, stats

    with job.publishing("stats", location) as report:
        job.note(f"looking at {_shown(location)}")
        found = stats(job.read(location, STATS_COLUMNS), staging=report.folder)
        tables = {
            "authors": found.authors.orderBy(F.col("entries").desc(), "author"),
            "clocks": found.clocks.orderBy("clock_from"),
            "branching": found.branching.orderBy("children", "parents"),
            "heads": found.heads,
            "forks": found.forks,
            "doubles": found.doubles,
            "orphans": found.orphans,
            "quarantine": found.refused,
        }
        refused = found.refused.count()
        report.results |= {**found.totals, "failed": refused}
        for name, table in tables.items():
            report.publish(name, table, ", ".join(table.columns))
        for name in ("authors", "branching"):
            report.results[f"first {name}"] = [row.asDict() for row in tables[name].limit(10).collect()]
    return report


def traces_job(job: Job, location: str, *, plots: bool = True) -> JobReport:
    """Sum up traces; tables `messages`, `runs` and `quarantine`, and the figure `latency.png`."""
    from ..tables.traces import by_message, by_run, plot_latencies, quarantined, read_traces, summed_up

    with job.publishing("traces", location) as report:
        job.note(f"reading {location}")
        traces = read_traces(job.spark, location)
        refused = quarantined(traces)
        messages = materialise(by_message(traces), report.folder, "messages")
        runs = materialise(by_run(traces, messages), report.folder, "runs")
        report.results |= {"runs": runs.count(), "messages": messages.count(), "failed": refused.count()}
        report.results["by scenario and router"] = [row.asDict() for row in summed_up(runs).limit(_ROWS_SHOWN).collect()]
        about = "a row for each message: delivered, copies, rmr, reach, last_hop, quantiles of latency"
        report.publish("messages", messages, about, files_max=8)
        report.publish("runs", runs, "the same over all messages of a run", files_max=1)
        report.publish("quarantine", refused, "lines that are no records, with the reason", files_max=8)
        if plots and report.folder is not None and Path(report.folder).is_dir():
            plot_latencies(traces, f"{report.folder}/latency.png")
            report.tables["latency.png"] = "the share of receipts over time, by scenario and router"
    return report


def sweep_job(job: Job, grid: str, *, x: str = "p99_s", y: str = "rmr", tasks: int | None = None, plots: bool = True) -> JobReport:
    """Run a grid; tables `results` and `quarantine`, and the figure `pareto.png`."""
    from ...sim.routing.sweep import load_sweep
    from ..tables.sweep import pareto, plot_pareto, sweep

    points = load_sweep(Path(grid))
    with job.publishing("sweep", grid) as report:
        job.note(f"{len(points.points):,} runs")
        results = materialise(sweep(job.spark, points, tasks=tasks), report.folder, "results")
        failed = results.where("failed is not null")
        rows = pareto(results, points.keys, x, y)
        report.results |= {"runs": len(points.points), "failed": failed.count(), "keys": ", ".join(points.keys), "x": x, "y": y}
        report.results["best"] = [{name: row[name] for name in row if name != "best"} for row in rows if row["best"]]
        about = "a row for each run: what was set, and the figures of `gossiplog sim sweep`"
        report.publish("results", results.orderBy("number"), about, files_max=1)
        failed = failed.select("number", "keys", "seed", "failed")
        report.publish("quarantine", failed, "runs that failed, with the reason", files_max=1)
        if plots and report.folder is not None and Path(report.folder).is_dir():
            plot_pareto(rows, x, y, f"{report.folder}/pareto.png")
            report.tables["pareto.png"] = f"{y} over {x}, means over seeds"
    return report


def _kept_root(location: str, options: Mapping[str, str] | None) -> tuple[Node | None, Mapping[str, str] | None]:
    """Return a log's own root, and options that read the log up to that state; None for files, and for a part of a log."""
    from ...log.requests import ReadCount
    from ...tree.node import ReadRoot
    from ..source.places import follower_of
    from ..source.run_plan import opened_store

    def read() -> Plan[tuple[Node, int]]:
        _, last = yield from ask(ReadCount(counted=False))
        return (yield from ask(ReadRoot())), last

    if not {"partitions", "topic"}.issuperset(options or {}):
        return None, options
    follower = follower_of(location, (options or {}).get("topic"))
    if follower is None:
        return None, options
    if is_published(location):
        nothing = follower.begin(1)
        end = follower.latest(nothing)
        return end.log_root, {**(options or {}), **follower.options(nothing, end)}
    with opened_store(location) as run:
        root, last = run(read())
    return root, {**(options or {}), "maxSeq": str(last)}


def _shown(source: str) -> str:
    """Return a location without a password."""
    return without_secrets(source) if is_postgres_url(source) else source
