"""Our end of a libp2p network: it listens, dials, does the handshakes, and serves the connections.

An exception in a handler ends only its stream, a failed bind is an error, and connections are limited by address and in total. See
docs/spec/libp2p.md.
"""

from __future__ import annotations

import logging
import os
import secrets
import ssl
import time
from collections import ChainMap
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from random import Random

import trio

from ...errors import CannotConnect, CannotListen, GossipLogError, RemoteProtocolError
from ...pubsub.types import PeerId
from ...tasks.nursery import open_service_nursery
from ..ground.admission import Admission, HubLimits, Refused, Worth, client_address
from ..ground.journal import note
from ..ground.protocol_ids import IDENTIFY_PROTOCOLS, IDENTIFY_PUSH_PROTOCOLS, PING_PROTOCOLS
from ..transport.flushes import Flushes
from ..transport.http_head import Head, refuse
from ..transport.http_names import Names
from ..transport.muxed import Connection, Handler, Stream, open_muxed, opened_stream
from ..transport.tcp import TcpStream, accept_all
from .addresses import Address
from .dials import DialGuard, check_reach
from .identify import UNKNOWN, Identity, answer_ping, ask_identity, identify_message, measure_ping, read_identity
from .identity import PeerKey
from .noise import NoiseStream
from .records import seal_record
from .transport import bind, dial, local_addresses, open_websocket, remote_address
from .upgrade import read_beginning, upgrade_inbound, upgrade_outbound


@dataclass(eq=False, slots=True)
class Peering:
    """One connection that is past its handshake. Callers of the host see it once the peer has introduced itself.

    Attributes:
        place: The remote address.
        dialled: The address that we dialled; None if the peer dialled.
        is_counted: Whether the address counts against peers that share it: not loopback and exempt ones.
        identity: What the peer last said about itself.
        opened_at: When it introduced itself, in seconds of trio's clock.
        is_ready: Set when the peer has introduced itself.
        told: The number of our last change of handlers that the peer knows; None before it asked.
    """

    connection: Connection
    place: Address
    dialled: Address | None
    is_counted: bool
    identity: Identity = UNKNOWN
    opened_at: float = 0.0
    is_ready: trio.Event = field(default_factory=trio.Event)
    told: int | None = None


OURSELVES = "it has our own peer id: it is this server itself, or one with a copy of its key"
"""Why an address is not dialled, or a connection with it is closed."""

CONNECTIONS_MAX = 512
PEER_CONNECTIONS_MAX = 3
"""Connections with one peer: two peers that dial each other at the same moment have two."""
DIAL_S = 5.0
"""How long dialling one address may take, until the peer has introduced itself."""
INTRODUCTION_S = 5.0
_TOGETHER_S = 0.1


@dataclass(slots=True)
class _Dial:
    """A dial that is under way, and then its outcome."""

    done: trio.Event = field(default_factory=trio.Event)
    connection: Connection | None = None
    error: CannotConnect | None = None


