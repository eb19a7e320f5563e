"""The muxer: bytes in, events out; calls in, bytes out; and the state of each of its streams. No clock, no task, no lock.

Other machines of ours have `handle` as their only door. Here a door for each call spares an object for each of many small frames.

Source: docs/spec/sync.md, "Mode A"; the yamux specification; on the wire as `@chainsafe/libp2p-yamux` 7.0.4, for which data and FIN must
not share a frame.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TypeAlias

from ....errors import ClosedError, DecodeError, RemoteProtocolError, StreamReset
from .frames import BODY_BYTES_MAX, GO_AWAY_VIOLATION, HEADER_BYTES, Flags, FrameKind, Header, decode_header, encode_header, peek_header

STREAMS_MAX = 128
"""Streams that the peer opened, and as many that we did."""
QUEUE_BYTES = 256 * 1024
"""Data waits with its owner while this much is queued. Frames without data are queued always."""
GROWTH_BYTES = 8 * 1024 * 1024
"""What the windows of all streams together may hold beyond the 256 KiB that each has."""
UNREAD_BYTES_MAX = 16 * 1024 * 1024
"""Unread bytes of all streams that the peer opened. The stream that goes beyond is reset: else 128 windows could be filled."""
OPENED_WINDOW_BYTES = 1024 * 1024
"""The window of a stream that we open, unless lazily: it is us who want the answers, and a response of a sync has up to 1 MiB."""
FRAMES_A_TURN = 512
"""How many frames `receive` takes at once: a chunk full of headers is thousands of them, for which others should not have to wait."""


WINDOW_BYTES = 256 * 1024
"""What each side may send at first, by the specification."""
WINDOW_BYTES_MAX = 4 * 1024 * 1024
"""How far a stream's receive window grows: 40 MiB/s over a round trip of 100 ms."""


@dataclass(slots=True, eq=False, repr=False)
class StreamState:
    """One stream as the muxer knows it; only the muxer changes it.

    Unread bytes and what the peer may still send are together never more than the window, so a stream holds no more than that.

    Attributes:
        id: 1 … 2^32 − 1, odd for those that the client opened.
        buffer: What arrived and was not read.
        window: Bytes that we hold for it at most.
        credit: Bytes that the peer may still send.
        send_window: Bytes that we may still send.
        granted_at: When the peer was last given credit.
        is_announced: A frame of ours has said that we opened it, or that we took one that the peer opened.
        is_reset: Either side reset it, or the connection ended before the peer closed its side. What the peer sent before can be read.
        is_released: Its owner is done with it; what arrives is thrown away.
    """

    id: int
    is_inbound: bool
    granted_at: float
    buffer: bytearray = field(default_factory=bytearray)
    window: int = WINDOW_BYTES
    credit: int = WINDOW_BYTES
    send_window: int = WINDOW_BYTES
    is_announced: bool = False
    is_finished_sending: bool = False
    is_finished_receiving: bool = False
    is_reset: bool = False
    is_released: bool = False

    @property
    def is_over(self) -> bool:
        """Nothing more will be sent or arrive; there may be bytes to read."""
        return self.is_reset or (self.is_finished_sending and self.is_finished_receiving)

    def __repr__(self) -> str:
        return f"<stream {self.id}{' reset' if self.is_reset else ''}>"


@dataclass(frozen=True, slots=True)
class Opened:
    """The peer opened a stream. It keeps one of the places until `Yamux.release`, whatever becomes of it."""

    stream: StreamState


@dataclass(slots=True)
class StreamReadable:
    """Bytes arrived, or the end. May come several times for the same ones. Not frozen for speed: there is one for nearly every frame."""

    stream: StreamState


@dataclass(frozen=True, slots=True)
class Writable:
    """The peer's window has grown."""

    stream: StreamState


@dataclass(frozen=True, slots=True)
class StreamEnded:
    """The stream was reset, by the peer or for what the peer did."""

    stream: StreamState


@dataclass(frozen=True, slots=True)
class GoneAway:
    """The peer ends the connection.

    Attributes:
        code: 0 when nothing is wrong, 1 when it thinks that we broke the protocol, 2 for its own fault.
    """

    code: int


