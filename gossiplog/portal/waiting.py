"""The two ways to wait for what runs in the thread: as a task of asyncio's, and as a plain thread.

Each has a block, an iterator and a base for façades. A `Method`, a `PagesMethod` and a `BlockMethod` stand for a method of trio's in both:
on a façade of asyncio's a `Method` is a coroutine function, on a blocking one a function that waits. `surface.py` lists them once for both.
"""

from __future__ import annotations

import functools
import inspect
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from types import CoroutineType, MethodType, TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, overload

import trio

from ..tasks.block import Unopened
from .block import BlockHost
from .call import PortalCall
from .thread import TrioThread

if TYPE_CHECKING:
    from ..tasks.pages import Pages as TrioPages

S = TypeVar("S")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
V = TypeVar("V")
P = ParamSpec("P")
F = TypeVar("F", bound=Callable[..., Any])


class Facade(Generic[T_co]):
    """Stands outside the thread for an object that lives in it."""

    __slots__ = ("_host", "_inner", "_thread")
    _called = "log"

    def __init__(self, thread: TrioThread, host: BlockHost[Any], inner: T_co) -> None:
        """Take the object, and the block within which it can be used."""
        self._thread = thread
        self._host = host
        self._inner = inner

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.{type(self).__name__} of {self._inner!r}>"

    def __reduce__(self) -> str:
        raise TypeError("what is open cannot be pickled; open it in the other process")

    def _ask(self, function: Callable[[], Any]) -> Any:
        """Call a function in the thread that does not wait. This takes a tenth of a millisecond unless the thread is busy."""

        async def call() -> Any:
            return function()

        return call_of(self, call).wait()


def call_of(facade: Facade[Any], function: Callable[[], Awaitable[T]]) -> PortalCall[T]:
    """Make a call that belongs to a façade's block, and ends with it."""
    return PortalCall(facade._thread, facade._host, function)


def inner_of(facade: Facade[T]) -> T:
    """Return the object that a façade stands for."""
    return facade._inner


def like(original: Callable[..., Any]) -> Callable[[F], F]:
    """Make a decorator that gives a function another one's name and docstring, and its signature if it passes all arguments on."""

    def decorate(function: F) -> F:
        function.__doc__, function.__name__, function.__qualname__ = original.__doc__, original.__name__, original.__name__
        if function.__code__.co_flags & inspect.CO_VARKEYWORDS:
            function.__wrapped__ = original  # type: ignore[attr-defined]
        return function

    return decorate


class _Block(Unopened, Generic[T]):
    def __init__(
        self,
        thread: TrioThread,
        parent: BlockHost[Any] | None,
        make: Callable[[], AbstractAsyncContextManager[V]],
        wrap: Callable[[TrioThread, BlockHost[Any], V], T],
        call: str,
    ) -> None:
        """Take what makes the block in trio, what makes the façade of its value, and the name of the call for messages."""
        self.call = call
        self._thread = thread
        self._parent = parent
        self._host: BlockHost[Any] = BlockHost(thread, parent, make)
        self._wrap = wrap

    def _opening(self) -> PortalCall[Any]:
        return PortalCall(self._thread, self._parent, self._host.enter)

    def _abandoning(self) -> PortalCall[None]:
        return PortalCall(self._thread, None, self._host.abandon)

    def _closing(self, has_failed: bool) -> PortalCall[None]:
        return PortalCall(self._thread, None, functools.partial(self._host.leave, has_failed))


class AsyncioBlock(_Block[T], AbstractAsyncContextManager[T]):
    """What is open for the length of an `async with` block; or, where no block fits, from `start` to `close`."""

    opened_by = "async with"

    async def start(self) -> T:
        """Open it. A cancelled call leaves nothing open."""
        try:
            value = await self._opening().wait_in_asyncio()
        except BaseException as error:
            # It may already have been open when the call was cancelled. A coroutine that is thrown away cannot wait for the end.
            if not isinstance(error, Exception | GeneratorExit):
                await self._abandoning().wait_in_asyncio()
            raise
        return self._wrap(self._thread, self._host, value)

    async def close(self, *, has_failed: bool = False) -> None:
        """End it, as the end of its block does.

        Args:
            has_failed: End it as a block that raised: unfinished work is not waited for.
        """
        await self._closing(has_failed).wait_in_asyncio()

    async def __aenter__(self) -> T:
        return await self.start()

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        await self.close(has_failed=kind is not None)


