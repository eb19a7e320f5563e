"""Pubsub routers from floodsub to episub, as sans-IO state machines with one entry point, `Router.handle`."""

from .actions import Action, Fate, Published
from .events import Event, Outcome
from .params import (
    ChokeParams,
    CommonParams,
    EpisubParams,
    FloodsubParams,
    GossipsubParams,
    MeshsubParams,
    RandomsubParams,
    ScoreParams,
    Thresholds,
    TopicScoreParams,
)
from .registry import ROUTERS, default_params, make_router, register_router, router_names
from .router import PeerState, Router, RouterState, ScoreParts, TopicState
from .rpc import Message, Rpc
from .types import MessageId, PeerId, TimerToken, Topic

__all__ = [
    "ROUTERS",
    "Action",
    "ChokeParams",
    "CommonParams",
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
    "default_params",
    "make_router",
    "register_router",
    "router_names",
]
