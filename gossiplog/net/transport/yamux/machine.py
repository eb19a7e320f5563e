"""The muxer: bytes in, changed streams out; calls in, bytes out; and the state of each stream. No clock, no task, no lock.

Other machines of this project have a single method, `handle`. Here a method for each call saves an object for each of many small frames.

Source: docs/spec/sync.md, "Mode A"; the yamux specification. The bytes are those of `@chainsafe/libp2p-yamux` 7.0.4, for which data and FIN
must not share a frame.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from ....errors import ClosedError, DecodeError, RemoteProtocolError, StreamReset
from .frames import BODY_BYTES_MAX, GO_AWAY_VIOLATION, HEADER_BYTES, Flags, FrameKind, Header, decode_header, encode_header

STREAMS_MAX = 128
"""How many streams each side may have open."""
QUEUE_BYTES = 256 * 1024
"""While this much is queued, data waits with its owner. Frames without data are always queued."""
GROWTH_BYTES = 8 * 1024 * 1024
"""How much the windows of all streams together may grow beyond the 256 KiB that each has."""
UNREAD_BYTES_MAX = 16 * 1024 * 1024
"""Unread bytes of all streams that the peer opened. A stream that exceeds it is reset; otherwise a peer could fill 128 windows."""
OPENED_WINDOW_BYTES = 1024 * 1024
"""The window of a stream that we open, unless lazily: we want its answers, and a response of a sync has up to 1 MiB."""
FRAMES_A_TURN = 512
"""How many frames `receive` takes at once: one chunk may hold thousands of headers, and other tasks should not wait for all of them."""
WINDOW_BYTES = 256 * 1024
"""The initial window of each side, by the specification."""
WINDOW_BYTES_MAX = 4 * 1024 * 1024
"""How far a stream's receive window grows: enough for 40 MiB/s over a round trip of 100 ms."""


@dataclass(slots=True, eq=False, repr=False)
class StreamState:
    """The state of one stream. Only the muxer changes it, but for `is_new`.

    Unread bytes and credit together never exceed the window, which therefore bounds the stream's memory.

    Attributes:
        id: 1 … 2^32 − 1, odd if the client opened the stream.
        buffer: Bytes that arrived and were not read.
        window: How many bytes we hold at most.
        credit: How many bytes the peer may still send.
        send_window: How many bytes we may still send.
        granted_at: When the peer was last given credit.
        is_new: The peer opened it, and its owner has not seen it. It has one of the places until `Yamux.release`, even if it ends before.
        is_announced: A frame of ours has carried the flag that opens the stream, or accepts the peer's.
        is_reset: Either side reset it, or the connection ended before the peer closed its side. Earlier bytes can still be read.
        is_released: Its owner is done with it; bytes that arrive are discarded.
    """

    id: int
    is_inbound: bool
    granted_at: float
    buffer: bytearray = field(default_factory=bytearray)
    window: int = WINDOW_BYTES
    credit: int = WINDOW_BYTES
    send_window: int = WINDOW_BYTES
    is_new: bool = False
    is_announced: bool = False
    is_finished_sending: bool = False
    is_finished_receiving: bool = False
    is_reset: bool = False
    is_released: bool = False

    @property
    def is_over(self) -> bool:
        """Whether nothing more will be sent or arrive. There may be bytes to read."""
        return self.is_reset or (self.is_finished_sending and self.is_finished_receiving)

    def __repr__(self) -> str:
        return f"<stream {self.id}{' reset' if self.is_reset else ''}>"


_ID_MAX = 2**32 - 1
# Plain integers, which are tested ten times as fast as flags.
_SYN, _ACK, _FIN, _RST = (int(flag) for flag in Flags)
_DATA = int(FrameKind.DATA)
_RAPID_ROUND_TRIPS = 4
"""A reader that empties half of its window within so many round trips gets twice the window, as in the reference."""


