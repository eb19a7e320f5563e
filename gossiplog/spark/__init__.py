"""Logs on Spark: the data source `gossiplog`, and jobs that verify, export, compare and analyse logs too large for one process."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .launch import session
    from .source.reading import read_entries
    from .source.source import GossipLogSource, register

__all__ = ["GossipLogSource", "read_entries", "register", "session"]

_LAZY = {"GossipLogSource": ".source.source", "read_entries": ".source.reading", "register": ".source.source", "session": ".launch"}
"""Imported when they are first asked for, so that `gossiplog spark doctor` can say that PySpark is missing."""


def __getattr__(name: str) -> Any:
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(module, __name__), name)
    return found
