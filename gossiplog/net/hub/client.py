"""The WebSocket client: keeps a log connected to a hub, and lets logs share connections.

Source: docs/spec/sync.md, "Mode A".
"""

from __future__ import annotations

import logging
import random
import re
import ssl
from collections.abc import AsyncIterator, Callable, Hashable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from urllib.parse import quote, unquote, urlsplit

import trio

from ...broadcast.events import PeerKind
from ...entry.signing import Signer
from ...errors import CannotConnect, ClosedError, DecodeError, GossipLogError, LocalProtocolError, ProtocolNotSupported, RemoteProtocolError
from ...glass.advice import advice_on
from ...limits import Backoff
from ...pubsub.types import PeerId
from ...replica.log import Replica
from ...sync.refusals import Refused
from ...tasks.nursery import open_service_nursery
from ..ground.journal import note
from ..ground.proof import is_own_name
from ..ground.protocol_ids import refusals_protocol
from ..service.peers import PeerConnection, PeerConnectionState
from ..service.refusals import STREAMS_A_LOG, read_refusals
from ..service.service import Service, open_service
from ..transport.http_head import take_token
from ..transport.http_request import HttpAnswer, request
from ..transport.muxed import Connection, Handler, Stream, open_muxed
from ..transport.tcp import TcpStream, dial_tcp
from ..transport.websocket import WebSocketStream, connect_websocket
from .client_connection import LOGS_MAX
from .proving import prove, prove_on

DIAL_S = 10.0
STABLE_S = 10.0
"""After a connection that lasted so long the next attempt waits `RETRY_FIRST_S` again."""
RETRY_FIRST_S = 0.5
RETRY_MOST_S = 60.0
ASKED_AT_ONCE = 32
"""Logs that are asked for on a connection at a time: the streams allowed grow only with the logs that are in use."""
_RULES_MAX = 32
_PORTS = {"ws": 80, "wss": 443}
_PORTS_OF_SERVERS = {**_PORTS, "http": 80, "https": 443}
_FIELD = re.compile(r"[-!#$%&'*+.^`|~\w]+\n([!-~]+( +[!-~]+)*)?", re.ASCII)
"""A header's name and value: RFC 9110, 5.1 and 5.5, without tabs."""


@dataclass(frozen=True, slots=True)
class HubUrl:
    """A hub's URL, taken apart.

    Attributes:
        url: The URL without a token.
        host: A name or an address.
        host_header: Host and port as the URL spells them.
        target: Path and query.
        is_tls: Whether the scheme is `wss`.
        headers: Sent when connecting; includes a token.
        source: The local address to dial from; None lets the system choose.
        identity: Proves its did to the hub to get a token, if the hub gives tokens to dids.
        tls: How the hub's certificate is checked; None: by the system's authorities.
    """

    url: str
    host: str
    port: int
    host_header: str
    target: str
    is_tls: bool
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    source: str | None = None
    identity: Signer | None = field(default=None, repr=False)
    tls: ssl.SSLContext | None = field(default=None, repr=False)

    async def dial(self) -> TcpStream:
        """Connect. The caller sets a deadline. Raises as `dial_tcp`."""
        return await dial_tcp(self.host, self.port, (self.tls or ssl.create_default_context()) if self.is_tls else None, self.source)

    async def ask(self, path: str, body: bytes | None = None, *, answer_bytes_max: int) -> HttpAnswer:
        """Send one request of plain HTTP on a connection of its own, with the headers. The caller sets a deadline. Raises as `request`.

        Redirects are not followed: they would take the token to another host, or out of TLS.

        Args:
            path: Path and query.
            body: A JSON text to POST; None for a GET.

        Raises:
            OSError: The server cannot be reached.
        """
        stream = await self.dial()
        try:
            return await request(stream, self.host_header, path, body, headers=self.headers, answer_bytes_max=answer_bytes_max)
        finally:
            await stream.aclose()

    def server_of(self, topic: str) -> HubUrl | None:
        """Return the URL without the topic at the end of its path, and without the identity; None if it does not end with the topic."""
        path, mark, query = self.target.partition("?")
        server, _, name = path.rpartition("/")
        if unquote(name) != topic:
            return None
        shown = self.url.partition("?")[0].rpartition("/")[0]
        return replace(self, url=shown, target=server + mark + query, identity=None)


