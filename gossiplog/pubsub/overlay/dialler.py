"""Saying things to peers that may have to be dialled first."""

from __future__ import annotations

from collections.abc import Callable

from ..actions import Connect, Disconnect
from ..base import PubSub
from ..types import PeerId
from .messages import OverlayMessage

__all__ = ["Dialler"]

_WAITING_MAX = 16


class Dialler:
    """Hold overlay messages for peers that are being dialled, and let go of connections that served their turn.

    Args:
        core: The router.
        dials_max: Peers with messages waiting; further ones are not dialled.
    """

    __slots__ = ("_core", "_dialled", "_dials_max", "_waiting")

    def __init__(self, core: PubSub, dials_max: int) -> None:
        self._core = core
        self._dials_max = dials_max
        self._waiting: dict[PeerId, list[OverlayMessage]] = {}
        self._dialled: dict[PeerId, int] = {}  # connections that we opened, and how many heartbeats they have been idle

    def __len__(self) -> int:
        return len(self._waiting)

    def say(self, peer: PeerId, message: OverlayMessage) -> bool:
        """Say something now or once connected. False if it cannot even be tried."""
        core = self._core
        if peer in core.peers:
            core.draft(peer).overlay.append(message)
            return True
        waiting = self._waiting.get(peer)
        if waiting is None:
            if len(self._waiting) >= self._dials_max:
                return False
            self._waiting[peer] = waiting = []
            core.out.append(Connect(peer))
        if len(waiting) < _WAITING_MAX:
            waiting.append(message)
        return True

    def on_connected(self, peer: PeerId) -> None:
        """Say what waited."""
        waiting = self._waiting.pop(peer, None)
        if waiting:
            self._dialled[peer] = 0
            self._core.draft(peer).overlay += waiting

    def on_failed(self, peer: PeerId) -> None:
        """Give up what waited."""
        self._waiting.pop(peer, None)

    def on_closed(self, peer: PeerId) -> None:
        """A connection closed."""
        self._dialled.pop(peer, None)

    def release(self, used: Callable[[PeerId], bool], ticks: int) -> None:
        """Let go of what we dialled and nobody has used for `ticks` heartbeats; once a heartbeat."""
        for peer, idle in list(self._dialled.items()):
            if used(peer):
                self._dialled[peer] = 0
            elif idle < ticks:
                self._dialled[peer] = idle + 1
            else:
                del self._dialled[peer]
                self._core.out.append(Disconnect(peer))
