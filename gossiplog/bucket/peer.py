"""Exchanging with a bucket: once, or again and again as one more peer of an open log.

Nothing else waits for the bucket: errors are told once, kept for whoever asks, and tried again.
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
"""How often a bucket is looked at, unless its user says otherwise."""
_PAUSE_MAX_S = 60.0
_WITNESS_PAUSE_MAX_S = 600.0
_LAST_S = 2.0
"""At the end, for what came since the last time."""

_PEERS: WeakKeyDictionary[Replica, list[BucketPeer]] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class Exchanged:
    """What an exchange with a bucket came to.

    Attributes:
        taken: What was taken from each publisher.
        published: What was published; None if there is no signer.
    """

    taken: Taken
    published: Published | None


async def exchange(
    log: Replica, storage: Storage, signer: Signer | None, *, on_progress: Callable[[int, int], None] | None = None
) -> Exchanged:
    """Take, and then publish, with a signer and where that can be. Raises as `take` and `publish`."""
    taken = await take(log, storage, on_progress=on_progress)
    return Exchanged(taken, None if signer is None or storage.is_read_only else await publish(log, storage, signer))


@dataclass(eq=False, slots=True)
class BucketPeer:
    """An exchange with one bucket that is kept up; made by `keep_exchanging`.

    Attributes:
        error: Why the last exchange failed; None if it did not, or before the first.
        exchanged_at: Unix time of the last one that did not; 0 before that.
        published: Entries that the newest checkpoint covers.
        taken: Entries that came from the bucket.
        faults: What the last exchange found wrong there, as `kind: reason`.
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
        """The bucket's, without secrets."""
        return self._storage.url

    async def _run(self) -> None:
        """Exchange again and again."""
        pause = self._every_s
        while True:
            began = trio.current_time()
            is_done = await self._guarded(self._exchange)
            pause = self._every_s if is_done else min(max(_PAUSE_MAX_S, self._every_s), 2 * pause)
            if is_done and self._witnesses:
                # Within the pause, so that it delays nothing.
                await self._cosign(min(WITNESS_S, self._every_s))
            await trio.sleep_until(max(began + pause, trio.current_time() + self._every_s / 10))

    async def _last(self) -> None:
        """Publish what came since, if that takes no longer than two seconds."""
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
        """Do something with the bucket; say whether it could be done. Nothing that it does may end the server."""
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
        """Ask those witnesses that are not known to be away; those that fail are asked less and less often."""
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
    """Keep a log in exchange with a bucket for the length of a block, at whose end what is new is published, within two seconds.

    Args:
        log: Open for writing.
        signer: An Ed25519 signer, which names the folder and signs checkpoints.
        every_s: How often, in seconds; after failures up to every minute.
        tell: Is told what goes wrong, once, and when it is over.

    Raises:
        BucketError: Nothing can be written there.
    """
    check_writable(storage)
    peer = BucketPeer(log, storage, signer, every_s, witnesses, ask, tell)
    peers = _PEERS.setdefault(log, [])
    peers.append(peer)
    try:
        async with open_service_nursery() as nursery:
            nursery.start_soon(peer._run)
            yield peer
            nursery.cancel_scope.cancel()
    finally:
        peers.remove(peer)
        # Also if the block was cancelled, which is how a server ends what goes along with its logs.
        await peer._last()


def peers_of(log: Replica) -> Iterator[BucketPeer]:
    """Return the buckets with which a log is in exchange."""
    return iter(tuple(_PEERS.get(log, ())))
