"""All routers that the simulator knows: those of the package, and the drafts'."""

from __future__ import annotations

from random import Random

from ...pubsub import registry
from ...pubsub.params import CommonParams
from ...pubsub.router import Router
from .params import LazyParams, PreambleParams

__all__ = ["SIM_ROUTERS", "default_params", "make_router", "sim_routers"]

_DRAFTS: dict[str, type[CommonParams]] = {"lazy": LazyParams, "preamble": PreambleParams}
SIM_ROUTERS = (*registry.ROUTERS, *_DRAFTS)
"""Those that come with the package, the drafts' last."""


def sim_routers() -> tuple[str, ...]:
    """Return the names of all routers that a scenario may have, those that a program registered included."""
    return (*registry.router_names(), *_DRAFTS)


def default_params(name: str) -> CommonParams:
    """Return the parameters that a router has unless told otherwise.

    Raises:
        LocalProtocolError: There is no router of this name.
    """
    return _DRAFTS[name]() if name in _DRAFTS else registry.default_params(name)


def make_router(name: str, params: CommonParams, rng: Random) -> Router:
    """Make a router; as `pubsub.registry.make_router`, but for the names that it knows."""
    match name, params:
        case "lazy", LazyParams():
            from .lazy import Lazy

            return Lazy(params, rng)
        case "preamble", PreambleParams():
            from .preamble import Preamble

            return Preamble(params, rng)
        case _:
            return registry.make_router(name, params, rng)