def parse_url(
    url: str,
    *,
    token: str | None = None,
    headers: Mapping[str, str] | None = None,
    identity: Signer | None = None,
    tls: ssl.SSLContext | None = None,
    of_server: bool = False,
) -> HubUrl:
    """Parse a `ws://` or `wss://` URL. A `token` in its query is moved to the headers, where no record shows it.

    Args:
        token: Used instead of one in the URL.
        headers: Further headers to send when connecting.
        identity: Proves its did where there is no token.
        tls: As in `HubUrl`.
        of_server: Accept `http://` and `https://` too: the URL is of a server that is only asked.

    Raises:
        LocalProtocolError: The URL or a header is malformed.
    """
    ports = _PORTS_OF_SERVERS if of_server else _PORTS
    hint = "what `gossiplog serve` prints: " if of_server else ""
    hint += "ws://HOST:PORT, or wss:// with TLS; with /TOPIC where it serves several logs"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise LocalProtocolError(f"{take_token(url)[0]!r} is not the URL of a server: {error}", hint=hint) from None
    if parts.scheme not in ports or not parts.hostname or parts.username is not None or parts.fragment:
        if parts.scheme in _PORTS_OF_SERVERS and not of_server:
            hint += ". A bucket behind a web server is one publisher's folder: its URL ends in z6Mk…"
        raise LocalProtocolError(f"{take_token(url)[0]!r} is not the URL of a server", hint=hint)
    target, found = take_token((parts.path or "/") + (f"?{parts.query}" if parts.query else ""))
    if not (target.isascii() and parts.netloc.isascii() and (target + parts.netloc).isprintable() and " " not in target):
        hint = "names of other letters as xn--…, everything else as %XX"
        raise LocalProtocolError(f"{take_token(url)[0]!r} has characters that no URL has", hint=hint)
    sent = {**(headers or {})} | ({"Authorization": f"Bearer {token or found}"} if token or found else {})
    if wrong := [name for name, value in sent.items() if not _FIELD.fullmatch(f"{name}\n{value}")]:
        raise LocalProtocolError(f"the header {wrong[0]!r}, or what it says, cannot be sent")
    shown = url if found is None else take_token(url)[0]
    port, is_tls = port or ports[parts.scheme], parts.scheme in ("wss", "https")
    proving = None if token or found else identity
    return HubUrl(shown, parts.hostname, port, parts.netloc, target, is_tls, tuple(sent.items()), identity=proving, tls=tls)


def at_topic(url: str, topic: str) -> str:
    """Return the URL of a log below a server's URL."""
    place, mark, query = url.partition("?")
    return f"{place.rstrip('/')}/{quote(topic)}{mark}{query}"


async def open_websocket(hub: HubUrl) -> WebSocketStream:
    """Open a WebSocket to a hub.

    Raises:
        CannotConnect: The server cannot be reached, is not a hub, refused, or did not answer within 10 s.
    """
    token = await fetch_token(hub)
    headers = hub.headers if token is None else (*hub.headers, ("Authorization", f"Bearer {token}"))
    with _dialling(hub):
        stream = await hub.dial()
        try:
            return await connect_websocket(stream, hub.host_header, hub.target, headers)
        except BaseException:
            await stream.aclose()
            raise
    raise AssertionError("dialling ends or raises")


async def fetch_token(hub: HubUrl) -> str | None:
    """Prove our identity's did to a hub and return the token; None without an identity, or if the hub gives no tokens to dids.

    Raises:
        CannotConnect: As `open_websocket`.
    """
    if hub.identity is not None:
        with _dialling(hub):
            return await prove(hub.ask, hub.host_header, hub.target, hub.identity)
    return None


@contextmanager
def _dialling(hub: HubUrl) -> Iterator[None]:
    """Give a block 10 s, and turn its errors into CannotConnect."""
    with trio.move_on_after(DIAL_S) as timing:
        try:
            yield
        except RemoteProtocolError as error:
            reason = in_words(error)
            raise CannotConnect(f"cannot connect to {hub.url}: {reason}", hint=advice_on(reason)) from None
        except (OSError, ClosedError) as error:
            raise _NotReached(hub, in_words(error)) from None
    if timing.cancelled_caught:
        raise _NotReached(hub, f"it did not answer within {DIAL_S:g} s")


