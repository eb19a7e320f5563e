"""What is to be said to one peer at the end of a turn, gathered so that it travels in one RPC."""

from __future__ import annotations

from collections.abc import Callable

from .overlay.messages import OverlayMessage
from .rpc import Control, Extensions, IHave, Message, Prune, Rpc, Subscription
from .types import MessageId, Topic

__all__ = ["Draft"]


class Draft:
    """A mutable RPC for one peer, without messages.

    A topic is announced, grafted or pruned, and choked at most once; what is said last holds.
    """

    __slots__ = ("choke", "extensions", "graft", "idontwant", "ihave", "is_test", "iwant", "overlay", "prune", "subscriptions")

    def __init__(self) -> None:
        self.subscriptions: dict[Topic, bool] = {}
        self.graft: dict[Topic, None] = {}
        self.prune: dict[Topic, Prune] = {}
        self.choke: dict[Topic, bool] = {}
        self.ihave: list[IHave] = []
        self.iwant: list[MessageId] = []
        self.idontwant: list[MessageId] = []
        self.overlay: list[OverlayMessage] = []
        self.extensions: Extensions | None = None
        self.is_test = False

    def add_graft(self, topic: Topic) -> None:
        """Say GRAFT, and take back a PRUNE not yet said."""
        self.prune.pop(topic, None)
        self.graft[topic] = None

    def add_prune(self, prune: Prune) -> None:
        """Say PRUNE, and take back a GRAFT not yet said."""
        self.graft.pop(prune.topic, None)
        self.prune[prune.topic] = prune

    def add_failed(self, rpc: Rpc) -> bool:
        """Keep what must be said again of an RPC that was dropped; gossip and messages must not. True if there is something.

        Nor must extensions: they are said first or not at all.
        """
        for subscription in rpc.subscriptions:
            self.subscriptions[subscription.topic] = subscription.subscribe
        control = rpc.control
        if control is not None:
            for topic in control.graft:
                self.add_graft(topic)
            for prune in control.prune:
                self.add_prune(prune)
            for topic in control.choke:
                self.choke[topic] = True
            for topic in control.unchoke:
                self.choke[topic] = False
        return bool(self.subscriptions or self.graft or self.prune or self.choke)

    def add_retry(self, failed: Draft, is_joined: Callable[[Topic], bool], is_grafted: Callable[[Topic], bool]) -> None:
        """Take in what an earlier RPC failed to say, as far as it still holds.

        Args:
            failed: Made by `add_failed`.
            is_joined: Whether we are in a topic now.
            is_grafted: Whether the peer is in our mesh of a topic now.
        """
        for topic in failed.subscriptions:
            self.subscriptions[topic] = is_joined(topic)
        for topic in failed.graft:
            if is_grafted(topic):
                self.graft[topic] = None
        for topic, prune in failed.prune.items():
            if not is_grafted(topic):
                self.prune.setdefault(topic, prune)
        for topic, choked in failed.choke.items():
            if is_grafted(topic):
                self.choke.setdefault(topic, choked)

    def to_rpc(self, messages: tuple[Message, ...] = ()) -> Rpc | None:
        """Build the RPC; None when there is nothing to say."""
        control = None
        if self.ihave or self.iwant or self.graft or self.prune or self.idontwant or self.choke or self.extensions is not None:
            choke, unchoke = self._choked() if self.choke else ((), ())
            prune = tuple(self.prune.values()) if self.prune else ()
            ids = tuple(self.idontwant)
            control = Control(tuple(self.ihave), tuple(self.iwant), tuple(self.graft), prune, ids, choke, unchoke, self.extensions)
        elif not messages and not self.subscriptions and not self.overlay and not self.is_test:
            return None
        announced: tuple[Subscription, ...] = ()
        if self.subscriptions:
            announced = tuple([Subscription(topic, subscribe) for topic, subscribe in self.subscriptions.items()])
        return Rpc(messages, announced, control, tuple(self.overlay), is_test=self.is_test)

    def _choked(self) -> tuple[tuple[Topic, ...], tuple[Topic, ...]]:
        items = self.choke.items()
        return tuple(topic for topic, is_choked in items if is_choked), tuple(topic for topic, is_choked in items if not is_choked)
