"""A shelf: the logs of a folder, each opened when it is first used.

Source: docs/rooms.md
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

import trio

from .entry.rules import check_topic, is_topic
from .entry.signing import Signer
from .errors import ForeignFile, LocalProtocolError, LogNotFound, ShelfFull, StoreError
from .gossip_log import Application, GossipLog
from .gossip_log import open as open_log
from .log.access import Authorize
from .replica.log import Replica
from .replica.shelving import OpenLogs
from .store import Durability, open_store
from .tasks.block import block
from .tasks.nursery import open_service_nursery

if TYPE_CHECKING:
    import ssl

    from .net.ground.admission import HubLimits
    from .net.hub.server import Hub

__all__ = ["MOST_LOGS", "MOST_OPEN", "Shelf", "file_of", "shelf"]

MOST_OPEN, MOST_LOGS = 256, 100_000
_NAME_CHARS_MAX = 200
"""Room for `-journal` and the like, where names have at most 255 bytes."""
_SUFFIX = ".db"


def file_of(topic: str) -> str:
    """Return the name of the file that holds a topic's log.

    Raises:
        LocalProtocolError: The topic is malformed.
    """
    check_topic(topic)
    name = re.sub(r"^[.-]|[^a-z0-9.-]", lambda found: f"%{ord(found[0]):02x}", topic)
    if len(name) > _NAME_CHARS_MAX:
        name = "=" + hashlib.sha256(topic.encode()).hexdigest()
    return name + _SUFFIX


@block("gossiplog.shelf")
async def shelf(
    folder: str | os.PathLike[str],
    *,
    signer: Signer | None = None,
    app: Application | Sequence[Application] | None = None,
    authorize: Authorize | None = None,
    durability: Durability | str = Durability.FULL,
    most_open: int = MOST_OPEN,
    most_logs: int = MOST_LOGS,
) -> AsyncIterator[Shelf]:
    """Have the logs of a folder for the length of an `async with` block. Its end commits submitted appends and closes them.

    Args:
        folder: Where they lie; made if missing.
        signer: As for `open`, of each log, like the three that follow.
        app: As for `open`.
        authorize: As for `open`.
        durability: As for `open`.
        most_open: How many logs may be open at a time.
        most_logs: How many may be in the folder; more are not created.

    Raises:
        LocalProtocolError: An argument is wrong.
        OSError: The folder cannot be made or read.
    """
    if min(most_open, most_logs) < 1:
        raise LocalProtocolError(f"most_open {most_open} and most_logs {most_logs}, expected 1 and more")
    place = Path(folder)
    await trio.to_thread.run_sync(lambda: place.mkdir(parents=True, exist_ok=True))
    async with open_service_nursery() as tasks:

        def open_one(topic: str, create: bool) -> AbstractAsyncContextManager[Replica]:
            path = made._find(topic, create=create)
            return open_log(path, topic=topic, create=create, signer=signer, app=app, authorize=authorize, durability=durability)

        made = Shelf(place, OpenLogs(open_one, tasks, most_open=most_open), tasks, most_logs)
        tasks.start_soon(made.logs.close_idle)
        try:
            yield made
        finally:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + _CLOSE_S):
                await made.logs.close()
            tasks.cancel_scope.cancel()


_CLOSE_S = 3.0


class Shelf:
    """The logs of a folder. Made by `gossiplog.shelf`; any number of tasks may use it.

    Attributes:
        logs: Those that are open.
        tasks: Runs them.
    """

    def __init__(self, folder: Path, logs: OpenLogs, tasks: trio.Nursery, most_logs: int) -> None:
        """Take the folder, what opens logs and runs them, and how many there may be."""
        self.logs = logs
        self.tasks = tasks
        self._folder = folder
        self._most_logs = most_logs
        # As far as this process knows; None before the first is created.
        self._number: int | None = None

    def __repr__(self) -> str:
        return f"<Shelf {str(self._folder)!r}>"

    @block("shelf.open")
    async def open(self, topic: str, *, create: bool = False) -> AsyncIterator[GossipLog]:
        """Use a log for the length of a block. All who do at a time have the same; it is closed when nobody has for a minute.

        Args:
            topic: The log's topic.
            create: Create it if there is none.

        Raises:
            LocalProtocolError: The topic is malformed.
            ShelfFull: As many logs as may be are open, and all are in use; or so many are in the folder.
            StoreError: It cannot be opened; LogNotFound if there is none.
        """
        check_topic(topic)
        async with self.logs.use(topic, create=create) as log:
            assert isinstance(log, GossipLog)
            yield log

    async def topics(self) -> list[str]:
        """List the topics of the folder's logs, in order. Costs one look at the folder; no log is opened but to learn a long name."""
        names = await trio.to_thread.run_sync(self._names)
        found = [unquote(name.removesuffix(_SUFFIX)) for name in names if not name.startswith("=")]
        for name in names:
            if name.startswith("="):
                try:
                    path, level = self._folder / name, Durability.FULL
                    async with open_store(path, topic=None, create=False, read_only=True, durability=level) as store:
                        found.append(store.topic)
                except StoreError:
                    # Whoever opens it is told.
                    continue
        return sorted(topic for topic in found if is_topic(topic) and file_of(topic) in names)

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
            address: As for `log.listen`, like the three that follow.
            tls: As there.
            limits: As there.
            has_api: As there.

        Raises:
            LocalProtocolError: The address is malformed.
            CannotListen: The address is in use, or none of this machine's.
        """
        from .net.hub.server import listen

        if has_api:
            from .web import make_http
        async with listen([], address, shelf=self, tls=tls, limits=limits, make_http=make_http if has_api else None) as hub:
            yield hub

    @block("shelf.connect")
    async def connect(
        self, url: str, *, topics: Collection[str] = (), tls: ssl.SSLContext | None = None, token: str | None = None
    ) -> AsyncIterator[None]:
        """Keep logs connected to a hub for the length of a block, each at its topic below a URL, while they are open.

        Args:
            url: `ws://HOST:PORT` or `wss://…`, without a topic.
            topics: Those that are kept open for it, and created if need be; others are connected while somebody has them open.
            tls: As for `log.connect`.
            token: As for `log.connect`.

        Raises:
            LocalProtocolError: The URL or a topic is malformed.
            StoreError: One of the topics cannot be opened.
        """
        from .net.hub.client import connect

        @asynccontextmanager
        async def connected(log: Replica) -> AsyncIterator[None]:
            async with connect(log, f"{url.rstrip('/')}/{quote(log.topic)}", tls=tls, token=token):
                yield

        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.logs.accompanied(connected))
            for topic in topics:
                await stack.enter_async_context(self.open(topic, create=True))
            yield

    def _find(self, topic: str, *, create: bool) -> Path:
        """Return a log's path, after looking at what is there."""
        path = self._folder / file_of(topic)
        if os.path.lexists(path):
            if path.is_symlink() or not path.is_file():
                raise ForeignFile(f"{path} is no plain file", hint="a shelf opens nothing else")
            return path
        if not create:
            raise LogNotFound(f"there is no log of topic {topic} in {self._folder}")
        self._number = len(self._names()) if self._number is None else self._number
        if self._number >= self._most_logs:
            raise ShelfFull(f"{self._number:,} logs are in {self._folder}", hint="remove some, or raise most_logs")
        self._number += 1
        return path

    def _names(self) -> set[str]:
        """List the files that have names of logs."""
        with os.scandir(self._folder) as entries:
            return {each.name for each in entries if _NAME.fullmatch(each.name) and each.is_file(follow_symlinks=False)}


_NAME = re.compile(r"(=[0-9a-f]{64}|(%[0-9a-f]{2}|[a-z0-9])(%[0-9a-f]{2}|[a-z0-9.-])*)\.db")
