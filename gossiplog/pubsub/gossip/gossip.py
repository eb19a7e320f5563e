"""Gossip: IHAVE and IWANT with their promises, IDONTWANT, and their limits.

Source: gossipsub v1.0 specification, "Gossip"; v1.1, "Adaptive Gossip Dissemination", "Spam Protection Measures"; v1.2.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from itertools import chain, filterfalse, islice

from ..actions import SendRpc
from ..base import PubSub
from ..cache import MessageCache
from ..params import GossipsubParams
from ..peers import Peer, choose
from ..rpc import IHave, Message, Rpc
from ..types import MessageId, PeerId, Topic
from .score import PeerScores, Scoring


class Gossip:
    """Announce messages, ask for them and serve them.

    Attributes:
        unwanted: For each peer the ids that it asked not to be sent, each with the tick at which that expires.
        promise_count: Requests tracked as promises.
    """

    def __init__(self, core: PubSub, params: GossipsubParams, scoring: Scoring) -> None:
        self.mcache = MessageCache[Message](params.history_gossip, params.history_length, params.mcache_max, params.mcache_bytes_max)
        self.unwanted: dict[PeerId, dict[MessageId, int]] = {}
        self.promise_count = 0
        self._core = core
        self._params = params
        self._scoring = scoring
        self._is_scoring = isinstance(scoring, PeerScores)
        self._tick = 0
        self._promises: dict[MessageId, dict[PeerId, float]] = {}
        self._heard: dict[PeerId, int] = {}
        self._asked: dict[PeerId, int] = {}
        self._served: dict[PeerId, int] = {}
        self._announced_at: dict[PeerId, int] = {}  # the tick at which each peer was last sent gossip, with `gossip_rotates`

    # What peers say

    def on_ihave(self, peer: Peer, ihaves: tuple[IHave, ...]) -> None:
        """Ask for announced messages that we have not seen, within the limits of one heartbeat."""
        params, core = self._params, self._core
        if self._scoring.of(peer.id) < self._scoring.thresholds.gossip:
            return
        heard = self._heard.get(peer.id, 0)
        room = params.ihave_ids_max - self._asked.get(peer.id, 0)
        if heard >= params.ihave_messages_max or room <= 0:
            return
        self._heard[peer.id] = heard + 1
        seen = core.seen.entries
        announced = chain.from_iterable([ihave.ids for ihave in ihaves if ihave.topic in core.joined])
        wanted = dict.fromkeys(filterfalse(seen.__contains__, islice(announced, params.ihave_ids_max)))
        if not wanted:
            return
        asked = choose(list(wanted), room, core.rng)
        self._asked[peer.id] = self._asked.get(peer.id, 0) + len(asked)
        core.draft(peer.id).iwant += asked
        if self._is_scoring:
            # One promise per `promise_ids`, so that announcing thousands of invented ids costs more than announcing one.
            for message_id in asked[:: params.promise_ids]:
                self._promise(peer.id, message_id)

    def _promise(self, peer: PeerId, message_id: MessageId) -> None:
        if self.promise_count < self._params.promises_max:
            promised = self._promises.setdefault(message_id, {})
            if peer not in promised:
                promised[peer] = self._core.now + self._params.iwant_follow_up_s
                self.promise_count += 1

    def on_iwant(self, peer: Peer, ids: tuple[MessageId, ...]) -> None:
        """Send the messages that the cache has, each at most `retransmissions` times to a peer, within the limits of one heartbeat."""
        params = self._params
        if self._scoring.of(peer.id) < self._scoring.thresholds.gossip:
            return
        unwanted: Container[MessageId] = self.unwanted.get(peer.id, ())
        messages: list[Message] = []
        served = self._served.get(peer.id, 0)
        wanted = dict.fromkeys(islice(ids, max(0, params.ihave_ids_max - served)))
        self._served[peer.id] = served + len(wanted)
        for message_id in wanted:
            message, count = self.mcache.get_for(message_id, peer.id)
            if message is not None and count <= params.retransmissions and message_id not in unwanted:
                messages.append(message)
        if messages:
            self._core.out.append(SendRpc((peer.id,), Rpc(tuple(messages))))

    def on_idontwant(self, peer: Peer, ids: tuple[MessageId, ...]) -> None:
        """Note ids that the peer need not be sent, up to `idontwant_ids_max`."""
        unwanted = self.unwanted.setdefault(peer.id, {})
        until = self._tick + self._params.idontwant_ticks
        for message_id in ids:
            if len(unwanted) >= self._params.idontwant_ids_max:
                return
            unwanted[message_id] = until

    def fulfil(self, message_id: MessageId) -> Container[PeerId]:
        """Drop the promises of a message that came, from any peer; return the peers that had promised it."""
        promised = self._promises.pop(message_id, None)
        if promised is None:
            return ()
        self.promise_count -= len(promised)
        return promised

    def forget(self, peer: PeerId) -> None:
        """Drop the state of a peer that disconnected."""
        self.unwanted.pop(peer, None)
        self._announced_at.pop(peer, None)

    # What we say

    def idontwant_peers(self, message: Message, source: PeerId | None, links: Mapping[PeerId, Peer]) -> list[PeerId]:
        """Return the mesh peers that IDONTWANT goes to: if the message is large, all that understand it, except the source."""
        if len(message.data) < self._params.idontwant_bytes_min:
            return []
        return [peer.id for peer in links.values() if peer.features.idontwant and peer.id != source]

    def emit(self, topic: Topic, exclude: Container[PeerId]) -> None:
        """Announce the window's messages to some peers of the topic that are not in `exclude`; once a heartbeat."""
        params, core = self._params, self._core
        ids = self.mcache.window(topic)
        if not ids:
            return
        members = core.topics.get(topic, {}).values()
        peers = [peer.id for peer in members if peer.is_meshable and peer.id not in exclude]
        if self._is_scoring:
            lowest, score = self._scoring.thresholds.gossip, self._scoring.of
            peers = [peer for peer in peers if score(peer) >= lowest]
        count = max(params.D_lazy, int(params.gossip_factor * len(peers)))
        chosen = self._longest_waiting(peers, count) if params.gossip_rotates else choose(peers, count, core.rng)
        if not chosen:
            return
        if len(ids) <= params.ihave_ids_max:
            core.announce(chosen, IHave(topic, tuple(ids)))
        else:
            for peer in chosen:
                core.draft(peer).ihave.append(IHave(topic, tuple(choose(ids, params.ihave_ids_max, core.rng))))

    def _longest_waiting(self, peers: list[PeerId], count: int) -> list[PeerId]:
        """Choose the peers that were sent gossip longest ago; among equals at random."""
        last = self._announced_at
        chosen = sorted(choose(peers, len(peers), self._core.rng), key=lambda peer: last.get(peer, -1))[:count]
        last.update(dict.fromkeys(chosen, self._tick))
        return chosen

    # The heartbeat

    def begin_tick(self, tick: int) -> None:
        """Begin a heartbeat: renew allowances, expire IDONTWANTs, penalise broken promises."""
        self._tick = tick
        self._heard.clear()
        self._asked.clear()
        self._served.clear()
        if self.unwanted:
            for peer, ids in list(self.unwanted.items()):
                left = {message_id: until for message_id, until in ids.items() if until > tick}
                if left:
                    self.unwanted[peer] = left
                else:
                    del self.unwanted[peer]
        if self._promises:
            self._punish_broken()

    def _punish_broken(self) -> None:
        now = self._core.now
        for message_id, promised in list(self._promises.items()):
            for peer in [peer for peer, until in promised.items() if until < now]:
                del promised[peer]
                self.promise_count -= 1
                self._scoring.penalise(peer, 1)
            if not promised:
                del self._promises[message_id]
