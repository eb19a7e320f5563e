"""Invariants of routers, checked from their RPCs and from the states that they show.

| invariant | when |
|---|---|
| RPCs and routes lead to connected peers only | every RPC; samples |
| a GRAFT is answered by a link or a PRUNE; a PRUNE ends the link; no peer is grafted during a back-off | every such RPC |
| a GRAFT or PRUNE that met a full queue is sent again, as long as it is true | samples |
| a GRAFT, PRUNE or CHOKE about a link is true | every such RPC |
| an unknown message that is announced is asked for: by gossip at once, by the tree within `ASKED_S` | every IHAVE; samples |
| an announced message that is asked for is served, up to the limit | every IWANT, every GRAFT of a tree |
| no message goes back to its source, is sent too often, or is sent to a peer that said IDONTWANT | every RPC |
| a message is delivered once, and goes to all peers that the router pushes to | deliveries; one in `FORWARDED_ONE_IN` |
| if a node's tree loses a link, the node takes its other links into the tree | every connection that closes |
| a mesh is not too large and, if there are candidates, not too small; both ends know of a link, choked or not | samples |
| subscriptions are known; a node of an overlay is not alone in it while it has peers | samples |

Invariants about messages hold between correct peers, on connections that have lost nothing. Samples fail only on violations that last.

Source: docs/spec/pubsub.md; docs/spec/episub.md, "Broadcast"; docs/spec/simulator.md, "The whole log under faults".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, NoReturn, TypeAlias, TypeVar

from ...broadcast.actions import Action
from ...broadcast.events import PeerKind
from ...pubsub.actions import Deliver, Published, SendRpc
from ...pubsub.params import ChokeParams, GossipsubParams, MeshsubParams
from ...pubsub.router import RouterState, TopicState
from ...pubsub.rpc import Control, Rpc, TreeGraft, TreeIHave, TreePrune
from ...pubsub.types import MessageId, PeerId
from .replica import SimReplica
from .world import SimWire

N = TypeVar("N")
Fail: TypeAlias = Callable[[str, SimReplica, str], NoReturn]

_GOSSIPSUB, _CHOKE = GossipsubParams(), ChokeParams()
MESH_ROUTERS = ("meshsub", "gossipsub", "choke")
FRESH_S = 1.5
"""An announced message can be asked for at least this long: the message cache keeps it for two heartbeats after its last announcement."""
ASKED_S = 4.0
"""A tree asks for an announced message within this time: two periods of its timer, and the wait for a peer that it asked before."""
UNWANTED_S = 1.5
"""IDONTWANT is heeded for at least this long: three heartbeats, the first of which may be nearly over."""
LASTS_S = 5.0
"""A wrong state is a violation after this time: a GRAFT that met a full queue is repeated after 1 s, the next heartbeat mends a mesh."""
OVERLAY_LASTS_S = 12.0
"""The same time for an overlay's links; neighbours tell each other about them every 5 heartbeats."""
REPEATED_S = 2.5
"""It is repeated within this time: a second on a clock that may be inexact, the delay of a timer, and the wait for the next sample."""
LEFT_S = 1.0
"""A peer that closes the log says so within this time."""
REMEMBERED_S = 100.0
"""A router certainly remembers a message for this long."""
FORWARDED_ONE_IN = 8


class PerReplica(Generic[N]):
    """The head of invariants that keep their own knowledge about each replica, from its start on."""

    knows: Callable[[], N]

    def __init__(self, fail: Fail) -> None:
        self._fail = fail
        self._nodes: dict[PeerId, N] = {}

    def on_recovered(self, replica: SimReplica) -> None:
        """A replica has started, and nothing is known of it."""
        self._nodes[replica.id] = self.knows()


@dataclass(slots=True, eq=False)
class _Talk:
    """The RPCs between one replica and one peer since they were connected.

    Attributes:
        asked: How often each message was asked for, including earlier connections: a router serves a peer only so often.
        copied: Messages of which the peer sent a further copy, including earlier connections: a router keeps that with the message.
        unsaid: A GRAFT (True) or PRUNE (False) that met a full queue and was not yet repeated, and since when; None for neither.
    """

    wire: SimWire
    since: float
    asked: dict[MessageId, int]
    copied: set[MessageId]
    announced: dict[MessageId, float] = field(default_factory=dict)
    brought: set[MessageId] = field(default_factory=set)
    sent: dict[MessageId, int] = field(default_factory=dict)
    unsaid: tuple[bool, float] | None = None
    unwanted: dict[MessageId, float] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class _Turn:
    """The obligations that an RPC puts on its receiver, and the receiver's reactions."""

    peer: PeerId
    owed: dict[MessageId, None] = field(default_factory=dict)
    unknown: dict[MessageId, None] = field(default_factory=dict)
    is_graft: bool = False
    is_prune: bool = False
    is_tree_graft: bool = False
    is_tree_prune: bool = False
    grafted: bool = False
    pruned: bool = False


