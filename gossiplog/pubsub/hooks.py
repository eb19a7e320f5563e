"""What a router decides for itself: the methods that `PubSub` calls and routers fill in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .types import PeerId, TimerToken, Topic

if TYPE_CHECKING:
    from .actions import Fate
    from .events import AppScored, ConnectFailed, Outcome, PeerRecordLearned, Probed, TopicScored
    from .overlay.messages import OverlayMessage
    from .peers import Peer
    from .router import ScoreParts, TopicState
    from .rpc import Control, Message

__all__ = ["Hooks"]


class Hooks:
    """What happens where a router says nothing else: nothing; floodsub is nearly that.

    The first five have to be filled in.
    """

    def _recipients(self, message: Message, source: PeerId) -> list[PeerId]:
        """Whom an accepted message is forwarded to; never its source or its origin."""
        raise NotImplementedError  # pragma: no cover - every router has its own

    def _publish_fates(self, message: Message) -> list[tuple[PeerId, Fate]]:
        """What becomes of an own message, for each peer of its topic."""
        raise NotImplementedError  # pragma: no cover - every router has its own

    def _ready_min(self) -> int:
        """How many peers the router wants at least."""
        raise NotImplementedError  # pragma: no cover - every router has its own

    def _ready_count(self, topic: Topic) -> int:
        """How many peers would be sent a message published now."""
        raise NotImplementedError  # pragma: no cover - every router has its own

    def _topic_states(self) -> tuple[TopicState, ...]:
        """The topics for `state`."""
        raise NotImplementedError  # pragma: no cover - every router has its own

    def _backoff_until(self, peer: PeerId) -> float | None:
        """Until when a peer is not grafted, for `state`."""
        return None

    # Messages

    def _on_new(self, message: Message, peer: Peer, hops: int) -> None:
        """Called for the first copy of every message of a joined topic, before it is validated."""

    def _on_overflow(self, message: Message) -> None:
        """Called for a new message that there is no room to validate: it is passed over, and may come again."""

    def _on_publishing(self, message: Message) -> None:
        """Called for an own message before it is sent."""

    def _on_verdict(self, topic: Topic, source: PeerId, others: Sequence[PeerId], outcome: Outcome) -> None:
        """Called once a message is accepted, ignored or rejected, before it is forwarded; `others` sent it as well."""

    def _counts_copies(self, topic: Topic, outcome: Outcome) -> bool:
        """Whether copies that come after the verdict matter to a score."""
        return False

    def _on_refused(self, peer: Peer, topics: tuple[Topic, ...], offences: int) -> None:
        """Called when something was wrong with an RPC before it came here; see `RpcReceived`."""

    def _on_control(self, peer: Peer, control: Control) -> None:
        """Called after an RPC's messages."""

    def _on_overlay(self, peer: Peer, messages: tuple[OverlayMessage, ...]) -> None:
        """Called after an RPC's control."""

    # Membership

    def _on_connected(self, peer: Peer, address: str | None) -> None:
        """Called once the peer is known; its topics are not."""

    def _on_disconnected(self, peer: Peer) -> None:
        """Called after `_on_peer_left` for each of its topics."""

    def _on_peer_joined(self, topic: Topic, peer: Peer) -> None:
        """A peer subscribed to any topic, ours or not."""

    def _on_peer_left(self, topic: Topic, peer: Peer) -> None:
        """A peer unsubscribed, or is gone."""

    def _on_joined(self, topic: Topic) -> None:
        """We subscribed."""

    def _on_left(self, topic: Topic) -> None:
        """We unsubscribed."""

    # The rest

    def _on_start(self, me: PeerId) -> None:
        """The time to set the first timers."""

    def _on_timer(self, token: TimerToken) -> None:
        """A timer of the router's own fired."""

    def _on_other(self, event: AppScored | TopicScored | PeerRecordLearned | Probed | ConnectFailed) -> None:
        """An event that only some routers heed."""

    def _is_grafted(self, topic: Topic, peer: PeerId) -> bool:
        """Whether the peer is in our mesh of the topic."""
        return False

    def _score_parts(self, peer: PeerId) -> ScoreParts | None:
        """The peer's score for `state`; None where no scores are kept."""
        return None
