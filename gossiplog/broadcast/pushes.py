"""The push streams: when to open them, and which peers to tell our heads or send an entry."""

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
from ..sync.rpc import HEADS_MAX, HEADS_READ_MAX, Insert, Update
from ..sync.wire import encode_event
from .actions import OpenPush, Push, SpreadingAction
from .events import PeerKind
from .peers import LogPeer
from .pending import Arrival
from .wanted_syncs import Asker

BY_PUSH = (PeerKind.CLIENT, PeerKind.HUB)
"""The kinds of peers that get entries by pushes alone."""
NOBODY: Mapping[PeerId, int] = MappingProxyType({})
PUSH_TIMER = TimerToken("broadcast.push")
AGAIN_TIMER = TimerToken("broadcast.heads")
TELL_AGAIN_S = 15.0
"""Seconds after a change until all peers are told our heads again; each next interval is twice as long. An update may be lost on arrival:
the reference drops one that comes while it syncs, and a peer that others rely on to forward entries may forward none.
"""
TELL_AGAIN_S_MAX = 300.0
PUSH_AGAIN_S = 1.0
"""Seconds after a push was dropped because a peer's queue was full until the peer is told our heads."""
SETTLE_S = 3.0
"""Seconds until a new peer of the mesh surely gets published messages: its subscription arrives, then a heartbeat grafts it.

Messages forwarded before that miss the peer, and gossip does not make up for it, as a router gossips only to peers that are not
grafted. So the peer is told our heads once more. This deviates from the specification; without it the peer would lack an entry until
somebody appends again.
"""


class Pushes:
    """Sends entries and heads on the push streams.

    One read of the heads serves all peers that wait for it when it begins. Peers added during the read wait for the next one, as the
    heads being read may be older than the change that they are to be told. A dropped push is made up for by an update, as the peer
    then syncs.

    Args:
        random: Draws the times at which heads are told again.
        tell_again_s: Seconds after a change until heads are told again for the first time; infinity: never.

    Attributes:
        now: Seconds; the caller sets it before any call.
        changes: How many entries have been spread; `on_change` counts them.
        opened: How many push streams have been opened so far.

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
        """Count new entries, and tell all peers our heads in a while."""
        self.changes += entries
        self._again_s = self._again_s_min
        at = self.now + self._again_s_min
        if at < (inf if self._again_at is None else self._again_at):
            self._tell_again_at(at)

    def on_again(self) -> None:
        """Tell all peers our heads, and again after twice the last interval, randomly up to a quarter longer."""
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
        """Send an encoded insert to all peers of these kinds except its owners; if it fits no frame, tell them our heads instead."""
        if len(data) > FRAME_BYTES_MAX:
            self.heads_to_all_but(owners, kinds=kinds)
            return
        peers = self.others(owners, kinds=kinds)
        if peers:
            self._emit(Push(tuple(peers), data))

    def heads(self, peers: Iterable[PeerId]) -> None:
        """Tell some peers our heads, at most 1,000."""
        self._waiting.update(dict.fromkeys(peers))
        if self._waiting and not self._reading_for:
            self._reading_for, self._waiting = self._waiting, {}
            self._ask(ask(ReadHeads(HEADS_READ_MAX)), self._on_heads, None)

    def heads_to_all_but(self, owners: Mapping[PeerId, int] = NOBODY, *, kinds: Collection[PeerKind] = tuple(PeerKind)) -> None:
        """Tell our heads, which have changed, to all peers of these kinds except the owners."""
        self.on_change(0)
        self.heads(self.others(owners, kinds=kinds))

    def synced(self, entries: Sequence[Entry], source: PeerId | None, how: Callable[[bytes], Arrival | None]) -> None:
        """Pass on the entries of a sync: push them to clients and hubs, which would each have to sync if they were told our heads.

        Peers of the mesh get the entries in other ways, so nothing is published again, and they are told our heads. All peers are told them
        if an entry had been passed on before the sync stored it: a peer that has the entry does nothing, and any other syncs.

        Args:
            entries: The entries that the sync brought; empty if they are too many to push.
            source: The peer synced with; None for entries that no peer brought.
            how: Returns how the entry of a key came by another way.
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
        """List the peers of these kinds with an open push stream, except the owners.

        Args:
            owners: Peers that brought the entry, each with the value of `opened` then. One whose stream was opened later may have lost the
                entry since, and is listed.
        """
        able = (peer for peer in self._peers.values() if peer.is_push_open and peer.kind in kinds)
        return [peer.id for peer in able if peer.opened_at > owners.get(peer.id, -1)]

    def on_connected(self, peer: LogPeer) -> None:
        """Open the stream if it is ours to open."""
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
        """Tell heads on the streams opened since: they were told heads without an entry that had been passed on and is stored only now."""
        if self.opened > since:
            self.heads([peer.id for peer in self._peers.values() if peer.is_push_open and peer.opened_at > since])

    def on_closed(self, peer: LogPeer) -> None:
        """Stop writing. If the stream is ours to open, open it again after a pause, which grows each time."""
        peer.is_push_open, peer.settles_at = False, None
        if peer.opens_push and peer.reopen_at is None:
            peer.reopen_at = self.now + peer.reopening.next()
            self._set_timer()

    def on_dropped(self, peer: LogPeer) -> None:
        """Tell the peer our heads in a while, as it did not get a push."""
        if not peer.is_behind:
            peer.is_behind = True
            self._set_timer()

    def on_timer(self) -> None:
        """Tell the heads and open the streams that are due."""
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
        if len(heads) > HEADS_MAX:
            # The highest are the newest. The others take turns by chance, as heads are told again.
            others, highest = heads[: -HEADS_MAX // 2], heads[-HEADS_MAX // 2 :]
            heads = sorted(self._random.sample(others, HEADS_MAX - len(highest))) + highest
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
