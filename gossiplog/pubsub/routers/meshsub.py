"""Meshsub: a stable random mesh for each topic, without gossip; gossipsub is built on it.

Source: gossipsub v1.0 specification, section "meshsub: An overlay mesh router".
"""

from __future__ import annotations

from collections.abc import Container
from random import Random

from ..actions import Connect, Fate
from ..base import PubSub
from ..events import OtherEvent, PeerRecordLearned
from ..gossip.fanout import Fanout
from ..gossip.mesh import PeerExchange, TopicMeshes
from ..gossip.score import Scoring
from ..params import MeshsubParams
from ..peers import Peer
from ..protocol_ids import FLOODSUB, MESHSUB_1_0
from ..router import TopicState
from ..rpc import Control, Message
from ..types import PeerId, Topic


class Meshsub(PubSub):
    """The router that forwards along a mesh.

    Attributes:
        fanout: The fan-out peers of topics that we publish to without having joined.
        scoring: Peer scores; all 0 here.
        exchange: Peer exchange; meshsub itself offers none.
    """

    name = "meshsub"

    def __init__(
        self,
        params: MeshsubParams,
        rng: Random,
        *,
        protocols: tuple[str, ...] = (MESHSUB_1_0, FLOODSUB),
        scoring: Scoring | None = None,
    ) -> None:
        super().__init__(params, rng, protocols, params.direct_peers)
        self.mesh_params = params
        self.scoring = scoring or Scoring()
        self.exchange = PeerExchange(self, self.scoring)
        self.mesh = TopicMeshes(self, params, self.scoring, self.exchange)
        self.fanout = Fanout(self, params, self.scoring)
        self._control_rpcs: dict[PeerId, int] = {}
        self._always: dict[Topic, dict[PeerId, Peer]] = {}  # floodsub and direct peers, which are sent every message

    # Routing

    def _recipients(self, message: Message, source: PeerId) -> list[PeerId]:
        topic = message.topic
        links = self.mesh.links.get(topic, ())
        peers = [peer for peer in links if peer != source]
        if topic in self._always:
            lowest, score = self.scoring.thresholds.publish, self.scoring.of
            always = self._always[topic].values()
            peers += [peer.id for peer in always if peer.id != source and (peer.is_direct or score(peer.id) >= lowest)]
        return peers

    def _publish_fates(self, message: Message) -> list[tuple[PeerId, Fate]]:
        topic = message.topic
        links: Container[PeerId] = self.mesh.links.get(topic, ())
        fan_out: Container[PeerId] = () if topic in self.joined or self._floods() else self.fanout.use(topic)
        return [(peer.id, self._fate(peer, links, fan_out)) for peer in self.topics.get(topic, {}).values()]

    def _fate(self, peer: Peer, links: Container[PeerId], fan_out: Container[PeerId]) -> Fate:
        is_trusted = self.scoring.of(peer.id) >= self.scoring.thresholds.publish
        if peer.is_direct:
            return Fate.DIRECT
        if peer.id in links:
            return Fate.MESH
        if not is_trusted:
            return Fate.BELOW_THRESHOLD
        if not peer.features.mesh:
            return Fate.FLOODSUB
        if peer.id in fan_out:
            return Fate.FANOUT
        return Fate.FLOOD if self._floods() else Fate.GOSSIP

    def _floods(self) -> bool:
        """Whether our own messages go to all peers of the topic."""
        return False

    # The heartbeat

    def _on_start(self, me: PeerId) -> None:
        self._set_heartbeat(self.mesh_params.heartbeat_first_s)
        self._connect_direct()

    def _heartbeat_delay_s(self) -> float:
        return self.mesh_params.heartbeat_s

    def _on_heartbeat(self) -> None:
        if self.tick % self.mesh_params.direct_connect_ticks == 0:
            self._connect_direct()
        self._control_rpcs.clear()
        self.exchange.begin_tick()
        self.mesh.expire(self.tick)
        for topic in self.mesh.links:
            self.mesh.maintain(topic, self.tick)
            if topic in self.mesh.helpers:
                self.mesh.repair(topic)
        if self.fanout.peers:
            self.fanout.maintain()

    def _connect_direct(self) -> None:
        self.out.extend(Connect(peer) for peer in self.direct if peer not in self.peers)

    # Membership

    def _on_joined(self, topic: Topic) -> None:
        self.mesh.join(topic, self.fanout.take(topic))

    def _on_left(self, topic: Topic) -> None:
        self.mesh.leave(topic)

    def _on_peer_joined(self, topic: Topic, peer: Peer) -> None:
        if not peer.is_meshable:
            self._always.setdefault(topic, {})[peer.id] = peer

    def _on_peer_left(self, topic: Topic, peer: Peer) -> None:
        self.mesh.remove_peer(topic, peer)
        self.fanout.remove_peer(topic, peer)
        always = self._always.get(topic)
        if always is not None:
            always.pop(peer.id, None)
            if not always:
                del self._always[topic]

    def _on_disconnected(self, peer: Peer) -> None:
        self.exchange.forget(peer.id)

    def _on_refused(self, peer: Peer, topics: tuple[Topic, ...], offences: int) -> None:
        for topic in topics:
            if topic in self.joined:
                self.scoring.reject(peer.id, topic)
        self.scoring.penalise(peer.id, offences)

    def _on_control(self, peer: Peer, control: Control) -> None:
        if not (control.graft or control.prune):
            return
        count = self._control_rpcs[peer.id] = self._control_rpcs.get(peer.id, 0) + 1
        if count > self.mesh_params.control_rpcs_max:
            self.scoring.penalise(peer.id, 1)
            return
        if control.graft:
            self.mesh.on_graft(peer, control.graft)
        if control.prune:
            self.mesh.on_prune(peer, control.prune)

    def _on_other(self, event: OtherEvent) -> None:
        if isinstance(event, PeerRecordLearned):
            self.exchange.learn(event.peer, event.record)

    def _is_grafted(self, topic: Topic, peer: PeerId) -> bool:
        return peer in self.mesh.links.get(topic, ())

    # Introspection

    def _ready_min(self) -> int:
        return self.mesh_params.D_lo

    def _ready_count(self, topic: Topic) -> int:
        if topic not in self.joined:
            return len(self.topics.get(topic, ()))
        return len(self.mesh.links[topic]) + len(self._always.get(topic, ()))

    def _topic_states(self) -> tuple[TopicState, ...]:
        states = []
        for topic in self.joined:
            links = self.mesh.links[topic]
            always = self._always.get(topic, {})
            others = tuple(peer for peer in self.topics.get(topic, ()) if peer not in links and peer not in always)
            states.append(TopicState(topic, True, (*links, *always), others))
        states.extend(TopicState(topic, False, fan_out=tuple(peers)) for topic, peers in self.fanout.peers.items())
        return tuple(states)

    def _backoff_until(self, peer: PeerId) -> float | None:
        return self.mesh.backoff.until(peer)

    def _kept(self) -> dict[str, tuple[int, int]]:
        degree = max(map(len, self.mesh.links.values()), default=0)
        return super()._kept() | {
            "backoff": (len(self.mesh.backoff), self.mesh_params.backoffs_max),
            "mesh": (degree, max(self.mesh_params.D_hi, len(self.peers))),
        }
