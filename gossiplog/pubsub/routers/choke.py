"""Choke: gossipsub that asks mesh peers whose copies come late to announce messages instead of pushing them.

A choked link stays in the mesh and carries only announcements, so redundancy falls while the mesh keeps its size. Each decision chokes
at most one link per topic, the one whose copies come last on average, and unchokes at most one, a choked link that is faster than the
slowest unchoked one.

Source: vyzo/gerbil-simsub, `simsub/episub.ss` ("episub (gossipsub/v1.2) experiments"), its default strategy "order-avg".
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from ..actions import Fate
from ..params import ChokeParams
from ..peers import Peer, choose
from ..router import TopicState
from ..rpc import Control, Message
from ..seen import Held
from ..types import MessageId, PeerId, Topic
from .gossipsub import Gossipsub


@dataclass(slots=True, eq=False)
class _Samples:
    """The places in which a peer's copies came: how many, and their sum. The first copy of a message has place 0."""

    count: int = 0
    places: int = 0


class Choke(Gossipsub):
    """The router that chokes late links.

    Attributes:
        choked_by_us: For each topic the mesh peers that we asked to announce.
        choked: For each topic the mesh peers that asked us to announce.
    """

    name = "choke"
    _watches_copies = True

    def __init__(self, params: ChokeParams, rng: Random) -> None:
        super().__init__(params, rng)
        self.choke_params = params
        self.choked_by_us: dict[Topic, dict[PeerId, None]] = {}
        self.choked: dict[Topic, dict[PeerId, None]] = {}
        self._copies: dict[MessageId, int] = {}
        self._samples: dict[Topic, dict[PeerId, _Samples]] = {}
        self.mesh.on_pruned = self._on_pruned
        self.mesh.prune_first = lambda topic: self.choked_by_us.get(topic, {})

    # Routing

    def _recipients(self, message: Message, source: PeerId) -> list[PeerId]:
        peers = super()._recipients(message, source)
        choked = self.choked.get(message.topic)
        return [peer for peer in peers if peer not in choked] if choked else peers

    def _publish_fates(self, message: Message) -> list[tuple[PeerId, Fate]]:
        fates, choked = super()._publish_fates(message), self.choked.get(message.topic)
        if not choked or self._floods():
            return fates
        return [(peer, Fate.GOSSIP if peer in choked and fate is Fate.MESH else fate) for peer, fate in fates]

    def _pushed(self, topic: Topic) -> dict[PeerId, Peer]:
        links, choked = self.mesh.links[topic], self.choked.get(topic)
        return {peer_id: peer for peer_id, peer in links.items() if peer_id not in choked} if choked else links

    # Sampling

    def _on_new(self, message: Message, peer: Peer, hops: int) -> None:
        super()._on_new(message, peer, hops)
        if len(self._copies) < self.params.mcache_max:
            self._copies[message.id] = 0
            self._sample(message, peer)

    def _on_copy(self, message: Message, peer: Peer, held: Held | None, hops: int) -> None:
        super()._on_copy(message, peer, held, hops)
        if message.id in self._copies:
            self._sample(message, peer)

    def _sample(self, message: Message, peer: Peer) -> None:
        links = self.mesh.links.get(message.topic)
        if links is not None and peer.id in links:
            samples = self._samples.setdefault(message.topic, {}).setdefault(peer.id, _Samples())
            samples.count += 1
            samples.places += self._copies[message.id]
        self._copies[message.id] += 1

    # Deciding

    def _on_heartbeat(self) -> None:
        params = self.choke_params
        if self.tick % params.choke_ticks == 0:
            if self.tick > params.choke_threshold:
                for topic in self.mesh.links:
                    self._decide(topic)
            self._copies.clear()
            self._samples.clear()
        super()._on_heartbeat()

    def _decide(self, topic: Topic) -> None:
        params, samples = self.choke_params, self._samples.get(topic, {})
        links, choked = self.mesh.links[topic], self.choked_by_us.get(topic, {})
        judged = [peer for peer, one in samples.items() if peer in links and one.count >= params.choke_samples_min]
        judged.sort(key=lambda peer: samples[peer].places / samples[peer].count)
        unchoked = [peer for peer in judged if peer not in choked]
        if len(unchoked) > params.D_choke and links[unchoked[-1]].features.choke:
            slowest: PeerId | None = unchoked[-1]
        else:
            slowest = None
        behind = judged.index(unchoked[-1]) if unchoked else 0
        fastest = next((peer for peer in judged[:behind] if peer in choked), None)
        if slowest is not None:
            self.choked_by_us.setdefault(topic, {})[slowest] = None
            self.draft(slowest).choke[topic] = True
        if fastest is not None:
            self._unchoke(topic, fastest)

    def _unchoke(self, topic: Topic, peer: PeerId) -> None:
        del self.choked_by_us[topic][peer]
        self.draft(peer).choke[topic] = False

    # What peers say, and links that end

    def _on_control(self, peer: Peer, control: Control) -> None:
        super()._on_control(peer, control)
        for topic in control.choke:
            if self._is_grafted(topic, peer.id):
                self.choked.setdefault(topic, {})[peer.id] = None
        for topic in control.unchoke:
            self.choked.get(topic, {}).pop(peer.id, None)

    def _on_pruned(self, topic: Topic, peer: PeerId) -> None:
        self.choked.get(topic, {}).pop(peer, None)
        ours = self.choked_by_us.get(topic, {})
        if peer in ours:
            del ours[peer]
            # A CHOKE decided in this same heartbeat need not be sent: the link gets a PRUNE.
            self.draft(peer).choke.pop(topic, None)
        if ours and len(self.mesh.links[topic]) - len(ours) < self.choke_params.D_choke:
            self._unchoke(topic, choose(list(ours), 1, self.rng)[0])

    def _on_left(self, topic: Topic) -> None:
        self.choked_by_us.pop(topic, None)
        super()._on_left(topic)
        self.choked.pop(topic, None)

    # Introspection

    def _topic_states(self) -> tuple[TopicState, ...]:
        return tuple(
            replace(state, choked=tuple(self.choked.get(state.topic, ())), choked_by_us=tuple(self.choked_by_us.get(state.topic, ())))
            for state in super()._topic_states()
        )
