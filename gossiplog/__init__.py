"""A self-certifying replicated causal log: signed messages with causal ids, a prolly tree over them, and sync from any replica."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from . import tree
from .entry import Ed25519Signer, Entry, Message, Outcome, Signature, Signer, Verdict, validate, verify_signature
from .errors import GossipLogError, Reject
from .version import VERSION as __version__

if TYPE_CHECKING:
    from .access import Policy
    from .codec.cid import Link
    from .gossip_log import GossipLog, clone, open
    from .log.application import Application
    from .mounting import asgi
    from .shelves import shelf
    from .store.base import Durability
    from .sync.result import SyncResult

__all__ = [
    "Application",
    "Durability",
    "Ed25519Signer",
    "Entry",
    "GossipLog",
    "GossipLogError",
    "Link",
    "Message",
    "Outcome",
    "Policy",
    "Reject",
    "Signature",
    "Signer",
    "SyncResult",
    "Verdict",
    "__version__",
    "asgi",
    "clone",
    "open",
    "shelf",
    "tree",
    "validate",
    "verify_signature",
]

_LAZY = {
    "Application": ".log.application",
    "Durability": ".store.base",
    "GossipLog": ".gossip_log",
    "Link": ".codec.cid",
    "Policy": ".access",
    "SyncResult": ".sync.result",
    "asgi": ".mounting",
    "clone": ".gossip_log",
    "open": ".gossip_log",
    "shelf": ".shelves",
}
"""Modules that need trio, or are rarely needed, are imported on first use: validating needs no event loop."""


def __getattr__(name: str) -> Any:
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(module, __name__), name)
    return found
