"""Active links: how far away their ends are, and which of them a node can give up without harm.

Source: "Episub" (r1), "Active View Management".
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from random import Random

from ..peers import choose
from ..types import PeerId


@dataclass(slots=True, eq=False)
class ActiveLink:
    """An active link, and what the neighbour last said of its own.

    Attributes:
        is_random: One of the random links, that keep the overlay in one piece; else a near one.
        heard_tick: The heartbeat of its last NEIGHBOR.
        is_untold: Our last NEIGHBOR met a full queue.
    """

    heard_tick: int
    is_random: bool
    random_links: int = 0
    peers: frozenset[PeerId] = frozenset()
    is_untold: bool = False


def count_random(links: Mapping[PeerId, ActiveLink]) -> int:
    """How many of the links are random ones."""
    return sum(link.is_random for link in links.values())


def order_surplus(links: Mapping[PeerId, ActiveLink], me: PeerId, in_use: Container[PeerId], random_min: int, rng: Random) -> list[PeerId]:
    """Links that may be dropped from too large a view, those that matter least first.

    First come neighbours with more than `random_min` random links, of these the ones with a common neighbour; then neighbours
    that have just `random_min` and a common neighbour. No other is safe to drop, nor is a link that the tree uses.

    Args:
        links: The active view.
        me: Our own id, which is in every neighbour's view.
        in_use: Links of the tree.
        random_min: C_rand.
    """
    peers = [peer for peer in choose(list(links), len(links), rng) if peer not in in_use]
    shared = {peer for peer in peers if any(other in links for other in links[peer].peers if other != me)}
    rich = [peer for peer in peers if links[peer].random_links > random_min]
    rich.sort(key=lambda peer: peer not in shared)
    return rich + [peer for peer in peers if peer in shared and links[peer].random_links == random_min]


def find_farthest_near(links: Mapping[PeerId, ActiveLink], rtts: RoundTrips, in_use: Container[PeerId], random_max: int) -> PeerId | None:
    """The measured near link with the largest round trip that the tree does not use.

    Of more than `random_max` (C_rand) random links the nearest become near ones first.
    """
    spare = [peer for peer, link in links.items() if link.is_random]
    for _ in range(len(spare) - random_max):
        peer = rtts.nearest(spare)
        if peer is None:
            break
        spare.remove(peer)
        links[peer].is_random = False
    return rtts.farthest(peer for peer, link in links.items() if not link.is_random and peer not in in_use)


class RoundTrips:
    """The smoothed round trips to the members of one topic's views; bounded by forgetting those who leave them.

    Source: "Episub" (r1), "Active View Management"; GoCast (DSN 2005), section 2.2.

    Args:
        gain: Weight of a new sample.
    """

    __slots__ = ("_gain", "_rtts")

    def __init__(self, gain: float) -> None:
        self._gain = gain
        self._rtts: dict[PeerId, float] = {}

    def add(self, peer: PeerId, rtt_s: float) -> None:
        """Take in a sample, seconds."""
        old = self._rtts.get(peer)
        self._rtts[peer] = rtt_s if old is None else old + self._gain * (rtt_s - old)

    def get(self, peer: PeerId) -> float | None:
        """Seconds, or None if it was never measured."""
        return self._rtts.get(peer)

    def forget(self, peer: PeerId) -> None:
        """Drop what is known of a peer."""
        self._rtts.pop(peer, None)

    def nearest(self, peers: Iterable[PeerId]) -> PeerId | None:
        """The measured peer with the smallest round trip."""
        rtts = self._rtts
        return min((peer for peer in peers if peer in rtts), key=rtts.__getitem__, default=None)

    def farthest(self, peers: Iterable[PeerId]) -> PeerId | None:
        """The measured peer with the largest round trip."""
        rtts = self._rtts
        return max((peer for peer in peers if peer in rtts), key=rtts.__getitem__, default=None)

    def is_closer(self, peer: PeerId, other: PeerId, alpha: float) -> bool:
        """Whether both are measured and the first one's round trip is below alpha times the other's."""
        return peer in self._rtts and other in self._rtts and self._rtts[peer] < alpha * self._rtts[other]
