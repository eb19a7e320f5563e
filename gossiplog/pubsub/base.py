"""The base of all routers: peers and their topics, announcements, the seen cache, validation, delivery, retries, the heartbeat."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from random import Random
from typing import TYPE_CHECKING, assert_never

from . import events
from .actions import SENT, Action, AnotherSource, Deliver, Fate, Published, SendRpc, SetTimer, SlowPeer, Validate
from .params import CommonParams
from .peers import Peer
from .router import NO_EXTENSIONS, RouterState, TopicState
from .rpc import Control, Draft, IHave, Message, Rpc, Subscription
from .seen import Held, Seen
from .types import MessageId, PeerId, TimerToken, Topic

if TYPE_CHECKING:
    from .router import ScoreParts
    from .rpc import OverlayMessage

HEARTBEAT = TimerToken("heartbeat")
RETRY = TimerToken("retry")


class Hooks:
    """The methods that a router implements. The first three are required, the others do nothing by default."""

    def _recipients(self, message: Message, source: PeerId) -> list[PeerId]:
        """The peers to which an accepted message is forwarded, never its source."""
        raise NotImplementedError  # pragma: no cover - every router has its own

    def _publish_fates(self, message: Message) -> list[tuple[PeerId, Fate]]:
        """The fate of a message of our own, for each peer of its topic."""
        raise NotImplementedError  # pragma: no cover - every router has its own

    def _ready_min(self) -> int:
        """How many peers the router wants at least."""
        raise NotImplementedError  # pragma: no cover - every router has its own

    def _backoff_until(self, peer: PeerId) -> float | None:
        """The time until which a peer is not grafted, for `state`; None without a back-off."""
        return None

    # Messages

    def _on_new(self, message: Message, peer: Peer, hops: int) -> None:
        """Called for the first copy of every message of a joined topic, before it is validated."""

    def _on_passed_over(self, message: Message) -> None:
        """Called for a new message that is dropped: `pending` is full, so a later copy may be taken, or we are not in its topic."""

    def _on_publishing(self, message: Message) -> None:
        """Called for a message of our own before it is sent."""

    def _on_verdict(self, topic: Topic, source: PeerId, others: Sequence[PeerId], outcome: events.Outcome) -> None:
        """Called once a message is accepted, ignored or rejected, before it is forwarded; `others` sent copies meanwhile."""

    def _counts_copies(self, topic: Topic, outcome: events.Outcome) -> bool:
        """Whether copies that arrive after the verdict affect a score."""
        return False

    def _on_refused(self, peer: Peer, topics: tuple[Topic, ...], offences: int) -> None:
        """Called for the faults that the codec found in an RPC; see `RpcReceived`."""

    def _on_control(self, peer: Peer, control: Control) -> None:
        """Called for an RPC's control part, after its messages."""

    def _on_overlay(self, peer: Peer, messages: tuple[OverlayMessage, ...]) -> None:
        """Called for an RPC's overlay messages, after its control part."""

    def _on_overlay_dropped(self, peer: Peer, messages: tuple[OverlayMessage, ...]) -> None:
        """Called for the overlay messages of an RPC that found the peer's queue full."""

    # Membership

    def _on_connected(self, peer: Peer, address: str | None) -> None:
        """Called for a new peer, whose topics are not known yet."""

    def _on_disconnected(self, peer: Peer) -> None:
        """Called after `_on_peer_left` for each of its topics."""

    def _on_peer_joined(self, topic: Topic, peer: Peer) -> None:
        """Called when a peer subscribes to any topic, ours or not."""

    def _on_peer_left(self, topic: Topic, peer: Peer) -> None:
        """Called when a peer unsubscribes, and for each of its topics when it disconnects."""

    def _on_joined(self, topic: Topic) -> None:
        """Called when we subscribe."""

    def _on_left(self, topic: Topic) -> None:
        """Called when we unsubscribe."""

    # The rest

    def _on_start(self, me: PeerId) -> None:
        """Called first; sets the first timers."""

    def _heartbeat_delay_s(self) -> float:
        """Seconds between two heartbeats, for a router that has set a first one."""
        raise NotImplementedError  # pragma: no cover - called after `_set_heartbeat` alone

    def _on_heartbeat(self) -> None:
        """Called at each heartbeat."""

    def _on_timer(self, token: TimerToken) -> None:
        """Called for any other timer that the router set."""

    def _on_other(self, event: events.OtherEvent) -> None:
        """Called for the events that only some routers heed."""

    def _is_grafted(self, topic: Topic, peer: PeerId) -> bool:
        """Whether the peer is in our mesh of the topic, or in episub a neighbour or asked to become one."""
        return False

    def _score_parts(self, peer: PeerId) -> ScoreParts | None:
        """The peer's score for `state`; None where no scores are kept."""
        return None


