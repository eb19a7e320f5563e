"""GossipLog for asyncio: what `gossiplog` is in trio, with the same names, arguments and results.

    async with gossiplog.aio.open("app.db", topic="app.example.com", signer=signer) as log:
        await log.append({"op": "add"})

Each call runs in the one thread with trio that the process has. A task that is cancelled cancels its call, and goes on when that has
ended. `apply` and `authorize` do not run in asyncio's thread: a plain function runs in the database's, and an `async def apply` in trio, so
that it may await nothing but its transaction.

Source: docs/asyncio.md
"""

from __future__ import annotations

import functools
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, overload

from . import gossip_log, shelves
from .portal import (
    BlockHost,
    Facade,
    HubFacade,
    Iteration,
    LinkFacade,
    LogFacade,
    PortalCall,
    PresenceFacade,
    SubscriptionFacade,
    TrioThread,
    call_of,
    inner_of,
    like,
    trio_thread,
)
from .replica.presence import Presence as TrioPresence
from .replica.presence import PresenceChange
from .replica.subscription import Subscription as TrioSubscription
from .store import Durability, Reader
from .tasks.block import Unopened

if TYPE_CHECKING:
    from .bucket import Exchanged, Taken
    from .entry.message import Entry
    from .entry.signing import Signer
    from .plan import Plan
    from .replica.copying import CopyReport
    from .replica.reader import Moment
    from .sync import Source, SyncResult
    from .tasks.pages import Pages as TrioPages

__all__ = ["Block", "GossipLog", "Hub", "HubLink", "Pages", "Presence", "Shelf", "Snapshot", "Subscription", "clone", "open", "shelf"]

S = TypeVar("S")
T = TypeVar("T")
V = TypeVar("V")
P = ParamSpec("P")
_Log = gossip_log.GossipLog


class Block(Unopened, AbstractAsyncContextManager[T]):
    """What is open for the length of an `async with` block; or, where no block fits, from `start` to `close`."""

    opened_by = "async with"

    def __init__(
        self,
        thread: TrioThread,
        parent: BlockHost[Any] | None,
        make: Callable[[], AbstractAsyncContextManager[V]],
        wrap: Callable[[TrioThread, BlockHost[Any], V], T],
        call: str,
    ) -> None:
        """Take what makes the block in trio, what stands for its value out here, and what it is called in messages."""
        self.call = call
        self._thread = thread
        self._parent = parent
        self._host: BlockHost[Any] = BlockHost(thread, parent, make)
        self._wrap = wrap

    async def start(self) -> T:
        """Open it. A cancelled call leaves nothing open."""
        try:
            value = await PortalCall(self._thread, self._parent, self._host.enter).wait_in_asyncio()
        except BaseException as error:
            # It may have been open already when the call was cancelled. A coroutine that is thrown away cannot wait for its end.
            if not isinstance(error, Exception | GeneratorExit):
                await PortalCall(self._thread, None, self._host.abandon).wait_in_asyncio()
            raise
        return self._wrap(self._thread, self._host, value)

    async def close(self, *, has_failed: bool = False) -> None:
        """End it, as the end of its block does.

        Args:
            has_failed: Whether as one that raised: what waits is not waited for.
        """
        await PortalCall(self._thread, None, functools.partial(self._host.leave, has_failed)).wait_in_asyncio()

    async def __aenter__(self) -> T:
        return await self.start()

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        await self.close(has_failed=kind is not None)


class Pages(AsyncIterator[T]):
    """An asynchronous iterator that reads a page whenever it has given out the one before. It may be left half way."""

    def __init__(self, of: Facade[Any], next_page: Callable[[], Coroutine[Any, Any, Sequence[T]]]) -> None:
        """Take what reads a page, in trio."""
        self._of = of
        self._iteration = Iteration(next_page)

    async def __anext__(self) -> T:
        await self._fill()
        return self._iteration.page.popleft()

    async def next_page(self) -> list[T]:
        """Return what is at hand, reading a page if that is nothing; empty if there are no more."""
        try:
            await self._fill()
        except StopAsyncIteration:
            return []
        page = self._iteration.page
        return [page.popleft() for _ in range(len(page))]

    async def aclose(self) -> None:
        """Do nothing, for those who close whatever they iterate over."""

    async def _fill(self) -> None:
        while not self._iteration.page:
            if not await call_of(self._of, self._iteration.fill).wait_in_asyncio():
                raise StopAsyncIteration


