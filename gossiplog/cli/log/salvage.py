"""`salvage`: save what is left of a damaged log."""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...errors import StoreError, TopicMismatch
from ..exits import ExitCode, Failure
from ..options import LOG, Location, durability_option, log_argument, output_options
from ..output import Output, clean, counted, record_of
from ..progress import Progress
from ..session import in_trio, opened

if TYPE_CHECKING:
    from ...replica.salvaging import SalvageReport
    from ...store import Store

_SHOWN = 20
_TOPIC_ENTRIES = 100


@click.command()
@log_argument
@click.argument("target", metavar="TARGET", type=LOG)
@click.option("--topic", metavar="T", help="The log's topic, if the file has lost it and its entries have several.")
@durability_option
@output_options()
@in_trio
async def salvage(log: Location, target: Location, topic: str | None, durability: str, out: Output) -> int:
    """Save what can be read of a damaged log.

    Copies every entry that is readable anywhere in the file, and valid by its hash and its signature, into TARGET, which is created if
    necessary; LOG is only read. It reads undamaged rows, then the file's pages one by one, so it works even if no program can open LOG. A
    valid entry that has lost an ancestor waits in TARGET's quarantine: `gossiplog sync` with a replica brings the ancestor, and
    `gossiplog quarantine retry` lets the entry in. Entries known to be missing are named, and TARGET is checked as by fsck. The exit code
    is 3 if anything is missing.

    The application's own tables are not copied: `gossiplog replay` rebuilds them.

    \b
    Examples
      gossiplog salvage app.db saved.db
      gossiplog sync saved.db wss://hub.example.com/app.example.com
    """
    if log.is_same(target):
        raise click.UsageError("LOG and TARGET are the same")
    if not log.is_url and not Path(log).is_file() and not _has_wal_alone(Path(log)):
        raise Failure(f"no file {log}", kind="log-not-found")
    report = await salvage_log(log, target, topic, out, durability=durability)
    shown_missing = [(f"  {id}", "") for id in report.missing[:_SHOWN]] if not out.is_json else []
    check = report.target
    assert check is not None
    names = ("added", "waiting", "invalid", "unsupported", "unsupported_reason", "gaps", "missing")
    shown = [
        ("entries", f"{counted(report.added, 'entry', 'entries')} added, {check.entries:,} in all"),
        ("waiting", f"{report.waiting:,} in the quarantine, for missing ancestors"),
        ("damaged", f"{counted(report.invalid, 'row', 'rows')} without a valid entry, {counted(len(report.gaps), 'gap', 'gaps')}"),
        *([("left out", f"{counted(report.unsupported, 'entry', 'entries')}: {report.unsupported_reason}")] if report.unsupported else []),
        *[("  gap", clean(gap)) for gap in report.gaps[:_SHOWN]],
        ("missing", f"{counted(len(report.missing), 'entry', 'entries')}, as far as is known"),
        *shown_missing,
        ("root", "equal to the damaged log's" if report.is_equal else "not the damaged log's"),
        ("checked", "ok" if check.is_clean else counted(check.problems, "problem", "problems")),
    ]
    out.fields({**record_of(report, *names), "entries": check.entries, "equal": report.is_equal, "clean": check.is_clean}, shown)
    return ExitCode.DONE if report.is_complete else ExitCode.INTEGRITY


async def salvage_log(log: Location, target: Location, topic: str | None, out: Output, *, durability: str = "full") -> SalvageReport:
    """Salvage one log into another.

    Raises:
        Failure: The topic is not known, or not one.
        StoreError: The target failed.
    """
    async with _damaged(log) as source:
        known = _choose_topic(log, topic, None if source is None else source.topic, await _find_topics(source, log))
        async with opened(target, read_only=False, create=True, topic=known, durability=durability) as saved:
            with Progress("salvaging", is_shown=not out.is_strict) as progress:
                return await saved.salvage_from(source, _scan(log), on_progress=progress.at)


@asynccontextmanager
async def _damaged(log: Location) -> AsyncIterator[Store | None]:
    """Open a damaged log's store; None if it cannot be opened."""
    from ...store import Durability, open_store

    async with AsyncExitStack() as stack:
        store = None
        try:
            opening = open_store(log.full, topic=None, create=False, read_only=True, durability=Durability.FULL)
            store = await stack.enter_async_context(opening)
        except StoreError:
            # The pages of a file can be read all the same; those of a server cannot.
            if log.is_url:
                raise
        yield store


def _has_wal_alone(path: Path) -> bool:
    from ...store.sqlite.beside import look

    return not path.exists() and look(path).has_wal


def _scan(log: Location) -> Iterator[bytes]:
    from ...store.sqlite.pages import scan_values

    return iter(()) if log.is_url else scan_values(Path(log))


async def _find_topics(source: Store | None, log: Location) -> Counter[str]:
    """Count the topics of some entries. They are signed, while the log's own record of its topic may be damaged."""
    from ...entry import validate
    from ...replica.fsck import DAMAGE, as_bytes, read_around

    topics: Counter[str] = Counter()

    def ask(values: Iterable[bytes]) -> None:
        verdicts = (validate(value) for value in values)
        valid = (each.entry for each in verdicts if each.entry is not None and (each.accepted or each.rule == "scheme"))
        topics.update(entry.envelope.topic for entry in itertools.islice(valid, _TOPIC_ENTRIES))

    if source is not None:
        with contextlib.suppress(*DAMAGE):
            async with source.snapshot() as reader, contextlib.aclosing(read_around(reader)) as pages:
                async for rows, _ in pages:
                    ask([as_bytes(value) for _, value in rows[: 2 * _TOPIC_ENTRIES]])
                    if topics:
                        break
    if not topics:
        ask(_scan(log))
    return topics


def _choose_topic(log: Location, wanted: str | None, stored: str | None, topics: Counter[str]) -> str:
    """Choose the target's topic.

    Args:
        stored: The topic by the log's own record.
        topics: The topics of its entries.

    Raises:
        TopicMismatch: The log does not have the topic that is wanted.
        Failure: The topic is not known, or not one.
    """
    names = ", ".join(clean(name) for name in sorted(topics))
    if wanted is not None:
        if wanted not in (topics or (stored, None)) and (topics or stored is not None):
            raise TopicMismatch(f"{log} has topic {names or stored}, not {wanted}")
        return wanted
    if stored is not None and (stored in topics or not topics):
        return stored
    if not topics:
        raise Failure(f"there is no entry in {log}", code=ExitCode.INTEGRITY, kind="damaged-log")
    if len(topics) > 1:
        raise Failure(f"{log} has entries of several topics: {names}", hint="choose one with --topic", code=ExitCode.USAGE)
    return next(iter(topics))
