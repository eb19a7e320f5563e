"""`init`, `stat` and `migrate`: a log as a whole."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from ...access import Policy
from ...entry import check_topic
from ...errors import GossipLogError, LogNotFound
from ..exits import ExitCode, misused, of_faults, worst
from ..options import LOG_OR_SHELF, Location, bucket_topic_option, log_argument, output_options
from ..output import Column, Listing, Output, clean, counted
from ..rows import RowOutput
from ..session import in_trio, is_in_bucket, opened


@click.command()
@log_argument
@click.option(
    "--topic",
    required=True,
    metavar="T",
    help="The log's name, which never changes: at most 128 letters, digits, '.', '-' and ':'; or NAME#PART.",
)
@click.option("--founder", "founders", metavar="DID", multiple=True, help="A founder of a log that keeps its own members; repeatable.")
@click.option("--k", type=click.IntRange(1, 16), metavar="N", help="How many founders' votes remove a member.  [default: more than half]")
@output_options()
@in_trio
async def init(log: Location, topic: str, founders: tuple[str, ...], k: int | None, out: Output) -> None:
    """Create an empty log.

    A log has one topic, which every signature covers: entries cannot be passed off as another topic's. If the log exists with the same
    topic, nothing changes.

    With --founder the log's own entries decide who may write (`gossiplog access --help`). The command then prints the whole topic: T, a
    dot, and a hash of the founders. Others join with `gossiplog init LOG --topic` and that topic, and sync.

    \b
    Examples
      gossiplog init app.db --topic app.example.com
      ANNA=$(gossiplog key show -q laptop)
      gossiplog init team.db --topic team.example.com --founder "$ANNA"
      gossiplog init notes.db --topic example.com#notes
      gossiplog init 'postgresql://db/app?log=notes' --topic example.com#notes
    """
    if k is not None and not founders:
        raise click.UsageError("--k is for a log with founders")
    with misused("no log can be made"):
        policy = Policy(founders, k or 0) if founders else None
        check_topic(topic)
    existed = await _exists(log)
    async with opened(log, read_only=False, create=True, topic=topic, policy=policy) as opened_log:
        topic = opened_log.topic
    out.tell({"log": log, "topic": topic, "created": not existed}, f"{'already there' if existed else 'created'}: {log}, topic {topic}")


async def _exists(log: Location) -> bool:
    if not log.is_url:
        return Path(log).exists() and Path(log).stat().st_size > 0
    try:
        async with opened(log):
            return True
    except LogNotFound:
        return False


@click.command()
@click.argument("log", metavar="LOG", type=LOG_OR_SHELF)
@bucket_topic_option
@output_options()
@in_trio
async def stat(log: Location, topic: str | None, out: Output) -> int:
    """Show a log's topic, size, heads and root.

    Two replicas have the same entries exactly if their roots are equal. For a bucket, it shows the publishers' checkpoints without reading
    entries; the exit code is 3 if one of them is wrong. For a folder or a database of logs, as for `gossiplog serve --dir`, each log is a
    row, and the last line has the sums.

    \b
    Examples
      gossiplog stat app.db
      gossiplog stat app.db --json | jq -r .root.hash
      gossiplog stat /mnt/share/app
      gossiplog stat documents
    """
    if is_in_bucket(log):
        return await _stat_bucket(log, topic, out)
    if topic is not None:
        raise click.UsageError("--topic is for buckets: a log has one topic")
    return await (_stat_shelf(log, out) if log.is_shelf else _stat(log, None, out))


async def _stat(log: Location, topic: str | None, out: Output) -> int:
    async with opened(log, topic=topic) as opened_log:
        count = await opened_log.count()
        clock = await opened_log.clock()
        heads = await opened_log.heads()
        root = await opened_log.root()
        size = await opened_log.size_bytes()
        topic = opened_log.topic
        aside = Counter([record.application async for record in opened_log.set_aside()])
    record = {
        "topic": topic,
        "count": count,
        "clock": clock,
        "heads": heads,
        "root": {"level": root.level, "hash": root.hash.hex()},
        "bytes": size,
        "set_aside": dict(sorted(aside.items())),
    }
    more = f" and {len(heads) - 8} more" if len(heads) > 8 else ""
    each = f" ({size / count:,.0f} an entry)" if count else ""
    shown = [
        ("topic", clean(topic)),
        ("entries", f"{count:,}"),
        ("next clock", f"{clock:,}"),
        ("heads", "none" if not heads else f"{len(heads)}: {' '.join(heads[:8])}{more}"),
        ("root", f"level {root.level}, hash {root.hash.hex()}"),
        ("bytes", f"{size:,}{each}"),
    ]
    if aside:
        shown.append(("set aside", ", ".join(f"{number:,} by {clean(name)}" for name, number in sorted(aside.items()))))
    out.fields(record, shown)
    return ExitCode.DONE


async def _stat_shelf(location: Location, out: Output) -> int:
    from ...store.places import open_place

    place, sums, codes = open_place(location.full), Counter[str](), list[int]()
    columns = [Column("topic"), Column("entries", is_right=True), Column("heads", is_right=True), Column("bytes", is_right=True)]

    def cells(record: Mapping[str, Any]) -> list[str]:
        if "error" in record:
            return ["", "", "", clean(record["error"]["message"])]
        sums.update(count=record["count"], bytes=record["bytes"])
        return [f"{record['count']:,}", f"{len(record['heads']):,}", f"{record['bytes']:,}", record["root"]["hash"]]

    with Listing(out, [*columns, Column("root")], empty="no log is there") as rows:
        for topic in await place.topics():
            row = RowOutput(out, rows, topic, cells)
            try:
                codes.append(await _stat(Location.parse(os.fspath(place.log_at(topic))), topic, row))
            except (GossipLogError, OSError, BaseExceptionGroup) as error:
                codes.append(row.fail(error))
    out.fields(
        {"logs": len(codes), "count": sums["count"], "bytes": sums["bytes"]},
        [("in all", f"{counted(len(codes), 'log', 'logs')}, {counted(sums['count'], 'entry', 'entries')}, {sums['bytes']:,} bytes")],
    )
    return worst(codes)


async def _stat_bucket(place: str, topic: str | None, out: Output) -> int:
    from ...bucket import look, open_storage

    found = await look(open_storage(place), topic)
    root, trees = found.log_root, sorted(found.trees.items())
    sizes = [tree.size for _, tree in trees]
    count = sizes[0] if root is not None or len(sizes) == 1 else None
    publishers = [(f"did:key:{name.partition('/')[0]}", tree.size) for name, tree in trees]
    record = {
        "topic": found.topic,
        "count": count,
        "root": None if root is None else {"level": root.level, "hash": root.hash.hex()},
        "publishers": [{"publisher": did, "count": size} for did, size in publishers],
        "faults": dict(found.faults),
    }
    shown = [
        ("topic", clean(found.topic or "")),
        ("entries", f"{count:,}" if count is not None else f"{max(sizes):,} to {sum(sizes):,}: publishers differ"),
        ("root", "not known before a clone" if root is None else f"level {root.level}, hash {root.hash.hex()}"),
        ("published by", counted(len(publishers), "publisher", "publishers")),
        *[("", f"{did}: {counted(size, 'entry', 'entries')}") for did, size in publishers],
    ]
    out.fields(record, shown)
    for name, fault in found.faults.items():
        out.note(clean(f"did:key:{name}: {fault}"))
    return of_faults(fault.partition(":")[0] for fault in found.faults.values())


@click.command()
@log_argument
@click.option("--dry-run", is_flag=True, help="Only show what would be applied.")
@output_options()
@in_trio
async def migrate(log: Location, dry_run: bool, out: Output) -> None:
    """Migrate a log to this version's schema.

    Commands that write migrate a log automatically. This one can show the steps first, and is for logs that are only read. The migration
    is one transaction. It cannot be undone, so make a copy first.

    \b
    Examples
      gossiplog migrate app.db --dry-run
      gossiplog migrate app.db
    """
    from ...store import pending_migrations

    version, pending = await pending_migrations(log.full)

    if not (pending and dry_run):
        # This migrates the log, or reports everything that is wrong with the file except an old schema.
        async with opened(log, read_only=not pending):
            pass
    record = {"log": log, "schema": version, "pending": pending, "applied": bool(pending) and not dry_run}
    if out.is_json:
        out.record(record)
    elif not pending:
        out.line(f"{log} has schema {version}, which is the newest")
    else:
        for name in pending:
            out.line(f"{'pending' if dry_run else 'applied'}  {name}")
