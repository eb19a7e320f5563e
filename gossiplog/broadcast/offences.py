"""What was refused, so that it is refused again without work, and who brought it, so that it stops."""

from __future__ import annotations

from collections import OrderedDict

from ..pubsub.types import PeerId

__all__ = ["OFFENCES_MAX", "Offences", "RejectedIds"]

REJECTED_MAX = 100_000
OFFENDERS_MAX = 4_096
OFFENCES_MAX = 5
BAN_S = 600.0


class RejectedIds:
    """The ids of what no replica may accept: SHA-256 of whole messages, and the true keys of entries; least recently met goes first.

    Never a key as somebody claimed it: else one forged message under an honest entry's key would keep that entry out for good.

    Args:
        size_max: Ids remembered, about 150 bytes each.

    Source: spec/limits.md, first row.
    """

    def __init__(self, size_max: int = REJECTED_MAX) -> None:
        self.size_max = size_max
        self._ids: OrderedDict[bytes, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._ids)

    def __contains__(self, id: bytes) -> bool:
        if id not in self._ids:
            return False
        self._ids.move_to_end(id)
        return True

    def add(self, id: bytes) -> None:
        """Remember an id. O(1)."""
        self._ids[id] = None
        self._ids.move_to_end(id)
        if len(self._ids) > self.size_max:
            self._ids.popitem(last=False)


class Offences:
    """Rejects by peer: five of them within ten minutes of each other, and the peer is banned for ten minutes.

    They outlive connections, or reconnecting would wipe the slate clean.

    Args:
        offences_max: How many it takes.
        ban_s: Seconds that a ban lasts, and after which an offence is forgotten.
        size_max: Peers whose offences are remembered, and peers banned, each; whoever offended last the longest ago goes first.

    Source: spec/limits.md, first row.
    """

    def __init__(self, offences_max: int = OFFENCES_MAX, ban_s: float = BAN_S, size_max: int = OFFENDERS_MAX) -> None:
        self.size_max = size_max
        self._offences_max = offences_max
        self._ban_s = ban_s
        self._counts: OrderedDict[PeerId, tuple[int, float]] = OrderedDict()
        self._banned: OrderedDict[PeerId, float] = OrderedDict()

    def __len__(self) -> int:
        """How many peers have offences to their name and are not banned."""
        return len(self._counts)

    def counts(self) -> dict[PeerId, int]:
        """Return how many offences each of them has. O(peers)."""
        return {peer: count for peer, (count, _) in self._counts.items()}

    @property
    def banned(self) -> int:
        """How many peers are banned, or were and have not come back since."""
        return len(self._banned)

    def add(self, peer: PeerId, now: float) -> float | None:
        """Count an offence. Returns until when the peer is banned if this one brought it about, else None."""
        if self.banned_until(peer, now) is not None:
            return None
        count, last = self._counts.pop(peer, (0, now))
        count = 1 if now - last >= self._ban_s else count + 1
        if count >= self._offences_max:
            self._banned[peer] = now + self._ban_s
            if len(self._banned) > self.size_max:
                self._banned.popitem(last=False)
            return now + self._ban_s
        self._counts[peer] = (count, now)
        if len(self._counts) > self.size_max:
            self._counts.popitem(last=False)
        return None

    def banned_until(self, peer: PeerId, now: float) -> float | None:
        """Say until when a peer is banned, None if it is not."""
        until = self._banned.get(peer)
        if until is not None and now >= until:
            del self._banned[peer]
            return None
        return until