MuxerEvent: TypeAlias = Opened | StreamReadable | Writable | StreamEnded | GoneAway


_ID_MAX = 2**32 - 1
# As plain integers, which are tested ten times as fast as flags.
_SYN, _ACK, _FIN, _RST = (int(flag) for flag in Flags)
_DATA = int(FrameKind.DATA)
_RAPID_ROUND_TRIPS = 4
"""A reader that empties half of its window within this many round trips gets twice the window, as in the reference."""


class Yamux:
    """One side of one connection.

    Everything that a peer can fill has an end: a stream's buffer at its window, streams at `streams_max`, the rest of the output at what
    the driver drops the connection for (`queued_bytes`).

    Args:
        is_client: We dialled; our streams have odd ids.

    Attributes:
        streams_max: How many streams either side may have opened.
        round_trip_s: How long the last ping took, in seconds; None before.
        ping_sent_at: When the ping that is unanswered was sent; None without one.
        is_leaving: Either side said that it goes, or broke the protocol: no stream is opened any more.
    """

    def __init__(self, *, is_client: bool) -> None:
        self._is_client = is_client
        self._next_id = 1 if is_client else 2
        self._streams: dict[int, StreamState] = {}
        self.streams_max = STREAMS_MAX
        # Streams that count against that, by who opened them.
        self._inbound = 0
        self._outbound = 0
        # What all windows together may still grow by, and what may still arrive on streams that are gone.
        self._growth_left = GROWTH_BYTES
        self._discard_left = 0
        # Unread bytes of all streams that the peer opened.
        self._unread = 0
        # Frames and bodies to send, in order.
        self._queue: deque[bytes | memoryview] = deque()
        # What was received and is not taken in: the beginning of a header, or all that is left of a turn.
        self._partial = b""
        # The frame whose body is arriving: its stream (None: the bytes are thrown away), what is to come, and whether the frame ends it.
        self._body_stream: StreamState | None = None
        self._body_left = 0
        self._is_body_last = False
        # The value of the ping that is under way, or of the next.
        self._pings = 0
        self._is_ended = False
        self.queued_bytes = 0
        self.round_trip_s: float | None = None
        self.ping_sent_at: float | None = None
        self.is_leaving = False

    @property
    def streams(self) -> list[StreamState]:
        """The streams on which something may still arrive or be sent, in the order of their opening."""
        return list(self._streams.values())

    @property
    def is_behind(self) -> bool:
        """Whether `receive` holds more than it has taken in: it takes 512 frames at once."""
        return len(self._partial) >= HEADER_BYTES

    # What the driver does with streams.

    def open(self, now: float, *, is_lazy: bool = False) -> StreamState:
        """Open a stream; it may be written to at once.

        Args:
            is_lazy: Announce it by the first frame with something in it, which takes 12 bytes less; its window grows only once much
                is read.

        Raises:
            StreamReset: The connection ends, or has as many streams of ours as it may.
        """
        if self.is_leaving or self._is_ended:
            raise StreamReset("the connection is at its end")
        if self._outbound >= self.streams_max or self._next_id > _ID_MAX:
            raise StreamReset(f"{self._outbound} streams of ours are open, at most {self.streams_max} are allowed")
        stream = self._streams[self._next_id] = StreamState(self._next_id, False, now)
        self._next_id += 2
        self._outbound += 1
        if not is_lazy:
            self._grow(stream, OPENED_WINDOW_BYTES)
            stream.credit = stream.window
            self._send(FrameKind.WINDOW, self._announcement(stream), stream.id, stream.window - WINDOW_BYTES)
        return stream

    def write(self, stream: StreamState, data: memoryview) -> int:
        """Queue as much of it as the peer's window and the queue have room for; return how many bytes.

        The bytes are not copied: they must not change.

        Raises:
            ClosedError: We closed our side.
            StreamReset: The stream was reset, or the connection is at its end.
        """
        if stream.is_reset or self.is_leaving:
            raise StreamReset(f"stream {stream.id} was reset" if stream.is_reset else "the connection is at its end")
        if stream.is_finished_sending:
            raise ClosedError(f"our side of stream {stream.id} is closed")
        size = min(len(data), stream.send_window, max(QUEUE_BYTES - self.queued_bytes, 0))
        for start in range(0, size, BODY_BYTES_MAX):
            end = min(start + BODY_BYTES_MAX, size)
            self._send(FrameKind.DATA, 0 if stream.is_announced else self._announcement(stream), stream.id, end - start)
            self._queue.append(data[start:end])
        self.queued_bytes += size
        stream.send_window -= size
        return size

    def write_whole(self, stream: StreamState, data: bytes) -> bool:
        """Queue all of it in one frame, as a hub does for each of its clients; False, and nothing, if there is no room in the window."""
        size = len(data)
        if size > stream.send_window or size > BODY_BYTES_MAX or stream.is_reset or stream.is_finished_sending or self.is_leaving:
            return False
        self._queue.append(encode_header(_DATA, 0 if stream.is_announced else self._announcement(stream), stream.id, size) + data)
        self.queued_bytes += HEADER_BYTES + size
        stream.send_window -= size
        return True

    def read(self, stream: StreamState, bytes_max: int, now: float) -> bytes:
        """Take up to `bytes_max` bytes that arrived; `b""` when none are there. What is read may be sent anew.

        Raises:
            StreamReset: The stream was reset, and what came before that was read.
        """
        if stream.is_reset and not stream.buffer:
            raise StreamReset(f"stream {stream.id} was reset")
        buffer = stream.buffer
        if len(buffer) <= bytes_max:
            data = bytes(buffer)
            # A new one gives its memory back; a cleared one keeps it until the stream ends.
            stream.buffer = bytearray()
        else:
            data = bytes(memoryview(buffer)[:bytes_max])
            del buffer[:bytes_max]
        if stream.is_inbound:
            self._unread -= len(data)
        # Credit for what was read is given once it is half of the window.
        is_due = 2 * (stream.window - stream.credit - len(stream.buffer)) >= stream.window
        if is_due and data and not stream.is_finished_receiving and not stream.is_reset and not self._is_ended:
            self._grant(stream, now)
        return data

    def close(self, stream: StreamState) -> None:
        """Close our side, after what was written."""
        if not stream.is_finished_sending and not stream.is_reset and not self._is_ended:
            stream.is_finished_sending = True
            self._send(FrameKind.WINDOW, Flags.FIN | self._announcement(stream), stream.id, 0)
            self._settle(stream)

    def reset(self, stream: StreamState) -> None:
        """End both sides and drop what was not read; a stream that is over loses only that."""
        if not stream.is_over and not self._is_ended:
            if stream.is_announced or stream.is_inbound:
                self._send(FrameKind.WINDOW, Flags.RST, stream.id, 0)
            self._end(stream)
        self._drop_unread(stream)

    def release(self, stream: StreamState) -> None:
        """Say that the owner of a stream that the peer opened is done: close it, and give its place to the next one.

        Until the peer closes its side too, what it sends is thrown away, up to the window: an answer of ours that is under way is not
        destroyed by a reset, and a peer that goes on is told by one.
        """
        if stream.is_released:
            return
        self.close(stream)
        stream.is_released = True
        self._drop_unread(stream)
        if stream.is_over and stream.is_inbound:
            self._inbound -= 1

    # What the driver does with the connection.

    def ping(self, now: float) -> None:
        """Ask for a sign of life, unless one is awaited."""
        if self.ping_sent_at is None and not self._is_ended:
            self._send(FrameKind.PING, Flags.SYN, 0, self._pings)
            self.ping_sent_at = now

    def go_away(self, code: int) -> None:
        """Close our side of every stream and say that the connection ends. What was queued before goes out before."""
        if self.is_leaving or self._is_ended:
            return
        for stream in self.streams:
            self.close(stream)
        self.is_leaving = True
        self._send(FrameKind.GO_AWAY, 0, 0, code)

    def end(self) -> list[StreamState]:
        """Say that nothing will be sent or arrive any more; return the streams that were alive.

        All can be read as far as they have come. Those that the peer had closed end there, the others are reset.
        """
        self._is_ended = self.is_leaving = True
        ended = self.streams
        for stream in ended:
            if stream.is_finished_receiving:
                stream.is_finished_sending = True
                self._settle(stream)
            else:
                self._end(stream)
        return ended

    def take(self, bytes_max: int = BODY_BYTES_MAX) -> bytes:
        """Take what is to be sent next: whole frames, `bytes_max` bytes or just over; `b""` when there is nothing."""
        if self.queued_bytes <= bytes_max:
            taken = b"".join(self._queue)
            self._queue.clear()
            self.queued_bytes = 0
            return taken
        pieces, size = list[bytes | memoryview](), 0
        while self._queue and size < bytes_max:
            pieces.append(self._queue.popleft())
            size += len(pieces[-1])
        if isinstance(pieces[-1], bytes) and self._queue and isinstance(self._queue[0], memoryview):
            pieces.append(self._queue.popleft())
            size += len(pieces[-1])
        self.queued_bytes -= size
        return b"".join(pieces)

    # What arrives.

    def receive(self, data: bytes, now: float) -> list[MuxerEvent]:
        """Take bytes as they come, cut anywhere; while `is_behind`, call it with none for the rest.

        Raises:
            RemoteProtocolError: The peer broke the protocol. The connection is to be closed once what is queued, which says so, was
                sent; what the same bytes did before stays done, without its events.
        """
        if not (self._partial or self._body_left) and (stream := self._take_usual(data)) is not None:
            return [StreamReadable(stream)]
        events: list[MuxerEvent] = []
        if self._partial:
            data, self._partial = self._partial + data, b""
        view = memoryview(data)
        start, size, frames = 0, len(data), 0
        while start < size:
            if self._body_left:
                end = min(start + self._body_left, size)
                self._on_body(view[start:end], events)
                start = end
            elif size - start < HEADER_BYTES or frames == FRAMES_A_TURN:
                self._partial = data[start:]
                break
            else:
                frames += 1
                try:
                    header = decode_header(data, start)
                except DecodeError as error:
                    raise self._violation(str(error)) from None
                start += HEADER_BYTES
                self._on_header(header, events, now)
        return events

    def _take_usual(self, data: bytes) -> StreamState | None:
        """Take what nearly always comes: one whole frame of data that does nothing to its stream. Return that, or None for all else."""
        size = len(data) - HEADER_BYTES
        if not 0 < size <= UNREAD_BYTES_MAX - self._unread:
            return None
        kind_and_flags, id, length = peek_header(data)
        stream = None if kind_and_flags or length != size else self._streams.get(id)
        if stream is None or size > stream.credit or stream.is_finished_receiving or stream.is_reset or stream.is_released:
            return None
        stream.credit -= size
        stream.buffer += memoryview(data)[HEADER_BYTES:]
        if stream.is_inbound:
            self._unread += size
        return stream

    def _on_header(self, header: Header, events: list[MuxerEvent], now: float) -> None:
        if header.kind == FrameKind.PING:
            self._on_ping(header, now)
            return
        if header.kind == FrameKind.GO_AWAY:
            self.is_leaving = True
            events.append(GoneAway(header.length))
            return
        stream = self._streams.get(header.stream)
        if header.flags & _SYN:
            if stream is not None:
                raise self._violation(f"stream {header.stream} was opened twice")
            stream = self._on_open(header, events, now)
        is_data = header.kind == _DATA
        if is_data:
            self._body_left = header.length
            self._body_stream = None
        if stream is None:
            self._on_data_for_nobody(header)
            return
        if header.flags & _RST:
            self._end(stream)
            self._on_data_for_nobody(header)
            events.append(StreamEnded(stream))
            return
        is_last = bool(header.flags & _FIN)
        if is_data and header.length:
            self._on_data(stream, header.length)
            self._is_body_last = is_last
        elif is_last:
            self._on_end_of_data(stream, events)
        if not is_data and header.length and not stream.is_reset:
            stream.send_window += header.length
            events.append(Writable(stream))

    def _on_ping(self, header: Header, now: float) -> None:
        if header.flags & _SYN:
            self._send(FrameKind.PING, Flags.ACK, 0, header.length)
        elif header.flags & _ACK and self.ping_sent_at is not None and header.length == self._pings:
            self.round_trip_s = now - self.ping_sent_at
            self.ping_sent_at = None
            self._pings = (self._pings + 1) & _ID_MAX

    def _on_open(self, header: Header, events: list[MuxerEvent], now: float) -> StreamState | None:
        if (header.stream % 2 == 0) != self._is_client:
            raise self._violation(f"stream {header.stream} was opened with an id of ours")
        if self._inbound >= self.streams_max or self.is_leaving:
            self._send(FrameKind.WINDOW, Flags.RST, header.stream, 0)
            self._discard_left += WINDOW_BYTES
            return None
        stream = self._streams[header.stream] = StreamState(header.stream, True, now)
        self._inbound += 1
        events.append(Opened(stream))
        return stream

    def _on_data(self, stream: StreamState, length: int) -> None:
        if stream.is_finished_receiving:
            raise self._violation(f"data on stream {stream.id} after its end")
        if length > stream.credit:
            raise self._violation(f"{length} bytes on stream {stream.id}, which had room for {stream.credit}")
        self._body_stream = stream

    def _on_data_for_nobody(self, header: Header) -> None:
        """Let pass what may still have been under way when its stream ended: no more than the peer had credit for."""
        if header.kind == FrameKind.DATA:
            self._discard_left -= header.length
            if self._discard_left < 0:
                raise self._violation(f"{header.length} bytes on stream {header.stream}, which is not open")

    def _on_body(self, piece: memoryview, events: list[MuxerEvent]) -> None:
        self._body_left -= len(piece)
        stream = self._body_stream
        if stream is None or stream.is_reset:
            return
        stream.credit -= len(piece)
        if not stream.is_released:
            stream.buffer += piece
            events.append(StreamReadable(stream))
            if stream.is_inbound:
                self._unread += len(piece)
        if self._unread > UNREAD_BYTES_MAX or (stream.is_released and stream.credit == 0):
            self.reset(stream)
            events.append(StreamEnded(stream))
            return
        if self._body_left == 0:
            self._body_stream = None
            if self._is_body_last:
                self._on_end_of_data(stream, events)

    def _on_end_of_data(self, stream: StreamState, events: list[MuxerEvent]) -> None:
        if not stream.is_finished_receiving:
            stream.is_finished_receiving = True
            self._settle(stream)
            events.append(StreamReadable(stream))

    # The rest.

    def _announcement(self, stream: StreamState) -> int:
        """The flag that our first frame on a stream carries, be it ours or the peer's: a frame of its own for it would cost 12 bytes."""
        if stream.is_announced:
            return 0
        stream.is_announced = True
        return _ACK if stream.is_inbound else _SYN

    def _grant(self, stream: StreamState, now: float) -> None:
        """Give credit for what was read, and a larger window to a reader who keeps up with the line."""
        if self.round_trip_s is not None and now - stream.granted_at < _RAPID_ROUND_TRIPS * self.round_trip_s:
            self._grow(stream, stream.window * 2)
        free = stream.window - stream.credit - len(stream.buffer)
        stream.credit += free
        stream.granted_at = now
        self._send(FrameKind.WINDOW, self._announcement(stream), stream.id, free)

    def _grow(self, stream: StreamState, window: int) -> None:
        growth = min(min(window, WINDOW_BYTES_MAX) - stream.window, self._growth_left)
        stream.window += growth
        self._growth_left -= growth

    def _settle(self, stream: StreamState) -> None:
        if stream.is_over and self._streams.pop(stream.id, None) is not None:
            self._growth_left += stream.window - WINDOW_BYTES
            self._discard_left += stream.credit
            if not stream.is_inbound:
                self._outbound -= 1
            elif stream.is_released:
                self._inbound -= 1

    def _end(self, stream: StreamState) -> None:
        """Reset a stream. What came before is kept for its owner: an answer is none the worse for what its sender did afterwards."""
        stream.is_reset = True
        self._settle(stream)

    def _drop_unread(self, stream: StreamState) -> None:
        if stream.is_inbound:
            self._unread -= len(stream.buffer)
        stream.buffer = bytearray()

    def _send(self, kind: FrameKind, flags: int, stream_id: int, length: int) -> None:
        self._queue.append(encode_header(kind, flags, stream_id, length))
        self.queued_bytes += HEADER_BYTES

    def _violation(self, message: str) -> RemoteProtocolError:
        self.go_away(GO_AWAY_VIOLATION)
        return RemoteProtocolError(message)
