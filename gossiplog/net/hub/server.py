"""The WebSocket server: it accepts connections, reads each request's head, and runs WebSockets on their log's service.

The handshake is bounded here, in one place. Plain HTTP on the same port is handed to a function that serves it.

Source: docs/spec/sync.md, "Mode A"; docs/spec/limits.md, "connections and streams".
"""

from __future__ import annotations

import contextlib
import errno
import logging
import ssl
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from fnmatch import fnmatchcase
from typing import Any, TypeAlias
from urllib.parse import quote, unquote

import trio

from ...access import has_policy
from ...broadcast.allowance import Allowance
from ...codec.digits import read_digits
from ...entry.rules import TOPIC_CHARS_MAX, is_topic
from ...errors import CannotListen, ClosedError, GossipLogError, LocalProtocolError, LogNotFound, RemoteProtocolError, ShelfFull
from ...limits import TokenBucket, keep_newest
from ...replica.log import Replica
from ...replica.shelving import OpenLogs
from ...store.places import ShelfPlace
from ...tasks.nursery import open_service_nursery
from ..ground.access import Caller, Rights, hash_token
from ..ground.admission import Admission, HubLimits, NotLetIn, Refused, client_address
from ..ground.journal import note
from ..ground.proof import Refusal
from ..service.peers import PeerConnectionState
from ..service.service import Service, open_service
from ..transport.flushes import Flushes
from ..transport.http_head import Head, read_head, refuse
from ..transport.http_names import Names
from ..transport.tcp import TcpStream, accept_all, looking_up
from ..transport.websocket import accept_websocket
from .client_connection import ClientConnection, show_host
from .roles import roles_kept

ServeHttp: TypeAlias = "Callable[[TcpStream, Head, str], Awaitable[Head | None]]"
"""Answers one request of plain HTTP, given the connection, the request's head and the client's address. Returns the head of the next
request on the connection, which has to be admitted in its turn; None if there is none."""
MakeHttp: TypeAlias = "Callable[[Hub], ServeHttp]"
"""Makes the function that serves plain HTTP for a hub."""

_BACKLOG = 512
_DRAIN_S = 1.0
_CLOSE_S = 4.0
_PORT_MAX = 65_535
_CREATORS_MAX = 4_096
_SPACE_EVERY_S, _SPACE_SHARE = 10.0, 20
"""How often the size of all logs is measured, in seconds; measuring takes at most a twentieth of the time."""
WS_CLOSE_CODE = 4_000
"""Added to a status of HTTP, this is the code with which a WebSocket is closed."""