class Yamux:
    """One side of one connection.

    Everything that a peer can fill is bounded: a stream's buffer by its window, streams by `streams_max`, and output by the driver, which
    drops a connection whose `queued_bytes` grow too large.

    Args:
        is_client: Whether we dialled; then our streams have odd ids.

    Attributes:
        streams_max: How many streams each side may have open.
        round_trip_s: Seconds that the last ping took; None before.
        ping_sent_at: When the unanswered ping was sent; None without one.
        goodbye: Why the peer ends the connection: 0 if nothing is wrong, 1 if we broke the protocol, it thinks, 2 for a fault of its own.
        is_leaving: Either side said that it goes, or the peer broke the protocol. No more streams are opened.
    """

    def __init__(self, *, is_client: bool) -> None:
        self._is_client = is_client
        self._next_id = 1 if is_client else 2
        self._streams: dict[int, StreamState] = {}
        self.streams_max = STREAMS_MAX
        self._inbound = 0  # streams of the peer that count towards it
        # How much all windows together may still grow, and how many bytes may still arrive on streams that are gone.
        self._growth_left = GROWTH_BYTES
        self._discard_left = 0
        self._unread = 0  # bytes of all streams that the peer opened
        self._queue: deque[bytes | memoryview] = deque()  # frames and bodies to send
        self._partial = b""  # received and not processed: the beginning of a header, or the rest of a turn
        # The frame whose body is arriving: its stream (None discards the bytes), bytes to come, and whether it ends the stream.
        self._body_stream: StreamState | None = None
        self._body_left = 0
        self._is_body_last = False
        self._pings = 0  # the value of the ping that is under way, or of the next
        self._is_ended = False
        self.queued_bytes = 0
        self.round_trip_s: float | None = None
        self.ping_sent_at: float | None = None
        self.goodbye: int | None = None
        self.is_leaving = False

    @property
    def streams(self) -> list[StreamState]:
        """The streams that are not over, in the order in which they were opened."""
        return list(self._streams.values())

    @property
    def is_behind(self) -> bool:
        """Whether `receive` holds back frames for another call: it takes 512 at once."""
        return len(self._partial) >= HEADER_BYTES

    # Calls for a stream.

    def open(self, now: float, *, is_lazy: bool = False) -> StreamState:
        """Open a stream; it may be written to at once.

        Args:
            is_lazy: Announce it with its first data, which saves 12 bytes. Its window then starts at 256 KiB.

        Raises:
            StreamReset: The connection is ending, or has `streams_max` streams of ours.
        """
        if self.is_leaving or self._is_ended:
            raise StreamReset("the connection is ending")
        outbound = sum(not stream.is_inbound for stream in self._streams.values())
        if outbound >= self.streams_max or self._next_id > _ID_MAX:
            raise StreamReset(f"{outbound} streams of ours are open, at most {self.streams_max} are allowed")
        stream = self._streams[self._next_id] = StreamState(self._next_id, False, now)
        self._next_id += 2
        if not is_lazy:
            self._grow(stream, OPENED_WINDOW_BYTES)
            stream.credit = stream.window
            self._send(FrameKind.WINDOW, self._announcement(stream), stream.id, stream.window - WINDOW_BYTES)
        return stream

    def write(self, stream: StreamState, data: memoryview) -> int:
        """Queue as many bytes as the peer's window and the queue have room for; return how many. They are not copied and must not change.

        Raises:
            ClosedError: We closed our side.
            StreamReset: The stream was reset, or the connection is ending.
        """
        if stream.is_reset or self.is_leaving:
            raise StreamReset(f"stream {stream.id} was reset" if stream.is_reset else "the connection is ending")
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
        """Queue all of it in one frame. If the window has no room for it, queue nothing and return False."""
        size = len(data)
        if size > stream.send_window or size > BODY_BYTES_MAX or stream.is_reset or stream.is_finished_sending or self.is_leaving:
            return False
        self._queue.append(encode_header(_DATA, 0 if stream.is_announced else self._announcement(stream), stream.id, size) + data)
        self.queued_bytes += HEADER_BYTES + size
        stream.send_window -= size
        return True

    def read(self, stream: StreamState, bytes_max: int, now: float) -> bytes:
        """Take up to `bytes_max` bytes that arrived; `b""` if there are none. The peer gets credit for bytes that were read.

        Raises:
            StreamReset: The stream was reset, and all earlier bytes were read.
        """
        if stream.is_reset and not stream.buffer:
            raise StreamReset(f"stream {stream.id} was reset")
        buffer = stream.buffer
        if len(buffer) <= bytes_max:
            data = bytes(buffer)
            # A cleared buffer would keep its memory until the stream ends.
            stream.buffer = bytearray()
        else:
            data = bytes(memoryview(buffer)[:bytes_max])
            del buffer[:bytes_max]
        if stream.is_inbound:
            self._unread -= len(data)
        # Credit is due once half of the window was read.
        is_due = 2 * (stream.window - stream.credit - len(stream.buffer)) >= stream.window
        if is_due and data and not stream.is_finished_receiving and not stream.is_reset and not self._is_ended:
            self._grant(stream, now)
        return data

    def put_back(self, stream: StreamState, data: bytes) -> None:
        """Take back bytes that were read last, to be read again next."""
        stream.buffer[:0] = data
        if stream.is_inbound:
            self._unread += len(data)

    def close(self, stream: StreamState) -> None:
        """Close our side, after everything that was written."""
        if not stream.is_finished_sending and not stream.is_reset and not self._is_ended:
            stream.is_finished_sending = True
            self._send(FrameKind.WINDOW, Flags.FIN | self._announcement(stream), stream.id, 0)
            self._settle(stream)

    def reset(self, stream: StreamState) -> None:
        """End both sides and discard unread bytes. A stream that is over only loses those."""
        if not stream.is_over and not self._is_ended:
            if stream.is_announced or stream.is_inbound:
                self._send(FrameKind.WINDOW, Flags.RST, stream.id, 0)
            self._end(stream)
        self._drop_unread(stream)

    def release(self, stream: StreamState) -> None:
        """Close a stream that the peer opened, when its handler is done, and free its place.

        Until the peer closes its side too, its bytes are discarded, up to the window. So no reset destroys an answer of ours that is under
        way; a peer that fills the window gets one.
        """
        if stream.is_released:
            return
        self.close(stream)
        stream.is_released = True
        self._drop_unread(stream)
        if stream.is_over and stream.is_inbound:
            self._inbound -= 1

    # Calls for the connection.

    def ping(self, now: float) -> None:
        """Send a ping, unless one is unanswered."""
        if self.ping_sent_at is None and not self._is_ended:
            self._send(FrameKind.PING, Flags.SYN, 0, self._pings)
            self.ping_sent_at = now

    def go_away(self, code: int) -> None:
        """Close our side of every stream and announce the connection's end, after everything that was queued."""
        if self.is_leaving or self._is_ended:
            return
        for stream in self.streams:
            self.close(stream)
        self.is_leaving = True
        self._send(FrameKind.GO_AWAY, 0, 0, code)

    def end(self) -> list[StreamState]:
        """Note that nothing will be sent or arrive any more; return the streams that were not over.

        Bytes that arrived can still be read. After these, a stream that the peer had closed is at its end; any other is reset.
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
        """Take whole frames to send next, about `bytes_max` bytes; `b""` if there are none."""
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

    # Bytes that arrive.

    def receive(self, data: bytes, now: float) -> list[StreamState]:
        """Take bytes as they come, cut anywhere; while `is_behind`, call it with none for the rest.

        Returns:
            The streams on which bytes, window, the end or a reset came: look at each. A new one comes first by itself.

        Raises:
            RemoteProtocolError: The peer broke the protocol. Send the queue, which tells the peer, and close the connection. Frames before
                the violation have taken effect, but their streams are not told.
        """
        changed: list[StreamState] = []
        if self._partial:
            data, self._partial = self._partial + data, b""
        view = memoryview(data)
        start, size, frames = 0, len(data), 0
        while start < size:
            if self._body_left:
                end = min(start + self._body_left, size)
                self._on_body(view[start:end], changed)
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
                self._on_header(header, changed, now)
        return changed

    def _on_header(self, header: Header, changed: list[StreamState], now: float) -> None:
        if header.kind == FrameKind.PING:
            self._on_ping(header, now)
            return
        if header.kind == FrameKind.GO_AWAY:
            self.is_leaving = True
            self.goodbye = header.length
            return
        stream = self._streams.get(header.stream)
        if header.flags & _SYN:
            if stream is not None:
                raise self._violation(f"stream {header.stream} was opened twice")
            stream = self._on_open(header, changed, now)
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
            changed.append(stream)
            return
        is_last = bool(header.flags & _FIN)
        if is_data and header.length:
            self._on_data(stream, header.length)
            self._is_body_last = is_last
        elif is_last:
            self._on_end_of_data(stream, changed)
        if not is_data and header.length and not stream.is_reset:
            stream.send_window += header.length
            changed.append(stream)

    def _on_ping(self, header: Header, now: float) -> None:
        if header.flags & _SYN:
            self._send(FrameKind.PING, Flags.ACK, 0, header.length)
        elif header.flags & _ACK and self.ping_sent_at is not None and header.length == self._pings:
            self.round_trip_s = now - self.ping_sent_at
            self.ping_sent_at = None
            self._pings = (self._pings + 1) & _ID_MAX

    def _on_open(self, header: Header, changed: list[StreamState], now: float) -> StreamState | None:
        if (header.stream % 2 == 0) != self._is_client:
            raise self._violation(f"stream {header.stream} was opened with an id of ours")
        if self._inbound >= self.streams_max or self.is_leaving:
            self._send(FrameKind.WINDOW, Flags.RST, header.stream, 0)
            self._discard_left += WINDOW_BYTES
            return None
        stream = self._streams[header.stream] = StreamState(header.stream, True, now, is_new=True)
        self._inbound += 1
        changed.append(stream)
        return stream

    def _on_data(self, stream: StreamState, length: int) -> None:
        if stream.is_finished_receiving:
            raise self._violation(f"data on stream {stream.id} after its end")
        if length > stream.credit:
            raise self._violation(f"{length} bytes on stream {stream.id}, which had room for {stream.credit}")
        self._body_stream = stream

    def _on_data_for_nobody(self, header: Header) -> None:
        """Discard data that may have been under way when its stream ended, up to the credit that the peer had."""
        if header.kind == FrameKind.DATA:
            self._discard_left -= header.length
            if self._discard_left < 0:
                raise self._violation(f"{header.length} bytes on stream {header.stream}, which is not open")

    def _on_body(self, piece: memoryview, changed: list[StreamState]) -> None:
        self._body_left -= len(piece)
        stream = self._body_stream
        if stream is None or stream.is_reset:
            return
        stream.credit -= len(piece)
        if not stream.is_released:
            stream.buffer += piece
            changed.append(stream)
            if stream.is_inbound:
                self._unread += len(piece)
        if self._unread > UNREAD_BYTES_MAX or (stream.is_released and stream.credit == 0):
            self.reset(stream)
            changed.append(stream)
            return
        if self._body_left == 0:
            self._body_stream = None
            if self._is_body_last:
                self._on_end_of_data(stream, changed)

    def _on_end_of_data(self, stream: StreamState, changed: list[StreamState]) -> None:
        if not stream.is_finished_receiving:
            stream.is_finished_receiving = True
            self._settle(stream)
            changed.append(stream)

    def _announcement(self, stream: StreamState) -> int:
        """Return the flag that our first frame on a stream carries. A frame of its own for it would cost 12 bytes."""
        if stream.is_announced:
            return 0
        stream.is_announced = True
        return _ACK if stream.is_inbound else _SYN

    def _grant(self, stream: StreamState, now: float) -> None:
        """Give credit for bytes that were read, and a larger window to a reader that keeps up with the line."""
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
            if stream.is_inbound and stream.is_released:
                self._inbound -= 1

    def _end(self, stream: StreamState) -> None:
        """Reset a stream. Earlier bytes stay readable: a complete answer is valid even if its sender reset the stream afterwards."""
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
