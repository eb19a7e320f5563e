"""A connection that carries many streams: the muxer on a byte stream, with one task that reads and one that writes.

    async with open_muxed(bytes, is_client=True, peer=peer, handlers={"/canvas/v1/topic/sync": serve}) as connection:
        stream = await connection.open_stream(["/canvas/v1/topic/push"])
        …
        end = await connection.wait_ended()

Leaving the block closes the connection. A connection that ends by itself raises nothing in the block: `wait_ended` returns why, and every
call on its streams raises StreamReset. The handlers run in a nursery inside. They are not cancelled while the connection lives, and have a
second to end after it.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from math import ceil, inf

import trio

from ...errors import ClosedError, GossipLogError, ProtocolNotSupported, RemoteProtocolError, StreamReset
from ...pubsub.types import PeerId
from ...tasks.nursery import open_service_nursery
from ...tasks.sleeper import Sleeper
from ..ground.journal import note
from .flushes import Flushes
from .multistream import Proposal
from .muxed_stream import MuxedStream
from .stream import ByteStream, ConnectionEnd, EndKind, Handler, PromptStream, Traffic
from .yamux.frames import GO_AWAY_NORMAL
from .yamux.machine import GoneAway, MuxerEvent, Opened, StreamChanged, StreamState, Yamux

KEEP_ALIVE_S = 30.0
"""How often a connection is checked for a sign of life. If nothing came since the last check, a ping is sent, whose answer has as long."""
_LATE_S = 1.0
"""How late a busy process may be for a check."""
ROUND_TRIP_S = 300.0
"""How often a ping measures the round trip, even if other signs of life come."""
SEND_S = 60.0
"""A peer that does not take 64 KiB within this time reads nothing. Checked every 30 s: a deadline for each piece would take CPU."""
FLUSH_S = 2.0
"""How long the queue may take to be written when the connection is closed."""
CLOSE_S = 2.0
GRACE_S = 1.0
"""How long handlers may run after the connection's end."""
OUTPUT_BYTES_MAX = 4 * 1024 * 1024
"""Bytes that may be queued for a slow reader before the connection is dropped. Source: docs/spec/limits.md."""
NEGOTIATION_S = 20.0
"""How long agreeing on a stream's protocol may take: one round trip, but the peer may be a background tab or a machine short of processors.
A peer that never answers only holds one of its own 128 streams. js-libp2p gives 10 s."""


@dataclass(slots=True)
class MuxerCounters:
    """Counters of one connection.

    Attributes:
        bytes_in: Bytes that arrived, including the headers of frames.
        traffic: Bytes that streams carried, by protocol; the empty name counts negotiations.
    """

    bytes_in: int = 0
    bytes_out: int = 0
    streams_opened: int = 0
    streams_accepted: int = 0
    traffic: dict[str, Traffic] = field(default_factory=dict)


@asynccontextmanager
async def open_muxed(
    byte_stream: ByteStream,
    *,
    is_client: bool,
    peer: PeerId,
    address: str | None = None,
    handlers: Mapping[str, Handler] | None = None,
    flushes: Flushes | None = None,
) -> AsyncIterator[MuxedConnection]:
    """Speak yamux on a byte stream, which belongs to the connection from now on.

    Args:
        address: The remote IP address, without port.
        handlers: Serve the streams that the peer opens, by protocol; looked up for each stream.
        flushes: Run by the caller; writes what can be sent without waiting. By default the connection's own task writes everything.
    """
    connection = MuxedConnection(byte_stream, is_client, peer, address, handlers or {}, flushes)
    async with open_service_nursery() as nursery:
        nursery.start_soon(connection.serve)
        try:
            yield connection
        finally:
            await connection.aclose()


