"""The streams of a service: what runs on those that peers open, and on those that we open."""

from __future__ import annotations

import logging
import random
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

import trio

from ...broadcast import (
    PeerKind,
    PushClosed,
    PushOpened,
    PushReceived,
)
from ...broadcast.allowance import MAY_NOT_PUSH
from ...broadcast.wanted_syncs import missing
from ...errors import ClosedError, DecodeError, GossipLogError, ProtocolNotSupported, RemoteProtocolError, StreamReset
from ...limits import Backoff
from ...pubsub.events import RpcReceived
from ...pubsub.protocol_ids import FEATURES, FLOODSUB, Feature
from ...pubsub.router import NO_EXTENSIONS
from ...pubsub.rpc import Control, Rpc, Subscription
from ...pubsub.types import PeerId, Topic
from ...pubsub.wire.rpc_codec import Decoded, Wire, WireLimits
from ...sync.rpc import Insert
from ...sync.wire import decode_event
from ..ground.journal import note
from ..ground.protocol_ids import push_protocol, reconcile_protocol, refusals_protocol
from ..transport.stream import Connection, Handler, PromptHandler, Stream
from .ask_log import ask_until_answered
from .owner import OPEN_S, Owner
from .peers import Peer, PeerConnection
from .pubsub_stream import Copies, Encoder, RpcSender, read_rpcs
from .push_stream import PushStream
from .refusals import write_refusals
from .syncs import Syncs

__all__ = ["Streams"]

INSERTING_MAX = 48
"""Entries of one peer that may be under way before its push stream is read on: fewer than the machine takes, so that none is left out."""
PUBLISHED_INSERTING_MAX = 256
"""The same for its pubsub stream. The router holds 8,192 of all peers together, and drops what is more."""
_MESSAGES_A_TURN = 64
ATTACH_S = 5.0
STREAMS_MAX = 4
"""Pubsub streams that we open on one connection. rust-libp2p counts them, and switches its pubsub off for good at the fifth."""
ANEW_FIRST_S, ANEW_MOST_S = 60.0, 3_600.0
"""How long after a connection was given up for its pubsub the next one with that peer may be; twice as long each time."""
_ANEW_MAX = 1_024
REOPEN_S_MAX = 60.0
"""The longest time between two tries to open a pubsub stream. A peer that closed one may not want it, and may want it later."""
STEADY_S = 60.0
"""A pubsub stream that lasted so long was no failure."""
_REFUSALS_MAX = 8
"""Reasons that are logged of one peer."""
_DECODERS_MAX = 2
"""Long frames that are decoded at the same time, of all peers together."""