@dataclass(slots=True, eq=False)
class _Node:
    """The knowledge about one replica since it started."""

    talks: dict[PeerId, _Talk] = field(default_factory=dict)
    asked: dict[PeerId, dict[MessageId, int]] = field(default_factory=dict)
    copied: dict[PeerId, set[MessageId]] = field(default_factory=dict)
    known: set[MessageId] = field(default_factory=set)
    delivered: dict[MessageId, float] = field(default_factory=dict)
    backoffs: dict[PeerId, float] = field(default_factory=dict)
    wanted: dict[tuple[MessageId, PeerId], float] = field(default_factory=dict)
    lasting: dict[tuple[str, PeerId], float] = field(default_factory=dict)
    turn: _Turn | None = None
    tree: tuple[PeerId, ...] | None = None
    forwarding: MessageId | None = None
    owing: set[PeerId] = field(default_factory=set)
    left: dict[PeerId, float] = field(default_factory=dict)


class RouterInvariants(PerReplica[_Node]):
    """Listens to all correct replicas of a run.

    Args:
        correct: The replicas that follow the protocol, kept by the caller.
    """

    knows = _Node

    def __init__(self, correct: Mapping[PeerId, SimReplica], fail: Fail) -> None:
        super().__init__(fail)
        self._correct = correct
        # What the routers of replicas that have closed the log remember, and the start of the process in which they do.
        self._kept: dict[PeerId, tuple[_Node, int]] = {}
        self.mesh: MeshsubParams = _GOSSIPSUB

    def on_leaving(self, replica: SimReplica) -> None:
        """A replica is about to close its log, and to end its links."""
        node, until = self._nodes[replica.id], replica.local_now() + self.mesh.unsubscribe_backoff_s
        backoffs = node.backoffs | dict.fromkeys(_joined(replica).full_message, until)
        kept = _Node(asked=node.asked, copied=node.copied, known=node.known, delivered=node.delivered, backoffs=backoffs)
        self._kept[replica.id] = kept, replica.process.epoch

    def on_recovered(self, replica: SimReplica) -> None:
        """A replica has started. Nothing is known of it, unless its process has gone on."""
        kept, epoch = self._kept.pop(replica.id, (_Node(), 0))
        self._nodes[replica.id] = kept if epoch == replica.process.epoch else _Node()

    def on_connected(self, replica: SimReplica, peer: PeerId) -> None:
        """A connection has opened."""
        wire = replica.wires[peer]
        if wire.kind_for(replica) is PeerKind.MESH:
            node = self._nodes[replica.id]
            node.talks[peer] = _Talk(wire, replica.world.now, node.asked.setdefault(peer, {}), node.copied.setdefault(peer, set()))

    def on_closed(self, replica: SimReplica, peer: PeerId) -> None:
        """A connection has closed; the machine does not know yet."""
        node = self._nodes[replica.id]
        node.talks.pop(peer, None)
        # What lasts and what was announced is timed anew on the next connection: a peer that leaves between two samples is seen by neither.
        node.lasting = {about: since for about, since in node.lasting.items() if about[1] != peer}
        node.wanted = {about: until for about, until in node.wanted.items() if about[1] != peer}
        node.left[peer] = replica.world.now
        state = replica.shared.router.state()
        tree = _topic_of(replica, state).full_message if state.router == "episub" else ()
        node.tree = tree if peer in tree else None

    def on_parted(self, replica: SimReplica, peer: PeerId) -> None:
        """The machine has been told that a connection has closed."""
        node = self._nodes[replica.id]
        if node.tree is not None and peer not in replica.process.wires:
            after = _joined(replica)
            if after.metadata_only:
                detail = f"{peer} was in its tree and left; {after.metadata_only[0]} is still told of messages only"
                self._fail("a tree that loses a link is mended", replica, detail)
        node.tree = None

    # RPCs

    def on_rpc(self, replica: SimReplica, peer: PeerId, rpc: Rpc) -> None:
        """An RPC arrived."""
        node = self._nodes[replica.id]
        talk = node.talks.get(peer)
        if talk is None:  # it has left the log, comes into it, or publishes from outside
            node.known.update(message.id for message in rpc.messages)
            for prune in () if rpc.control is None else rpc.control.prune:
                self._back_off(replica, node, peer, prune.backoff_s)
            return
        for message in rpc.messages:
            if message.id in node.known:
                talk.copied.add(message.id)
            else:
                node.known.add(message.id)
                talk.brought.add(message.id)
        if rpc.control is None and not rpc.overlay:
            return
        node.turn = turn = _Turn(peer)
        if peer not in self._correct:
            return
        now = replica.world.now
        if rpc.control is not None:
            self._note_control(replica, node, talk, turn, rpc.control)
        for said in rpc.overlay:
            if isinstance(said, TreeIHave):
                unknown = [message_id for message_id, _ in said.summary if message_id not in node.known]
                if unknown and self._is_neighbour(replica, peer):
                    for message_id in unknown:
                        node.wanted.setdefault((message_id, peer), now + ASKED_S)
            elif isinstance(said, TreeGraft):
                turn.is_tree_graft, turn.is_tree_prune = True, False
                self._note_asked(talk, turn, said.ids, now)
            elif isinstance(said, TreePrune):
                turn.is_tree_graft, turn.is_tree_prune = False, True

    def _note_control(self, replica: SimReplica, node: _Node, talk: _Talk, turn: _Turn, control: Control) -> None:
        now = replica.world.now
        turn.is_graft, turn.is_prune = bool(control.graft), bool(control.prune)
        for prune in control.prune:
            self._back_off(replica, node, turn.peer, prune.backoff_s)
        for message_id in control.idontwant:
            talk.unwanted[message_id] = now
        self._note_asked(talk, turn, control.iwant, now)
        for ihave in control.ihave:
            turn.unknown.update(dict.fromkeys(message_id for message_id in ihave.ids if message_id not in node.known))

    @staticmethod
    def _is_neighbour(replica: SimReplica, peer: PeerId) -> bool:
        topic = _joined(replica)
        return peer in topic.full_message or peer in topic.metadata_only

    @staticmethod
    def _note_asked(talk: _Talk, turn: _Turn, ids: Iterable[MessageId], now: float) -> None:
        for message_id in dict.fromkeys(ids):
            talk.asked[message_id] = count = talk.asked.get(message_id, 0) + 1
            is_fresh = now - talk.announced.get(message_id, -FRESH_S) < FRESH_S
            if is_fresh and count <= _GOSSIPSUB.retransmissions and message_id not in talk.unwanted:
                turn.owed[message_id] = None

    def _back_off(self, replica: SimReplica, node: _Node, peer: PeerId, backoff_s: int | None) -> None:
        seconds = min(backoff_s or self.mesh.prune_backoff_s, self.mesh.prune_backoff_max_s)
        node.backoffs[peer] = max(node.backoffs.get(peer, 0.0), replica.local_now() + seconds)

    def on_rpc_handled(self, replica: SimReplica) -> None:
        """Check that all obligations of the last RPC are met."""
        node = self._nodes[replica.id]
        turn, node.turn = node.turn, None
        if turn is None or turn.peer not in self._correct or turn.peer not in node.talks:
            return
        peer = turn.peer
        if turn.owed and self._is_trusted(replica, peer):
            self._fail("what is announced is served", replica, f"{peer} asked for {next(iter(turn.owed)).hex()} in vain")
        if turn.unknown and self._is_trusted(replica, peer):
            self._fail("what is announced is asked for", replica, f"{peer} announced {next(iter(turn.unknown)).hex()}")
        if not (turn.is_graft or turn.is_prune or turn.is_tree_graft or turn.is_tree_prune):
            return
        state = _joined(replica)
        is_linked = peer in state.full_message
        if turn.is_graft and not is_linked and not turn.pruned:
            self._fail("GRAFT is answered", replica, f"{peer} is not in the mesh and was not told so")
        if (turn.is_prune and is_linked) or (turn.is_tree_prune and is_linked and not turn.grafted):
            self._fail("PRUNE is heeded", replica, f"{peer} is still pushed to")
        if turn.is_tree_graft and peer in state.metadata_only:
            self._fail("GRAFT is heeded", replica, f"{peer} is not pushed to")

    @staticmethod
    def _is_trusted(replica: SimReplica, peer: PeerId) -> bool:
        states = replica.shared.router.state().peers
        return any(state.peer == peer and (state.score is None or state.score.total >= 0) for state in states)

    def on_action(self, replica: SimReplica, action: Action) -> None:
        """A correct replica's router sends, delivers or publishes."""
        node = self._nodes[replica.id]
        if isinstance(action, SendRpc):
            for peer in action.peers:
                talk = node.talks.get(peer)
                if talk is None:
                    self._check_outsider(replica, node, peer, action.rpc)
                    continue
                self._check_messages(replica, node, talk, peer, action.rpc)
                if action.rpc.control is not None:
                    self._check_control(replica, node, talk, peer, action.rpc.control)
                if action.rpc.overlay:
                    self._note_tree(replica, node, talk, peer, action.rpc)
        elif isinstance(action, Published):
            node.known.add(action.message_id)
        elif isinstance(action, Deliver):
            self._check_delivery(replica, node, action)

    def _check_outsider(self, replica: SimReplica, node: _Node, peer: PeerId, rpc: Rpc) -> None:
        """Check an RPC to a peer that does not hold the log. It may have left a moment ago."""
        wire = replica.process.wires.get(peer)
        if wire is None:
            self._fail("RPCs go to connected peers", replica, f"{peer} is not connected")
        has_left = replica.world.now - node.left.get(peer, -math.inf) > LEFT_S
        if rpc.messages and has_left and not (wire.has_lost or wire.has_dropped):
            self._fail("messages go to those who hold the log", replica, f"{peer} does not")

    def _check_messages(self, replica: SimReplica, node: _Node, talk: _Talk, peer: PeerId, rpc: Rpc) -> None:
        turn, now = node.turn, replica.world.now
        for message in rpc.messages:
            message_id = message.id
            if message_id == node.forwarding:
                node.owing.discard(peer)
            if turn is not None and turn.peer == peer:
                turn.owed.pop(message_id, None)
            if peer not in self._correct:
                continue
            talk.sent[message_id] = count = talk.sent.get(message_id, 0) + 1
            if message_id in talk.asked:
                if count > 1 + _GOSSIPSUB.retransmissions:
                    self._fail("nothing is sent again and again", replica, f"{message_id.hex()} to {peer}, {count} times")
            elif message_id in talk.brought:
                self._fail("nothing goes back to its source", replica, f"{message_id.hex()} was brought by {peer}")
            elif count > 1:
                self._fail("nothing is sent again and again", replica, f"{message_id.hex()} to {peer}, who did not ask")
            elif now - talk.unwanted.get(message_id, -UNWANTED_S) < UNWANTED_S:
                self._fail("IDONTWANT is heeded", replica, f"{message_id.hex()} to {peer}")

    def on_refused(self, replica: SimReplica, peer: PeerId, rpc: Rpc) -> None:
        """An RPC found the queue full."""
        talk, control = self._nodes[replica.id].talks.get(peer), rpc.control
        if talk is not None and control is not None and (control.graft or control.prune):
            talk.unsaid = bool(control.graft), replica.world.now

    def _check_control(self, replica: SimReplica, node: _Node, talk: _Talk, peer: PeerId, control: Control) -> None:
        turn, now = node.turn, replica.world.now
        if control.graft or control.prune:
            talk.unsaid = None
        if control.graft or control.prune or control.choke:
            state = _joined(replica)
            is_linked = peer in state.full_message
            if (control.graft and not is_linked) or (control.prune and is_linked) or (control.choke and peer not in state.choked_by_us):
                what = "GRAFT" if control.graft else "PRUNE" if control.prune else "CHOKE"
                self._fail("what is said of a link is so", replica, f"{what} to {peer}")
        for ihave in control.ihave:
            talk.announced.update(dict.fromkeys(ihave.ids, now))
        if control.graft and replica.local_now() < node.backoffs.get(peer, 0.0):
            left_s = node.backoffs[peer] - replica.local_now()
            self._fail("nobody is grafted during a back-off", replica, f"{peer}, {left_s:.1f} s too early")
        for prune in control.prune:
            self._back_off(replica, node, peer, prune.backoff_s)
        if turn is not None and turn.peer == peer:
            turn.pruned |= bool(control.prune)
            for message_id in control.iwant:
                turn.unknown.pop(message_id, None)

    @staticmethod
    def _note_tree(replica: SimReplica, node: _Node, talk: _Talk, peer: PeerId, rpc: Rpc) -> None:
        for said in rpc.overlay:
            if isinstance(said, TreeIHave):
                talk.announced.update(dict.fromkeys((message_id for message_id, _ in said.summary), replica.world.now))
                if node.forwarding in talk.announced and node.delivered.get(node.forwarding) == replica.world.now:
                    # Its link was lazy at the delivery, and was made eager later in the same turn, as after the loss of another.
                    node.owing.discard(peer)
            elif isinstance(said, TreeGraft):
                if node.turn is not None and node.turn.peer == peer:
                    node.turn.grafted = True
                for message_id in said.ids:
                    for key in [key for key in node.wanted if key[0] == message_id]:
                        del node.wanted[key]

    # Deliveries

    def _check_delivery(self, replica: SimReplica, node: _Node, action: Deliver) -> None:
        message_id, now = action.message.id, replica.world.now
        if node.forwarding is not None and node.delivered[node.forwarding] < now:
            self._check_forwarded(replica, node)
        if now - node.delivered.get(message_id, -REMEMBERED_S) < REMEMBERED_S:
            self._fail("what is delivered is delivered once", replica, message_id.hex())
        node.delivered[message_id] = now
        if node.owing or len(node.delivered) % FORWARDED_ONE_IN:
            return
        state = replica.shared.router.state()
        if state.router == "randomsub":
            return
        topic = _topic_of(replica, state)
        node.forwarding = message_id
        node.owing = {
            peer
            for peer in topic.full_message
            if peer in self._correct and peer in node.talks and peer != action.source and peer not in topic.choked
            if message_id not in node.talks[peer].unwanted and message_id not in node.talks[peer].copied
        }

    def _check_forwarded(self, replica: SimReplica, node: _Node) -> None:
        """Check that the last delivered message has been forwarded to all peers that are still connected."""
        owing = [peer for peer in node.owing if peer in node.talks]
        if owing and node.forwarding is not None:
            self._fail("what is delivered is forwarded", replica, f"{node.forwarding.hex()} was not sent to {owing[0]}")
        node.forwarding, node.owing = None, set()

    # Samples

    def sample(self) -> Mapping[PeerId, RouterState]:
        """Check all correct replicas while none of them is in the middle of an event, and return the states of their routers."""
        up = {id: replica.shared.router.state() for id, replica in self._correct.items() if replica.is_up}
        for id, state in up.items():
            replica = self._correct[id]
            node, topic = self._nodes[id], _topic_of(replica, state)
            self._check_forwarded(replica, node)
            self._check_routes(replica, node, state, topic)
            if state.router in MESH_ROUTERS:
                self._check_mesh(replica, node, state, topic)
            links = topic.full_message + topic.metadata_only if state.router == "episub" else topic.full_message
            if state.router == "episub" or state.router in MESH_ROUTERS:
                self._check_symmetry(replica, node, up, links)
            if state.router == "episub":
                self._check_overlay(replica, node, links)
        return up

    def _lasts(self, replica: SimReplica, node: _Node, what: str, peer: PeerId, is_so: bool, limit_s: float = LASTS_S) -> bool:
        """Note whether a wrong state holds now, and return whether it has lasted too long."""
        if not is_so:
            node.lasting.pop((what, peer), None)
            return False
        return replica.world.now - node.lasting.setdefault((what, peer), replica.world.now) > limit_s

    def _check_routes(self, replica: SimReplica, node: _Node, state: RouterState, topic: TopicState) -> None:
        known = {peer.peer for peer in state.peers}
        for name in ("full_message", "metadata_only", "fan_out", "choked", "choked_by_us"):
            for peer in getattr(topic, name):
                wire = replica.process.wires.get(peer)
                if wire is None or peer not in known:
                    self._fail("routes lead to connected peers", replica, f"{peer} in {name} is not connected")
                if peer not in node.talks and self._lasts(replica, node, "outside", peer, not wire.has_lost):
                    self._fail("routes lead to those who hold the log", replica, f"{peer} in {name} does not")
        if not set(topic.full_message).isdisjoint(topic.metadata_only):
            self._fail("a peer is pushed to or told, not both", replica, str(sorted(set(topic.full_message) & set(topic.metadata_only))))
        for peer, talk in node.talks.items():
            lasted_s = replica.world.now - max(talk.since, talk.wire.opened_at)
            is_due = peer in self._correct and not talk.wire.has_lost and lasted_s > LASTS_S
            if is_due and not any(peer == other.peer and topic.topic in other.topics for other in state.peers):
                self._fail("subscriptions are known", replica, f"of {peer}, connected for {lasted_s:.1f} s")

    def _check_mesh(self, replica: SimReplica, node: _Node, state: RouterState, topic: TopicState) -> None:
        links, now = topic.full_message, replica.local_now()
        if self._lasts(replica, node, "too large", replica.id, len(links) > self.mesh.D_hi):
            self._fail("a mesh is not too large", replica, f"{len(links)} links")
        is_small = len(links) < self.mesh.D_lo
        for peer in state.peers:
            is_candidate = (
                is_small
                and peer.peer in self._correct  # the back-offs of other peers are not recorded here
                and peer.peer not in links
                and topic.topic in peer.topics
                and (peer.score is None or peer.score.total >= 0)
                and now > node.backoffs.get(peer.peer, 0.0) + self.mesh.heartbeat_s
            )
            if self._lasts(replica, node, "candidate", peer.peer, is_candidate):
                self._fail("a mesh is not too small", replica, f"{len(links)} links, and {peer.peer} could be grafted")
        for peer_id, talk in node.talks.items():
            if talk.unsaid is None or talk.unsaid[0] is not (peer_id in links):
                talk.unsaid = None
            elif replica.world.now - talk.unsaid[1] > REPEATED_S:
                what = "GRAFT" if talk.unsaid[0] else "PRUNE"
                self._fail("what met a full queue is said again", replica, f"{what} to {peer_id}")
        if state.router == "choke":
            both = set(topic.choked) | set(topic.choked_by_us)
            if not both.issubset(links):
                self._fail("who is choked is in the mesh", replica, str(sorted(both.difference(links))))
            spared = self.mesh.D_choke if isinstance(self.mesh, ChokeParams) else _CHOKE.D_choke
            if len(links) - len(topic.choked_by_us) < min(spared, len(links)):
                self._fail("some links are not choked", replica, f"{len(topic.choked_by_us)} of {len(links)} are")

    def _check_symmetry(self, replica: SimReplica, node: _Node, up: Mapping[PeerId, RouterState], links: tuple[PeerId, ...]) -> None:
        for peer, talk in node.talks.items():
            if peer not in up:
                continue
            mine, other = _topic_of(replica, up[replica.id]), _topic_of(replica, up[peer])
            theirs = other.full_message + other.metadata_only if up[peer].router == "episub" else other.full_message
            is_odd = peer in links and replica.id not in theirs and not talk.wire.has_lost
            limit_s = OVERLAY_LASTS_S if up[peer].router == "episub" else LASTS_S
            if self._lasts(replica, node, "one-sided", peer, is_odd, limit_s):
                self._fail("both ends know of a link", replica, f"{peer} does not know that it is linked with us")
            is_odd = (peer in mine.choked) != (replica.id in other.choked_by_us) and not talk.wire.has_lost
            if self._lasts(replica, node, "choked", peer, is_odd):
                self._fail("both ends know what is choked", replica, f"{peer}'s link")

    def _check_overlay(self, replica: SimReplica, node: _Node, links: tuple[PeerId, ...]) -> None:
        now = replica.world.now
        for (message_id, peer), deadline in list(node.wanted.items()):
            if message_id in node.known or peer not in links or node.talks[peer].wire.has_lost:
                del node.wanted[message_id, peer]
            elif now > deadline:
                self._fail("what is announced is asked for", replica, f"{peer} announced {message_id.hex()} {ASKED_S} s ago")
        for peer, talk in node.talks.items():
            is_odd = not links and peer in self._correct and not talk.wire.has_lost
            if self._lasts(replica, node, "alone", peer, is_odd, OVERLAY_LASTS_S):
                self._fail("nobody is alone", replica, f"it has no neighbour, and {peer} is there")


def _joined(replica: SimReplica) -> TopicState:
    """Return the state of a replica's topic."""
    return _topic_of(replica, replica.shared.router.state())


def _topic_of(replica: SimReplica, state: RouterState) -> TopicState:
    return next(topic for topic in state.topics if topic.topic == replica.topic and topic.is_joined)
