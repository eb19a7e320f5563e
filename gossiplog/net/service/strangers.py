"""What comes from strangers: verified slowly where others from the same place offended, and not taken without saying why."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable

import trio

from ...entry.message_id import encode_id
from ...entry.validation import Rule, Verdict
from ...limits import TokenBucket
from ...pubsub.types import PeerId
from .peers import Peer

__all__ = ["Strangers", "note_refusal"]

SLOWED_PER_S = 10.0
"""Entries that are verified in a second from all strangers of a place where others offended."""
ORIGINS_MAX = 4_096


class Strangers:
    """Makes strangers wait their turn.

    Args:
        is_slowed: Whether a peer is one who has to, at a time.
        clock: Says what time it is, in seconds of the event loop.
    """

    def __init__(self, is_slowed: Callable[[PeerId, float], bool], clock: Callable[[], float]) -> None:
        self._is_slowed = is_slowed
        self._clock = clock
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()

    def has_to_wait(self, peer: Peer) -> bool:
        """Whether a peer's entries are verified slowly."""
        return peer.origin is not None and self._is_slowed(peer.id, self._clock())

    async def wait(self, peer: Peer, count: int) -> None:
        """Wait until so many entries of a peer may be verified: at once, as a rule."""
        while count > 0 and peer.origin is not None and self._is_slowed(peer.id, now := self._clock()):
            bucket = self._buckets.setdefault(peer.origin, TokenBucket(SLOWED_PER_S, SLOWED_PER_S, now))
            if len(self._buckets) > ORIGINS_MAX:
                self._buckets.popitem(last=False)
            count -= bucket.take(count, now)
            if count > 0:
                peer.note_once("slowed", "a stranger is slowed", address=peer.origin, reason="others from there sent what is invalid")
                await trio.sleep_until(bucket.ready_at(now))


def note_refusal(peer: Peer, key: bytes, verdict: Verdict) -> None:
    """Log why an entry is not taken, once a peer and rule; of orphans and faults of ours others tell."""
    rule = verdict.rule
    if rule is not None and rule not in (Rule.PARENTS, Rule.STORAGE):
        peer.note_once(rule, "entry not taken", level=logging.WARNING, id=encode_id(key), rule=rule, reason=verdict.reason)
