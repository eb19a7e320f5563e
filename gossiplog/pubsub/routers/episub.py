"""Episub: HyParView membership, Plumtree broadcast and GoCast proximity, for single sources and large topics.

Source: "Episub: Proximity Aware Epidemic PubSub for libp2p" (r1, 2018-06-28); docs/spec/episub.md.
"""

from __future__ import annotations

from random import Random
from typing import assert_never

from ..actions import Fate
from ..base import PubSub
from ..events import ConnectFailed, OtherEvent, Probed
from ..overlay.dialler import OverlayDials
from ..overlay.hyparview import MembershipViews
from ..overlay.plumtree import FLUSH, HOPS_MAX, MISSING, BroadcastTree, Wake
from ..params import EpisubParams
from ..peers import Peer, choose
from ..protocol_ids import EPISUB, FLOODSUB
from ..router import TopicState
from ..rpc import (
    ForwardJoin,
    GetNodes,
    Leaving,
    LinkEnded,
    Message,
    Neighbor,
    Nodes,
    OverlayMessage,
    Rpc,
    Shuffle,
    ShuffleReply,
    TreeGraft,
    TreeIHave,
    TreePrune,
    WalkJoin,
)
from ..seen import Held
from ..types import PeerId, TimerToken, Topic


class Episub(PubSub):
    """The router that broadcasts along trees.

    Attributes:
        me: Our own peer id, from `Start`; it travels in JOIN and SHUFFLE.
    """

    name = "episub"
    _watches_copies = True

    def __init__(self, params: EpisubParams, rng: Random) -> None:
        super().__init__(params, rng, (EPISUB, FLOODSUB))
        self.params = params
        self.me = PeerId("")
        self.views: dict[Topic, MembershipViews] = {}
        self.trees: dict[Topic, BroadcastTree] = {}
        self._dialler = OverlayDials(self, params)
        self._flush = Wake(self, FLUSH, params.flush_s)
        self._missing = Wake(self, MISSING, params.missing_s)

    # Routing

    def _recipients(self, message: Message, source: PeerId) -> list[PeerId]:
        tree = self.trees.get(message.topic)
        return [] if tree is None else [peer for peer in (*tree.eager, *self._flooded(message.topic)) if peer != source]

    def _publish_fates(self, message: Message) -> list[tuple[PeerId, Fate]]:
        members = self.topics.get(message.topic, {})
        tree = self.trees.get(message.topic)
        fates = dict.fromkeys(members, Fate.GOSSIP)
        fates.update(dict.fromkeys(self._flooded(message.topic), Fate.FLOODSUB))
        if tree is not None and tree.eager:
            fates.update(dict.fromkeys(tree.eager, Fate.MESH))
        else:
            others = [peer.id for peer in members.values() if peer.features.overlay]
            fates.update(dict.fromkeys(choose(others, self.params.C_rand, self.rng), Fate.FANOUT))
        return list(fates.items())

    def _rpc_of(self, message: Message, source: PeerId | None, hops: int) -> Rpc:
        rpc = Rpc((message,), hops=min(hops + 1, HOPS_MAX))
        tree = self.trees.get(message.topic)
        if tree is not None:
            tree.keep(message, rpc, source)
        return rpc

    def _flooded(self, topic: Topic) -> list[PeerId]:
        return [peer.id for peer in self.topics.get(topic, {}).values() if not peer.features.overlay]

    # What peers say

    def _on_new(self, message: Message, peer: Peer, hops: int) -> None:
        self.trees[message.topic].on_new(message, peer.id, hops)

    def _on_copy(self, message: Message, peer: Peer, held: Held | None, hops: int) -> None:
        super()._on_copy(message, peer, held, hops)
        tree = self.trees.get(message.topic)
        if tree is not None:
            tree.on_copy(peer.id, message.id)

    def _on_overlay(self, peer: Peer, messages: tuple[OverlayMessage, ...]) -> None:
        if not peer.features.overlay:
            return
        for message in messages:
            view = self.views.get(message.topic)
            if view is not None:
                self._on_overlay_message(peer.id, message, view, self.trees[message.topic])
            elif isinstance(message, Neighbor):
                self._dialler.say(peer.id, LinkEnded(message.topic))

    def _on_overlay_dropped(self, peer: Peer, messages: tuple[OverlayMessage, ...]) -> None:
        for message in messages:
            view = self.views.get(message.topic)
            if view is not None and isinstance(message, Neighbor):
                view.on_neighbor_dropped(peer.id)

    def _on_overlay_message(self, sender: PeerId, message: OverlayMessage, view: MembershipViews, tree: BroadcastTree) -> None:
        match message:
            case TreeIHave():
                tree.on_ihave(sender, message.summary)
            case TreeGraft():
                tree.on_graft(sender, message.ids)
            case TreePrune():
                tree.on_prune(sender)
            case Neighbor():
                view.on_neighbor(sender, message)
            case LinkEnded():
                view.on_disconnected(sender)
            case WalkJoin():
                view.on_join(sender, message)
            case ForwardJoin():
                view.on_forward_join(sender, message)
            case Shuffle():
                view.on_shuffle(sender, message)
            case ShuffleReply():
                view.add_members(message.peers)
            case GetNodes():
                view.on_get_nodes(sender)
            case Nodes():
                view.on_nodes(sender, message.peers)
            case Leaving():
                view.on_leaving(sender, message)
            case _:  # pragma: no cover - mypy proves that there is no other
                assert_never(message)

    # Membership

    def _on_joined(self, topic: Topic) -> None:
        tree = self.trees[topic] = BroadcastTree(self, topic, self.params, self._flush, self._missing)
        view = self.views[topic] = MembershipViews(self, self.me, topic, self.params, tree, self._dialler)
        for peer in self.topics.get(topic, {}).values():
            if peer.features.overlay:
                view.meet(peer.id)

    def _on_left(self, topic: Topic) -> None:
        self.views.pop(topic).leave()
        del self.trees[topic]

    def _on_peer_joined(self, topic: Topic, peer: Peer) -> None:
        if topic in self.views and peer.features.overlay:
            self.views[topic].meet(peer.id)

    def _on_peer_left(self, topic: Topic, peer: Peer) -> None:
        if topic in self.views and peer.id in self.peers:
            self.views[topic].on_gone(peer.id)

    def _on_connected(self, peer: Peer, address: str | None) -> None:
        if peer.features.overlay:
            self._dialler.on_connected(peer.id)
            for view in self.views.values():
                view.on_connected(peer.id)
        else:
            self._on_unreachable(peer.id)

    def _on_disconnected(self, peer: Peer) -> None:
        self._dialler.on_closed(peer.id)
        for view in self.views.values():
            view.on_closed(peer.id)

    def _on_other(self, event: OtherEvent) -> None:
        if isinstance(event, Probed):
            for view in self.views.values():
                view.on_probed(event.peer, event.rtt_s)
        elif isinstance(event, ConnectFailed):
            self._on_unreachable(event.peer)

    def _on_unreachable(self, peer: PeerId) -> None:
        """Called for a peer that could not be dialled, or that speaks something other than episub."""
        self._dialler.on_failed(peer)
        for view in self.views.values():
            view.on_gone(peer)

    # Timers

    def _on_start(self, me: PeerId) -> None:
        self.me = me
        self._set_heartbeat(self._heartbeat_delay_s())

    def _heartbeat_delay_s(self) -> float:
        return self.params.heartbeat_s * (0.75 + 0.5 * self.rng.random())

    def _on_timer(self, token: TimerToken) -> None:
        if token == FLUSH and self._flush.is_due():
            for tree in self.trees.values():
                tree.flush()
        elif token == MISSING and self._missing.is_due():
            for tree in self.trees.values():
                tree.touch()

    def _on_heartbeat(self) -> None:
        for view in self.views.values():
            view.heartbeat()
        for peer in self._dialler.heartbeat(self._is_used):
            self._on_unreachable(peer)
        for tree in self.trees.values():
            tree.shift()

    def _is_used(self, peer: PeerId) -> bool:
        return any(view.is_used(peer) for view in self.views.values())

    def _is_grafted(self, topic: Topic, peer: PeerId) -> bool:
        return topic in self.views and self.views[topic].is_used(peer)

    # Introspection

    def _ready_min(self) -> int:
        return self.params.C_rand

    def _ready_count(self, topic: Topic) -> int:
        if topic in self.views:
            return len(self.views[topic].active) + len(self._flooded(topic))
        return len(self.topics.get(topic, ()))

    def _topic_states(self) -> tuple[TopicState, ...]:
        return tuple(
            TopicState(
                topic,
                True,
                (*self.trees[topic].eager, *self._flooded(topic)),
                tuple(self.trees[topic].lazy),
                passive=tuple(view.passive),
            )
            for topic, view in self.views.items()
        )

    def _kept(self) -> dict[str, tuple[int, int]]:
        params, views = self.params, self.views.values()
        trees = [tree.sizes() for tree in self.trees.values()]
        return super()._kept() | {
            "active": (max((len(view.active) for view in views), default=0), params.active_max),
            "joining": (max((len(view.joining) for view in views), default=0), params.active_max),
            "passive": (max((len(view.passive) for view in views), default=0), params.passive_max),
            "missing": (max((missing for missing, _ in trees), default=0), params.missing_max),
            "cache": (max((cached for _, cached in trees), default=0), params.cache_max),
            "dials": (len(self._dialler), params.dials_max),
        }