class _NotReached(CannotConnect):
    """The server could not be reached, so none of its logs can be.

    Attributes:
        reason: What went wrong, without the URL.
    """

    def __init__(self, hub: HubUrl, reason: str) -> None:
        super().__init__(f"cannot connect to {hub.url}: {reason}", hint=advice_on(reason))
        self.reason = reason


def in_words(error: Exception) -> str:
    """Return an error's message; of trio's `all attempts to connect to … failed`, that of the first attempt."""
    cause = error.__cause__
    if isinstance(cause, BaseExceptionGroup):
        cause = cause.exceptions[0]
    if isinstance(cause, OSError):
        error = cause
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


@dataclass(eq=False, slots=True)
class _HubConnection:
    """One connection to a hub.

    Attributes:
        handlers: The handlers of all logs on the connection, by protocol.
        users: How many logs use the connection or ask to.
        asking: Held by each log while it asks.
        unused: Set when no log uses the connection any more.
        is_for_one: The hub allows one log on a connection.
    """

    muxed: Connection
    handlers: dict[str, Handler]
    users: int = 1
    asking: trio.Semaphore = field(default_factory=lambda: trio.Semaphore(ASKED_AT_ONCE))
    unused: trio.Event = field(default_factory=trio.Event)
    is_for_one: bool = False

    def leave(self, handlers: Mapping[str, Handler], stream: Stream | None, *, is_asked: bool) -> None:
        """Stop using the connection for a log.

        Args:
            stream: The log's stream of refusals, if it is open.
            is_asked: Whether the log was asked for, which allowed it further streams; the log of the URL was not.
        """
        for protocol in handlers:
            self.handlers.pop(protocol, None)
        if is_asked:
            self.muxed.muxer.streams_max -= STREAMS_A_LOG
        self.users -= 1
        if not self.users:
            self.unused.set()
        elif stream is not None:
            stream.reset()


@dataclass(eq=False, slots=True)
class PlaceAtHub:
    """A log's place on a connection with a hub.

    Attributes:
        stream: The stream of refusals, whose end gives up the log; None if the hub has none, or it is not open yet.
    """

    muxed: Connection
    topic: str
    stream: Stream | None = None

    async def hear(self, on_refused: Callable[[Refused], None]) -> bool:
        """Read the hub's refusals until their stream ends; return False if the hub sends none."""
        try:
            self.stream = self.stream or await self.muxed.open_stream([refusals_protocol(self.topic)])
        except GossipLogError:
            return False
        try:
            await read_refusals(self.stream, on_refused)
        except DecodeError as error:
            note("malformed refusals", level=logging.WARNING, peer=self.muxed.peer, reason=str(error))
        return True


@dataclass(eq=False, slots=True)
class _Server:
    """A server whose logs may share a connection, if token, certificates and did are the same too.

    Attributes:
        dialling: Held while a log looks for the connection or dials it.
        connection: The latest connection that logs may share.
        failures: How often the server was not reached.
        reason: Why it was not reached the last time.
    """

    dialling: trio.Lock = field(default_factory=trio.Lock)
    connection: _HubConnection | None = None
    failures: int = 0
    reason: str = ""


