"""How entries spread: which are forwarded, which peers are told our heads, and which peers we sync with.

    pubsub      the router asks to validate → InsertEntry → ACCEPT: it forwards · IGNORE: sync with the source · REJECT: penalty
    push        an insert → InsertEntry → new: published, and pushed to WebSocket clients and hubs · an update → missing heads → sync
    orphans     an entry without its parents → kept; when the last parent comes → InsertEntry again → as if it had come now
    foreseen    an InsertEntry that can only be accepted → passed on at once, both ways
    sync        StartSync → SyncFinished → with new entries: a few are pushed; else update(heads) to everybody but the source
    too large   for pubsub: update(heads) to the mesh instead, after the commit
    own entries published, pushed to WebSocket clients and to the hubs whose client we are

**Theory of operation.** Two ways carry an entry: pubsub among the peers of a mesh, as the router decides, and push streams between clients
and hubs. An entry that comes either way becomes an `InsertEntry`. The intake answers with `EntryDecided`, and before that
with `EntryForeseen` if nothing can go wrong any more. The first of the two that allows it passes the entry on, both ways, to all peers but
those that brought it. Neither way is reliable, so we tell a peer our heads whenever it may have missed an entry: when its stream opens,
after a push was dropped, after a sync, and some time after a change. Heads that we lack, orphans and entries that our disk refused are
fetched by a sync with the peer that named them. So an entry arrives if any path of peers leads to it; the fast ways only make it sooner.

**Invariants.**
1. An `InsertEntry` is among `PendingInserts` until its `EntryDecided`. The router's question about it is answered once, then or when the
   entry is foreseen.
2. An entry is passed on at most once each way, and never back to a peer that is known to have brought it since its stream was opened.
3. Only entries that were foreseen, or accepted as new, are passed on. If a foreseen entry was not stored at first, our heads are told when
   it is.
4. A peer is blamed for each invalid entry or message that it brings, even after it has left, and nobody else is. Nobody is blamed for
   orphans, for faults of our own disk, or by rules of our own.
5. A banned peer is disconnected here in the same step, and `Ban` has the driver disconnect it everywhere else.
6. An entry or head that a peer named and we lack is wanted from that peer until it comes, is rejected, or the peer leaves, within the
   bounds of `WantedSyncs`. If a client may not push, it is refused instead. When a server leaves, every other server is asked once for
   the keys that it named and we still lack.
7. Each container that a peer can feed has a maximum; `state` shows both.
8. An answer, timer or result that is late, duplicate or unknown is harmless.

Source: docs/spec/sync.md, "Reliable causal broadcast" and "Mode A".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from random import Random
from typing import TypeAlias, assert_never

from ..entry.message import Entry
from ..entry.validation import LATER, Outcome, Rule, Verdict
from ..errors import DecodeError
from ..pubsub.actions import AnotherSource, Validate
from ..pubsub.events import Outcome as PubsubOutcome
from ..pubsub.events import Publish, Subscribe, TimerFired, Unsubscribe, Validated
from ..pubsub.router import RouterState
from ..pubsub.rpc import Message
from ..pubsub.types import MessageId, PeerId, TimerToken, Topic
from ..sync.result import Ending
from ..sync.rpc import Insert, Update
from ..sync.wire import UnknownMessage, decode_event, encode_event
from . import events
from .actions import Ban, ClosePush, EntriesAppended, EntryDecided, EntryForeseen, InsertEntry, PushRefused, SpreadingAction, Unwelcome
from .allowance import Bringer
from .offences import BROKEN_STREAMS_MAX, OFFENCES_MAX, REJECTED_MAX, RejectedIds
from .orphans import ORPHANS_MAX, OUT_FOR_GOOD, Orphans
from .peers import PUSHED_MAX, LogPeer
from .pending import ARRIVALS_MAX, PendingInserts
from .pushes import AGAIN_TIMER, BY_PUSH, PUSH_TIMER, TELL_AGAIN_S, Pushes
from .questions import HeadsCheck, Questions
from .shared_router import SharedRouter
from .wanted_syncs import SYNC_TIMER, WantedSyncs

PUBLISHED_BYTES_MAX = 56 * 1024 - 256
"""The largest message that is published: with its topic it fits a frame that every implementation accepts (`WireLimits.out_bytes_max`)."""
PUBLISHED_MAX = 200
"""Up to this many new entries of one commit are published one by one. After a larger commit, such as an import, we tell our heads."""
Told: TypeAlias = events.SpreadingEvent | EntryForeseen | EntryDecided | EntriesAppended
"""Events from outside, and those of the intake."""
_OUTCOMES = {outcome: PubsubOutcome(outcome.value) for outcome in Outcome}


@dataclass(frozen=True, slots=True)
class BroadcastState:
    """The machine at one moment, as values that a page or a terminal can draw.

    Attributes:
        kinds: The kind of each connected peer.
        pushing: Peers with an open push stream.
        offences: The number of offences by peer, connected or not; the fifth is a ban.
        bans: Banned peers, each with the end of its ban on the driver's clock, and the reason. Some bans may have expired.
        sizes: The size of each container that a peer can feed, by name.
    """

    router: RouterState
    kinds: Mapping[PeerId, events.PeerKind]
    pushing: tuple[PeerId, ...]
    offences: Mapping[str, int]
    bans: Sequence[tuple[str, float, str]]
    sizes: Mapping[str, int]
    sizes_max: Mapping[str, int]


class Spreading:
    """The machine; see the module's docstring. `Broadcast` hands it the events of one log, and passes its actions on.

    Args:
        tell_again_s: Seconds after a change until all peers are told our heads again, needed or not; infinity: never.
    """

    def __init__(self, shared: SharedRouter, topic: str, random: Random, *, tell_again_s: float = TELL_AGAIN_S) -> None:
        # The router and the offences of peers, which all logs of the process share.
        self._shared = shared
        self._topic = Topic(topic)
        self._random = random
        # The time of the current call, and its actions so far.
        self._now = 0.0
        self._out: list[SpreadingAction] = []
        # Connected peers of all kinds.
        self._peers: dict[PeerId, LogPeer] = {}
        # Ids that no replica may accept; they are refused again without work.
        self.rejected = RejectedIds()
        # Questions that our log has not answered yet.
        self._questions = Questions(self._emit)
        # Entries in the intake, and how each came; also of entries that something else has stored since.
        self._pending = PendingInserts(self._emit)
        ask = self._questions.ask
        # The peers to sync with, for which keys, and the running syncs.
        self._wanted_syncs = WantedSyncs(random, ask, self._emit)
        # Entries that came before their parents.
        self.orphans = Orphans(ask, self._want, self._pending.insert, self._pending.are_coming)
        # Push streams, open or to be opened, and the peers to be told our heads.
        self._pushes = Pushes(self._peers, ask, self._emit, random, tell_again_s)
        # The latest heads of each peer that our log has not been asked about.
        self._heads_check = HeadsCheck(self.rejected, ask, self._on_lacking)

    def handle(self, event: Told, now: float) -> list[SpreadingAction]:
        """Handle one event and return the actions that follow. Raises nothing, whatever a peer sent.

        Args:
            now: Seconds on the driver's clock; not less than in the call before.
        """
        self._now = self._wanted_syncs.now = self._pushes.now = now
        self._out = []
        self._on_event(event)
        if self._wanted_syncs.has_changed:
            self._wanted_syncs.set_timer()
        return self._out

    def state(self) -> BroadcastState:
        """Show the machine as values. O(peers); changes nothing."""
        router, blamed = self._shared.router.state(), self._shared.blamed
        kept = {
            "pending": (len(self._pending), router.sizes_max["pending"] + PUSHED_MAX * len(self._peers) + ORPHANS_MAX),
            "arrivals": (self._pending.arrivals, ARRIVALS_MAX),
            "pushed_per_peer": (max((peer.pushed for peer in self._peers.values()), default=0), PUSHED_MAX),
            "asked": (len(self._questions), 2 + 2 * len(self._peers)),
            "rejected": (len(self.rejected), REJECTED_MAX),
            **blamed.kept(),
            **self.orphans.kept(),
            **self._wanted_syncs.kept(),
        }
        sizes, sizes_max = ({name: pair[which] for name, pair in kept.items()} for which in (0, 1))
        kinds = {peer.id: peer.kind for peer in self._peers.values()}
        pushing = tuple(peer.id for peer in self._peers.values() if peer.is_push_open)
        return BroadcastState(router, kinds, pushing, blamed.peers.counts(), blamed.peers.standing(), sizes, sizes_max)

    # The turn

    def _on_event(self, event: Told) -> None:
        match event:
            case EntryDecided(entry, verdict):
                self._on_decided(entry, verdict)
            case Validate():
                self._on_validate(event)
            case events.LogAnswered(token, answer):
                self._questions.on_answered(token, answer)
            case TimerFired(token):
                self._on_timer(token)
            case EntriesAppended(entries):
                self._on_appended(entries)
            case events.PushReceived(peer, data):
                self._on_push_received(peer, data)
            case events.SyncFinished():
                self._on_sync_finished(event)
            case events.Connected():
                self._on_connected(event)
            case events.Disconnected(peer):
                self._on_disconnected(peer)
            case events.PushChanged() | events.PushOpened() | events.PushClosed() | events.PushDropped():
                self._on_push_stream(event)
            case EntryForeseen(entry, found):
                self._on_foreseen(entry, found)
            case events.Misbehaved():
                self._on_misbehaved(event)
            case events.SyncServed(peer):
                self._on_sync_served(peer)
            case events.StartBroadcast():
                self._route(Subscribe(self._topic))
            case events.StopBroadcast():
                for message_id in self._pending.message_ids():
                    self._route(Validated(message_id, PubsubOutcome.IGNORE))  # nobody decides on it any more
                self._route(Unsubscribe(self._topic))
                for peer_id in list(self._peers):
                    self._on_disconnected(peer_id)
            case AnotherSource(message_id, _, source):
                key = self.orphans.key_in(message_id)
                if key is not None:
                    self._want(source, [key])
            case _:  # pragma: no cover - mypy proves it
                assert_never(event)

    def _emit(self, action: SpreadingAction) -> None:
        self._out.append(action)

    def _route(self, event: Publish | Subscribe | Unsubscribe | Validated) -> None:
        self._out += self._shared.handle(event, self._now)

    def _on_timer(self, token: TimerToken) -> None:
        if token == SYNC_TIMER:
            self._wanted_syncs.on_timer()
        elif token == PUSH_TIMER:
            self._pushes.on_timer()
        elif token == AGAIN_TIMER:
            self._pushes.on_again()

    # Peers

    def _on_connected(self, event: events.Connected) -> None:
        if event.peer in self._peers:
            return
        until = self._shared.banned_until(event.peer, self._now)
        if until is not None:
            self._emit(Ban(event.peer, until, "banned before"))
            return
        peer = self._peers[event.peer] = LogPeer.of(event, self._random)
        self._wanted_syncs.on_connected(event.peer, event.address)
        self._out += self._shared.attach(self._topic, peer, event.protocol, self._now)
        self._pushes.on_connected(peer)

    def _on_disconnected(self, peer_id: PeerId) -> None:
        peer = self._peers.pop(peer_id, None)
        if peer is not None:
            self._questions.on_left(peer_id)
            lacking = self._wanted_syncs.on_left(peer_id)
            if peer.kind is not events.PeerKind.CLIENT:
                self._want_orphaned(lacking)
            self._out += self._shared.detach(self._topic, peer_id, self._now)

    def _on_push_stream(self, event: events.PushChanged | events.PushOpened | events.PushClosed | events.PushDropped) -> None:
        peer = self._peers.get(event.peer)
        if peer is None:
            return
        if isinstance(event, events.PushChanged):
            opened_before, peer.opens_push = peer.opens_push, event.has_push and peer.kind is events.PeerKind.MESH and peer.is_outbound
            if not opened_before and not peer.is_push_open:
                self._pushes.on_connected(peer)
        elif isinstance(event, events.PushOpened):
            self._pushes.on_opened(peer)
        elif isinstance(event, events.PushClosed):
            self._pushes.on_closed(peer)
        else:
            self._pushes.on_dropped(peer)

    def _blame(self, peer_id: PeerId, reason: str, number: int = 1) -> None:
        until, origin, parting = self._shared.blame(peer_id, self._now, reason, number)
        if until is not None:
            self._emit(Ban(peer_id, until, reason, origin))
            self._on_disconnected(peer_id)
            self._out += parting

    def _on_misbehaved(self, event: events.Misbehaved) -> None:
        peer = self._peers.get(event.peer)
        if peer is not None and event.is_grave:
            self._blame(event.peer, event.reason)
        elif peer is not None:
            peer.broken_streams += 1
            if peer.broken_streams % BROKEN_STREAMS_MAX == 0:
                self._blame(event.peer, f"{peer.broken_streams} sync streams that break the protocol: {event.reason}")

    # Entries

    def _on_appended(self, entries: Sequence[Entry]) -> None:
        if len(entries) > PUBLISHED_MAX:
            self._pushes.synced((), None, self._pending.take_arrival)
            self.orphans.on_synced()
            return
        for entry in entries:
            arrival = self._pending.take_arrival(entry.key)  # known if peers brought an entry that was posted as well
            if arrival is not None and arrival.is_spread:
                self._pushes.heads_to_all_but()
            else:
                data = encode_event(Insert(entry.key, entry.value))
                owners = arrival.sources if arrival is not None else {}
                self._pushes.on_change(1)
                self._publish(data, owners)
                self._pushes.insert(data, BY_PUSH, owners)
            self.orphans.on_decided(entry.key, is_settled=True)

    def _publish(self, data: bytes, owners: Mapping[PeerId, int]) -> None:
        if len(data) > PUBLISHED_BYTES_MAX:
            self._pushes.heads_to_all_but(owners, kinds=(events.PeerKind.MESH,))
        elif self._shared.has_mesh:
            self._route(Publish(Message.of(self._topic, data)))

    def _on_validate(self, action: Validate) -> None:
        """Insert the entry of a pubsub message, or answer at once if there is none."""
        message, source = action.message, action.source
        try:
            event = decode_event(message.data)
        except UnknownMessage as error:
            self._emit(Unwelcome(source, str(error)))
            self._route(Validated(message.id, PubsubOutcome.IGNORE))
            return
        except DecodeError as error:
            reason = f"malformed message: {error}"
            self._emit(Unwelcome(source, reason, is_blamed=True))
            self._blame(source, reason)
            self._reject(source, message.id, reason)
            return
        if isinstance(event, Update):
            # Heads have no place in pubsub. The reference ignores them there, and so does not penalise their sender.
            self._route(Validated(message.id, PubsubOutcome.IGNORE))
            return
        if message.id in self.rejected or event.key in self.rejected:
            # Under a rejected key comes either the same entry again, in whatever wrapping, or another one under a false key.
            self._blame(source, "an entry that was rejected before")
            self._reject(source, message.id, "an entry that was rejected before")
            return
        is_usual = len(message.data) <= PUBLISHED_BYTES_MAX and encode_event(event) == message.data
        opened = self._pushes.opened
        bringer, id = self._bringer(source), message.id
        self._pending.insert(InsertEntry(0, event.key, event.value, source, bringer, id, opened, id, is_usual=is_usual))

    def _on_foreseen(self, pending: InsertEntry, entry: Entry) -> None:
        if not self._pending.has(pending) or pending.spread_at is not None or len(entry.value) > PUBLISHED_BYTES_MAX - 64:
            # A large entry may have to be announced by heads, which name it only once it is stored.
            return
        if len(self._peers) < 2:
            # There is no other peer to pass it on to.
            return
        self._pending.note_spread(pending, self._pushes.opened)
        self._spread(pending, entry, self._pending.sources(entry.key))
        if pending.message_id is not None and pending.is_usual:
            self._route(Validated(pending.message_id, PubsubOutcome.ACCEPT))

    def _on_decided(self, pending: InsertEntry, verdict: Verdict) -> None:
        if not self._pending.end(pending):
            return
        if pending.pusher is not None:
            pending.pusher.pushed -= 1
        if pending.is_retried:
            self.orphans.on_retried(pending.key)
        if verdict.accepted:
            if verdict.is_new and (peer := self._peers.get(pending.source)) is not None:
                peer.brought += 1
            if verdict.is_new and verdict.entry is not None:
                arrival = self._pending.take_arrival(verdict.entry.key)
                if pending.spread_at is not None:
                    self._pushes.on_stored(pending.spread_at)
                elif arrival is not None and arrival.is_spread:
                    # An earlier insert of it failed after it was passed on.
                    self._pushes.heads_to_all_but(arrival.sources)
                else:
                    self._spread(pending, verdict.entry, {} if arrival is None else arrival.sources)
        elif verdict.outcome is Outcome.REJECT:
            self._on_rejected(pending, verdict)
        elif verdict.rule == Rule.PARENTS or verdict.rule in LATER:
            # An entry that our own disk refused has to come again as well, although nobody is to blame.
            self._on_orphan(pending, verdict)
        if pending.message_id is not None and (pending.spread_at is None or not pending.is_usual):
            # One entry can be wrapped in any number of ways, each with its own message id. Only the usual one is forwarded.
            outcome = _OUTCOMES[verdict.outcome] if pending.is_usual or not verdict.accepted else PubsubOutcome.IGNORE
            if outcome is PubsubOutcome.REJECT:
                self._reject(pending.source, pending.message_id, f"{verdict.rule}: {verdict.reason}")
            else:
                self._route(Validated(pending.message_id, outcome))
        self.orphans.on_decided(pending.key, is_settled=verdict.accepted or verdict.rule in OUT_FOR_GOOD)

    def _spread(self, pending: InsertEntry, entry: Entry, sources: Mapping[PeerId, int]) -> None:
        """Pass on a new entry to the peers that did not bring it, except where the router forwards it by itself."""
        owners = {pending.source: pending.opened, **sources}
        self._pushes.on_change(1)
        is_routed = pending.message_id is not None and pending.is_usual
        if is_routed and not self._pushes.others(owners, kinds=BY_PUSH):
            return
        data = encode_event(Insert(entry.key, entry.value))
        if not is_routed:
            self._publish(data, owners)
        self._pushes.insert(data, BY_PUSH, owners)

    def _on_rejected(self, pending: InsertEntry, verdict: Verdict) -> None:
        self.rejected.add(pending.digest)
        if verdict.entry is not None and verdict.rule != Rule.KEY:
            # Under a wrong key the entry itself may be valid.
            self.rejected.add(verdict.entry.key)
        self._blame(pending.source, f"{verdict.rule}: {verdict.reason}")

    def _reject(self, source: PeerId, message_id: MessageId, reason: str) -> None:
        """Have the router penalise the peer that brought a message. A peer that the router then ignores is banned."""
        self._route(Validated(message_id, PubsubOutcome.REJECT))
        if not self._shared.router.is_heeded(source):
            self._blame(source, reason, OFFENCES_MAX)

    def _on_orphan(self, pending: InsertEntry, verdict: Verdict) -> None:
        if pending.message_id is not None:
            self.orphans.remember(pending.message_id, pending.key)
        if verdict.rule == Rule.PARENTS and verdict.entry is not None and not pending.is_retried:
            self.orphans.add(pending, verdict.entry)
        else:
            self._want(pending.source, [pending.key])

    def _want(self, peer_id: PeerId, keys: Sequence[bytes]) -> None:
        if peer_id in self._peers:
            self._wanted_syncs.want(peer_id, keys)
        else:
            self._want_orphaned(keys)

    def _want_orphaned(self, keys: Sequence[bytes]) -> None:
        """Ask all servers for keys whose source has left."""
        self._wanted_syncs.want_orphaned(self._pushes.others(kinds=(events.PeerKind.MESH, events.PeerKind.HUB)), keys)

    def _bringer(self, peer_id: PeerId) -> Bringer:
        """Return the rules for a peer's entries. A peer banned in the middle of an RPC is gone; it was of the mesh, and had none."""
        peer = self._peers.get(peer_id)
        return Bringer() if peer is None else peer.bringer

    # What peers push

    def _on_push_received(self, peer_id: PeerId, data: bytes) -> None:
        peer = self._peers.get(peer_id)
        if peer is None:
            return
        try:
            event = decode_event(data)
        except UnknownMessage as error:
            self._emit(Unwelcome(peer_id, str(error)))
            return
        except DecodeError as error:
            self._emit(ClosePush(peer_id, str(error)))
            self._blame(peer_id, f"malformed push: {error}")
            return
        if isinstance(event, Update):
            self._heads_check.on_update(peer, event.heads)
            return
        if not peer.bringer.may_push:
            self._emit(PushRefused(peer_id, [event.key]))
            return
        digest = sha256(data).digest()
        if digest in self.rejected or event.key in self.rejected:
            self._blame(peer_id, "an entry that was rejected before")
        elif peer.pushed >= PUSHED_MAX:
            self._wanted_syncs.want(peer_id, [event.key])
        else:
            peer.pushed += 1
            self._pending.insert(InsertEntry(0, event.key, event.value, peer_id, peer.bringer, digest, self._pushes.opened, pusher=peer))

    def _on_lacking(self, peer_id: PeerId, heads: Sequence[bytes]) -> None:
        """Fetch the heads that a peer named and we lack, or refuse them if the peer may not push."""
        peer = self._peers.get(peer_id)
        if peer is not None and peer.bringer.may_push:
            self._wanted_syncs.want(peer_id, heads)
        elif peer is not None:
            self._emit(PushRefused(peer_id, heads))

    # Syncs

    def _on_sync_served(self, peer_id: PeerId) -> None:
        """Tell our heads to a peer that pulled from an older state: the reference drops updates that come while it syncs."""
        peer = self._peers.get(peer_id)
        if peer is not None and peer.is_push_open:
            self._pushes.on_dropped(peer)

    def _on_sync_finished(self, event: events.SyncFinished) -> None:
        result = event.result
        for key in result.rejected_keys:
            self.rejected.add(key)
        if (peer := self._peers.get(event.peer)) is not None:
            peer.brought += result.entries
            self._wanted_syncs.on_finished(event.peer, result, event.token)
        if result.ending is Ending.VIOLATION:
            self._blame(event.peer, result.reason)
        elif result.rejected:
            # A replica checks all entries that it stores, so invalid ones from a sync count as if the peer had pushed them.
            self._blame(event.peer, f"{result.rejected} invalid entries in a sync", result.rejected)
        if result.entries:
            self._pushes.synced(result.spreads, event.peer, self._pending.take_arrival)
        if result.entries or result.quarantined:
            self.orphans.on_synced()
