"""One stream of a muxed connection, as its owner sees it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import trio

from ...errors import LocalProtocolError, ProtocolNotSupported, RemoteProtocolError, StreamReset
from ...pubsub.types import PeerId
from .multistream import Offer, Proposal
from .stream import Handler, PromptHandler, Traffic
from .yamux.machine import StreamState, Yamux

_PIECE_BYTES_MAX = 65_536
_AT_ONCE_BYTES_MAX = 65_536
"""What may wait to be written, of all streams of a connection, before `send_at_once` refuses: about what goes out in one piece."""


class Carrier(Protocol):
    """The connection below a stream.

    Attributes:
        received_at: When something came last, in seconds.
    """

    muxer: Yamux
    received_at: float

    @property
    def peer(self) -> PeerId:
        """Who is at the other end."""

    def wake_writer(self) -> None:
        """Say that there are bytes to write."""

    async def wait_for_room(self) -> None:
        """Wait until what is queued for writing is little enough."""

    def forget(self, stream: StreamState) -> None:
        """Say that a stream is over."""

    def counted(self, protocol: str) -> Traffic:
        """Return where what streams of a protocol carry is counted."""


class MuxedStream:
    """A `Stream`; made by `MuxedConnection.open_stream` or for a handler. One task may read while another writes.

    Attributes:
        protocol: The protocol that was negotiated for it, or was proposed lazily; empty before.
    """

    def __init__(self, connection: Carrier, state: StreamState) -> None:
        self._connection = connection
        self._muxer = connection.muxer
        self._state = state
        self._changed = trio.lowlevel.ParkingLot()
        self._proposal: Proposal | None = None
        self._deadline = 0.0
        self._early = b""
        self._held = b""  # of the negotiation: it goes out with what is said next, or before the peer is waited for
        self._take: Callable[[bytes], bool] | None = None
        self._taken: Exception | bool | None = None
        self._is_sending = False
        self._is_receiving = False
        self.protocol = ""
        self._traffic = connection.counted("")

    @property
    def is_over(self) -> bool:
        """Nothing more will be sent or arrive; there may be bytes to read."""
        return self._state.is_over

    async def send_all(self, data: bytes) -> None:
        """See `Stream`.

        Raises:
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
                    # Others get their turn only now: they need not wait for it who wait for this.
                    await trio.lowlevel.cancel_shielded_checkpoint()
                    return
                if self._state.send_window == 0:
                    await self._changed.park()
                else:
                    await self._connection.wait_for_room()
        finally:
            self._is_sending = False

    def send_at_once(self, data: bytes) -> bool:
        """See `Stream`."""
        muxer = self._muxer
        has_room = not (self._is_sending or self._held) and muxer.queued_bytes + len(data) <= _AT_ONCE_BYTES_MAX
        if not has_room or not muxer.write_whole(self._state, data):
            return False
        self._traffic.bytes_out += len(data)
        self._connection.wake_writer()
        return True

    async def receive_some(self, bytes_max: int = _PIECE_BYTES_MAX) -> bytes:
        """See `Stream`.

        Raises:
            ProtocolNotSupported, RemoteProtocolError: As `open_stream`, where it was lazy.
            LocalProtocolError: Another task is receiving.
        """
        self._begin_receiving()
        try:
            if self._proposal is not None:
                await self._conclude(self._proposal)
            if self._early or self._state.buffer or self._state.is_over or self._state.is_finished_receiving:
                # Nothing to wait for, and others get their turn all the same.
                await trio.lowlevel.checkpoint()
            return await self._receive(bytes_max)
        finally:
            self._is_receiving = False

    async def hand_on(self, take: Callable[[bytes], bool]) -> bool:
        """See `Stream`, and `receive_some` for what it raises.

        To wake a task for each small piece takes more CPU than most pieces.
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
        """See `Stream`."""
        self._say_held()
        self._muxer.close(self._state)
        self._touched()

    def reset(self) -> None:
        """See `Stream`."""
        self._early = self._held = b""
        self._muxer.reset(self._state)
        self._touched()
        self.wake()

    # For its connection.

    def wake(self) -> None:
        """Say that bytes, window or the end came."""
        if self._take is not None and self._taken is None and self._hand_over(self._take):
            return
        self._changed.unpark_all()
        if self._state.is_over:
            self._connection.forget(self._state)

    def _hand_over(self, take: Callable[[bytes], bool]) -> bool:
        """Hand what is here to who takes it at once; say whether that is all, and no task has anything to do."""
        state = self._state
        if state.buffer:
            try:
                # In the step in which it came.
                self._taken = take(self._read(_PIECE_BYTES_MAX, self._connection.received_at))
            except Exception as error:
                # It belongs to the task that waits for the stream, not to the connection.
                self._taken = error
            if self._taken is not True:
                return False
            self._taken = None
        return not (state.buffer or state.is_reset or state.is_finished_receiving or self._is_sending)

    def release(self) -> None:
        """Note that the stream's handler has ended."""
        self._say_held()
        self._early = b""
        self._muxer.release(self._state)
        self._touched()

    async def propose(self, proposal: Proposal, deadline: float, *, is_lazy: bool) -> None:
        """Negotiate a stream that we opened; lazily, only ask."""
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
                    data = await self._receive(4096)
                    if not data:
                        raise RemoteProtocolError("the stream ended in its negotiation", peer=self._connection.peer)
                    answer = offer.receive(data)
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
            raise RemoteProtocolError("no protocol was agreed upon in time", peer=self._connection.peer)
        self._agree(offer.protocol, rest)
        return offer.protocol

    def _begin_receiving(self) -> None:
        if self._is_receiving:
            raise LocalProtocolError("another task is receiving on this stream")
        self._is_receiving = True

    async def _conclude(self, proposal: Proposal) -> None:
        with trio.CancelScope(deadline=self._deadline) as scope:
            while proposal.protocol is None:
                data = await self._receive(4096)
                if not data:
                    raise RemoteProtocolError("the stream ended in its negotiation", peer=self._connection.peer)
                try:
                    answer = proposal.receive(data)
                except (ProtocolNotSupported, RemoteProtocolError):
                    self.reset()
                    raise
                if answer:
                    await self.send_all(answer)
        if scope.cancelled_caught:
            self.reset()
            raise StreamReset("the peer did not answer to a protocol in time")
        self._proposal = None
        self._agree(proposal.protocol or "", proposal.take_rest())

    def _agree(self, protocol: str, early: bytes = b"") -> None:
        """Take a protocol, and what came after it in the same piece."""
        self.protocol = protocol
        self._early = early
        self._traffic.bytes_in -= len(early)
        self._traffic = self._connection.counted(protocol)
        self._traffic.bytes_in += len(early)

    async def _receive(self, bytes_max: int) -> bytes:
        while not (data := self._read(bytes_max)) and not self._state.is_finished_receiving:
            self._say_held()
            await self._changed.park()
        return data

    def _read(self, bytes_max: int, now: float | None = None) -> bytes:
        """Read what is here; `b""` if that is nothing."""
        if self._early:
            data, self._early = self._early[:bytes_max], self._early[bytes_max:]
            return data
        data = self._muxer.read(self._state, bytes_max, trio.current_time() if now is None else now)
        if data:
            self._traffic.bytes_in += len(data)
            if self._muxer.queued_bytes:
                self._connection.wake_writer()
        return data

    def _write(self, data: memoryview) -> int:
        """Queue as much as there is room for, after what was held back; return how much of it."""
        held = len(self._held)
        sent = self._muxer.write(self._state, memoryview(self._held + data) if held else data)
        self._connection.wake_writer()
        if held:
            self._connection.counted("").bytes_out += min(sent, held)
            self._held, sent = self._held[sent:], max(sent - held, 0)
        self._traffic.bytes_out += sent
        return sent

    def _say_held(self) -> None:
        """Send what was held back, where the stream is one on which anything can still be sent."""
        if self._held and not (self._state.is_over or self._state.is_finished_sending or self._muxer.is_leaving):
            self._write(memoryview(b""))

    def _touched(self) -> None:
        self._connection.wake_writer()
        if self._state.is_over:
            self._connection.forget(self._state)
