"""What a log asks of its store: run plans on a snapshot, run a plan as one transaction, and answer every request of theirs.

A new backend is a class as `Store`, with an answer to each request of `log.requests`, `log.fsck_requests` and `tree.node`, whose docstrings
say what the answer is: to those named Read on a snapshot and in a transaction, to all others in a transaction only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from enum import Enum
from typing import Any, Protocol, TypeVar, runtime_checkable

from outcome import Outcome

from ..errors import LocalProtocolError
from ..plan import Plan

T = TypeVar("T")


class Durability(Enum):
    """What an acknowledged append survives. Every level survives the end of the process, kill -9 included.

    Source: docs/spec/storage.md; the names are those of SQLite's `synchronous`.
    """

    FULL = "full"
    """The loss of power: each commit is on the disk before it is acknowledged. The default."""
    NORMAL = "normal"
    """A loss of power may take the last commits with it; the file stays whole."""
    OFF = "off"
    """A loss of power may damage the file."""

    @classmethod
    def _missing_(cls, value: object) -> Durability:
        raise LocalProtocolError(f"durability {value!r}, expected full, normal or off")


class Reader(Protocol):
    """A fixed state of the log, from which any number of plans can be answered."""

    async def run(self, plan: Plan[T]) -> T:
        """Run a plan that only reads. A cancelled call ends after the plan, whose result is dropped."""
        ...

    async def query(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Execute a statement that only reads, on the application's tables as they are in this state, and return its rows.

        Raises:
            LocalProtocolError: It does more than read.
            StatementError: The database refused it.
        """
        ...


class Transaction(Protocol):
    """One transaction that is open. Everything done through it is committed as a whole, or rolled back."""

    async def run(self, plan: Plan[T]) -> T:
        """Run a plan on the state within the transaction."""
        ...

    async def execute(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Execute one statement on the application's own tables and return all of its rows.

        Args:
            statement: In the database's own dialect, parameters written `$1`, `$2` and so on; on SQLite `?` will do as well.

        Raises:
            LocalProtocolError: The statement begins or ends a transaction, or changes a table of the log.
            StatementError: The database refused it.
            StoreError: The store failed; the transaction is lost.
        """
        ...

    async def execute_many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        """Execute one statement for each row of parameters, in one hop.

        Raises as `execute`.
        """
        ...

    async def begin_attempt(self) -> None:
        """Mark the state that `undo_attempt` goes back to. Attempts do not nest."""
        ...

    async def undo_attempt(self) -> None:
        """Undo what was executed since `begin_attempt`."""
        ...


class Store(Protocol):
    """One log's storage. Calls may come from any task; writes come one at a time, from the log's writer.

    Attributes:
        topic: The topic that the log was created with.
        location: A path or URL for messages to the user, without secrets.
        is_read_only: Whether `write` and `transaction` are refused.
        is_shared: Whether other processes may write to the log while it is open here.
    """

    topic: str
    location: str
    is_read_only: bool
    is_shared: bool

    @property
    def poll_s(self) -> float:
        """How often a follower of a shared log must look for new entries, in seconds."""
        ...

    def watch(self, wake: Callable[[], None]) -> None:
        """Have a function called, in the event loop, when the store learns that other processes may have written. Some stores never do."""
        ...

    async def read(self, plan: Plan[T]) -> T:
        """Run a plan on one snapshot of the log."""
        ...

    def snapshot(self, *, may_expire: bool = False) -> AbstractAsyncContextManager[Reader]:
        """Hold one snapshot for many plans. Keep it short: a SQLite file cannot be checkpointed past it.

        Args:
            may_expire: Whether the store may take it back when that has cost too much space: then `run` raises SnapshotExpired.
        """
        ...

    async def write(self, plan: Plan[T]) -> T:
        """Run a plan as one transaction: committed when it returns, rolled back when it raises.

        A cancelled call is cancelled after the commit or the rollback, so that nothing is ever half done.

        Raises:
            StoreError: The store could not commit; nothing changed.
        """
        ...

    def begin_write(self, plan: Plan[T], then: Callable[[Outcome[T]], None]) -> bool:
        """Begin what `write` does in a step that must not wait, and have its outcome handed to a function, in the event loop, later.

        Args:
            then: Called in none of the caller's tasks; it must neither wait nor raise.

        Returns:
            False, and nothing is begun, where another transaction is open, or only `write` can do it.
        """
        ...

    def transaction(self) -> AbstractAsyncContextManager[Transaction]:
        """Open a transaction for a body that awaits: committed when the body ends, rolled back when it raises or is cancelled."""
        ...

    def rehearsal(self) -> AbstractAsyncContextManager[Store]:
        """Have a store to try a transaction on that is rolled back; a store that is open read-only, too.

        The log is not written to: a file is copied to `TMPDIR`.

        Raises:
            ReadOnlyLog: It is open read-only, and cannot be copied.
            StorageFull: There is no room for a copy.
        """
        ...

    async def size_bytes(self) -> int:
        """Return what the log takes on disk (in memory: the sum of all values)."""
        ...


NOTE_BYTES_MAX = 5_800
"""With its sender's name, and in base64, it fits the 8,000 bytes of a notification of PostgreSQL."""


@runtime_checkable
class TalkingStore(Protocol):
    """A store whose other processes can be told something that is stored nowhere."""

    def talk(self, hear: Callable[[bytes | None], None]) -> Callable[[bytes], None]:
        """Have notes of other processes handed to a function, in the event loop; return what sends them one.

        A note has `NOTE_BYTES_MAX` bytes at most. Any of them may be lost; those that arrive are in order. Where some may have been missed,
        and at the beginning, the function is handed None.
        """
        ...
