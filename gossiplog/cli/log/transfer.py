"""`export`, `import` and `copy`: a log to a file, back from a file, and from one place to another."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...archive import BLOCK_BYTES_MAX, ArchiveFormat, ArchiveSource, Record, car_block, car_header, entry_to_line, format_of_name
from ...errors import DamagedLog, DecodeError, NotFound, StoreError
from ...log.whole import check_all_read, check_entry_topic, key_fault
from ...tasks.pages import bounded
from ..exits import ExitCode, Failure, misused, stopped
from ..options import (
    FILE_OR_DASH,
    LOG,
    OUTPUT_OR_DASH,
    Location,
    archive_options,
    bucket_topic_option,
    durability_option,
    log_argument,
    output_options,
)
from ..output import Output, clean, counted, opened_output, record_of
from ..progress import Progress
from ..session import damage_hint, in_trio, is_in_bucket, opened, resolve, run, waited_for

if TYPE_CHECKING:
    from ...gossip_log import GossipLog
    from ...replica.reader import Moment

_BATCH = 1000
_BATCH_BYTES = 8 * 1024 * 1024
_FAULTS_SHOWN = 20
_ORPHANS_MAX = 100_000
_ORPHAN_BYTES_MAX = 64 * 1024 * 1024


@click.command()
@log_argument
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=OUTPUT_OR_DASH,
    required=True,
    help="FILE.jsonl or FILE.car, either with .gz; FILE.parquet; '-' for JSON lines on stdout.",
)
@click.option("--columns", metavar="A,B", help="The columns of a Parquet file; by default all that can be queried.")
@click.option("--range", "range_", metavar="A..B", help="Entries after A up to and including B, in causal order; either may be left out.")
@bucket_topic_option
@output_options()
def export(log: str, output: str, columns: str | None, range_: str | None, topic: str | None, out: Output) -> int:
    """Write entries to a file.

    The file holds the log as it was when the command began, and can be checked and imported anywhere. JSON lines are those of
    `gossiplog log --json`. A CAR file holds one block per entry, named by the hash of its bytes, with the heads as roots; any IPLD tool
    reads it. Parquet is for DuckDB, Polars and the like, and needs the extra: pip install 'gossiplog[arrow]'. A bucket (a folder or
    s3://…) can be exported as Parquet: its publishers' entries, with their proofs checked, in the publishers' order. The file appears
    under its name only when it is complete.

    \b
    Examples
      gossiplog export app.db -o backup.car
      gossiplog export app.db -o week.jsonl.gz --range 0g5k..
      gossiplog export app.db -o - | jq .message.payload
      gossiplog export app.db -o app.parquet --columns id,author,payload
      gossiplog export s3://bucket/app -o app.parquet
    """
    is_parquet = output.lower().endswith(".parquet")
    if columns is not None and not is_parquet:
        raise click.UsageError("--columns is for Parquet")
    kind = ArchiveFormat.JSONL if output == "-" else format_of_name(output)
    if kind not in (ArchiveFormat.JSONL, ArchiveFormat.CAR) and not is_parquet:
        raise click.BadParameter(f"{output}, expected a name that ends in .jsonl, .car (with or without .gz) or .parquet", param_hint="-o")

    if is_in_bucket(log):
        if not is_parquet or range_ is not None:
            raise Failure("a bucket can be exported only as Parquet, and only whole", hint="`gossiplog clone` makes a log of it")
        return _export_bucket(log, output, columns, topic, out)
    if topic is not None:
        raise click.UsageError("--topic is for buckets: a log has one topic")
    run(partial(_export_log, log, output, kind, columns, range_, out))
    return ExitCode.DONE


async def _export_log(log: str, output: str, kind: ArchiveFormat | None, columns: str | None, range_: str | None, out: Output) -> None:
    """Write a log's entries in this format; None is Parquet."""
    async with opened(log) as opened_log:
        low, high = await _bounds(opened_log, range_)
        moment = await opened_log.moment()
        async for entry in opened_log.iterate(limit=1):
            check_entry_topic(f"entry {entry.id}", entry.value, opened_log.topic)
        total = moment.count if range_ is None else None
        with Progress("exporting", total, is_shown=not out.is_strict and output != "-") as progress, opened_output(output) as file:
            if kind is None:
                await _write_parquet(opened_log, moment, low, high, columns, file, progress)
            else:
                is_car = kind is ArchiveFormat.CAR
                if is_car:
                    file.write(car_header(await _roots(opened_log, moment, low, high)))
                async for entry in opened_log.iterate(after=low, before=high, moment=moment):
                    if fault := key_fault(entry.key, entry.value):
                        raise DamagedLog(f"entry {entry.id} is damaged: {fault}")
                    file.write(car_block(entry.value) if is_car else entry_to_line(entry) + b"\n")
                    progress.step()
            check_all_read(progress.done, moment.count if range_ is None else progress.done)
    if output != "-":
        _tell_written(output, progress.done, out)


def _export_bucket(place: str, output: str, columns: str | None, topic: str | None, out: Output) -> int:
    """Write the entries of a bucket's publishers as a Parquet file; missing or damaged parts are named, and the exit code is then 3."""
    from ...arrow import ParquetFile, arrow_schema
    from ...bucket.table import bucket_to_arrow

    names = _names(columns)
    schema, count, failed = arrow_schema(names), 0, 0
    reader: Any = bucket_to_arrow(place, [*dict.fromkeys([*names, "place", "fault"])], topic=topic, proves=True)
    with (
        Progress("exporting", None, is_shown=not out.is_strict) as progress,
        opened_output(output) as file,
        ParquetFile(file, schema) as parquet,
    ):
        for batch in reader:
            for row in batch.filter(batch.column("fault").is_valid()).to_pylist():
                failed += 1
                out.note(clean(f"{row['place']}: {row['fault']}"))
            good = batch.filter(batch.column("fault").is_null()).select(names)
            parquet.add(good)
            count += good.num_rows
            progress.step(good.num_rows)
    _tell_written(output, count, out)
    return ExitCode.INTEGRITY if failed else ExitCode.DONE


def _tell_written(output: str, count: int, out: Output) -> None:
    size = Path(output).stat().st_size
    out.tell({"file": output, "count": count, "bytes": size}, f"{counted(count, 'entry', 'entries')}, {size:,} bytes, in {output}")


async def _bounds(log: GossipLog, text: str | None) -> tuple[str | None, str | None]:
    """Read `A..B`; return A as a whole id, and the least id that is greater than B."""
    if text is None:
        return None, None
    low, dots, high = text.partition("..")
    if not dots:
        raise click.BadParameter(f"{text!r} is not of the form A..B", param_hint="--range")
    return (await resolve(log, low) if low else None), (_id_after(await resolve(log, high)) if high else None)


async def _write_parquet(
    log: GossipLog, moment: Moment, low: str | None, high: str | None, columns: str | None, file: Any, progress: Progress
) -> None:
    import trio

    from ...arrow import ParquetFile, arrow_schema

    names = _names(columns)
    with ParquetFile(file, arrow_schema(names)) as parquet:
        async for batch in log.to_arrow([*dict.fromkeys([*names, "id", "fault"])], after=low, before=high, moment=moment):
            if bad := batch.filter(batch.column("fault").is_valid()).to_pylist():
                raise DamagedLog(f"entry {bad[0]['id']} is damaged: {bad[0]['fault']}")
            await trio.to_thread.run_sync(parquet.add, batch.select(names))
            progress.step(batch.num_rows)


def _names(columns: str | None) -> tuple[str, ...]:
    from ...arrow import EXPORT_COLUMNS, arrow_schema

    if columns is None:
        return EXPORT_COLUMNS
    with misused("--columns"):
        return tuple(arrow_schema(name.strip() for name in columns.split(",")).names)


def _id_after(id: str) -> str | None:
    """Return the least id that is greater than this one; None for the greatest."""
    from ...entry import decode_id, encode_id

    key = decode_id(id)
    return None if not key.strip(b"\xff") else encode_id((int.from_bytes(key) + 1).to_bytes(len(key)))


async def _roots(log: GossipLog, moment: Moment, low: str | None, high: str | None) -> list[bytes]:
    """Return the sha2-256 digests of the entries that are no parents of others in the range; for the whole log these are its heads."""
    import hashlib

    from ...entry import encode_id

    if low is None and high is None:
        try:
            return [hashlib.sha256((await log.get(encode_id(key))).value).digest() for key in moment.heads]
        except NotFound as error:
            raise DamagedLog(f"the head {error.id} is not in the log") from None
    sinks: dict[bytes, bytes] = {}
    async for entry in log.iterate(after=low, before=high, moment=moment):
        for parent in entry.parent_keys:
            sinks.pop(parent, None)
        sinks[entry.key] = hashlib.sha256(entry.value).digest()
    return list(sinks.values())


@click.command("import")
@log_argument
@click.argument("file", metavar="FILE", type=FILE_OR_DASH)
@durability_option
@archive_options
@output_options()
@in_trio
async def import_(log: str, file: str, durability: str, expanded_bytes_max: int, out: Output) -> int:
    """Add the entries of a file.

    The file may be .jsonl, .car or .hex, plain or with .gz; '-' is stdin. Every entry is verified as if it came from a stranger. Good
    entries are kept; those that are damaged, forged or without their parents are named by line or offset, and the exit code is 3. Entries
    may come in any order; those already in the log count as known. An interrupted run can be repeated.

    \b
    Examples
      gossiplog import app.db backup.car
      ssh host gossiplog export app.db -o - | gossiplog import app.db -
    """

    tally = _Tally(out)
    with (
        await waited_for(lambda: ArchiveSource.open(file, expanded_bytes_max=expanded_bytes_max)) as source,
        Progress("importing", source.size or None, is_shown=not out.is_strict) as progress,
    ):
        async with opened(log, read_only=False, durability=durability) as opened_log:
            batches = _batches(source.records())
            while batch := await waited_for(lambda: next(batches, None)):
                await _insert(opened_log, batch, tally)
                progress.at(source.position)
            await _insert_orphans(opened_log, tally)
    record = {"added": tally.added, "known": tally.known, "failed": tally.failed}
    out.tell(record, f"{tally.added:,} added, {tally.known:,} known already, {tally.failed:,} failed")
    return ExitCode.INTEGRITY if tally.failed else ExitCode.DONE


def _batches(records: Iterator[Record]) -> Iterator[list[Record]]:
    return bounded(records, lambda record: len(record.value or b""), count_max=_BATCH, bytes_max=_BATCH_BYTES)


class _Tally:
    """Counts the outcomes, and reports the failures: all of them under `--json`, otherwise the first few."""

    def __init__(self, out: Output) -> None:
        self._out = out
        self.added = 0
        self.known = 0
        self.failed = 0
        self.orphans: list[Record] = []
        self._orphan_bytes = 0

    def keep_orphan(self, record: Record) -> bool:
        """Keep a record whose parents may come later in the file; return False if too many wait already."""
        size = len(record.value or b"")
        if len(self.orphans) >= _ORPHANS_MAX or self._orphan_bytes + size > _ORPHAN_BYTES_MAX:
            return False
        self.orphans.append(record)
        self._orphan_bytes += size
        return True

    def fail(self, place: str, id: str | None, rule: str, reason: str) -> None:
        self.failed += 1
        if self._out.is_json:
            self._out.record({"place": place, "id": id, "accepted": False, "rule": rule, "reason": reason})
        elif self.failed <= _FAULTS_SHOWN:
            named = f" (entry {id})" if id else ""
            self._out.note(clean(f"{place}: {reason}{named}"))
        elif self.failed == _FAULTS_SHOWN + 1:
            self._out.note("and more; --json lists all of them")


async def _insert_orphans(log: GossipLog, tally: _Tally) -> None:
    """After the whole file, insert the entries that came before their parents, in the order of their ids, which is causal."""
    from ...entry import Entry

    orphans = sorted(tally.orphans, key=lambda record: Entry.decode(record.value or b"", BLOCK_BYTES_MAX).key)
    for batch in _batches(iter(orphans)):
        await _insert(log, batch, tally, is_last=True)


async def _insert(log: GossipLog, batch: list[Record], tally: _Tally, *, is_last: bool = False) -> None:
    good = [record for record in batch if record.value is not None]
    try:
        verdicts = await log.insert_many([record.value for record in good if record.value is not None]) if good else []
    except StoreError as error:
        raise stopped(error, f"at {good[0].place}", f"{tally.added:,} were added and are kept; repeat the import to go on") from error
    results = iter(verdicts)
    for record in batch:
        if record.value is None:
            tally.fail(record.place, record.id, "file", record.fault or "damaged")
            continue
        verdict = next(results)
        found = verdict.entry.id if verdict.entry is not None else None
        if verdict.rule == "parents" and not is_last and tally.keep_orphan(record):
            continue
        if not verdict.accepted:
            tally.fail(record.place, record.id or found, verdict.rule or "rejected", verdict.reason or "rejected")
        elif record.id is not None and found is not None and record.id != found:
            # The entry is good and was kept, but the line claims another id, so the line was changed.
            tally.fail(record.place, record.id, "key", f"the line names {record.id}, but contains entry {found}")
        elif verdict.is_new:
            tally.added += 1
        else:
            tally.known += 1


_SHOWN = 20


@click.command()
@log_argument
@click.argument("target", metavar="TARGET", type=LOG)
@durability_option
@output_options()
@in_trio
async def copy(log: Location, target: Location, durability: str, out: Output) -> int:
    """Copy a log, byte for byte.

    Copies between files and databases in any direction; TARGET is created if necessary. Entries keep the order in which LOG got them; the
    quarantine and followers' cursors are copied too. Every entry is verified, and at the end the roots are compared. An interrupted run can
    be repeated: it skips entries that are already there. LOG may grow meanwhile.

    \b
    Examples
      gossiplog copy app.db 'postgresql://db.example.com/app?log=app'
      gossiplog copy 'postgresql://db.example.com/app?log=app' backup.db
    """
    if log.is_same(target):
        raise click.UsageError("LOG and TARGET are the same")

    async with opened(log) as source, opened(target, read_only=False, create=True, topic=source.topic, durability=durability) as copied:
        with Progress("copying", await source.count(), is_shown=not out.is_strict) as progress:
            try:
                report = await copied.copy_from(source, on_progress=progress.at)
            except (DamagedLog, DecodeError) as error:
                message = f"after {progress.done:,} entries: {error}"
                raise Failure(message, hint=damage_hint(log), code=ExitCode.INTEGRITY, kind="damaged-log") from error
            except StoreError as error:
                where = f"after {counted(progress.done, 'entry', 'entries')}"
                raise stopped(error, where, "what was copied is kept; repeat the command to go on") from error
    for id, reason in report.refused[:_SHOWN] if not out.is_json else ():
        out.note(clean(f"{id} was left out: {reason}"))
    record = {"added": report.entries, **record_of(report, "known", "failed", "quarantined", "cursors"), "equal": report.is_equal}
    record["refused"] = [{"id": id, "reason": reason} for id, reason in report.refused]
    cursors = "not copied: TARGET has its entries in another order" if report.cursors is None else f"{report.cursors:,}"
    shown = [
        ("entries", f"{counted(report.entries, 'entry', 'entries')} added, {report.known:,} known already, {report.failed:,} failed"),
        ("quarantine", f"{report.quarantined:,}"),
        ("cursors", cursors),
        ("roots", "equal" if report.is_equal else "differ: one of the two has entries that the other does not"),
    ]
    out.fields(record, shown)
    return ExitCode.INTEGRITY if report.failed else ExitCode.DONE
