"""Saying things to peers that may have to be dialled first."""

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
    """A connection that was asked for.

    Attributes:
        named_by: The peer on whose word we dial; None: nobody's.
        waiting: What is said once it stands.
        age: Heartbeats since.
    """

    named_by: PeerId | None
    waiting: list[OverlayMessage] = field(default_factory=list)
    age: int = 0


class OverlayDials:
    """Hold overlay messages for peers that are being dialled, and let go of connections that served their turn.

    One peer may make us dial a quarter of `dials_max` others at a time, all together three quarters: whoever names peers that
    are not there must not keep us from those that are.
    """

    __slots__ = ("_core", "_dialled", "_dials", "_params")

    def __init__(self, core: PubSub, params: EpisubParams) -> None:
        self._core = core
        self._params = params
        self._dials: dict[PeerId, _Dial] = {}
        self._dialled: dict[PeerId, int] = {}  # connections that we opened, and how many heartbeats they have been idle

    def __len__(self) -> int:
        return len(self._dials)

    def say(self, peer: PeerId, message: OverlayMessage, *, named_by: PeerId | None = None) -> bool:
        """Say something now or once connected. False if it cannot even be tried."""
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
        """Have a peer dialled that is not connected, unless it is being. False if too many are."""
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
        """Say what waited."""
        dial = self._dials.pop(peer, None)
        if dial is not None:
            self._dialled[peer] = 0
            self._core.draft(peer).overlay += dial.waiting

    def on_failed(self, peer: PeerId) -> None:
        """Give up what waited."""
        self._dials.pop(peer, None)

    def on_closed(self, peer: PeerId) -> None:
        """A connection closed."""
        self._dialled.pop(peer, None)

    def heartbeat(self, used: Callable[[PeerId], bool]) -> list[PeerId]:
        """Let go of what we dialled and nobody has used for `request_ticks`, and say which dials came to nothing in `dial_ticks`."""
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
