"""A connection that carries many streams: the muxer on a stream of bytes, with one task that reads and one that writes.

    async with open_muxed(bytes, is_client=True, peer=peer, handlers={"/canvas/v1/topic/sync": serve}) as connection:
        stream = await connection.open_stream(["/canvas/v1/topic/push"])
        …
        end = await connection.wait_ended()

The block is the connection's life: leaving it closes the connection. The other way round, a connection that ends raises nothing in the
block; `wait_ended` says when and why, and every call on its streams raises StreamReset. The handlers run in a nursery inside. They are
never cancelled while the connection lives, and have a second to end after it.
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
from .yamux.machine import GoneAway, MuxerEvent, Opened, StreamEnded, StreamReadable, StreamState, Writable, Yamux

KEEP_ALIVE_S = 30.0
"""How often a sign of life is looked for. Where there was none since the last time a ping asks for one, which has as long to come."""
_LATE_S = 1.0
"""By how much a busy process may miss such a moment."""
ROUND_TRIP_S = 300.0
"""How often a ping measures the round trip, whatever else comes."""
SEND_S = 60.0
"""Somebody who does not take 64 KiB within this time reads nothing; looked at every 30 s, as a deadline for each piece takes CPU."""
FLUSH_S = 2.0
"""For what is queued when the connection is closed."""
CLOSE_S = 2.0
GRACE_S = 1.0
"""For handlers, after the connection's end."""
OUTPUT_BYTES_MAX = 4 * 1024 * 1024
"""What may be queued for a slow reader, before the connection is dropped. Source: docs/spec/limits.md."""
NEGOTIATION_S = 20.0
"""For a stream's protocol. A round trip, but of a peer that may be a tab in the background or a machine short of processors; all that one
who never answers holds is one of its own 128 streams. js-libp2p gives 10 s."""


