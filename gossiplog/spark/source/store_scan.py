"""Scanning a log in its store, page by page: by key range, cut along the tree's own nodes, or new entries by insertion number.

No transaction outlives a page, so the database can be checkpointed and vacuumed during a scan of hours. All parts read up to one insertion
number, taken when the scan is planned. As parents are inserted before their children, the entries read are a whole log.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import compress, pairwise
from typing import Any

from ...arrow.columns import BATCH_ROWS, Page, SourceRow, paged
from ...entry.message import Entry
from ...errors import DamagedLog, DecodeError
from ...log.fsck_requests import LeafRow, ReadEntryRows, ReadLeafPage, ReadNodePage
from ...log.page import cut_page, is_last_page
from ...log.place import LogPlace, check_place, find_place
from ...log.requests import Leaf, ReadCount, ReadLeaves, ReadPage
from ...plan import Plan, ask
from ...store.postgres.url import is_postgres_url, without_secrets
from ...tree.node import ReadRoot, key_before
from .run_plan import PlanRunner, opened_store
from .scan import PARTS_MAX, ScanPart, Selection

_KEYS_A_PAGE = 64
_ENTRIES_A_PART = 50_000
_ROWS_A_PART = 20_000
_SEQ_MAX = (1 << 63) - 1
_NODES_A_PART = 8
"""Parts are cut at nodes of a level with at least so many nodes per part, which makes them about even."""


@dataclass(frozen=True)
class KeyRange(ScanPart):
    """The entries of a log whose keys lie between two bounds, both exclusive, up to an insertion number."""

    selection: Selection


@dataclass(frozen=True)
class SeqRange(ScanPart):
    """The entries of a log by insertion number, from after one up to and including another; of a stream without their branches."""

    after: int
    until: int
    is_streamed: bool = True


def _cut_evenly(after: int, until: int, count: int, *, is_streamed: bool) -> list[SeqRange]:
    """Cut a range of insertion numbers into at most `count` even parts; an empty one into none."""
    rows = max(0, until - after)
    bounds = [after + rows * at // count for at in range(count + 1)] if (count := min(count, rows)) else []
    return [SeqRange(low, high, is_streamed) for low, high in pairwise(bounds)]


@dataclass(frozen=True, slots=True)
class StoreScan:
    """A log in a SQLite file or a database: its path or URL, and which entries are wanted. See `Scan` and `Follower`."""

    _location: str
    _selection: Selection

    def parts(self, count: int | None) -> list[ScanPart]:
        """Cut the log into about `count` key ranges, of 50,000 entries for None; with `seq_min` by insertion number."""
        with opened_store(self._location, self._selection.topic) as run:
            until = run(ask(ReadCount(counted=False)))[1]
            selection = self._selection
            if selection.seq_max is None or selection.seq_max > until:
                selection = replace(selection, seq_max=until)
            count = min(PARTS_MAX, 1 + max(0, until - selection.seq_min) // _ENTRIES_A_PART) if count is None else count
            if selection.keys is not None:
                return [KeyRange(selection)]
            if selection.seq_min > 1:
                assert selection.seq_max is not None
                return list(_cut_evenly(selection.seq_min - 1, selection.seq_max, count, is_streamed=False))
            cuts = [key for key in run(_cuts(count)) if selection.has_key(key)]
        bounds = [selection.after, *cuts, selection.before]
        # A cut is the first key of its part, and the bound below it exclusive.
        lows = [bounds[0], *[(key_before(key) or b"") for key in cuts]]
        return [KeyRange(replace(selection, after=low, before=high)) for low, high in zip(lows, bounds[1:], strict=True)]

    def read(self, part: ScanPart) -> Iterator[Page]:
        """Yield a part's rows in its order. A leaf whose entry is missing or damaged is a row with a fault.

        For a stream keys are computed from VALUEs, and nothing is looked up.
        """
        if isinstance(part, SeqRange):
            with opened_store(self._location, self._selection.topic) as run:
                for leaves, values in _read_seqs(run, part):
                    if part.is_streamed:
                        yield _page_of(leaves, values)._replace(keys=[None] * len(leaves), branches=None)
                    else:
                        yield _page(_indexed(run, leaves, values), values, replace(self._selection, seq_max=part.until))
            return
        assert isinstance(part, KeyRange), part
        selection = part.selection
        with opened_store(self._location, selection.topic) as run:
            if selection.keys is not None:
                yield from _read_keys(run, selection)
                return
            after: Any = selection.after
            while (read := _read_page(run, after))[0]:
                page = _page(*read, selection)
                if page.keys:
                    yield page
                after = read[0][-1].key
                if selection.before is not None and type(after) is bytes and after >= selection.before:
                    return

    def begin(self, seq: int) -> LogPlace:
        """Return the place before this insertion number, or the end of a shorter log."""
        return self._place(seq - 1)

    def latest(self, since: LogPlace) -> LogPlace:
        """See `Follower`.

        Raises:
            LogReplaced: The log is not the one that was read up to `since`.
        """
        with opened_store(self._location, self._selection.topic) as run:
            run(check_place(since, without_secrets(self._location) if is_postgres_url(self._location) else self._location))
        return self._place(_SEQ_MAX)

    def within(self, since: LogPlace, latest: LogPlace, target: LogPlace | None = None, rows_max: int | None = None) -> LogPlace:
        """See `Follower`."""
        bounds = [latest.seq, *([] if target is None else [target.seq]), *([] if rows_max is None else [since.seq + rows_max])]
        until = latest if min(bounds) == latest.seq else self._place(min(bounds))
        return until if until.seq > since.seq else since

    def reachable(self, since: LogPlace, until: LogPlace) -> LogPlace:
        """Return the place itself."""
        return until

    def between(self, since: LogPlace, until: LogPlace, count: int | None) -> list[SeqRange]:
        """See `Follower`."""
        count = count or 1 + max(0, until.seq - since.seq) // _ROWS_A_PART
        return _cut_evenly(since.seq, until.seq, count, is_streamed=True)

    def options(self, since: LogPlace, until: LogPlace) -> dict[str, str]:
        """See `Follower`."""
        return {"minSeq": str(since.seq + 1), "maxSeq": str(until.seq)}

    def faults(self, place: LogPlace) -> dict[str, str]:
        """Return none: what is wrong with a log is an error."""
        return {}

    def _place(self, seq: int) -> LogPlace:
        with opened_store(self._location, self._selection.topic) as run:
            return run(find_place(seq))


def _read_seqs(run: PlanRunner, part: SeqRange) -> Iterator[tuple[list[LeafRow], list[Any]]]:
    """Yield pages of a range of insertion numbers, as values with leaves that have only `seq`."""
    after = part.after
    while after < part.until:
        rows = run(ask(ReadEntryRows(after, min(BATCH_ROWS, part.until - after))))
        rows = [row for row in rows if row[0] <= part.until]
        if not rows:
            return
        after = rows[-1][0]
        values = [value for _, value in rows]
        yield [LeafRow(b"", b"", seq, 0) for seq, _ in rows], values


def _indexed(run: PlanRunner, leaves: list[LeafRow], values: list[Any]) -> list[LeafRow]:
    """Give each leaf its key, from VALUE, and its branch, from the index."""
    keys = [_key_of(value) for value in values]
    found = run(ask(ReadLeaves([key for key in keys if key])))
    nowhere = Leaf(0, 0)
    return [leaf._replace(key=key, branch=found.get(key, nowhere).branch) for leaf, key in zip(leaves, keys, strict=True)]


def _key_of(value: Any) -> bytes:
    try:
        return Entry.stored(value).key if type(value) is bytes else b""
    except DecodeError:
        return b""


def _cuts(count: int) -> Plan[list[bytes]]:
    """Return up to `count` − 1 keys of nodes of the tree, ascending, that cut the log into about even parts."""
    level = (yield from ask(ReadRoot())).level
    wanted = count * _NODES_A_PART
    keys: list[bytes] = []
    while level > 0 and len(keys) < wanted:
        keys = yield from _keys_of_level(level)
        level -= 1
    if count < 2 or not keys:
        return []
    step = max(1, len(keys) / count)
    picked = [keys[int(at * step)] for at in range(1, count) if int(at * step) < len(keys)]
    return sorted(set(picked))


def _keys_of_level(level: int) -> Plan[list[bytes]]:
    """Return the keys of the nodes of a level, except its anchor, which has none."""
    keys: list[bytes] = []
    after: tuple[int, bytes] = (level, b"")
    while True:
        page = yield from ask(ReadNodePage(after, BATCH_ROWS))
        keys += [key for at, key in page if at == level]
        if len(page) < BATCH_ROWS or page[-1][0] != level:
            return keys
        after = page[-1]


def _read_page(run: PlanRunner, after: Any) -> tuple[list[LeafRow], list[Any]]:
    """Read the next leaves and, of the same snapshot, what each of them has for a VALUE: bytes, or an error, or anything else."""
    try:
        return run(_leaves_and_values(after))
    except DamagedLog:
        rows = cut_page((leaf, _value_of(run, leaf)) for leaf in run(ask(ReadLeafPage(after, BATCH_ROWS))))
        return [leaf for leaf, _ in rows], [value for _, value in rows]


def _leaves_and_values(after: Any) -> Plan[tuple[list[LeafRow], list[Any]]]:
    leaves = yield from ask(ReadLeafPage(after, BATCH_ROWS))
    if not leaves:
        return [], []
    last = leaves[-1].key
    if type(last) is not bytes or not (after is None or type(after) is bytes):
        raise DamagedLog("a leaf's key is no blob")
    rows = yield from ask(ReadPage(after, last + b"\0", False, len(leaves)))
    if not is_last_page(rows, len(leaves)):
        # Large values come in small pages, so the last leaves may come with the next one.
        leaves = [leaf for leaf in leaves if type(leaf.key) is not bytes or leaf.key <= rows[-1][0]]
    found = dict(rows)
    return leaves, [found.get(leaf.key, _MISSING) for leaf in leaves]


def _value_of(run: PlanRunner, leaf: LeafRow) -> Any:
    """Read one leaf's VALUE, or whatever stands in its place."""
    if type(leaf.seq) is not int:
        return _MISSING
    try:
        rows = run(ask(ReadEntryRows(leaf.seq - 1, 1)))
    except DamagedLog as error:
        return error
    return rows[0][1] if rows and rows[0][0] == leaf.seq else _MISSING


