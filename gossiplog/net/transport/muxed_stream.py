"""One stream of a muxed connection."""

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
"""Bytes that may be queued on the whole connection before `send_at_once` refuses: about what goes out in one piece."""


class _Carrier(Protocol):
    """What a stream uses of its `MuxedConnection`."""

    muxer: Yamux
    received_at: float
    peer: PeerId

    def wake_writer(self) -> None: ...
    async def wait_for_room(self) -> None: ...
    def forget(self, stream: StreamState) -> None: ...
    def counted(self, protocol: str) -> Traffic: ...


class MuxedStream:
    """A `Stream`; made by `MuxedConnection.open_stream` or for a handler. One task may read while another writes.

    Attributes:
        protocol: The protocol that was negotiated, or proposed lazily; empty before.
    """

    def __init__(self, connection: _Carrier, state: StreamState) -> None:
        self._connection = connection
        self._muxer = connection.muxer
        self._state = state
        self._changed = trio.lowlevel.ParkingLot()
        self._proposal: Proposal | None = None
        self._deadline = 0.0
        self._early = b""
        self._held = b""  # a message of the negotiation; it goes out with the next bytes, or before we wait for the peer
        self._take: Callable[[bytes], bool] | None = None
        self._taken: Exception | bool | None = None
        self._is_sending = False
        self._is_receiving = False
        self.protocol = ""
        self._traffic = connection.counted("")

    @property
    def is_over(self) -> bool:
        """Whether nothing more will be sent or arrive. There may be bytes to read."""
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
                # There is nothing to wait for, but other tasks get their turn.
                await trio.lowlevel.checkpoint()
            return await self._receive(bytes_max)
        finally:
            self._is_receiving = False

    async def hand_on(self, take: Callable[[bytes], bool]) -> bool:
        """See `Stream`; raises as `receive_some`. Waking a task for each small piece would take more CPU than most pieces do."""
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
        self._early = b""
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