class BlockingBlock(_Block[T], AbstractContextManager[T]):
    """What is open for the length of a `with` block; or, where no block fits, from `start` to `close`."""

    opened_by = "with"

    def start(self) -> T:
        """Open it. An interrupted call leaves nothing open."""
        try:
            value = self._opening().wait()
        except BaseException as error:
            # It may already have been open when the interrupt came.
            if not isinstance(error, Exception):
                self._abandoning().wait()
            raise
        return self._wrap(self._thread, self._host, value)

    def close(self, *, has_failed: bool = False) -> None:
        """End it, as the end of its block does.

        Args:
            has_failed: End it as a block that raised: unfinished work is not waited for.
        """
        self._closing(has_failed).wait()

    def __enter__(self) -> T:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close(has_failed=kind is not None)


class _Pages(Generic[T]):
    """Reads at most one page ahead, so that a change of threads serves many entries."""

    def __init__(self, of: Facade[Any], next_page: Callable[[], Awaitable[Sequence[T]]]) -> None:
        """Take the function that reads a page, in trio; an empty page is the end."""
        self._page: deque[T] = deque()
        self._of = of
        self._next_page = next_page
        self._turn = trio.Lock()

    def _filling(self) -> PortalCall[bool]:
        return call_of(self._of, self._fill)

    async def _fill(self) -> bool:
        """Read a page if there is none, and return whether there is one now. Runs in the thread.

        The page is kept here before the call returns, so a caller that is cancelled meanwhile loses nothing.
        """
        async with self._turn:
            if not self._page:
                self._page.extend(await self._next_page())
            return bool(self._page)

    def _take(self) -> list[T]:
        return [self._page.popleft() for _ in range(len(self._page))]


class AsyncioPages(_Pages[T], AsyncIterator[T]):
    """An asynchronous iterator that reads the next page when it has given out the one before. It may be abandoned half way."""

    async def __anext__(self) -> T:
        # Another task may take what was read before this one goes on.
        while not self._page:
            if not await self._filling().wait_in_asyncio():
                raise StopAsyncIteration
        return self._page.popleft()

    async def next_page(self) -> list[T]:
        """Return the entries at hand, reading a page first if there are none. An empty list is the end."""
        while not self._page and await self._filling().wait_in_asyncio():
            pass
        return self._take()

    async def aclose(self) -> None:
        """Do nothing. It is here for code that closes every iterator."""


class BlockingPages(_Pages[T], Iterator[T]):
    """An iterator that reads the next page when it has given out the one before. It may be abandoned half way."""

    def __next__(self) -> T:
        # Another thread may take what was read before this one goes on.
        while not self._page:
            if not self._filling().wait():
                raise StopIteration
        return self._page.popleft()

    def next_page(self) -> list[T]:
        """Return the entries at hand, reading a page first if there are none. An empty list is the end."""
        while not self._page and self._filling().wait():
            pass
        return self._take()

    def close(self) -> None:
        """Do nothing. It is here for code that closes every iterator."""


class InAsyncio:
    """The base of façades whose calls are awaited."""

    __slots__ = ()
    _block_class = AsyncioBlock
    _pages_class = AsyncioPages

    @staticmethod
    @functools.cache
    def _call(method: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Any]:
        @like(method)
        async def call(self: Facade[Any], /, *args: Any, **options: Any) -> Any:
            return await call_of(self, functools.partial(method, self._inner, *args, **options)).wait_in_asyncio()

        return call


class InThreads:
    """The base of façades whose calls block the calling thread."""

    __slots__ = ()
    _block_class = BlockingBlock
    _pages_class = BlockingPages

    @staticmethod
    @functools.cache
    def _call(method: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Any]:
        @like(method)
        def call(self: Facade[Any], /, *args: Any, **options: Any) -> Any:
            return call_of(self, functools.partial(method, self._inner, *args, **options)).wait()

        return call


