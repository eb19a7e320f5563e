"""Gossipsub, v1.0 to v1.3: meshsub with gossip, scores, flood publishing, peer exchange, IDONTWANT and extensions.

Source: gossipsub v1.0 specification (r1, 2018-08-29), v1.1, v1.2, v1.3; docs/spec/pubsub.md for the order of checks.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from ..actions import Fate, SendRpc
from ..events import AppScored, OtherEvent, Outcome
from ..gossip.gossip import Gossip
from ..gossip.score import PeerScores
from ..params import GossipsubParams
from ..peers import Peer
from ..router import ScoreParts
from ..rpc import Control, Extensions, Message, Rpc
from ..seen import Held
from ..types import PeerId, Topic
from .meshsub import Meshsub


class Gossipsub(Meshsub):
    """The router that forwards along a mesh and sends gossip to other peers of the topic.

    Attributes:
        scores: Peer scores; None when they are off.
    """

    name = "gossipsub"

    def __init__(self, params: GossipsubParams, rng: Random) -> None:
        scores = None if params.score is None else PeerScores(params.score)
        super().__init__(params, rng, protocols=params.protocols, scoring=scores)
        self.exchange.count_max, self.exchange.is_offering = params.px_peers, params.px_enabled
        self.params = params
        self.extensions = Extensions(test=params.test_extension)
        self.scores = scores
        self.gossip = Gossip(self, params, self.scoring)
        self._gate = None if scores is None else self._accepts_from

    # Routing

    def _recipients(self, message: Message, source: PeerId) -> list[PeerId]:
        self.gossip.mcache.put(message, message)
        peers = super()._recipients(message, source)
        unwanted = self.gossip.unwanted
        if unwanted:
            return [peer for peer in peers if peer not in unwanted or message.id not in unwanted[peer]]
        return peers

    def _publish_fates(self, message: Message) -> list[tuple[PeerId, Fate]]:
        self.gossip.mcache.put(message, message)
        fates = super()._publish_fates(message)
        unwanted = self.gossip.unwanted
        return [(peer, Fate.UNWANTED if message.id in unwanted.get(peer, ()) else fate) for peer, fate in fates]

    def _floods(self) -> bool:
        return self.params.flood_publish

    # What peers say

    def _accepts_from(self, peer: Peer) -> bool:
        return self.scoring.of(peer.id) >= self.scoring.thresholds.graylist or peer.is_direct

    def _on_control(self, peer: Peer, control: Control) -> None:
        gossip = self.gossip
        if control.idontwant:
            gossip.on_idontwant(peer, control.idontwant)
        if control.ihave:
            gossip.on_ihave(peer, control.ihave)
        if control.iwant:
            gossip.on_iwant(peer, control.iwant)
        super()._on_control(peer, control)

    def _on_new(self, message: Message, peer: Peer, hops: int) -> None:
        links = self.mesh.links[message.topic]
        if peer.id in self.gossip.fulfil(message.id) and peer.id not in links and self.params.repair_peers:
            self.mesh.helpers.setdefault(message.topic, {})[peer.id] = None
        for told in self.gossip.idontwant_peers(message, peer.id, links):
            self.draft(told).idontwant.append(message.id)

    def _on_passed_over(self, message: Message) -> None:
        self.gossip.fulfil(message.id)

    def _on_publishing(self, message: Message) -> None:
        self.gossip.fulfil(message.id)  # the message may have been promised, and come outside of pubsub
        peers = self.gossip.idontwant_peers(message, None, self.mesh.links.get(message.topic, {}))
        if peers:
            self.out.append(SendRpc(peers, Rpc(control=Control(idontwant=(message.id,))), True))

    # Scores

    def _on_copy(self, message: Message, peer: Peer, held: Held | None, hops: int) -> None:
        scores = self.scores
        if held is None:
            return
        if held.outcome is Outcome.REJECT and scores is not None:
            scores.reject(peer.id, held.topic)  # for every copy: replaying an invalid message is an offence each time
        elif self._note_source(held, message, peer) and held.outcome is Outcome.ACCEPT and scores is not None:
            scores.deliver_again(peer.id, held.topic, self.now - held.validated_at)

    def _on_verdict(self, topic: Topic, source: PeerId, others: Sequence[PeerId], outcome: Outcome) -> None:
        scores = self.scores
        if scores is None:
            return
        if outcome is Outcome.ACCEPT:
            scores.deliver_first(source, topic)
            for another in others:
                scores.deliver_again(another, topic, 0.0)
        elif outcome is Outcome.REJECT:
            for sender in (source, *others):
                scores.reject(sender, topic)

    def _counts_copies(self, topic: Topic, outcome: Outcome) -> bool:
        scores = self.scores
        return scores is not None and (outcome is Outcome.REJECT or self.params.repair_peers > 0 or scores.counts_copies(topic))

    def _on_connected(self, peer: Peer, address: str | None) -> None:
        if self.scores is not None:
            self.scores.connect(peer.id, address)

    def _on_disconnected(self, peer: Peer) -> None:
        super()._on_disconnected(peer)
        self.gossip.forget(peer.id)
        if self.scores is not None:
            self.scores.disconnect(peer.id, self.now)

    def _on_other(self, event: OtherEvent) -> None:
        super()._on_other(event)
        if self.scores is not None and isinstance(event, AppScored):
            self.scores.set_app(event.peer, event.value)

    # The heartbeat

    def _on_heartbeat(self) -> None:
        gossip = self.gossip
        if self.scores is not None:
            self.scores.decay(self.now)
        gossip.begin_tick(self.tick)
        super()._on_heartbeat()
        for topic in self.mesh.links:
            gossip.emit(topic, self._pushed(topic))
        for topic, peers in self.fanout.peers.items():
            gossip.emit(topic, peers)
        gossip.mcache.shift()

    def _pushed(self, topic: Topic) -> dict[PeerId, Peer]:
        """The mesh peers that are sent whole messages, and therefore no gossip."""
        return self.mesh.links[topic]

    # Introspection

    def _score_parts(self, peer: PeerId) -> ScoreParts | None:
        return None if self.scores is None else self.scores.parts(peer)

    def _kept(self) -> dict[str, tuple[int, int]]:
        gossip, params = self.gossip, self.params
        kept = super()._kept() | {
            "mcache": (len(gossip.mcache), params.mcache_max),
            "promises": (gossip.promise_count, params.promises_max),
            "unwanted": (max(map(len, gossip.unwanted.values()), default=0), params.idontwant_ids_max),
        }
        if params.score is not None and self.scores is not None:
            kept["retained_scores"] = self.scores.retained, params.score.retained_max
        return kept
