"""Where a log lives: one protocol, with stores in memory, in a SQLite file and on a PostgreSQL server behind it."""

from .base import Durability, Reader, Store, Transaction
from .open import open_store, pending_migrations

__all__ = ["Durability", "Reader", "Store", "Transaction", "open_store", "pending_migrations"]
