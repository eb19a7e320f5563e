"""Pubsub routers from floodsub to episub as sans-IO state machines behind one door, `Router.handle`."""

from .actions import Action, Fate, Published
from .events import Event, Outcome
from .params import (
    ChokeParams,
    EpisubParams,
    FloodsubParams,
    GossipsubParams,
    MeshsubParams,
    RandomsubParams,
    ScoreParams,
    Thresholds,
    TopicScoreParams,
)
from .router import PeerState, Router, RouterState, ScoreParts, TopicState
from .rpc import Message, Rpc
from .types import MessageId, PeerId, TimerToken, Topic

__all__ = [
    "Action",
    "ChokeParams",
    "EpisubParams",
    "Event",
    "Fate",
    "FloodsubParams",
    "GossipsubParams",
    "MeshsubParams",
    "Message",
    "MessageId",
    "Outcome",
    "PeerId",
    "PeerState",
    "Published",
    "RandomsubParams",
    "Router",
    "RouterState",
    "Rpc",
    "ScoreParams",
    "ScoreParts",
    "Thresholds",
    "TimerToken",
    "Topic",
    "TopicScoreParams",
    "TopicState",
]