class Streams:
    """Runs the streams of one service.

    Args:
        service: The service that it belongs to.

        limits: Of RPCs.
    """

    def __init__(self, service: Owner, limits: WireLimits) -> None:
        self._service = service
        self._random = random.Random(secrets.randbits(64))
        self._encoder = Encoder(Wire(limits=limits))
        self._copies = Copies(self._encoder)
        self._links: dict[Connection, PeerConnection] = {}
        self._anew: OrderedDict[PeerId, tuple[float, float]] = OrderedDict()
        self._attached = trio.Event()
        self._decoders = trio.CapacityLimiter(_DECODERS_MAX)
        self._push_protocol = push_protocol(service.topic)
        self._refusals_protocol = refusals_protocol(service.topic)
        self._syncs = Syncs(service, self._open)
        self.pull = self._syncs.pull

    def handlers(self) -> dict[str, Handler]:
        """Return what a connection serves, by protocol id."""
        of_pubsub = {protocol: self._handler(self._read_rpcs) for protocol in self._service.protocols}
        of_sync = {protocol: self._handler(serve) for protocol, serve in self._syncs.served().items()}
        if (reconcile := reconcile_protocol(self._service.topic)) in of_sync:
            of_sync[reconcile] = PromptHandler(of_sync[reconcile])
        of_push = {self._push_protocol: self._handler(self._serve_push), self._refusals_protocol: self._handler(self._serve_refusals)}
        return {**of_push, **of_sync, **of_pubsub}

    def on_attached(self, link: PeerConnection) -> None:
        """Serve a connection from now on."""
        self._links[link.connection] = link
        attached, self._attached = self._attached, trio.Event()
        attached.set()
        if len(link.peer.links) == 1:
            self.on_pubsub(link.peer)

    def on_detached(self, link: PeerConnection) -> None:
        """Serve a connection no longer."""
        del self._links[link.connection]
        if link.peer.rpcs_on is link and link.peer.links:
            self.on_pubsub(link.peer)

    def on_pubsub(self, peer: Peer) -> None:
        """Write to a peer by pubsub from now on, or no longer, as its `pubsub_protocol` says."""
        if peer.pubsub_protocol is None:
            peer.writing.cancel()
        else:
            peer.writing = trio.CancelScope()
            peer.links[0].start(self._write_rpcs)

    def sender(self, id: PeerId) -> RpcSender:
        """Make the queue of a new peer."""
        return RpcSender(self._encoder, partial(self._on_left_out, id))

    def _on_left_out(self, id: PeerId, messages: int) -> None:
        """Count what fits no frame; a sync has to bring it. Said once a peer."""
        self._service.count("messages too large", messages)
        peer = self._service.peers.get(id)
        if peer is not None:
            if "messages too large" not in peer.counts:
                note("message too large for the peer's pubsub", peer=id, bytes_max=self._encoder.wire.limits.out_bytes_max)
            peer.count("messages too large", messages)

    # Streams that peers open

    def _handler(self, serve: Callable[[PeerConnection, Stream], Awaitable[None]]) -> Handler:
        async def handle(connection: Connection, stream: Stream) -> None:
            await serve(await self._link(connection), stream)

        return handle

    async def _link(self, connection: Connection) -> PeerConnection:
        with trio.move_on_after(ATTACH_S):
            while (link := self._links.get(connection)) is None:
                await self._attached.wait()
            return link
        raise StreamReset("the connection is not in use")

    async def _serve_push(self, link: PeerConnection, stream: Stream) -> None:
        if link.peer.kind is PeerKind.HUB:
            raise RemoteProtocolError("a server opened a push stream to its client", peer=link.peer.id)
        await self._run_push(link.peer, stream)

    async def _serve_refusals(self, link: PeerConnection, stream: Stream) -> None:
        """Tell a client what is not taken of it, on the stream that it opened last."""
        link.peer.hearing.cancel()
        with trio.CancelScope() as link.peer.hearing:
            await write_refusals(stream, link.peer.refusal_box)

    async def _read_rpcs(self, link: PeerConnection, stream: Stream) -> None:
        if link.peer.pubsub_protocol is None:
            # It may have begun with pubsub after it told us what it speaks.
            self._service.set_pubsub(link.peer.id, stream.protocol)
        try:
            is_heeded = partial(self._service.is_heeded, link.peer.id)
            on_rpc, on_entry = partial(self._on_rpc, link.peer), partial(self._on_entry, link.peer)
            await read_rpcs(stream, self._encoder.wire, self._copies, on_rpc, on_entry, is_heeded, self._decoders)
        except DecodeError:
            self._service.tell(RpcReceived(link.peer.id, Rpc(), offences=1))
            raise

    async def _on_rpc(self, peer: Peer, decoded: Decoded, is_first: bool) -> None:
        """Hand on an RPC, its messages a few at a time: one peer must not fill the queue in which those of all others wait as well."""
        if decoded.refusals:
            self.on_refusals(peer, decoded.refusals)
        rpc, refused, offences = decoded.rpc, decoded.refused, decoded.offences
        messages = rpc.messages
        others = [message.topic for message in messages if message.topic != self._service.topic]
        if others:
            self.on_refusals(peer, [f"of another topic, {topic[:64]!r}" for topic in others])
        if not messages:
            self._service.tell(RpcReceived(peer.id, rpc, refused, offences, is_first))
        for start in range(0, len(messages), _MESSAGES_A_TURN):
            await self._service.strangers.wait(peer, min(_MESSAGES_A_TURN, len(messages) - start))
            await self._wait_for_room(peer, PUBLISHED_INSERTING_MAX)
            part = messages[start : start + _MESSAGES_A_TURN]
            if start:
                rpc, refused, offences, is_first = Rpc(messages=part, hops=rpc.hops), (), 0, False
            elif len(messages) > len(part):
                rpc = replace(rpc, messages=part)
            self._service.tell(RpcReceived(peer.id, rpc, refused, offences, is_first))

    def _on_entry(self, peer: Peer, rpc: Rpc) -> bool:
        """Hand on an RPC that is one message of our topic, unless it has to wait."""
        has_room = rpc.messages[0].topic == self._service.topic and peer.inserting < PUBLISHED_INSERTING_MAX
        if not has_room or self._service.strangers.has_to_wait(peer):
            return False
        self._service.tell(RpcReceived(peer.id, rpc))
        return True

    def on_refusals(self, peer: Peer, reasons: Sequence[str]) -> None:
        """Count messages that are not even looked at, and say why, each reason once a peer."""
        self._service.count("messages refused", len(reasons))
        peer.count("messages refused", len(reasons))
        for reason in dict.fromkeys(reasons):
            if reason not in peer.refusals and len(peer.refusals) < _REFUSALS_MAX:
                peer.refusals.add(reason)
                self._service.observed("refused", peer.id, reason=reason)
                note("message refused", level=logging.WARNING, peer=peer.id, reason=reason)

    # Streams that we open

    async def open_push(self, link: PeerConnection) -> None:
        """Open a push stream and run it; whatever happens, the machine hears of it."""
        stream = await self._open(link, [self._push_protocol])
        if stream is None:
            self._service.tell(PushClosed(link.peer.id))
            return
        try:
            await self._run_push(link.peer, stream)
        except (StreamReset, ClosedError, DecodeError):
            stream.reset()

    async def _open(
        self, link: PeerConnection, protocols: Sequence[str], wait_s: float = OPEN_S, *, is_lazy: bool = False
    ) -> Stream | None:
        with trio.move_on_after(min(wait_s, OPEN_S)):
            try:
                return await link.connection.open_stream(protocols, is_lazy=is_lazy)
            except ProtocolNotSupported as error:
                if "topic" not in link.peer.told:
                    self._service.observed("ignored", link.peer.id, type=protocols[-1], reason=str(error))
                link.peer.note_once("topic", "protocol not served there", level=logging.WARNING, reason=str(error))
            except GossipLogError as error:
                note("stream not opened", level=logging.DEBUG, peer=link.peer.id, protocol=protocols[-1], reason=str(error))
        return None

    async def _run_push(self, peer: Peer, stream: Stream) -> None:
        push = PushStream(stream, partial(self._on_pushed, peer), partial(self._take_pushed, peer))
        before, peer.push = peer.push, push
        if before is not None:
            before.stream.reset()
        self._service.tell(PushOpened(peer.id))
        try:
            await push.run()
        except DecodeError as error:
            # The machine judges messages, and what is no message at all is as bad as one that means nothing.
            note("malformed push stream", level=logging.WARNING, peer=peer.id, reason=str(error))
            self._service.tell(PushReceived(peer.id, b""))
            raise
        finally:
            if peer.push is push:
                peer.push = None
                self._service.tell(PushClosed(peer.id))

    async def _on_pushed(self, peer: Peer, message: bytes) -> None:
        await self._service.strangers.wait(peer, 1)
        await self._wait_for_room(peer, INSERTING_MAX)
        self._tell_pushed(peer, message)

    def _take_pushed(self, peer: Peer, message: bytes) -> bool:
        """Hand on what was pushed, unless it has to wait."""
        if peer.inserting >= INSERTING_MAX or self._service.strangers.has_to_wait(peer):
            return False
        self._tell_pushed(peer, message)
        return True

    def _tell_pushed(self, peer: Peer, message: bytes) -> None:
        if "push" not in peer.rights:
            # Its heads too: what it has is of no use here.
            peer.note_once("push", "client may not push")
            peer.count("refused")
            self._tell_may_not_push(peer, message)
            return
        peer.count("received")
        self._service.tell(PushReceived(peer.id, message))

    def _tell_may_not_push(self, peer: Peer, message: bytes) -> None:
        """Tell who may not push what is not taken: what was pushed, and, once, heads that we lack."""
        with suppress(DecodeError):
            event = decode_event(message)
            if isinstance(event, Insert):
                peer.refusal_box.add(event.key, MAY_NOT_PUSH)
            elif "heads" not in peer.told and peer.links:
                peer.told.add("heads")
                peer.links[0].start(partial(self._tell_lacking, event.heads))

    async def _tell_lacking(self, heads: Sequence[bytes], link: PeerConnection) -> None:
        absent = await ask_until_answered(self._service.log, missing(heads))
        for key in absent:
            link.peer.refusal_box.add(key, MAY_NOT_PUSH)
        if not absent:
            link.peer.told.discard("heads")

    async def _wait_for_room(self, peer: Peer, inserting_max: int) -> None:
        while peer.inserting >= inserting_max:
            if peer.settled.is_set():
                peer.settled = trio.Event()
            await peer.settled.wait()

    async def _write_rpcs(self, link: PeerConnection) -> None:
        """Keep a pubsub stream to a peer for as long as the connection lives, or close that: a new one may have what this one has lost."""
        peer = link.peer
        peer.rpcs_on = link
        backoff = Backoff(self._random, most_s=REOPEN_S_MAX)
        with peer.writing:
            while peer.pubsub_protocol is not None:
                opened_at = trio.current_time()
                has_had = link.pubsub_streams > 0
                stream = await self._open(link, [peer.pubsub_protocol])
                if stream is not None:
                    link.pubsub_streams += 1
                    await self._run_rpcs(peer, stream)
                if (has_had and stream is None) or link.pubsub_streams >= STREAMS_MAX:
                    await self._begin_anew(link)
                if trio.current_time() - opened_at > STEADY_S:
                    backoff.reset()
                await trio.sleep(backoff.next())

    async def _begin_anew(self, link: PeerConnection) -> None:
        """Close a connection whose pubsub has ended, and dial its peer again; not where that was done a short while ago."""
        peer, now = link.peer, trio.current_time()
        due, pause_s = self._anew.get(peer.id, (now, ANEW_FIRST_S))
        if now < due or link.connection.is_over:
            return
        self._anew[peer.id] = now + pause_s, min(2 * pause_s, ANEW_MOST_S)
        self._anew.move_to_end(peer.id)
        if len(self._anew) > _ANEW_MAX:
            self._anew.popitem(last=False)
        peer.count("connections closed for pubsub")
        note("pubsub ended on a connection that stays", level=logging.WARNING, peer=peer.id, streams=link.pubsub_streams, then="dial anew")
        self._service.dial_anew(peer.id, link.connection)

    async def _run_rpcs(self, peer: Peer, stream: Stream) -> None:
        introduction = self._introduction(peer) if peer.is_introduced else None
        peer.is_introduced = True
        try:
            reason = await peer.rpcs.run(stream, introduction)
        finally:
            stream.reset()
        peer.count("pubsub streams lost")
        note("pubsub stream lost", level=logging.DEBUG, peer=peer.id, reason=reason)

    def _introduction(self, peer: Peer) -> Rpc:
        """What a peer has to know on a new stream, whatever became of the one before."""
        topic, router = Topic(self._service.topic), self._service.state().router
        is_grafted = any(one.topic == topic and peer.id in one.full_message for one in router.topics)
        has_extensions = Feature.EXTENSIONS in FEATURES[peer.pubsub_protocol or FLOODSUB] and router.extensions != NO_EXTENSIONS
        control = Control(graft=(topic,) if is_grafted else (), extensions=router.extensions if has_extensions else None)
        return Rpc(subscriptions=(Subscription(topic, True),), control=control if is_grafted or has_extensions else None)
