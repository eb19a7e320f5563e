"""A pull between two logs of one process by their sketches, where both are at hand: no part of either tree is read."""

from __future__ import annotations

import trio

from ..errors import DamagedLog
from ..log.requests import ReadValues
from ..plan import ask
from ..reconcile.steps import DIFFERENCES_MAX, absent
from ..sketch import SYMBOLS_MAX, Contradiction, Decoder, Difference, Sketch
from ..store import Reader
from ..sync.result import Ending, SyncResult
from .care import LogCare
from .sketching import SketchView

__all__ = ["BEHIND_MAX", "pull", "views"]

BEHIND_MAX = 256
"""Entries that may be missing in a sketch: adding them takes 4 ms. To build one takes longer than comparing trees, for no bytes saved."""
_FIRST = 64
_BATCH = 250


async def views(ours: LogCare, theirs: LogCare) -> tuple[SketchView, SketchView] | None:
    """Return the sketches of two logs, if neither has far to go and no row that is to be added is damaged: trees do without it."""
    try:
        if max(await ours.sketch_behind(), await theirs.sketch_behind()) > BEHIND_MAX:
            return None
        return await ours.sketch(), await theirs.sketch()
    except DamagedLog:
        return None


async def pull(ours: LogCare, sketches: tuple[SketchView, SketchView], snapshot: Reader) -> SyncResult | None:
    """Insert what the other log has and ours lacks. Where anything is not as usual comparing trees tells what, and goes on from there.

    Args:
        ours: The log that pulls.
        sketches: Ours and the other log's.
        snapshot: Of the other log, taken after its sketch.

    Returns:
        What was done: with the ending COMPLETE all of it. None if nothing was.
    """
    mine, theirs = sketches
    found = await trio.to_thread.run_sync(_decode, mine.sketch, theirs.sketch)
    if found is None:
        return None
    lacking, in_quarantine, has_ours = await ours.run(absent(found.theirs, found.ours))
    if not has_ours:
        await ours.forget_sketch()
        return None
    result = SyncResult(quarantined=in_quarantine, waits=1)
    for start in range(0, len(lacking), _BATCH):
        keys = lacking[start : start + _BATCH]
        values = await snapshot.run(ask(ReadValues(keys)))
        if len(values) < len(keys):
            return result
        verdicts = await ours.insert_many([values[key] for key in keys])
        result.entries += sum(verdict.is_new for verdict in verdicts)
        if not all(verdict.accepted for verdict in verdicts):
            return result
        result.duplicates += sum(not verdict.is_new for verdict in verdicts)
    result.ending = Ending.COMPLETE
    return result


def _decode(mine: Sketch, theirs: Sketch) -> Difference | None:
    decoder = Decoder(mine)
    end = _FIRST
    try:
        while True:
            start = decoder.symbols
            decoder.add(list(zip(theirs.sums[start:end], theirs.counts[start:end], strict=True)))
            if decoder.is_complete:
                return decoder.difference()
            if end == SYMBOLS_MAX or decoder.estimate() > 2 * DIFFERENCES_MAX:
                return None
            end = min(2 * end, SYMBOLS_MAX)
    except Contradiction:
        return None
