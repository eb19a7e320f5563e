"""Plans: code that needs stored data, written as generators that yield requests and receive the answers.

A plan knows nothing of files, sockets or tasks. Whoever runs it (the memory store, a SQLite thread, a Postgres connection, a
test) answers all its requests from one snapshot, or inside one transaction:

    def has(key: bytes) -> Plan[bool]:
        leaves = yield from ask(ReadLeaves([key]))
        return key in leaves

So every query, and the whole commit, is written once, is tested without a database, and costs one hop into a database's thread.
"""

from collections.abc import Awaitable, Callable, Generator
from typing import Any, Generic, TypeAlias, TypeVar

__all__ = ["Plan", "Request", "ask", "is_single", "run_plan", "run_plan_async"]

T = TypeVar("T")


class Request(Generic[T]):
    """One question to a store, or one write; its type parameter is the type of the answer."""

    __slots__ = ()


Plan: TypeAlias = Generator[Request[Any], Any, T]


def ask(request: Request[T]) -> Plan[T]:
    """Yield one request and return its answer, with the answer's type: `leaves = yield from ask(ReadLeaves(keys))`."""
    answer: T = yield request
    return answer


def is_single(plan: Plan[Any]) -> bool:
    """Tell whether a plan that has not begun is one `ask` and no more, so that any snapshot will do for it."""
    return getattr(plan, "gi_code", None) is ask.__code__


def run_plan(plan: Plan[T], answer: Callable[[Request[Any]], Any]) -> T:
    """Run a plan to its end against `answer`, which answers one request at a time; what `answer` raises is raised here."""
    try:
        request = next(plan)
        while True:
            request = plan.send(answer(request))
    except StopIteration as stop:
        result: T = stop.value
        return result
    finally:
        plan.close()


async def run_plan_async(plan: Plan[T], answer: Callable[[Request[Any]], Awaitable[Any]]) -> T:
    """Run a plan as `run_plan` does, against an `answer` that awaits, in whichever event loop."""
    try:
        request = next(plan)
        while True:
            request = plan.send(await answer(request))
    except StopIteration as stop:
        result: T = stop.value
        return result
    finally:
        plan.close()
