"""What was refused, so that it is refused again without work, and who brought it, so that it stops."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from ..limits import TokenBucket, keep_newest
from ..pubsub.types import PeerId
from .peers import LogPeer

REJECTED_MAX = 100_000
"""Ids, about 150 bytes each."""
OFFENDERS_MAX = 4_096
"""Names whose offences are remembered, and names banned, each; who offended last the longest ago goes first."""
OFFENCES_MAX = 5
BAN_S = 600.0
"""How long a ban lasts, and after which an offence is forgotten."""
BROKEN_STREAMS_MAX = 100
"""Streams on which a peer broke the protocol that make one offence: a mistake of its program is no attack, and thousands are."""
SLOWED_PER_S = 10.0
"""Entries that are verified in a second from all strangers of a place where others offended."""
ORIGINS_MAX = 4_096
DEPARTED_MAX = 1_024
"""Peers that have left and whose entries may still be judged: leaving in time must not save anybody from the blame."""


class RejectedIds:
    """The ids of what no replica may accept: SHA-256 of whole messages, and the true keys of entries; least recently met goes first.

    Never a key as somebody claimed it: else one forged message under an honest entry's key would keep that entry out for good.

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
    """Rejects by name: five of them within ten minutes of each other, and the name is banned for ten minutes.

    They outlive connections, or reconnecting would wipe the slate clean.

    Source: docs/spec/limits.md, first row.
    """

    def __init__(self) -> None:
        self._counts: OrderedDict[str, tuple[int, float]] = OrderedDict()
        # Until when, and why.
        self._banned: OrderedDict[str, tuple[float, str]] = OrderedDict()

    def __contains__(self, name: str) -> bool:
        """Whether it has offences to its name, or is banned."""
        return name in self._counts or name in self._banned

    def __len__(self) -> int:
        """How many have offences to their name and are not banned."""
        return len(self._counts)

    def counts(self) -> dict[str, int]:
        """Return how many offences each of them has. O(peers)."""
        return {name: count for name, (count, _) in self._counts.items()}

    @property
    def banned(self) -> int:
        """How many are banned, or were and have not come back since."""
        return len(self._banned)

    def add(self, name: str, now: float, number: int = 1, reason: str = "") -> float | None:
        """Count offences. Returns until when the name is banned if these brought it about, for the last of these reasons, else None."""
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
        """Ban a name; the one that was banned the longest ago is forgotten if there are too many."""
        keep_newest(self._banned, name, (until, reason), OFFENDERS_MAX)

    def banned_until(self, name: str, now: float) -> float | None:
        """Say until when a name is banned, None if it is not."""
        if name not in self._banned:
            return None
        until, _ = self._banned[name]
        if now >= until:
            del self._banned[name]
            return None
        return until

    def standing(self) -> list[tuple[str, float, str]]:
        """Show the bans: who, until when and why. Those that have run out since nobody asked are among them. O(bans)."""
        return [(name, until, reason) for name, (until, reason) in self._banned.items()]


class Blame:
    """Who has to answer for what: the peer first, and whatever place it came from, as a new name costs it nothing.

    A place that offended too often is suspect: strangers from there are slowed. Only where nobody else is connected from it, and it is
    no place that others stand behind, is it banned.

    Attributes:
        origins: Offences by origin; what is banned there is suspect.
        departed: Who has left, the latest last.

    Source: docs/spec/limits.md, first row.
    """

    def __init__(self) -> None:
        self.peers = Offences()
        self.origins = Offences()
        self.departed: OrderedDict[PeerId, LogPeer] = OrderedDict()
        # What the strangers of each suspect place may still bring, together.
        self._allowances: OrderedDict[str, TokenBucket] = OrderedDict()

    def add(self, peer: LogPeer, others: Iterable[LogPeer], now: float, reason: str, number: int = 1) -> tuple[float | None, str | None]:
        """Count offences of a connected peer.

        Returns:
            Until when the peer is banned, None if it is not; and its origin, if that is banned with it.
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
        """Keep a peer that has left, in place of the one that left first."""
        keep_newest(self.departed, peer.id, peer, DEPARTED_MAX)

    def kept(self) -> dict[str, tuple[int, int]]:
        """Return how many are kept and how many at most, by what for."""
        banned = {"banned": (self.peers.banned, OFFENDERS_MAX), "suspect_origins": (self.origins.banned, OFFENDERS_MAX)}
        return {"offenders": (len(self.peers), OFFENDERS_MAX), **banned, "departed": (len(self.departed), DEPARTED_MAX)}

    def is_suspect(self, peer: LogPeer, now: float) -> bool:
        """Whether the peer is a stranger from a place that offended."""
        return peer.origin is not None and not peer.is_trusted and self.origins.banned_until(peer.origin, now) is not None

    def take_turn(self, peer: LogPeer, entries: int, now: float) -> tuple[int, float]:
        """Let a peer bring entries to be verified: all at once, unless it is a stranger from a place that offended.

        Returns:
            How many have to wait, and until when.
        """
        if peer.origin is None or not self.is_suspect(peer, now):
            return 0, now
        bucket = self._allowances.get(peer.origin) or TokenBucket(SLOWED_PER_S, SLOWED_PER_S, now)
        keep_newest(self._allowances, peer.origin, bucket, ORIGINS_MAX)
        waiting = entries - bucket.take(entries, now)
        return waiting, bucket.ready_at(now)
