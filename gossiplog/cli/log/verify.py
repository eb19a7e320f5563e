"""`verify`: check every entry against every rule, in as many processes as there are cores."""

from __future__ import annotations

import signal
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...archive import ArchiveFormat, ArchiveSource, FileParents, format_of_name
from ...errors import DecodeError
from ...log.whole import check_all_read
from ...tasks.pages import bounded
from ..exits import ExitCode
from ..options import FILE_OR_DASH, LOG, Location, archive_options, output_options, processors
from ..output import Column, Listing, Output, clean, counted, record_of
from ..progress import Progress
from ..session import in_trio, is_in_bucket, opened, waited_for

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor

    from ...gossip_log import GossipLog
    from ...replica.reader import Moment

_CHUNK = 256
_CHUNK_BYTES = 2**20
_INLINE_MAX = 4 * _CHUNK
"""Up to this many entries are verified in this process, which is faster than starting others."""
_AWAY = frozenset({"missing", "unreadable"})
_COLUMNS = (Column("id", style="yellow"), Column("verdict"), Column("rule"), Column("reason"))


@dataclass(frozen=True, slots=True)
class BrokenRule:
    """The finding about one entry, small enough to send between processes.

    Attributes:
        id: The entry's id; None if the bytes hold no entry.
        rule: The rule that it breaks; None if it is valid.
        reason: How it breaks the rule, in words.
        parents: The keys of its parents, if it is valid.
        place: Where in the file or bucket it was found.
    """

    id: str | None
    accepted: bool
    rule: str | None = None
    reason: str | None = None
    parents: tuple[bytes, ...] = ()
    place: str | None = None


@dataclass(frozen=True, slots=True)
class Item:
    """One entry to verify, or a fault instead of one.

    Attributes:
        value: The entry's bytes; None for a fault.
        key: The key that it is stored under; None if that is not known.
        place: Where in the file or bucket it was found.
        claimed_id: The id that the file gives it, which need not be well formed.
        kind: The kind of the fault.
    """

    value: bytes | None
    key: bytes | None = None
    place: str | None = None
    fault: str | None = None
    claimed_id: str | None = None
    kind: str = "file"


@click.command()
@click.argument("log", metavar="LOG|FILE", type=LOG, required=False)
@click.option(
    "--values", metavar="FILE", type=FILE_OR_DASH, help="Verify a file with one VALUE in hexadecimal a line instead; '-' is stdin."
)
@click.option("--topic", metavar="T", help="For files: the topic that entries must have; by default any.")
@click.option("--partial", is_flag=True, help="For files: they hold a part of a log, so parents may be missing.")
@click.option("--jobs", type=click.IntRange(1, 256), metavar="N", help="Processes; one per core by default.")
@archive_options
@output_options()
@in_trio
async def verify(
    log: str | None, values: str | None, topic: str | None, partial: bool, jobs: int | None, expanded_bytes_max: int, out: Output
) -> int:
    """Verify every entry of a log or a file.

    Checks canonical bytes, shape, topic, clock, id and signature, and that the parents are there.

    The argument is a log, a bucket (a folder or s3://…), or a file of `gossiplog export` (.jsonl, .car, either with .gz). Every object of a
    bucket is also compared with the newest checkpoints. A file must hold all parents of its entries, in any order, as for an import;
    `--partial` is for files of `export --range`. JSON lines are {"id", "accepted", "rule", "reason"}, one per entry; a table names only the
    entries that fail. The exit code is 3 if one does, and 5 if the only fault is that objects of a bucket are missing or cannot be read.

    \b
    Examples
      gossiplog verify app.db
      gossiplog verify backup.car --jobs 4
      gossiplog verify s3://bucket/app
      gossiplog verify --json --values values.hex | jq 'select(.accepted | not)'
    """
    path = values if values is not None else log
    if path is None or (values is not None and log is not None):
        raise click.UsageError("give either a LOG or FILE, or --values FILE")
    jobs = jobs or processors()

    if values is None and is_in_bucket(path):
        with VerifyPool(jobs, topic) as pool:
            count, failed = await _print(_check_file_parents(pool.verify(_chunks_of_bucket(path, topic))), None, out)
    elif values is None and _is_log(path):
        async with opened(path) as opened_log:
            moment = await opened_log.moment()
            with VerifyPool(jobs if moment.count > _INLINE_MAX else 1, opened_log.topic) as pool:
                count, failed = await _print(verify_log(opened_log, pool, moment), moment.count, out)
            if not failed:
                check_all_read(count, moment.count)
    else:
        kind = ArchiveFormat.HEX if values is not None else None
        with await waited_for(lambda: ArchiveSource.open(path, format=kind, expanded_bytes_max=expanded_bytes_max)) as source:
            is_large = source.size == 0 or source.size > 250 * _INLINE_MAX
            with VerifyPool(jobs if is_large else 1, topic) as pool:
                is_whole = source.format is not ArchiveFormat.HEX and not partial
                count, failed = await _print(_check_file_parents(pool.verify(_chunks_of_file(source)), is_whole=is_whole), None, out)
    if failed:
        out.note(f"{failed.total():,} of {count:,} failed")
        # Entries whose parents are in a missing object of a bucket fail, too.
        is_away = bool(failed.keys() & _AWAY) and failed.keys() <= _AWAY | {"parents"}
        return ExitCode.INCOMPLETE if is_away else ExitCode.INTEGRITY
    (out.note if out.is_json else out.line)(f"{counted(count, 'entry', 'entries')}, all valid")
    return ExitCode.DONE