class Attribute(property, Generic[T]):
    """An attribute that needs no waiting, read of the object in the thread; its docstring is the argument."""

    def __init__(self, doc: str) -> None:
        super().__init__(self._read)
        self.__doc__ = doc

    def __set_name__(self, owner: type[Any], name: str) -> None:
        self._name = name

    def _read(self, facade: Facade[Any]) -> T:
        value: T = getattr(facade._inner, self._name)
        return value

    if TYPE_CHECKING:

        @overload
        def __get__(self, facade: None, owner: type[Any], /) -> Attribute[T]: ...

        @overload
        def __get__(self, facade: Any, owner: type[Any] | None = None, /) -> T: ...

        def __get__(self, facade: Any, owner: type[Any] | None = None, /) -> Any: ...


class Method(Generic[S, P, T]):
    """A method that is waited for."""

    def __init__(self, method: Callable[Concatenate[S, P], Coroutine[Any, Any, T]]) -> None:
        """Take the method, in trio."""
        self._method = method

    @overload
    def __get__(self, facade: None, owner: type[Any]) -> Callable[..., Any]: ...

    @overload
    def __get__(self, facade: InAsyncio, owner: type[Any]) -> Callable[P, Coroutine[Any, Any, T]]: ...

    @overload
    def __get__(self, facade: InThreads, owner: type[Any]) -> Callable[P, T]: ...

    def __get__(self, facade: Any, owner: type[Any]) -> Callable[..., Any]:
        call: Callable[..., Any] = owner._call(self._method)
        return call if facade is None else MethodType(call, facade)

    if TYPE_CHECKING:

        def __call__(self, *args: P.args, **options: P.kwargs) -> CoroutineType[Any, Any, T]:
            """Pyright compares the descriptor itself with the methods of a protocol, such as `kit.Readable`."""
            ...


class PagesMethod(Generic[S, P, T]):
    """A method that gives an iterator."""

    def __init__(self, method: Callable[Concatenate[S, P], TrioPages[T]]) -> None:
        """Take the method, in trio."""
        self._method = method

    @overload
    def __get__(self, facade: None, owner: type[Any]) -> Callable[..., Any]: ...

    @overload
    def __get__(self, facade: InAsyncio, owner: type[Any]) -> Callable[P, AsyncioPages[T]]: ...

    @overload
    def __get__(self, facade: InThreads, owner: type[Any]) -> Callable[P, BlockingPages[T]]: ...

    def __get__(self, facade: Any, owner: type[Any]) -> Callable[..., Any]:
        @like(self._method)
        def iterate(facade: Any, /, *args: Any, **options: Any) -> Any:
            return owner._pages_class(facade, self._method(facade._inner, *args, **options).next_page)

        return iterate if facade is None else MethodType(iterate, facade)


class BlockMethod(Generic[S, P, V, T]):
    """A method that opens something for the length of a block."""

    def __init__(
        self, method: Callable[Concatenate[S, P], AbstractAsyncContextManager[V]], wrap: Callable[[TrioThread, BlockHost[Any], V], T]
    ) -> None:
        """Take the method, in trio, and what makes the façade of its block's value."""
        self._method = method
        self._wrap = wrap

    @overload
    def __get__(self, facade: None, owner: type[Any]) -> Callable[..., Any]: ...

    @overload
    def __get__(self, facade: InAsyncio, owner: type[Any]) -> Callable[P, AsyncioBlock[T]]: ...

    @overload
    def __get__(self, facade: InThreads, owner: type[Any]) -> Callable[P, BlockingBlock[T]]: ...

    def __get__(self, facade: Any, owner: type[Any]) -> Callable[..., Any]:
        @like(self._method)
        def opens(facade: Any, /, *args: Any, **options: Any) -> Any:
            make = functools.partial(self._method, facade._inner, *args, **options)
            call = f"{owner._called}.{self._method.__name__}"
            return owner._block_class(facade._thread, facade._host, make, self._wrap, call)

        return opens if facade is None else MethodType(opens, facade)
