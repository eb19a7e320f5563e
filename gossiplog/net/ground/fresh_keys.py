"""New keys from an address that a banned peer came from: they are let in slowly, and nobody else who shares the address is hurt.

A key costs nothing, so a ban of a peer alone is a ban of nobody. A ban of its address would hit all behind a proxy or a translated
address. So peers that are known go in and out as before, and strangers from such an address wait their turn.

Source: docs/spec/limits.md, first row.
"""

from __future__ import annotations

from collections import OrderedDict

from ...limits import TokenBucket, address_group
from ...pubsub.types import PeerId

__all__ = ["FreshKeys"]

_RATE = 0.1
"""Strangers a second from an address with a banned peer."""
_SIZE_MAX = 4_096


class FreshKeys:
    """Remembers who was here in good standing, and from where banned peers came."""

    def __init__(self) -> None:
        self._known: OrderedDict[PeerId, None] = OrderedDict()
        self._wary: OrderedDict[str, tuple[TokenBucket, float]] = OrderedDict()

    def __len__(self) -> int:
        """The size of the fuller container."""
        return max(len(self._known), len(self._wary))

    def may_enter(self, peer: PeerId, address: str, now: float) -> bool:
        """Whether a peer may be used now; a stranger from a wary address once in ten seconds."""
        wary = self._wary.get(address_group(address))
        if wary is None or peer in self._known or now >= wary[1]:
            return True
        return wary[0].take(1, now) > 0

    def on_left(self, peer: PeerId) -> None:
        """A peer has gone that was here for long and was not banned; it may come back."""
        self._known[peer] = None
        self._known.move_to_end(peer)
        if len(self._known) > _SIZE_MAX:
            self._known.popitem(last=False)

    def on_banned(self, peer: PeerId, address: str, until: float, now: float) -> None:
        """A peer was banned; be wary of strangers from its address for as long."""
        self._known.pop(peer, None)
        group = address_group(address)
        bucket = self._wary[group][0] if group in self._wary else TokenBucket(_RATE, 1, now)
        self._wary[group] = (bucket, until)
        self._wary.move_to_end(group)
        if len(self._wary) > _SIZE_MAX:
            self._wary.popitem(last=False)
