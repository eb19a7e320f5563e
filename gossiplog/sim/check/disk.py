"""A disk for simulated replicas: written data survives the process, synced data survives a loss of power."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from ...errors import CommitError, ConnectionLost, StorageFull, StoreError
from ...plan import Request
from .tables import StateWithTable


class Crash(Enum):
    """How a replica stops."""

    KILL = "kill"
    """The process ends at once; everything it had handed to the operating system stays."""
    POWER = "power"
    """The machine loses power; unsynced transactions are lost from some point on."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """The faults of a disk. A transaction that fails is undone whole.

    Attributes:
        refused: The share of transactions for which it has no room; 1.0 is a full disk.
        late_s: The largest extra time that a transaction takes.
        lost: The share of transactions during which the connection breaks.
        poison: One entry in this many cannot be stored, in whatever transaction; 0: all can.
    """

    refused: float = 0.0
    late_s: float = 0.0
    lost: float = 0.0
    poison: int = 0

    def fate(self, keys: Iterable[bytes], rng: random.Random) -> StoreError | None:
        """Draw the fate of a transaction that brings entries with these keys: None, or the error with which it fails."""
        if self.poison and any(key[-1] % self.poison == 0 for key in keys):
            return CommitError("the disk cannot store an entry")
        if self.refused and rng.random() < self.refused:
            return StorageFull("the disk refuses")
        if self.lost and rng.random() < self.lost:
            return ConnectionLost("the connection to the disk broke")
        return None


class Disk:
    """One replica's transactions in the order of writing, and how many of them are synced.

    A transaction survives whole or not at all, and none survives without all earlier ones. A write-ahead log gives the same.

    Attributes:
        late_s: The largest extra time that a transaction may have taken so far.
    """

    def __init__(self) -> None:
        self.trouble = Trouble()
        self.late_s = 0.0
        self._transactions: list[Sequence[Request[Any]]] = []
        self._synced = 0
        self._in_flight: Sequence[Request[Any]] | None = None

    def suffer(self, trouble: Trouble) -> None:
        """Get into a trouble, or out of it."""
        self.trouble, self.late_s = trouble, max(self.late_s, trouble.late_s)

    def begin(self, transaction: Sequence[Request[Any]]) -> None:
        """Start writing a transaction. Until `write`, a crash may lose it or keep it."""
        self._in_flight = transaction

    def write(self) -> None:
        """Finish writing the transaction begun."""
        assert self._in_flight is not None
        self._transactions.append(self._in_flight)
        self._in_flight = None

    def refuse(self) -> None:
        """Undo the transaction begun."""
        self._in_flight = None

    def sync(self) -> None:
        """Sync all transactions written so far."""
        self._synced = len(self._transactions)

    def crash(self, kind: Crash, rng: random.Random) -> None:
        """Lose a random part of what this kind of crash may lose."""
        if self._in_flight is not None and rng.random() < 0.5:
            self._transactions.append(self._in_flight)
        self._in_flight = None
        if kind is Crash.POWER:
            del self._transactions[rng.randint(self._synced, len(self._transactions)) :]
        self._synced = len(self._transactions)

    def recover(self) -> StateWithTable:
        """Build the state from the transactions that survived. O(entries)."""
        state = StateWithTable()
        for transaction in self._transactions:
            for request in transaction:
                state.write(request)
        return state
