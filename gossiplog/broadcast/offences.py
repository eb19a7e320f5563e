"""Ids that were rejected, so that they are rejected again without work, and the offences of the peers that sent them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from ..limits import TokenBucket, keep_newest
from ..pubsub.types import PeerId
from .peers import LogPeer

REJECTED_MAX = 100_000
"""Ids, about 150 bytes each."""
OFFENDERS_MAX = 4_096
"""The most names with offences, and the most banned names. The one that offended least recently is forgotten first."""
OFFENCES_MAX = 5
BAN_S = 600.0
"""Seconds that a ban lasts, and after which an offence is forgotten."""
BROKEN_STREAMS_MAX = 100
"""This many streams on which a peer broke the protocol make one offence: one may be a mistake of its program, thousands are an attack."""
SLOWED_PER_S = 10.0
"""Entries verified per second from all strangers of a suspect origin together."""
ORIGINS_MAX = 4_096
DEPARTED_MAX = 1_024
"""Peers that have left and whose entries may still be judged: leaving in time must not spare a peer the blame."""


class RejectedIds:
    """Ids that no replica may accept: the SHA-256 of messages, and the true keys of entries. The least recently met is forgotten first.

    A key that was only claimed is never added, or a forged message under an honest entry's key would keep that entry out for good.

    Source: docs/spec/limits.md, first row.
    """

    def __init__(self) -> None:
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
        keep_newest(self._ids, id, None, REJECTED_MAX)


class Offences:
    """Offences by name: after five, each within ten minutes of the one before, the name is banned for ten minutes.

    They outlive connections, or a peer could clear its record by reconnecting.

    Source: docs/spec/limits.md, first row.
    """

    def __init__(self) -> None:
        self._counts: OrderedDict[str, tuple[int, float]] = OrderedDict()
        # Until when, and why.
        self._banned: OrderedDict[str, tuple[float, str]] = OrderedDict()

    def __contains__(self, name: str) -> bool:
        """Return whether a name has offences or is banned."""
        return name in self._counts or name in self._banned

    def __len__(self) -> int:
        """Return how many names have offences and are not banned."""
        return len(self._counts)

    def counts(self) -> dict[str, int]:
        """Return the number of offences by name. O(names)."""
        return {name: count for name, (count, _) in self._counts.items()}

    @property
    def banned(self) -> int:
        """Return how many names are banned, or were and have not come back since."""
        return len(self._banned)

    def add(self, name: str, now: float, number: int = 1, reason: str = "") -> float | None:
        """Count offences. If these lead to a ban, record the reason and return the end of the ban, else None."""
        if self.banned_until(name, now) is not None:
            return None
        count, last = self._counts.pop(name, (0, now))
        count = number if now - last >= BAN_S else count + number
        if count >= OFFENCES_MAX:
            self.ban(name, now + BAN_S, reason)
            return now + BAN_S
        keep_newest(self._counts, name, (count, now), OFFENDERS_MAX)
        return None

    def ban(self, name: str, until: float, reason: str) -> None:
        """Ban a name. If there are too many, the oldest ban is forgotten."""
        keep_newest(self._banned, name, (until, reason), OFFENDERS_MAX)

    def banned_until(self, name: str, now: float) -> float | None:
        """Return the end of a name's ban; None if it is not banned."""
        if name not in self._banned:
            return None
        until, _ = self._banned[name]
        if now >= until:
            del self._banned[name]
            return None
        return until

    def standing(self) -> list[tuple[str, float, str]]:
        """List the bans: name, end and reason. Expired ones of names that have not come back are among them. O(bans)."""
        return [(name, until, reason) for name, (until, reason) in self._banned.items()]


class Blame:
    """The offences of each peer, and of its origin, as a new peer id costs nothing.

    An origin with too many offences is suspect: strangers from there are slowed. It is banned only if it is not shared, and no
    inoffensive peer is connected from there.

    Attributes:
        origins: Offences by origin; an origin that is banned in it is suspect.
        departed: Peers that have left, the latest last.

    Source: docs/spec/limits.md, first row.
    """

    def __init__(self) -> None:
        self.peers = Offences()
        self.origins = Offences()
        self.departed: OrderedDict[PeerId, LogPeer] = OrderedDict()
        # The entries that all strangers of a suspect origin may still bring.
        self._allowances: OrderedDict[str, TokenBucket] = OrderedDict()

    def add(self, peer: LogPeer, others: Iterable[LogPeer], now: float, reason: str, number: int = 1) -> tuple[float | None, str | None]:
        """Count offences of a connected peer.

        Returns:
            The end of the peer's ban, None if it is not banned; and its origin, if that is banned as well.
        """
        until = self.peers.add(peer.id, now, number, reason)
        origin = peer.origin
        if origin is None:
            return until, None
        self.origins.add(origin, now, number)
        suspect_until = self.origins.banned_until(origin, now)
        if suspect_until is None or peer.is_origin_shared:
            return until, None
        if any(other.origin == origin and other.id != peer.id and other.id not in self.peers for other in others):
            return until, None
        self.peers.ban(peer.id, suspect_until, reason)
        return suspect_until, origin

    def on_left(self, peer: LogPeer) -> None:
        """Remember a peer that has left, if need be in place of the one that left first."""
        keep_newest(self.departed, peer.id, peer, DEPARTED_MAX)

    def kept(self) -> dict[str, tuple[int, int]]:
        """Return the size and the maximum of each container."""
        banned = {"banned": (self.peers.banned, OFFENDERS_MAX), "suspect_origins": (self.origins.banned, OFFENDERS_MAX)}
        return {"offenders": (len(self.peers), OFFENDERS_MAX), **banned, "departed": (len(self.departed), DEPARTED_MAX)}

    def is_suspect(self, peer: LogPeer, now: float) -> bool:
        """Return whether the peer is a stranger from a suspect origin."""
        return peer.origin is not None and not peer.is_trusted and self.origins.banned_until(peer.origin, now) is not None

    def take_turn(self, peer: LogPeer, entries: int, now: float) -> tuple[int, float]:
        """Let a peer bring entries to be verified: all at once, unless it is a stranger from a suspect origin.

        Returns:
            How many of them have to wait, and until when.
        """
        if peer.origin is None or not self.is_suspect(peer, now):
            return 0, now
        bucket = self._allowances.get(peer.origin) or TokenBucket(SLOWED_PER_S, SLOWED_PER_S, now)
        keep_newest(self._allowances, peer.origin, bucket, ORIGINS_MAX)
        waiting = entries - bucket.take(entries, now)
        return waiting, bucket.ready_at(now)
