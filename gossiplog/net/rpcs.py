"""Pubsub over streams: each side opens one of its own, and writes RPCs on it alone."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable

import trio

from ..codec.framing import FrameDecoder
from ..pubsub.outbox import Outbox
from ..pubsub.rpc import Rpc
from ..pubsub.wire import Decoded, Wire
from .stream import Stream

__all__ = ["Encoder", "RpcSender", "read_rpcs"]

_ENCODED_MAX = 64
_WRITE_BYTES = 64 * 1024
_DECODED_AT_ONCE_BYTES = 4 * 1024
"""Longer frames are decoded in a thread: one of 4 MiB takes most of a second, in which others would have to wait."""


class Encoder:
    """Encodes each RPC once, for however many peers; the latest few are kept, with their RPCs, which makes their identity their name."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self._encoded: OrderedDict[int, tuple[Rpc, bytes]] = OrderedDict()

    def encode(self, rpc: Rpc) -> bytes:
        """Return the frames of an RPC, one behind the other."""
        known = self._encoded.get(id(rpc))
        if known is not None:
            return known[1]
        data = b"".join(self.wire.encode(rpc))
        self._encoded[id(rpc)] = (rpc, data)
        if len(self._encoded) > _ENCODED_MAX:
            self._encoded.popitem(last=False)
        return data


class RpcSender:
    """What is written to one peer: a bounded queue in two priorities, and the task that empties it.

    Args:
        encoder: Shared by all peers.
    """

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self._outbox = Outbox()
        self._more = trio.Event()

    def __len__(self) -> int:
        """How many RPCs wait."""
        return len(self._outbox)

    def put(self, rpc: Rpc, *, is_urgent: bool) -> Rpc | None:
        """Queue an RPC; return the one that was dropped for want of room, this one or another."""
        dropped = self._outbox.put(rpc, is_urgent=is_urgent)
        self._more.set()
        return dropped

    async def run(self, stream: Stream) -> None:
        """Write for ever.

        Raises:
            StreamReset: The stream broke.
        """
        while True:
            rpc = self._outbox.pop()
            if rpc is None:
                self._more = trio.Event()
                await self._more.wait()
                continue
            parts = [self._encoder.encode(rpc)]
            size = len(parts[0])
            while size < _WRITE_BYTES and (rpc := self._outbox.pop()) is not None:
                parts.append(self._encoder.encode(rpc))
                size += len(parts[-1])
            await stream.send_all(b"".join(parts))


async def read_rpcs(
    stream: Stream, wire: Wire, on_rpc: Callable[[Decoded], Awaitable[None]], is_heeded: Callable[[], bool], threads: trio.CapacityLimiter
) -> None:
    """Read RPCs until the peer closes its side.

    Args:
        stream: Opened by the peer.
        wire: Decodes.
        on_rpc: Takes each RPC. Nothing more is read before it returns.
        is_heeded: Whether the next frame is worth decoding; else it is dropped unread.
        threads: For long frames, which are decoded beside the loop.

    Raises:
        DecodeError: What came is no RPC, or breaks a limit.
        StreamReset: The stream broke.
    """
    frames = FrameDecoder(wire.limits.in_bytes_max)
    while data := await stream.receive_some():
        frames.feed(data)
        while (body := frames.next()) is not None:
            if not is_heeded():
                pass
            elif len(body) <= _DECODED_AT_ONCE_BYTES:
                await on_rpc(wire.decode(body))
            else:
                await on_rpc(await trio.to_thread.run_sync(wire.decode, body, limiter=threads))
            # One chunk may be thousands of small RPCs, for which others should not have to wait.
            await trio.lowlevel.checkpoint()
