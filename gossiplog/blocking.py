"""GossipLog for plain synchronous code and notebooks, with the same names and arguments as `gossiplog` in trio.

    with gossiplog.blocking.open("app.db", topic="app.example.com", signer=signer) as log:
        log.append({"op": "add"})

Calls may come from any thread, and run in the process's one trio thread. Ctrl-C cancels a call, and is raised when the call has ended. A
log that is not closed is closed at the end of the process. `apply` and `authorize` do not run in the caller's thread: a plain function runs
in the database's thread, and an `async def apply` in trio, where it may await only its transaction.

Source: docs/asyncio.md
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

from . import gossip_log, shelves
from .portal.block import BlockHost
from .portal.call import PortalCall
from .portal.surface import HubFacade, LinkFacade, LogFacade, PresenceFacade, ShelfFacade, SnapshotFacade, SubscriptionFacade
from .portal.thread import TrioThread, trio_thread
from .portal.waiting import BlockingBlock as Block
from .portal.waiting import BlockingPages as Pages
from .portal.waiting import BlockMethod, InThreads, call_of, inner_of, like
from .replica.presence import Presence as TrioPresence
from .replica.presence import PresenceChange
from .replica.subscription import Subscription as TrioSubscription

if TYPE_CHECKING:
    from .bucket import Exchanged
    from .entry.message import Entry
    from .entry.signing import Signer
    from .plan import Plan
    from .sync.result import SyncResult
    from .sync.source import Source

__all__ = ["Block", "GossipLog", "Hub", "HubLink", "Pages", "Presence", "Shelf", "Snapshot", "Subscription", "clone", "open", "shelf"]

T = TypeVar("T")
V = TypeVar("V")
P = ParamSpec("P")
_Log = gossip_log.GossipLog


def _open(
    function: Callable[P, AbstractAsyncContextManager[V]], wrap: Callable[[TrioThread, BlockHost[Any], V], T]
) -> Callable[P, Block[T]]:
    @like(function)
    def open(*args: P.args, **options: P.kwargs) -> Block[T]:
        return Block(trio_thread(), None, functools.partial(function, *args, **options), wrap, f"{__name__}.{function.__name__}")

    return open


def _function(function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    @like(function)
    def call(*args: P.args, **options: P.kwargs) -> T:
        return PortalCall(trio_thread(), None, functools.partial(function, *args, **options)).wait()

    return call


class Subscription(InThreads, SubscriptionFacade):
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


class Presence(InThreads, PresenceFacade):
    __doc__ = TrioPresence.__doc__

    def __iter__(self) -> Pages[PresenceChange]:
        return Pages(self, aiter(self._inner).next_page)


class Hub(InThreads, HubFacade):
    __doc__ = HubFacade.__doc__


class HubLink(InThreads, LinkFacade):
    __doc__ = LinkFacade.__doc__


class Snapshot(InThreads, SnapshotFacade):
    __doc__ = SnapshotFacade.__doc__

    def run(self, plan: Plan[T]) -> T:
        """Run a plan that only reads. A cancelled call ends after the plan, whose result is dropped."""
        return call_of(self, functools.partial(self._inner.run, plan)).wait()


class GossipLog(InThreads, LogFacade):
    __doc__ = _Log.__doc__

    @property
    def presence(self) -> Presence:
        """The states that those who have the log open give themselves for now. They are sent to the others and never stored."""
        return Presence(self._thread, self._host, self._inner.presence)

    subscribe = BlockMethod(_Log.subscribe, Subscription)
    listen = BlockMethod(_Log.listen, Hub)
    connect = BlockMethod(_Log.connect, HubLink)
    keep_synced = BlockMethod(_Log.keep_synced, lambda thread, host, peer: peer)
    snapshot = BlockMethod(_Log.snapshot, Snapshot)

    # Type variables and overloads do not pass through a `Method`.

    @like(_Log.run)
    def run(self, plan: Plan[T]) -> T:
        return call_of(self, functools.partial(self._inner.run, plan)).wait()

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
    def sync(self, other: Any, **options: Any) -> Any:
        inner = inner_of(other) if isinstance(other, GossipLog) else other
        return call_of(self, functools.partial(self._inner.sync, inner, **options)).wait()


class Shelf(InThreads, ShelfFacade):
    __doc__ = shelves.Shelf.__doc__

    open = BlockMethod(shelves.Shelf.open, GossipLog)
    listen = BlockMethod(shelves.Shelf.listen, Hub)
    connect = BlockMethod(shelves.Shelf.connect, lambda thread, host, none: none)


open = _open(gossip_log.open, GossipLog)
shelf = _open(shelves.shelf, Shelf)
clone = _function(gossip_log.clone)
