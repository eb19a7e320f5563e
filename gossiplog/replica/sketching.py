"""The sketch of a log's keys, brought up to date when it is asked for, and stored with the log now and then.

Adding a key costs 9 µs. In each commit that would be wasted on a log that never reconciles. So entries are added, by their insertion
numbers, when the sketch is asked for. This also works if several processes write to one database: each has its own sketch in memory, and
the stored one is the latest that any of them wrote, with its insertion number.
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
"""The sketch is stored again after this many entries: adding them takes about as long as reading the sketch. It has 590 kB."""
_KEEP_ON_THE_WAY = 8 * KEEP_ENTRIES
_PAGE = 1_000
_AT_ONCE = 100
"""Up to this many entries are added in the event loop, which takes 1.5 ms; more in a thread."""


@dataclass(frozen=True, slots=True)
class SketchView:
    """A fixed state of the sketch.

    Attributes:
        seq: The insertion number up to which entries are in it.
        sketch: Must not be changed.
    """

    seq: int
    sketch: Sketch

    @property
    def count(self) -> int:
        """The number of entries in it."""
        return self.sketch.counts[0]


class SketchKeeper:
    """Keeps the sketch of one log."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._turn = trio.Lock()
        self._sketch: Sketch | None = None
        self._seq = 0
        self._kept_seq = 0
        # A caller of `view` has the sketch, so it must not change.
        self._is_lent = False

    async def view(self) -> SketchView:
        """See `LogReader.sketch`."""
        async with self._turn:
            sketch = self._sketch or await self._load()
            while True:
                page = await self._store.read(ask(ReadTail(self._seq, _PAGE)))
                if page:
                    sketch = await self._add(page, sketch)
                is_last = is_last_page(page, _PAGE)
                # Also on the way: if this call is cancelled, the next one continues from here.
                if self._seq - self._kept_seq >= (KEEP_ENTRIES if is_last else _KEEP_ON_THE_WAY) and not self._store.is_read_only:
                    await self._keep(sketch)
                if is_last:
                    break
            self._is_lent = True
            return SketchView(self._seq, sketch)

    async def behind(self) -> int:
        """Return how many insertion numbers there are after the sketch in memory or, without one, the stored sketch."""
        kept, last = await self._store.read(_read_stand())
        seq = self._seq if self._sketch is not None else kept
        return max(0, last - seq)

    async def forget(self) -> None:
        """Drop the sketch, the stored one included."""
        async with self._turn:
            self.drop()
            if not self._store.is_read_only:
                await self._store.write(ask(WriteSketch(None)))

    def drop(self) -> None:
        """Drop the sketch in memory."""
        self._sketch = None

    async def _load(self) -> Sketch:
        self._sketch, self._seq, self._kept_seq, self._is_lent = Sketch(), 0, 0, False
        try:
            kept = await self._store.read(_read_kept())
            if kept is not None:
                self._sketch = await trio.to_thread.run_sync(Sketch.from_bytes, kept.symbols)
                self._seq = self._kept_seq = kept.seq
        except (DecodeError, StoreError):
            # The stored sketch is damaged, which `fsck` reports, or our role may not read it. The entries suffice.
            pass
        return self._sketch

    async def _add(self, page: Sequence[tuple[int, bytes]], sketch: Sketch) -> Sketch:
        if self._is_lent:
            sketch = self._sketch = sketch.copy()
            self._is_lent = False
        # A cancelled call still waits for the thread, so a page is added as a whole.
        if len(page) <= _AT_ONCE:
            _add_page(sketch, page)
        else:
            await trio.to_thread.run_sync(_add_page, sketch, page)
        self._seq = page[-1][0]
        return sketch

    async def _keep(self, sketch: Sketch) -> None:
        symbols = await trio.to_thread.run_sync(sketch.to_bytes)
        # Even if this fails: the stored sketch only saves time, and the next commit raises the store's error.
        self._kept_seq = self._seq
        with contextlib.suppress(StoreError):
            await self._store.write(ask(WriteSketch(KeptSketch(self._seq, symbols))))


def _read_kept() -> Plan[KeptSketch | None]:
    """Read the stored sketch, unless it is of a later state than the log."""
    kept = yield from ask(ReadSketch())
    _, last = yield from ask(ReadCount(counted=False))
    return None if kept is None or not 0 <= kept.seq <= last else kept


def _read_stand() -> Plan[tuple[int, int]]:
    """Read the last insertion numbers of the stored sketch and of the log."""
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
