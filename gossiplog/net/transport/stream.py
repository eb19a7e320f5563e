"""The interface of the streams of bytes below a muxer."""

from __future__ import annotations

from typing import Protocol


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

    def send_now(self, data: bytes) -> bool:
        """Send all of it if that needs no waiting. If False, call `send_all(b"")` to send the rest before sending anything else.

        Not to be called while `send_all` is under way. Raises nothing: if the stream is broken, `send_all` will raise.
        """

    async def receive_some(self) -> bytes:
        """Receive some bytes, at least one; `b""` at the end.

        Raises:
            ClosedError: The stream is closed or broken.
        """

    async def aclose(self) -> None:
        """Close both ways; closing twice does nothing."""
