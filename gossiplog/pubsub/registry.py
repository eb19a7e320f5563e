"""The routers by name: the package's own, each imported when one is made, and those that a program registers."""

from __future__ import annotations

import random
from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

from ..errors import LocalProtocolError
from .params import ChokeParams, CommonParams, EpisubParams, FloodsubParams, GossipsubParams, MeshsubParams, RandomsubParams
from .router import Router


class _Known(NamedTuple):
    """A router: its factory, or the module and name of that, and the class of its parameters."""

    make: Callable[[Any, random.Random], Router] | tuple[str, str]
    params: type[CommonParams]


_KNOWN: dict[str, _Known] = {
    "floodsub": _Known((".routers.floodsub", "Floodsub"), FloodsubParams),
    "randomsub": _Known((".routers.randomsub", "Randomsub"), RandomsubParams),
    "meshsub": _Known((".routers.meshsub", "Meshsub"), MeshsubParams),
    "gossipsub": _Known((".routers.gossipsub", "Gossipsub"), GossipsubParams),
    "choke": _Known((".routers.choke", "Choke"), ChokeParams),
    "episub": _Known((".routers.episub", "Episub"), EpisubParams),
}
ROUTERS = tuple(_KNOWN)
"""The names of the package's own routers, the simplest first."""


def register_router(name: str, make: Callable[[Any, random.Random], Router], params: type[CommonParams]) -> None:
    """Register a router in this process, for `make_router` and for the simulator's scenarios.

    Args:
        name: A name that no router has; for scenarios, letters, digits, `_` and `-`.
        make: A router's class, or any function that takes its parameters and a generator of random numbers, its only source of chance.
        params: The class of its parameters, `CommonParams` or one derived from it; each parameter has a default.

    Raises:
        LocalProtocolError: A router has this name.
    """
    if name in _KNOWN:
        raise LocalProtocolError(f"there is a router {name!r} already")
    _KNOWN[name] = _Known(make, params)


def router_names() -> tuple[str, ...]:
    """Return the names of all routers known to this process, in the order of registration."""
    return tuple(_KNOWN)


def make_router(name: str, params: CommonParams, rng: random.Random) -> Router:
    """Make a router.

    Args:
        name: One of `router_names`.
        params: An instance of exactly the router's parameter class.

    Raises:
        LocalProtocolError: There is no router of this name, or these are another's parameters.
    """
    known = _find(name)
    if type(params) is not known.params:
        raise LocalProtocolError(f"{type(params).__name__}, which are not {name}'s parameters")
    make = known.make
    if isinstance(make, tuple):
        module, of_module = make
        make = getattr(import_module(module, __package__), of_module)
    router: Router = make(params, rng)
    return router


def default_params(name: str) -> CommonParams:
    """Return a router's default parameters.

    Raises:
        LocalProtocolError: There is no router of this name.
    """
    return _find(name).params()


def _find(name: str) -> _Known:
    if name not in _KNOWN:
        raise LocalProtocolError(f"router {name!r}, expected one of {', '.join(_KNOWN)}")
    return _KNOWN[name]
