"""Malicious peers: a real router whose actions are tampered with. Apart from the misdeed, they act as honest peers do.

Source: Vyzovitis, Napora, McCormick, Dias, Psaras, "GossipSub: Attack-Resilient Message Propagation in the Filecoin and ETH2.0
Networks" (2020), section 5: sybils squat in meshes and drop what they should forward.
"""

from __future__ import annotations

import random

from ...pubsub.actions import Action, SendRpc, SetTimer
from ...pubsub.events import Event, PeerConnected, PeerDisconnected, Start, TimerFired
from ...pubsub.rpc import Control, Rpc
from ...pubsub.types import PeerId, TimerToken, Topic
from ..scenario import Attack
from .network import Handle
from .topology import Links

SQUAT = TimerToken("squat")
SQUAT_S = 1.0


class Malicious:
    """Tampers with a router: drops some messages and keeps grafting every peer."""

    def __init__(self, honest: Handle, topic: Topic, attack: Attack, rng: random.Random) -> None:
        self._honest = honest
        self._topic = topic
        self._attack = attack
        self._rng = rng
        self._peers: dict[PeerId, None] = {}

    def handle(self, event: Event, now: float) -> list[Action]:
        """Act as the honest router does; once the attack is on, tamper with its actions."""
        if isinstance(event, TimerFired) and event.token == SQUAT:
            return self._squat(now)
        if isinstance(event, PeerConnected):
            self._peers[event.peer] = None
        elif isinstance(event, PeerDisconnected):
            self._peers.pop(event.peer, None)
        actions = self._honest(event, now)
        if isinstance(event, Start) and self._attack.graft:
            actions.append(SetTimer(SQUAT, max(now, self._attack.attack_s) + SQUAT_S * self._rng.random()))
        if now < self._attack.attack_s:
            return actions
        return [kept for action in actions if (kept := self._tamper(action)) is not None]

    def _tamper(self, action: Action) -> Action | None:
        """Leave out messages of an RPC and all announcements; return None if nothing is left."""
        if not isinstance(action, SendRpc):
            return action
        rpc = action.rpc
        control = rpc.control
        if control is not None and (control.ihave or control.idontwant):
            control = Control(iwant=control.iwant, graft=control.graft, prune=control.prune, choke=control.choke, unchoke=control.unchoke)
        messages = tuple(message for message in rpc.messages if self._rng.random() >= self._attack.drop)
        if not messages and not rpc.subscriptions and not rpc.overlay and (control is None or control == Control()):
            return None
        return SendRpc(action.peers, Rpc(messages, rpc.subscriptions, control, rpc.overlay, rpc.hops), action.is_urgent)

    def _squat(self, now: float) -> list[Action]:
        graft = Rpc(control=Control(graft=(self._topic,)))
        actions: list[Action] = [SetTimer(SQUAT, now + SQUAT_S)]
        if self._peers:
            actions.append(SendRpc(tuple(self._peers), graft, True))
        return actions


def attack_links(honest: int, attack: Attack, rng: random.Random) -> Links:
    """Return the links that malicious nodes dial: to all victims if there are any, else to `connect` random honest nodes each."""
    links: Links = []
    for number in range(honest, honest + attack.nodes):
        if attack.victims:
            targets = list(range(attack.victims))
        else:
            targets = rng.sample(range(honest), min(attack.connect, honest))
        links.extend((number, target) for target in targets)
    return links
