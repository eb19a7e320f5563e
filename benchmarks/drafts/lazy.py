"""Lazy push: gossipsub that tosses, for each message and mesh peer, whether to send the message or to announce it at once.

Who hears of a message that it lacks asks the first announcer, and the next one if that sends nothing in time: so with every copy
announced, none is sent twice.

Source: the draft of gossipsub v2.0, libp2p/specs pull request 653. What is published here is pushed, as gossipsub does.
"""

from __future__ import annotations

from collections import deque
from random import Random

from gossiplog.pubsub.actions import SendRpc, SetTimer
from gossiplog.pubsub.peers import Peer
from gossiplog.pubsub.routers.gossipsub import Gossipsub
from gossiplog.pubsub.rpc import Control, Message, Rpc
from gossiplog.pubsub.types import MessageId, PeerId, TimerToken

from .messages import DraftControl
from .params import LazyParams

__all__ = ["Lazy"]

NEED = TimerToken("need")


class Lazy(Gossipsub):
    """The router that announces to a part of its mesh.

    Attributes:
        needs: For each message that was asked for the announcers who were not.
    """

    name = "lazy"

    def __init__(self, params: LazyParams, rng: Random) -> None:
        super().__init__(params, rng)
        self.lazy_params = params
        self.needs: dict[MessageId, list[PeerId]] = {}
        self._deadlines: deque[tuple[float, MessageId]] = deque()

    def _recipients(self, message: Message, source: PeerId) -> list[PeerId]:
        peers = super()._recipients(message, source)
        links, share, random = self.mesh.links.get(message.topic, ()), self.lazy_params.announce_share, self.rng.random
        told = [peer for peer in peers if peer in links and random() < share]
        if told:
            self.out.append(SendRpc(told, Rpc(control=DraftControl(iannounce=(message.id,))), True))
        return [peer for peer in peers if peer not in told]

    def _on_new(self, message: Message, peer: Peer, hops: int) -> None:
        self.needs.pop(message.id, None)
        super()._on_new(message, peer, hops)

    def _on_control(self, peer: Peer, control: Control) -> None:
        super()._on_control(peer, control)
        if isinstance(control, DraftControl):
            for message_id in control.iannounce:
                self._on_announced(peer, message_id)
            if control.ineed:
                self._serve(peer, control.ineed)

    def _on_announced(self, peer: Peer, message_id: MessageId) -> None:
        params, announcers = self.lazy_params, self.needs.get(message_id)
        if message_id in self.seen.entries:
            return
        if announcers is not None:
            if len(announcers) < params.announcers_max and peer.id not in announcers:
                announcers.append(peer.id)
        elif len(self.needs) < params.needs_max:
            self.needs[message_id] = []
            self._ask(peer.id, message_id)

    def _ask(self, peer: PeerId, message_id: MessageId) -> None:
        self.out.append(SendRpc((peer,), Rpc(control=DraftControl(ineed=(message_id,))), True))
        self._deadlines.append((self.now + self.lazy_params.need_timeout_s, message_id))
        if len(self._deadlines) == 1:
            self.out.append(SetTimer(NEED, self._deadlines[0][0]))

    def _serve(self, peer: Peer, ids: tuple[MessageId, ...]) -> None:
        served = [self.gossip.mcache.get_for(message_id, peer.id) for message_id in ids]
        messages = tuple(message for message, count in served if message is not None and count <= self.params.retransmissions)
        if messages:
            self.out.append(SendRpc((peer.id,), Rpc(messages)))

    def _on_timer(self, token: TimerToken) -> None:
        if token != NEED:
            super()._on_timer(token)
            return
        late = []
        while self._deadlines and self._deadlines[0][0] <= self.now:
            late.append(self._deadlines.popleft()[1])
        if self._deadlines:
            self.out.append(SetTimer(NEED, self._deadlines[0][0]))
        for message_id in late:
            left = [peer for peer in self.needs.get(message_id, ()) if peer in self.peers]
            if left:
                self.needs[message_id] = left[1:]
                self._ask(left[0], message_id)
            else:
                self.needs.pop(message_id, None)

    def _kept(self) -> dict[str, tuple[int, int]]:
        return super()._kept() | {"needs": (len(self.needs), self.lazy_params.needs_max)}
