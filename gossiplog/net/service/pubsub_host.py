"""What all logs of a process share on the network: the router and its streams, bans, and the order in which actions are carried out.

A log joins and leaves with its service. The logs of a shelf share a host, which outlives them; a log that was opened by itself has its own.
A host takes part in meshes while it is `running`; without a mesh it has neither tasks nor timers. A connection with a mesh peer is used by
any number of logs, and has one pubsub stream each way. Every event goes through `tell`. The machines' actions are carried out in order,
never one within another.
"""

from __future__ import annotations

import logging
import random
import secrets
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import Any, Protocol, TypeAlias, assert_never

import trio

from ...broadcast.actions import Action, Ban
from ...broadcast.events import Disconnected, Event, PubsubChanged
from ...broadcast.shared_router import SharedEvent, SharedRouter
from ...errors import DecodeError, GossipLogError
from ...limits import Backoff, keep_newest
from ...pubsub.actions import Action as RouterAction
from ...pubsub.actions import AnotherSource, Connect, Deliver, Disconnect, Probe, Published, SendRpc, SetTimer, SlowPeer, Validate
from ...pubsub.events import ConnectFailed, Probed, RpcReceived, SendFailed, Start, TimerFired
from ...pubsub.params import GossipsubParams
from ...pubsub.protocol_ids import FEATURES, FLOODSUB
from ...pubsub.registry import make_router
from ...pubsub.router import NO_EXTENSIONS, Router
from ...pubsub.rpc import Control, Message, Rpc, Subscription
from ...pubsub.types import PeerId, Topic
from ...pubsub.wire.rpc_codec import SIGNED, Decoded, Wire, WireLimits
from ...pubsub.wire.shared_frames import Copies, Encoder
from ...tasks.nursery import open_service_nursery
from ..ground.admission import Admission
from ..ground.journal import note
from ..reports.failed_dials import FailedDials
from ..reports.observer import Observer
from ..transport.muxed import Connection, Handler, Stream
from .driver import OPEN_S, LogDriver
from .peers import Attached, ServedPeer
from .pubsub_stream import RpcSender, read_rpcs
from .timers import Timers

MakeRouter: TypeAlias = Callable[[random.Random], Router]
"""Makes a router that validates; all its randomness comes from the argument."""

PUBLISHED_INSERTING_MAX = 256
"""Entries of one peer and log that may be under way before its pubsub stream is read on. The router drops any beyond 8,192 of all peers."""
_MESSAGES_A_TURN = 64
STREAMS_MAX = 4
"""Pubsub streams that we open on one connection. At the fifth, rust-libp2p switches its pubsub off for good."""
ANEW_FIRST_S, ANEW_MOST_S = 60.0, 3_600.0
"""After closing a connection because its pubsub ended, how long until we may close another with that peer; it doubles each time."""
_ANEW_MAX = 1_024
REOPEN_S_MAX = 60.0
"""The longest pause between two tries to open a pubsub stream. A peer that closed one may want another later."""
STEADY_S = 60.0
"""A pubsub stream that lasted so long resets the back-off."""
_DECODERS_MAX = 2
"""Long frames that are decoded at the same time, of all peers together."""
_SAID_MAX = 4_096
_LOOK_S = 0.02
_CLOSE_S = 5.0


class Dialler(Protocol):
    """Makes connections for the router. Each call returns at once; the answers come through `PubsubHost.tell`."""

    def connect(self, peer: PeerId, record: bytes | None, source: PeerId | None) -> None:
        """Dial a peer, which `source` may have named, and attach the connection, or tell `ConnectFailed`."""

    def disconnect(self, peer: PeerId) -> None:
        """Note that the router has no more use for the connection."""

    def probe(self, peer: PeerId) -> None:
        """Measure the round trip, and tell `Probed`."""


@dataclass(eq=False, slots=True)
class PubsubPeer:
    """A peer of the mesh, with at least one connection.

    Attributes:
        protocol: The protocol id of its pubsub streams; None without pubsub.
        rpcs: Writes to our pubsub stream.
        links: Its connections, the oldest first; our pubsub stream is on the first.
        writing: Cancelled when that connection is given up, or the peer stops speaking pubsub.
        is_introduced: Whether it had a pubsub stream of ours before, on which the router introduced us.
    """

    id: PeerId
    protocol: str | None
    rpcs: RpcSender
    links: list[_PubsubLink] = field(default_factory=list)
    writing: trio.CancelScope = field(default_factory=trio.CancelScope)
    is_introduced: bool = False


