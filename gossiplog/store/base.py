"""The interface between a log and its store, which runs plans on a snapshot or as one transaction and answers their requests.

A new backend is a class like `Store` that answers each request of `log.requests`, `log.fsck_requests` and `tree.node`; the docstrings
there define the answers. Requests named Read are answered on a snapshot and in a transaction, all others in a transaction only.
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
    """What an acknowledged append survives, beside the end of the process, which it survives at every level, kill -9 included.

    Source: docs/spec/storage.md; the names are those of SQLite's `synchronous`.
    """

    FULL = "full"
    """A loss of power: each commit is on the disk before it is acknowledged. The default."""
    NORMAL = "normal"
    """A loss of power may lose the last commits; the file stays whole."""
    OFF = "off"
    """A loss of power may damage the file."""

    @classmethod
    def _missing_(cls, value: object) -> Durability:
        raise LocalProtocolError(f"durability {value!r}, expected full, normal or off")


class Reader(Protocol):
    """A fixed state of the log, from which any number of plans can be answered."""

    async def run(self, plan: Plan[T]) -> T:
        """Run a plan that only reads. A cancelled call ends after the plan, and its result is dropped."""

    async def query(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Execute a statement that only reads, on the application's tables in this state, and return its rows.

        Raises:
            LocalProtocolError: The statement does more than read.
            StatementError: The database refused it.
        """


class Transaction(Protocol):
    """An open transaction. Everything done through it is committed as a whole or rolled back."""

    async def run(self, plan: Plan[T]) -> T:
        """Run a plan on the state within the transaction."""

    async def execute(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Execute one statement on the application's own tables and return all of its rows.

        Args:
            statement: In the database's own dialect, with parameters written `$1`, `$2` and so on, or `?` on SQLite.

        Raises:
            LocalProtocolError: The statement begins or ends a transaction, or changes a table of the log.
            StatementError: The database refused it.
            StoreError: The store failed; the transaction is lost.
        """

    async def execute_many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        """Execute one statement for each row of parameters, in one hop. Raises as `execute`."""

    async def begin_attempt(self) -> None:
        """Mark the state to which `undo_attempt` returns. Attempts do not nest."""

    async def undo_attempt(self) -> None:
        """Undo what was executed since `begin_attempt`."""


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

    def watch(self, wake: Callable[[], None]) -> None:
        """Have a function called, in the event loop, when the store learns that other processes may have written. Some stores never do."""

    async def read(self, plan: Plan[T]) -> T:
        """Run a plan on one snapshot of the log."""

    def snapshot(self, *, may_expire: bool = False) -> AbstractAsyncContextManager[Reader]:
        """Hold one snapshot for many plans. Keep it short: a SQLite file cannot be checkpointed past it.

        Args:
            may_expire: Whether the store may revoke it when it has cost too much space; then `run` raises SnapshotExpired.
        """

    async def write(self, plan: Plan[T]) -> T:
        """Run a plan as one transaction: committed when it returns, rolled back when it raises.

        A cancelled call ends after the commit or the rollback, so nothing is ever half done.

        Raises:
            StoreError: The store could not commit; nothing changed.
        """

    def begin_write(self, plan: Plan[T], then: Callable[[Outcome[T]], None]) -> bool:
        """Begin a `write` without waiting. Its outcome goes to a function later, in the event loop.

        Args:
            then: Called outside the caller's tasks; it must neither wait nor raise.

        Returns:
            False if nothing was begun, because another transaction is open or only `write` can do it.
        """

    def transaction(self) -> AbstractAsyncContextManager[Transaction]:
        """Open a transaction for a body that awaits: committed when the body ends, rolled back when it raises or is cancelled."""

    def rehearsal(self) -> AbstractAsyncContextManager[Store]:
        """Have a store on which to try a transaction and roll it back, also of a file that is open read-only.

        The log is not written to: a file is copied to `TMPDIR`.

        Raises:
            ReadOnlyLog: The store is open read-only and cannot be copied.
            StorageFull: There is no room for a copy.
        """

    async def size_bytes(self) -> int:
        """Return how many bytes the log takes on disk; in memory, the sum of all values."""


NOTE_BYTES_MAX = 5_800
"""In base64 and with its sender's token, a note of this size fits the 8,000 bytes of a PostgreSQL notification."""


@runtime_checkable
class TalkingStore(Protocol):
    """A store through which processes can send each other notes that are stored nowhere."""

    def talk(self, hear: Callable[[bytes | None], None]) -> Callable[[bytes], None]:
        """Have other processes' notes handed to a function, in the event loop; return a function that sends one.

        A note has at most `NOTE_BYTES_MAX` bytes. Any note may be lost; those that arrive are in order. At the beginning, and whenever
        notes may have been missed, the function gets None.
        """
