"""Reconciliation at the limit: replicas find what either lacks by sketches, at a cost that follows the difference alone."""

from .client import Outcome, Wishes, reconcile
from .server import Served, serve

__all__ = ["Outcome", "Served", "Wishes", "reconcile", "serve"]
