"""Plans: code that needs stored data, written as generators that yield requests and receive the answers.

A plan knows nothing of files, sockets or tasks. Its driver (the memory store, a SQLite thread, a Postgres connection, a test) answers all
its requests from one snapshot, or inside one transaction:

    def has(key: bytes) -> Plan[bool]:
        leaves = yield from ask(ReadLeaves([key]))
        return key in leaves

So every query, and the whole commit, is written once, is tested without a database, and costs one hop into a database's thread.
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
    """A function to be called between two answers of a transaction, in whichever thread that is; what it returns is the answer.

    So a function of somebody else's, which is no plan, can ask and write within the transaction: it gets a `SyncTransaction`. Only a
    transaction answers it; what it raises is raised to the driver of the plan.
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
    """Tell whether a plan that has not begun is one `ask` and no more, so that any snapshot will do for it."""
    return getattr(plan, "gi_code", None) is ask.__code__


class Resumable(Generic[T]):
    """A plan that can be run again where a request of it was not answered; a plan itself is a generator, and runs once.

    Attributes:
        has_answer: Whether it has had an answer. From then on it goes with the state of the log that the answer came from, unless any part
            of it may see a later state than the part before it.
    """

    def __init__(self, plan: Plan[T]) -> None:
        self.has_answer = False
        self._plan = plan
        self._request: Request[Any] | None = None
        self._outcome: Callable[[], T] | None = None

    def run(self) -> Plan[T]:
        """Return a plan that goes on from the request that was not answered, at first from the beginning.

        One that has come to its end, be it a result or an error of its own, comes to the same end again.
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