class Hub:
    """A running server; made by `listen`.

    Attributes:
        services: The service of each open log, by topic.
        logs: The logs that it serves: named ones, which are pinned, and those of a shelf, which open as clients ask for them.
        apis: The HTTP API of each open log, by topic.
        make_api: Makes the API of a log when it opens.
        closing: The services of logs that are no longer served, until their connections are closed.
        on_closed: Called with the topic and the service when that is done.
        addresses: Host and port of each socket, as bound.
        admission: Admits connections.
        allowances: What this hub's clients may bring, by topic.
        http: Serves plain HTTP; None if nothing does.
        flushes: Writes to all WebSockets.
        names: The names under which HTTP is answered.
    """

    def __init__(self, admission: Admission, names: Names, tls: ssl.SSLContext | None, make_http: MakeHttp | None, logs: OpenLogs) -> None:
        self.services: dict[str, Service] = {}
        self.allowances: dict[str, Allowance] = {}
        self.addresses: list[tuple[str, int]] = []
        self.admission = admission
        self.flushes = Flushes()
        self.names = names
        self._tls = tls
        self.logs = logs
        self.apis: dict[str, Any] = {}
        self.make_api: Callable[[Service], Any] | None = None
        self.closing: dict[str, Service] = {}
        self.on_closed: Callable[[str, Service], None] = lambda topic, service: None
        self.http: ServeHttp | None = None if make_http is None else make_http(self)
        # The rates of clients that created logs lately.
        self._creations: OrderedDict[str, TokenBucket] = OrderedDict()
        self._removed: set[str] = set()

    @property
    def is_tls(self) -> bool:
        """Whether the server speaks TLS."""
        return self._tls is not None

    @property
    def port(self) -> int:
        """The port of the first socket."""
        return self.addresses[0][1]

    @property
    def urls(self) -> list[str]:
        """Where clients connect: a URL for each address and open log."""
        return [url for topic in self.services for url in self.urls_of(topic)]

    def urls_of(self, topic: str) -> list[str]:
        """Where clients of one log connect."""
        scheme = "wss" if self.is_tls else "ws"
        path = "" if topic == self.alone else f"/{quote(topic)}"
        return [f"{scheme}://{show_host(host)}:{port}{path}" for host, port in self.addresses]

    def links(self) -> list[PeerConnectionState]:
        """Return a snapshot of the connections of all its logs, including those that other servers and clients opened."""
        return [state for service in self.services.values() for state in service.links()]

    @asynccontextmanager
    async def served(self, log: Replica) -> AsyncIterator[None]:
        """Serve a log for the length of a block. At its end what waits for its clients goes out within a second, then they are given up.

        Raises:
            LocalProtocolError: Its topic is served already.
        """
        topic, access = log.topic, self.admission.limits.access
        if topic in self.services:
            raise LocalProtocolError(f"a log with topic {topic} is served already", hint="serve each topic once")
        async with open_service(log) as service, roles_kept(log, access), service.allowances.kept(access) as allowance:
            with service.host.guarded_by(self.admission):
                self.services[topic], self.allowances[topic] = service, allowance
                self._removed.discard(topic)
                if self.make_api is not None:
                    self.apis[topic] = self.make_api(service)
                try:
                    yield
                finally:
                    del self.services[topic], self.allowances[topic]
                    self.apis.pop(topic, None)
                    if self.logs.shelf is None:
                        self._removed.add(topic)
                    self.closing[topic] = service
                    with trio.CancelScope(shield=True):
                        with trio.move_on_after(_DRAIN_S):
                            await service.drain()
                        with trio.move_on_after(_CLOSE_S):
                            await service.close_clients()
                    self.on_closed(topic, self.closing.pop(topic))

    @property
    def alone(self) -> str | None:
        """The topic of the only log, which needs no name in a path; None if there are several, or a shelf."""
        return next(iter(self.services)) if len(self.services) == 1 and self.logs.shelf is None else None

    def topic_at(self, path: str) -> str:
        """Return the topic that a path means: `/topic`, or any path if there is only one log.

        The path of a removed log never means the remaining one: its clients would stay there, and not return when their log does.
        """
        topic = unquote(path.strip("/"))
        return topic if self.alone is None or topic in self._removed else self.alone

    @asynccontextmanager
    async def visiting(self, topic: str, *, creator: str | None = None) -> AsyncIterator[Service]:
        """Use a log for the length of a block, and open it if need be. The client's rights were checked before.

        Args:
            topic: As the client sent it, unchecked.
            creator: Whom a created log is counted for; None if the client may not create logs.

        Raises:
            Refused: There is no such log, or it cannot be opened now; `status` is that of HTTP.
        """
        if not is_topic(topic):
            raise Refused(self._none(topic), status=404)
        shelf = self.logs.shelf
        async with AsyncExitStack() as stack:
            try:
                if creator is not None and topic not in self.services and shelf is not None and not await shelf.has(topic):
                    self._count_creation(creator)
                await stack.enter_async_context(self.logs.use(topic, create=creator is not None))
                service = self.services.get(topic)
                if service is None:
                    raise LogNotFound(topic)  # this server has given it up a moment ago
            except LogNotFound:
                raise Refused(self._none(topic), status=404) from None
            except ShelfFull as error:
                note("log not opened", level=logging.WARNING, topic=topic, reason=str(error))
                raise Refused("too many logs are in use here, or there are too many in all; try again later") from None
            except (GossipLogError, OSError) as error:
                # The error's text may name files and databases.
                note("log not opened", level=logging.ERROR, topic=topic, reason=str(error))
                raise Refused("this log cannot be opened at the moment, through no fault of yours") from None
            yield service

    @asynccontextmanager
    async def knowing_members(self, topic: str) -> AsyncIterator[None]:
        """Keep a log open for the length of a block, if it has members: their rights are known only then."""
        async with AsyncExitStack() as stack:
            if has_policy(topic):
                with contextlib.suppress(Refused):
                    await stack.enter_async_context(self.visiting(topic))
            yield

    @asynccontextmanager
    async def entered(self, topic: str, caller: Caller, address: str) -> AsyncIterator[tuple[Service, Rights]]:
        """Use a log for a client's connection for the length of a block.

        Args:
            topic: As the client sent it, unchecked.
            address: The client's address.

        Returns:
            The log's service, and the client's rights.

        Raises:
            NotLetIn: The client may not connect.
            Refused: As `visiting`.
        """
        async with self.knowing_members(topic):
            rights = caller.entering(topic)
            if isinstance(rights, Refusal):
                note("client refused", address=address, topic=topic, reason=rights.reason)
                raise NotLetIn(rights.reason, status=rights.status)
            async with self.visiting(topic, creator=self.creator(topic, caller, rights, address)) as service:
                yield service, rights

    def _none(self, topic: str) -> str:
        there = "" if self.logs.shelf is not None else f"; there are {', '.join(f'/{quote(each)}' for each in self.services)}"
        return f"no log /{quote(topic[:TOPIC_CHARS_MAX])}{there}"

    def creator(self, topic: str, caller: Caller, rights: Rights, client: str) -> str | None:
        """Return whom a log that a caller creates is counted for: its did, token or address; None if it may not create it."""
        patterns = self.admission.limits.creatable
        if "create" not in rights or not any(fnmatchcase(topic, pattern) for pattern in patterns):
            return None
        return caller.did(topic) or (client if caller.token is None else hash_token(caller.token))

    def _count_creation(self, creator: str) -> None:
        """Count a log that is created.

        Raises:
            Refused: There is no space left, or the client created too many.
        """
        limits = self.admission.limits
        if limits.access.full:
            raise Refused(limits.access.full, status=507)
        most, now = limits.creations_per_minute, trio.current_time()
        bucket = self._creations.get(creator) or TokenBucket(most / 60, most, now)
        keep_newest(self._creations, creator, bucket, _CREATORS_MAX)
        if not bucket.take(1, now):
            raise Refused(f"you may create {most:,} logs a minute", status=429)

    async def watch_space(self, shelf: ShelfPlace, bytes_max: int) -> None:
        """For ever, refuse clients' entries while a shelf takes more space than it may."""
        access = self.admission.limits.access
        while True:
            began = trio.current_time()
            with contextlib.suppress(GossipLogError, OSError):
                size = await shelf.size_bytes()
                if (size > bytes_max) != bool(access.full):
                    access.full = f"the logs here take {size:,} bytes, of {bytes_max:,}" if size > bytes_max else ""
                    note("space", level=logging.WARNING, bytes=size, most=bytes_max)
            await trio.sleep(max(_SPACE_EVERY_S, _SPACE_SHARE * (trio.current_time() - began)))

    async def serve(self, stream: trio.SocketStream) -> None:
        """Serve one connection. Raises nothing, whatever the client does."""
        connection = TcpStream(stream)
        try:
            remote, port = stream.socket.getpeername()[:2]
            remote = str(remote).removeprefix("::ffff:")
            head = await self._shake_hands(connection)
            while head is not None:
                client = client_address(remote, head.forwarded, self.admission.limits.proxies)
                head = await self._serve_request(connection, head, client, (remote, port))
            await connection.finish()
        except RemoteProtocolError as error:
            # The peer was told why, unless it did not read.
            await connection.finish()
            note("connection ended", level=logging.DEBUG, reason=str(error))
        except (OSError, ClosedError, trio.BrokenResourceError, trio.ClosedResourceError) as error:
            note("connection ended", level=logging.DEBUG, reason=str(error))
        except Exception as error:
            note("fault in a connection", level=logging.ERROR, error=error)
        finally:
            await connection.aclose()

    async def _shake_hands(self, connection: TcpStream) -> Head | None:
        """Read the head of the first request; None if the handshake takes too long."""
        with self.admission.handshake():
            if self._tls is not None:
                await connection.secure(self._tls)
            return await read_head(connection, self.admission.limits.head_bytes_max)
        return None

    async def _serve_request(self, connection: TcpStream, head: Head, client: str, remote: tuple[str, int]) -> Head | None:
        """Serve one request; return the head of the next one on the connection, None if there is none."""
        topic = self.topic_at(head.path)
        try:
            with self.admission.connection(client) as place:
                refusal = self.names.refusal(head, connection.local_address()[0], remote[0])
                if refusal is not None:
                    note("request refused", address=client, host=head.host, origin=head.first(b"origin"), reason=refusal[1])
                    await refuse(connection, *refusal)
                elif not head.is_upgrade and self.http is not None:
                    connection.beginning = head.beyond
                    return await self.http(connection, head, client)
                elif not head.is_upgrade:
                    await refuse(connection, 426, "this server speaks WebSocket")
                else:
                    caller = Caller(self.admission.limits.access, head.token)
                    async with AsyncExitStack() as stack:
                        service, rights = await stack.enter_async_context(self.entered(topic, caller, client))
                        with trio.fail_after(self.admission.limits.handshake_s):
                            websocket = await accept_websocket(connection, head, head.subprotocol)
                        serving = ClientConnection(self, caller, client, remote[1], connection.local_address(), place)
                        await serving.serve(websocket, service, rights, stack.pop_all())
        except NotLetIn as refusal:
            await self._refuse_websocket(connection, head, refusal)
        except Refused as refusal:
            note("connection refused", level=logging.DEBUG if refusal.is_repeated else logging.INFO, address=client, reason=str(refusal))
            await refuse(connection, refusal.status, str(refusal))
        return None

    async def _refuse_websocket(self, connection: TcpStream, head: Head, denial: NotLetIn) -> None:
        """Refuse a WebSocket: by a status of HTTP, or, for a page, by a close code, because browsers hide errors of HTTP from it."""
        if head.first(b"origin") is None:
            await refuse(connection, denial.status, str(denial))
            return
        with trio.fail_after(self.admission.limits.handshake_s):
            websocket = await accept_websocket(connection, head, head.subprotocol)
            await websocket.refuse(WS_CLOSE_CODE + denial.status, str(denial))
            await websocket.aclose()


