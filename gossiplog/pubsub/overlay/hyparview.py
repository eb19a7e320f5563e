"""HyParView membership with GoCast's proximity: one topic's active and passive views, as one node sees them.

Source: "HyParView" (DSN 2007), algorithm 1; "Episub" (r1), "Membership Management Protocol", whose joins, stabilisation and
optimisation it follows.

Deviations, against peers that lie and crowds that join at once:
- The active view has a hard maximum. A JOIN that finds it full is answered with NODES.
- A peer whose JOIN came by way of another becomes a neighbour, and is announced further, only once it is connected.
- An ACCEPT that we did not ask for counts as a REQUEST.
- LINKS from a peer that we asked count as its ACCEPT, which may have found a full queue.
- A LEAVE removes a peer from an active view only if that peer sent it itself.
- Of the links to neighbours with more than C_rand random links, those to common neighbours are dropped first, so that no drop splits
  the overlay while there is a choice.
- A link is given up, for a nearer peer or as surplus, only while the tree does not use it. Giving up a used one cost the subtree below it
  up to 1.2 s and 5 hops. A near link becomes useless, and lazy, once a nearer one has taken its place in the tree.
"""

from __future__ import annotations

from collections.abc import Container

from ..actions import Disconnect, Probe
from ..base import PubSub
from ..params import EpisubParams
from ..peers import choose
from ..rpc import ForwardJoin, GetNodes, Leaving, LinkEnded, Neighbor, NeighborKind, Nodes, Shuffle, ShuffleReply, WalkJoin
from ..types import PeerId, Topic
from .dialler import OverlayDials
from .neighbours import ActiveLink, RoundTrips, count_random, find_farthest_near, order_surplus
from .plumtree import BroadcastTree

_NODES_MAX = 32


