"""Pushes and pubsub: what runs on the streams that peers open for them, and on those that we open."""

from __future__ import annotations

import logging
import random
import secrets
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import trio

from ...broadcast import PeerKind, PubsubChanged, PushClosed, PushOpened, PushReceived
from ...errors import ClosedError, DecodeError, RemoteProtocolError, StreamReset
from ...limits import Backoff
from ...pubsub.events import RpcReceived
from ...pubsub.protocol_ids import FEATURES, FLOODSUB, Feature
from ...pubsub.router import NO_EXTENSIONS
from ...pubsub.rpc import Control, Rpc, Subscription
from ...pubsub.types import PeerId, Topic
from ...pubsub.wire.rpc_codec import Decoded, Wire, WireLimits
from ...pubsub.wire.shared_frames import Copies, Encoder
from ..ground.journal import note
from ..ground.protocol_ids import push_protocol, refusals_protocol
from ..transport.stream import Connection, Handler, Stream
from .driver import LogDriver
from .peers import Peer, PeerConnection
from .pubsub_stream import RpcSender, read_rpcs
from .push_stream import PushStream
from .refusals import write_refusals

__all__ = ["Streams"]

INSERTING_MAX = 48
"""Entries of one peer that may be under way before its push stream is read on: fewer than the machine takes, so that none is left out."""
PUBLISHED_INSERTING_MAX = 256
"""The same for its pubsub stream. The router holds 8,192 of all peers together, and drops what is more."""
_MESSAGES_A_TURN = 64
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
    """Runs the streams of one log but for syncs.

    Args:
        driver: The log's.
        limits: Of RPCs.
        dial_anew: Closes a connection, and dials its peer again.
    """

    def __init__(self, driver: LogDriver, limits: WireLimits, dial_anew: Callable[[PeerId, Connection], None]) -> None:
        self._driver = driver
        self._dial_anew = dial_anew
        self._random = random.Random(secrets.randbits(64))
        self._encoder = Encoder(Wire(limits=limits))
        self._copies = Copies(self._encoder)
        self._anew: OrderedDict[PeerId, tuple[float, float]] = OrderedDict()
        self._decoders = trio.CapacityLimiter(_DECODERS_MAX)
        self._push_protocol = push_protocol(driver.topic)

    def handlers(self) -> dict[str, Handler]:
        """Return what a connection serves, by protocol id."""
        serve = self._driver.handler
        return {
            self._push_protocol: serve(self._serve_push),
            refusals_protocol(self._driver.topic): serve(self._serve_refusals),
            **{protocol: serve(self._read_rpcs) for protocol in self._driver.shared.protocols},
        }

    def on_attached(self, link: PeerConnection) -> None:
        """Speak pubsub with a new peer."""
        if len(link.peer.links) == 1:
            self._keep_writing(link.peer)

    def on_detached(self, link: PeerConnection) -> None:
        """Go on with pubsub on another connection with the peer, if there is one."""
        if link.peer.rpcs_on is link and link.peer.links:
            self._keep_writing(link.peer)

    def set_pubsub(self, id: PeerId, protocol: str | None) -> None:
        """Note that a peer that is connected speaks pubsub, which it did not before, or speaks it no longer; else nothing happens.

        Args:
            id: Its peer id.
            protocol: The one of the machine's to speak with it; None for no longer.
        """
        peer = self._driver.peers.get(id)
        if peer is None or peer.kind is not PeerKind.MESH or (peer.pubsub_protocol is None) == (protocol is None):
            return
        peer.pubsub_protocol = protocol
        if protocol is not None:
            peer.rpcs, peer.is_introduced = self.sender(id), False  # the router introduces us anew, and that goes first
        note("pubsub begins" if protocol else "pubsub ends", level=logging.DEBUG, peer=id, protocol=protocol)
        self._driver.tell_router(PubsubChanged(id, protocol))
        self._keep_writing(peer)

    def _keep_writing(self, peer: Peer) -> None:
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
        self._driver.count("messages too large", messages)
        peer = self._driver.peers.get(id)
        if peer is not None:
            if "messages too large" not in peer.counts:
                note("message too large for the peer's pubsub", peer=id, bytes_max=self._encoder.wire.limits.out_bytes_max)
            peer.count("messages too large", messages)

    # Streams that peers open

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
            self.set_pubsub(link.peer.id, stream.protocol)
        try:
            is_heeded = partial(self._driver.shared.router.is_heeded, link.peer.id)
            on_rpc, on_entry = partial(self._on_rpc, link.peer), partial(self._on_entry, link.peer)
            await read_rpcs(stream, self._encoder.wire, self._copies, on_rpc, on_entry, is_heeded, self._decoders)
        except DecodeError:
            self._driver.tell_router(RpcReceived(link.peer.id, Rpc(), offences=1))
            raise

    async def _on_rpc(self, peer: Peer, decoded: Decoded, is_first: bool) -> None:
        """Hand on an RPC, its messages a few at a time: one peer must not fill the queue in which those of all others wait as well."""
        if decoded.refusals:
            self.on_refusals(peer, decoded.refusals)
        rpc, refused, offences = decoded.rpc, decoded.refused, decoded.offences
        messages = rpc.messages
        others = [message.topic for message in messages if message.topic != self._driver.topic]
        if others:
            self.on_refusals(peer, [f"of another topic, {topic[:64]!r}" for topic in others])
        if not messages:
            self._driver.tell_router(RpcReceived(peer.id, rpc, refused, offences, is_first))
        for start in range(0, len(messages), _MESSAGES_A_TURN):
            await self._driver.wait_turn(peer, min(_MESSAGES_A_TURN, len(messages) - start), PUBLISHED_INSERTING_MAX)
            part = messages[start : start + _MESSAGES_A_TURN]
            if start:
                rpc, refused, offences, is_first = Rpc(messages=part, hops=rpc.hops), (), 0, False
            elif len(messages) > len(part):
                rpc = replace(rpc, messages=part)
            self._driver.tell_router(RpcReceived(peer.id, rpc, refused, offences, is_first))

    def _on_entry(self, peer: Peer, rpc: Rpc) -> bool:
        """Hand on an RPC that is one message of our topic, unless it has to wait."""
        if rpc.messages[0].topic != self._driver.topic or self._driver.has_to_wait(peer, PUBLISHED_INSERTING_MAX):
            return False
        self._driver.tell_router(RpcReceived(peer.id, rpc))
        return True

    def on_refusals(self, peer: Peer, reasons: Sequence[str]) -> None:
        """Count messages that are not even looked at, and say why, each reason once a peer."""
        self._driver.count("messages refused", len(reasons))
        peer.count("messages refused", len(reasons))
        for reason in dict.fromkeys(reasons):
            if reason not in peer.refusals and len(peer.refusals) < _REFUSALS_MAX:
                peer.refusals.add(reason)
                self._driver.observed("refused", peer.id, reason=reason)
                note("message refused", level=logging.WARNING, peer=peer.id, reason=reason)

    # Streams that we open

    async def open_push(self, link: PeerConnection) -> None:
        """Open a push stream and run it; whatever happens, the machine hears of it."""
        stream = await self._driver.open_stream(link, [self._push_protocol])
        if stream is None:
            self._driver.tell(PushClosed(link.peer.id))
            return
        try:
            await self._run_push(link.peer, stream)
        except (StreamReset, ClosedError, DecodeError):
            stream.reset()

    async def _run_push(self, peer: Peer, stream: Stream) -> None:
        push = PushStream(stream, partial(self._on_pushed, peer), partial(self._take_pushed, peer))
        before, peer.push = peer.push, push
        if before is not None:
            before.stream.reset()
        self._driver.tell(PushOpened(peer.id))
        try:
            await push.run()
        except DecodeError as error:
            # The machine judges messages, and what is no message at all is as bad as one that means nothing.
            note("malformed push stream", level=logging.WARNING, peer=peer.id, reason=str(error))
            self._driver.tell(PushReceived(peer.id, b""))
            raise
        finally:
            if peer.push is push:
                peer.push = None
                self._driver.tell(PushClosed(peer.id))

    async def _on_pushed(self, peer: Peer, message: bytes) -> None:
        await self._driver.wait_turn(peer, 1, INSERTING_MAX)
        peer.count("received")
        self._driver.tell(PushReceived(peer.id, message))

    def _take_pushed(self, peer: Peer, message: bytes) -> bool:
        """Hand on what was pushed, unless it has to wait."""
        if self._driver.has_to_wait(peer, INSERTING_MAX):
            return False
        peer.count("received")
        self._driver.tell(PushReceived(peer.id, message))
        return True

    async def _write_rpcs(self, link: PeerConnection) -> None:
        """Keep a pubsub stream to a peer for as long as the connection lives, or close that: a new one may have what this one has lost."""
        peer = link.peer
        peer.rpcs_on = link
        backoff = Backoff(self._random, most_s=REOPEN_S_MAX)
        with peer.writing:
            while peer.pubsub_protocol is not None:
                opened_at = trio.current_time()
                has_had = link.pubsub_streams > 0
                stream = await self._driver.open_stream(link, [peer.pubsub_protocol])
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
        self._dial_anew(peer.id, link.connection)

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
        topic, router = Topic(self._driver.topic), self._driver.shared.router.state()
        is_grafted = any(one.topic == topic and peer.id in one.full_message for one in router.topics)
        has_extensions = Feature.EXTENSIONS in FEATURES[peer.pubsub_protocol or FLOODSUB] and router.extensions != NO_EXTENSIONS
        control = Control(graft=(topic,) if is_grafted else (), extensions=router.extensions if has_extensions else None)
        return Rpc(subscriptions=(Subscription(topic, True),), control=control if is_grafted or has_extensions else None)
