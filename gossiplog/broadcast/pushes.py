"""The push streams: when they are opened, who is told our heads, and who is sent an entry."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from math import inf
from random import Random
from types import MappingProxyType

from ..codec.framing import FRAME_BYTES_MAX
from ..entry.message import Entry
from ..log.requests import ReadHeads
from ..plan import ask
from ..pubsub.actions import SetTimer
from ..pubsub.types import PeerId, TimerToken
from ..sync.rpc import HEADS_MAX, Insert, Update
from ..sync.wire import encode_event
from .actions import OpenPush, Push, SpreadingAction
from .events import PeerKind
from .peers import LogPeer
from .pending import Arrival
from .wanted_syncs import Asker

BY_PUSH = (PeerKind.CLIENT, PeerKind.HUB)
"""Who get entries by pushes alone."""
NOBODY: Mapping[PeerId, int] = MappingProxyType({})
PUSH_TIMER = TimerToken("broadcast.push")
AGAIN_TIMER = TimerToken("broadcast.heads")
TELL_AGAIN_S = 15.0
"""How long after a change all are told our heads once more, then after twice as long and so on. An update may be lost where it arrives: the
reference drops one that comes while it syncs, and a peer that was asked for what it forwards may forward nothing.
"""
TELL_AGAIN_S_MAX = 300.0
PUSH_AGAIN_S = 1.0
"""How long a peer whose queue was full is left alone before it is told our heads."""
SETTLE_S = 3.0
"""How long it takes until a new peer of the mesh surely gets what is published: its subscription arrives, then a heartbeat grafts it.

