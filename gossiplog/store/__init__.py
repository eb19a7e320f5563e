"""Where a log lives: one protocol, with stores in memory, in a SQLite file and on a PostgreSQL server behind it."""

from .base import Durability, Reader, Store, Transaction
from .open import check_writable, open_store, pending_migrations

__all__ = ["Durability", "Reader", "Store", "Transaction", "check_writable", "open_store", "pending_migrations"]
