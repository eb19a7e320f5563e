"""A log in memory: for tests, simulations, and replicas that need not survive."""

from .store import MemoryStore

__all__ = [
    "MemoryStore",
]
