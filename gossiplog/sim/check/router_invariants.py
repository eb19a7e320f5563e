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
from collections.abc import Iterable
from dataclasses import dataclass, field

from ...broadcast.actions import Action
from ...broadcast.events import PeerKind
from ...pubsub.actions import Deliver, Published, SendRpc
from ...pubsub.params import ChokeParams, GossipsubParams
from ...pubsub.router import RouterState, TopicState
from ...pubsub.rpc import Control, Rpc, TreeGraft, TreeIHave, TreePrune
from ...pubsub.types import MessageId, PeerId
from .checker import Checker, Run
from .replica import SimReplica
from .world import SimWire

_GOSSIPSUB, _CHOKE = GossipsubParams(), ChokeParams()
MESH_ROUTERS = ("meshsub", "gossipsub", "choke")
FRESH_S = 1.5
"""An announced message can be asked for at least this long: the message cache keeps it for two heartbeats after its last announcement."""
ASKED_S = 4.0
"""A tree asks for an announced message within this time: two periods of its timer, and the wait for a peer that it asked before."""
UNWANTED_S = 1.5
"""IDONTWANT is heeded for at least this long: three heartbeats, the first of which may be nearly over."""
LASTS_S = 5.0
"""A wrong state is a violation after this time: a GRAFT that met a full queue is repeated after 1 s, the next heartbeat repairs a mesh."""
OVERLAY_LASTS_S = 12.0
"""The same time for an overlay's links; neighbours tell each other about them every 5 heartbeats."""
REPEATED_S = 2.5
"""It is repeated within this time: a second on a clock that may be inexact, the delay of a timer, and the wait for the next sample."""
LEFT_S = 1.0
"""A peer that closes the log says so within this time."""
REMEMBERED_S = 100.0
"""A router certainly remembers a message for this long."""
FORWARDED_ONE_IN = 8


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