class HubConnections:
    """Connections to hubs, shared by logs where the hub allows it.

    Args:
        nursery: Runs the connections. It has to outlive all that use them.
    """

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._servers: dict[Hashable, _Server] = {}

    @asynccontextmanager
    async def used(self, topic: str, handlers: Mapping[str, Handler], hub: HubUrl) -> AsyncIterator[PlaceAtHub]:
        """Use a connection for a log for the length of a block: an open one if possible, else a new one.

        Args:
            topic: The log's topic.
            handlers: The log's handlers by protocol.

        Raises:
            CannotConnect: As `open_websocket`.
        """
        connection, stream = await self._take(topic, handlers, hub)
        place = PlaceAtHub(connection.muxed, topic, stream)
        try:
            yield place
        finally:
            connection.leave(handlers, place.stream, is_asked=stream is not None)

    async def _take(self, topic: str, handlers: Mapping[str, Handler], hub: HubUrl) -> tuple[_HubConnection, Stream | None]:
        place = hub.server_of(topic)
        # Two dids share no connection, though each would prove itself for its logs: a ban is the connection's.
        did = hub.identity and hub.identity.did
        server = _Server() if place is None else self._servers.setdefault((place, did), _Server())
        failures = server.failures
        async with server.dialling:
            connection = server.connection
            if connection is None or connection.muxed.is_over or not 0 < connection.users < LOGS_MAX:
                if server.failures != failures:
                    # Another log failed to reach it while this one waited.
                    raise _NotReached(hub, server.reason)
                try:
                    dial = partial(self._hold, hub, place or hub, dict(handlers))
                    server.connection = connection = await self._nursery.start(dial)
                except _NotReached as error:
                    server.failures += 1
                    server.reason = error.reason
                    raise
                return connection, None
            connection.users += 1
        stream = await self._ask(connection, topic, handlers, hub)
        if stream is not None:
            return connection, stream
        return await self._nursery.start(self._hold, hub, hub, dict(handlers)), None

    async def _ask(self, connection: _HubConnection, topic: str, handlers: Mapping[str, Handler], hub: HubUrl) -> Stream | None:
        """Ask a hub to serve one more log on a connection; None if it refuses. It gives the reason on a connection of the log's own."""
        stream, muxed = None, connection.muxed
        try:
            async with connection.asking:
                if not connection.is_for_one:
                    connection.handlers.update(handlers)
                    if hub.identity is not None and is_own_name(hub.identity.did):
                        with trio.fail_after(DIAL_S):
                            await prove_on(muxed, hub.host_header, topic, hub.identity)
                    stream = await muxed.open_stream([refusals_protocol(topic)])
                    muxed.muxer.streams_max += STREAMS_A_LOG
        except ProtocolNotSupported:
            connection.is_for_one = True
        except (GossipLogError, trio.TooSlowError) as error:
            if muxed.is_over:
                raise CannotConnect(f"the connection with {hub.url} was lost: {error}") from None
            note("log refused on a shared connection", level=logging.DEBUG, hub=hub.url, reason=str(error))
        finally:
            if stream is None:
                connection.leave(handlers, None, is_asked=False)
        return stream

    async def _hold(
        self,
        hub: HubUrl,
        place: HubUrl,
        handlers: dict[str, Handler],
        *,
        task_status: trio.TaskStatus[_HubConnection],
    ) -> None:
        """Dial a hub and keep the connection while a log uses it."""
        websocket = await open_websocket(hub)
        async with open_muxed(websocket, is_client=True, peer=PeerId(place.url), handlers=handlers) as muxed:
            connection = _HubConnection(muxed, handlers)
            task_status.started(connection)
            await connection.unused.wait()


@asynccontextmanager
async def open_hub_connections() -> AsyncIterator[HubConnections]:
    """Let logs share connections to hubs for the length of a block."""
    async with open_service_nursery() as nursery:
        yield HubConnections(nursery)


