"""Where a log lives: one protocol, with stores in memory, in a SQLite file and on a PostgreSQL server behind it."""

from .base import NOTE_BYTES_MAX, Durability, Reader, Store, TalkingStore, Transaction
from .open import check_writable, open_store, pending_migrations

__all__ = [
    "NOTE_BYTES_MAX",
    "Durability",
    "Reader",
    "Store",
    "TalkingStore",
    "Transaction",
    "check_writable",
    "open_store",
    "pending_migrations",
]
