"""Yjs documents in a log: a store and a provider for pycrdt's rooms, and a store for Jupyter. Needs the extra `pycrdt`.

Source: docs/pycrdt.md.
"""

from __future__ import annotations

from ..errors import LocalProtocolError

try:
    import pycrdt.store
except ModuleNotFoundError as error:
    raise LocalProtocolError(
        "gossiplog.pycrdt needs pycrdt-store, which is not installed", hint="pip install 'gossiplog[pycrdt]'"
    ) from error
else:
    del pycrdt

from .provider import provide, read_only
from .shared import APPLICATION, DOCUMENTS
from .store import LogYStore

__all__ = ["APPLICATION", "DOCUMENTS", "LogYStore", "provide", "read_only"]
