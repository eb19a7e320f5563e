"""Reconciliation at the limit: replicas find what either lacks by sketches, at a cost that follows the difference alone."""

from .client import Reconciled, Wishes, reconcile
from .machine import Reconciliation
from .server import Served, serve

__all__ = ["Reconciled", "Reconciliation", "Served", "Wishes", "reconcile", "serve"]
