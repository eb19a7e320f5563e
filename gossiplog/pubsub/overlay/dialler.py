"""Sending overlay messages to peers, which are dialled first if they are not connected."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ..actions import Connect, Disconnect
from ..base import PubSub
from ..params import EpisubParams
from ..rpc import OverlayMessage
from ..types import PeerId

_WAITING_MAX = 16


@dataclass(slots=True, eq=False)
class _Dial:
    """A dial in progress.

    Attributes:
        named_by: The peer that named the one we dial; None if we dial for reasons of our own.
        waiting: Messages to send once connected, at most 16.
        age: Heartbeats since the dial began.
    """

    named_by: PeerId | None
    waiting: list[OverlayMessage] = field(default_factory=list)
    age: int = 0


class OverlayDials:
    """Hold overlay messages for peers that are being dialled, and disconnect peers that we dialled and no longer use.

    One peer may make us dial a quarter of `dials_max` others at a time, all peers together three quarters: a peer that names unreachable
    ones must not keep us from dialling others.
    """

    __slots__ = ("_core", "_dialled", "_dials", "_params")

    def __init__(self, core: PubSub, params: EpisubParams) -> None:
        self._core = core
        self._params = params
        self._dials: dict[PeerId, _Dial] = {}
        self._dialled: dict[PeerId, int] = {}  # peers that we dialled, each with the heartbeats for which it has been idle

    def __len__(self) -> int:
        return len(self._dials)

    def say(self, peer: PeerId, message: OverlayMessage, *, named_by: PeerId | None = None) -> bool:
        """Send a message now, or once the peer is connected. Returns False if too many dials are in progress."""
        if peer in self._core.peers:
            self._core.draft(peer).overlay.append(message)
            return True
        if not self.dial(peer, named_by):
            return False
        waiting = self._dials[peer].waiting
        if len(waiting) < _WAITING_MAX:
            waiting.append(message)
        return True

    def dial(self, peer: PeerId, named_by: PeerId | None) -> bool:
        """Dial a peer that is not connected, unless a dial is in progress. Returns False if too many are."""
        if peer not in self._dials:
            if not self._has_room(named_by):
                return False
            self._dials[peer] = _Dial(named_by)
            self._core.out.append(Connect(peer))
        return True

    def _has_room(self, named_by: PeerId | None) -> bool:
        most = self._params.dials_max
        if named_by is None or len(self._dials) >= most:
            return len(self._dials) < most
        named = [dial.named_by for dial in self._dials.values() if dial.named_by is not None]
        return len(named) < max(1, most * 3 // 4) and named.count(named_by) < max(1, most // 4)

    def on_connected(self, peer: PeerId) -> None:
        """Send a peer that we dialled the messages that waited for it."""
        dial = self._dials.pop(peer, None)
        if dial is not None:
            self._dialled[peer] = 0
            self._core.draft(peer).overlay += dial.waiting

    def on_failed(self, peer: PeerId) -> None:
        """Drop the messages that waited for a peer."""
        self._dials.pop(peer, None)

    def on_closed(self, peer: PeerId) -> None:
        """Forget that we dialled a peer."""
        self._dialled.pop(peer, None)

    def heartbeat(self, used: Callable[[PeerId], bool]) -> list[PeerId]:
        """Disconnect peers that we dialled and have not used for `request_ticks`; return those not connected after `dial_ticks`."""
        params = self._params
        for peer, idle in list(self._dialled.items()):
            if used(peer):
                self._dialled[peer] = 0
            elif idle < params.request_ticks:
                self._dialled[peer] = idle + 1
            else:
                del self._dialled[peer]
                self._core.out.append(Disconnect(peer))
        for dial in self._dials.values():
            dial.age += 1
        return [peer for peer, dial in self._dials.items() if dial.age > params.dial_ticks]
