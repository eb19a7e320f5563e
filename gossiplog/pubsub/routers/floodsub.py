"""Floodsub: forward each new message to every peer in the topic except its source.

Source: gossipsub v1.0 specification (2018-08-29), section "In the beginning was floodsub".
"""

from __future__ import annotations

from random import Random

from ..actions import Fate
from ..base import PubSub
from ..params import FloodsubParams
from ..protocol_ids import FLOODSUB
from ..rpc import Message
from ..types import PeerId


class Floodsub(PubSub):
    """The router that floods."""

    name = "floodsub"

    def __init__(self, params: FloodsubParams, rng: Random) -> None:
        super().__init__(params, rng, (FLOODSUB,))

    def _recipients(self, message: Message, source: PeerId) -> list[PeerId]:
        return [peer for peer in self.topics.get(message.topic, ()) if peer != source]

    def _publish_fates(self, message: Message) -> list[tuple[PeerId, Fate]]:
        return [(peer, Fate.FLOOD) for peer in self.topics.get(message.topic, ())]

    def _ready_min(self) -> int:
        return 1
