"""Exchanging with a bucket: once, or repeatedly as one more peer of an open log.

Nothing waits for the bucket. An error is reported once, kept as the peer's `error`, and the exchange is retried.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import trio

from ..entry.signing import Signer
from ..errors import GossipLogError
from ..tasks.nursery import open_service_nursery
from .cosigning import WITNESS_S, AskWitness, Cosigned, WitnessPlace, cosign_published
from .publish import Published, publish
from .storage import Storage, check_writable
from .take import Taken, take

if TYPE_CHECKING:
    from ..replica.log import Replica

EXCHANGE_S = 5.0
"""The default interval between exchanges."""
PAUSE_MAX_S = 60.0
"""The longest pause after failures, unless the interval is longer."""
_WITNESS_PAUSE_MAX_S = 600.0
_LAST_S = 2.0
"""How long the last publishing may take when a peer ends."""

_PEERS: WeakKeyDictionary[Replica, list[BucketPeer]] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class Exchanged:
    """The results of an exchange with a bucket; `published` is None without a signer, and for a bucket that is read-only."""

    taken: Taken
    published: Published | None


async def exchange(
    log: Replica, storage: Storage, signer: Signer | None, *, on_progress: Callable[[int, int], None] | None = None
) -> Exchanged:
    """Take, and then publish, if there is a signer and the storage is not read-only. Raises as `take` and `publish`."""
    taken = await take(log, storage, on_progress=on_progress)
    return Exchanged(taken, None if signer is None or storage.is_read_only else await publish(log, storage, signer))


@dataclass(eq=False, slots=True)
class BucketPeer:
    """The repeated exchange with one bucket; made by `keep_exchanging`.

    Attributes:
        error: Why the last exchange failed; None if it succeeded, or before the first.
        failures: How many have failed.
        exchanged_at: Unix time of the last success; 0 before the first.
        published: Entries that the newest checkpoint covers.
        taken: Entries that came from the bucket.
        faults: The faults that the last exchange found there, as `kind: reason`.
        witnesses: Names of the witnesses that have cosigned the newest checkpoint.
    """

    _log: Replica
    _storage: Storage
    _signer: Signer
    _every_s: float
    _witnesses: Sequence[WitnessPlace]
    _ask: AskWitness | None
    _tell: Callable[[str, str], None]
    error: str | None = None
    failures: int = 0
    exchanged_at: float = 0.0
    published: int = 0
    taken: int = 0
    faults: frozenset[str] = frozenset()
    witnesses: tuple[str, ...] = ()
    _doubts: dict[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def url(self) -> str:
        """The bucket's URL, without secrets."""
        return self._storage.url

    async def _run(self) -> None:
        pause = self._every_s
        while True:
            began = trio.current_time()
            is_done = await self._guarded(self._exchange)
            pause = self._every_s if is_done else min(max(PAUSE_MAX_S, self._every_s), 2 * pause)
            if is_done and self._witnesses:
                # During the pause, so that it delays nothing.
                await self._cosign(min(WITNESS_S, self._every_s))
            await trio.sleep_until(max(began + pause, trio.current_time() + self._every_s / 10))

    async def _last(self) -> None:
        """Publish the newest entries, if that takes no longer than two seconds."""
        with trio.move_on_after(_LAST_S, shield=True):
            await self._guarded(self._publish)

    async def _exchange(self) -> None:
        done = await exchange(self._log, self._storage, self._signer)
        self.taken += done.taken.entries
        assert done.published is not None
        self._note_published(done.published)
        faults = frozenset(f"{fault.kind}: {fault.reason}" for fault in done.taken.faults)
        for fault in sorted(faults - self.faults):
            self._tell("bucket fault", fault)
        self.faults = faults

    async def _publish(self) -> None:
        self._note_published(await publish(self._log, self._storage, self._signer))

    def _note_published(self, published: Published) -> None:
        self.published, self.exchanged_at = published.size, time.time()

    async def _guarded(self, exchange: Callable[[], object]) -> bool:
        """Call a function that uses the bucket; return whether it succeeded. No error of it may end the server."""
        error: str | None = None
        try:
            await exchange()  # type: ignore[misc]
        except GossipLogError as failure:
            error = str(failure)
        except Exception as failure:  # the edge of the task: the fault is ours, and the log is served on
            error = f"{type(failure).__name__}: {failure}"
        self.failures += error is not None
        if error is not None and self.error is None:
            self._tell("bucket away", error)
        elif error is None and self.error is not None:
            self._tell("bucket back", "it can be used again")
        self.error = error
        return error is None

    async def _cosign(self, seconds: float) -> None:
        """Ask the witnesses to cosign, except those in a pause. A witness's pause doubles with each failure."""
        now, ask = trio.current_time(), self._ask
        due = [each for each in self._witnesses if self._doubts.get(each.url, (0.0, 0.0))[0] <= now]
        if ask is None or not due:
            return
        done = Cosigned([], {})

        async def cosign() -> None:
            nonlocal done
            done = await cosign_published(self._storage, self._signer, due, ask, seconds=seconds)

        if not await self._guarded(cosign):
            return
        self.witnesses = tuple(sorted(done.names))
        for witness in due:
            reason = done.refusals.get(witness.key.name)
            if reason is None:
                self._doubts.pop(witness.url, None)
                continue
            pause = min(_WITNESS_PAUSE_MAX_S, 2 * self._doubts.get(witness.url, (0.0, self._every_s))[1])
            if witness.url not in self._doubts:
                self._tell("no cosignature", reason)
            self._doubts[witness.url] = (now + pause, pause)


@asynccontextmanager
async def keep_exchanging(
    log: Replica,
    storage: Storage,
    signer: Signer,
    *,
    every_s: float = EXCHANGE_S,
    witnesses: Sequence[WitnessPlace] = (),
    ask: AskWitness | None = None,
    tell: Callable[[str, str], None] = lambda event, reason: None,
) -> AsyncIterator[BucketPeer]:
    """Exchange a log with a bucket repeatedly for the length of a block. At its end new entries are published, within two seconds.

    Raises BucketError if the bucket is read-only.

    Args:
        log: Open for writing.
        signer: An Ed25519 signer, which names the folder and signs checkpoints.
        every_s: The interval in seconds; after failures it grows up to a minute.
        ask: Posts to witnesses; None asks none.
        tell: Called with an event and its reason when something goes wrong, and when it is over.
    """
    check_writable(storage)
    peer = BucketPeer(log, storage, signer, every_s, witnesses, ask, tell)
    peers = _PEERS.setdefault(log, [])
    peers.append(peer)
    try:
        async with open_service_nursery() as nursery:
            nursery.start_soon(peer._run)
            yield peer
    finally:
        peers.remove(peer)
        # Also if the block was cancelled, as it is when a server ends.
        await peer._last()


def peers_of(log: Replica) -> Iterator[BucketPeer]:
    """Return the peers of a log that are running."""
    return iter(tuple(_PEERS.get(log, ())))
