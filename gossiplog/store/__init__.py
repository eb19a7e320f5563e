"""Where a log lives: one protocol, with a store in memory and one in a SQLite file behind it."""

from .base import Durability, Reader, Store, Transaction
from .open import open_store, pending_migrations

__all__ = ["Durability", "Reader", "Store", "Transaction", "open_store", "pending_migrations"]