class Host:
    """A libp2p host. It runs inside the block of `listening`.

    Args:
        serve: Called with each connection that is ready, in a task of its own; the connection is closed when it returns.
        handlers: Serve the streams that peers open, beside identify and ping; looked up for each stream.
        on_identity: Called when a peer says something new about itself.
        announce: Addresses that peers are told instead of those that we listen on.
        limits: Of inbound connections; `connections_max` is for both directions together.
        tls: Verifies the servers that we dial with TLS; by default as the system does.
        source: Which of this machine's addresses to dial from; by default the system chooses.

    Attributes:
        addresses: Where we listen, with the ports that the system chose.
        announced: Where peers are told to dial us, with our peer id.
        dials: Limits the dials to addresses that others told us.
        worth: Returns what a peer was good for so far. Worthless peers make room when all places are taken.
    """

    def __init__(
        self,
        key: PeerKey,
        *,
        serve: Callable[[Peering], Awaitable[None]],
        handlers: Mapping[str, Handler],
        on_identity: Callable[[Peering], None] | None = None,
        announce: Sequence[Address] = (),
        limits: HubLimits | None = None,
        tls: ssl.SSLContext | None = None,
        source: str | None = None,
    ) -> None:
        self.key = key
        self.addresses: tuple[Address, ...] = ()
        self.announced: tuple[Address, ...] = ()
        self._record = b""
        self.dials = DialGuard(Random(secrets.randbits(128)))
        self.admission = Admission(limits or HubLimits(connections_max=CONNECTIONS_MAX))
        self._names = Names(self.admission.limits, None)
        self.worth: Callable[[PeerId], Worth] = lambda peer: Worth.TALKS
        self._serve = serve
        self._on_identity = on_identity
        self._announce = tuple(announce)
        self._tls = tls
        self._source = source
        own: dict[str, Handler] = dict.fromkeys(IDENTIFY_PROTOCOLS, self._answer_identify)
        own.update(dict.fromkeys(IDENTIFY_PUSH_PROTOCOLS, self._take_identity))
        own.update(dict.fromkeys(PING_PROTOCOLS, answer_ping))
        self._changes = 0  # of the handlers
        self._handlers = ChainMap(own, handlers)  # type: ignore[arg-type]  # only the first is written to
        # Connections that are past their handshake; and the ready ones among them, by peer, the oldest first.
        self._open: dict[Connection, Peering] = {}
        self._ready: dict[PeerId, list[Peering]] = {}
        self._dials: dict[PeerId, _Dial] = {}
        self._outbound = 0
        self._flushes = Flushes()
        self._nursery: trio.Nursery | None = None

    @property
    def id(self) -> PeerId:
        """Our peer id."""
        return self.key.id

    @property
    def connections_max(self) -> int:
        """The most connections, in both directions together."""
        return self.admission.limits.connections_max

    @property
    def peerings(self) -> list[Peering]:
        """All connections that are ready, grouped by peer."""
        return [peering for peerings in self._ready.values() for peering in peerings]

    @property
    def peers(self) -> list[PeerId]:
        """The connected peers, in the order in which they connected."""
        return list(self._ready)

    def connection_with(self, peer: PeerId) -> Connection | None:
        """Return the oldest connection with a peer; None if there is none."""
        peerings = self._ready.get(peer)
        return peerings[0].connection if peerings else None

    async def connect(self, peer: PeerId | None, addresses: Sequence[Address]) -> Connection:
        """Return a connection with a peer. If there is none, dial the addresses one after the other.

        Callers that ask while the peer is being dialled share the outcome. A cancelled call ends the dial if it started it.

        Args:
            peer: The peer that has to answer; None accepts any.
            addresses: Tried in this order.

        Raises:
            CannotConnect: No address led to the peer.
        """
        if peer is None:
            return await self._dial_any(None, addresses)
        existing = self.connection_with(peer)
        if existing is not None:
            await trio.lowlevel.checkpoint()
            return existing
        under_way = self._dials.get(peer)
        if under_way is not None:
            await under_way.done.wait()
            if under_way.connection is None:
                raise under_way.error or CannotConnect(f"dialling {peer} was given up")
            return under_way.connection
        dialling = self._dials[peer] = _Dial()
        try:
            dialling.connection = await self._dial_any(peer, addresses)
            return dialling.connection
        except CannotConnect as error:
            dialling.error = error
            raise
        finally:
            del self._dials[peer]
            dialling.done.set()

    def on_handlers_changed(self) -> None:
        """Push our new list of protocols to the peers that know an older one, after 0.1 s, because several changes come together."""
        self._changes += 1
        if self._nursery is not None:
            self._nursery.start_soon(self._say_anew, self._changes)

    async def _say_anew(self, changes: int) -> None:
        await trio.sleep(_TOGETHER_S)
        if changes == self._changes:
            for peering in self.peerings:
                self._say_if_changed(peering)

    def _say_if_changed(self, peering: Peering) -> None:
        is_heard = not peering.identity.protocols.isdisjoint(IDENTIFY_PUSH_PROTOCOLS)
        if is_heard and peering.told not in (None, self._changes) and self._nursery is not None:
            self._nursery.start_soon(self._push_identity, peering.connection)

    async def _push_identity(self, connection: Connection) -> None:
        try:
            with trio.move_on_after(INTRODUCTION_S):
                async with opened_stream(connection, IDENTIFY_PUSH_PROTOCOLS) as stream:
                    await self._answer_identify(connection, stream)
        except GossipLogError as error:
            note("identity not pushed", level=logging.DEBUG, peer=connection.peer, reason=str(error))

    @asynccontextmanager
    async def listening(self, listen: Sequence[Address]) -> AsyncIterator[Host]:
        """Listen on every address for the length of a block, whose end closes all connections.

        Args:
            listen: TCP and WebSocket addresses may share a port.

        Raises:
            CannotListen: We cannot listen on one of the addresses.
        """
        async with open_service_nursery() as nursery:
            await self._start(listen, nursery)
            yield self

    async def _start(self, listen: Sequence[Address], nursery: trio.Nursery) -> None:
        """Bind every address, then accept. TCP and WebSocket addresses of one place share its listener."""
        self._nursery = nursery
        places: dict[tuple[str, str, int], list[Address]] = {}
        for address in listen:
            if address.is_tls:
                raise CannotListen(f"{address}: TLS is not served here", hint="let a proxy end TLS, and announce its address")
            places.setdefault((address.family, address.host, address.port), []).append(address)
        listeners: list[trio.SocketListener] = []
        ready: list[Address] = []
        with ExitStack() as unless_all_are_bound:
            for addresses in places.values():
                try:
                    bound = await bind(addresses[0])
                except OSError as error:
                    raise CannotListen(f"cannot listen on {addresses[0]}: {error.strerror or error}") from error
                for listener in bound:
                    unless_all_are_bound.callback(listener.socket.close)
                    host, port = listener.socket.getsockname()[:2]
                    family = "ip6" if ":" in host else "ip4"
                    ready += [Address(family, host, port, address.is_websocket) for address in addresses]
                listeners += bound
            unless_all_are_bound.pop_all()
        self.addresses = tuple(dict.fromkeys(ready))
        reachable = [found for address in self.addresses for found in local_addresses(address)]
        self.announced = tuple(address.of(self.id) for address in self._announce or reachable)
        self._record = seal_record(self.key, self.announced, time.time_ns() // 1_000_000)
        nursery.start_soon(self._flushes.run)
        for listener in listeners:
            nursery.start_soon(accept_all, listener, self._accept, nursery)

    async def _accept(self, socket_stream: trio.SocketStream) -> None:
        """Serve one inbound connection. Raises nothing, whatever the other side does."""
        stream = TcpStream(socket_stream)
        try:
            place = remote_address(socket_stream)
        except OSError:
            await stream.aclose()
            return
        proxies, remote = self.admission.limits.proxies, place.host
        begun: bytes | Head = b""
        secured: NoiseStream | None = None
        try:
            if remote in proxies:
                # Whose connection it is, the head of its request says.
                with self.admission.handshake():
                    begun = await self._begin(stream, remote)
                client = client_address(remote, begun.forwarded, proxies) if isinstance(begun, Head) else remote
                place = Address("ip6" if ":" in client else "ip4", client, place.port)
            with self.admission.connection(place.host, others=self._outbound) as held:
                with self.admission.handshake():
                    secured = await upgrade_inbound(stream, self.key, begun or await self._begin(stream, remote))
                if secured is None:
                    note("a handshake took too long", level=logging.DEBUG, address=place.host)
                else:
                    held.worth = partial(self.worth, secured.peer)
                    await self._run(secured, place, None, lambda connection: None)
        except (Refused, GossipLogError) as error:
            note("a connection was not established", level=logging.DEBUG, address=place.host, reason=str(error))
        except Exception as error:  # the edge of a connection's task
            note("a connection failed", level=logging.ERROR, error=error, address=place.host)
        finally:
            await stream.aclose()

    async def _begin(self, stream: TcpStream, remote: str) -> bytes | Head:
        """Receive the beginning of an inbound connection, and refuse pages that may not connect. The caller sets a deadline."""
        begun = await read_beginning(stream, self.admission.limits.head_bytes_max)
        refusal = self._names.refusal(begun, stream.local_address()[0], remote) if isinstance(begun, Head) else None
        if refusal is not None:
            await refuse(stream, *refusal)
            raise RemoteProtocolError(refusal[1])
        return begun

    async def _dial_any(self, peer: PeerId | None, addresses: Sequence[Address]) -> Connection:
        assert self._nursery is not None
        reasons = []
        for address in addresses:
            try:
                self.dials.begin(address, trio.current_time())
                with trio.move_on_after(DIAL_S):
                    connection: Connection = await self._nursery.start(self._run_dialled, peer, address)
                    self.dials.reached(address)
                    return connection
                raise CannotConnect(f"no answer within {DIAL_S:.0f} s")
            except (OSError, GossipLogError) as error:
                reasons.append(f"{address}: {_why(error)}")
        raise CannotConnect("; ".join(reasons) or f"no address of {peer} is known")

    async def _run_dialled(
        self, peer: PeerId | None, address: Address, task_status: trio.TaskStatus[Connection] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Dial one address and serve the connection. Raises only while its caller waits."""
        ready: list[Connection] = []

        def on_ready(connection: Connection) -> None:
            ready.append(connection)
            task_status.started(connection)

        self._outbound += 1
        try:
            if self.admission.open + self._outbound > self.connections_max:
                raise CannotConnect(f"{self.connections_max} connections are open, no more are allowed")
            await check_reach(address)
            stream = await dial(address, self._tls, self._source)
            try:
                secured = await upgrade_outbound(await open_websocket(stream, address), self.key, peer or address.peer)
                if secured.peer == self.id:
                    raise CannotConnect(OURSELVES)
                await self._run(secured, remote_address(stream.below), address, on_ready)
                if not ready:
                    raise CannotConnect("the peer did not introduce itself")
            finally:
                await stream.aclose()
        except Exception as error:  # the edge of a connection's task
            if not ready and isinstance(error, OSError | GossipLogError):
                raise
            note("a connection failed", level=logging.ERROR, error=error, address=str(address))
            if not ready:
                raise CannotConnect("a fault of ours") from None
        finally:
            self._outbound -= 1

    async def _run(self, secured: NoiseStream, place: Address, dialled: Address | None, on_ready: Callable[[Connection], None]) -> None:
        """Serve one connection that is past its handshake until it ends, and close it."""
        peer, is_client, handlers, flushes = secured.peer, dialled is not None, self._handlers, self._flushes
        muxing = open_muxed(secured, is_client=is_client, peer=peer, address=place.host, handlers=handlers, flushes=flushes)
        async with muxing as connection:
            peering = self._open[connection] = Peering(connection, place, dialled, not self.admission.is_exempt(place.host))
            try:
                if len(self._ready.get(peer, ())) >= PEER_CONNECTIONS_MAX:
                    note("refused a connection", level=logging.DEBUG, peer=peer, reason="the peer has others")
                elif (identity := await self._introduce(connection)) is not None:
                    peering.identity = identity
                    await self._keep(peering, on_ready)
            finally:
                del self._open[connection]

    async def _introduce(self, connection: Connection) -> Identity | None:
        """Ask a new peer for its identity; None if it does not answer."""
        try:
            with trio.move_on_after(INTRODUCTION_S):
                return await ask_identity(connection)
            reason = f"it said nothing for {INTRODUCTION_S:.0f} s"
        except GossipLogError as error:
            reason = str(error)
        note("a peer did not introduce itself", level=logging.DEBUG, peer=connection.peer, address=connection.address, reason=reason)
        return None

    async def _keep(self, peering: Peering, on_ready: Callable[[Connection], None]) -> None:
        """Serve a connection whose peer has introduced itself until it ends."""
        connection, address = peering.connection, str(peering.dialled or peering.connection.address)
        peer = connection.peer
        assert self._nursery is not None
        peerings = self._ready.setdefault(peer, [])
        for older in peerings:
            self._nursery.start_soon(self._check, older.connection)
        peerings.append(peering)
        peering.opened_at = trio.current_time()
        peering.is_ready.set()
        try:
            on_ready(connection)
            self._say_if_changed(peering)
            note("connected", peer=peer, address=address, agent=peering.identity.agent, outbound=peering.dialled is not None)
            await self._serve_until_end(peering)
        finally:
            peerings.remove(peering)
            if not peerings:
                del self._ready[peer]
            note("disconnected", peer=peer, address=address, reason=connection.end)

    async def _serve_until_end(self, peering: Peering) -> None:
        async with trio.open_nursery() as nursery:

            async def serve() -> None:
                await self._serve(peering)
                nursery.cancel_scope.cancel()

            nursery.start_soon(serve)
            await peering.connection.wait_ended()
            nursery.cancel_scope.cancel()

    async def _check(self, connection: Connection) -> None:
        """Close an older connection with a peer that has connected again, unless it answers: TCP does not notice if the peer crashed."""
        try:
            await measure_ping(connection)
        except (GossipLogError, trio.TooSlowError) as error:
            note("closed a dead connection", level=logging.DEBUG, peer=connection.peer, reason=str(error))
            await connection.aclose()

    async def _answer_identify(self, connection: Connection, stream: Stream) -> None:
        peering, protocols = self._open.get(connection), [*self._handlers.maps[0], *self._handlers.maps[1]]
        observed = None
        if peering is not None:
            peering.told, observed = self._changes, peering.place
        await stream.send_all(identify_message(self.key, protocols, self.announced, self._record, observed))

    async def _take_identity(self, connection: Connection, stream: Stream) -> None:
        """Take what is new about a peer, which may come before its introduction."""
        peering = self._open.get(connection)
        if peering is None:
            return
        with trio.move_on_after(INTRODUCTION_S):
            await peering.is_ready.wait()
            peering.identity = await read_identity(stream, connection.peer, peering.identity)
            if self._on_identity is not None:
                self._on_identity(peering)


def _why(error: OSError | GossipLogError) -> str:
    """Return an error's reason. trio's error about a failed connection names only the address; its cause has the reason."""
    cause: BaseException | None = error.__cause__
    if isinstance(cause, ExceptionGroup):
        cause = cause.exceptions[0]
    if isinstance(cause, OSError) and cause.errno is not None and cause.errno > 0:
        return os.strerror(cause.errno)
    return str(error)