class HubLink:
    """A connection to a hub that is kept up; made by `connect`.

    Attributes:
        url: The hub's URL, without a token.
        attempts: How many attempts to connect there were.
        error: Why there is no connection, after an attempt or a loss; None before the first attempt and while connected.
        refused: Our entries that the hub refused, by the rule that they break. Only hubs of this package report them.
    """

    def __init__(self, service: Service, hub: HubUrl, connections: HubConnections) -> None:
        self.url = hub.url
        self.attempts = 0
        self.error: str | None = None
        self.refused: dict[str, Refused] = {}
        self._service = service
        self._hub = hub
        self._connections = connections
        self._link: PeerConnection | None = None
        self._changed = trio.lowlevel.ParkingLot()
        self._backoff = Backoff(random.Random(), first_s=RETRY_FIRST_S, most_s=RETRY_MOST_S)

    @property
    def is_connected(self) -> bool:
        """Whether it is connected now."""
        return self._link is not None

    @property
    def state(self) -> PeerConnectionState | None:
        """A snapshot of the connection; None while there is none."""
        return None if self._link is None else self._link.peer.states()[0]

    async def wait_connected(self) -> None:
        """Wait until it is connected. Use a deadline: an unreachable hub is dialled for ever."""
        await trio.lowlevel.checkpoint()
        while self._link is None:
            await self._changed.park()

    async def wait_disconnected(self) -> None:
        """Wait until it is not connected."""
        await trio.lowlevel.checkpoint()
        while self._link is not None:
            await self._changed.park()

    async def wait_refused(self) -> None:
        """Wait until the hub has refused an entry; return at once if it already has."""
        await trio.lowlevel.checkpoint()
        while not self.refused:
            await self._changed.park()

    async def run(self) -> None:
        """Connect, and connect again, for ever."""
        while True:
            self.attempts += 1
            try:
                await self._connect()
            except CannotConnect as error:
                self.error = str(error)
                self._service.failed_dials.on_listed_failed(self.url, self.error, "hub", error.hint)
            await trio.sleep(self._backoff.next())

    async def _connect(self) -> None:
        service = self._service
        async with (
            self._connections.used(service.topic, service.handlers, self._hub) as place,
            service.attached(place.muxed, PeerKind.HUB) as link,
        ):
            note("hub connected", hub=self.url)
            service.failed_dials.on_reached(self.url, "hub")
            self.error = None
            self._set(link)
            link.start(partial(self._hear, place))
            link.start(service.presence.join)
            connected_at = trio.current_time()
            try:
                await link.given_up.wait()
            finally:
                self._set(None)
            reason = place.muxed.end or "the hub gave up the log"
        if trio.current_time() - connected_at >= STABLE_S:
            self._backoff.reset()
        self.error = reason
        note("hub lost", level=logging.WARNING, hub=self.url, reason=reason)

    async def _hear(self, place: PlaceAtHub, link: PeerConnection) -> None:
        """Read refusals. A hub that sends them ends their stream to give up the log; any other closes the connection."""
        if not await place.hear(self._on_refused):
            await place.muxed.wait_ended()
        link.given_up.set()

    def _on_refused(self, refused: Refused) -> None:
        """Record refusals: once per rule in the journal, each time as a fact."""
        before = self.refused.get(refused.rule)
        if before is None and len(self.refused) >= _RULES_MAX:
            return
        self.refused[refused.rule] = refused if before is None else before.then(refused)
        first = next(iter(refused.ids), None)
        if before is None:
            note(
                "hub does not take entries of ours", level=logging.WARNING, hub=self.url, rule=refused.rule, reason=refused.reason, id=first
            )
        self._service.observed("refused", self.url, message=first, count=refused.count, rule=refused.rule, reason=refused.reason)
        self._changed.unpark_all()

    def _set(self, link: PeerConnection | None) -> None:
        self._link = link
        self._changed.unpark_all()


@asynccontextmanager
async def connect(
    log: Replica,
    url: str,
    *,
    tls: ssl.SSLContext | None = None,
    token: str | None = None,
    headers: Mapping[str, str] | None = None,
    identity: Signer | None = None,
    source: str | None = None,
    connections: HubConnections | None = None,
) -> AsyncIterator[HubLink]:
    """Keep a log connected to a hub for the length of a block.

    All attempts are made in the background, the first at once, the others after growing pauses, each lengthened at random by up to a
    quarter.

    Args:
        log: An open log.
        url: `ws://HOST:PORT` or `wss://…`, with `/TOPIC` if the hub serves several logs.
        tls: How the hub's certificate is checked; by default by the system's authorities.
        token: The token that lets us in.
        headers: Further headers to send when connecting.
        identity: Proves its did to the hub at each attempt, where there is no token.
        source: The local address to dial from; by default the system chooses.
        connections: Connections shared with other logs; by default the log has its own.

    Raises:
        LocalProtocolError: The URL is malformed, or the log is connected to it already.
    """
    hub = replace(parse_url(url, token=token, headers=headers, identity=identity, tls=tls), source=source)
    async with open_service(log) as service:
        if hub.url in service.hubs:
            raise LocalProtocolError(f"the log is connected to {hub.url} already")
        service.hubs.add(hub.url)
        try:
            async with open_service_nursery() as nursery:
                link = HubLink(service, hub, connections or HubConnections(nursery))
                nursery.start_soon(link.run)
                yield link
        finally:
            service.hubs.discard(hub.url)
