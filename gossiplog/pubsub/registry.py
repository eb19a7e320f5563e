"""The routers by name: their classes, whose modules are imported when one is made, and their parameters."""

from __future__ import annotations

import random
from collections.abc import Mapping
from importlib import import_module
from typing import NamedTuple

from ..errors import LocalProtocolError
from .params import ChokeParams, CommonParams, EpisubParams, FloodsubParams, GossipsubParams, MeshsubParams, RandomsubParams
from .router import Router

__all__ = ["ROUTERS", "default_params", "make_router"]


class _Known(NamedTuple):
    module: str
    name: str
    params: type[CommonParams]


_KNOWN: Mapping[str, _Known] = {
    "floodsub": _Known(".routers.floodsub", "Floodsub", FloodsubParams),
    "randomsub": _Known(".routers.randomsub", "Randomsub", RandomsubParams),
    "meshsub": _Known(".routers.meshsub", "Meshsub", MeshsubParams),
    "gossipsub": _Known(".routers.gossipsub", "Gossipsub", GossipsubParams),
    "choke": _Known(".routers.choke", "Choke", ChokeParams),
    "episub": _Known(".routers.episub", "Episub", EpisubParams),
}
ROUTERS = tuple(_KNOWN)
"""Their names, from the simplest on."""


def make_router(name: str, params: CommonParams, rng: random.Random) -> Router:
    """Make a router.

    Args:
        name: One of `ROUTERS`.
        params: Of the class that belongs to it, and no other.
        rng: All that it leaves to chance.

    Raises:
        LocalProtocolError: There is no router of this name, or these are another's parameters.
    """
    known = _find(name)
    if type(params) is not known.params:
        raise LocalProtocolError(f"{type(params).__name__}, which are not {name}'s parameters")
    router: Router = getattr(import_module(known.module, __package__), known.name)(params, rng)
    return router


def default_params(name: str) -> CommonParams:
    """Return the parameters that a router has unless told otherwise.

    Raises:
        LocalProtocolError: There is no router of this name.
    """
    return _find(name).params()


def _find(name: str) -> _Known:
    if name not in _KNOWN:
        raise LocalProtocolError(f"router {name!r}, expected one of {', '.join(ROUTERS)}")
    return _KNOWN[name]