class MuxedConnection:
    """A `Connection`; made by `open_muxed`.

    Attributes:
        address: The remote IP address, without port; None if there is none.
        received_at: When bytes arrived last, in seconds.
        end: Why it ended; None while it lives.
    """

    def __init__(
        self,
        byte_stream: ByteStream,
        is_client: bool,
        peer: PeerId,
        address: str | None,
        handlers: Mapping[str, Handler],
        flushes: Flushes | None,
    ) -> None:
        self.muxer = Yamux(is_client=is_client)
        self.counters = MuxerCounters()
        self._byte_stream = byte_stream
        self._prompt_stream = byte_stream if isinstance(byte_stream, PromptStream) else None
        self._flushes = None if self._prompt_stream is None else flushes
        self._clock = trio.lowlevel.current_clock().current_time  # two calls fewer than `trio.current_time`
        self.received_at = 0.0
        self.is_outbound = is_client
        self.peer = peer
        self.address = address
        self._warned: set[str | None] = set()
        self._handlers = handlers
        self._streams: dict[StreamState, MuxedStream] = {}
        self._writer = Sleeper()
        self._room = trio.lowlevel.ParkingLot()
        self._is_room_wanted = False
        self._writing = trio.CancelScope()
        self._sending_since: float | None = None
        self._unsent = b""  # given to `send_now`, which could not send all of it
        self.end: ConnectionEnd | None = None
        self._ended = trio.Event()
        self._closed = trio.Event()

    @property
    def is_over(self) -> bool:
        """Whether it has ended or begun to end, and all of its streams with it."""
        return self.end is not None

    @property
    def round_trip_s(self) -> float | None:
        """Seconds that the last ping took; None before the first answer."""
        return self.muxer.round_trip_s

    @property
    def traffic(self) -> dict[str, Traffic]:
        """Bytes that its streams carried so far, by protocol."""
        return self.counters.traffic

    @property
    def streams(self) -> list[MuxedStream]:
        """The streams that are not over."""
        return list(self._streams.values())

    async def wait_ended(self) -> ConnectionEnd:
        """Wait until the connection has ended, and return why."""
        await self._ended.wait()
        assert self.end is not None
        return self.end

    async def open_stream(self, protocols: Sequence[str], *, is_lazy: bool = False) -> MuxedStream:
        """See `Connection`. A call that is cancelled, or raises, leaves no stream behind.

        Raises:
            StreamReset: Also if the peer does not answer within 20 s, or 128 streams of ours are open.
            LocalProtocolError: No protocol was given, or one of them cannot be a name.
        """
        proposal = Proposal(protocols)
        is_lazy = is_lazy and len(protocols) == 1
        state = self.muxer.open(trio.current_time(), is_lazy=is_lazy)
        self.counters.streams_opened += 1
        stream = self._streams[state] = MuxedStream(self, state)
        try:
            await stream.propose(proposal, trio.current_time() + NEGOTIATION_S, is_lazy=is_lazy)
        except BaseException:
            stream.reset()
            raise
        return stream

    async def aclose(self) -> None:
        """Close the connection within 4 s: write the queue, tell the peer, and close the byte stream.

        Closing twice does nothing. A cancelled call still closes.
        """
        with trio.CancelScope(shield=True):
            self.finish(EndKind.CLOSED, "closed by us")
            await self._closed.wait()
        await trio.lowlevel.checkpoint_if_cancelled()

    def finish(self, kind: EndKind, reason: str) -> None:
        """Begin to close, without waiting. A connection that has ended keeps its reason."""
        if self.end is not None:
            return
        self.end = ConnectionEnd(kind, reason)
        self._ended.set()
        self.muxer.go_away(GO_AWAY_NORMAL)
        # It is no use to wait for a peer that reads nothing or is gone.
        patience = FLUSH_S if kind in (EndKind.CLOSED, EndKind.GONE, EndKind.VIOLATION) else 0
        self._writing.deadline = trio.current_time() + patience
        self._writer.wake()
        self._room.unpark_all()
        for stream in self.streams:
            stream.wake()

    # For its streams.

    def wake_writer(self) -> None:
        """Have the queue written."""
        if self.muxer.queued_bytes > OUTPUT_BYTES_MAX:
            self.finish(EndKind.SLOW, f"more than {OUTPUT_BYTES_MAX} bytes wait for a peer that does not read")
        if self._flushes is None:
            self._writer.wake()
        else:
            self._flushes.add(self)

    def flush(self) -> None:
        """Send as much of the queue as needs no waiting; the writing task does the rest."""
        stream = self._prompt_stream
        if not self._writer.is_asleep or stream is None:
            return  # The writing task is at work.
        if self.end is None and (chunk := self.muxer.take()):
            if stream.send_now(chunk):
                self.counters.bytes_out += len(chunk)
                if not (self.muxer.queued_bytes or self._is_room_wanted):
                    return
            else:
                self._unsent = chunk
        self._writer.wake()

    async def wait_for_room(self) -> None:
        """Wait until a part of the queue was sent, or the connection has ended."""
        self._is_room_wanted = True
        await self._room.park()

    def forget(self, stream: StreamState) -> None:
        """Note that a stream is over."""
        self._streams.pop(stream, None)

    def counted(self, protocol: str) -> Traffic:
        """Return the counter of a protocol's streams."""
        return self.counters.traffic.setdefault(protocol, Traffic())

    # Its tasks.

    async def serve(self) -> None:
        """Run until the connection has ended. Cancelling does nothing; `finish` ends it within 5 s."""
        with trio.CancelScope(shield=True):
            async with trio.open_nursery() as handlers:
                try:
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(self._read, handlers)
                        nursery.start_soon(self._keep_alive)
                        with self._writing:
                            await self._write()
                        nursery.cancel_scope.cancel()
                finally:
                    self.finish(EndKind.LOST, "its task ended")
                    for state in self.muxer.end():
                        if (stream := self._streams.get(state)) is not None:
                            stream.wake()
                    await self._close_bytes()
                    self._closed.set()
                    handlers.cancel_scope.deadline = trio.current_time() + GRACE_S

    async def _write(self) -> None:
        # A frame goes out whole, even if the call that queued it is cancelled.
        muxer = self.muxer
        try:
            while True:
                if self._unsent:
                    chunk, data = self._unsent, b""
                    self._unsent = b""
                else:
                    chunk = data = muxer.take()
                if not chunk:
                    if self.end is not None:
                        return
                    self._give_room()
                    await self._writer.sleep()
                    continue
                self._sending_since = trio.current_time()
                await self._byte_stream.send_all(data)
                self._sending_since = None
                self.counters.bytes_out += len(chunk)
                self._give_room()
        except Exception as error:
            self._on_broken(error)

    def _give_room(self) -> None:
        if self._is_room_wanted:
            self._is_room_wanted = False
            self._room.unpark_all()

    async def _read(self, handlers: trio.Nursery) -> None:
        try:
            while data := await self._byte_stream.receive_some():
                self.counters.bytes_in += len(data)
                self.received_at = self._clock()
                events = self.muxer.receive(data, self.received_at)
                if self._flushes is None:
                    self._take(events, handlers)
                else:
                    self._flushes.hold()
                    try:
                        self._take(events, handlers)
                    finally:
                        self._flushes.release()
                while self.muxer.is_behind:
                    await trio.lowlevel.checkpoint()
                    self._take(self.muxer.receive(b"", trio.current_time()), handlers)
            self.finish(EndKind.GONE, "the peer closed it")
        except RemoteProtocolError as error:
            note("peer broke the muxer's protocol", level=logging.WARNING, peer=self.peer, reason=str(error))
            self.finish(EndKind.VIOLATION, str(error))
        except Exception as error:
            self._on_broken(error)

    def _take(self, events: Sequence[MuxerEvent], handlers: trio.Nursery) -> None:
        for event in events:
            match event:
                case StreamChanged(state):
                    if (known := self._streams.get(state)) is not None:
                        known.wake()
                case Opened(state):
                    self.counters.streams_accepted += 1
                    stream = self._streams[state] = MuxedStream(self, state)
                    handlers.start_soon(self._serve_stream, stream)
                case GoneAway(code):
                    self.finish(EndKind.GONE, "the peer closed it" if code == 0 else f"the peer closed it with code {code}")
        if self.muxer.queued_bytes:
            self.wake_writer()

    async def _keep_alive(self) -> None:
        """Check now and then that the peer is alive. Its ping is as good a sign as an answer to ours, so only one side pings."""
        received, pinged_at = -1, -inf
        while True:
            now = trio.current_time()
            if self._sending_since is not None and now - self._sending_since >= SEND_S:
                self.finish(EndKind.SLOW, f"the peer read nothing for {SEND_S:.0f} s")
                return
            if self.muxer.ping_sent_at is not None and received == self.counters.bytes_in:
                self.finish(EndKind.LOST, f"no sign of life for {KEEP_ALIVE_S:.0f} s")
                return
            if received == self.counters.bytes_in or now - pinged_at >= ROUND_TRIP_S:
                pinged_at = now
                self.muxer.ping(now)
                self.wake_writer()
            received = self.counters.bytes_in
            # All connections check at the same moments, so that an idle process is seldom woken up.
            await trio.sleep_until(KEEP_ALIVE_S * ceil((now + KEEP_ALIVE_S - _LATE_S) / KEEP_ALIVE_S))

    async def _serve_stream(self, stream: MuxedStream) -> None:
        is_done = False
        try:
            protocol = await stream.answer(self._handlers, trio.current_time() + NEGOTIATION_S)
            handler = self._handlers.get(protocol)
            if handler is None:
                raise StreamReset(f"{protocol} is not served any more")
            await handler(self, stream)
            is_done = True
        except Exception as error:
            self._on_failed(stream, error)
        finally:
            if not is_done:
                stream.reset()
            stream.release()

    async def _close_bytes(self) -> None:
        with trio.CancelScope(deadline=trio.current_time() + CLOSE_S, shield=True):
            try:
                await self._byte_stream.aclose()
            except Exception as error:
                self._on_broken(error)

    def _on_broken(self, error: Exception) -> None:
        if not isinstance(error, (ClosedError, StreamReset)) and self.end is None:
            note("connection broke", level=logging.ERROR, error=error, peer=self.peer, reason=str(error))
        self.finish(EndKind.LOST, str(error))

    def _on_failed(self, stream: MuxedStream, error: Exception) -> None:
        if isinstance(error, StreamReset):
            level = logging.DEBUG
        elif isinstance(error, GossipLogError):
            # A peer that opens one stream of nonsense may open thousands.
            is_known = stream.protocol in self._warned
            self._warned.add(stream.protocol)
            level = logging.DEBUG if is_known else logging.INFO if isinstance(error, ProtocolNotSupported) else logging.WARNING
        else:
            level = logging.ERROR
        fault = error if level == logging.ERROR else None
        note("stream failed", level=level, error=fault, peer=self.peer, protocol=stream.protocol or None, reason=str(error))
