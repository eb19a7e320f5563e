"""A WebSocket that an ASGI server accepted, as a stream of bytes: its binary messages, one after the other.

Source: the ASGI specification, "HTTP & WebSocket"; docs/spec/sync.md, "Mode A".
"""

from __future__ import annotations

from collections.abc import Callable

import trio
from starlette.types import Message, Receive, Send

from ...errors import ClosedError
from ...net.transport.websocket import MESSAGE_BYTES_MAX

_CLOSE_S = 1.0
_NORMAL, _UNSUPPORTED, _TOO_BIG = 1000, 1003, 1009


class AsgiWebSocket:
    """An accepted WebSocket as a `ByteStream`. The server behind it answers pings.

    Args:
        receive: Of the ASGI connection, which was accepted already.
        send: Its `now`, if it has one, takes a message without waiting if there is room, and says whether it did.
    """

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self._now: Callable[[Message], bool] | None = getattr(send, "now", None)
        self._is_open = True
        self._unsent = b""

    def send_now(self, data: bytes) -> bool:
        """See `ByteStream`."""
        if self._now is not None and self._is_open and self._now({"type": "websocket.send", "bytes": data}):
            return True
        self._unsent = data
        return False

    async def send_all(self, data: bytes) -> None:
        """Send one binary message; of none, what `send_now` left.

        Raises:
            ClosedError: The connection is closed or broken.
        """
        if self._unsent:
            data, self._unsent = self._unsent + data, b""
        if not self._is_open:
            raise ClosedError("the WebSocket is closed")
        try:
            await self._send({"type": "websocket.send", "bytes": data})
        except OSError as error:
            # So the specification has servers say that the client has gone.
            raise ClosedError(f"the client has gone: {error}") from None

    async def receive_some(self) -> bytes:
        """Receive a binary message; `b""` at the end.

        Raises:
            ClosedError: The client sent text or too long a message.
        """
        while self._is_open:
            message = await self._receive()
            if message["type"] != "websocket.receive":
                self._is_open = False
                break
            data: bytes = message.get("bytes") or b""
            if message.get("text") is not None:
                await self.refuse(_UNSUPPORTED, "a text message, where all are binary")
                raise ClosedError("a text message, where all are binary")
            if len(data) > MESSAGE_BYTES_MAX:
                await self.refuse(_TOO_BIG, f"a message of more than {MESSAGE_BYTES_MAX} bytes")
                raise ClosedError(f"a message of more than {MESSAGE_BYTES_MAX} bytes")
            if data:
                return data
        return b""

    async def aclose(self) -> None:
        """Say goodbye, if that does not take long."""
        with trio.CancelScope(shield=True):
            await self.refuse(_NORMAL, "")

    async def refuse(self, code: int, reason: str) -> None:
        """Say goodbye for a reason. Of no effect once the connection is closed."""
        if not self._is_open:
            return
        self._is_open = False
        with trio.move_on_after(_CLOSE_S):
            try:
                await self._send({"type": "websocket.close", "code": code, "reason": reason})
            except (OSError, ClosedError):
                # The client has gone, and needs no goodbye.
                return
