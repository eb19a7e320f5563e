"""`async with` blocks that explain themselves: used without `async with`, they raise an error that says how to write it."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, TypeVar

from ..errors import NotOpened

P = ParamSpec("P")
T = TypeVar("T")


class Unopened:
    """The base of context managers that users may mistake for the object that they open.

    Attributes:
        call: The call that made it, as the user wrote it: `gossiplog.open`.
        opened_by: `async with` or `with`.
    """

    call: str
    opened_by: str

    # Hidden from type checkers, which then report the mistake themselves.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            if name.startswith("_"):
                # Python, notebooks and debuggers look these up and expect that they may be missing.
                raise AttributeError(name)
            self._refuse()

        def _refuse(self, *_: Any) -> NoReturn:
            hint = f"write `{self.opened_by} {self.call}(…) as …:` and use what that gives within the block"
            raise NotOpened(f"{self.call}(…) opens nothing without a block", hint=hint)

        __await__ = __aiter__ = __iter__ = __enter__ = __exit__ = __aenter__ = __aexit__ = _refuse


class Block(Unopened, AbstractAsyncContextManager[T]):
    """An `async with` block."""

    opened_by = "async with"

    def __init__(self, inner: AbstractAsyncContextManager[T], call: str) -> None:
        self._inner = inner
        self.call = call

    async def __aenter__(self) -> T:
        return await self._inner.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        return await self._inner.__aexit__(kind, error, traceback)


def block(call: str) -> Callable[[Callable[P, AsyncIterator[T]]], Callable[P, Block[T]]]:
    """Decorate a generator function, like `asynccontextmanager`, so that it returns a `Block`. `call` is for error messages."""

    def decorate(function: Callable[P, AsyncIterator[T]]) -> Callable[P, Block[T]]:
        make = asynccontextmanager(function)

        @functools.wraps(function)
        def open_block(*args: P.args, **options: P.kwargs) -> Block[T]:
            return Block(make(*args, **options), call)

        return open_block

    return decorate
