"""Heads that peers announce: which of them our log lacks, so that they are synced for."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..pubsub.types import PeerId
from .offences import RejectedIds
from .peers import Peer
from .wanted_syncs import Asker, missing


class HeadsCheck:
    """Ask our log about the heads of each peer's latest update, one question a peer at a time.

    Args:
        rejected: Keys that nobody asks for again.
        want: Told of the keys that a peer has and we lack.
    """

    def __init__(self, rejected: RejectedIds, log: Asker, want: Callable[[PeerId, Sequence[bytes]], None]) -> None:
        self._rejected = rejected
        self._ask = log
        self._want = want

    def on_update(self, peer: Peer, heads: list[bytes]) -> None:
        """Take a peer's update; what it said before and was not looked at yet is no more of interest."""
        peer.update = heads
        self._check(peer)

    def _check(self, peer: Peer) -> None:
        if peer.is_checking or peer.update is None:
            return
        heads = [key for key in dict.fromkeys(peer.update) if key not in self._rejected]
        peer.update = None
        if heads:
            peer.is_checking = True
            self._ask(missing(heads), lambda absent: self._on_checked(peer, absent), peer.id)

    def _on_checked(self, peer: Peer, absent: list[bytes]) -> None:
        peer.is_checking = False
        if absent:
            self._want(peer.id, absent)
        self._check(peer)