@asynccontextmanager
async def open_hub(
    logs: Sequence[Replica],
    limits: HubLimits,
    names: Names,
    tls: ssl.SSLContext | None = None,
    make_http: MakeHttp | None = None,
    shelf: OpenLogs | None = None,
) -> AsyncIterator[tuple[Hub, trio.Nursery]]:
    """Serve logs to clients for the length of a block, without listening. At its end what waits for clients goes out within a second.

    Args:
        logs: Open logs of different topics.
        names: The names under which HTTP is answered.
        tls: Has the certificate, if the server has one of its own.
        make_http: Makes the function that serves plain HTTP.
        shelf: Further logs; the named ones are pinned among them.

    Returns:
        The hub, and the nursery in which connections are served.

    Raises:
        LocalProtocolError: Two logs have one topic.
    """
    async with AsyncExitStack() as stack:
        shelf = shelf or OpenLogs()
        hub = Hub(Admission(limits), names, tls, make_http, shelf)
        for log in logs:
            await stack.enter_async_context(shelf.pinned(log))
        await stack.enter_async_context(shelf.accompanied(hub.served))
        async with open_service_nursery() as nursery:
            nursery.start_soon(hub.flushes.run)
            if shelf.shelf is not None and limits.shelf_bytes_max is not None:
                nursery.start_soon(hub.watch_space, shelf.shelf, limits.shelf_bytes_max)
            try:
                yield hub, nursery
            finally:
                with trio.CancelScope(shield=True, deadline=trio.current_time() + _DRAIN_S):
                    for service in list(hub.services.values()):
                        await service.drain()