class PubSub(Hooks):
    """The part of a router that does not depend on where messages are routed.

    A router derives from it and implements `Hooks`. Hooks append actions to `self.out`, or add to a peer's draft (`self.draft`). Drafts are
    sent when the turn ends, so everything that is said to one peer in one turn travels in one RPC.

    Attributes:
        name: As in `RouterState.router`.
        protocols: The protocol ids that we speak, the preferred one first.
        now: The time of the current turn, in seconds.
        out: The actions of the current turn.
        topics: For each topic the connected peers that subscribe to it.
        joined: The topics that we are in; an ordered set.
        pending: Messages under validation.
        tick: Heartbeats since the start.
        extensions: The extensions that we announce to peers of v1.3.
    """

    name = "pubsub"
    _watches_copies = False

    def __init__(self, params: CommonParams, rng: Random, protocols: tuple[str, ...], direct_peers: tuple[PeerId, ...] = ()) -> None:
        self.common = params
        self.protocols = protocols
        self.rng = rng
        self.now = 0.0
        self.out: list[Action] = []
        self.peers: dict[PeerId, Peer] = {}
        self.topics: dict[Topic, dict[PeerId, Peer]] = {}
        self.joined: dict[Topic, None] = {}
        self.seen = Seen(params.seen_ttl_s, params.seen_max)
        self.pending: dict[MessageId, Held] = {}
        self.extensions = NO_EXTENSIONS
        self.direct = dict.fromkeys(direct_peers)
        self._drafts: dict[PeerId, Draft] = {}
        self._ihaves: list[tuple[list[PeerId], IHave]] = []
        self._failed: dict[PeerId, Draft] = {}
        self._is_retry_set = False
        self.tick = 0
        self._heartbeat_at = inf
        self._gate: Callable[[Peer], bool] | None = None  # says whether a peer's RPCs are read; None: all are

    # The door

    def handle(self, event: events.Event, now: float) -> list[Action]:
        """Take one event and return the actions; see `Router.handle`."""
        if type(event) is events.RpcReceived and self._is_old(event, now):
            return []
        self.now = now
        out: list[Action] = []
        self.out = out
        if type(event) is events.RpcReceived:
            peer = self.peers.get(event.peer)
            if peer is not None:
                if event.refused or event.offences:
                    self._on_refused(peer, event.refused, event.offences)
                self._on_rpc(peer, event.rpc, is_first=event.is_first)
        elif type(event) is events.Validated:
            self._on_validated(event)
        else:
            self._on_event(event)
        if self._ihaves:
            self._send_ihaves()
        if self._drafts:
            self._send_drafts()
        return out

    def state(self) -> RouterState:
        """Show the router as values; see `Router.state`."""
        sizes, sizes_max = ({name: pair[which] for name, pair in self._kept().items()} for which in (0, 1))
        peers = tuple(peer.state(self._score_parts(peer.id), self._backoff_until(peer.id)) for peer in self.peers.values())
        return RouterState(self.name, self._topic_states(), peers, sizes, sizes_max, self.extensions)

    def is_heeded(self, peer: PeerId) -> bool:
        """Say whether a peer's frames are read at all; see `Router.is_heeded`."""
        known = self.peers.get(peer)
        return known is None or self._gate is None or self._gate(known)

    def is_ready(self, topic: Topic) -> bool:
        """Say whether enough peers would take a message published now; see `Router.is_ready`."""
        return self._ready_count(topic) >= max(1, min(self._ready_min(), len(self.topics.get(topic, ()))))

    def _ready_count(self, topic: Topic) -> int:
        """How many peers would be sent a message published now; by default all of its topic."""
        return len(self.topics.get(topic, ()))

    def _topic_states(self) -> tuple[TopicState, ...]:
        """The topics for `state`; by default with whole messages to all of their peers."""
        return tuple(TopicState(topic, True, full_message=tuple(self.topics.get(topic, ()))) for topic in self.joined)

    def _on_copy(self, message: Message, peer: Peer, held: Held | None, hops: int) -> None:
        """Called for a further copy: for every one if `_watches_copies`, else only for messages with something held for them."""
        if held is not None:
            self._note_source(held, message, peer)

    def _kept(self) -> dict[str, tuple[int, int]]:
        """The size and the maximum of each container that peers can fill."""
        params = self.common
        topics = max((len(peer.topics) for peer in self.peers.values()), default=0)
        return {
            "seen": (len(self.seen.entries), params.seen_max),
            "pending": (len(self.pending), params.pending_max),
            "topics_per_peer": (topics, params.topics_per_peer_max),
        }

    # Saying things

    def draft(self, peer: PeerId) -> Draft:
        """Return the RPC that the peer is sent at the end of this turn, to be added to."""
        draft = self._drafts.get(peer)
        if draft is None:
            self._drafts[peer] = draft = Draft()
        return draft

    def announce(self, peers: list[PeerId], ihave: IHave) -> None:
        """Send an IHAVE to these peers at the end of this turn."""
        self._ihaves.append((peers, ihave))

    def send_messages(self, peers: list[PeerId], rpc: Rpc, *, is_urgent: bool = False) -> None:
        """Send messages to these peers; one whose queue was full earlier is sent its draft and the dropped control in the same RPC."""
        if self._failed:
            behind = [peer for peer in peers if peer in self._failed]
            for peer in behind:
                draft = self._take_failed(peer, self._drafts.pop(peer) if peer in self._drafts else Draft())
                together = draft.to_rpc(rpc.messages)
                assert together is not None
                together.hops = rpc.hops
                self.out.append(SendRpc((peer,), together, is_urgent))
            peers = [peer for peer in peers if peer not in behind]
        if peers:
            self.out.append(SendRpc(peers, rpc, is_urgent))

    def _send_ihaves(self) -> None:
        """Send one shared RPC to the peers that are sent nothing but one IHAVE in this turn; add to the drafts of the others."""
        ihaves, self._ihaves = self._ihaves, []
        for peers, ihave in ihaves:
            alone = []
            for peer in peers:
                if len(ihaves) > 1 or peer in self._drafts or peer in self._failed:
                    self.draft(peer).ihave.append(ihave)
                else:
                    alone.append(peer)
            if alone:
                self.out.append(SendRpc(alone, Rpc(control=Control((ihave,))), True))

    def _send_drafts(self) -> None:
        drafts, self._drafts = self._drafts, {}
        for peer, draft in drafts.items():
            if peer in self._failed:
                self._take_failed(peer, draft)
            rpc = draft.to_rpc()
            if rpc is not None and peer in self.peers:
                self.out.append(SendRpc((peer,), rpc, True))

    def _take_failed(self, peer: PeerId, draft: Draft) -> Draft:
        failed = self._failed.pop(peer)
        draft.add_retry(failed, self.joined.__contains__, lambda topic: self._is_grafted(topic, peer))
        return draft

    def _on_send_failed(self, event: events.SendFailed) -> None:
        peer = self.peers.get(event.peer)
        if peer is None:
            return
        peer.dropped += 1
        peer.dropped_unreported += 1
        failed = self._failed.get(peer.id) or Draft()
        if failed.add_failed(event.rpc, self.joined.__contains__):
            self._failed[peer.id] = failed
        self._on_overlay_dropped(peer, event.rpc.overlay)
        for message in event.rpc.messages:
            held = self.seen.entries.get(message.id)
            if held is not None and held.source is None:
                self.out.append(Published(message.id, message.topic, ((peer.id, Fate.DROPPED),)))
        if not self._is_retry_set:
            self._is_retry_set = True
            self.out.append(SetTimer(RETRY, self.now + self.common.retry_s))

    def _on_retry(self) -> None:
        self._is_retry_set = False
        for peer_id in self._failed:
            self.draft(peer_id)
        for peer in self.peers.values():
            if peer.dropped_unreported:
                self.out.append(SlowPeer(peer.id, peer.dropped_unreported))
                peer.dropped_unreported = 0

    def _set_heartbeat(self, delay_s: float) -> None:
        self._heartbeat_at = self.now + delay_s
        self.out.append(SetTimer(HEARTBEAT, self._heartbeat_at))

    def _on_heartbeat_timer(self) -> None:
        if self.now >= self._heartbeat_at:
            self._set_heartbeat(self._heartbeat_delay_s())
            self.tick += 1
            self.seen.expire(self.now)
            self._on_heartbeat()

    # Events

    def _on_event(self, event: events.RareEvent) -> None:
        match event:
            case events.TimerFired(token):
                if token == RETRY:
                    self._on_retry()
                elif token == HEARTBEAT:
                    self._on_heartbeat_timer()
                else:
                    self._on_timer(token)
            case events.Publish(message):
                self._on_publish(message)
            case events.PeerConnected():
                self._on_peer_connected(event)
            case events.PeerDisconnected(peer):
                self._on_peer_disconnected(peer)
            case events.SendFailed():
                self._on_send_failed(event)
            case events.Subscribe(topic):
                self._on_subscribe(topic)
            case events.Unsubscribe(topic):
                self._on_unsubscribe(topic)
            case events.Start(me):
                self._on_start(me)
            case events.AppScored() | events.PeerRecordLearned() | events.Probed() | events.ConnectFailed():
                self._on_other(event)
            case _:  # pragma: no cover - mypy proves that there is no other
                assert_never(event)

    def _on_peer_connected(self, event: events.PeerConnected) -> None:
        if event.peer in self.peers or event.protocol not in self.protocols:
            return
        peer = Peer.of(event, is_direct=event.peer in self.direct)
        self.peers[peer.id] = peer
        if self.joined:
            self.draft(peer.id).subscriptions.update(dict.fromkeys(self.joined, True))
        if peer.features.extensions and self.extensions != NO_EXTENSIONS:
            self.draft(peer.id).extensions = self.extensions
        self._on_connected(peer, event.address)

    def _on_peer_disconnected(self, peer_id: PeerId) -> None:
        peer = self.peers.pop(peer_id, None)
        if peer is None:
            return
        self._failed.pop(peer_id, None)
        for topic in peer.topics:
            self._remove_from_topic(topic, peer)
        self._on_disconnected(peer)

    def _on_subscribe(self, topic: Topic) -> None:
        if topic in self.joined:
            return
        self.joined[topic] = None
        for peer in self.peers:
            self.draft(peer).subscriptions[topic] = True
        self._on_joined(topic)

    def _on_unsubscribe(self, topic: Topic) -> None:
        if topic not in self.joined:
            return
        del self.joined[topic]
        for peer in self.peers:
            self.draft(peer).subscriptions[topic] = False
        self._on_left(topic)

    def _on_publish(self, message: Message) -> None:
        seen = self.seen.entries.get(message.id)
        if message.id in self.seen.entries and (seen is None or seen.topic == message.topic):
            if seen is not None and seen.outcome is events.Outcome.IGNORE and seen.source is not None:
                # It was ignored, and so not forwarded, when a peer brought it; now it counts as accepted.
                self.seen.entries[message.id] = None
                self._accept(message, seen.source, seen.hops)
            else:
                self.out.append(Published(message.id, message.topic, (), is_duplicate=True))
            return
        held = Held(message, None)
        held.settle(events.Outcome.ACCEPT, self.now)
        self.seen.add(message.id, held, self.now)
        fates = self._publish_fates(message)
        peers = [peer for peer, fate in fates if fate in SENT]
        self.out.append(Published(message.id, message.topic, tuple(fates)))
        self._on_publishing(message)
        rpc = self._rpc_of(message, None, 0)
        if peers:
            self.send_messages(peers, rpc, is_urgent=True)

    # RPCs

    def _is_old(self, event: events.RpcReceived, now: float) -> bool:
        """Whether an RPC is just one further copy of a message, which changes nothing. Most are, so this touches little memory."""
        rpc, seen = event.rpc, self.seen
        messages = rpc.messages
        if len(messages) != 1 or rpc.control is not None or rpc.subscriptions or rpc.overlay or rpc.is_test or self._watches_copies:
            return False
        if event.refused or event.offences or event.is_first:
            return False
        return now < seen.due and seen.entries.get(messages[0].id, seen) is None

    def _on_rpc(self, peer: Peer, rpc: Rpc, *, is_first: bool) -> None:
        if self._gate is not None and not self._gate(peer):
            # Heed only that the peer has left a topic: otherwise it would be listed there for good.
            if rpc.subscriptions:
                self._on_subscriptions(peer, [each for each in rpc.subscriptions if not each.subscribe])
            return
        if peer.features.extensions and (is_first or peer.extensions is None or rpc.control is not None or rpc.is_test):
            self._on_extensions(peer, rpc, is_first=is_first or peer.extensions is None)
        if rpc.subscriptions:
            self._on_subscriptions(peer, rpc.subscriptions)
        if rpc.messages:
            seen = self.seen
            if self.now >= seen.due:
                seen.expire(self.now)
            entries, watches = seen.entries, self._watches_copies
            for message in rpc.messages:
                if message.id in entries:
                    held = entries[message.id]
                    if held is not None and held.topic != message.topic:
                        self._on_other_topic(message, peer, held, rpc.hops)
                    elif watches or held is not None:
                        self._on_copy(message, peer, held, rpc.hops)
                elif message.topic in self.joined:
                    self._on_first(message, peer, rpc.hops)
                else:
                    self._on_passed_over(message)
        if rpc.control is not None:
            self._on_control(peer, rpc.control)
        if rpc.overlay:
            self._on_overlay(peer, rpc.overlay)

    def _on_extensions(self, peer: Peer, rpc: Rpc, *, is_first: bool) -> None:
        """Note the extensions announced in the first RPC on a peer's stream. Announcing them later is misbehaviour and changes nothing."""
        announced = None if rpc.control is None else rpc.control.extensions
        if is_first:
            peer.extensions = announced or NO_EXTENSIONS
            if peer.extensions.test and self.extensions.test:
                self.draft(peer.id).is_test = True
        elif announced is not None:
            self._on_refused(peer, (), 1)
        peer.is_tested |= rpc.is_test and self.extensions.test

    def _on_subscriptions(self, peer: Peer, subscriptions: Sequence[Subscription]) -> None:
        for subscription in subscriptions:
            topic = subscription.topic
            if subscription.subscribe:
                if topic not in peer.topics:
                    self.add_to_topic(topic, peer)
            elif topic in peer.topics:
                del peer.topics[topic]
                self._remove_from_topic(topic, peer)

    def add_to_topic(self, topic: Topic, peer: Peer) -> bool:
        """Add a peer to a topic that it was not known to be in. Returns False, and does nothing, if it is in too many topics."""
        if len(peer.topics) >= self.common.topics_per_peer_max:
            return False
        peer.topics[topic] = None
        self.topics.setdefault(topic, {})[peer.id] = peer
        self._on_peer_joined(topic, peer)
        return True

    def _remove_from_topic(self, topic: Topic, peer: Peer) -> None:
        members = self.topics[topic]
        del members[peer.id]
        if not members:
            del self.topics[topic]
        self._on_peer_left(topic, peer)

    def _on_first(self, message: Message, peer: Peer, hops: int) -> None:
        if not self.common.is_validating:
            held = None
            if self._counts_copies(message.topic, events.Outcome.ACCEPT):
                held = Held(message, peer.id)
                held.settle(events.Outcome.ACCEPT, self.now)
            self.seen.add(message.id, held, self.now)
            self._on_new(message, peer, hops)
            self._on_verdict(message.topic, peer.id, (), events.Outcome.ACCEPT)
            self._accept(message, peer.id, hops)
        elif len(self.pending) < self.common.pending_max:
            held = Held(message, peer.id)
            held.hops = hops
            self.pending[message.id] = held
            self.seen.add(message.id, held, self.now)
            self._on_new(message, peer, hops)
            self.out.append(Validate(message, peer.id))
        else:
            self._on_passed_over(message)

    def _on_other_topic(self, message: Message, peer: Peer, held: Held, hops: int) -> None:
        """Handle data seen in another topic. Data is valid in one topic at most: if that topic refused it, it is new here."""
        if held.outcome is not None and held.outcome is not events.Outcome.ACCEPT and message.topic in self.joined:
            self._on_first(message, peer, hops)

    def _on_validated(self, event: events.Validated) -> None:
        held = self.pending.pop(event.message_id, None)
        if held is None:
            return
        message, source, outcome = held.message, held.source, event.outcome
        assert message is not None and source is not None
        held.settle(outcome, self.now)
        if outcome is events.Outcome.ACCEPT and message.id in self.seen.entries and not self._counts_copies(held.topic, outcome):
            self.seen.entries[message.id] = None
        self._on_verdict(held.topic, source, held.sources, outcome)
        if outcome is events.Outcome.ACCEPT:
            self._accept(message, source, held.hops, held.sources)
        elif outcome is events.Outcome.IGNORE:
            self.out.extend(AnotherSource(message.id, held.topic, another) for another in held.sources)

    def _note_source(self, held: Held, message: Message, peer: Peer) -> bool:
        """Note one more peer that sent a message. Returns False if it is noted already, or `sources_max` others are."""
        if peer.id == held.source or peer.id in held.sources:
            return False
        if len(held.sources) >= self.common.sources_max and not self._is_grafted(held.topic, peer.id):
            # Copies from outside the mesh must not cost a mesh peer the credit for its own; the mesh is bounded anyway.
            return False
        held.sources.append(peer.id)
        if held.outcome is events.Outcome.IGNORE:
            self.out.append(AnotherSource(message.id, held.topic, peer.id))
        return True

    def _accept(self, message: Message, source: PeerId, hops: int, others: Sequence[PeerId] = ()) -> None:
        """Deliver and forward a message, except to `others`, which sent a copy meanwhile; js-, nim- and rust-libp2p do the same."""
        self.out.append(Deliver(message, source))
        peers = self._recipients(message, source)
        if others:
            peers = [peer for peer in peers if peer not in others]
        rpc = self._rpc_of(message, source, hops)
        if peers:
            self.send_messages(peers, rpc)

    def _rpc_of(self, message: Message, source: PeerId | None, hops: int) -> Rpc:
        """The RPC that forwards a message, one object for all recipients."""
        return Rpc((message,))