@dataclass(slots=True)
class MuxerCounters:
    """What a connection did so far.

    Attributes:
        bytes_in: Bytes that arrived, frames' headers and all.
        traffic: What streams carried, by protocol; under the empty name what agreeing on one took.
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
    """Speak yamux on a stream of bytes, which belongs to the connection from now on.

    Args:
        address: The remote IP address, without port.
        handlers: Serve the streams that the peer opens, by protocol; looked up anew for each stream.
        flushes: Run by the caller; writes what can be sent without waiting. By default the connection's own task writes all.
    """
    connection = MuxedConnection(byte_stream, is_client=is_client, peer=peer, address=address, handlers=handlers or {}, flushes=flushes)
    async with open_service_nursery() as nursery:
        nursery.start_soon(connection.serve)
        try:
            yield connection
        finally:
            await connection.aclose()


class MuxedConnection:
    """A `Connection`; made by `open_muxed`.

    Attributes:
        address: The remote IP address, without port; None where there is none.
        received_at: When something came last, in seconds.
        end: Why it ended; None while it lives.
    """

    def __init__(
        self,
        byte_stream: ByteStream,
        *,
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
        self._clock = trio.lowlevel.current_clock().current_time  # two calls less than `trio.current_time`
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
        self._unsent = b""  # what was handed to the byte stream, and did not go out at once
        self.end: ConnectionEnd | None = None
        self._ended = trio.Event()
        self._closed = trio.Event()

    @property
    def is_over(self) -> bool:
        """It has ended, or begun to, and all of its streams with it."""
        return self.end is not None

    @property
    def round_trip_s(self) -> float | None:
        """How long the last ping took, in seconds; None before the first was answered."""
        return self.muxer.round_trip_s

    @property
    def traffic(self) -> dict[str, Traffic]:
        """What its streams carried so far, by protocol."""
        return self.counters.traffic

    @property
    def streams(self) -> list[MuxedStream]:
        """The streams that are not over."""
        return list(self._streams.values())

    async def wait_ended(self) -> ConnectionEnd:
        """Wait until the connection has ended, however it does, and return why."""
        await self._ended.wait()
        assert self.end is not None
        return self.end

    async def open_stream(self, protocols: Sequence[str], *, is_lazy: bool = False) -> MuxedStream:
        """Open a stream and agree on the first of these protocols that the peer speaks.

        A call that is cancelled, or raises, leaves no stream behind.

        Args:
            is_lazy: As `Connection.open_stream`.

        Raises:
            ProtocolNotSupported: The peer speaks none of them.
            StreamReset: The connection, or the stream, ended meanwhile; or the peer did not answer within 20 s; or 128 streams of ours
                are open.
            RemoteProtocolError: The peer broke the negotiation.
            LocalProtocolError: There is no protocol, or one that is no name.
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
        """Close the connection: what was sent goes out, the peer is told, and the byte stream is closed, within 4 s.

        Closing twice does nothing. Being cancelled changes nothing.
        """
        with trio.CancelScope(shield=True):
            self.finish(EndKind.CLOSED, "closed by us")
            await self._closed.wait()
        await trio.lowlevel.checkpoint_if_cancelled()

    def finish(self, kind: EndKind, reason: str) -> None:
        """Begin to close without waiting, for this reason; a connection that has ended keeps the reason that it has."""
        if self.end is not None:
            return
        self.end = ConnectionEnd(kind, reason)
        self._ended.set()
        self.muxer.go_away(GO_AWAY_NORMAL)
        # A peer who reads nothing, or is gone, would only let us wait.
        patience = FLUSH_S if kind in (EndKind.CLOSED, EndKind.GONE, EndKind.VIOLATION) else 0
        self._writing.deadline = trio.current_time() + patience
        self._writer.wake()
        self._room.unpark_all()
        for stream in self.streams:
            stream.wake()

    # For its streams.

    def wake_writer(self) -> None:
        """Say that something is to be sent."""
        if self.muxer.queued_bytes > OUTPUT_BYTES_MAX:
            self.finish(EndKind.SLOW, f"more than {OUTPUT_BYTES_MAX} bytes wait for a peer that does not read")
        if self._flushes is None:
            self._writer.wake()
        else:
            self._flushes.add(self)

    def flush(self) -> None:
        """Send what is queued, as far as that needs no waiting; the writing task does the rest."""
        stream = self._prompt_stream
        if not self._writer.is_asleep or stream is None:
            # The writing task is at it.
            return
        if self.end is None and (chunk := self.muxer.take()):
            if stream.send_now(chunk):
                self.counters.bytes_out += len(chunk)
                if not (self.muxer.queued_bytes or self._is_room_wanted):
                    return
            else:
                self._unsent = chunk
        self._writer.wake()

    async def wait_for_room(self) -> None:
        """Wait until a part of what is queued was sent, or the connection has ended."""
        self._is_room_wanted = True
        await self._room.park()

    def forget(self, stream: StreamState) -> None:
        """Say that nothing will happen on a stream any more."""
        self._streams.pop(stream, None)

    def counted(self, protocol: str) -> Traffic:
        """Return where what streams of a protocol carry is counted."""
        return self.counters.traffic.setdefault(protocol, Traffic())

    # Its tasks.

    async def serve(self) -> None:
        """Run until the connection has ended. Not cancelled from outside: `finish` ends it, within 5 s."""
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
        # A frame goes out whole, whatever becomes of the call that it came from.
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
        """Wake those who wait for room in the queue."""
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
                case StreamReadable(state) | Writable(state) | StreamEnded(state):
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
        """Look now and then whether the peer is alive. Its ping tells that as well as an answer to ours, so that one side pings."""
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
            # All connections look at the same moments, so that a process that has nothing to do is seldom woken up.
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
            # A peer that sends one stream of nonsense may send thousands.
            is_known = stream.protocol in self._warned
            self._warned.add(stream.protocol)
            level = logging.DEBUG if is_known else logging.INFO if isinstance(error, ProtocolNotSupported) else logging.WARNING
        else:
            level = logging.ERROR
        fault = error if level == logging.ERROR else None
        note("stream failed", level=level, error=fault, peer=self.peer, protocol=stream.protocol or None, reason=str(error))
