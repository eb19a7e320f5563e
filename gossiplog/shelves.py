"""A shelf: the logs of a folder or a database, each opened when it is first used.

Source: docs/rooms.md
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

import trio

from .entry.rules import check_number, check_topic
from .entry.signing import Signer
from .errors import LogNotFound, ShelfFull
from .gossip_log import Application, GossipLog
from .gossip_log import open as open_log
from .log.access import Authorize
from .replica.log import Replica
from .replica.shelving import OpenLogs
from .store import Durability
from .store.places import ShelfPlace, open_place
from .tasks.block import block
from .tasks.nursery import open_service_nursery

if TYPE_CHECKING:
    import ssl

    from .net.ground.admission import HubLimits
    from .net.hub.server import Hub

__all__ = ["MOST_LOGS", "MOST_OPEN", "Shelf", "shelf"]

MOST_OPEN, MOST_LOGS = 256, 100_000


@block("gossiplog.shelf")
async def shelf(
    location: str | os.PathLike[str],
    *,
    signer: Signer | None = None,
    app: Application | Sequence[Application] | None = None,
    authorize: Authorize | None = None,
    durability: Durability | str = Durability.FULL,
    most_open: int = MOST_OPEN,
    most_logs: int = MOST_LOGS,
) -> AsyncIterator[Shelf]:
    """Open a shelf, the logs of a folder or a database, for the length of an `async with` block. Its end commits submitted appends.

    Args:
        location: A folder, made if missing, or `postgresql://…` without a log's name.
        signer, app, authorize, durability: As for `open`; they apply to each log.
        most_open: How many logs may be open at a time.
        most_logs: How many logs may exist; no more are created.

    Raises:
        LocalProtocolError: An argument is wrong.
        StoreError: The folder cannot be made or read, or the database cannot be used.
    """
    check_number("most_open", most_open, 1)
    check_number("most_logs", most_logs, 1)
    level = Durability(durability)
    async with open_place(location).opened(level) as place, open_service_nursery() as tasks:
        open_one = partial(open_log, signer=signer, app=app, authorize=authorize, durability=level)
        made = Shelf(place, open_one, tasks, most_open, most_logs)
        tasks.start_soon(made.logs.close_idle)
        try:
            yield made
        finally:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + _CLOSE_S):
                await made.logs.close()


_CLOSE_S = 3.0


class Shelf:
    """The logs of a folder or a database. Made by `gossiplog.shelf`; any number of tasks may use it.

    Attributes:
        logs: Those that are open.
        tasks: The nursery in which they run.
    """

    def __init__(
        self,
        place: ShelfPlace,
        open_one: Callable[..., AbstractAsyncContextManager[GossipLog]],
        tasks: trio.Nursery,
        most_open: int,
        most_logs: int,
    ) -> None:
        self.logs = OpenLogs(place, self._opened, tasks, most_open=most_open)
        self.tasks = tasks
        self._place = place
        self._open_one = open_one
        self._most_logs = most_logs
        # How many logs exist, as far as this process knows; None until it creates one.
        self._number: int | None = None
        # Held while logs are counted, so that no two tasks create the last one.
        self._counting = trio.Lock()

    @property
    def location(self) -> str:
        """The folder, or the database's URL without its password."""
        return self._place.location

    def __repr__(self) -> str:
        return f"<Shelf {self.location!r}>"

    @block("shelf.open")
    async def open(self, topic: str, *, create: bool = False) -> AsyncIterator[GossipLog]:
        """Use a log for the length of a block. Simultaneous users get the same log; it is closed when it has been unused for a minute.

        Raises:
            LocalProtocolError: The topic is malformed.
            ShelfFull: `most_open` logs are open and in use, or `most_logs` exist.
            StoreError: It cannot be opened; LogNotFound if there is none.
        """
        check_topic(topic)
        async with self.logs.use(topic, create=create) as log:
            assert isinstance(log, GossipLog)
            yield log

    async def topics(self) -> list[str]:
        """List the topics of all logs, in order."""
        return await self._place.topics()

    async def has(self, topic: str) -> bool:
        """Whether there is a log of this topic."""
        return await self._place.has(topic)

    async def size_bytes(self) -> int:
        """Return the size of all logs, open or not."""
        return await self._place.size_bytes()

    @block("shelf.listen")
    async def listen(
        self,
        address: str = "127.0.0.1:8080",
        *,
        tls: ssl.SSLContext | None = None,
        limits: HubLimits | None = None,
        has_api: bool = True,
    ) -> AsyncIterator[Hub]:
        """Serve all logs to WebSocket clients, each at its topic, for the length of a block. Logs open as clients ask for them.

        Args:
            address, tls, limits, has_api: As for `log.listen`.

        Raises:
            LocalProtocolError: The address is malformed.
            CannotListen: The address is in use, or none of this machine's.
        """
        from .net.hub.server import listen

        if has_api:
            from .web import make_http
        async with listen([], address, shelf=self.logs, tls=tls, limits=limits, make_http=make_http if has_api else None) as hub:
            yield hub

    @asynccontextmanager
    async def _opened(self, topic: str, *, create: bool) -> AsyncIterator[Replica]:
        found = await self._find(topic, create=create)
        async with AsyncExitStack() as stack:
            try:
                log = await stack.enter_async_context(self._open_one(found, topic=topic, create=create))
            except BaseException:
                self._number = None  # it may or may not have been created
                raise
            yield log

    @block("shelf.connect")
    async def connect(
        self,
        url: str,
        *,
        topics: Collection[str] = (),
        tls: ssl.SSLContext | None = None,
        token: str | None = None,
        identity: Signer | None = None,
    ) -> AsyncIterator[None]:
        """Keep the open logs connected to a hub for the length of a block, each at `url/TOPIC`.

        They share a connection if the hub is one of this package.

        Args:
            url: `ws://HOST:PORT` or `wss://…`, without a topic.
            topics: Logs that are kept open, and created if need be; all others are connected while somebody has them open.
            tls, token, identity: As for `log.connect`.

        Raises:
            LocalProtocolError: The URL or a topic is malformed.
            StoreError: One of the topics cannot be opened.
        """
        from .net.hub.client import at_topic, connect, open_hub_connections

        @asynccontextmanager
        async def connected(log: Replica) -> AsyncIterator[None]:
            async with connect(log, at_topic(url, log.topic), tls=tls, token=token, identity=identity, connections=connections):
                yield

        async with open_hub_connections() as connections, AsyncExitStack() as stack:
            await stack.enter_async_context(self.logs.accompanied(connected))
            for topic in topics:
                await stack.enter_async_context(self.open(topic, create=True))
            yield

    async def _find(self, topic: str, *, create: bool) -> str | os.PathLike[str]:
        """Return a log's location.

        Raises:
            LogNotFound: There is none, and none is to be created.
            ShelfFull: One more may not be created.
        """
        if not await self._place.has(topic):
            if not create:
                raise LogNotFound(f"there is no log of topic {topic} in {self.location}")
            async with self._counting:
                if self._number is None:
                    self._number = await self._place.count()
                if self._number >= self._most_logs:
                    raise ShelfFull(f"{self._number:,} logs are in {self.location}", hint="remove some, or raise most_logs")
                self._number += 1
        return self._place.log_at(topic)
