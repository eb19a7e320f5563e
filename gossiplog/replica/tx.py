"""The transaction as an application's functions see it: `Tx` for `async def`, and `SyncTx` with the same methods for `def`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ..entry.message import Entry
from ..entry.message_id import decode_id
from ..errors import StatementError, StoreError
from ..log.past import find_entry, is_ancestor
from ..plan import Plan

if TYPE_CHECKING:
    from ..log.application import SyncTransaction
    from ..store import Transaction

T = TypeVar("T")


class _Common:
    """Notes an error of the store, after which the transaction is lost even if the application catches the error."""

    def __init__(self) -> None:
        self.failure: StoreError | None = None

    def __enter__(self) -> None:
        if self.failure is not None:
            raise self.failure

    def __exit__(self, _: object, error: object, __: object) -> None:
        if isinstance(error, StoreError) and not isinstance(error, StatementError):
            self.failure = error


class SyncTx(_Common):
    """The transaction for plain functions of an application; its calls block. Use it only during the call of your function."""

    def __init__(self, transaction: SyncTransaction, new: Mapping[bytes, Entry]) -> None:
        super().__init__()
        self._transaction = transaction
        self._new = new

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """See `Tx.execute`."""
        with self:
            return self._transaction.execute(statement, parameters)

    def execute_many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        """See `Tx.execute_many`."""
        with self:
            self._transaction.execute_many(statement, rows)

    def fetch(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """See `Tx.fetch`."""
        return self.execute(statement, parameters)

    def is_ancestor(self, a: str, b: str) -> bool:
        """See `Tx.is_ancestor`."""
        return self.run(is_ancestor(decode_id(a), decode_id(b), self._new))

    def get(self, id: str) -> Entry | None:
        """See `Tx.get`."""
        return self.run(find_entry(decode_id(id), self._new))

    def run(self, plan: Plan[T]) -> T:
        """See `Tx.run`."""
        with self:
            return self._transaction.run(plan)


class Tx(_Common):
    """The transaction of an application: everything is committed with the entries, or rolled back with them.

    Use it only during the call of your function.
    """

    def __init__(self, transaction: Transaction, new: Mapping[bytes, Entry]) -> None:
        super().__init__()
        self._transaction = transaction
        self._new = new

    async def execute(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Execute one statement on the application's own tables and return all of its rows.

        Args:
            statement: In the database's dialect; parameters are written `$1`, `$2` and so on.

        Raises:
            LocalProtocolError: The statement begins or ends a transaction, or changes a table of the log.
            StatementError: The database refused it; the transaction goes on without it.
            StoreError: The store failed; the transaction is lost.
        """
        with self:
            return await self._transaction.execute(statement, parameters)

    async def execute_many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        """Execute one statement for each row of parameters, in one hop. Raises as `execute`."""
        with self:
            await self._transaction.execute_many(statement, rows)

    async def fetch(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Execute a query and return its rows; as `execute`."""
        return await self.execute(statement, parameters)

    async def is_ancestor(self, a: str, b: str) -> bool:
        """Say whether a path leads from `b` through parents to `a`. The entries being applied are already in the log.

        False if the log lacks either of them. If `b` is the entry being applied, the answer is the same on every replica.
        """
        return await self.run(is_ancestor(decode_id(a), decode_id(b), self._new))

    async def get(self, id: str) -> Entry | None:
        """Return the entry with this id; None if the log lacks it."""
        return await self.run(find_entry(decode_id(id), self._new))

    async def run(self, plan: Plan[T]) -> T:
        """Run a plan on the log as it is within the transaction."""
        with self:
            return await self._transaction.run(plan)