def _is_log(path: str) -> bool:
    """Whether to open the path as a log: if it is not clearly another kind of file, so that errors are about logs."""
    if path == "-":
        return False
    if isinstance(path, Location) and path.is_url:
        return True
    has_no_format = format_of_name(path) is None
    if not Path(path).exists():
        return has_no_format
    if Path(path).is_dir():
        return True
    from ...store.sqlite.file import is_database

    return is_database(Path(path), or_empty=has_no_format)


async def verify_log(log: GossipLog, pool: VerifyPool, moment: Moment | None = None) -> AsyncGenerator[BrokenRule, None]:
    """Verify every entry of a log, or of a moment of it, in causal order, and that its parents are there."""
    async with aclosing(pool.verify(_chunks_of_log(log, moment))) as chunks:
        async for findings in chunks:
            for finding in await _with_parents(log, findings):
                yield finding


async def _print(findings: AsyncGenerator[BrokenRule, None], total: int | None, out: Output) -> tuple[int, Counter[str]]:
    """Print findings; return how many there are, and how many break each rule."""
    count, failed = 0, Counter[str]()
    with Progress("verifying", total, is_shown=not out.is_strict) as progress, Listing(out, _COLUMNS, empty="") as listing:
        async with aclosing(findings):
            async for finding in findings:
                count += 1
                failed.update([] if finding.accepted else [finding.rule or ""])
                _add(listing, finding, out)
                progress.step()
    return count, failed


def _add(listing: Listing, finding: BrokenRule, out: Output) -> None:
    if out.is_json:
        record = record_of(finding, "id", "accepted", "rule", "reason")
        listing.add(record if finding.accepted or finding.place is None else {**record, "place": finding.place}, ())
    elif not finding.accepted:
        reason = clean(finding.reason or "")
        place = f" ({finding.place})" if finding.place else ""
        listing.add({}, (finding.id or "–", "FAILED", finding.rule or "–", reason + place))


async def _chunks_of_log(log: GossipLog, moment: Moment | None) -> AsyncGenerator[list[Item], None]:
    entries = log.iterate(moment=moment)
    while page := await entries.next_page():
        for chunk in _cut(Item(entry.value, entry.key) for entry in page):
            yield chunk


async def _chunks_of_bucket(place: str, topic: str | None) -> AsyncGenerator[list[Item], None]:
    from ...bucket import open_storage
    from ...bucket.audit import audit
    from ...bucket.reading import PublishedTree, kind_of
    from ...bucket.scan import BucketPlace, Extent, extent_leaves, extents, look

    storage = open_storage(place)
    end = await look(storage, topic)
    for name, fault in end.faults.items():
        kind, _, reason = fault.partition(": ")
        yield [Item(None, None, f"did:key:{name}", reason, kind=kind)]
    needed = extents(BucketPlace(), end)
    read = {extent.tree for extent in needed}
    # Of a tree with the same entries as another one, only the proofs are checked.
    same = [Extent(name, tree.size, tree.root, 0, tree.read) for name, tree in end.trees.items() if name not in read]
    for extent in (*needed, *same):
        async with aclosing(extent_leaves(storage, extent, proves=True)) as found:
            async for leaves in found:
                places = [f"{extent.tree} seq {number + 1}" for number in leaves.numbers]
                if leaves.fault is not None:
                    yield [Item(None, None, where, str(leaves.fault), kind=kind_of(leaves.fault)) for where in places]
                elif extent.tree in read:
                    yield list(map(Item, leaves.values, leaves.keys, places))
    for name, tree in end.trees.items():
        async with aclosing(audit(PublishedTree(storage, name, tree.size, tree.root))) as faults:
            async for error in faults:
                yield [Item(None, None, name, str(error), kind=kind_of(error))]


async def _chunks_of_file(source: ArchiveSource) -> AsyncGenerator[list[Item], None]:
    items = (Item(record.value, _key_of(record.id), record.place, record.fault, record.id) for record in source.records())
    chunks = _cut(items)
    while chunk := await waited_for(lambda: next(chunks, None)):
        yield chunk