def _read_keys(run: PlanRunner, selection: Selection) -> Iterator[Page]:
    """Yield the rows of single keys that are in the log."""
    keys = sorted(selection.keys or ())
    for low in range(0, len(keys), _KEYS_A_PAGE):
        found = run(ask(ReadLeaves(keys[low : low + _KEYS_A_PAGE])))
        leaves = [LeafRow(key, b"", leaf.seq, leaf.branch) for key, leaf in sorted(found.items())]
        yield _page(leaves, [_value_of(run, leaf) for leaf in leaves], selection)


def _page(leaves: list[LeafRow], values: list[Any], selection: Selection) -> Page:
    """Make a page of the leaves that are wanted."""
    wanted = [_is_wanted(leaf, selection) for leaf in leaves]
    return _page_of(list(compress(leaves, wanted)), list(compress(values, wanted)))


def _is_wanted(leaf: LeafRow, selection: Selection) -> bool:
    if type(leaf.key) is not bytes:
        # What is no blob sorts before all keys, so only the first part meets it.
        return True
    is_early = selection.seq_max is None or type(leaf.seq) is not int or leaf.seq <= selection.seq_max
    is_late = type(leaf.seq) is not int or leaf.seq >= selection.seq_min
    return is_early and is_late and selection.has_key(leaf.key)


