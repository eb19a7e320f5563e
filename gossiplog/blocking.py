"""GossipLog for plain synchronous code and notebooks: what `gossiplog` is in trio, with the same names
and arguments.

    with gossiplog.blocking.open("app.db", topic="app.example.com", signer=signer) as log:
        log.append({"op": "add"})

Each call runs in the one thread with trio that the process has, and may come from any thread. Ctrl-C cancels it, and is raised when it
has ended. A log that nobody closes is closed at the end of the process. `apply` and `authorize` do not run in the caller's thread: a plain
function runs in the database's, and an `async def apply` in trio, so that it may await nothing but its transaction.

This file is derived from `aio.py`, by `python tests/support/derive_blocking.py`.

Source: docs/asyncio.md
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
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


class Block(Unopened, AbstractContextManager[T]):
    """What is open for the length of a `with` block; or, where no block fits, from `start` to `close`."""

    opened_by = "with"

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

    def start(self) -> T:
        """Open it. A cancelled call leaves nothing open."""
        try:
            value = PortalCall(self._thread, self._parent, self._host.enter).wait()
        except BaseException as error:
            # It may have been open already when the call was cancelled. A coroutine that is thrown away cannot wait for its end.
            if not isinstance(error, Exception | GeneratorExit):
                PortalCall(self._thread, None, self._host.abandon).wait()
            raise
        return self._wrap(self._thread, self._host, value)

    def close(self, *, has_failed: bool = False) -> None:
        """End it, as the end of its block does.

        Args:
            has_failed: Whether as one that raised: what waits is not waited for.
        """
        PortalCall(self._thread, None, functools.partial(self._host.leave, has_failed)).wait()

    def __enter__(self) -> T:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close(has_failed=kind is not None)


class Pages(Iterator[T]):
    """An iterator that reads a page whenever it has given out the one before. It may be left half way."""

    def __init__(self, of: Facade[Any], next_page: Callable[[], Coroutine[Any, Any, Sequence[T]]]) -> None:
        """Take what reads a page, in trio."""
        self._of = of
        self._iteration = Iteration(next_page)

    def __next__(self) -> T:
        self._fill()
        return self._iteration.page.popleft()

    def next_page(self) -> list[T]:
        """Return what is at hand, reading a page if that is nothing; empty if there are no more."""
        try:
            self._fill()
        except StopIteration:
            return []
        page = self._iteration.page
        return [page.popleft() for _ in range(len(page))]

    def close(self) -> None:
        """Do nothing, for those who close whatever they iterate over."""

    def _fill(self) -> None:
        while not self._iteration.page:
            if not call_of(self._of, self._iteration.fill).wait():
                raise StopIteration


def _call(method: Callable[Concatenate[S, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Facade[S], P], T]:
    @like(method)
    def call(self: Facade[S], /, *args: P.args, **options: P.kwargs) -> T:
        return call_of(self, functools.partial(method, self._inner, *args, **options)).wait()

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

    def __iter__(self) -> Subscription:
        return self

    @like(TrioSubscription.__anext__)
    def __next__(self) -> Entry:
        return next(self._pages)

    @like(TrioSubscription.next_page)
    def next_page(self) -> list[Entry]:
        return self._pages.next_page()

    ack = _call(TrioSubscription.ack)
    flush = _call(TrioSubscription.flush)


class Presence(PresenceFacade):
    __doc__ = TrioPresence.__doc__

    set = _call(TrioPresence.set)
    leave = _call(TrioPresence.leave)

    def __iter__(self) -> Pages[PresenceChange]:
        return Pages(self, aiter(self._inner).next_page)


class Hub(HubFacade):
    __doc__ = HubFacade.__doc__


class HubLink(LinkFacade):
    __doc__ = LinkFacade.__doc__

    def wait_connected(self) -> None:
        """Wait until it is connected. Under a deadline of the caller's: an unreachable hub is dialled for ever."""
        call_of(self, self._inner.wait_connected).wait()

    def wait_disconnected(self) -> None:
        """Wait until it is not connected."""
        call_of(self, self._inner.wait_disconnected).wait()

    def wait_refused(self) -> None:
        """Wait until the hub has not taken something; at once if that was so before."""
        call_of(self, self._inner.wait_refused).wait()


class Snapshot(Facade[Reader]):
    """A fixed state of the log, from which any number of plans can be answered."""

    def run(self, plan: Plan[T]) -> T:
        """Run a plan that only reads. A cancelled call ends after the plan, whose result is dropped."""
        return call_of(self, functools.partial(self._inner.run, plan)).wait()

    def query(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Execute a statement that only reads, on the application's tables as they are in this state, and return its rows."""
        return call_of(self, functools.partial(self._inner.query, statement, parameters)).wait()


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
    def run(self, plan: Plan[T]) -> T:
        return call_of(self, functools.partial(self._inner.run, plan)).wait()

    @like(_Log.query)
    def query(self, sql: str, *parameters: Any, at: Snapshot | Moment | None = None) -> list[tuple[Any, ...]]:
        state = inner_of(at) if isinstance(at, Snapshot) else at
        return call_of(self, functools.partial(self._inner.query, sql, *parameters, at=state)).wait()

    @overload
    def sync(self, other: GossipLog, *, source: Source | None = None) -> SyncResult: ...

    @overload
    def sync(
        self,
        other: str | os.PathLike[str],
        *,
        signer: Signer | None = None,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> Exchanged: ...

    @like(_Log.sync)
    def sync(
        self,
        other: GossipLog | str | os.PathLike[str],
        *,
        source: Source | None = None,
        signer: Signer | None = None,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> SyncResult | Exchanged:
        if isinstance(other, GossipLog):
            return call_of(self, functools.partial(self._inner.sync, inner_of(other), source=source)).wait()
        pull = functools.partial(self._inner.sync, other, signer=signer, on_progress=on_progress)
        return call_of(self, pull).wait()

    @like(_Log.copy_from)
    def copy_from(self, other: GossipLog, *, on_progress: Callable[[int], None] | None = None) -> CopyReport:
        return call_of(self, functools.partial(self._inner.copy_from, inner_of(other), on_progress=on_progress)).wait()


@like(gossip_log.clone)
def clone(
    place: str | os.PathLike[str],
    location: str | os.PathLike[str],
    *,
    topic: str | None = None,
    durability: Durability | str = Durability.FULL,
    on_progress: Callable[[int, int], None] | None = None,
) -> Taken:
    make = functools.partial(gossip_log.clone, place, location, topic=topic, durability=durability, on_progress=on_progress)
    return PortalCall(trio_thread(), None, make).wait()


class Shelf(Facade[shelves.Shelf]):
    __doc__ = shelves.Shelf.__doc__

    open = _block(shelves.Shelf.open, GossipLog)
    topics = _call(shelves.Shelf.topics)
    listen = _block(shelves.Shelf.listen, Hub)
    connect = _block(shelves.Shelf.connect, lambda thread, host, none: none)


open = _open(gossip_log.open, GossipLog)
shelf = _open(shelves.shelf, Shelf)
