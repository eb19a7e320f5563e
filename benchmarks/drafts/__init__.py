"""Routers that follow drafts which no peer speaks yet: they run in the simulator alone, and their messages have no bytes."""

from gossiplog.pubsub.registry import register_router

from .lazy import Lazy
from .params import LazyParams, PreambleParams
from .preamble import Preamble

__all__ = ["Lazy", "LazyParams", "Preamble", "PreambleParams", "register"]


def register() -> None:
    """Make `lazy` and `preamble` known to this process, for scenarios."""
    register_router("lazy", Lazy, LazyParams)
    register_router("preamble", Preamble, PreambleParams)
