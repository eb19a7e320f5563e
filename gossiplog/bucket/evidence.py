"""Proofs from a bucket, for others who have neither the log nor a reason to trust it."""

from __future__ import annotations

import os
from contextlib import aclosing
from typing import TYPE_CHECKING

from ..entry.message import Entry
from ..errors import BucketError, NotFound
from ..tlog.growth import leaf_of
from ..tlog.merkle import inclusion_ranges
from ..tlog.proof import Proof, check_proof
from ..tlog.tiles import TILE_WIDTH
from .kept import Kept
from .reading import PublishedTree, read_heads
from .storage import Storage, open_storage

if TYPE_CHECKING:
    from ..replica.log import Replica


async def prove(log: Replica, entry: Entry, place: str | os.PathLike[str] | None, publisher: str | None = None, *, guess: int) -> bytes:
    """Prove that an entry is in a published log, by its newest checkpoint; see `GossipLog.prove`.

    Args:
        place: Where the log is published; None tries the places that it remembers.
        publisher: The did of the publisher whose log the entry must be in; None for any.
        guess: The leaf where the entry may be, from 0. If it is not there, all bundles are read, with their tiles 22 kB per 256 entries.
    """
    places = [place] if place is not None else Kept.beside(log).places()
    for each in places:
        if (proof := await _prove_at(log, open_storage(each, publisher), entry, guess)) is not None:
            check_proof(proof)
            return proof.to_bytes()
    where = " or ".join(map(str, places)) or "anywhere that is known here"
    raise NotFound(entry.id, where=f" is published at {where}", hint="`gossiplog publish LOG URL` publishes it")


async def _prove_at(log: Replica, storage: Storage, entry: Entry, guess: int) -> Proof | None:
    leaf, faults = leaf_of(entry.value), list[BucketError]()
    for head in (await read_heads(storage)).values():
        checkpoint = head.checkpoint
        if head.fault is not None:
            faults.append(head.fault)
        elif checkpoint is not None and checkpoint.origin.topic == log.topic:
            tree = PublishedTree(storage, checkpoint.origin.folder, checkpoint.size, checkpoint.root)
            if (index := await _find(tree, leaf, guess, faults)) is not None:
                await tree.open()
                hashes = await tree.drive(tree.tiles.roots(inclusion_ranges(index, tree.size)))
                return Proof(entry.value, index, hashes, head.note)
    for fault in faults:
        raise fault
    return None


async def _find(tree: PublishedTree, leaf: bytes, guess: int, faults: list[BucketError]) -> int | None:
    """Find a leaf where it may be, believing the bundle; or else in all bundles, each proved, noting why some cannot be searched."""
    near = max(0, min(guess, tree.size - 1)) // TILE_WIDTH * TILE_WIDTH
    for proves, low, high in ((False, near, min(near + TILE_WIDTH, tree.size)), (True, 0, tree.size)):
        async with aclosing(tree.bundles(low, high, proves=proves)) as bundles:
            async for first, leaves, fault in bundles:
                if leaf in leaves:
                    return first + leaves.index(leaf)
                faults += [fault] if proves and fault is not None else []
    return None
