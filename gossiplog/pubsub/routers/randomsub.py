"""Randomsub: forward each new message to a fresh random subset of the topic's peers.

Source: gossipsub v1.0 specification (2018-08-29), section "randomsub: A random message router".
"""

from __future__ import annotations

from random import Random

from ..actions import Fate
from ..base import PubSub
from ..params import RandomsubParams
from ..peers import choose
from ..protocol_ids import FLOODSUB, RANDOMSUB
from ..rpc import Message
from ..types import PeerId


class Randomsub(PubSub):
    """The router that draws D peers for every message; floodsub peers are also sent every message, as in go-libp2p-pubsub."""

    name = "randomsub"

    def __init__(self, params: RandomsubParams, rng: Random) -> None:
        super().__init__(params, rng, (RANDOMSUB, FLOODSUB))
        self.params = params

    def _draw(self, message: Message, source: PeerId | None) -> tuple[list[PeerId], list[PeerId]]:
        """Return the floodsub peers, and up to D drawn from the others."""
        flood: list[PeerId] = []
        others: list[PeerId] = []
        for peer in self.topics.get(message.topic, {}).values():
            if peer.id != source:
                (flood if peer.protocol == FLOODSUB else others).append(peer.id)
        return flood, choose(others, self.params.D, self.rng)

    def _recipients(self, message: Message, source: PeerId) -> list[PeerId]:
        flood, drawn = self._draw(message, source)
        return flood + drawn

    def _publish_fates(self, message: Message) -> list[tuple[PeerId, Fate]]:
        flood, drawn = self._draw(message, None)
        fates = dict.fromkeys(self.topics.get(message.topic, ()), Fate.GOSSIP)
        fates.update(dict.fromkeys(flood, Fate.FLOODSUB))
        fates.update(dict.fromkeys(drawn, Fate.FLOOD))
        return list(fates.items())

    def _ready_min(self) -> int:
        return self.params.D
