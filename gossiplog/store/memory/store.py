"""A log in memory: for tests, simulations, and replicas that need not survive."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar

import trio

from ...entry.rules import check_topic
from ...errors import LocalProtocolError, ReadOnlyLog
from ...plan import Plan, Request, run_plan
from ..base import Reader, Transaction
from .fsck import FSCK_ANSWERS
from .state import WRITES, MemoryState

__all__ = ["MemoryStore"]

T = TypeVar("T")


class MemoryStore:
    """The store behind `:memory:`. It has no tables, so `apply` gets a transaction that only runs plans."""

    is_shared = False
    poll_s = 0.0

    def __init__(self, topic: str | None, *, read_only: bool = False, state: MemoryState | None = None) -> None:
        if topic is None:
            raise LocalProtocolError("a log in memory needs a topic")
        check_topic(topic)
        self.topic = topic
        self.location = ":memory:"
        self.is_read_only = read_only
        self._state = state or MemoryState(secrets.token_hex(8))
        self._write_turn = trio.Lock()

    def watch(self, wake: Callable[[], None]) -> None:
        """Do nothing: nobody else writes."""

    async def read(self, plan: Plan[T]) -> T:
        """Run a plan; nothing else runs meanwhile, so it sees one state."""
        await trio.lowlevel.checkpoint()
        return run_plan(plan, partial(_answer, self._state))

    @asynccontextmanager
    async def snapshot(self, *, may_expire: bool = False) -> AsyncIterator[Reader]:
        """Hold the state of now, which never expires. O(heads)."""
        await trio.lowlevel.checkpoint()
        yield _Snapshot(self._state.snapshot())

    async def write(self, plan: Plan[T]) -> T:
        """Run a plan as one transaction."""
        async with self.transaction() as transaction:
            return await transaction.run(plan)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        """Open a transaction, whose plans see the state before it."""
        if self.is_read_only:
            raise ReadOnlyLog("the log is open read-only")
        async with self._write_turn:
            writes: list[Request[Any]] = []
            yield _Transaction(self._state, writes)
            for request in writes:
                self._state.write(request)

    async def size_bytes(self) -> int:
        """Return the sum of all values."""
        await trio.lowlevel.checkpoint()
        return sum(len(value) for value in self._state.values)


class _Snapshot:
    def __init__(self, state: MemoryState) -> None:
        self._state = state

    async def run(self, plan: Plan[T]) -> T:
        await trio.lowlevel.checkpoint()
        return run_plan(plan, partial(_answer, self._state))


class _Transaction:
    def __init__(self, state: MemoryState, writes: list[Request[Any]]) -> None:
        self._state = state
        self._writes = writes

    async def run(self, plan: Plan[T]) -> T:
        return run_plan(plan, self._answer)

    async def execute(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        raise LocalProtocolError("a log in memory has no tables")

    async def execute_many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        raise LocalProtocolError("a log in memory has no tables")

    def _answer(self, request: Request[Any]) -> Any:
        if type(request) in WRITES:
            self._writes.append(request)
            return None
        return _answer(self._state, request)


def _answer(state: MemoryState, request: Request[Any]) -> Any:
    """Answer any request that reads, those of `fsck` included."""
    answer = FSCK_ANSWERS.get(type(request))
    return state.answer(request) if answer is None else answer(state, request)
