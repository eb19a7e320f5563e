"""Preambles: gossipsub that says of a large message that it is about to come, so that whoever hears of that tells its mesh to wait.

Large messages leave one copy after the other, each after its preamble; who says IMRECEIVING meanwhile is left out. A message that does
not come in time is asked of a peer that has it.

Source: the draft of gossipsub v1.4, libp2p/specs pull requests 654 and 706; nim-libp2p, `extension_preamble.nim`. Unlike that, how long
receiving takes is a parameter, and IMRECEIVING follows the preamble of any mesh peer, not only of a fast one.
"""

from __future__ import annotations

from collections import deque
from random import Random

from gossiplog.pubsub.actions import SendRpc, SetTimer
from gossiplog.pubsub.peers import Peer, choose
from gossiplog.pubsub.routers.gossipsub import Gossipsub
from gossiplog.pubsub.rpc import Control, IHave, Message, Rpc
from gossiplog.pubsub.types import MessageId, PeerId, TimerToken, Topic

from .messages import DraftControl
from .params import PreambleParams

__all__ = ["Preamble"]

LEAVE = TimerToken("leave")
AWAIT = TimerToken("await")


class Preamble(Gossipsub):
    """The router that announces what it is about to send.

    Attributes:
        awaited: Messages that are on their way here, with peers that have them as well.
        receiving: Messages that peers said to receive, with those peers.
    """

    name = "preamble"

    def __init__(self, params: PreambleParams, rng: Random) -> None:
        super().__init__(params, rng)
        self.preamble_params = params
        self.awaited: dict[MessageId, list[PeerId]] = {}
        self.receiving: dict[MessageId, dict[PeerId, None]] = {}
        self._line: deque[tuple[Rpc, list[PeerId]]] = deque()
        self._free_at = 0.0
        self._deadlines: deque[tuple[float, MessageId]] = deque()

    # Sending

    def send_messages(self, peers: list[PeerId], rpc: Rpc, *, is_urgent: bool = False) -> None:
        """Send at once what is small, and let what is large leave one by one."""
        params = self.preamble_params
        is_large = len(rpc.messages) == 1 and len(rpc.messages[0].data) >= params.preamble_bytes_min
        if is_large and len(self._line) < params.line_max:
            self._line.append((rpc, choose(list(peers), len(peers), self.rng)))
            if len(self._line) == 1:
                self._let_leave()
        else:
            super().send_messages(peers, rpc, is_urgent=is_urgent)

    def _let_leave(self) -> None:
        rate = self.preamble_params.uplink_bytes_s
        while self._line and self.now >= self._free_at:
            rpc, peers = self._line[0]
            (message,) = rpc.messages
            peer = self._next(message.id, peers)
            if peer is None:
                self._line.popleft()
                continue
            size = len(message.data)
            self.out.append(SendRpc((peer,), Rpc(control=DraftControl(preamble=((message.topic, message.id, size),))), True))
            super().send_messages([peer], rpc)
            if rate:
                self._free_at = self.now + size / rate
        if self._line:
            self.out.append(SetTimer(LEAVE, self._free_at))

    def _next(self, message_id: MessageId, peers: list[PeerId]) -> PeerId | None:
        """Take the next one who still needs a copy."""
        receiving, unwanted = self.receiving.get(message_id, ()), self.gossip.unwanted
        while peers:
            peer = peers.pop()
            if peer in self.peers and peer not in receiving and message_id not in unwanted.get(peer, ()):
                return peer
        return None

    # What peers say

    def _on_control(self, peer: Peer, control: Control) -> None:
        if self.awaited:
            for ids in (control.idontwant, *(ihave.ids for ihave in control.ihave)):
                self._note_holder(peer.id, ids)
            ihave = tuple(IHave(one.topic, tuple(each for each in one.ids if each not in self.awaited)) for one in control.ihave)
            idle = Control(ihave, control.iwant, control.graft, control.prune, control.idontwant)
            super()._on_control(peer, idle)
        else:
            super()._on_control(peer, control)
        if isinstance(control, DraftControl):
            for topic, message_id, size in control.preamble:
                self._on_preamble(peer, topic, message_id, size)
            for message_id, _ in control.imreceiving:
                self._on_receiving(peer, message_id)

    def _note_holder(self, peer: PeerId, ids: tuple[MessageId, ...]) -> None:
        for message_id in ids:
            holders = self.awaited.get(message_id)
            if holders is not None and len(holders) < self.preamble_params.holders_max and peer not in holders:
                holders.append(peer)

    def _on_preamble(self, peer: Peer, topic: Topic, message_id: MessageId, size: int) -> None:
        is_known = message_id in self.seen.entries or message_id in self.awaited
        if is_known or not self._is_grafted(topic, peer.id) or len(self.awaited) >= self.preamble_params.awaited_max:
            return
        self.awaited[message_id] = []
        self._expect(message_id)
        others = [other for other in self.mesh.links[topic] if other != peer.id]
        if others:
            self.out.append(SendRpc(others, Rpc(control=DraftControl(imreceiving=((message_id, size),))), True))

    def _on_receiving(self, peer: Peer, message_id: MessageId) -> None:
        known = self.receiving.get(message_id)
        if known is None:
            if len(self.receiving) >= self.preamble_params.awaited_max:
                return
            known = self.receiving[message_id] = {}
            self._expect(message_id)
        known[peer.id] = None

    def _on_new(self, message: Message, peer: Peer, hops: int) -> None:
        self.awaited.pop(message.id, None)
        super()._on_new(message, peer, hops)

    # Time

    def _expect(self, message_id: MessageId) -> None:
        self._deadlines.append((self.now + self.preamble_params.receive_s, message_id))
        if len(self._deadlines) == 1:
            self.out.append(SetTimer(AWAIT, self._deadlines[0][0]))

    def _on_timer(self, token: TimerToken) -> None:
        if token == LEAVE:
            self._let_leave()
        elif token == AWAIT:
            while self._deadlines and self._deadlines[0][0] <= self.now:
                self._on_overdue(self._deadlines.popleft()[1])
            if self._deadlines:
                self.out.append(SetTimer(AWAIT, self._deadlines[0][0]))
        else:
            super()._on_timer(token)

    def _on_overdue(self, message_id: MessageId) -> None:
        """Time is up for a message that was to come here, for peers that were to receive it, or for both."""
        self.receiving.pop(message_id, None)
        holders = [peer for peer in self.awaited.pop(message_id, ()) if peer in self.peers]
        if holders:
            self.draft(choose(holders, 1, self.rng)[0]).iwant.append(message_id)

    def _kept(self) -> dict[str, tuple[int, int]]:
        params = self.preamble_params
        return super()._kept() | {
            "awaited": (len(self.awaited), params.awaited_max),
            "receiving": (len(self.receiving), params.awaited_max),
            "line": (len(self._line), params.line_max),
        }
