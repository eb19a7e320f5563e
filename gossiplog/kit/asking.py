"""Calls the kit's methods on a log of `gossiplog.blocking`, without `await`.

Source: docs/kit.md, "In plain Python".
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, Concatenate, ParamSpec, TypeVar, overload

T = TypeVar("T")
P = ParamSpec("P")


class _Awaitable:
    """Presents a blocking log as one whose calls are awaited."""

    def __init__(self, log: Any) -> None:
        self._log = log

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        async def call(*args: Any, **options: Any) -> Any:
            return getattr(self._log, name)(*args, **options)

        return call


@overload
def ask(method: Callable[Concatenate[Any, P], AsyncIterator[T]], log: Any, *args: P.args, **options: P.kwargs) -> Iterator[T]: ...
@overload
def ask(method: Callable[Concatenate[Any, P], Awaitable[T]], log: Any, *args: P.args, **options: P.kwargs) -> T: ...
def ask(method: Callable[..., Any], log: Any, *args: Any, **options: Any) -> Any:
    """Call a part's method on a log of `gossiplog.blocking`: `ask(todos.items, log)`.

    Returns:
        The method's awaited result; an iterator if the method is an asynchronous iterator.
    """
    answer = method(_Awaitable(log), *args, **options)
    return _each(answer) if isinstance(answer, AsyncIterator) else _finish(answer)


def _each(answer: AsyncIterator[T]) -> Iterator[T]:
    while True:
        try:
            item = _finish(anext(answer))
        except StopAsyncIteration:
            return
        yield item


def _finish(answer: Awaitable[T]) -> T:
    """Run a coroutine that never suspends, and return its result."""
    try:
        answer.__await__().__next__()
    except StopIteration as done:
        value: T = done.value
        return value
    raise AssertionError("a part of the kit awaited something else than its log")
