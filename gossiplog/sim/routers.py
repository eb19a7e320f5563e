"""Making the product's routers from a scenario's parameters."""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import random
import types
from collections.abc import Callable, Mapping
from typing import Any, Union, get_args, get_origin, get_type_hints

from ..errors import LocalProtocolError
from ..pubsub import params as pubsub_params
from ..pubsub.router import Router
from .scenario import ScenarioError

__all__ = ["router_factory"]

Factory = Callable[[random.Random], Router]


def router_factory(name: str, table: Mapping[str, Any], *, is_validating: bool) -> Factory:
    """Give a function that makes one router from its generator of random numbers.

    Args:
        name: One of `scenario.ROUTERS`.
        table: Parameters by their names; what is left out has the router's default.
        is_validating: Whether messages are to be validated; overrides the table.

    Raises:
        ScenarioError: A parameter is unknown, of the wrong type, or breaks the router's own rules.
    """
    make = getattr(importlib.import_module(f"gossiplog.pubsub.{name}"), _CLASSES[name])
    params_class = getattr(pubsub_params, f"{_CLASSES[name]}Params")
    table = {**table, "is_validating": is_validating}
    try:
        params = _build(params_class, table, f"params.{name}")
    except ScenarioError:
        raise
    except LocalProtocolError as error:
        raise ScenarioError(f"params.{name}: {error}") from error

    def factory(rng: random.Random) -> Router:
        router: Router = make(params, rng)
        return router

    return factory


_CLASSES = {
    "floodsub": "Floodsub",
    "randomsub": "Randomsub",
    "meshsub": "Meshsub",
    "gossipsub": "Gossipsub",
    "choke": "Choke",
    "episub": "Episub",
}


def _build(cls: type[Any], table: Any, path: str) -> Any:
    """Build a parameter class from a table, nested classes from nested tables."""
    if not isinstance(table, Mapping):
        raise ScenarioError(f"{path}: {table!r}, expected a table")
    hints = get_type_hints(cls)
    known = [row.name for row in dataclasses.fields(cls)]
    values = {}
    for key, value in table.items():
        if key not in known:
            near = difflib.get_close_matches(key, known, 1)
            raise ScenarioError(f"{path}.{key}: unknown parameter{f'; did you mean {near[0]}?' if near else ''}")
        values[key] = _convert(hints[key], value, f"{path}.{key}")
    return cls(**values)


def _convert(hint: Any, value: Any, path: str) -> Any:
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        options = [option for option in get_args(hint) if option is not type(None)]
        return _convert(options[0], value, path)
    if dataclasses.is_dataclass(hint):
        return _build(hint, value, path)  # type: ignore[arg-type]
    if origin is tuple and isinstance(value, list):
        return tuple(value)
    if origin is not None and issubclass(origin, Mapping) and isinstance(value, Mapping):
        return {key: _convert(get_args(hint)[1], item, f"{path}.{key}") for key, item in value.items()}
    if hint is float and type(value) is int:
        return float(value)
    if not isinstance(hint, type) or type(value) is not hint:
        raise ScenarioError(f"{path}: {value!r}, expected {getattr(hint, '__name__', str(hint))}")
    return value
