"""Active links: their round trips, and which of them a node can give up safely.

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
    """An active link, with the neighbour's own links as its last NEIGHBOR listed them.

    Attributes:
        heard_tick: The heartbeat of the neighbour's last NEIGHBOR.
        is_random: Whether it is one of the random links, which keep the overlay in one piece; else it is a near one.
        random_links: How many random links the neighbour has.
        peers: The neighbour's neighbours.
        is_links_due: Our last NEIGHBOR found its queue full, so the next heartbeat sends another.
    """

    heard_tick: int
    is_random: bool
    random_links: int = 0
    peers: frozenset[PeerId] = frozenset()
    is_links_due: bool = False


def count_random(links: Mapping[PeerId, ActiveLink]) -> int:
    """Count the random links."""
    return sum(link.is_random for link in links.values())


def order_surplus(links: Mapping[PeerId, ActiveLink], me: PeerId, in_use: Container[PeerId], random_min: int, rng: Random) -> list[PeerId]:
    """Return the links that may be dropped from too large a view, the most dispensable first.

    First come neighbours with more than `random_min` random links, those that share a neighbour with us before the others; then neighbours
    that share one and have exactly `random_min`. No other link is safe to drop, nor is one that the tree uses.

    Args:
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
    """Return the near link with the largest measured round trip that the tree does not use.

    Before that, random links beyond `random_max` (C_rand) become near ones, the nearest first.
    """
    spare = [peer for peer, link in links.items() if link.is_random]
    for _ in range(len(spare) - random_max):
        peer = rtts.nearest(spare)
        if peer is None:
            break
        spare.remove(peer)
        links[peer].is_random = False
    return rtts.farthest(peer for peer, link in links.items() if not link.is_random and peer not in in_use)


class RoundTrips(dict[PeerId, float]):
    """The smoothed round trips to the members of one topic's views, in seconds; a member that leaves them is forgotten.

    Source: "Episub" (r1), "Active View Management"; GoCast (DSN 2005), section 2.2.

    Args:
        gain: Weight of a new sample, in (0, 1].
    """

    __slots__ = ("_gain",)

    def __init__(self, gain: float) -> None:
        super().__init__()
        self._gain = gain

    def add(self, peer: PeerId, rtt_s: float) -> None:
        """Add a sample, in seconds."""
        old = self.get(peer, rtt_s)
        self[peer] = old + self._gain * (rtt_s - old)

    def nearest(self, peers: Iterable[PeerId]) -> PeerId | None:
        """Return the measured peer with the smallest round trip; None if none was measured."""
        return min(filter(self.__contains__, peers), key=self.__getitem__, default=None)

    def farthest(self, peers: Iterable[PeerId]) -> PeerId | None:
        """Return the measured peer with the largest round trip; None if none was measured."""
        return max(filter(self.__contains__, peers), key=self.__getitem__, default=None)

    def is_closer(self, peer: PeerId, other: PeerId, alpha: float) -> bool:
        """Whether both peers are measured and the first one's round trip is below alpha times the other's."""
        return peer in self and other in self and self[peer] < alpha * self[other]