def _page_of(leaves: list[LeafRow], values: list[Any]) -> Page:
    keys, _, seqs, branches = (list(column) for column in zip(*leaves, strict=True)) if leaves else ([], [], [], [])
    if set(map(type, values)) <= {bytes} and set(map(type, seqs)) <= {int} and set(map(type, keys)) <= {bytes}:
        return Page(keys, values, seqs, branches)
    (page,) = list(paged(map(_source_row, keys, values, seqs, branches))) or [Page([], [])]
    return page


_MISSING = DamagedLog("the entry's row is missing")


def _source_row(key: Any, value: Any, seq: Any, branch: Any) -> SourceRow:
    """Say of a leaf that may be damaged what there is."""
    number = seq if type(seq) is int else None
    place = f"seq {seq}"
    if type(key) is not bytes:
        return SourceRow(None, None, None, None, f"leaf {key!r}"[:200], "the leaf's key is not a key", _raw(key))
    if type(value) is bytes:
        return SourceRow(key, value, number, branch if type(branch) is int else None, place)
    if isinstance(value, DamagedLog):
        return SourceRow(key, None, number, None, place, str(value))
    return SourceRow(key, None, number, None, place, "VALUE is not bytes", _raw(value))


def _raw(value: Any) -> bytes:
    # A text stands for the bytes that it is in Latin 1; see `ReadEntryRows`.
    return value if type(value) is bytes else str(value).encode("latin-1", "backslashreplace")
