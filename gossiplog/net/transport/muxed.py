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
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from math import ceil, inf
from typing import TypeAlias

import trio

from ...errors import ClosedError, GossipLogError, LocalProtocolError, ProtocolNotSupported, RemoteProtocolError, StreamReset
from ...pubsub.types import PeerId
from ...tasks.nursery import open_service_nursery
from ...tasks.sleeper import Sleeper
from ..ground.journal import note
from .flushes import Flushes
from .multistream import Offer, Proposal
from .stream import ByteStream
from .yamux.frames import GO_AWAY_NORMAL
from .yamux.machine import StreamState, Yamux

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
_PIECE_BYTES_MAX = 65_536
_AT_ONCE_BYTES_MAX = 65_536
"""Bytes that may be queued on the whole connection before `send_at_once` refuses: about what goes out in one piece."""

Handler: TypeAlias = "Callable[[Connection, Stream], Awaitable[None]]"
"""Serves one stream that the peer opened, in a task of its own. When it returns the stream ends; an exception resets only the stream."""


@dataclass(frozen=True, slots=True)
class PromptHandler:
    """A `Handler` that answers at once to bytes that came with the proposal of the protocol.

    The agreement on the protocol then goes out with that answer, which saves 16 bytes. If no bytes came, it goes out by itself.

    Attributes:
        is_deliberate: The agreement always waits for the handler's first bytes; if the handler raises before, the stream is reset instead.
    """

    handle: Handler
    is_deliberate: bool = False

    async def __call__(self, connection: Connection, stream: Stream) -> None:
        """Serve a stream."""
        await self.handle(connection, stream)


@dataclass(slots=True)
class Traffic:
    """Bytes that the streams of one protocol carried."""

    bytes_in: int = 0
    bytes_out: int = 0


@asynccontextmanager
async def open_muxed(
    byte_stream: ByteStream,
    *,
    is_client: bool,
    peer: PeerId,
    address: str | None = None,
    handlers: Mapping[str, Handler] | None = None,
    flushes: Flushes | None = None,
) -> AsyncIterator[Connection]:
    """Speak yamux on a byte stream, which belongs to the connection from now on.

    Args:
        address: The remote IP address, without port.
        handlers: Serve the streams that the peer opens, by protocol; looked up for each stream.
        flushes: Run by the caller; writes what can be sent without waiting. By default the connection's own task writes everything.
    """
    connection = Connection(byte_stream, is_client, peer, address, handlers or {}, flushes)
    async with open_service_nursery() as nursery:
        nursery.start_soon(connection.serve)
        try:
            yield connection
        finally:
            await connection.aclose()