class MembershipViews:
    """The two views of one topic.

    Attributes:
        active: Neighbours; the relation is symmetric in steady state.
        passive: Other members, which may replace neighbours that fail or are farther away.
        joining: Peers that we dial to make them neighbours, because their JOIN came by way of another peer.
        rtts: Smoothed round trips to members of both views.
    """

    def __init__(self, core: PubSub, me: PeerId, topic: Topic, params: EpisubParams, tree: BroadcastTree, dialler: OverlayDials) -> None:
        self.active: dict[PeerId, ActiveLink] = {}
        self.passive: dict[PeerId, None] = {}
        self.joining: dict[PeerId, None] = {}
        self.rtts = RoundTrips(params.rtt_gain)
        self._core = core
        self._me = me
        self._topic = topic
        self._params = params
        self._tree = tree
        self._dialler = dialler
        self._tick = 0
        self._asked: dict[PeerId, tuple[int, PeerId | None]] = {}  # our requests: the last tick to wait, the neighbour to give up for it
        self._suitors: dict[PeerId, int] = {}  # requests that wait for a round trip: the last tick to wait
        self._joins_until = -1
        self._contact_tick: int | None = None
        self._is_changed = False
        self._phase = core.rng.randrange(params.shuffle_ticks * params.links_ticks * params.improve_ticks)

    # Joining and leaving

    def meet(self, peer: PeerId) -> None:
        """Add a connected peer of the topic to the passive view; ask it for nodes if we have no links."""
        self._add_passive(peer)
        self._seek_contact()

    def leave(self) -> None:
        """Send LEAVE to all neighbours and drop them."""
        for peer in list(self.active):
            self._dialler.say(peer, Leaving(self._topic, self._me, self._params.leave_ttl))
            self._unlink(peer)

    def _seek_contact(self) -> None:
        """Ask a member for nodes, preferably a connected one, unless we have links or asked within `request_ticks`.

        A connected one may be in no view: its answer to a request was lost.
        """
        if self.active or (self._contact_tick is not None and self._tick < self._contact_tick + self._params.request_ticks):
            return
        contacts = [peer for peer in self._core.topics.get(self._topic, ()) if self._is_candidate(peer)] or list(self.passive)
        if contacts:
            self._contact_tick = self._tick
            self._dialler.say(choose(contacts, 1, self._core.rng)[0], GetNodes(self._topic))

    def on_get_nodes(self, sender: PeerId) -> None:
        """Answer GETNODES with a sample of both views, at most 32 peers."""
        self._dialler.say(sender, self._sample_for(sender))

    def _sample_for(self, peer: PeerId) -> Nodes:
        peers = [other for other in (*self.active, *self.passive) if other != peer]
        return Nodes(self._topic, tuple(choose(peers, _NODES_MAX, self._core.rng)))

    def on_nodes(self, sender: PeerId, peers: tuple[PeerId, ...]) -> None:
        """Add members to the passive view; if we are joining, send C_rand JOINs."""
        self.add_members(peers)
        if self.active or self._contact_tick is None or self._tick <= self._joins_until:
            return
        self._joins_until = self._tick + self._params.request_ticks
        candidates = list(self.passive)
        if sender not in self.passive:
            candidates.append(sender)
        for peer in choose(candidates, self._params.C_rand, self._core.rng):
            self._dialler.say(peer, WalkJoin(self._topic, self._me, self._params.join_ttl))

    def on_join(self, sender: PeerId, join: WalkJoin) -> None:
        """Make the joining peer a neighbour, or forward its JOIN."""
        params, peer = self._params, join.peer
        ttl = min(join.ttl, params.join_ttl)
        if not self._is_candidate(peer):
            return
        steps = [other for other in self.active if other not in (sender, peer)]
        links = len(self.active) + len(self.joining)
        if peer not in self.active and (links < params.active_size or ttl <= 0 or not steps):
            if peer in self._core.peers:
                self._welcome(peer)
            elif links >= params.active_max:
                self._dialler.say(peer, self._sample_for(peer), named_by=sender)
            elif self._dialler.dial(peer, sender):
                self.joining[peer] = None
        elif ttl > 0 and steps:
            self._dialler.say(choose(steps, 1, self._core.rng)[0], WalkJoin(self._topic, peer, ttl - 1))

    def on_connected(self, peer: PeerId) -> None:
        """Answer the JOIN of a peer that is now connected."""
        if peer in self.joining:
            del self.joining[peer]
            self._welcome(peer)

    def _welcome(self, peer: PeerId) -> None:
        """Make a connected peer that joins a neighbour and announce it, or send it other nodes if the view is full."""
        if len(self.active) >= self._params.active_max:
            self.on_get_nodes(peer)
            return
        self._accept(peer, is_random=True)
        for other in choose([other for other in self.active if other != peer], 1, self._core.rng):
            self._dialler.say(other, ForwardJoin(self._topic, peer, self._params.forward_join_ttl))

    def on_forward_join(self, sender: PeerId, join: ForwardJoin) -> None:
        """Add the new member to the passive view and forward the FORWARDJOIN."""
        self._add_passive(join.peer)
        ttl = min(join.ttl, self._params.forward_join_ttl)
        steps = [other for other in self.active if other not in (sender, join.peer)]
        if ttl > 0 and steps:
            self._dialler.say(choose(steps, 1, self._core.rng)[0], ForwardJoin(self._topic, join.peer, ttl - 1))

    def on_leaving(self, sender: PeerId, leaving: Leaving) -> None:
        """Forget a member that left; forward the LEAVE if that removed the member here or the time to live is not over.

        A LEAVE about ourselves is a lie and is not forwarded: our neighbours would believe it, coming from us.
        """
        if leaving.peer == self._me:
            return
        peer, ttl = leaving.peer, min(leaving.ttl, self._params.leave_ttl)
        removed = peer in self.passive
        self._forget_passive(peer)
        if peer in self.active and peer == sender:
            removed = True
            self._unlink(peer)
            self._grow()
        if removed or ttl > 0:
            for other in self.active:
                if other not in (sender, peer):
                    self._dialler.say(other, Leaving(self._topic, peer, max(0, ttl - 1)))

    # Neighbours

    def on_neighbor(self, sender: PeerId, neighbor: Neighbor) -> None:
        """Handle a NEIGHBOR: a request, an acceptance, or an update of a neighbour's links."""
        link = self.active.get(sender)
        if link is not None:
            link.random_links = neighbor.random_links
            link.peers = frozenset(neighbor.peers[:_NODES_MAX])
            link.heard_tick = self._tick
        is_news = neighbor.kind is NeighborKind.LINKS
        asked = None if is_news and link is not None else self._asked.pop(sender, None)
        if neighbor.kind is NeighborKind.REQUEST:
            self._on_request(sender, neighbor)
        elif link is None:
            is_expected = asked is not None or self._tick <= self._joins_until
            if is_expected and len(self.active) < self._params.active_max:
                self._link(sender, is_random=neighbor.is_random)
            elif is_expected or is_news:
                self._dialler.say(sender, LinkEnded(self._topic))
            else:
                self._on_request(sender, neighbor)
        if asked is not None and asked[1] in self.active and len(self.active) > self._params.active_size:
            self._drop(asked[1])

    def on_neighbor_dropped(self, peer: PeerId) -> None:
        """After a NEIGHBOR found the queue of a neighbour full, send our links again at the next heartbeat."""
        if peer in self.active:
            self.active[peer].is_links_due = True

    def _on_request(self, sender: PeerId, neighbor: Neighbor) -> None:
        params = self._params
        has_room = len(self.active) < params.active_size
        is_needy = neighbor.random_links < params.C_rand and len(self.active) < params.active_max
        if sender in self.active or has_room or is_needy:
            self._accept(sender, is_random=neighbor.is_random)
        elif len(self._suitors) < params.dials_max:
            self._suitors[sender] = self._tick + params.request_ticks
            self._core.out.append(Probe(sender))
        else:
            self._dialler.say(sender, LinkEnded(self._topic))

    def on_disconnected(self, sender: PeerId) -> None:
        """Handle a DISCONNECT: the peer ended the link, or refused our request. It stays a member."""
        self._asked.pop(sender, None)
        if sender in self.active:
            self._unlink(sender)
            self._add_passive(sender)
            self._grow()

    def on_probed(self, peer: PeerId, rtt_s: float | None) -> None:
        """Note a round trip (None: the peer could not be reached), and decide a request that waited for it."""
        params = self._params
        suitor = self._suitors.pop(peer, None)
        if rtt_s is None:
            self._forget_passive(peer)
            return
        if suitor is None and peer not in self.active and peer not in self.passive:
            return
        self.rtts.add(peer, rtt_s)
        if suitor is None:
            return
        worst = self._worst_link()
        if worst is not None and self.rtts.is_closer(peer, worst, params.alpha):
            self._drop(worst)
            self._accept(peer, is_random=False)
        else:
            self._dialler.say(peer, LinkEnded(self._topic))
            self._add_passive(peer)

    def on_closed(self, peer: PeerId) -> None:
        """Handle a closed connection. A neighbour counts as gone; any other peer may merely have disconnected when idle."""
        if self.is_used(peer):
            self.on_gone(peer)

    def is_used(self, peer: PeerId) -> bool:
        """Whether the peer is a neighbour, or a request to or from it is open."""
        return peer in self.active or peer in self._asked or peer in self._suitors

    def on_gone(self, peer: PeerId) -> None:
        """Remove a peer that could not be reached or left the topic from both views."""
        self._asked.pop(peer, None)
        self._suitors.pop(peer, None)
        self.joining.pop(peer, None)
        self._forget_passive(peer)
        if peer in self.active:
            self._unlink(peer)
        if len(self.active) < self._params.active_size:
            self._grow()

    # The passive view

    def on_shuffle(self, sender: PeerId, shuffle: Shuffle) -> None:
        """Forward a SHUFFLE, or at the end of its walk exchange samples with its origin."""
        ttl = min(shuffle.ttl, self._params.shuffle_ttl) - 1
        steps = [other for other in self.active if other not in (sender, shuffle.peer)]
        if shuffle.peer == self._me:
            return
        if ttl > 0 and len(self.active) > 1 and steps:
            forwarded = Shuffle(self._topic, shuffle.peer, shuffle.peers[:_NODES_MAX], ttl)
            self._dialler.say(choose(steps, 1, self._core.rng)[0], forwarded)
            return
        sample = [peer for peer in self.passive if peer != shuffle.peer]
        count = min(len(shuffle.peers) + 1, _NODES_MAX)
        reply = ShuffleReply(self._topic, tuple(choose(sample, count, self._core.rng)))
        self._dialler.say(shuffle.peer, reply, named_by=sender)
        self.add_members((shuffle.peer, *shuffle.peers))

    def _shuffle(self) -> None:
        params, rng = self._params, self._core.rng
        active = list(self.active)
        for peer in choose(active, 1, rng):
            some = choose(active[1:], params.k_active, rng) + choose(list(self.passive), params.k_passive, rng)
            sample = tuple(other for other in some if other != peer)
            self._dialler.say(peer, Shuffle(self._topic, self._me, sample, params.shuffle_ttl))

    # The heartbeat

    def heartbeat(self) -> None:
        """Stabilise, optimise, probe, shuffle, send neighbours our links."""
        params = self._params
        self._tick += 1
        phase = self._tick + self._phase
        for peer in [peer for peer, (until, _) in self._asked.items() if until < self._tick]:
            del self._asked[peer]
            self._forget_passive(peer)
        for peer in [peer for peer, until in self._suitors.items() if until < self._tick]:
            del self._suitors[peer]
        for peer in [peer for peer, link in self.active.items() if link.heard_tick + params.silence_ticks < self._tick]:
            self._drop(peer)
        if len(self.active) > params.active_size:
            self._trim()
        elif len(self.active) < params.active_size:
            self._grow()
        elif phase % params.improve_ticks == 0:
            self._improve()
        if phase % params.probe_ticks == 0:
            self._probe()
        if phase % params.shuffle_ticks == 0:
            self._shuffle()
        is_due = self._is_changed or phase % params.links_ticks == 0
        self._is_changed = False
        for peer, link in self.active.items():
            if is_due or link.is_links_due:
                link.is_links_due = False
                self._say_neighbor(peer, NeighborKind.LINKS, is_random=link.is_random)

    def _trim(self) -> None:
        """Drop links that are safe to drop, down to `active_size`."""
        params = self._params
        excess = len(self.active) - params.active_size
        for peer in order_surplus(self.active, self._me, self._links_in_use(), params.C_rand, self._core.rng)[:excess]:
            self._drop(peer)

    def _grow(self) -> None:
        """Ask passive peers to become neighbours: random ones while there are fewer than C_rand random links, then the nearest."""
        params, rng = self._params, self._core.rng
        if not self.active:
            self._seek_contact()
        missing = params.active_size - len(self.active) - len(self._asked)
        candidates = [peer for peer in self.passive if peer not in self._asked]
        while missing > 0 and candidates:
            is_random = count_random(self.active) + len(self._asked) < params.C_rand
            nearest = None if is_random else self.rtts.nearest(candidates)
            peer = choose(candidates, 1, rng)[0] if nearest is None else nearest
            candidates.remove(peer)
            self._ask(peer, None, is_random=is_random)
            missing -= 1

    def _improve(self) -> None:
        """Ask the nearest passive peer to replace the farthest near link, if its round trip is below alpha times that link's."""
        worst, best = self._worst_link(), self.rtts.nearest(self.passive)
        if worst is not None and best is not None and not self._asked and self.rtts.is_closer(best, worst, self._params.alpha):
            self._ask(best, worst, is_random=False)

    def _worst_link(self) -> PeerId | None:
        """Return the near link to give up for a nearer one."""
        return find_farthest_near(self.active, self.rtts, self._links_in_use(), self._params.C_rand)

    def _links_in_use(self) -> Container[PeerId]:
        """Return the links that the tree uses. While no link is lazy, there is no tree yet."""
        return self._tree.eager if self._tree.lazy else ()

    def _probe(self) -> None:
        rng = self._core.rng
        for peer in choose(list(self.active), 1, rng) + choose(list(self.passive), 1, rng):
            self._core.out.append(Probe(peer))

    def _ask(self, peer: PeerId, instead_of: PeerId | None, *, is_random: bool) -> None:
        if self._say_neighbor(peer, NeighborKind.REQUEST, is_random=is_random):
            self._asked[peer] = (self._tick + self._params.request_ticks, instead_of)

    # Links

    def _say_neighbor(self, peer: PeerId, kind: NeighborKind, *, is_random: bool) -> bool:
        return self._dialler.say(peer, Neighbor(self._topic, kind, is_random, count_random(self.active), tuple(self.active)))

    def _accept(self, peer: PeerId, *, is_random: bool) -> None:
        """Link a peer that asked us. The ACCEPT goes before the tree's announcement, which the peer ignores from a non-neighbour."""
        is_new = self._add_active(peer, is_random=is_random)
        self._say_neighbor(peer, NeighborKind.ACCEPT, is_random=is_random)
        if is_new:
            self._tree.neighbor_up(peer)

    def _link(self, peer: PeerId, *, is_random: bool) -> None:
        """Link a peer that accepted our request."""
        if self._add_active(peer, is_random=is_random):
            self._tree.neighbor_up(peer)

    def _add_active(self, peer: PeerId, *, is_random: bool) -> bool:
        assert peer in self._core.peers
        if peer in self.active:
            return False
        self.passive.pop(peer, None)
        self.active[peer] = ActiveLink(self._tick, is_random=is_random)
        self._is_changed = True
        if peer not in self.rtts:
            self._core.out.append(Probe(peer))
        return True

    def _unlink(self, peer: PeerId) -> None:
        del self.active[peer]
        self.rtts.pop(peer, None)
        self._is_changed = True
        self._tree.neighbor_down(peer)

    def _drop(self, peer: PeerId) -> None:
        """End a link with a DISCONNECT; the peer stays a member."""
        rtt_s = self.rtts.get(peer)
        self._dialler.say(peer, LinkEnded(self._topic))
        self._unlink(peer)
        self._add_passive(peer)
        if rtt_s is not None and peer in self.passive:
            self.rtts.add(peer, rtt_s)
        self._core.out.append(Disconnect(peer))

    def _add_passive(self, peer: PeerId) -> None:
        if peer in self.active or peer in self.passive or not self._is_candidate(peer):
            return
        if len(self.passive) >= self._params.passive_max:
            self._forget_passive(choose(list(self.passive), 1, self._core.rng)[0])
        self.passive[peer] = None

    def _is_candidate(self, peer: PeerId) -> bool:
        """Whether a peer may be in a view: not we ourselves, nor a connected peer that speaks no episub."""
        known = self._core.peers.get(peer)
        return peer != self._me and (known is None or known.features.overlay)

    def add_members(self, peers: tuple[PeerId, ...]) -> None:
        """Add a sample of members, at most 32, to the passive view."""
        for peer in peers[:_NODES_MAX]:
            self._add_passive(peer)

    def _forget_passive(self, peer: PeerId) -> None:
        if peer in self.passive:
            del self.passive[peer]
            self.rtts.pop(peer, None)
