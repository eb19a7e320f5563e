"""Plans: code that needs stored data, written as generators that yield requests and receive the answers.

A plan knows nothing of files, sockets or tasks. Its driver (the memory store, a SQLite thread, a Postgres connection, a test) answers all
requests from one snapshot or inside one transaction:

    def has(key: bytes) -> Plan[bool]:
        leaves = yield from ask(ReadLeaves([key]))
        return key in leaves

So each query, and the whole commit, is written once, can be tested without a database, and costs one hop into a database's thread.
"""

from collections.abc import Awaitable, Callable, Generator
from functools import partial
from typing import Any, Generic, NoReturn, TypeAlias, TypeVar

__all__ = ["Call", "Plan", "Request", "Resumable", "ask", "is_single", "run_plan", "run_plan_async"]

T = TypeVar("T")


class Request(Generic[T]):
    """One question to a store, or one write; its type parameter is the type of the answer."""

    __slots__ = ()


class Call(Request[T]):
    """A function to call between two answers of a transaction, in the transaction's thread. Its result is the answer.

    It lets an application's function, which is no plan, ask and write within the transaction: the function gets a `SyncTransaction`. Only
    transactions answer it. An exception of the function is raised to the driver of the plan.
    """

    __slots__ = ("function",)

    def __init__(self, function: Callable[[Any], T]) -> None:
        self.function = function


Plan: TypeAlias = Generator[Request[Any], Any, T]


def ask(request: Request[T]) -> Plan[T]:
    """Yield one request and return its answer, with the answer's type: `leaves = yield from ask(ReadLeaves(keys))`."""
    answer: T = yield request
    return answer


def is_single(plan: Plan[Any]) -> bool:
    """Return whether a plan that has not begun is a single `ask`, so that any snapshot will do for it."""
    return getattr(plan, "gi_code", None) is ask.__code__


class Resumable(Generic[T]):
    """A plan that can be run again from a request that was not answered. A plan itself is a generator, and runs once.

    Attributes:
        has_answer: Whether a request was answered. From then on the plan depends on the state of the log that the answer came from, unless
            each of its parts may see a later state than the one before.
    """

    def __init__(self, plan: Plan[T]) -> None:
        self.has_answer = False
        self._plan = plan
        self._request: Request[Any] | None = None
        self._outcome: Callable[[], T] | None = None

    def run(self) -> Plan[T]:
        """Return a plan that goes on from the unanswered request, or at first from the beginning.

        After the end of the plan, it returns the same result or raises the same error again.
        """
        while self._outcome is None:
            if self._request is None:
                self._advance(None)
            else:
                answer = yield self._request
                self.has_answer = True
                self._advance(answer)
        return self._outcome()

    def _advance(self, answer: Any) -> None:
        try:
            self._request = self._plan.send(answer)
        except StopIteration as stop:
            result: T = stop.value
            self._outcome = lambda: result
        except Exception as error:
            self._outcome = partial(_fail, error)


def _fail(error: Exception) -> NoReturn:
    raise error


def run_plan(plan: Plan[T], answer: Callable[[Request[Any]], Any]) -> T:
    """Run a plan to its end against `answer`, which answers one request at a time. An exception of `answer` is raised here."""
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
    """Run a plan as `run_plan` does, against an asynchronous `answer`, in any event loop."""
    try:
        request = next(plan)
        while True:
            request = plan.send(await answer(request))
    except StopIteration as stop:
        result: T = stop.value
        return result
    finally:
        plan.close()