class Connection:
    """A connection with one peer, carrying many streams; made by `open_muxed`.

    Attributes:
        is_outbound: Whether we dialled.
        address: The remote IP address, without port; None if there is none.
        received_at: When bytes arrived last, in seconds.
        end: Why it ended, for logs and people; None while it lives.
        bytes_in: Bytes that arrived, including the headers of frames.
        traffic: Bytes that streams carried, by protocol; the empty name counts negotiations.
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
        self.bytes_in = self.bytes_out = self.streams_opened = self.streams_accepted = 0
        self.traffic: dict[str, Traffic] = {}
        self._byte_stream = byte_stream
        self._flushes = flushes
        self._clock = trio.lowlevel.current_clock().current_time  # two calls fewer than `trio.current_time`
        self.received_at = 0.0
        self.is_outbound = is_client
        self.peer = peer
        self.address = address
        self._warned: set[str | None] = set()
        self._handlers = handlers
        self._streams: dict[StreamState, Stream] = {}
        self._writer = Sleeper()
        self._room = trio.lowlevel.ParkingLot()
        self._writing = trio.CancelScope()
        self._sending_since: float | None = None
        self._unsent = b""  # given to `send_now`, which could not send all of it
        self.end: str | None = None
        self._ended = trio.Event()
        self._closed = trio.Event()

    @property
    def is_over(self) -> bool:
        """Whether it has ended or begun to end, and all of its streams with it."""
        return self.end is not None

    @property
    def streams(self) -> list[Stream]:
        """The streams that are not over."""
        return list(self._streams.values())

    async def wait_ended(self) -> str:
        """Wait until the connection has ended, and return why."""
        await self._ended.wait()
        assert self.end is not None
        return self.end

    async def open_stream(self, protocols: Sequence[str], *, is_lazy: bool = False) -> Stream:
        """Open a stream and agree on the first of these protocols that the peer speaks.

        A call that is cancelled, or raises, leaves no stream behind.

        Args:
            is_lazy: Do not wait for the peer's answer, which saves a round trip: the first bytes go out with the proposal, and
                `receive_some` raises what this call would. Ignored unless there is exactly one protocol. Use it only for a protocol that
                the peer will hardly refuse: the reference takes the bytes after a refused protocol for another proposal.

        Raises:
            ProtocolNotSupported: The peer speaks none of them.
            StreamReset: The stream or the connection ended, the peer did not answer within 20 s, or 128 streams of ours are open.
            RemoteProtocolError: The peer broke the negotiation.
            LocalProtocolError: No protocol was given, or one of them cannot be a name.
        """
        proposal = Proposal(protocols)
        is_lazy = is_lazy and len(protocols) == 1
        state = self.muxer.open(trio.current_time(), is_lazy=is_lazy)
        self.streams_opened += 1
        stream = self._streams[state] = Stream(self, state)
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
            self.finish("closed by us")
            await self._closed.wait()
        await trio.lowlevel.checkpoint_if_cancelled()

    def finish(self, reason: str, *, is_lost: bool = False) -> None:
        """Begin to close, without waiting. A connection that has ended keeps its reason.

        Args:
            is_lost: It is no use to write the queue first: the peer reads nothing or is gone.
        """
        if self.end is not None:
            return
        self.end = reason
        self._ended.set()
        self.muxer.go_away(GO_AWAY_NORMAL)
        self._writing.deadline = trio.current_time() + (0 if is_lost else FLUSH_S)
        self._writer.wake()
        self._room.unpark_all()
        for stream in self.streams:
            stream.wake()

    # For its streams.

    def wake_writer(self) -> None:
        """Have the queue written."""
        if self.muxer.queued_bytes > OUTPUT_BYTES_MAX:
            self.finish(f"more than {OUTPUT_BYTES_MAX} bytes wait for a peer that does not read", is_lost=True)
        if self._flushes is None:
            self._writer.wake()
        else:
            self._flushes.add(self.flush)

    def flush(self) -> None:
        """Send as much of the queue as needs no waiting; the writing task does the rest."""
        if not self._writer.is_asleep:
            return  # The writing task is at work.
        if self.end is None and (chunk := self.muxer.take()):
            if self._byte_stream.send_now(chunk):
                self.bytes_out += len(chunk)
                if not (self.muxer.queued_bytes or self._room):
                    return
            else:
                self._unsent = chunk
        self._writer.wake()

    async def wait_for_room(self) -> None:
        """Wait until a part of the queue was sent, or the connection has ended."""
        await self._room.park()

    def forget(self, stream: StreamState) -> None:
        """Note that a stream is over."""
        self._streams.pop(stream, None)

    def counted(self, protocol: str) -> Traffic:
        """Return the counter of a protocol's streams."""
        return self.traffic.setdefault(protocol, Traffic())

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
                    self.finish("its task ended", is_lost=True)
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
                    self._room.unpark_all()
                    await self._writer.sleep()
                    continue
                self._sending_since = trio.current_time()
                await self._byte_stream.send_all(data)
                self._sending_since = None
                self.bytes_out += len(chunk)
                self._room.unpark_all()
        except Exception as error:
            self._on_broken(error)

    async def _read(self, handlers: trio.Nursery) -> None:
        try:
            while data := await self._byte_stream.receive_some():
                self.bytes_in += len(data)
                self.received_at = self._clock()
                changed = self.muxer.receive(data, self.received_at)
                if self._flushes is None:
                    self._take(changed, handlers)
                else:
                    self._flushes.hold()
                    try:
                        self._take(changed, handlers)
                    finally:
                        self._flushes.release()
                while self.muxer.is_behind:
                    await trio.lowlevel.checkpoint()
                    self._take(self.muxer.receive(b"", trio.current_time()), handlers)
            self.finish("the peer closed it")
        except RemoteProtocolError as error:
            note("peer broke the muxer's protocol", level=logging.WARNING, peer=self.peer, reason=str(error))
            self.finish(str(error))
        except Exception as error:
            self._on_broken(error)

    def _take(self, changed: Sequence[StreamState], handlers: trio.Nursery) -> None:
        for state in changed:
            if state.is_new:
                state.is_new = False
                self.streams_accepted += 1
                stream = self._streams[state] = Stream(self, state)
                handlers.start_soon(self._serve_stream, stream)
            elif (known := self._streams.get(state)) is not None:
                known.wake()
        if (code := self.muxer.goodbye) is not None:
            self.finish("the peer closed it" if code == 0 else f"the peer closed it with code {code}")
        if self.muxer.queued_bytes:
            self.wake_writer()

    async def _keep_alive(self) -> None:
        """Check now and then that the peer is alive. Its ping is as good a sign as an answer to ours, so only one side pings."""
        received, pinged_at = -1, -inf
        while True:
            now = trio.current_time()
            if self._sending_since is not None and now - self._sending_since >= SEND_S:
                self.finish(f"the peer read nothing for {SEND_S:.0f} s", is_lost=True)
                return
            if self.muxer.ping_sent_at is not None and received == self.bytes_in:
                self.finish(f"no sign of life for {KEEP_ALIVE_S:.0f} s", is_lost=True)
                return
            if received == self.bytes_in or now - pinged_at >= ROUND_TRIP_S:
                pinged_at = now
                self.muxer.ping(now)
                self.wake_writer()
            received = self.bytes_in
            # All connections check at the same moments, so that an idle process is seldom woken up.
            await trio.sleep_until(KEEP_ALIVE_S * ceil((now + KEEP_ALIVE_S - _LATE_S) / KEEP_ALIVE_S))

    async def _serve_stream(self, stream: Stream) -> None:
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
        self.finish(str(error), is_lost=True)

    def _on_failed(self, stream: Stream, error: Exception) -> None:
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


