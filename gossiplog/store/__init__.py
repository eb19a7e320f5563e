"""Where a log is stored: in memory, in a SQLite file or on a PostgreSQL server, behind one protocol."""

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
