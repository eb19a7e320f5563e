"""Making the product's routers from a scenario's parameters."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ...errors import LocalProtocolError
from ...pubsub.params import MESH_PARAMS
from ...pubsub.router import Router
from ...pubsub.tables import overlaid
from ..experiments.registry import default_params, make_router
from ..scenario import ScenarioError

__all__ = ["router_factory"]

Factory = Callable[[random.Random], Router]


def router_factory(name: str, table: Mapping[str, Any], *, is_validating: bool) -> Factory:
    """Give a function that makes one router from its generator of random numbers.

    Args:
        name: One of `sim_routers`.
        table: Parameters by their names; what is left out has the router's default, or, with `base = "mesh"`, the value that
            `gossiplog serve` runs with.
        is_validating: Whether messages are to be validated; overrides the table.

    Raises:
        ScenarioError: A parameter is unknown, of the wrong type, or breaks the router's own rules.
    """
    base = default_params(name)
    if "base" in table:
        table = dict(table)
        chosen = table.pop("base")
        if chosen != "mesh" or name not in MESH_PARAMS:
            raise ScenarioError(f'params.{name}.base: {chosen!r}, expected "mesh", which is for {" and ".join(MESH_PARAMS)}')
        base = MESH_PARAMS[name]
    try:
        params = overlaid(base, {**table, "is_validating": is_validating}, f"params.{name}")
    except LocalProtocolError as error:
        raise ScenarioError(str(error)) from error
    return partial(make_router, name, params)