class RouterInvariants(Checker):
    """Follows the RPCs of a replica, and the states of its router.

    Args:
        before: The checker of the replica's last start. If the process has gone on since then, its router remembers what it did.

    Attributes:
        talks: The talk with each peer that holds the log and has a router.
        known: Messages that the router has seen.
        delivered: When each message was delivered last.
        backoffs: When each peer may be grafted again, on the replica's clock.
        wanted: Messages that a peer's tree announced, and until when they must be asked for.
        lasting: Since when a wrong state about a peer has lasted.
        turn: The obligations from the RPC that is being handled.
        tree: The tree's links before one of them closed, until the machine has been told.
        forwarding: A message delivered a moment ago; `owing` has the peers to which it must still be forwarded.
        left: When each peer was connected last, or held the log last.
        closed_in: The start of the process in which the log was closed; None unless it was.
    """

    def __init__(self, replica: SimReplica, run: Run, before: RouterInvariants | None) -> None:
        super().__init__(replica, run)
        if before is not None and before.closed_in != replica.process.epoch:
            before = None
        self.asked: dict[PeerId, dict[MessageId, int]] = before.asked if before else {}
        self.copied: dict[PeerId, set[MessageId]] = before.copied if before else {}
        self.known: set[MessageId] = before.known if before else set()
        self.delivered: dict[MessageId, float] = before.delivered if before else {}
        self.backoffs: dict[PeerId, float] = before.backoffs if before else {}
        self.talks: dict[PeerId, _Talk] = {}
        self.wanted: dict[tuple[MessageId, PeerId], float] = {}
        self.lasting: dict[tuple[str, PeerId], float] = {}
        self.turn: _Turn | None = None
        self.tree: tuple[PeerId, ...] | None = None
        self.forwarding: MessageId | None = None
        self.owing: set[PeerId] = set()
        self.left: dict[PeerId, float] = {}
        self.closed_in: int | None = None

    def on_leaving(self) -> None:
        """Its router ends its links in the log."""
        until = self.replica.local_now() + self.run.mesh.unsubscribe_backoff_s
        self.backoffs |= dict.fromkeys(self._joined().full_message, until)
        self.closed_in = self.replica.process.epoch

    def on_connected(self, peer: PeerId) -> None:
        """Start a talk, if the peer has a router."""
        wire = self.replica.wires[peer]
        if wire.kind_for(self.replica) is PeerKind.MESH:
            self.talks[peer] = _Talk(wire, self.now, self.asked.setdefault(peer, {}), self.copied.setdefault(peer, set()))

    def on_closed(self, peer: PeerId) -> None:
        """Forget the talk, and remember the tree if the peer was in it."""
        self.talks.pop(peer, None)
        # The next connection starts all times again: samples do not see a peer that leaves and returns between two of them.
        self.lasting = {about: since for about, since in self.lasting.items() if about[1] != peer}
        self.wanted = {about: until for about, until in self.wanted.items() if about[1] != peer}
        self.left[peer] = self.now
        state = self.replica.shared.router.state()
        tree = self._topic_of(state).full_message if state.router == "episub" else ()
        self.tree = tree if peer in tree else None

    def on_parted(self, peer: PeerId) -> None:
        """Without the peer, no link of the tree may remain lazy."""
        if self.tree is not None and peer not in self.replica.process.wires:
            after = self._joined()
            if after.metadata_only:
                detail = f"{peer} was in its tree and left; {after.metadata_only[0]} still gets announcements only"
                self.fail("a tree that loses a link is repaired", detail)
        self.tree = None

    # RPCs

    def on_rpc(self, peer: PeerId, rpc: Rpc) -> None:
        """Note what the RPC obliges the router to do."""
        talk = self.talks.get(peer)
        if talk is None:  # the peer has left the log, is about to join it, or publishes from outside
            self.known.update(message.id for message in rpc.messages)
            for prune in () if rpc.control is None else rpc.control.prune:
                self._back_off(peer, prune.backoff_s)
            return
        for message in rpc.messages:
            if message.id in self.known:
                talk.copied.add(message.id)
            else:
                self.known.add(message.id)
                talk.brought.add(message.id)
        if rpc.control is None and not rpc.overlay:
            return
        self.turn = turn = _Turn(peer)
        if peer not in self.run.correct:
            return
        now = self.now
        if rpc.control is not None:
            self._note_control(talk, turn, rpc.control)
        for said in rpc.overlay:
            if isinstance(said, TreeIHave):
                unknown = [message_id for message_id, _ in said.summary if message_id not in self.known]
                if unknown and self._is_neighbour(peer):
                    for message_id in unknown:
                        self.wanted.setdefault((message_id, peer), now + ASKED_S)
            elif isinstance(said, TreeGraft):
                turn.is_tree_graft, turn.is_tree_prune = True, False
                self._note_asked(talk, turn, said.ids, now)
            elif isinstance(said, TreePrune):
                turn.is_tree_graft, turn.is_tree_prune = False, True

    def _note_control(self, talk: _Talk, turn: _Turn, control: Control) -> None:
        now = self.now
        turn.is_graft, turn.is_prune = bool(control.graft), bool(control.prune)
        for prune in control.prune:
            self._back_off(turn.peer, prune.backoff_s)
        for message_id in control.idontwant:
            talk.unwanted[message_id] = now
        self._note_asked(talk, turn, control.iwant, now)
        for ihave in control.ihave:
            turn.unknown.update(dict.fromkeys(message_id for message_id in ihave.ids if message_id not in self.known))

    def _is_neighbour(self, peer: PeerId) -> bool:
        topic = self._joined()
        return peer in topic.full_message or peer in topic.metadata_only

    @staticmethod
    def _note_asked(talk: _Talk, turn: _Turn, ids: Iterable[MessageId], now: float) -> None:
        for message_id in dict.fromkeys(ids):
            talk.asked[message_id] = count = talk.asked.get(message_id, 0) + 1
            is_fresh = now - talk.announced.get(message_id, -FRESH_S) < FRESH_S
            if is_fresh and count <= _GOSSIPSUB.retransmissions and message_id not in talk.unwanted:
                turn.owed[message_id] = None

    def _back_off(self, peer: PeerId, backoff_s: int | None) -> None:
        seconds = min(backoff_s or self.run.mesh.prune_backoff_s, self.run.mesh.prune_backoff_max_s)
        self.backoffs[peer] = max(self.backoffs.get(peer, 0.0), self.replica.local_now() + seconds)

    def on_rpc_handled(self) -> None:
        """Check that all obligations of the last RPC are met."""
        turn, self.turn = self.turn, None
        if turn is None or turn.peer not in self.run.correct or turn.peer not in self.talks:
            return
        peer = turn.peer
        if turn.owed and self._is_trusted(peer):
            self.fail("announced messages are served", f"{peer} asked for {next(iter(turn.owed)).hex()} in vain")
        if turn.unknown and self._is_trusted(peer):
            self.fail("announced messages are asked for", f"{peer} announced {next(iter(turn.unknown)).hex()}")
        if not (turn.is_graft or turn.is_prune or turn.is_tree_graft or turn.is_tree_prune):
            return
        state = self._joined()
        is_linked = peer in state.full_message
        if turn.is_graft and not is_linked and not turn.pruned:
            self.fail("GRAFT is answered", f"{peer} is not in the mesh and was not told so")
        if (turn.is_prune and is_linked) or (turn.is_tree_prune and is_linked and not turn.grafted):
            self.fail("PRUNE is heeded", f"{peer} is still pushed to")
        if turn.is_tree_graft and peer in state.metadata_only:
            self.fail("GRAFT is heeded", f"{peer} is not pushed to")

    def _is_trusted(self, peer: PeerId) -> bool:
        states = self.replica.shared.router.state().peers
        return any(state.peer == peer and (state.score is None or state.score.total >= 0) for state in states)

    def on_action(self, action: Action) -> None:
        """Check what the router sends and delivers."""
        if isinstance(action, SendRpc):
            for peer in action.peers:
                talk = self.talks.get(peer)
                if talk is None:
                    self._check_outsider(peer, action.rpc)
                    continue
                self._check_messages(talk, peer, action.rpc)
                if action.rpc.control is not None:
                    self._check_control(talk, peer, action.rpc.control)
                if action.rpc.overlay:
                    self._note_tree(talk, peer, action.rpc)
        elif isinstance(action, Published):
            self.known.add(action.message_id)
        elif isinstance(action, Deliver):
            self._check_delivery(action)

    def _check_outsider(self, peer: PeerId, rpc: Rpc) -> None:
        """Check an RPC to a peer that does not hold the log. It may have left a moment ago."""
        wire = self.replica.process.wires.get(peer)
        if wire is None:
            self.fail("RPCs go to connected peers", f"{peer} is not connected")
        has_left = self.now - self.left.get(peer, -math.inf) > LEFT_S
        if rpc.messages and has_left and not (wire.has_lost or wire.has_dropped):
            self.fail("messages go to peers that hold the log", f"{peer} does not")

    def _check_messages(self, talk: _Talk, peer: PeerId, rpc: Rpc) -> None:
        turn, now = self.turn, self.now
        for message in rpc.messages:
            message_id = message.id
            if message_id == self.forwarding:
                self.owing.discard(peer)
            if turn is not None and turn.peer == peer:
                turn.owed.pop(message_id, None)
            if peer not in self.run.correct:
                continue
            talk.sent[message_id] = count = talk.sent.get(message_id, 0) + 1
            if message_id in talk.asked:
                if count > 1 + _GOSSIPSUB.retransmissions:
                    self.fail("nothing is sent again and again", f"{message_id.hex()} to {peer}, {count} times")
            elif message_id in talk.brought:
                self.fail("nothing goes back to its source", f"{message_id.hex()} was brought by {peer}")
            elif count > 1:
                self.fail("nothing is sent again and again", f"{message_id.hex()} to {peer}, which did not ask")
            elif now - talk.unwanted.get(message_id, -UNWANTED_S) < UNWANTED_S:
                self.fail("IDONTWANT is heeded", f"{message_id.hex()} to {peer}")

    def on_refused(self, peer: PeerId, rpc: Rpc) -> None:
        """A GRAFT or PRUNE has to be repeated."""
        talk, control = self.talks.get(peer), rpc.control
        if talk is not None and control is not None and (control.graft or control.prune):
            talk.unsaid = bool(control.graft), self.now

    def _check_control(self, talk: _Talk, peer: PeerId, control: Control) -> None:
        turn, now = self.turn, self.now
        if control.graft or control.prune:
            talk.unsaid = None
        if control.graft or control.prune or control.choke:
            state = self._joined()
            is_linked = peer in state.full_message
            if (control.graft and not is_linked) or (control.prune and is_linked) or (control.choke and peer not in state.choked_by_us):
                what = "GRAFT" if control.graft else "PRUNE" if control.prune else "CHOKE"
                self.fail("control messages about a link are true", f"{what} to {peer}")
        for ihave in control.ihave:
            talk.announced.update(dict.fromkeys(ihave.ids, now))
        if control.graft and self.replica.local_now() < self.backoffs.get(peer, 0.0):
            left_s = self.backoffs[peer] - self.replica.local_now()
            self.fail("no peer is grafted during its back-off", f"{peer}, {left_s:.1f} s too early")
        for prune in control.prune:
            self._back_off(peer, prune.backoff_s)
        if turn is not None and turn.peer == peer:
            turn.pruned |= bool(control.prune)
            for message_id in control.iwant:
                turn.unknown.pop(message_id, None)

    def _note_tree(self, talk: _Talk, peer: PeerId, rpc: Rpc) -> None:
        for said in rpc.overlay:
            if isinstance(said, TreeIHave):
                talk.announced.update(dict.fromkeys((message_id for message_id, _ in said.summary), self.now))
                if self.forwarding in talk.announced and self.delivered.get(self.forwarding) == self.now:
                    # Its link was lazy at the delivery, and was made eager later in the same turn, as after the loss of another.
                    self.owing.discard(peer)
            elif isinstance(said, TreeGraft):
                if self.turn is not None and self.turn.peer == peer:
                    self.turn.grafted = True
                for message_id in said.ids:
                    for key in [key for key in self.wanted if key[0] == message_id]:
                        del self.wanted[key]

    # Deliveries

    def _check_delivery(self, action: Deliver) -> None:
        message_id, now = action.message.id, self.now
        if self.forwarding is not None and self.delivered[self.forwarding] < now:
            self._check_forwarded()
        if now - self.delivered.get(message_id, -REMEMBERED_S) < REMEMBERED_S:
            self.fail("a message is delivered once", message_id.hex())
        self.delivered[message_id] = now
        if self.owing or len(self.delivered) % FORWARDED_ONE_IN:
            return
        state = self.replica.shared.router.state()
        if state.router == "randomsub":
            return
        topic = self._topic_of(state)
        self.forwarding = message_id
        self.owing = {
            peer
            for peer in topic.full_message
            if peer in self.run.correct and peer in self.talks and peer != action.source and peer not in topic.choked
            if message_id not in self.talks[peer].unwanted and message_id not in self.talks[peer].copied
        }

    def _check_forwarded(self) -> None:
        """Check that the last delivered message has been forwarded to all peers that are still connected."""
        owing = [peer for peer in self.owing if peer in self.talks]
        if owing and self.forwarding is not None:
            self.fail("delivered messages are forwarded", f"{self.forwarding.hex()} was not sent to {owing[0]}")
        self.forwarding, self.owing = None, set()

    # Samples

    def sample(self) -> None:
        """Check the links of the router."""
        state = self.run.states[self.replica.id]
        topic = self._topic_of(state)
        self._check_forwarded()
        self._check_routes(state, topic)
        if state.router in MESH_ROUTERS:
            self._check_mesh(state, topic)
        if state.router in MESH_ROUTERS or state.router == "episub":
            self._check_symmetry(self._links_of(state), topic)
        if state.router == "episub":
            self._check_overlay(self._links_of(state))

    def _lasts(self, what: str, peer: PeerId, is_so: bool, limit_s: float = LASTS_S) -> bool:
        """Note whether a wrong state holds now, and return whether it has lasted too long."""
        if not is_so:
            self.lasting.pop((what, peer), None)
            return False
        return self.now - self.lasting.setdefault((what, peer), self.now) > limit_s

    def _check_routes(self, state: RouterState, topic: TopicState) -> None:
        known = {peer.peer for peer in state.peers}
        for name in ("full_message", "metadata_only", "fan_out", "choked", "choked_by_us"):
            for peer in getattr(topic, name):
                wire = self.replica.process.wires.get(peer)
                if wire is None or peer not in known:
                    self.fail("routes lead to connected peers", f"{peer} in {name} is not connected")
                if peer not in self.talks and self._lasts("outside", peer, not wire.has_lost):
                    self.fail("routes lead to peers that hold the log", f"{peer} in {name} does not")
        if not set(topic.full_message).isdisjoint(topic.metadata_only):
            self.fail("a peer gets messages or announcements, not both", str(sorted(set(topic.full_message) & set(topic.metadata_only))))
        for peer, talk in self.talks.items():
            lasted_s = self.now - max(talk.since, talk.wire.opened_at)
            is_due = peer in self.run.correct and not talk.wire.has_lost and lasted_s > LASTS_S
            if is_due and not any(peer == other.peer and topic.topic in other.topics for other in state.peers):
                self.fail("subscriptions are known", f"of {peer}, connected for {lasted_s:.1f} s")

    def _check_mesh(self, state: RouterState, topic: TopicState) -> None:
        links, now = topic.full_message, self.replica.local_now()
        if self._lasts("too large", self.replica.id, len(links) > self.run.mesh.D_hi):
            self.fail("a mesh is not too large", f"{len(links)} links")
        is_small = len(links) < self.run.mesh.D_lo
        for peer in state.peers:
            is_candidate = (
                is_small
                and peer.peer in self.run.correct  # the back-offs of other peers are not recorded here
                and peer.peer not in links
                and topic.topic in peer.topics
                and (peer.score is None or peer.score.total >= 0)
                and now > self.backoffs.get(peer.peer, 0.0) + self.run.mesh.heartbeat_s
            )
            if self._lasts("candidate", peer.peer, is_candidate):
                self.fail("a mesh is not too small", f"{len(links)} links, and {peer.peer} could be grafted")
        for peer_id, talk in self.talks.items():
            if talk.unsaid is None or talk.unsaid[0] is not (peer_id in links):
                talk.unsaid = None
            elif self.now - talk.unsaid[1] > REPEATED_S:
                what = "GRAFT" if talk.unsaid[0] else "PRUNE"
                self.fail("control messages that met a full queue are repeated", f"{what} to {peer_id}")
        if state.router == "choke":
            both = set(topic.choked) | set(topic.choked_by_us)
            if not both.issubset(links):
                self.fail("choked peers are in the mesh", str(sorted(both.difference(links))))
            spared = self.run.mesh.D_choke if isinstance(self.run.mesh, ChokeParams) else _CHOKE.D_choke
            if len(links) - len(topic.choked_by_us) < min(spared, len(links)):
                self.fail("some links are not choked", f"{len(topic.choked_by_us)} of {len(links)} are")

    def _check_symmetry(self, links: tuple[PeerId, ...], mine: TopicState) -> None:
        for peer, talk in self.talks.items():
            state = self.run.states.get(peer)
            if state is None:
                continue
            theirs, limit_s = self._topic_of(state), OVERLAY_LASTS_S if state.router == "episub" else LASTS_S
            is_odd = peer in links and self.replica.id not in self._links_of(state) and not talk.wire.has_lost
            if self._lasts("one-sided", peer, is_odd, limit_s):
                self.fail("both ends know of a link", f"{peer} does not know that it is linked with us")
            is_odd = (peer in mine.choked) != (self.replica.id in theirs.choked_by_us) and not talk.wire.has_lost
            if self._lasts("choked", peer, is_odd):
                self.fail("both ends know whether a link is choked", f"{peer}'s link")

    def _check_overlay(self, links: tuple[PeerId, ...]) -> None:
        now = self.now
        for (message_id, peer), deadline in list(self.wanted.items()):
            if message_id in self.known or peer not in links or self.talks[peer].wire.has_lost:
                del self.wanted[message_id, peer]
            elif now > deadline:
                self.fail("announced messages are asked for", f"{peer} announced {message_id.hex()} {ASKED_S} s ago")
        for peer, talk in self.talks.items():
            is_odd = not links and peer in self.run.correct and not talk.wire.has_lost
            if self._lasts("alone", peer, is_odd, OVERLAY_LASTS_S):
                self.fail("no replica is alone", f"it has no neighbour, and {peer} is there")

    def _joined(self) -> TopicState:
        return self._topic_of(self.replica.shared.router.state())

    def _topic_of(self, state: RouterState) -> TopicState:
        return next(topic for topic in state.topics if topic.topic == self.replica.topic and topic.is_joined)

    def _links_of(self, state: RouterState) -> tuple[PeerId, ...]:
        """Return the mesh, or all links of an overlay."""
        topic = self._topic_of(state)
        return topic.full_message + topic.metadata_only if state.router == "episub" else topic.full_message