What is forwarded to others before that goes past it, and gossip does not make up for it, as a router gossips only to peers that are
not grafted. So the peer is told our heads once more, a deviation from the specification without which an entry would be missing
there until somebody appends again.
"""


class Pushes:
    """What leaves by push streams.

    Heads are read once for all who are to be told before the answer is here, but never before they were to be told, or they might
    be told heads older than what made us tell them. A push that was dropped is made good by an update: the peer will sync.

    Args:
        random: For the times at which heads are told again.
        tell_again_s: How long after a change for the first time; infinity: never.

    Attributes:
        now: Seconds; the caller sets it before any call.
        changes: How many entries have been spread; `on_change` counts them.
        opened: How many push streams have been opened.

    Source: docs/spec/sync.md, "Reliable causal broadcast" and "Mode A".
    """

    def __init__(
        self, peers: Mapping[PeerId, LogPeer], log: Asker, emit: Callable[[SpreadingAction], None], random: Random, tell_again_s: float
    ) -> None:
        self._peers = peers
        self._ask = log
        self._emit = emit
        self._reading_for: dict[PeerId, None] = {}
        self._waiting: dict[PeerId, None] = {}
        self._timer: float | None = None
        self._random = random
        self._again_at: float | None = None
        self._again_s = self._again_s_min = tell_again_s
        self.now = 0.0
        self.changes = self.opened = 0

    def on_change(self, entries: int) -> None:
        """Count new entries, and tell everybody our heads in a while."""
        self.changes += entries
        self._again_s = self._again_s_min
        at = self.now + self._again_s_min
        if at < (inf if self._again_at is None else self._again_at):
            self._tell_again_at(at)

    def on_again(self) -> None:
        """Tell everybody our heads, and again later, each time after a longer while, at random up to a quarter longer."""
        self._again_at = None
        peers = self.others()
        if peers:
            self.heads(peers)
            self._again_s = min(2 * self._again_s, TELL_AGAIN_S_MAX)
            self._tell_again_at(self.now + self._again_s * (1 + self._random.random() / 4))

    def _tell_again_at(self, at: float) -> None:
        self._again_at = at
        self._emit(SetTimer(AGAIN_TIMER, at))

    def insert(self, data: bytes, kinds: Collection[PeerKind], owners: Mapping[PeerId, int]) -> None:
        """Send an encoded insert to all peers of these kinds but those that it came from; one that fits no frame is told by our heads."""
        if len(data) > FRAME_BYTES_MAX:
            self.heads_to_all_but(owners, kinds=kinds)
            return
        peers = self.others(owners, kinds=kinds)
        if peers:
            self._emit(Push(tuple(peers), data))

    def heads(self, peers: Iterable[PeerId]) -> None:
        """Tell some peers our heads, at most 1,000, the lowest first."""
        self._waiting.update(dict.fromkeys(peers))
        if self._waiting and not self._reading_for:
            self._reading_for, self._waiting = self._waiting, {}
            self._ask(ask(ReadHeads(HEADS_MAX)), self._on_heads, None)

    def heads_to_all_but(self, owners: Mapping[PeerId, int] = NOBODY, *, kinds: Collection[PeerKind] = tuple(PeerKind)) -> None:
        """Tell everybody of these kinds but some our heads, which have changed."""
        self.on_change(0)
        self.heads(self.others(owners, kinds=kinds))

    def synced(self, entries: Sequence[Entry], source: PeerId | None, how: Callable[[bytes], Arrival | None]) -> None:
        """Tell of what a sync brought: by these entries, if it is so little, as our heads would have each client and hub sync for them.

        In a mesh others get the same by other ways, and nothing is published again: it is told our heads. So is everybody if something was
        passed on before the sync stored it: peers that have it start nothing, and one that it did not reach syncs.

        Args:
            entries: The entries that the sync brought; empty where they are many.
            source: With whom it was; None for entries that no peer brought.
            how: Says how the entry of a key came by another way.
        """
        kinds: Collection[PeerKind] = (PeerKind.MESH,) if entries else tuple(PeerKind)
        owners = NOBODY if source is None else {source: self.opened}
        for entry in entries:
            self.on_change(1)
            arrival = how(entry.key)
            if arrival is not None and arrival.is_spread:
                kinds = tuple(PeerKind)
            else:
                sources = arrival.sources if arrival is not None else NOBODY
                self.insert(encode_event(Insert(entry.key, entry.value)), BY_PUSH, {**sources, **owners})
        self.heads_to_all_but(owners, kinds=kinds)

    def others(self, owners: Mapping[PeerId, int] = NOBODY, *, kinds: Collection[PeerKind] = tuple(PeerKind)) -> list[PeerId]:
        """List the peers of these kinds that can be pushed to, but for those that something came from.

        Args:
            owners: Who brought it, each with the value of `opened` then. A peer whose stream was opened later may have lost it since.
        """
        able = (peer for peer in self._peers.values() if peer.is_push_open and peer.kind in kinds)
        return [peer.id for peer in able if peer.opened_at > owners.get(peer.id, -1)]

    def on_connected(self, peer: LogPeer) -> None:
        """Open the stream if that is our part."""
        if peer.opens_push:
            self._emit(OpenPush(peer.id))

    def on_opened(self, peer: LogPeer) -> None:
        """Tell the peer our heads; it does the same."""
        peer.is_push_open, peer.reopen_at = True, None
        self.opened += 1
        peer.opened_at = self.opened
        peer.told_at = self.changes
        self.heads([peer.id])
        self.on_change(0)
        if peer.kind is PeerKind.MESH:
            peer.settles_at = self.now + SETTLE_S
            self._set_timer()

    def on_stored(self, since: int) -> None:
        """Something is stored that was passed on when so many streams had been opened: on later ones heads were told that lack it."""
        if self.opened > since:
            self.heads([peer.id for peer in self._peers.values() if peer.is_push_open and peer.opened_at > since])

    def on_closed(self, peer: LogPeer) -> None:
        """Stop writing; open it again in a while if it was ours to open, each time after a longer one."""
        peer.is_push_open, peer.settles_at = False, None
        if peer.opens_push and peer.reopen_at is None:
            peer.reopen_at = self.now + peer.reopening.next()
            self._set_timer()

    def on_dropped(self, peer: LogPeer) -> None:
        """Make good for a push that the peer did not get."""
        if not peer.is_behind:
            peer.is_behind = True
            self._set_timer()

    def on_timer(self) -> None:
        """Do what was put off."""
        self._timer = None
        untold = []
        for peer in self._peers.values():
            has_settled = peer.settles_at is not None and peer.settles_at <= self.now
            if peer.is_behind or (has_settled and peer.told_at != self.changes):
                untold.append(peer.id)
                peer.is_behind, peer.told_at = False, self.changes
            if has_settled:
                peer.settles_at = None
        self.heads(untold)
        for peer in self._peers.values():
            if peer.reopen_at is not None and peer.reopen_at <= self.now:
                peer.reopen_at = None
                self._emit(OpenPush(peer.id))
        self._set_timer()

    def _on_heads(self, heads: list[bytes]) -> None:
        wanted, self._reading_for = self._reading_for, {}
        peers = [id for id in wanted if (peer := self._peers.get(id)) is not None and peer.is_push_open]
        if peers:
            self._emit(Push(tuple(peers), encode_event(Update(heads))))
        self.heads(())

    def _set_timer(self) -> None:
        times = [at for peer in self._peers.values() for at in (peer.reopen_at, peer.settles_at) if at is not None]
        if any(peer.is_behind for peer in self._peers.values()):
            times.append(self.now + PUSH_AGAIN_S)
        if times and (self._timer is None or min(times) < self._timer):
            self._timer = min(times)
            self._emit(SetTimer(PUSH_TIMER, self._timer))
