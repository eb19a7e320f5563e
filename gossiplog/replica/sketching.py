"""The sketch of a log's keys, brought up to date whenever it is asked for, and kept with the log now and then.

Adding a key costs 9 µs. That would slow down each append and insert, for nothing in a log that never reconciles. So a commit does nothing:
asking for the sketch adds the entries that came since, by their insertion numbers. This also works if several processes write to one
database: each has its own sketch in memory, and the stored one is the latest that any of them wrote, with its insertion number.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

import trio

from ..entry.message import Entry
from ..errors import DamagedLog, DecodeError, StoreError
from ..log.page import is_last_page
from ..log.requests import KeptSketch, ReadCount, ReadSketch, ReadTail, WriteSketch
from ..plan import Plan, ask
from ..sketch import Sketch
from ..store import Store

KEEP_ENTRIES = 8_192
"""Entries after which the sketch is kept again: adding them takes about as long as reading it. It takes 590 kB."""
_KEEP_ON_THE_WAY = 8 * KEEP_ENTRIES
_PAGE = 1_000
_AT_ONCE = 100
"""So many are added in place, which takes 1.5 ms; more in a thread."""


@dataclass(frozen=True, slots=True)
class SketchView:
    """A state of the sketch that does not change.

    Attributes:
        sketch: Of all entries up to there; not to be added to.
    """

    seq: int
    sketch: Sketch

    @property
    def count(self) -> int:
        """How many entries it is of."""
        return self.sketch.counts[0]


class SketchKeeper:
    """Keeps the sketch of one log."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._turn = trio.Lock()
        self._sketch: Sketch | None = None
        self._seq = 0
        self._kept_seq = 0
        # Somebody has it, and it must not change.
        self._is_lent = False

    async def view(self) -> SketchView:
        """Return the sketch as of now. See `LogReader.sketch`."""
        async with self._turn:
            sketch = self._sketch or await self._load()
            while True:
                page = await self._store.read(ask(ReadTail(self._seq, _PAGE)))
                if page:
                    sketch = await self._add(page, sketch)
                is_last = is_last_page(page, _PAGE)
                # On the way, too: a waiting caller may give up, and the next one goes on from here.
                if self._seq - self._kept_seq >= (KEEP_ENTRIES if is_last else _KEEP_ON_THE_WAY) and not self._store.is_read_only:
                    await self._keep(sketch)
                if is_last:
                    break
            self._is_lent = True
            return SketchView(self._seq, sketch)

    async def behind(self) -> int:
        """Return how many insertion numbers came since the sketch that is in memory, or else the one that is kept."""
        kept, last = await self._store.read(_read_stand())
        seq = self._seq if self._sketch is not None else kept
        return max(0, last - seq)

    async def forget(self) -> None:
        """Forget it, on the disk as well."""
        async with self._turn:
            self.drop()
            if not self._store.is_read_only:
                await self._store.write(ask(WriteSketch(None)))

    def drop(self) -> None:
        """Forget what is in memory: what is kept may have changed."""
        self._sketch = None

    async def _load(self) -> Sketch:
        self._sketch, self._seq, self._kept_seq, self._is_lent = Sketch(), 0, 0, False
        try:
            kept = await self._store.read(_read_kept())
            if kept is not None:
                self._sketch = await trio.to_thread.run_sync(Sketch.from_bytes, kept.symbols)
                self._seq = self._kept_seq = kept.seq
        except (DecodeError, StoreError):
            # Damaged, which `fsck` tells, or not for our role: the entries have it all.
            pass
        return self._sketch

    async def _add(self, page: Sequence[tuple[int, bytes]], sketch: Sketch) -> Sketch:
        if self._is_lent:
            sketch = self._sketch = sketch.copy()
            self._is_lent = False
        # A thread is waited for, whatever becomes of the caller: a page is added as a whole.
        if len(page) <= _AT_ONCE:
            _add_page(sketch, page)
        else:
            await trio.to_thread.run_sync(_add_page, sketch, page)
        self._seq = page[-1][0]
        return sketch

    async def _keep(self, sketch: Sketch) -> None:
        symbols = await trio.to_thread.run_sync(sketch.to_bytes)
        # Whatever comes of it: it is a convenience, and what is wrong with the store shows at the next commit.
        self._kept_seq = self._seq
        with contextlib.suppress(StoreError):
            await self._store.write(ask(WriteSketch(KeptSketch(self._seq, symbols))))


def _read_kept() -> Plan[KeptSketch | None]:
    """Read the sketch that was kept, unless it is of a later state than the log's."""
    kept = yield from ask(ReadSketch())
    _, last = yield from ask(ReadCount(counted=False))
    return None if kept is None or not 0 <= kept.seq <= last else kept


def _read_stand() -> Plan[tuple[int, int]]:
    """Read up to where the sketch that is kept goes, and the log."""
    kept = yield from _read_kept()
    _, last = yield from ask(ReadCount(counted=False))
    return 0 if kept is None else kept.seq, last


def _add_page(sketch: Sketch, page: Sequence[tuple[int, bytes]]) -> None:
    try:
        keys = [Entry.stored(value).key for _, value in page]
    except DecodeError as error:
        raise DamagedLog(
            f"an entry from seq {page[0][0]} to {page[-1][0]} is damaged: {error}", hint="`gossiplog fsck` names it"
        ) from error
    sketch.add(keys)