@asynccontextmanager
async def listen(
    logs: Sequence[Replica],
    address: str,
    *,
    shelf: OpenLogs | None = None,
    tls: ssl.SSLContext | None = None,
    limits: HubLimits | None = None,
    make_http: MakeHttp | None = None,
) -> AsyncIterator[Hub]:
    """Serve logs to WebSocket clients for the length of a block.

    At its end no connection is accepted any more, what waits to be pushed goes out within a second, and the connections are closed.

    Args:
        logs: Open logs of different topics; may be empty with a shelf or with HTTP.
        address: `HOST:PORT`, `[HOST]:PORT`, or `:PORT` for all addresses of the machine; port 0 takes a free one.
        shelf: Further logs; the named ones are pinned among them.
        tls: Has a certificate, for `wss://`.
        make_http: Makes the function that serves plain HTTP on the same port; without it there is none.

    Raises:
        LocalProtocolError: The address is malformed, two logs have one topic, or there is nothing to serve.
        CannotListen: The address is in use, or not one of this machine's.
    """
    host, port = parse_address(address)
    if not logs and make_http is None and shelf is None:
        raise LocalProtocolError("there is no log to serve")
    limits = limits or HubLimits()
    async with open_hub(logs, limits, Names(limits, host, is_tls=tls is not None), tls, make_http, shelf) as (hub, nursery):
        try:
            with looking_up(host):
                listeners = await trio.open_tcp_listeners(port, host=host, backlog=_BACKLOG)
        except OSError as error:
            hint = (
                "another program listens there; choose another port, or port 0 for a free one" if error.errno == errno.EADDRINUSE else None
            )
            raise CannotListen(f"cannot listen on {address}: {error.strerror or error}", hint=hint) from None
        hub.addresses += [listener.socket.getsockname()[:2] for listener in listeners]
        for listener in listeners:
            nursery.start_soon(accept_all, listener, hub.serve, nursery)
        try:
            yield hub
        finally:
            for listener in listeners:
                listener.socket.close()


def parse_address(address: str) -> tuple[str | None, int]:
    """Return host and port of `HOST:PORT`, `[HOST]:PORT` or `:PORT`; the host is None for all addresses.

    Raises:
        LocalProtocolError: The address is malformed.
    """
    host, colon, digits = address.rpartition(":")
    port = read_digits(digits, 0, _PORT_MAX)
    if not colon or port is None or (":" in host and not host.startswith("[")):
        raise LocalProtocolError(f"{address!r} is no address to listen on", hint="HOST:PORT, like 127.0.0.1:8080; :8080 for all addresses")
    return host.removeprefix("[").removesuffix("]") or None, port