def _call(method: Callable[Concatenate[S, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Facade[S], P], Coroutine[Any, Any, T]]:
    @like(method)
    async def call(self: Facade[S], /, *args: P.args, **options: P.kwargs) -> T:
        return await call_of(self, functools.partial(method, self._inner, *args, **options)).wait_in_asyncio()

    return call


def _pages(method: Callable[Concatenate[S, P], TrioPages[T]]) -> Callable[Concatenate[Facade[S], P], Pages[T]]:
    @like(method)
    def pages(self: Facade[S], /, *args: P.args, **options: P.kwargs) -> Pages[T]:
        return Pages(self, method(self._inner, *args, **options).next_page)

    return pages


def _block(
    method: Callable[Concatenate[S, P], AbstractAsyncContextManager[V]], wrap: Callable[[TrioThread, BlockHost[Any], V], T]
) -> Callable[Concatenate[Facade[S], P], Block[T]]:
    @like(method)
    def block(self: Facade[S], /, *args: P.args, **options: P.kwargs) -> Block[T]:
        make = functools.partial(method, self._inner, *args, **options)
        return Block(self._thread, self._host, make, wrap, f"{'shelf' if isinstance(self, Shelf) else 'log'}.{method.__name__}")

    return block


def _open(
    function: Callable[P, AbstractAsyncContextManager[V]], wrap: Callable[[TrioThread, BlockHost[Any], V], T]
) -> Callable[P, Block[T]]:
    @like(function)
    def open(*args: P.args, **options: P.kwargs) -> Block[T]:
        return Block(trio_thread(), None, functools.partial(function, *args, **options), wrap, f"{__name__}.{function.__name__}")

    return open


class Subscription(SubscriptionFacade):
    __doc__ = TrioSubscription.__doc__

    def __init__(self, thread: TrioThread, host: BlockHost[Any], inner: TrioSubscription) -> None:
        """Made by `GossipLog.subscribe`."""
        super().__init__(thread, host, inner)
        self._pages = Pages(self, inner.next_page)

    def __aiter__(self) -> Subscription:
        return self

    @like(TrioSubscription.__anext__)
    async def __anext__(self) -> Entry:
        return await anext(self._pages)

    @like(TrioSubscription.next_page)
    async def next_page(self) -> list[Entry]:
        return await self._pages.next_page()

    ack = _call(TrioSubscription.ack)
    flush = _call(TrioSubscription.flush)


class Presence(PresenceFacade):
    __doc__ = TrioPresence.__doc__

    set = _call(TrioPresence.set)
    leave = _call(TrioPresence.leave)

    def __aiter__(self) -> Pages[PresenceChange]:
        return Pages(self, aiter(self._inner).next_page)


class Hub(HubFacade):
    __doc__ = HubFacade.__doc__


class HubLink(LinkFacade):
    __doc__ = LinkFacade.__doc__

    async def wait_connected(self) -> None:
        """Wait until it is connected. Under a deadline of the caller's: an unreachable hub is dialled for ever."""
        await call_of(self, self._inner.wait_connected).wait_in_asyncio()

    async def wait_disconnected(self) -> None:
        """Wait until it is not connected."""
        await call_of(self, self._inner.wait_disconnected).wait_in_asyncio()

    async def wait_refused(self) -> None:
        """Wait until the hub has not taken something; at once if that was so before."""
        await call_of(self, self._inner.wait_refused).wait_in_asyncio()


class Snapshot(Facade[Reader]):
    """A fixed state of the log, from which any number of plans can be answered."""

    async def run(self, plan: Plan[T]) -> T:
        """Run a plan that only reads. A cancelled call ends after the plan, whose result is dropped."""
        return await call_of(self, functools.partial(self._inner.run, plan)).wait_in_asyncio()

    async def query(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Execute a statement that only reads, on the application's tables as they are in this state, and return its rows."""
        return await call_of(self, functools.partial(self._inner.query, statement, parameters)).wait_in_asyncio()


class GossipLog(LogFacade):
    __doc__ = _Log.__doc__

    @property
    def presence(self) -> Presence:
        """What is true only now of those who have the log open: told to them, never stored."""
        return Presence(self._thread, self._host, self._inner.presence)

    append = _call(_Log.append)
    append_many = _call(_Log.append_many)
    insert = _call(_Log.insert)
    insert_many = _call(_Log.insert_many)
    insert_verified = _call(_Log.insert_verified)
    verify_many = _call(_Log.verify_many)

    get = _call(_Log.get)
    has = _call(_Log.has)
    resolve = _call(_Log.resolve)
    heads = _call(_Log.heads)
    clock = _call(_Log.clock)
    root = _call(_Log.root)
    count = _call(_Log.count)
    moment = _call(_Log.moment)
    size_bytes = _call(_Log.size_bytes)
    position = _call(_Log.position)
    is_ancestor = _call(_Log.is_ancestor)
    children = _call(_Log.children)
    iterate = _pages(_Log.iterate)
    ancestors = _pages(_Log.ancestors)
    to_arrow = _pages(_Log.to_arrow)

    members = _call(_Log.members)
    access_log = _call(_Log.access_log)
    policy = _call(_Log.policy)
    standing = _call(_Log.standing)
    grant = _call(_Log.grant)
    revoke = _call(_Log.revoke)
    leave = _call(_Log.leave)
    admit = _call(_Log.admit)

    quarantine = _pages(_Log.quarantine)
    retrying = _pages(_Log.retrying)
    retry_quarantine = _call(_Log.retry_quarantine)
    forget_damaged = _call(_Log.forget_damaged)
    set_aside = _pages(_Log.set_aside)
    retry_set_aside = _call(_Log.retry_set_aside)
    publish = _call(_Log.publish)
    prove = _call(_Log.prove)
    rebuild = _call(_Log.rebuild)
    fsck = _call(_Log.fsck)

    subscribe = _block(_Log.subscribe, Subscription)
    listen = _block(_Log.listen, Hub)
    connect = _block(_Log.connect, HubLink)
    keep_synced = _block(_Log.keep_synced, lambda thread, host, peer: peer)
    snapshot = _block(_Log.snapshot, Snapshot)

    @like(_Log.run)
    async def run(self, plan: Plan[T]) -> T:
        return await call_of(self, functools.partial(self._inner.run, plan)).wait_in_asyncio()

    @like(_Log.query)
    async def query(self, sql: str, *parameters: Any, at: Snapshot | Moment | None = None) -> list[tuple[Any, ...]]:
        state = inner_of(at) if isinstance(at, Snapshot) else at
        return await call_of(self, functools.partial(self._inner.query, sql, *parameters, at=state)).wait_in_asyncio()

    @overload
    async def sync(self, other: GossipLog, *, source: Source | None = None) -> SyncResult: ...

    @overload
    async def sync(
        self,
        other: str | os.PathLike[str],
        *,
        signer: Signer | None = None,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> Exchanged: ...

    @like(_Log.sync)
    async def sync(
        self,
        other: GossipLog | str | os.PathLike[str],
        *,
        source: Source | None = None,
        signer: Signer | None = None,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> SyncResult | Exchanged:
        if isinstance(other, GossipLog):
            return await call_of(self, functools.partial(self._inner.sync, inner_of(other), source=source)).wait_in_asyncio()
        pull = functools.partial(self._inner.sync, other, signer=signer, on_progress=on_progress)
        return await call_of(self, pull).wait_in_asyncio()

    @like(_Log.copy_from)
    async def copy_from(self, other: GossipLog, *, on_progress: Callable[[int], None] | None = None) -> CopyReport:
        return await call_of(self, functools.partial(self._inner.copy_from, inner_of(other), on_progress=on_progress)).wait_in_asyncio()


@like(gossip_log.clone)
async def clone(
    place: str | os.PathLike[str],
    location: str | os.PathLike[str],
    *,
    topic: str | None = None,
    durability: Durability | str = Durability.FULL,
    on_progress: Callable[[int, int], None] | None = None,
) -> Taken:
    make = functools.partial(gossip_log.clone, place, location, topic=topic, durability=durability, on_progress=on_progress)
    return await PortalCall(trio_thread(), None, make).wait_in_asyncio()


class Shelf(Facade[shelves.Shelf]):
    __doc__ = shelves.Shelf.__doc__

    open = _block(shelves.Shelf.open, GossipLog)
    topics = _call(shelves.Shelf.topics)
    listen = _block(shelves.Shelf.listen, Hub)
    connect = _block(shelves.Shelf.connect, lambda thread, host, none: none)


open = _open(gossip_log.open, GossipLog)
shelf = _open(shelves.shelf, Shelf)
