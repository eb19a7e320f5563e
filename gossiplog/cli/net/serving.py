"""What `serve` runs, or with `--check` would run: logs, each in its own task, so that they can be added and removed; and servers."""

from __future__ import annotations

import logging
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import click
import trio

from ...errors import GossipLogError, ReadOnlyLog
from ..configured import configurable, source_of
from ..exits import ExitCode, Failure
from ..options import Location
from ..output import Output, counted
from ..session import opened

if TYPE_CHECKING:
    from ...entry.signing import Signer
    from ...gossip_log import Application, GossipLog
    from ...net.ground.admission import HubLimits
    from ...net.hub.client import HubConnections
    from ...net.hub.server import Hub, ServeHttp
    from ...replica.shelving import OpenLogs
    from ...shelves import Shelf
    from .serve_options import BucketOptions, GlassOptions, MeshOptions, ShelfOptions


@dataclass(frozen=True, slots=True)
class ServePlan:
    """The options of `serve`, read and checked.

    Attributes:
        listens: Addresses for WebSocket and HTTP.
        hubs: The URLs of hubs to be a client of.
        hub_tls: None for the system's certificate authorities.
        token: The token for hubs.
        identity: The key to log in to hubs with, without a token.
        dial_from: The address of this machine from which hubs are dialled; None lets the system choose.
        shelf: The folder or database whose logs are served as well.
    """

    logs: tuple[Location, ...]
    listens: tuple[str, ...]
    hubs: tuple[str, ...]
    limits: HubLimits
    serving_tls: ssl.SSLContext | None
    hub_tls: ssl.SSLContext | None
    token: str | None
    identity: Signer | None
    has_api: bool
    durability: str
    apps: tuple[Application, ...]
    authorize: Any
    glass: GlassOptions
    dial_from: str | None
    bucket: BucketOptions
    shelf: ShelfOptions


class Serving:
    """Serves logs.

    Args:
        nursery: Runs each log in a task; cancelling it closes them.

    Attributes:
        shelf: The logs of a folder; None if no folder is served.
        logs: All open logs: the named ones, which are pinned, and those of the shelf.
        multiaddrs: The addresses for peers of a mesh.
    """

    def __init__(self, plan: ServePlan, nursery: trio.Nursery) -> None:
        self._plan = plan
        self._nursery = nursery
        self._hubs: list[Hub] = []
        self.shelf: Shelf | None = None
        self.logs: OpenLogs
        self._connections: HubConnections
        self.multiaddrs: list[str] = []
        # For each named log, an event that ends it, and one that is set when it is closed.
        self._named: dict[Location, tuple[trio.Event, trio.Event]] = {}
        self._options = {"durability": plan.durability, "app": plan.apps, "authorize": plan.authorize, "signer": plan.glass.signer()}

    async def open(self, stack: AsyncExitStack) -> list[GossipLog]:
        """Open the named logs, and the shelf until the stack is closed.

        Raises:
            GossipLogError: Something cannot be opened, or two logs have one topic.
        """
        from ...replica.shelving import OpenLogs
        from ...shelves import shelf

        place = self._plan.shelf
        if place.folder is not None:
            opened_shelf = shelf(place.folder, most_open=place.most_open, most_logs=place.most_logs, **self._options)
            self.shelf = await stack.enter_async_context(opened_shelf)
        self.logs = OpenLogs() if self.shelf is None else self.shelf.logs
        await stack.enter_async_context(self.logs.accompanied(self._observed))
        return [await self._open(location) for location in self._plan.logs]

    async def listen(self, stack: AsyncExitStack) -> None:
        """Connect to hubs and buckets, and listen on all addresses, until the stack is closed."""
        from ...net.hub.client import open_hub_connections
        from ...net.hub.server import listen

        plan = self._plan
        self._connections = await stack.enter_async_context(open_hub_connections())
        await stack.enter_async_context(self.logs.accompanied(self._linked))
        make_http: Callable[[Hub], ServeHttp] | None = None
        if plan.has_api and plan.listens:
            from ...web import make_http as make

            make_http = partial(make, glass=await plan.glass.settings(stack, plan.hub_tls))
        for address in plan.listens:
            hub = await stack.enter_async_context(
                listen((), address, shelf=self.logs, tls=plan.serving_tls, limits=plan.limits, make_http=make_http)
            )
            self._hubs.append(hub)

    def urls_of(self, topic: str) -> list[str]:
        """Return a log's URLs for clients, and the multiaddrs for peers."""
        return [*(url for hub in self._hubs for url in hub.urls_of(topic)), *self.multiaddrs]

    async def close(self) -> None:
        """Close the named logs after committing what was submitted to them."""
        await self._close(list(self._named))

    async def change(self, wanted: Sequence[Location]) -> tuple[list[GossipLog], list[Location]]:
        """Serve exactly these named logs; return the new and the removed ones. One that cannot be opened is logged and left out."""
        from ...net.ground.journal import note

        came: list[GossipLog] = []
        gone = [location for location in self._named if location not in wanted]
        await self._close(gone)
        for location in wanted:
            if location not in self._named:
                try:
                    came.append(await self._open(location))
                except GossipLogError as error:
                    note("log not served", level=logging.ERROR, log=str(location), reason=str(error))
        return came, gone

    async def _open(self, location: Location) -> GossipLog:
        """Open a log in a task of its own."""
        log: GossipLog = await self._nursery.start(self._hold, location)
        return log

    async def _close(self, locations: Sequence[Location]) -> None:
        ending = [self._named[location] for location in locations]
        for end, _ in ending:
            end.set()
        for _, gone in ending:
            await gone.wait()

    async def _hold(self, location: Location, *, task_status: trio.TaskStatus[GossipLog]) -> None:
        end, gone = trio.Event(), trio.Event()
        try:
            async with opened(location, read_only=False, **self._options) as log:
                self._named[location] = end, gone
                async with self.logs.pinned(log):
                    task_status.started(log)
                    await end.wait()
        finally:
            self._named.pop(location, None)
            gone.set()

    @asynccontextmanager
    async def _observed(self, log: GossipLog) -> AsyncIterator[None]:
        with self._plan.glass.observing(log):
            yield

    @asynccontextmanager
    async def _linked(self, log: GossipLog) -> AsyncIterator[None]:
        """Keep a log in exchange with buckets and hubs during a block."""
        async with AsyncExitStack() as stack:
            await self._plan.bucket.exchange(stack, log)
            await self._connect(stack, log)
            yield

    async def _connect(self, stack: AsyncExitStack, log: GossipLog) -> None:
        """Connect a log to each hub; if there are several logs, at the path of its topic."""
        from ...net.hub.client import at_topic, connect

        for hub in self._plan.hubs:
            url = hub if len(self._named) == 1 and self.shelf is None else at_topic(hub, log.topic)
            plan = self._plan
            linked = connect(
                log, url, tls=plan.hub_tls, token=plan.token, identity=plan.identity, source=plan.dial_from, connections=self._connections
            )
            await stack.enter_async_context(linked)