def _cut(items: Iterable[Item]) -> Iterator[list[Item]]:
    return bounded(items, lambda item: len(item.value or b""), count_max=_CHUNK, bytes_max=_CHUNK_BYTES)


def _key_of(id: str | None) -> bytes | None:
    """Return the key that a file claims for an entry; None if it claims none, or no well-formed id."""
    from ...entry import decode_id

    try:
        return None if id is None else decode_id(id)
    except DecodeError:
        return None


async def _check_file_parents(chunks: AsyncGenerator[list[BrokenRule], None], *, is_whole: bool = True) -> AsyncGenerator[BrokenRule, None]:
    """Of a whole file, reject entries whose parents are not among its good ones. Entries that come before their parents are judged last."""
    from ...entry import decode_id

    with FileParents() as parents:
        async with aclosing(chunks):
            async for findings in chunks:
                for finding in findings:
                    if is_whole and finding.accepted and finding.id is not None:
                        parents.add([decode_id(finding.id)])
                        if parents.missing(finding.parents):
                            parents.keep(finding.id, finding.place, finding.parents)
                            continue
                    yield finding
        for id, place, missing, count in parents.kept():
            reason = f"{missing} of {count} parents are not in the file"
            yield BrokenRule(id, False, "parents", reason, place=place) if missing else BrokenRule(id, True)


async def _with_parents(log: GossipLog, findings: Sequence[BrokenRule]) -> list[BrokenRule]:
    """Reject entries whose parents are not in the log, with one look-up for all."""
    from ...log.requests import ReadLeaves
    from ...plan import ask

    wanted = list({parent for finding in findings for parent in finding.parents})
    present = await log.run(ask(ReadLeaves(wanted))) if wanted else {}
    out = []
    for finding in findings:
        if missing := sum(parent not in present for parent in finding.parents):
            finding = BrokenRule(finding.id, False, "parents", f"{missing} of {len(finding.parents)} parents are missing")
        out.append(finding)
    return out


class VerifyPool:
    """Processes that verify chunks in order, a bounded number at a time; a single job runs in a thread of this process."""

    def __init__(self, jobs: int, topic: str | None) -> None:
        self._jobs = jobs
        self._topic = topic
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> VerifyPool:
        if self._jobs > 1:
            import multiprocessing
            from concurrent.futures import ProcessPoolExecutor

            from ...tasks.parent import end_with_parent

            # A fork would inherit the locks that threads of this process hold.
            self._pool = ProcessPoolExecutor(self._jobs, multiprocessing.get_context("spawn"), initializer=end_with_parent)
        return self

    def __exit__(self, *rest: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)

    async def verify(self, chunks: AsyncGenerator[list[Item], None]) -> AsyncGenerator[list[BrokenRule], None]:
        """Yield the findings of each chunk, in order."""
        waiting: deque[Callable[[], list[BrokenRule]]] = deque()
        async with aclosing(chunks):
            async for chunk in chunks:
                waiting.append(self._submit(chunk))
                if self._pool is None or len(waiting) >= 2 * self._jobs:
                    yield await waited_for(waiting.popleft())
        while waiting:
            yield await waited_for(waiting.popleft())

    def _submit(self, chunk: list[Item]) -> Callable[[], list[BrokenRule]]:
        """Begin to verify a chunk, for which the pool may start a process; return a function that waits for the findings.

        A terminal's Ctrl-C goes to all its processes. One that starts while SIGINT is blocked ignores it, and this one handles it.
        """
        if self._pool is None:
            return partial(verify_items, chunk, self._topic)
        if not hasattr(signal, "pthread_sigmask"):
            return self._pool.submit(verify_items, chunk, self._topic).result
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            return self._pool.submit(verify_items, chunk, self._topic).result
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def verify_items(items: Iterable[Item], topic: str | None) -> list[BrokenRule]:
    """Verify items one by one, in any process."""
    from ...archive.car import add_foreign
    from ...entry import encode_id
    from ...entry.validation import judge

    found: list[BrokenRule] = []
    for item in items:
        id = item.claimed_id if item.key is None else encode_id(item.key)
        if item.value is None:
            found.append(BrokenRule(id, False, item.kind, item.fault, place=item.place))
            continue
        verdict = judge(item.value, item.key, topic=topic)
        entry = verdict.entry
        if entry is not None and verdict.accepted:
            found.append(BrokenRule(entry.id, True, parents=entry.parent_keys, place=item.place))
            continue
        reason = verdict.reason
        if entry is None:
            reason = add_foreign(reason or "", item.value)
        else:
            id = id or entry.id
        found.append(BrokenRule(id, False, verdict.rule, reason, place=item.place))
    return found