@dataclass(eq=False, slots=True)
class _PubsubLink:
    """One connection with a peer of the mesh.

    Attributes:
        logs: How many logs use it.
        streams: How many pubsub streams we have opened on it.
    """

    connection: Connection
    peer: PubsubPeer
    logs: int = 0
    streams: int = 0


class PubsubHost:
    """Made by `open_mesh`, or without a mesh by the first log's service.

    Args:
        me: Our own peer id; None makes one up, where no peer will ask for it.
        make: Makes the router; gossipsub by default.

    Attributes:
        shared: The router and the bans. Others may read it.
        protocols: The pubsub protocol ids that we speak, the preferred one first.
        handlers: Serve pubsub streams on a connection of a mesh, beside each log's own handlers.
        dialler: Makes connections for the router; None without a mesh.
    """

    def __init__(self, me: PeerId | None = None, make: MakeRouter | None = None, wire: WireLimits | None = None) -> None:
        self._random = random.Random(secrets.randbits(128))
        self.me = me or PeerId(f"local-{secrets.token_hex(8)}")
        self.shared = SharedRouter((make or partial(make_router, "gossipsub", GossipsubParams()))(self._random))
        self.protocols = self.shared.protocols
        self.logs: dict[str, LogDriver] = {}
        self._observers: list[Observer] = []  # of the logs whose facts are wanted
        self.peers: dict[PeerId, PubsubPeer] = {}
        self._links = Attached[_PubsubLink]()
        self.handlers: Mapping[str, Handler] = dict.fromkeys(self.protocols, self._links.handler(self._read_rpcs))
        self.dialler: Dialler | None = None
        self.failed_dials = FailedDials(self._on_failed_dial)
        self.now = trio.lowlevel.current_clock().current_time  # two calls fewer than `trio.current_time`
        self._encoder = Encoder(Wire(limits=wire or WireLimits()))
        self._copies = Copies(self._encoder.wire)
        self._decoders = trio.CapacityLimiter(_DECODERS_MAX)
        self._timers = Timers(lambda token: self.tell(TimerFired(token)))
        self._todo: deque[tuple[Callable[[Any], None], Any]] = deque()
        self._is_acting = False
        self._anew: OrderedDict[PeerId, tuple[float, float]] = OrderedDict()
        self._names: set[str] = set()
        # What has been logged once of each peer: `ServedPeer.told` and `refusals`.
        self._said: OrderedDict[PeerId, tuple[set[str], set[str]]] = OrderedDict()
        # The listeners that refuse banned addresses.
        self._admissions: list[Admission] = []
        self._nursery: trio.Nursery

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Take part in meshes for the length of a block, which must end after all connections with mesh peers."""
        async with open_service_nursery() as self._nursery:
            self._nursery.start_soon(self._timers.run)
            self.shared.has_mesh = True
            self.tell(Start(self.me))
            try:
                yield
            finally:
                self.shared.has_mesh = False

    def join(self, log: LogDriver) -> None:
        """Add a log whose machine is about to start."""
        self.logs[log.topic] = log
        self._note_observers()

    def leave(self, log: LogDriver) -> None:
        """Remove a log whose machine has stopped."""
        del self.logs[log.topic]
        self._note_observers()

    def _note_observers(self) -> None:
        self._observers = [log.observer for log in self.logs.values() if log.observer is not None]

    # The machines

    def tell(self, event: Event | SharedEvent, log: LogDriver | None = None) -> None:
        """Hand an event to a log's machine, or to the router, and carry out the actions. Returns at once and raises nothing."""
        self._take(event, log)
        if self._is_acting:
            return
        self._is_acting = True
        while self._todo:
            act, action = self._todo.popleft()
            try:
                act(action)
            except Exception as error:
                _note_fault(error, action)
        self._is_acting = False

    def _take(self, event: Any, log: LogDriver | None) -> None:
        """Queue the actions of an event. Where the router asks a log something, the log's actions take the question's place."""
        actions: Sequence[Any]
        act: Callable[[Any], None]
        try:
            if log is None:
                act, actions = self.act, self.shared.handle(event, self.now())
                for observer in self._observers:
                    observer.on_event(event, actions)
            else:
                act, actions = log.act, log.machine.handle(event, self.now())
                if log.observer is not None:
                    log.observer.on_event(event, actions)
        except Exception as error:
            _note_fault(error, event)
            return
        for action in actions:
            if isinstance(action, Validate | AnotherSource):
                asked = self.logs.get(action.message.topic if isinstance(action, Validate) else action.topic)
                if asked is not None:
                    self._take(action, asked)
            else:
                self._todo.append((act, action))

    def act(self, action: RouterAction) -> None:
        """Carry out an action of the router without waiting; anything longer is only started."""
        dialler = self.dialler
        match action:
            case SendRpc(peers, rpc, is_urgent):
                for id in peers:
                    peer = self.peers.get(id)
                    dropped = rpc if peer is None else peer.rpcs.put(rpc, is_urgent=is_urgent)
                    if dropped is not None:
                        self.tell(SendFailed(id, dropped))
            case SetTimer(token, at):
                self._timers.set(token, at)
            # Without a mesh nobody can be dialled or measured.
            case Connect(id, record, source):
                if id in self.peers:
                    pass
                elif dialler is None:
                    self.tell(ConnectFailed(id))
                else:
                    dialler.connect(id, record, source)
            case Disconnect(id):
                if dialler is not None:
                    dialler.disconnect(id)
            case Probe(id):
                if dialler is None:
                    self.tell(Probed(id, None))
                else:
                    dialler.probe(id)
            case Deliver(message):
                self._count_in(message.topic, "delivered")
            case Published(_, topic):
                self._count_in(topic, "published")
            case SlowPeer(_, dropped):
                for log in self.logs.values():
                    log.count("rpcs dropped", dropped)
            case Validate() | AnotherSource():  # pragma: no cover - `_take` hands them to a log
                raise AssertionError(action)
            case _:
                assert_never(action)

    def _count_in(self, topic: Topic, what: str) -> None:
        log = self.logs.get(topic)
        if log is not None:
            log.count(what)

    def _on_failed_dial(self, address: str, reason: str) -> None:
        for log in self.logs.values():
            log.observed("dial-failed", address, reason=reason)

    # Names and bans

    @contextmanager
    def named(self, name: str) -> Iterator[PeerId]:
        """Return a peer id for a client, unique for the length of a block.

        Two clients may come from the same port by two listeners or two proxies. They are two peers, each with its own rights and rules.
        """
        id = PeerId(name if name not in self._names else next(f"{name}#{n}" for n in count(2) if f"{name}#{n}" not in self._names))
        self._names.add(id)
        try:
            yield id
        finally:
            self._names.discard(id)

    def remember_said(self, peer: ServedPeer) -> None:
        """Do not log again what was logged once of this peer, when it connected before or with another log."""
        peer.told, peer.refusals = self._said.get(peer.id, (peer.told, peer.refusals))
        keep_newest(self._said, peer.id, (peer.told, peer.refusals), _SAID_MAX)

    @contextmanager
    def guarded_by(self, admission: Admission) -> Iterator[None]:
        """Make a listener refuse banned addresses for the length of a block."""
        self._admissions.append(admission)
        try:
            yield
        finally:
            self._admissions.remove(admission)

    def banned_until(self, peer: PeerId) -> float | None:
        """Return until which time of `trio.current_time` a peer is banned; None if it is not."""
        return self.shared.banned_until(peer, trio.current_time())

    def on_banned(self, ban: Ban, by: LogDriver) -> None:
        """Apply a log's ban to all logs."""
        # Before the connection is closed: the peer then dials again at once.
        if ban.origin is not None:
            for admission in self._admissions:
                admission.ban(ban.origin, ban.until)
        for log in self.logs.values():
            if log is not by and ban.peer in log.peers:
                log.tell(Disconnected(ban.peer))

    # Connections

    def attach(self, connection: Connection, protocol: str | None) -> None:
        """Note that one more log uses a connection of a mesh.

        Args:
            protocol: The one of `protocols` that the peer speaks too; None without pubsub.
        """
        link = self._links.get(connection)
        if link is None:
            peer = self.peers.get(connection.peer)
            if peer is None:
                peer = self.peers[connection.peer] = PubsubPeer(connection.peer, protocol, self._sender(connection.peer))
            link = _PubsubLink(connection, peer)
            peer.links.append(link)
            self._links.add(connection, link)
            if len(peer.links) == 1:
                self._keep_writing(peer)
        link.logs += 1

    def detach(self, connection: Connection) -> None:
        """Note that a log no longer uses a connection. When no log does, pubsub moves to another connection with the peer, if any."""
        link = self._links.get(connection)
        assert link is not None
        link.logs -= 1
        if link.logs:
            return
        self._links.remove(connection)
        peer = link.peer
        is_first = peer.links[0] is link
        peer.links.remove(link)
        if not peer.links:
            del self.peers[peer.id]
        if is_first:
            peer.writing.cancel()
            if peer.links:
                self._keep_writing(peer)

    def set_pubsub(self, id: PeerId, protocol: str | None) -> None:
        """Note whether a connected peer speaks pubsub; does nothing if that has not changed.

        Args:
            protocol: One of `protocols`; None if it speaks none of them.
        """
        peer = self.peers.get(id)
        if peer is None or (peer.protocol is None) == (protocol is None):
            return
        peer.protocol = protocol
        if protocol is not None:
            peer.rpcs, peer.is_introduced = self._sender(id), False  # the router introduces us again, in its first RPC
        note("pubsub begins" if protocol else "pubsub ends", level=logging.DEBUG, peer=id, protocol=protocol)
        self.tell(PubsubChanged(id, protocol))
        self._keep_writing(peer)

    def _known(self, id: PeerId) -> list[tuple[LogDriver, ServedPeer]]:
        """Return the logs that are connected with a peer, each with its own record of the peer."""
        return [(log, log.peers[id]) for log in self.logs.values() if id in log.peers]

    def _count(self, id: PeerId, what: str) -> None:
        for _, peer in self._known(id):
            peer.count(what)

    # RPCs from peers

    async def _read_rpcs(self, link: _PubsubLink, stream: Stream) -> None:
        peer = link.peer
        if peer.protocol is None:
            # The peer may have started pubsub after it told us which protocols it speaks.
            self.set_pubsub(peer.id, stream.protocol)
        try:
            is_heeded = partial(self.shared.router.is_heeded, peer.id)
            on_rpc, on_entry = partial(self._on_rpc, peer.id), partial(self._on_entry, peer.id)
            await read_rpcs(stream, self._encoder.wire, self._copies, on_rpc, on_entry, is_heeded, self._decoders)
        except DecodeError:
            self.tell(RpcReceived(peer.id, Rpc(), offences=1))
            raise

    async def _on_rpc(self, id: PeerId, decoded: Decoded, is_first: bool) -> None:
        """Hand on an RPC, its messages a few at a time: one peer must not fill the queue that all peers share."""
        rpc, refused, offences = decoded.rpc, decoded.refused, decoded.offences
        messages = rpc.messages
        reasons = [*(SIGNED for _ in refused), *(f"of another topic, {one.topic[:64]!r}" for one in messages if one.topic not in self.logs)]
        if reasons:
            for log, peer in self._known(id):
                log.on_refusals(peer, reasons)
        if not messages:
            self.tell(RpcReceived(id, rpc, refused, offences, is_first))
        for start in range(0, len(messages), _MESSAGES_A_TURN):
            part = messages[start : start + _MESSAGES_A_TURN]
            await self._wait_turn(id, part)
            if start:
                rpc, refused, offences, is_first = Rpc(messages=part, hops=rpc.hops), (), 0, False
            elif len(messages) > len(part):
                rpc = replace(rpc, messages=part)
            self.tell(RpcReceived(id, rpc, refused, offences, is_first))

    async def _wait_turn(self, id: PeerId, messages: tuple[Message, ...]) -> None:
        """Wait until each log may be handed its messages."""
        for topic, number in Counter(message.topic for message in messages).items():
            log = self.logs.get(topic)
            peer = None if log is None else log.peers.get(id)
            if log is not None and peer is not None:
                await log.wait_turn(peer, number, PUBLISHED_INSERTING_MAX)

    def _on_entry(self, id: PeerId, rpc: Rpc) -> bool:
        """Hand on an RPC that is a single message, unless it has to wait or no log has its topic."""
        log = self.logs.get(rpc.messages[0].topic)
        peer = None if log is None else log.peers.get(id)
        if log is None or peer is None or log.has_to_wait(peer, PUBLISHED_INSERTING_MAX):
            return False
        self.tell(RpcReceived(id, rpc))
        return True

    # RPCs to peers

    def _sender(self, id: PeerId) -> RpcSender:
        return RpcSender(self._encoder, partial(self._on_left_out, id))

    def _on_left_out(self, id: PeerId, messages: int) -> None:
        """Count messages that fit no frame, which a sync has to bring; logged once a peer."""
        for log, peer in self._known(id):
            log.count("messages too large", messages)
            peer.note_once("too large", "message too large for the peer's pubsub", bytes_max=self._encoder.wire.limits.out_bytes_max)
            peer.count("messages too large", messages)

    def _keep_writing(self, peer: PubsubPeer) -> None:
        """Start or stop writing to a peer by pubsub, as its `protocol` says."""
        if peer.protocol is None:
            peer.writing.cancel()
        else:
            peer.writing = trio.CancelScope()
            self._nursery.start_soon(self._write, peer.links[0], peer.writing)

    async def _write(self, link: _PubsubLink, writing: trio.CancelScope) -> None:
        try:
            with writing:
                await self._write_rpcs(link)
        except Exception as error:
            note("fault in a task", level=logging.ERROR, error=error, peer=link.peer.id)

    async def _write_rpcs(self, link: _PubsubLink) -> None:
        """Keep a pubsub stream to a peer open while the connection lives. If that fails, close it: pubsub may work on a new connection."""
        peer = link.peer
        backoff = Backoff(self._random, most_s=REOPEN_S_MAX)
        while peer.protocol is not None:
            opened_at = trio.current_time()
            has_had = link.streams > 0
            stream = await self._open(link.connection, peer.protocol)
            if stream is not None:
                link.streams += 1
                await self._run_rpcs(peer, stream)
            if (has_had and stream is None) or link.streams >= STREAMS_MAX:
                self._begin_anew(link)
            if trio.current_time() - opened_at > STEADY_S:
                backoff.reset()
            await trio.sleep(backoff.next())

    async def _open(self, connection: Connection, protocol: str) -> Stream | None:
        with trio.move_on_after(OPEN_S):
            try:
                return await connection.open_stream([protocol])
            except GossipLogError as error:
                note("stream not opened", level=logging.DEBUG, peer=connection.peer, protocol=protocol, reason=str(error))
        return None

    def _begin_anew(self, link: _PubsubLink) -> None:
        """Close a connection whose pubsub has ended and dial the peer again, unless we did so a short while ago."""
        id, now = link.peer.id, trio.current_time()
        due, pause_s = self._anew.get(id, (now, ANEW_FIRST_S))
        if now < due or link.connection.is_over:
            return
        keep_newest(self._anew, id, (now + pause_s, min(2 * pause_s, ANEW_MOST_S)), _ANEW_MAX)
        self._count(id, "connections closed for pubsub")
        note("pubsub ended on a connection that stays", level=logging.WARNING, peer=id, streams=link.streams, then="dial anew")
        self._nursery.start_soon(self._dial_anew, link)

    async def _dial_anew(self, link: _PubsubLink) -> None:
        id = link.peer.id
        with trio.move_on_after(_CLOSE_S, shield=True):
            await link.connection.aclose()
            while link in link.peer.links:
                await trio.sleep(_LOOK_S)
        if self.dialler is not None and id not in self.peers:
            self.dialler.connect(id, None, None)

    async def _run_rpcs(self, peer: PubsubPeer, stream: Stream) -> None:
        introduction = self._introduction(peer) if peer.is_introduced else None
        peer.is_introduced = True
        try:
            reason = await peer.rpcs.run(stream, introduction)
        finally:
            stream.reset()
        self._count(peer.id, "pubsub streams lost")
        note("pubsub stream lost", level=logging.DEBUG, peer=peer.id, reason=reason)

    def _introduction(self, peer: PubsubPeer) -> Rpc:
        """Return what a peer has to be told on a new stream: the RPCs on the one before may be lost."""
        router = self.shared.router.state()
        grafted = tuple(one.topic for one in router.topics if one.topic in self.logs and peer.id in one.full_message)
        has_extensions = FEATURES[peer.protocol or FLOODSUB].extensions and router.extensions != NO_EXTENSIONS
        control = Control(graft=grafted, extensions=router.extensions if has_extensions else None)
        subscriptions = tuple(Subscription(Topic(topic), True) for topic in self.logs)
        return Rpc(subscriptions=subscriptions, control=control if grafted or has_extensions else None)


def _note_fault(error: Exception, cause: Event | SharedEvent | Action) -> None:
    """Log a fault of ours. It must end neither the connection of the peer that triggered it nor the log's writer."""
    note("fault in the protocol", level=logging.ERROR, error=error, cause=type(cause).__name__)