async def check_plan(context: click.Context, plan: ServePlan, mesh: MeshOptions, out: Output) -> int:
    """Check the rest of the options, open each log read-only, and report both. Certificates and rules were read before.

    Raises:
        GossipLogError: One of them cannot be used.
    """
    from ...store import check_writable
    from ...store.places import open_place

    mesh.check()
    if plan.shelf.folder is not None:
        await open_place(plan.shelf.folder).check()
    logs = [await _look_at(location) for location in plan.logs]
    _check_topics(logs)
    for location in plan.logs:
        check_writable(location.full)
    options = [(name, _value(context, param), source_of(context, str(param.name))) for name, param in configurable(context.command).items()]
    record = {"logs": logs, "options": {name: {"value": value, "from": source} for name, value, source in options if name != "logs"}}
    shown = [("log", f"{log['log']}  {_say(log)}") for log in logs]
    # A switch that is off has the source of the one that shares its name, such as --table beside --json.
    shown += [
        (name, f"{value}  ({source})") for name, value, source in options if source != "default" and name != "logs" and value is not False
    ]
    out.fields(record, shown)
    return ExitCode.DONE


async def _look_at(location: Location) -> dict[str, Any]:
    from ...store import pending_migrations

    refusal: ReadOnlyLog | None = None
    found: dict[str, Any] = {"log": str(location), "topic": None, "entries": None}
    try:
        async with opened(location) as log:
            found |= {"topic": log.topic, "entries": await log.count()}
    except ReadOnlyLog as error:
        # A log of an older version in a database cannot be read before it is migrated.
        refusal = error
    _, pending = await pending_migrations(location.full)
    if refusal is not None and not pending:
        raise refusal
    return {**found, "pending": pending} if pending else found


def _check_topics(logs: list[dict[str, Any]]) -> None:
    places: dict[str, str] = {}
    for log in logs:
        if (topic := log["topic"]) in places:
            raise Failure(f"{places[topic]} and {log['log']} have one topic, {topic}", hint="serve each topic once")
        if topic is not None:
            places[topic] = log["log"]


def _say(log: dict[str, Any]) -> str:
    if pending := log.get("pending"):
        return f"of an older version; serving migrates it for good: {', '.join(pending)}"
    return f"{log['topic']}  {counted(log['entries'], 'entry', 'entries')}"


def _value(context: click.Context, param: click.Parameter) -> Any:
    value = context.params.get(str(param.name))
    if isinstance(param, click.Option) and param.is_flag and param.flag_value is not True:
        return value == param.flag_value
    return list(value) if isinstance(value, tuple) else value
