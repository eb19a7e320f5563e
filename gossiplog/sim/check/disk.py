"""A disk for simulated replicas: what was written survives the process, what was synced survives the loss of power."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from ...plan import Request
from .tables import StateWithTable

__all__ = ["Crash", "Disk", "Trouble"]


class Crash(Enum):
    """How a replica stops."""

    KILL = "kill"
    """The process ends at once; what it had handed to the operating system stays."""
    POWER = "power"
    """The machine loses power; what was not synced is lost from some point on."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """What a disk has with transactions.

    Attributes:
        refused: The share of them that it refuses; 1.0 is a full disk.
        late_s: They take up to so much longer.
    """

    refused: float = 0.0
    late_s: float = 0.0


class Disk:
    """One replica's transactions in the order in which they were written, and how many of them are synced.

    A transaction survives whole or not at all, and none survives without all before it: what a write-ahead log gives.

    Attributes:
        trouble: What it has with transactions; may be changed at any time.
    """

    def __init__(self) -> None:
        self.trouble = Trouble()
        self._transactions: list[Sequence[Request[Any]]] = []
        self._synced = 0
        self._in_flight: Sequence[Request[Any]] | None = None

    def begin(self, transaction: Sequence[Request[Any]]) -> None:
        """Start writing a transaction; until `write` a crash may lose it or keep it."""
        self._in_flight = transaction

    def write(self) -> None:
        """The transaction that was begun has been handed over whole."""
        assert self._in_flight is not None
        self._transactions.append(self._in_flight)
        self._in_flight = None

    def refuse(self) -> None:
        """The transaction that was begun is undone."""
        self._in_flight = None

    def sync(self) -> None:
        """All that was written is safe."""
        self._synced = len(self._transactions)

    def crash(self, kind: Crash, rng: random.Random) -> None:
        """Lose what this kind of crash may lose; how much of it is chance."""
        if self._in_flight is not None and rng.random() < 0.5:
            self._transactions.append(self._in_flight)
        self._in_flight = None
        if kind is Crash.POWER:
            del self._transactions[rng.randint(self._synced, len(self._transactions)) :]
        self._synced = len(self._transactions)

    def recover(self) -> StateWithTable:
        """Build the state from what is left. O(entries)."""
        state = StateWithTable()
        for transaction in self._transactions:
            for request in transaction:
                state.write(request)
        return state
