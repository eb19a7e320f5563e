"""Checkpoints and proofs out of a bucket, for those who have neither the log nor a reason to trust it."""

from __future__ import annotations

import os
from contextlib import aclosing
from typing import TYPE_CHECKING

from ..entry.message import Entry
from ..errors import BucketError, NotFound
from ..tlog.growth import leaf_of
from ..tlog.merkle import inclusion_ranges
from ..tlog.proof import Proof, check_proof
from ..tlog.tiles import TILE_WIDTH, Tiles
from .kept import Kept
from .reading import BUNDLED_BYTES, drive, read_bundles, read_checkpoints
from .storage import Storage, open_storage

if TYPE_CHECKING:
    from ..replica.log import Replica


async def prove(log: Replica, entry: Entry, place: str | os.PathLike[str] | None, publisher: str | None = None, *, guess: int) -> bytes:
    """Prove that an entry is in a published log, by its newest checkpoint; see `GossipLog.prove`.

    Args:
        log: Whose places are tried.
        place: Where it is published; None for the places that the log remembers.
        publisher: Whose log it must be in; None for anybody's.
        guess: Where the entry may be, from 0; elsewhere it is looked for in all bundles, 14 kB for 256 entries.
    """
    places = [place] if place is not None else Kept.beside(log).places()
    for each in places:
        if (proof := await _prove_at(open_storage(each, publisher), entry, guess)) is not None:
            check_proof(proof)
            return proof.to_bytes()
    where = " or ".join(map(str, places)) or "anywhere that is known here"
    raise NotFound(entry.id, hint=f"it is not published at {where}: `gossiplog publish LOG URL` publishes it")


async def _prove_at(storage: Storage, entry: Entry, guess: int) -> Proof | None:
    fault = None
    for name, note, checkpoint in await read_checkpoints(storage):
        if isinstance(checkpoint, str):
            fault = checkpoint
            continue
        prefix = f"{name}/{checkpoint.origin.generation}"
        index = await _find(storage, prefix, checkpoint.size, leaf_of(entry.value), guess)
        if index is None:
            continue
        tiles = Tiles(checkpoint.size, checkpoint.root)
        await drive(storage, prefix, tiles.open())
        hashes = await drive(storage, prefix, tiles.roots(inclusion_ranges(index, checkpoint.size)))
        return Proof(entry.value, index, hashes, note)
    if fault is not None:
        raise BucketError(fault)
    return None


async def _find(storage: Storage, prefix: str, size: int, leaf: bytes, guess: int) -> int | None:
    count = -(-size // TILE_WIDTH)
    near = min(guess // TILE_WIDTH, count)
    for numbers in (range(near, min(near + 1, count)), range(count)):
        async with aclosing(read_bundles(storage, prefix, size, numbers)) as bundles:
            async for number, bundle in bundles:
                at = bundle.find(leaf)
                while at >= 0 and at % BUNDLED_BYTES != 2:
                    at = bundle.find(leaf, at + 1)
                if at >= 0 and number * TILE_WIDTH + at // BUNDLED_BYTES < size:
                    return number * TILE_WIDTH + at // BUNDLED_BYTES
    return None
