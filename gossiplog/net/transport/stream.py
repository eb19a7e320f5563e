"""The interfaces that all of `net` uses: byte streams, connections that carry many streams, and those streams."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

from ...pubsub.types import PeerId


class ByteStream(Protocol):
    """An ordered stream of bytes below a muxer: noise over TCP, or the binary messages of a WebSocket.

    One task sends and one receives. A call that need not wait may return without a turn for other tasks. A cancelled call may leave the
    stream unusable, so only the connection's own tasks call it.
    """

    async def send_all(self, data: bytes) -> None:
        """Send all of it.

        Raises:
            ClosedError: The stream is closed or broken.
        """

    async def receive_some(self) -> bytes:
        """Receive some bytes, at least one; `b""` at the end.

        Raises:
            ClosedError: The stream is closed or broken.
        """

    async def aclose(self) -> None:
        """Close both ways; closing twice does nothing."""


@runtime_checkable
class PromptStream(ByteStream, Protocol):
    """A byte stream that can send without waiting."""

    def send_now(self, data: bytes) -> bool:
        """Send all of it if that needs no waiting. If False, call `send_all(b"")` to send the rest before sending anything else.

        Not to be called while `send_all` is under way. Raises nothing: if the stream is broken, `send_all` will raise.
        """


class Stream(Protocol):
    """One stream of a connection. Each side closes its half. Cancelling a call harms neither the stream nor the connection."""

    @property
    def protocol(self) -> str:
        """The protocol that was negotiated for it; empty before."""

    async def send_all(self, data: bytes) -> None:
        """Send all of it, waiting for the peer's window. A cancelled call may have sent a part.

        Raises:
            ClosedError: We closed our side.
            StreamReset: The peer reset the stream, or the connection is gone.
        """

    def send_at_once(self, data: bytes) -> bool:
        """Send all of it if little is queued and nothing has to be waited for; otherwise send nothing and return False."""

    async def receive_some(self, bytes_max: int = 65_536) -> bytes:
        """Receive 1 to `bytes_max` bytes; `b""` once the peer closed its side and everything was read.

        Raises:
            StreamReset: As `send_all`, once the bytes before the reset were received.
        """

    async def hand_on(self, take: Callable[[bytes], bool]) -> bool:
        """Hand bytes to a function in the step in which they arrive, until it wants no more or the stream ends.

        Args:
            take: Takes 1 to 65,536 bytes without waiting, and returns whether it wants more. Its exceptions are raised here.

        Returns:
            Whether more may come; False once the peer closed its side and everything was taken.

        Raises:
            StreamReset: As `receive_some`.
        """

    def close_sending(self) -> None:
        """Close our side after everything that was sent; the peer reads the end. Closing twice does nothing."""

    def reset(self) -> None:
        """End both directions at once; the peer's calls raise. Does nothing to a stream that is over."""


@dataclass(slots=True)
class Traffic:
    """Bytes that the streams of one protocol carried."""

    bytes_in: int = 0
    bytes_out: int = 0


class Connection(Protocol):
    """A connection with one peer, carrying many streams."""

    @property
    def peer(self) -> PeerId:
        """The peer on the other side."""

    @property
    def is_outbound(self) -> bool:
        """Whether we dialled."""

    @property
    def address(self) -> str | None:
        """The remote IP address, without port; None if there is none."""

    @property
    def is_over(self) -> bool:
        """Whether it has ended or begun to end, and all of its streams with it."""

    @property
    def streams(self) -> Sequence[Stream]:
        """The streams that are still open."""

    @property
    def traffic(self) -> Mapping[str, Traffic]:
        """Bytes that its streams carried so far, by protocol."""

    async def open_stream(self, protocols: Sequence[str], *, is_lazy: bool = False) -> Stream:
        """Open a stream and agree on the first of these protocols that the peer speaks.

        Args:
            is_lazy: Do not wait for the peer's answer, which saves a round trip: the first bytes go out with the proposal, and
                `receive_some` raises what this call would. Ignored unless there is exactly one protocol. Use it only for a protocol that
                the peer will hardly refuse: the reference takes the bytes after a refused protocol for another proposal.

        Raises:
            ProtocolNotSupported: The peer speaks none of them.
            StreamReset: The connection, or the stream, ended meanwhile.
            RemoteProtocolError: The peer broke the negotiation.
        """

    async def aclose(self) -> None:
        """Close the connection, with a deadline of its own; closing twice does nothing."""


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


Handler: TypeAlias = Callable[[Connection, Stream], Awaitable[None]]
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
