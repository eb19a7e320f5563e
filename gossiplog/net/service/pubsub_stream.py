"""Pubsub over streams: each side opens a stream of its own, and writes RPCs on no other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from ...codec.framing import FrameDecoder
from ...errors import ClosedError, GossipLogError, StreamReset
from ...pubsub.outbox import Outbox
from ...pubsub.rpc import Rpc
from ...pubsub.wire.rpc_codec import Decoded, Wire
from ...pubsub.wire.shared_frames import Copies, Encoder
from ..transport.framed import read_frames
from ..transport.muxed import Stream

_WRITE_BYTES = 64 * 1024
_FRAMES_A_TURN = 8
_LEAVING_BYTES_MAX = 256
"""The longest frame that is decoded of a peer that is not heeded: enough to say which topics it has left."""
_SUBSCRIPTIONS_TAG = b"\x0a"
_DECODED_AT_ONCE_BYTES = 4 * 1024
"""Longer frames are decoded in a thread: one of 4 MiB takes most of a second."""


class RpcSender:
    """Writes to one peer: a bounded queue in two priorities, and the task that empties it.

    Args:
        encoder: Shared by all peers.
        on_left_out: Called with the number of messages that were not sent because they fit no frame.
    """

    def __init__(self, encoder: Encoder, on_left_out: Callable[[int], None]) -> None:
        self._encoder = encoder
        self._on_left_out = on_left_out
        self._outbox = Outbox()
        self._more = trio.lowlevel.ParkingLot()
        self._stream: Stream | None = None

    def __len__(self) -> int:
        """Return how many RPCs wait."""
        return len(self._outbox)

    def put(self, rpc: Rpc, *, is_urgent: bool) -> Rpc | None:
        """Send an RPC at once if none waits, else queue it. If there is no room, return the RPC that was dropped: this one or another."""
        if self._stream is not None and not self._outbox:
            # Waking a task for each small frame takes more CPU than the frame.
            data, left_out = self._encoder.encode(rpc)
            if self._stream.send_at_once(data):
                if left_out:
                    self._on_left_out(left_out)
                return None
        dropped = self._outbox.put(rpc, is_urgent=is_urgent)
        self._more.unpark_all()
        return dropped

    async def run(self, stream: Stream, first: Rpc | None) -> str:
        """Write until the stream is lost, and return why. An RPC that is being written is lost too.

        The stream is read all the time to notice its end: rust-libp2p closes the stream of a peer that sends something it does not accept,
        and says nothing to a peer that goes on writing.

        Args:
            stream: Opened by us; the other side does not write on it.
            first: Sent before the RPCs that wait.
        """
        reason = "cancelled"
        async with trio.open_nursery() as nursery:

            async def watch() -> None:
                nonlocal reason
                reason = await _read_until_lost(stream)
                nursery.cancel_scope.cancel()

            nursery.start_soon(watch)
            try:
                if first is not None:
                    await stream.send_all(self._encoder.encode(first)[0])
                await self._write(stream)
            except (StreamReset, ClosedError) as error:
                reason = str(error)
                nursery.cancel_scope.cancel()
        return reason

    async def _write(self, stream: Stream) -> None:
        self._stream = stream
        try:
            while True:
                while not self._outbox:
                    await self._more.park()
                data = self._take()
                if data:
                    await stream.send_all(data)
        finally:
            self._stream = None

    def _take(self) -> bytes:
        """Encode the next RPCs, about 64 KiB of them."""
        parts: list[bytes] = []
        size = left_out = 0
        while size < _WRITE_BYTES and (rpc := self._outbox.pop()) is not None:
            data, too_large = self._encoder.encode(rpc)
            parts.append(data)
            size, left_out = size + len(data), left_out + too_large
        if left_out:
            self._on_left_out(left_out)
        return b"".join(parts)


async def _read_until_lost(stream: Stream) -> str:
    """Read and discard until the stream is lost; return why."""
    try:
        while await stream.receive_some():
            pass
    except GossipLogError as error:
        return str(error)
    return "the peer closed it"


async def read_rpcs(
    stream: Stream,
    wire: Wire,
    copies: Copies,
    on_rpc: Callable[[Decoded, bool], Awaitable[None]],
    on_entry: Callable[[Rpc], bool],
    is_heeded: Callable[[], bool],
    threads: trio.CapacityLimiter,
) -> None:
    """Read RPCs until the peer closes its side. An RPC with one message and nothing else is taken in the step in which it arrives.

    Args:
        on_rpc: Takes an RPC, and whether it is the first on the stream. Nothing more is read before it returns.
        on_entry: Takes an RPC with one message and nothing else, unless that has to wait; then it returns False, and `on_rpc` gets it.
        is_heeded: Whether the router wants the next frame; if not, the frame is dropped undecoded.
        threads: Limits the threads in which long frames are decoded.

    Raises:
        DecodeError: A frame is no RPC, or breaks a limit.
        StreamReset: The stream broke.
    """
    is_first = True

    def take_now(body: bytes) -> bool:
        if is_first or len(body) > _DECODED_AT_ONCE_BYTES:
            return False
        # A copy goes to the router in any case: it decides itself whether to heed it.
        usual = copies.known(body) or (copies.read(body) if is_heeded() else None)
        return usual is not None and on_entry(usual)

    async def take(body: bytes) -> None:
        nonlocal is_first
        if not is_heeded():
            if len(body) <= _LEAVING_BYTES_MAX and body[:1] == _SUBSCRIPTIONS_TAG:
                # The router only notes which topics the peer has left.
                await on_rpc(wire.decode(body), False)
        elif len(body) <= _DECODED_AT_ONCE_BYTES:
            await on_rpc(copies.decode(body), is_first)
        else:
            await on_rpc(await trio.to_thread.run_sync(wire.decode, body, limiter=threads), is_first)
        is_first = False

    await read_frames(stream, FrameDecoder(wire.limits.in_bytes_max), take_now, take, at_once_max=_FRAMES_A_TURN)
