"""One gossipsub router among scripted peers."""

import random

from unit.pubsub.network import Solo, T

from gossiplog.pubsub import GossipsubParams, ScoreParams, Thresholds
from gossiplog.pubsub.events import Subscribe
from gossiplog.pubsub.routers.gossipsub import Gossipsub

MESHSUB_1_0, FLOODSUB = "/meshsub/1.0.0", "/floodsub/1.0.0"
SCORED = ScoreParams(thresholds=Thresholds(accept_px=5.0))


def solo(**fields):
    return Solo(Gossipsub(GossipsubParams(**fields), random.Random(1)))


def joined(*peers, **fields):
    """A router that is in the topic, with inbound peers that are too."""
    driver = solo(**fields)
    driver.connect(*peers)
    driver.tell(Subscribe(T))
    return driver
