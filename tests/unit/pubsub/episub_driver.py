"""One episub router among scripted peers."""

import random

from unit.pubsub.network import Solo, T, said

from gossiplog.pubsub import EpisubParams
from gossiplog.pubsub.events import Subscribe
from gossiplog.pubsub.routers.episub import Episub
from gossiplog.pubsub.rpc import Neighbor, NeighborKind, Rpc

REQUEST, ACCEPT, LINKS = NeighborKind.REQUEST, NeighborKind.ACCEPT, NeighborKind.LINKS


def solo(*peers, **fields):
    driver = Solo(Episub(EpisubParams(**fields), random.Random(1)))
    driver.connect(*peers)
    driver.tell(Subscribe(T))
    return driver


def linked(*peers, **fields):
    """A router whose active view is these peers, as far as there is room."""
    driver = solo(*peers, **fields)
    for peer in peers:
        hear(driver, peer, request(0, is_random=True))
    return driver


def request(random_links=9, peers=(), *, is_random=False, kind=REQUEST):
    return Neighbor(T, kind, is_random, random_links, tuple(peers))


def hear(driver, peer, *messages):
    return driver.say(peer, Rpc(overlay=messages))


def overlays(actions, cls, peer=None):
    return [one for rpc in said(actions, peer) for one in rpc.overlay if isinstance(one, cls)]


def view(driver):
    return driver.router.views[T]


def tree(driver):
    return driver.router.trees[T]
