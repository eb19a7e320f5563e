"""Reconciliation: replicas find by sketches which entries either lacks, at a cost that depends only on the difference."""

from .client import Reconciled, Wishes, reconcile
from .machine import Reconciliation
from .server import Served, serve

__all__ = ["Reconciled", "Reconciliation", "Served", "Wishes", "reconcile", "serve"]