class Stream:
    """One stream of a connection; made by `Connection.open_stream` or for a handler. One task may read while another writes.

    Each side closes its half. Cancelling a call harms neither the stream nor the connection.

    Attributes:
        protocol: The protocol that was negotiated, or proposed lazily; empty before.
    """

    def __init__(self, connection: Connection, state: StreamState) -> None:
        self._connection = connection
        self._muxer = connection.muxer
        self._state = state
        self._changed = trio.lowlevel.ParkingLot()
        self._proposal: Proposal | None = None
        self._deadline = 0.0
        self._held = b""  # a message of the negotiation; it goes out with the next bytes, or before we wait for the peer
        self._take: Callable[[bytes], bool] | None = None
        self._taken: Exception | bool | None = None
        self._is_sending = False
        self._is_receiving = False
        self.protocol = ""
        self._traffic = connection.counted("")

    async def send_all(self, data: bytes) -> None:
        """Send all of it, waiting for the peer's window. A cancelled call may have sent a part.

        Raises:
            ClosedError: We closed our side.
            StreamReset: The peer reset the stream, or the connection is gone.
            LocalProtocolError: Another task is sending.
        """
        if self._is_sending:
            raise LocalProtocolError("another task is sending on this stream")
        self._is_sending = True
        try:
            await trio.lowlevel.checkpoint_if_cancelled()
            rest = memoryview(data if isinstance(data, bytes) else bytes(data))
            while True:
                sent = self._write(rest)
                rest = rest[sent:]
                if not rest and not self._held:
                    # Other tasks get their turn only after the write.
                    await trio.lowlevel.cancel_shielded_checkpoint()
                    return
                if self._state.send_window == 0:
                    await self._changed.park()
                else:
                    await self._connection.wait_for_room()
        finally:
            self._is_sending = False

    def send_at_once(self, data: bytes) -> bool:
        """Send all of it if little is queued and nothing has to be waited for; otherwise send nothing and return False."""
        muxer = self._muxer
        has_room = not (self._is_sending or self._held) and muxer.queued_bytes + len(data) <= _AT_ONCE_BYTES_MAX
        if not has_room or not muxer.write_whole(self._state, data):
            return False
        self._traffic.bytes_out += len(data)
        self._connection.wake_writer()
        return True

    async def receive_some(self, bytes_max: int = _PIECE_BYTES_MAX) -> bytes:
        """Receive 1 to `bytes_max` bytes; `b""` once the peer closed its side and everything was read.

        Raises:
            StreamReset: As `send_all`, once the bytes before the reset were received.
            ProtocolNotSupported, RemoteProtocolError: As `open_stream`, where it was lazy.
            LocalProtocolError: Another task is receiving.
        """
        self._begin_receiving()
        try:
            if self._proposal is not None:
                await self._conclude(self._proposal)
            if self._state.buffer or self._state.is_over or self._state.is_finished_receiving:
                # There is nothing to wait for, but other tasks get their turn.
                await trio.lowlevel.checkpoint()
            return await self._receive(bytes_max)
        finally:
            self._is_receiving = False

    async def hand_on(self, take: Callable[[bytes], bool]) -> bool:
        """Hand bytes to a function in the step in which they arrive, until it wants no more or the stream ends.

        Waking a task for each small piece would take more CPU than most pieces do.

        Args:
            take: Takes 1 to 65,536 bytes without waiting, and returns whether it wants more. Its exceptions are raised here.

        Returns:
            Whether more may come; False once the peer closed its side and everything was taken. Raises as `receive_some`.
        """
        self._begin_receiving()
        try:
            if self._proposal is not None:
                await self._conclude(self._proposal)
            while True:
                await trio.lowlevel.checkpoint()
                if data := self._read(_PIECE_BYTES_MAX):
                    if not take(data):
                        return True
                elif self._state.is_finished_receiving:
                    return False
                else:
                    self._say_held()
                    self._take, self._taken = take, None
                    await self._changed.park()
                    self._take = None
                    if isinstance(self._taken, Exception):
                        raise self._taken
                    if self._taken is False:
                        return True
        finally:
            self._take = self._taken = None
            self._is_receiving = False

    def close_sending(self) -> None:
        """Close our side after everything that was sent; the peer reads the end. Closing twice does nothing."""
        self._say_held()
        self._muxer.close(self._state)
        self._touched()

    def reset(self) -> None:
        """End both directions at once; the peer's calls raise. Does nothing to a stream that is over."""
        self._held = b""
        self._muxer.reset(self._state)
        self._touched()
        self.wake()

    # For its connection.

    def wake(self) -> None:
        """Note that bytes, window or the end came."""
        if self._take is not None and self._taken is None and self._hand_over(self._take):
            return
        self._changed.unpark_all()
        if self._state.is_over:
            self._connection.forget(self._state)

    def _hand_over(self, take: Callable[[bytes], bool]) -> bool:
        """Hand over what has arrived, in the step in which it came; return whether no task needs to wake up."""
        state = self._state
        if state.buffer:
            try:
                self._taken = take(self._read(_PIECE_BYTES_MAX, self._connection.received_at))
            except Exception as error:
                # The task that waits in `hand_on` raises it, not the connection's.
                self._taken = error
            if self._taken is not True:
                return False
            self._taken = None
        return not (state.buffer or state.is_reset or state.is_finished_receiving or self._is_sending)

    def release(self) -> None:
        """Note that the stream's handler has ended."""
        self._say_held()
        self._muxer.release(self._state)
        self._touched()

    async def propose(self, proposal: Proposal, deadline: float, *, is_lazy: bool) -> None:
        """Negotiate a stream that we opened. If lazy, only propose."""
        self._deadline = deadline
        self._proposal = proposal
        if is_lazy:
            self._held = proposal.start()
            self._agree(proposal.first)
            await trio.lowlevel.checkpoint()
        else:
            await self.send_all(proposal.start())
            await self._conclude(proposal)

    async def answer(self, handlers: Mapping[str, Handler], deadline: float) -> str:
        """Negotiate a stream that the peer opened."""
        offer, rest = Offer(handlers), b""
        with trio.CancelScope(deadline=deadline) as scope:
            try:
                while offer.protocol is None:
                    answer = offer.receive(await self._receive_line())
                    if offer.protocol is not None:
                        rest = offer.take_rest()
                        handler = handlers[offer.protocol]
                        waits = isinstance(handler, PromptHandler) and (rest or handler.is_deliberate)
                        self._held = answer if waits else b""
                    if answer and not self._held:
                        await self.send_all(answer)
            except (StreamReset, RemoteProtocolError):
                if offer.refused is None:
                    raise
                raise ProtocolNotSupported(f"the peer asked for {offer.refused[:160]!r}, which is not served here") from None
        if scope.cancelled_caught or offer.protocol is None:
            raise RemoteProtocolError("no protocol was agreed on in time", peer=self._connection.peer)
        self._agree(offer.protocol, rest)
        return offer.protocol

    def _begin_receiving(self) -> None:
        if self._is_receiving:
            raise LocalProtocolError("another task is receiving on this stream")
        self._is_receiving = True

    async def _conclude(self, proposal: Proposal) -> None:
        with trio.CancelScope(deadline=self._deadline) as scope:
            while proposal.protocol is None:
                data = await self._receive_line()
                try:
                    answer = proposal.receive(data)
                except (ProtocolNotSupported, RemoteProtocolError):
                    self.reset()
                    raise
                if answer:
                    await self.send_all(answer)
        if scope.cancelled_caught:
            self.reset()
            raise StreamReset("the peer did not answer the proposal of a protocol in time")
        self._proposal = None
        self._agree(proposal.protocol or "", proposal.take_rest())

    async def _receive_line(self) -> bytes:
        if not (data := await self._receive(4096)):
            raise RemoteProtocolError("the stream ended during its negotiation", peer=self._connection.peer)
        return data

    def _agree(self, protocol: str, early: bytes = b"") -> None:
        """Note the protocol, and the bytes that came after the agreement in the same piece."""
        self.protocol = protocol
        self._muxer.put_back(self._state, early)
        self._traffic.bytes_in -= len(early)
        self._traffic = self._connection.counted(protocol)

    async def _receive(self, bytes_max: int) -> bytes:
        while not (data := self._read(bytes_max)) and not self._state.is_finished_receiving:
            self._say_held()
            await self._changed.park()
        return data

    def _read(self, bytes_max: int, now: float | None = None) -> bytes:
        data = self._muxer.read(self._state, bytes_max, trio.current_time() if now is None else now)
        if data:
            self._traffic.bytes_in += len(data)
            if self._muxer.queued_bytes:
                self._connection.wake_writer()
        return data

    def _write(self, data: memoryview) -> int:
        """Queue what was held back, then as much of the data as there is room for; return how many bytes of the data."""
        held = len(self._held)
        sent = self._muxer.write(self._state, memoryview(self._held + data) if held else data)
        self._connection.wake_writer()
        if held:
            self._connection.counted("").bytes_out += min(sent, held)
            self._held, sent = self._held[sent:], max(sent - held, 0)
        self._traffic.bytes_out += sent
        return sent

    def _say_held(self) -> None:
        """Send what was held back, if anything can still be sent."""
        if self._held and not (self._state.is_over or self._state.is_finished_sending or self._muxer.is_leaving):
            self._write(memoryview(b""))

    def _touched(self) -> None:
        self._connection.wake_writer()
        if self._state.is_over:
            self._connection.forget(self._state)


@asynccontextmanager
async def opened_stream(connection: Connection, protocols: Sequence[str]) -> AsyncIterator[Stream]:
    """Open a stream for the length of a block. The end of the block closes our side; a block that raises or is cancelled resets it.

    Raises:
        GossipLogError: As `Connection.open_stream`.
    """
    stream = await connection.open_stream(protocols)
    try:
        yield stream
    except BaseException:
        stream.reset()
        raise
    stream.close_sending()
