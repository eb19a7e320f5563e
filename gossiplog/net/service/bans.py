"""Who is banned, and the listeners that refuse the places they came from."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager

from ...pubsub.types import PeerId
from ..ground.admission import Admission

__all__ = ["Bans"]

BANNED_MAX = 4_096


class Bans:
    """Until when each peer is banned; whoever was banned the longest ago goes first."""

    def __init__(self) -> None:
        self._banned: OrderedDict[PeerId, tuple[float, str]] = OrderedDict()
        self._admissions: list[Admission] = []

    def add(self, peer: PeerId, until: float, origin: str | None, reason: str) -> None:
        """Ban a peer until a time for a reason, and the place it came from, unless that is None, at every listener."""
        if origin is not None:
            for admission in self._admissions:
                admission.ban(origin, until)
        self._banned[peer] = until, reason
        self._banned.move_to_end(peer)
        if len(self._banned) > BANNED_MAX:
            self._banned.popitem(last=False)

    def until(self, peer: PeerId, now: float) -> float | None:
        """Say until when a peer is banned; None if it is not."""
        until, _ = self._banned.get(peer, (now, ""))
        return until if until > now else None

    def standing(self, now: float) -> list[tuple[PeerId, float, str]]:
        """Show who is banned, until when and why."""
        return [(peer, until, reason) for peer, (until, reason) in self._banned.items() if until > now]

    @contextmanager
    def told_to(self, admission: Admission) -> Iterator[None]:
        """Have a listener refuse the places that are banned, for the length of a block."""
        self._admissions.append(admission)
        try:
            yield
        finally:
            self._admissions.remove(admission)
