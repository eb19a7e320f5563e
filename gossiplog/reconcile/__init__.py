"""Reconciliation at the limit: replicas find what either lacks by sketches, at a cost that follows the difference alone."""

from .client import Reconciled, Wishes, reconcile
from .server import Served, serve

__all__ = ["Reconciled", "Served", "Wishes", "reconcile", "serve"]
