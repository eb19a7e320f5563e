"""Kademlia's routing table and its search, without I/O: which peers are near a key, and which one to ask next.

Source: Maymounkov and Mazières, "Kademlia", 2002, §2; libp2p specifications, "kad-dht". Only peers can be found, no values: the log needs
the balanced topology, not the hash table.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from random import Random

from ...pubsub.types import PeerId, peer_id_bytes

BUCKET_SIZE = 20
"""k: the peers in a bucket, in an answer, and in a search's result."""
ALPHA = 3
"""Peers that are asked at the same time."""
_BUCKETS_MAX = 32
"""The last bucket has all greater depths: a network has fewer than 2^32 peers."""
_ASKED_MAX = 48
_KNOWN_MAX = 256
_DEPTH_MAX = 10
_DRAWS_MAX = 8192
"""Enough for a key in the tenth bucket, which one draw in 1,024 gives."""


def place_of(peer: PeerId) -> int:
    """Return a peer's place: the SHA-256 of its id as a 256-bit number. The distance of two places is their XOR."""
    return _place(peer_id_bytes(peer))


def _place(key: bytes) -> int:
    return int.from_bytes(sha256(key).digest(), "big")


class RoutingTable:
    """Peers in buckets, by how many leading bits their places share with ours. Each has at most 20 peers, and the oldest stay.

    At most 640 peers in all. The caller removes peers that are gone.
    """

    def __init__(self, me: PeerId) -> None:
        self._me = me
        self._place = place_of(me)
        self._places: dict[PeerId, int] = {}
        self._buckets: list[dict[PeerId, None]] = [{} for _ in range(_BUCKETS_MAX)]

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, peer: PeerId) -> bool:
        return peer in self._places

    def bucket_of(self, peer: PeerId) -> int:
        """Return a peer's bucket: the number of leading bits that its place shares with ours, at most 31."""
        return min(256 - (place_of(peer) ^ self._place).bit_length(), _BUCKETS_MAX - 1)

    def add(self, peer: PeerId) -> bool:
        """Add a peer; return whether it is in the table now. It is not if its bucket is full, or if it is our own id."""
        if peer == self._me:
            return False
        if peer in self._places:
            return True
        bucket = self._buckets[self.bucket_of(peer)]
        if len(bucket) >= BUCKET_SIZE:
            return False
        bucket[peer] = None
        self._places[peer] = place_of(peer)
        return True

    def remove(self, peer: PeerId) -> None:
        """Remove a peer, if it is there."""
        if self._places.pop(peer, None) is not None:
            del self._buckets[self.bucket_of(peer)][peer]

    def buckets(self) -> list[tuple[PeerId, ...]]:
        """Return the buckets, the farthest half of the world first."""
        return [tuple(bucket) for bucket in self._buckets]

    def closest(self, key: bytes, count: int = BUCKET_SIZE) -> list[PeerId]:
        """Return the peers whose places are closest to that of a key, ascending. O(peers log peers)."""
        place = _place(key)
        return sorted(self._places, key=lambda peer: self._places[peer] ^ place)[:count]

    def targets(self, rng: Random) -> list[bytes]:
        """Draw keys to search for: ours, then one in each bucket down to the deepest that has a peer, but at most the tenth.

        The search for our own key finds nearer peers.
        """
        depth = max((index for index, bucket in enumerate(self._buckets) if bucket), default=0)
        wanted = set(range(min(depth + 1, _DEPTH_MAX)))
        keys: dict[int, bytes] = {}
        for _ in range(_DRAWS_MAX):
            key = rng.randbytes(32)
            bucket = 256 - (_place(key) ^ self._place).bit_length()
            if bucket in wanted:
                wanted.discard(bucket)
                keys[bucket] = key
            if not wanted:
                break
        return [peer_id_bytes(self._me), *(keys[bucket] for bucket in sorted(keys))]


class Walk:
    """One search for the peers closest to a key: ask the closest known peers for closer ones, until the 20 closest have answered.

    Args:
        me: Our own id, ignored in answers.
    """

    def __init__(self, key: bytes, me: PeerId, known: Iterable[PeerId]) -> None:
        self.key = key
        self._me = me
        self._place = _place(key)
        self._distances: dict[PeerId, int] = {}
        self._asked: set[PeerId] = set()
        self._waiting: set[PeerId] = set()
        self._failed: set[PeerId] = set()
        self._learn(known)

    def next(self) -> PeerId | None:
        """Return the next peer to ask, and count it as asked; None if an answer has to come first, or the search `is_over`."""
        if len(self._waiting) >= ALPHA or len(self._asked) >= _ASKED_MAX:
            return None
        for peer in self._closest():
            if peer not in self._asked:
                self._asked.add(peer)
                self._waiting.add(peer)
                return peer
        return None

    def on_answer(self, peer: PeerId, closer: Iterable[PeerId]) -> None:
        """Take a peer's answer."""
        self._waiting.discard(peer)
        self._learn(closer)

    def on_failure(self, peer: PeerId) -> None:
        """Go on without a peer that did not answer."""
        self._waiting.discard(peer)
        self._failed.add(peer)

    @property
    def is_over(self) -> bool:
        """Whether no answer is awaited and no peer is left to ask."""
        return not self._waiting and (len(self._asked) >= _ASKED_MAX or all(peer in self._asked for peer in self._closest()))

    def found(self) -> list[PeerId]:
        """Return the closest peers that answered, the closest first, at most 20."""
        return [peer for peer in self._closest() if peer in self._asked and peer not in self._waiting]

    def _closest(self) -> list[PeerId]:
        alive = [peer for peer in self._distances if peer not in self._failed]
        return sorted(alive, key=self._distances.__getitem__)[:BUCKET_SIZE]

    def _learn(self, peers: Iterable[PeerId]) -> None:
        for peer in peers:
            if len(self._distances) >= _KNOWN_MAX:
                return
            if peer != self._me and peer not in self._distances:
                self._distances[peer] = place_of(peer) ^ self._place
